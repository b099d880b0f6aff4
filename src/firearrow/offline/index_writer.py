"""Index files written anew, one after the other, as RocketMQ fills them.

    | header 40 | slots 4 each | entries 20 each |       see docs/formats/index.md

Slots are in memory until a file is full, entries go out as they come.
"""

from __future__ import annotations

import sys
from array import array
from typing import TYPE_CHECKING, Final

from firearrow.hot import key_hash
from firearrow.offline.output import write_at
from firearrow.store.key_index import (
    ENTRY,
    HEADER,
    SECONDS_MAX,
    SLOT,
    IndexHeader,
    index_file_bytes,
    index_file_name,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_PENDING_BYTES_MAX: Final = 1 << 20
EMPTY: Final = IndexHeader(0, 0, 0, 0, 0, 1)


def header_behind(timestamp: int, offset: int) -> IndexHeader:
    """A file begins with the end of the one before it, until its first entry."""
    return IndexHeader(timestamp, timestamp, offset, offset, 0, 1)


def name_behind(before: str, timestamp: int) -> str:
    """The name of the next file; brokers put files in order by name."""
    name = index_file_name(timestamp)
    return name if name > before else str(int(before) + 1).zfill(len(name))


class IndexWriter:
    """Takes the keys of each record in log order. Without a `folder` it only counts."""

    def __init__(self, folder: Path | None, *, slots: int, entries: int) -> None:
        assert slots > 0
        assert entries > 1, "entry 0 is never used"
        self.files = 0
        self.entries = 0
        self.end_timestamp = 0
        self._folder = folder
        self._slots = slots
        self._entries = entries
        self._table: TableWriter | None = None

    def add(self, topic: str, keys: Sequence[str], offset: int, timestamp: int) -> None:
        """Index one record. One without keys still opens a file, as in RocketMQ."""
        table = self._with_room(timestamp)
        for key in keys:
            if table.is_full:
                table = self._with_room(timestamp)
            table.insert(key_hash(topic, key), offset, timestamp)
        self.entries += len(keys)
        self.end_timestamp = timestamp if keys else self.end_timestamp

    def finish(self) -> None:
        if self._table is not None:
            self._table.close()
            self._table = None

    def _with_room(self, timestamp: int) -> TableWriter:
        before = self._table
        if before is not None and not before.is_full:
            return before
        header, name = EMPTY, index_file_name(timestamp)
        if before is not None:
            before.close()
            end = before.header
            header = header_behind(end.end_timestamp, end.end_offset)
            name = name_behind(before.name, timestamp)
        path = None if self._folder is None else self._folder / name
        self.files += 1
        self._table = TableWriter(path, name, header, slots=self._slots, entries=self._entries)
        return self._table


class TableWriter:
    """One file in the making."""

    def __init__(
        self, path: Path | None, name: str, header: IndexHeader, *, slots: int, entries: int
    ) -> None:
        self.name = name
        self.header = header
        self._slots = array("i", bytes(SLOT.size * slots))
        self._capacity = entries
        self._path = path
        self._pending = bytearray()
        self._pending_at = HEADER.size + slots * SLOT.size + ENTRY.size

    @property
    def is_full(self) -> bool:
        return self.header.next_entry >= self._capacity

    def insert(self, hashed: int, offset: int, timestamp: int) -> None:
        begin_ms, _, begin_offset, _, used, number = self.header
        # Counted from the begin time before the first entry sets it: from the file before.
        seconds = (timestamp - begin_ms) // 1000 if begin_ms > 0 else 0
        slot = hashed % len(self._slots)
        previous = self._slots[slot]
        self._slots[slot] = number
        self._pending += ENTRY.pack(hashed, offset, min(max(seconds, 0), SECONDS_MAX), previous)
        if number == 1:
            begin_ms, begin_offset = timestamp, offset
        self.header = IndexHeader(
            begin_ms, timestamp, begin_offset, offset, used + (previous == 0), number + 1
        )
        if len(self._pending) > _PENDING_BYTES_MAX:
            self._write_pending()

    def _write_pending(self) -> None:
        self._write_at(self._pending_at, self._pending)
        self._pending_at += len(self._pending)
        self._pending.clear()

    def close(self) -> None:
        self._write_pending()
        if sys.byteorder == "little":
            self._slots.byteswap()
        self._write_at(0, HEADER.pack(*self.header) + self._slots.tobytes())

    def _write_at(self, position: int, data: bytes | bytearray) -> None:
        if self._path is not None:
            size = index_file_bytes(len(self._slots), self._capacity)
            write_at(self._path, position, data, file_bytes=size)
