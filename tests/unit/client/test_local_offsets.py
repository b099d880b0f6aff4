from __future__ import annotations

from pathlib import Path

import pytest

from firearrow.base.errors import ConfigError
from firearrow.base.files import backup_of
from firearrow.client.local_offsets import (
    DIRECTORY_VARIABLE,
    LocalOffsetFile,
    offset_file_path,
)
from firearrow.model.topic import MessageQueue

# What a consumer of Apache RocketMQ 5.3.3 (and 4.9.8) wrote.
BY_JAVA = (
    "{\n"
    '\t"offsetTable":{{\n'
    '\t\t\t"brokerName":"b",\n'
    '\t\t\t"queueId":0,\n'
    '\t\t\t"topic":"t"\n'
    "\t\t}:123,{\n"
    '\t\t\t"brokerName":"b",\n'
    '\t\t\t"queueId":1,\n'
    '\t\t\t"topic":"t"\n'
    "\t\t}:7,{\n"
    '\t\t\t"brokerName":"b",\n'
    '\t\t\t"queueId":1,\n'
    '\t\t\t"topic":"tö\\"p/x"\n'
    "\t\t}:-1\n"
    "\t}\n"
    "}"
)


def queue(queue_id: int, topic: str = "t") -> MessageQueue:
    return MessageQueue(topic=topic, broker_name="b", queue_id=queue_id)


OFFSETS = {queue(0): 123, queue(1): 7, queue(1, 'tö"p/x'): -1}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return offset_file_path("10.0.0.7@DEFAULT", "readers", tmp_path)


@pytest.fixture
def file(path: Path) -> LocalOffsetFile:
    return LocalOffsetFile(path)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def test_what_java_wrote_is_read(path: Path, file: LocalOffsetFile) -> None:
    write(path, BY_JAVA)
    assert file.load() == OFFSETS


def test_the_file_is_javas_to_the_byte(path: Path, file: LocalOffsetFile) -> None:
    file.save(OFFSETS)
    assert path.read_text("utf-8") == BY_JAVA
    assert not backup_of(path).exists()


def test_a_table_without_queues_is_read(path: Path, file: LocalOffsetFile) -> None:
    write(path, '{\n\t"offsetTable":{}\n}')
    assert file.load() == {}


@pytest.mark.parametrize(
    "text",
    [
        '{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:123}}',
        '{"offsetTable":{{"topic":"t","queueId":"0","brokerName":"b"}:"123"}}',
        '{"offsetTable":{"{\\"brokerName\\":\\"b\\",\\"queueId\\":0,\\"topic\\":\\"t\\"}":123}}',
    ],
    ids=["compact", "numbers as text", "keys as text"],
)
def test_other_ways_to_write_the_same_are_read(
    text: str, path: Path, file: LocalOffsetFile
) -> None:
    write(path, text)
    assert file.load() == {queue(0): 123}


def test_nothing_saved_loads_as_nothing_and_leaves_no_trace(
    tmp_path: Path, file: LocalOffsetFile
) -> None:
    assert file.load() == {}
    file.save({})
    assert list(tmp_path.iterdir()) == []


def test_saving_keeps_the_offsets_of_other_queues(file: LocalOffsetFile) -> None:
    file.save({queue(0): 5, queue(1): 6})
    file.save({queue(1): 7, queue(2): 8})
    assert file.load() == {queue(0): 5, queue(1): 7, queue(2): 8}


def test_saving_keeps_what_another_consumer_saved_meanwhile(path: Path) -> None:
    ours, theirs = LocalOffsetFile(path), LocalOffsetFile(path)
    ours.save({queue(0): 5})
    theirs.save({queue(1): 6})
    ours.save({queue(0): 7})
    assert theirs.load() == {queue(0): 7, queue(1): 6}


def test_an_offset_may_go_back(file: LocalOffsetFile) -> None:
    file.save({queue(0): 5})
    file.save({queue(0): 3})
    assert file.load() == {queue(0): 3}


def test_the_version_before_is_the_backup_and_nothing_new_writes_nothing(
    path: Path, file: LocalOffsetFile
) -> None:
    file.save({queue(0): 5})
    first = path.read_bytes()
    file.save({queue(0): 6})
    file.save({queue(0): 6})
    assert backup_of(path).read_bytes() == first


@pytest.mark.parametrize("damage", ["", BY_JAVA[:80], "[1, 2]", '{"offsetTable":{"a":1}}'])
def test_a_damaged_file_gives_way_to_its_backup(
    damage: str, path: Path, file: LocalOffsetFile
) -> None:
    write(backup_of(path), BY_JAVA)
    write(path, damage)
    assert file.load() == OFFSETS
    file.save({queue(0): 200})
    assert file.load() == {**OFFSETS, queue(0): 200}


def test_damage_without_a_backup_is_neither_taken_for_nothing_nor_overwritten(
    path: Path, file: LocalOffsetFile
) -> None:
    write(path, BY_JAVA[:80])
    with pytest.raises(ConfigError, match=r"offsets\.json: it does not hold offsets: "):
        file.load()
    with pytest.raises(ConfigError, match="remove it"):
        file.save({queue(0): 1})
    assert path.read_text("utf-8") == BY_JAVA[:80]


def test_the_directory_is_the_given_one_then_the_environments_then_rocketmqs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", "/home/reader")
    monkeypatch.delenv(DIRECTORY_VARIABLE, raising=False)
    tail = "10.0.0.7@DEFAULT/readers/offsets.json"
    assert offset_file_path("10.0.0.7@DEFAULT", "readers") == Path(
        f"/home/reader/.rocketmq_offsets/{tail}"
    )
    monkeypatch.setenv("ROCKETMQ_CLIENT_LOCAL_OFFSET_STORE_DIR", "/srv/offsets")
    assert offset_file_path("10.0.0.7@DEFAULT", "readers") == Path(f"/srv/offsets/{tail}")
    assert offset_file_path("10.0.0.7@DEFAULT", "readers", "/given") == Path(f"/given/{tail}")
