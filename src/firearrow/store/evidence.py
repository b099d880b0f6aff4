"""What the log says about the entries of a queue, for queues whose files are damaged or missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firearrow.base.errors import RecordError
from firearrow.hot import check_run, decode_record
from firearrow.store.entry_files import ENTRY
from firearrow.store.rules import is_queued, scan_log

if TYPE_CHECKING:
    from collections.abc import Callable

    from firearrow.hot import ScannedRecord
    from firearrow.store.commit_log import CommitLog
    from firearrow.store.consume_queue import ConsumeQueue


class LogEvidence:
    """Asks the log itself; slow and exact."""

    def __init__(
        self, log: CommitLog, cut_offset: int, tags_code: Callable[[ScannedRecord], int]
    ) -> None:
        self._log = log
        self._tags_code = tags_code
        self.cut_offset = cut_offset

    @property
    def end_offset(self) -> int:
        return self._log.end_offset

    @property
    def start_offset(self) -> int:
        return self._log.min_offset

    def allows(self, queue: ConsumeQueue, offset: int, physical: int, size: int) -> bool:
        """Whether the record there is ours, or gone: expired, or with a file that is missing."""
        if size <= 0:
            return False
        gone = physical < self._log.min_offset or (
            physical < self._log.end_offset and self._log.segments.start_of(physical) is None
        )
        return gone or self.vouches(queue, offset, physical, size)

    def vouches(self, queue: ConsumeQueue, offset: int, physical: int, size: int) -> bool:
        """Whether the record there is that of this queue and offset."""
        raw = self._log.read(physical, size) if size > 0 else None
        if raw is None or check_run(raw, 0, size, physical, check_crc=False) != size:
            return False
        try:
            record = decode_record(raw, check_crc=False)
        except RecordError:
            return False
        return (record.topic, record.queue_id, record.queue_offset) == (
            queue.topic,
            queue.queue_id,
            offset,
        )

    def entries_between(
        self, queue: ConsumeQueue, first: int, stop: int, low: int, high: int
    ) -> dict[int, bytes]:
        """Entries of these queue offsets, derived from the log between two offsets."""
        found: dict[int, tuple[int, int, int]] = {}
        for record in scan_log(self._log.segments, low, min(high, self._log.end_offset)):
            if (record.topic, record.queue_id) != (queue.topic, queue.queue_id):
                continue
            offset = record.queue_offset
            if offset == 0 and is_queued(record.sys_flag):
                found.clear()  # the topic was deleted and made again
            if not first <= offset < stop or not is_queued(record.sys_flag):
                continue
            # No checksum covers an offset. Who comes second is right only if the first was early.
            before = found.get(offset - 1)
            if offset not in found or (before is not None and found[offset] < before):
                found[offset] = record.physical_offset, record.size, self._tags_code(record)
        return {offset: ENTRY.pack(*entry) for offset, entry in found.items()}
