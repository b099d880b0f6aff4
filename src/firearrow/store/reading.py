"""Reading a queue: which records, how many, and where to go on.

The rules are RocketMQ's: a consumer that gets them wrong loses or repeats messages. `Status` names
are what a broker puts into its remark.
"""

from __future__ import annotations

import logging
import os
import struct
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from firearrow.hot import PullPath, check_run, gather_entries
from firearrow.hot.layout import ENTRY_BYTES, FILLER_SIZE, MAGIC_V1, MAGIC_V2, RECORD_BYTES_MIN
from firearrow.store.entry_files import ENTRY

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from firearrow.hot import PullGate
    from firearrow.store.commit_log import CommitLog
    from firearrow.store.config import StoreConfig
    from firearrow.store.consume_queue import ConsumeQueue, ConsumeQueues, Evidence
    from firearrow.store.warm_pieces import WarmPieces

log = logging.getLogger(__name__)

_HEAD: Final = struct.Struct(">ii20xq")  # of a record: size, magic code, place in the log
_MAGICS: Final = frozenset({MAGIC_V1, MAGIC_V2})
PULL_BYTES_MAX: Final = 8 * 1024 * 1024  # of one answer; a frame holds 16 MiB


class Status(StrEnum):
    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


@dataclass(slots=True)
class Got:
    """The answer to a read. `slices` are memory of the log itself; records that touch share one."""

    status: Status
    next_offset: int
    min_offset: int = 0
    max_offset: int = 0
    slices: list[memoryview] = field(default_factory=list)
    count: int = 0
    size: int = 0
    cold: bool = False  # far behind the end of the log: a slave could serve this reader


def outside(queue: ConsumeQueue | None, offset: int) -> Got | None:
    """The answer for an offset that is not in the queue; None if it is."""
    if queue is None:
        return Got(Status.NO_MATCHED_LOGIC_QUEUE, 0)
    least, most = queue.min_offset, queue.max_offset
    if most == 0:
        return Got(Status.NO_MESSAGE_IN_QUEUE, 0, least, most)
    if offset < least:
        return Got(Status.OFFSET_TOO_SMALL, least, least, most)
    if offset == most:
        return Got(Status.OFFSET_OVERFLOW_ONE, offset, least, most)
    if offset > most:
        return Got(Status.OFFSET_OVERFLOW_BADLY, most, least, most)
    return None


class QueueReader:
    """Reads queues of one log.

    Records that this process wrote, or checked when it recovered, are served as they are; older
    ones are checked each time, so that bytes that a disk has spoiled are never sent to anybody.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        config: StoreConfig,
        evidence: Evidence,
        *,
        memory_bytes: int,
        verified_from: int,
        warm: WarmPieces,
    ) -> None:
        self._log = commit_log
        self._config = config
        self._evidence = evidence
        self._memory_bytes = memory_bytes
        self._verified_from = verified_from
        self._warm = warm

    def reconfigure(self, config: StoreConfig) -> None:
        self._config = config

    def pull_path(
        self, gates: dict[bytes, PullGate], queues: ConsumeQueues, *, far: bool
    ) -> PullPath:
        """The compiled way to read: what it takes, it reads as `read` would."""
        segments = self._log.segments
        return PullPath(
            self._log.writer,
            gates,
            segments.buffers,
            file_bytes=segments.file_bytes,
            entries_per_file=self._config.mapped_file_size_consume_queue // ENTRY_BYTES,
            memory_bytes=self._memory_bytes,
            verified_from=self._verified_from,
            look_ahead=queues.look_ahead,
            is_warm=self._warm.cover if far else None,
        )

    @property
    def limits(self) -> tuple[int, int, int]:
        """Of one answer from memory: records, bytes, and entries that are looked at."""
        config = self._config
        return (
            config.max_transfer_count_on_message_in_memory,
            min(PULL_BYTES_MAX, config.max_transfer_bytes_on_message_in_memory),
            config.max_filter_message_size // ENTRY_BYTES,
        )

    def _is_warm(self, raw: bytes, count: int) -> bool:
        """Whether the records of the first `count` entries have just been brought into memory."""
        last = min(len(raw) // ENTRY_BYTES, max(1, count)) - 1
        physical, size, _ = ENTRY.unpack_from(raw, last * ENTRY_BYTES)
        return self._warm.cover(ENTRY.unpack_from(raw)[0], physical + size)

    def read(
        self,
        queue: ConsumeQueue,
        offset: int,
        max_count: int,
        *,
        codes: Collection[int] | None = None,
        wanted: Callable[[memoryview], bool] | None = None,
        looks: int | None = None,
    ) -> Got:
        """Records from `offset` on; `codes` are tag hashes, `wanted` looks at whole records.

        With `looks`, at so many entries at most.
        """
        config, commit_log = self._config, self._log
        per_file = queue.entries_per_file
        most, bytes_max, scan = self.limits
        scan = max(scan, max_count)
        raw = queue.entries(offset, scan if looks is None else min(scan, looks))
        got = Got(Status.NO_MATCHED_MESSAGE, offset, queue.min_offset, queue.max_offset)
        if not raw:
            got.status = Status.OFFSET_FOUND_NULL
            got.next_offset = offset + per_file - offset % per_file
            return got
        cold_before = commit_log.end_offset - self._memory_bytes
        if wanted is not None:
            taken = self._select(got, offset, raw, max_count, codes, wanted)
            if taken >= 0:
                rest = raw[taken * ENTRY_BYTES :]
                self._one_by_one(got, queue, offset + taken, rest, max_count, codes, wanted)
            if got.count:
                got.status = Status.FOUND
            return got
        looked_at = max_count if codes is None else len(raw)
        gathered = gather_entries(
            raw,
            min(max_count, most),
            bytes_max,
            min(max_count, config.max_transfer_count_on_message_in_disk),
            min(PULL_BYTES_MAX, config.max_transfer_bytes_on_message_in_disk),
            0 if self._is_warm(raw, looked_at) else cold_before,
            codes,
            commit_log.segments.buffers,
            commit_log.segments.file_bytes,
            self._verified_from,
            queue.topic_bytes,
            queue.queue_id,
            offset,
        )
        got.next_offset = offset + gathered.examined
        got.cold = gathered.last_physical < cold_before
        got.slices, got.count, got.size = gathered.slices, gathered.records, gathered.size
        if not gathered.whole:
            rest = raw[gathered.examined * ENTRY_BYTES :]
            self._one_by_one(got, queue, got.next_offset, rest, max_count, codes, wanted)
        if got.count:
            got.status = Status.FOUND
        return got

    def _select(  # noqa: PLR0917 - the part of `read` that looks at every record
        self,
        got: Got,
        offset: int,
        raw: bytes,
        max_count: int,
        codes: Collection[int] | None,
        wanted: Callable[[memoryview], bool],
    ) -> int:
        """Records that `wanted` likes, as long as they are where and what their entries say.

        Returns before which entry it stopped because that is not so; -1 if it did not.
        """
        config, segments, verified_from = self._config, self._log.segments, self._verified_from
        files, file_bytes = segments.buffers, segments.file_bytes
        cold_before = self._log.end_offset - self._memory_bytes
        most = min(max_count, config.max_transfer_count_on_message_in_memory)
        bytes_max = min(PULL_BYTES_MAX, config.max_transfer_bytes_on_message_in_memory)
        cold_most = min(max_count, config.max_transfer_count_on_message_in_disk)
        cold_bytes_max = min(PULL_BYTES_MAX, config.max_transfer_bytes_on_message_in_disk)
        count = total = 0
        for number, (physical, size, tags_code) in enumerate(ENTRY.iter_unpack(raw)):
            got.cold = cold = physical < cold_before
            if count and (
                count >= (cold_most if cold else most)
                or total + size > (cold_bytes_max if cold else bytes_max)
            ):
                break
            if size != FILLER_SIZE and (codes is None or _as_int(tags_code) in codes):
                at = physical % file_bytes
                data = files.get(physical - at)
                if (
                    data is None
                    or physical < verified_from
                    or not RECORD_BYTES_MIN <= size <= file_bytes - at
                ):
                    return number
                said_size, magic, place = _HEAD.unpack_from(data, at)
                if said_size != size or place != physical or magic not in _MAGICS:
                    return number
                record = data[at : at + size]
                if wanted(record):
                    got.slices.append(record)
                    got.count = count = count + 1
                    got.size = total = total + size
            got.next_offset = offset + number + 1
        return -1

    def _one_by_one(  # noqa: PLR0917 - the rest of `read`
        self,
        got: Got,
        queue: ConsumeQueue,
        offset: int,
        raw: bytes,
        max_count: int,
        codes: Collection[int] | None,
        wanted: Callable[[memoryview], bool] | None,
    ) -> None:
        """Go on where records must be looked at, or one is damaged, gone or not mapped yet."""
        for number, (physical, size, tags_code) in enumerate(ENTRY.iter_unpack(raw)):
            if got.count and self._full(got, physical, size, max_count):
                break
            got.next_offset = offset + number + 1
            if size == FILLER_SIZE or (codes is not None and _as_int(tags_code) not in codes):
                continue
            record = self._record(queue, offset + number, physical, size)
            if record is None:
                if not got.count:
                    got.status = Status.MESSAGE_WAS_REMOVING
                continue
            if wanted is None or wanted(record):
                got.slices.append(record)
                got.count += 1
                got.size += len(record)

    def _is_sound(self, record: memoryview, physical: int) -> bool:
        unproven = physical < self._verified_from
        return check_run(record, 0, len(record), physical, check_crc=unproven) == len(record)

    def _record(
        self, queue: ConsumeQueue, offset: int, physical: int, size: int
    ) -> memoryview | None:
        """The record of an entry; None, and a word in the log, if it is not to be had."""
        if physical >= self._verified_from:
            record = self._log.read(physical, size) if size > 0 else None
            if record is not None and self._is_sound(record, physical):
                return record
        entry = queue.checked(offset, self._evidence)
        if entry is not None:
            record = self._log.read(entry[0], entry[1])
            if record is not None and self._is_sound(record, entry[0]):
                return record
        log.error("%s: the record of offset %d, at %d, cannot be read", queue, offset, physical)
        return None

    def _full(self, got: Got, physical: int, size: int, max_count: int) -> bool:
        config = self._config
        if physical < self._log.end_offset - self._memory_bytes:
            most = config.max_transfer_count_on_message_in_disk
            bytes_max = config.max_transfer_bytes_on_message_in_disk
        else:
            most = config.max_transfer_count_on_message_in_memory
            bytes_max = config.max_transfer_bytes_on_message_in_memory
        return got.count >= min(max_count, most) or got.size + size > min(PULL_BYTES_MAX, bytes_max)


def _as_int(value: int) -> int:
    """The low 32 bits, signed: what RocketMQ compares."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def physical_memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
