"""Finding messages otherwise than by reading on: by place, by key, by time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firearrow.base.errors import RecordError
from firearrow.hot import decode_record, scan_records
from firearrow.hot.layout import RECORD_BYTES_MIN
from firearrow.store.rules import index_keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from firearrow.hot import Record, ScannedRecord
    from firearrow.store.commit_log import CommitLog
    from firearrow.store.consume_queue import ConsumeQueues
    from firearrow.store.disk import MappedFile
    from firearrow.store.key_index import KeyIndex


class Lookup:
    """Questions about single messages and about where things begin and end."""

    def __init__(self, commit_log: CommitLog, queues: ConsumeQueues, index: KeyIndex) -> None:
        self._log = commit_log
        self._queues = queues
        self._index = index

    def record_at(self, physical_offset: int) -> Record | None:
        """The message at a physical offset; None if there is none."""
        if not self._log.min_offset <= physical_offset < self._log.end_offset:
            return None
        segments = self._log.segments
        start = segments.start_of(physical_offset)
        if start is None:
            return None
        try:
            record = decode_record(segments.file(start).buffer, physical_offset - start)
        except RecordError:
            return None
        return record if record.physical_offset == physical_offset else None

    def run_of(self, physical_offset: int, count: int) -> Iterator[int]:
        """Offsets of so many records that lie back to back, as those of a batch do."""
        for _ in range(count):
            record = self.record_at(physical_offset)
            if record is None:
                return
            yield physical_offset
            physical_offset += record.size

    def scanned_at(self, physical_offset: int) -> ScannedRecord | None:
        """The same without its body, which is not copied."""
        if not self._log.min_offset <= physical_offset < self._log.end_offset:
            return None
        segments = self._log.segments
        start = segments.start_of(physical_offset)
        if start is None:
            return None
        buffer, at = segments.file(start).buffer, physical_offset - start
        size = int.from_bytes(buffer[at : at + 4], "big", signed=True)
        if not RECORD_BYTES_MIN <= size <= segments.file_bytes - at:
            return None
        records = scan_records(buffer, at, at + size).records
        return records[0] if records and records[0].physical_offset == physical_offset else None

    def pieces(self, places: Iterable[tuple[int, int]]) -> list[tuple[MappedFile, int, int]]:
        """Files with position and size of some places (offset and size) of the log: what a thread
        needs to bring them into memory.
        """  # noqa: D205 - one thought
        segments, found = self._log.segments, []
        for offset, size in places:
            start = segments.start_of(offset)
            if start is not None and size > 0:
                at = offset - start
                found.append((segments.file(start), at, min(size, segments.file_bytes - at)))
        return found

    def raw_at(self, physical_offset: int) -> bytes | None:
        """The same, as it lies in the log."""
        record = self.record_at(physical_offset)
        raw = None if record is None else self._log.read(physical_offset, record.size)
        return None if raw is None else bytes(raw)

    def slice_at(self, physical_offset: int, size: int) -> memoryview | None:
        """Bytes of the log, not copied; None if they are not there."""
        return self._log.read(physical_offset, size)

    def by_queue_offset(self, topic: str, queue_id: int, offset: int) -> Record | None:
        """The message at a queue offset; None if it is not there."""
        queue = self._queues.find(topic, queue_id)
        entry = None if queue is None else self._queues.checked(queue, offset)
        return None if entry is None else self.record_at(entry[0])

    def by_key(
        self, topic: str, key: str, *, limit: int, begin_ms: int, end_ms: int
    ) -> list[Record]:
        """Messages of a topic that carry a key, stored in a time, oldest first."""
        offsets = self._index.query(topic, key, limit=limit, begin_ms=begin_ms, end_ms=end_ms)
        records = (self.record_at(offset) for offset in offsets)
        return [
            record
            for record in records
            if record is not None and record.topic == topic and key in index_keys(record.properties)
        ]

    def index_end(self) -> tuple[int, int]:
        """Store time and offset of the newest message in the key index; else zeros."""
        return self._index.last_update()

    # --- ends ---------------------------------------------------------------------------------

    def min_offset(self, topic: str, queue_id: int) -> int:
        queue = self._queues.find(topic, queue_id)
        return 0 if queue is None else queue.min_offset

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The offset that the next visible message will have."""
        queue = self._queues.find(topic, queue_id)
        return 0 if queue is None else queue.max_offset

    # --- time ---------------------------------------------------------------------------------

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """When the message at a queue offset was stored; -1 if it is not there."""
        record = self.by_queue_offset(topic, queue_id, offset)
        return -1 if record is None else record.store_timestamp

    def earliest_store_time(self, topic: str, queue_id: int) -> int:
        return self.store_time(topic, queue_id, self.min_offset(topic, queue_id))

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp: int, *, upper: bool = False
    ) -> int:
        """The first offset stored at or after `timestamp`; `upper`: the last at or before it."""
        least, most = self.min_offset(topic, queue_id), self.max_offset(topic, queue_id)
        low, high = least, most
        while low < high:
            middle = (low + high) // 2
            stored = self._store_time_up_to(topic, queue_id, middle, low)
            if stored < timestamp or (upper and stored == timestamp):
                low = middle + 1
            else:
                high = middle
        return max(least, low - 1) if upper else low

    def _store_time_up_to(self, topic: str, queue_id: int, offset: int, least: int) -> int:
        """When the message at an offset was stored; if it is lost, the one before; else -1."""
        for known in range(offset, least - 1, -1):
            stored = self.store_time(topic, queue_id, known)
            if stored >= 0:
                return stored
        return -1
