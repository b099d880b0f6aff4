"""Follows the log and derives everything else from it: queues, key index, and whoever listens.

Runs in batches on the loop, never ahead of `limit`: with synchronous flush a message becomes
visible when it is on disk, not before.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from firearrow.hot import derive_records, scan_records
from firearrow.hot.layout import BLANK_BYTES
from firearrow.store.rules import (
    can_be_queued,
    index_keys,
    is_indexed,
    is_queued,
    next_sound,
    tags_code,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from firearrow.hot import ScannedRecord
    from firearrow.hot.layout import Scan
    from firearrow.store.consume_queue import ConsumeQueue, ConsumeQueues
    from firearrow.store.key_index import KeyIndex
    from firearrow.store.segments import Segments

    Listener = Callable[[list[ConsumeQueue]], None]

log = logging.getLogger(__name__)

BATCH_BYTES: Final = 1024 * 1024  # per turn of the loop, so that nobody else waits long


class Dispatcher:
    """Knows how far the derived files follow the log. Listeners are told which queues grew."""

    def __init__(
        self,
        segments: Segments,
        queues: ConsumeQueues,
        index: KeyIndex | None,
        *,
        delay_levels_ms: Sequence[int],
    ) -> None:
        self._segments = segments
        self._queues = queues
        self._index = index
        self._delay_levels_ms = delay_levels_ms
        self._deleted_before: dict[str, int] = {}
        self.listeners: list[Listener] = []
        self.position = 0
        self.queues_from = 0  # what lies before only goes into the index
        self.last_store_timestamp = 0
        self.skipped_bytes = 0
        self.record_bytes_max = 0  # of a log that another broker writes: records come in parts

    def forget_topic(self, topic: str, offset: int) -> None:
        """What the log holds of a topic before `offset` belongs to nobody any more."""
        if self.position < offset:
            self._deleted_before[topic] = offset
            self._queues.hold(topic)

    def run(self, limit: int, *, batch_bytes: int = BATCH_BYTES) -> bool:
        """Take one batch of records before `limit`; False when there is nothing left to do.

        OSError when the disk is full; the same call goes on where it stopped.
        """
        start = self._segments.start_of(self.position) if self.position < limit else None
        if start is None:
            return self._over_a_hole(limit)
        stop = min(limit, start + self._segments.file_bytes, self.position + batch_bytes)
        try:
            progress = self._take(start, stop, limit)
        finally:
            self._tell()
        return progress

    def _take(self, start: int, stop: int, limit: int) -> bool:
        """Take records of one file that end before `stop`, and at least one."""
        buffer = self._segments.file(start).buffer
        file_stop = min(limit, start + self._segments.file_bytes) - start
        while True:
            derived = derive_records(
                buffer,
                self.position - start,
                max(self.position, stop) - start,
                start,
                self._queues.by_key,
                None if self._index is None else self._index.table,
                self._queues.grown,
            )
            self.position = start + derived.position
            if derived.records:
                self.last_store_timestamp = derived.last_store_timestamp
            if self.position >= stop:
                return True
            # The next record is not ordinary, or crosses the end of the batch, or there is none.
            at = self.position - start
            size = int.from_bytes(buffer[at : at + 4], "big", signed=True)
            scan = scan_records(buffer, at, min(file_stop, at + max(size, BLANK_BYTES)))
            if not scan.records:
                return self._not_a_record(scan, start, start + file_stop, limit)
            self._take_one(scan.records[0], start + at)

    def _not_a_record(self, scan: Scan, start: int, stop: int, limit: int) -> bool:
        """Go on behind a filler or damage; False to wait for the rest of a record."""
        if scan.ending == "blank" and scan.position == self._segments.file_bytes:
            self.position = start + scan.position
            return True
        if stop == limit and self._may_be_a_part(scan, start):
            return False
        resume = next_sound(self._segments, self.position + 1)
        if resume is None or resume >= limit:
            if scan.ending == "partial" and stop == limit:
                return False  # the rest of it is not here yet
            resume = stop
        log.error("commit log is broken at %d: %s", self.position, scan.reason or "zeros")
        self.skipped_bytes += resume - self.position
        self.position = resume
        return True

    def _may_be_a_part(self, scan: Scan, start: int) -> bool:
        """Whether the rest of a record is still on its way from a master."""
        if not self.record_bytes_max or scan.ending not in {"partial", "end"}:
            return False
        at = self.position - start
        size = int.from_bytes(self._segments.file(start).buffer[at : at + 4], "big")
        return size <= self.record_bytes_max

    def _over_a_hole(self, limit: int) -> bool:
        following = self._segments.next_start(self.position)
        if self.position >= limit or following is None or following >= limit:
            return False
        self.position = following
        return True

    def _take_one(self, record: ScannedRecord, offset: int) -> None:
        """Derive from one record by the general rules."""
        if record.physical_offset != offset:
            log.error("commit log: the record at %d says %d", offset, record.physical_offset)
            self.skipped_bytes += record.size
        elif not can_be_queued(record.topic, record.queue_id, record.queue_offset):
            log.error("commit log: the record at %d has a broken topic, queue or offset", offset)
        elif offset >= self._deleted_before.get(record.topic, 0):
            if self._deleted_before.pop(record.topic, None) is not None:
                self._queues.let_go(record.topic)
            if self._index is not None and is_indexed(record.sys_flag):
                self._index.insert(
                    record.topic, index_keys(record.properties), offset, record.store_timestamp
                )
            if (
                is_queued(record.sys_flag)
                and offset >= self.queues_from
                and not self._queues.is_foreign(record.topic)
            ):
                queue = self._queues.get(record.topic, record.queue_id)
                if queue.append(record.queue_offset, offset, record.size, self.tags_code(record)):
                    self._queues.note_grown(queue)
        self.last_store_timestamp = record.store_timestamp
        self.position = offset + record.size

    def tags_code(self, record: ScannedRecord) -> int:
        return tags_code(record, self._delay_levels_ms)

    def _tell(self) -> None:
        grown = self._queues.take_grown()
        if grown:
            for listener in self.listeners:
                listener(grown)
