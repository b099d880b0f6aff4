from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from tests.stores import bodies, message, open_store, put_all, read_all

from firearrow.hot import QueueTail, StoreMessage, decode_record, scan_records
from firearrow.hot.layout import BLANK_BYTES, LOOPBACK_HOST, MAGIC_BLANK
from firearrow.model.errors import MessageIllegal, ServiceNotAvailable
from firearrow.store.commit_log import CommitLog
from firearrow.store.disk import RealDisk, RealFile
from firearrow.store.segments import Segments

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILE_BYTES = 1024
RECORD_REST = 91 + len("orders")


@pytest.fixture
def segments(tmp_path: Path) -> Iterator[Segments]:
    segments = Segments(RealDisk(), tmp_path / "commitlog", FILE_BYTES)
    segments.load(setting="mappedFileSizeCommitLog")
    yield segments
    segments.close()


@pytest.fixture
def log(segments: Segments) -> Iterator[CommitLog]:
    log = CommitLog(segments, store_host=LOOPBACK_HOST, message_bytes_max=FILE_BYTES)
    log.open_at(0, cut=False)
    yield log
    log.close()


def fitting(room: int) -> StoreMessage:
    """A message whose record has exactly this many bytes."""
    return message(bytes(room - RECORD_REST))


def test_a_record_says_where_it_lies_and_counts_up_in_its_queue(log: CommitLog) -> None:
    queue = QueueTail("orders", 3)
    first, second = message(b"one", queue_id=3), message(b"two", queue_id=3)
    assert log.append(first, queue, 1_000) == first.size
    end = log.append(second, queue, 1_001)
    assert (second.physical_offset, second.queue_offset) == (first.size, 1)
    assert end == log.end_offset == first.size + second.size
    raw = log.read(second.physical_offset, second.size)
    assert raw is not None
    record = decode_record(raw)
    assert (record.body, record.queue_id, record.queue_offset) == (b"two", 3, 1)
    assert (record.physical_offset, record.store_timestamp) == (first.size, 1_001)


def test_a_record_must_leave_room_for_the_filler(log: CommitLog, segments: Segments) -> None:
    """One byte more than file minus 8 goes to the next file; the filler reaches the end."""
    queue = QueueTail("orders", 0)
    log.append(fitting(500), queue, 1)
    exact, over = fitting(FILE_BYTES - 500 - BLANK_BYTES), fitting(FILE_BYTES - BLANK_BYTES)
    log.append(exact, queue, 2)
    assert exact.physical_offset == 500
    log.append(over, queue, 3)
    assert over.physical_offset == FILE_BYTES
    front = segments.file(0).buffer
    rest = FILE_BYTES - 500 - exact.size
    assert rest == BLANK_BYTES
    assert struct.unpack_from(">ii", front, FILE_BYTES - rest) == (rest, MAGIC_BLANK)


def test_a_full_file_is_tiled_by_records_and_one_filler(log: CommitLog, segments: Segments) -> None:
    queue = QueueTail("orders", 0)
    for number in range(40):
        log.append(message(b"x" * (7 * number % 90)), queue, number + 1)
    for start in segments.starts[:-1]:
        scan = scan_records(segments.file(start).buffer, 0, FILE_BYTES, check_crc=True)
        assert (scan.ending, scan.position) == ("blank", FILE_BYTES)
        assert scan.records


def test_a_record_larger_than_a_file_is_refused_and_nothing_moves(log: CommitLog) -> None:
    queue = QueueTail("orders", 0)
    with pytest.raises(MessageIllegal, match="mappedFileSizeCommitLog"):
        log.append(fitting(FILE_BYTES - BLANK_BYTES + 1), queue, 1)
    assert (log.end_offset, queue.next_offset) == (0, 0)


def test_bodies_and_properties_over_their_limits_are_refused_by_name(segments: Segments) -> None:
    log = CommitLog(segments, store_host=LOOPBACK_HOST, message_bytes_max=10)
    log.open_at(0, cut=False)
    queue = QueueTail("orders", 0)
    with pytest.raises(MessageIllegal, match="maxMessageSize"):
        log.append(message(b"x" * 11), queue, 1)
    with pytest.raises(MessageIllegal, match="properties of 32768 bytes"):
        log.append(StoreMessage("orders", 0, b"", b"x" * 32_768), queue, 1)
    with pytest.raises(MessageIllegal, match="topic of 256 bytes"):
        log.append(StoreMessage("t" * 256, 0, b""), QueueTail("t" * 256, 0), 1)
    assert queue.next_offset == 0
    log.close()


def test_a_batch_that_does_not_fit_goes_to_the_next_file_as_a_whole(log: CommitLog) -> None:
    queue = QueueTail("orders", 0)
    log.append(fitting(700), queue, 1)
    batch = [fitting(200), fitting(200), fitting(200)]
    end = log.append_batch(batch, queue, 2)
    assert [m.physical_offset for m in batch] == [1024, 1224, 1424]
    assert [m.queue_offset for m in batch] == [1, 2, 3]
    assert end == 1624


def test_a_batch_with_one_bad_message_stores_none(log: CommitLog) -> None:
    queue = QueueTail("orders", 0)
    with pytest.raises(MessageIllegal):
        log.append_batch([message(b"good"), message(bytes(FILE_BYTES + 1))], queue, 1)
    assert (log.end_offset, queue.next_offset) == (0, 0)


def test_prepared_and_rolled_back_records_take_no_queue_offset(log: CommitLog) -> None:
    queue = QueueTail("orders", 0)
    queue.next_offset = 5
    prepared = message(b"half", sys_flag=0x4)
    committed = message(b"whole", sys_flag=0x8)
    log.append(prepared, queue, 1)
    log.append(committed, queue, 1)
    assert (prepared.queue_offset, committed.queue_offset, queue.next_offset) == (0, 5, 6)


def test_ipv6_hosts_and_a_foreign_store_host_are_kept(log: CommitLog) -> None:
    queue = QueueTail("orders", 0)
    v6 = bytes(range(16)) + struct.pack(">i", 10911)
    one = message(b"x", born_host=v6, store_host=v6)
    log.append(one, queue, 1)
    raw = log.read(one.physical_offset, one.size)
    assert raw is not None
    record = decode_record(raw)
    assert (record.born_ip, record.store_ip, record.store_port) == (v6[:16], v6[:16], 10911)
    assert record.sys_flag == 0x30


def test_a_full_disk_refuses_without_losing_its_place_and_goes_on(
    log: CommitLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = QueueTail("orders", 0)
    log.append(fitting(600), queue, 1)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(RealFile, "reserve", full)
        for _ in range(2):
            with pytest.raises(ServiceNotAvailable, match="No space left"):
                log.append(fitting(600), queue, 2)
    again = fitting(600)
    log.append(again, queue, 3)
    assert (again.physical_offset, again.queue_offset) == (FILE_BYTES, 1)


async def test_topics_of_all_lengths_come_back(tmp_path: Path) -> None:
    """Version 2 of the record begins at 128 characters."""
    topics = ["t", "t" * 127, "%RETRY%" + "g" * 121, "%RETRY%" + "g" * 248]
    async with open_store(tmp_path) as store:
        await put_all(store, (message(topic.encode(), topic=topic) for topic in topics))
        for topic in topics:
            assert bodies(read_all(store, topic)) == [topic.encode()]
