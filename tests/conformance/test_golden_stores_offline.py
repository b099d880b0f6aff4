"""Whole store directories of Apache RocketMQ 5.3.3, one stopped cleanly and one killed while it
was written to: dumped and compared message by message with what a Java client read from a live
broker, checked, and rebuilt to the byte.
"""

from __future__ import annotations

import gzip
import json
import shutil
import tarfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from firearrow.offline.check import check
from firearrow.offline.derived import QueueKey
from firearrow.offline.directory import Shape, StoreDirectory
from firearrow.offline.dump import Selection, as_object, dump
from firearrow.offline.log_walk import Damage
from firearrow.offline.rebuild import rebuild

if TYPE_CHECKING:
    from collections.abc import Iterator

DATA: Final = Path(__file__).parent / "data"
STORES: Final = ("clean", "killed")
RECORDED_MS: Final = 1_794_800_000_000  # a few hours after the recording
QUERY_MAX: Final = 64  # what a query by key returns at most
MADE_UP: Final = {"offsetMsgId", "storeSize", "bodyCrc", "storedBodySize"}  # of inner batches


@cache
def manifest(store: str) -> dict[str, Any]:
    with gzip.open(DATA / f"store-5.3.3-{store}.manifest.json.gz") as file:
        return dict(json.load(file))


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """Both stores, unpacked; nobody may write to them."""
    roots = {}
    for store in STORES:
        folder = tmp_path_factory.mktemp(store)
        with tarfile.open(DATA / f"store-5.3.3-{store}.tar.gz") as archive:
            archive.extractall(folder, filter="data")
        roots[store] = folder / "store"
    yield roots
    for root in roots.values():
        shutil.rmtree(root)


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def objects(root: Path, selection: Selection | None = None) -> list[dict[str, Any]]:
    found = []
    for message in dump(StoreDirectory(root), selection):
        assert not isinstance(message, Damage)
        found.append(as_object(message))
    return found


def place(message: dict[str, Any]) -> tuple[str, int, int, int]:
    fields = (message[name] for name in ("topic", "queueId", "queueOffset", "physicalOffset"))
    topic, queue_id, queue_offset, physical_offset = fields
    return topic, queue_id, queue_offset, physical_offset


# --- dump -----------------------------------------------------------------------------------------


def test_every_message_that_a_java_client_read_is_dumped_with_all_its_fields(
    store: str, stores: dict[str, Path]
) -> None:
    dumped = {place(message): message for message in objects(stores[store])}
    compressions = set()
    for expected in manifest(store)["messages"]:
        found = dumped[place(expected)]
        compressions.add(found["compression"])
        is_inner = not expected.get("offsetMsgId")
        assert (found["innerIndex"] is not None) == is_inner
        assert found["msgId"] == expected.get("uniqKey", expected.get("offsetMsgId"))
        for name in expected.keys() & found.keys() - (MADE_UP if is_inner else set()):
            assert found[name] == expected[name], (place(expected), name)
        assert {"bodySha256", "properties", "storeTimestamp", "bornHost"} <= expected.keys()
        assert "note" not in found
    assert compressions == {None, "zlib", "lz4", "zstd"}


def test_nothing_is_dumped_that_the_broker_did_not_have(
    store: str, stores: dict[str, Path]
) -> None:
    known = {place(message) for message in manifest(store)["messages"]}
    unknown = [message for message in objects(stores[store]) if place(message) not in known]
    # Seven messages of a topic that was deleted, and made again before the stop.
    assert {message["topic"] for message in unknown} == ({"GcGone"} if store == "clean" else set())
    assert len(unknown) == (7 if store == "clean" else 0)


def test_messages_are_found_by_key_as_a_broker_finds_them(
    store: str, stores: dict[str, Path]
) -> None:
    asked = 0
    for query in manifest(store)["queryByKey"]:
        selection = Selection(topic=query["topic"], key=query["key"])
        found = [each for each in objects(stores[store], selection) if each["innerIndex"] is None]
        newest = sorted(message["offsetMsgId"] for message in found)[-QUERY_MAX:]
        assert newest == query["offsetMsgIds"], query["key"]
        asked += 1
    assert asked > 90


def test_every_acknowledged_message_of_the_killed_broker_is_dumped(
    stores: dict[str, Path],
) -> None:
    dumped = {message["offsetMsgId"] for message in objects(stores["killed"])}
    acknowledged = set(manifest("killed")["acknowledgedWhileKilled"])
    assert len(acknowledged) > 300
    assert acknowledged <= dumped


# --- check ----------------------------------------------------------------------------------------


def test_a_store_that_apache_stopped_is_sound(stores: dict[str, Path]) -> None:
    report = check(StoreDirectory(stores["clean"]), now_ms=RECORDED_MS)
    assert (report.findings, report.notes) == ([], [])
    assert report.end_offset == manifest("clean")["commitLog"]["maxOffset"]
    assert report.index_entries > 900


def test_a_store_that_apache_was_killed_on_is_sound_and_has_records_to_dispatch(
    stores: dict[str, Path],
) -> None:
    report = check(StoreDirectory(stores["killed"]), now_ms=RECORDED_MS)
    assert report.findings == []
    assert report.notes == [
        "not closed cleanly: the next broker to open it will recover",
        "14 records are not in their queues yet",
    ]
    assert report.end_offset == manifest("killed")["commitLog"]["maxOffset"]


def test_the_killed_store_would_not_pass_as_one_that_was_stopped(
    stores: dict[str, Path], tmp_path: Path
) -> None:
    shutil.copytree(stores["killed"], tmp_path, dirs_exist_ok=True)
    (tmp_path / "abort").unlink()
    report = check(StoreDirectory(tmp_path), now_ms=RECORDED_MS)
    assert [finding.code for finding in report.findings] == ["O9"]
    assert "14 records" in report.findings[0].what


def test_shapes_of_apaches_files_are_found_out(store: str, stores: dict[str, Path]) -> None:
    settings = Shape.of_settings(manifest(store)["settings"])
    found = StoreDirectory(stores[store])
    assert found.segment_bytes == settings.segment_bytes
    assert found.queue_file_bytes == settings.queue_file_bytes
    assert found.batch_queue_file_bytes == settings.batch_queue_file_bytes
    assert found.index_shape == (settings.index_slots, settings.index_entries)


# --- rebuild --------------------------------------------------------------------------------------


def copy_without_derived(name: str, root: Path, target: Path) -> StoreDirectory:
    """Only what cannot be rebuilt."""
    for folder in ("commitlog", "config"):
        shutil.copytree(root / folder, target / folder)
    shutil.copy(root / "checkpoint", target)
    if (root / "abort").exists():
        shutil.copy(root / "abort", target)
    return StoreDirectory(target, Shape.of_settings(manifest(name)["settings"]))


def queue_files(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for folder in ("consumequeue", "batchconsumequeue")
        for path in (root / folder).rglob("*")
        if path.is_file()
    }


def test_queues_and_index_of_the_stopped_store_are_rebuilt_to_the_byte(
    stores: dict[str, Path], tmp_path: Path
) -> None:
    rebuild(copy_without_derived("clean", stores["clean"], tmp_path))
    assert queue_files(tmp_path) == queue_files(stores["clean"])
    rebuilt = [path.read_bytes() for path in sorted((tmp_path / "index").iterdir())]
    apaches = [path.read_bytes() for path in sorted((stores["clean"] / "index").iterdir())]
    assert len(apaches) == 3
    assert rebuilt == apaches  # but for the names, which tell when Apache made them


def test_the_killed_store_is_rebuilt_to_the_byte_and_further(
    stores: dict[str, Path], tmp_path: Path
) -> None:
    store = copy_without_derived("killed", stores["killed"], tmp_path)
    rebuild(store)
    rebuilt, apaches = queue_files(tmp_path), queue_files(stores["killed"])
    grown = {name for name in rebuilt if rebuilt[name] != apaches.get(name)}
    assert {name.rpartition("/")[0] for name in grown} == {
        f"consumequeue/GkPlain/{queue}" for queue in range(4)
    }
    for name in grown:
        dispatched = apaches.get(name, b"").rstrip(b"\0")
        assert rebuilt[name].startswith(dispatched)
    new = [path.read_bytes() for path in sorted((tmp_path / "index").iterdir())]
    old = [path.read_bytes() for path in sorted((stores["killed"] / "index").iterdir())]
    assert new[:-1] == old[:-1]
    report = check(StoreDirectory(tmp_path, Shape()), now_ms=RECORDED_MS)
    assert report.findings == []
    assert report.notes == ["not closed cleanly: the next broker to open it will recover"]


def test_rebuilt_queues_end_where_the_live_broker_said(
    store: str, stores: dict[str, Path], tmp_path: Path
) -> None:
    directory = copy_without_derived(store, stores[store], tmp_path)
    rebuild(directory)
    directory = StoreDirectory(tmp_path)
    compared = 0
    for queue in manifest(store)["queues"]:
        key = QueueKey(queue["topic"], queue["queueId"], is_batch=False)
        if queue["topic"].endswith("Inner"):
            continue  # a batch queue; its units are compared to the byte above
        assert directory.units_of(key).end == queue["maxOffset"], key
        compared += 1
    assert compared >= 24
