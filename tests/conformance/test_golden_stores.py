"""Store directories of Apache RocketMQ 5.3.3, stopped cleanly and killed, opened by our store.

The manifests say what the Java client read from them; the store must say the same, message by
message, and go on from there.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import tarfile
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from firearrow.base.runtime import SystemClock
from firearrow.hot import (
    Record,
    StoreMessage,
    decode_properties,
    decode_record,
    java_hash,
    offset_message_id,
    parse_offset_message_id,
)
from firearrow.model.errors import MessageIllegal
from firearrow.offline.payload import messages_of
from firearrow.store.config import StoreConfig
from firearrow.store.reading import Status
from firearrow.store.store import MessageStore
from firearrow.wire import java_json
from firearrow.wire.bodies.offsets import ConsumerOffsetWrapper, DelayOffsetWrapper

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

DATA: Final = Path(__file__).parent / "data"
# Large, and nothing in it for a store: the wheel of the timer, and its log.
NOT_NEEDED: Final = ("timerwheel", "timerlog")
ALWAYS: Final = 1 << 62


@cache
def manifest(store: str) -> dict[str, Any]:
    with gzip.open(DATA / f"store-5.3.3-{store}.manifest.json.gz") as file:
        return dict(json.load(file))


@pytest.fixture(scope="module", params=["clean", "killed"])
def store(request: pytest.FixtureRequest) -> str:
    """The name of a recording; every test that takes it runs for each."""
    return str(request.param)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Unpacks the recording of a name, once."""

    @cache
    def unpack(store: str) -> Path:
        folder = tmp_path_factory.mktemp("recorded")
        with tarfile.open(DATA / f"store-5.3.3-{store}.tar.gz") as archive:
            wanted = [m for m in archive if not set(NOT_NEEDED) & set(Path(m.name).parts)]
            archive.extractall(folder, members=wanted, filter="data")
        return folder / "store"

    return unpack


@pytest.fixture
def root(store: str, recording: Callable[[str], Path], tmp_path: Path) -> Path:
    """A copy of a recorded directory that a test may spoil."""
    return shutil.copytree(recording(store), tmp_path / "store")


def settings(store: str, root: Path) -> StoreConfig:
    given = manifest(store)["settings"]
    return StoreConfig(
        store_path_root_dir=root,
        mapped_file_size_commit_log=int(given["mappedFileSizeCommitLog"]),
        mapped_file_size_consume_queue=int(given["mappedFileSizeConsumeQueue"]),
        max_hash_slot_num=int(given["maxHashSlotNum"]),
        max_index_num=int(given["maxIndexNum"]),
        file_reserved_time=1_000_000,
    )


@asynccontextmanager
async def opened(store: str, root: Path) -> AsyncIterator[MessageStore]:
    ours = MessageStore(settings(store, root), SystemClock())
    await ours.start()
    try:
        yield ours
    finally:
        await ours.stop()


def separate(slices: list[memoryview]) -> Iterator[memoryview]:
    """Records of slices, which hold several where they touch."""
    for piece in slices:
        at = 0
        while at < len(piece):
            size = int.from_bytes(piece[at : at + 4], "big")
            yield piece[at : at + size]
            at += size


def records_of(ours: MessageStore, topic: str, queue_id: int) -> list[Record]:
    """Every record of a queue, read as a consumer reads it."""
    offset = ours.lookup.min_offset(topic, queue_id)
    found: list[Record] = []
    while offset < ours.lookup.max_offset(topic, queue_id):
        got = ours.get(topic, queue_id, offset, 32)
        assert got.next_offset > offset, got
        found += map(decode_record, separate(got.slices))
        offset = got.next_offset
    return found


def batch_topics(store: str) -> set[str]:
    """Topics whose queues are of another kind, with several messages to a record."""
    return {
        name
        for name, config in manifest(store)["topics"].items()
        if "BatchCQ" in config["attributes"].values()
    }


def in_plain_queues(store: str) -> list[dict[str, Any]]:
    """The messages of the manifest in queues of the usual kind."""
    batched = batch_topics(store)
    return [message for message in manifest(store)["messages"] if message["topic"] not in batched]


def message_id(record: Record) -> str:
    return offset_message_id(record.store_ip, record.store_port, record.physical_offset)


def facts_of(record: Record) -> dict[str, Any]:
    """A record in the words of the manifest."""
    properties = decode_properties(record.properties)
    facts = {
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "physicalOffset": record.physical_offset,
        "storeSize": record.size,
        "offsetMsgId": message_id(record),
        "uniqKey": properties.get("UNIQ_KEY"),
        "tags": properties.get("TAGS"),
        "keys": properties.get("KEYS"),
        "flag": record.flag,
        "sysFlag": record.sys_flag,
        "bornTimestamp": record.born_timestamp,
        "bornHost": f"{'.'.join(map(str, record.born_ip))}:{record.born_port}",
        "storeTimestamp": record.store_timestamp,
        "storeHost": f"{'.'.join(map(str, record.store_ip))}:{record.store_port}",
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_offset,
        "bodyCrc": record.body_crc,
        "properties": properties,
        "storedBodySize": len(record.body),
        "storedBodySha256": hashlib.sha256(record.body).hexdigest(),
    }
    return {name: value for name, value in facts.items() if value is not None}


def plain_queues(store: str) -> Iterator[tuple[str, int, int, int]]:
    """Topic, queue and both ends of every queue that had a message."""
    batched = batch_topics(store)
    for queue in manifest(store)["queues"]:
        if queue["topic"] not in batched and queue["maxOffset"] > 0:
            yield queue["topic"], queue["queueId"], queue["minOffset"], queue["maxOffset"]


async def test_every_message_is_where_the_java_client_found_it(store: str, root: Path) -> None:
    expected = {
        (message["topic"], message["queueId"], message["queueOffset"]): message
        for message in in_plain_queues(store)
    }
    async with opened(store, root) as ours:
        assert ours.statistics().end_offset == manifest(store)["commitLog"]["maxOffset"]
        assert ours.recovered is not None
        assert ours.recovered.clean is (store == "clean")
        assert ours.recovered.damage == []
        for topic, queue_id, least, most in plain_queues(store):
            assert ours.lookup.min_offset(topic, queue_id) == least
            assert ours.lookup.max_offset(topic, queue_id) == most
            records = records_of(ours, topic, queue_id)
            assert [record.queue_offset for record in records] == list(range(least, most))
            for record in records:
                told = expected.pop((topic, queue_id, record.queue_offset))
                facts = facts_of(record)
                assert facts == {name: told[name] for name in facts}
                (message,) = messages_of(record)
                if not message.note:
                    assert hashlib.sha256(message.body).hexdigest() == told["bodySha256"]
        assert expected == {}, "messages that no queue has"


def queue_folders(root: Path) -> set[tuple[str, int]]:
    return {(path.parent.name, int(path.name)) for path in root.glob("consumequeue/*/*")}


async def test_no_queue_is_there_that_apache_did_not_have(store: str, root: Path) -> None:
    async with opened(store, root) as ours:
        told = {(topic, queue_id) for topic, queue_id, _, _ in plain_queues(store)}
        assert set(ours.queues()) == told
        assert queue_folders(root) == told


async def test_messages_of_a_batch_topic_are_found_in_their_records(store: str, root: Path) -> None:
    inner = [m for m in manifest(store)["messages"] if m["topic"] in batch_topics(store)]
    assert len(inner) == 9
    async with opened(store, root) as ours:
        for told in inner:
            record = ours.lookup.record_at(told["physicalOffset"])
            assert record is not None
            by_offset = {message.queue_offset: message for message in messages_of(record)}
            message = by_offset[told["queueOffset"]]
            assert hashlib.sha256(message.body).hexdigest() == told["bodySha256"]
            assert message.properties.get("KEYS") == told.get("keys")
        # Its queues are not ours to write: a message at a wrong offset would hide another.
        with pytest.raises(MessageIllegal, match="batch queues"):
            ours.put(StoreMessage(inner[0]["topic"], 0, b"refused"))


async def test_every_key_finds_the_messages_it_found_in_apache(store: str, root: Path) -> None:
    asked = 0
    async with opened(store, root) as ours:
        for query in manifest(store)["queryByKey"]:
            found = ours.lookup.by_key(
                query["topic"], query["key"], limit=64, begin_ms=0, end_ms=ALWAYS
            )
            assert sorted(map(message_id, found)) == query["offsetMsgIds"], query
            asked += 1
        # The manifest asks for some of the keys; each message must be found by its unique key.
        for told in in_plain_queues(store):
            if told.get("uniqKey"):
                found = ours.lookup.by_key(
                    told["topic"], told["uniqKey"], limit=64, begin_ms=0, end_ms=ALWAYS
                )
                assert told["offsetMsgId"] in map(message_id, found)
                asked += 1
    assert asked > 400


async def test_offsets_by_time_are_those_of_apache(store: str, root: Path) -> None:
    plain = {(topic, queue_id) for topic, queue_id, _, _ in plain_queues(store)}
    asked = 0
    async with opened(store, root) as ours:
        for told in manifest(store)["searchOffset"]:
            if (told["topic"], told["queueId"]) in plain:
                offset = ours.lookup.offset_by_time(
                    told["topic"],
                    told["queueId"],
                    told["timestamp"],
                    upper=told["boundary"] == "upper",
                )
                assert offset == told["offset"], told
                asked += 1
    assert asked > 100


async def test_a_tag_selects_its_messages(store: str, root: Path) -> None:
    topic = "GcPlain" if store == "clean" else "GkPlain"
    told = [m for m in in_plain_queues(store) if m["topic"] == topic and m["queueId"] == 0]
    async with opened(store, root) as ours:
        tags = {message["tags"] for message in told if message.get("tags")}
        assert len(tags) > 1
        for tag in tags:
            found: list[int] = []
            offset = 0
            while offset < len(told):
                got = ours.get(topic, 0, offset, 32, codes={java_hash(tag)})
                found += [decode_record(piece).queue_offset for piece in separate(got.slices)]
                offset = got.next_offset
            assert found == [m["queueOffset"] for m in told if m.get("tags") == tag]


async def test_light_queues_stay_as_apache_left_them(store: str, root: Path) -> None:
    """Their entries point to records of another topic, which is no damage to be mended."""
    topic, queue_id, _, _ = next(plain_queues(store))
    light = shutil.copytree(
        root / "consumequeue" / topic / str(queue_id), root / "consumequeue" / "%LMQ%light" / "0"
    )
    before = contents(light)
    async with opened(store, root) as ours:
        assert ours.get("%LMQ%light", 0, 0, 32).status is Status.NO_MATCHED_LOGIC_QUEUE
        with pytest.raises(MessageIllegal, match="light queues"):
            ours.put(StoreMessage("%LMQ%light", 0, b"refused"))
    assert any(any(content) for content in before.values())
    assert contents(light) == before


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


async def test_nothing_that_the_killed_broker_acknowledged_is_missing(
    recording: Callable[[str], Path], tmp_path: Path
) -> None:
    root = shutil.copytree(recording("killed"), tmp_path / "store")
    async with opened("killed", root) as ours:
        for told in manifest("killed")["acknowledgedWhileKilled"]:
            _, _, physical_offset = parse_offset_message_id(told)
            record = ours.lookup.record_at(physical_offset)
            assert record is not None
            same = ours.lookup.by_queue_offset(record.topic, record.queue_id, record.queue_offset)
            assert same is not None
            assert same.physical_offset == physical_offset


def test_committed_offsets_and_delay_offsets_read_as_apache_meant_them(
    store: str, root: Path
) -> None:
    config = root / "config"
    committed = java_json.decode(
        (config / "consumerOffset.json").read_bytes(), ConsumerOffsetWrapper
    ).offset_table
    delayed = java_json.decode(
        (config / "delayOffset.json").read_bytes(), DelayOffsetWrapper
    ).offset_table

    told = manifest(store)["committedOffsets"]
    assert committed == {
        group: {int(queue_id): offset for queue_id, offset in offsets.items()}
        for group, offsets in told.items()
    }
    assert delayed == {int(k): v for k, v in manifest(store)["delayOffsets"].items()}


async def test_new_messages_follow_the_recorded_ones_and_all_are_there_after_a_reopening(
    store: str, root: Path
) -> None:
    queues = list(plain_queues(store))
    async with opened(store, root) as ours:
        end = 0
        for topic, queue_id, _, most in queues:
            for number in range(3):
                key = f"new-{topic}-{queue_id}-{number}"
                message = StoreMessage(topic, queue_id, b"new", f"KEYS\x01{key}\x02".encode())
                end = ours.put(message)
                assert message.queue_offset == most + number
        await ours.wait_flushed(end)
    assert not (root / "abort").exists()

    async with opened(store, root) as ours:
        assert ours.recovered is not None
        assert ours.recovered.damage == []
        told = {(m["topic"], m["queueId"], m["queueOffset"]): m for m in in_plain_queues(store)}
        for topic, queue_id, least, most in queues:
            records = records_of(ours, topic, queue_id)
            assert [record.queue_offset for record in records] == list(range(least, most + 3))
            for record in records[: most - least]:
                old = told[topic, queue_id, record.queue_offset]
                assert message_id(record) == old["offsetMsgId"]
            for number, record in enumerate(records[most - least :]):
                key = f"new-{topic}-{queue_id}-{number}"
                (found,) = ours.lookup.by_key(topic, key, limit=64, begin_ms=0, end_ms=ALWAYS)
                assert (found.physical_offset, found.body) == (record.physical_offset, b"new")
        for query in manifest(store)["queryByKey"]:
            old_keys = ours.lookup.by_key(
                query["topic"], query["key"], limit=64, begin_ms=0, end_ms=ALWAYS
            )
            assert sorted(map(message_id, old_keys)) == query["offsetMsgIds"], query
