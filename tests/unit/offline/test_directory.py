from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from tests.store_builder import SHAPE, sample_store

from firearrow.base.errors import ConfigError
from firearrow.offline.derived import QueueKey
from firearrow.offline.directory import Shape, StoreDirectory, hold_lock
from firearrow.offline.log_walk import LogFile
from firearrow.offline.unit_files import UnitFiles

if TYPE_CHECKING:
    from pathlib import Path


def test_sizes_are_found_out_from_the_files(tmp_path: Path) -> None:
    sample_store(tmp_path)
    store = StoreDirectory(tmp_path)
    assert store.segment_bytes == SHAPE.segment_bytes
    assert store.queue_file_bytes == SHAPE.queue_file_bytes
    assert store.batch_queue_file_bytes == SHAPE.batch_queue_file_bytes
    assert store.index_shape == (SHAPE.index_slots, SHAPE.index_entries)


def test_sizes_are_found_out_although_a_file_is_damaged(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    with (tmp_path / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.truncate(17)
    with (tmp_path / "consumequeue/Paid/1" / f"{0:020d}").open("r+b") as file:
        file.truncate(40)
    sample.index[0].write_bytes(sample.index[0].read_bytes()[:77])
    store = StoreDirectory(tmp_path)
    assert store.segment_bytes == SHAPE.segment_bytes
    assert store.queue_file_bytes == SHAPE.queue_file_bytes
    assert store.index_shape == (SHAPE.index_slots, SHAPE.index_entries)


def test_without_files_sizes_are_those_of_a_broker_without_settings(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    store = StoreDirectory(tmp_path)
    assert store.segment_bytes == 1_073_741_824
    assert store.queue_file_bytes == 6_000_000
    assert store.batch_queue_file_bytes == 13_800_000
    assert store.index_shape == (5_000_000, 20_000_000)


def test_a_brokers_settings_shape_its_files(tmp_path: Path) -> None:
    shape = Shape.of_settings(
        {
            "mappedFileSizeCommitLog": "1048576",
            "mappedFileSizeConsumeQueue": "1000",
            "mapperFileSizeBatchConsumeQueue": "4600",
            "maxHashSlotNum": "500",
            "maxIndexNum": "400",
            "messageDelayLevel": "2s 1m",
            "storePathCommitLog": f"{tmp_path}/a, {tmp_path}/b",
            "brokerName": "broker-a",
        }
    )
    assert (shape.segment_bytes, shape.queue_file_bytes) == (1048576, 1000)
    assert (shape.index_slots, shape.index_entries) == (500, 400)
    assert shape.delay_levels_ms == (2_000, 60_000)
    assert shape.commit_log == (tmp_path / "a", tmp_path / "b")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"mappedFileSizeCommitLog": "1G"}, "mappedFileSizeCommitLog=1G: a number above 0"),
        ({"maxIndexNum": "0"}, "maxIndexNum=0"),
        ({"messageDelayLevel": "1s 5x"}, "messageDelayLevel: '5x' is not a delay"),
    ],
)
def test_a_setting_that_makes_no_sense_is_named(settings: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Shape.of_settings(settings)


def test_a_log_may_be_spread_over_folders(tmp_path: Path) -> None:
    sample_store(tmp_path)
    everything = StoreDirectory(tmp_path).walk()
    whole = sum(1 for _ in everything)
    assert whole
    (tmp_path / "elsewhere").mkdir()
    moved = tmp_path / "commitlog" / f"{2048:020d}"
    moved.rename(tmp_path / "elsewhere" / moved.name)
    shape = Shape(commit_log=(tmp_path / "commitlog", tmp_path / "elsewhere"))
    walk = StoreDirectory(tmp_path, shape).walk()
    list(walk)
    assert (walk.records, walk.end_offset) == (everything.records, everything.end_offset)


def test_a_folder_without_a_log_is_refused_with_advice(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is not a store directory.*storePathRootDir"):
        StoreDirectory(tmp_path)


def test_what_is_not_named_like_a_file_of_the_store_is_left_alone(tmp_path: Path) -> None:
    sample_store(tmp_path)
    before = StoreDirectory(tmp_path)
    for name in ("README", "123", "0000000000000000000x", "9" * 20, "٣" * 20):
        (tmp_path / "commitlog" / name).write_bytes(b"x")
    (tmp_path / "consumequeue/Orders/notes").mkdir()
    (tmp_path / "consumequeue/Orders/0/deeper").mkdir()
    after = StoreDirectory(tmp_path)
    assert after.log_files == before.log_files
    assert after.queues == before.queues


def test_a_record_is_read_by_its_offset(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    record = sample.open().record_at(sample.half.offset)
    assert record is not None
    assert record.topic == "RMQ_SYS_TRANS_HALF_TOPIC"
    assert sample.open().record_at(sample.half.offset + 1) is None
    assert sample.open().record_at(1 << 40) is None


def test_units_end_behind_the_last_that_is_not_zero(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    units = sample.open().units_of(QueueKey("Orders", 0, is_batch=False))
    assert (units.first, units.end) == (0, sample.last.queue_offset + 1)
    none = sample.open().units_of(QueueKey("Nobody", 0, is_batch=False))
    assert (none.first, none.end) == (0, 0)


def test_units_are_read_across_files_with_zeros_for_those_that_are_missing(tmp_path: Path) -> None:
    files = []
    for start, letter in ((0, b"a"), (40, b"b"), (120, b"d")):
        path = tmp_path / f"{start:020d}"
        path.write_bytes(letter * 40)
        files.append(LogFile(path, start, 40))
    units = UnitFiles(files, unit_bytes=20, file_bytes=40)
    assert units.read(1, 6) == b"a" * 20 + b"b" * 40 + bytes(40) + b"d" * 20
    assert [number for number, _ in units.units(0)] == [0, 1, 2, 3, 6, 7]
    assert [number for number, _ in units.units(1, 7)] == [1, 2, 3, 6]


def test_the_end_of_a_sparse_file_is_found_without_reading_its_holes(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a terabyte: reading it would not end
        file.seek(20 * 300_000)
        file.write(b"\1" * 8)
    units = UnitFiles([LogFile(path, 0, 1 << 40)], unit_bytes=20, file_bytes=1 << 40)
    assert units.end == 300_001


def test_a_lock_keeps_others_out_and_is_let_go(tmp_path: Path) -> None:
    sample_store(tmp_path)
    store = StoreDirectory(tmp_path)
    with hold_lock(tmp_path):
        # Record locks do not bind their own process, so another one asks.
        child = os.fork()
        if child == 0:
            os._exit(7 if store.is_locked else 8)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 7
    assert not store.is_locked
    assert (tmp_path / "lock").read_bytes() == b"lock"
