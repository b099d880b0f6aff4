"""The timer's log: one entry for each message that waits, chained backwards within its slot.

    entry   | size 4 | previous 8 | magic 4 | written at 8 | delay 4 |
            | physical offset 8 | record size 4 | topic hash 4 | 0 8 |            52 bytes
    filler  | rest of the file 4 | 0 8 | blank magic 4 | ...                      closes a file

`previous` is the position of the entry before it in the same slot, -1 for the first; written at
plus delay is the slot's time. Positions count through all files of `timerlog/`.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from firearrow.hot.layout import MAGIC_BLANK
from firearrow.model.errors import ServiceNotAvailable
from firearrow.store.segments import Segments

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from firearrow.store.disk import Disk, MappedFile

ENTRY: Final = struct.Struct(">iqiqiqiiq")
ENTRY_BYTES: Final = ENTRY.size
FILLER: Final = struct.Struct(">iqi")
NOWHERE: Final = -1

MAGIC_DEFAULT: Final = 1
MAGIC_ROLL: Final = 2  # it waits for the wheel to turn, and goes into the timer again then
MAGIC_DELETE: Final = 4  # it takes another message back
_MAGIC_MASK: Final = 0xF
_RESERVE_BYTES: Final = 256 * 1024
_PREPARE_AT: Final = 0.5  # of a file, before the next one is made


class TimerEntry(NamedTuple):
    size: int
    previous: int
    magic: int
    written_ms: int
    delay_ms: int
    physical_offset: int
    record_bytes: int
    topic_hash: int
    reserved: int = 0

    @property
    def is_sound(self) -> bool:
        return self.size == ENTRY_BYTES and self.magic | _MAGIC_MASK == _MAGIC_MASK

    @property
    def slot_ms(self) -> int:
        return self.written_ms + self.delay_ms

    @property
    def is_rolled(self) -> bool:
        return bool(self.magic & MAGIC_ROLL)

    @property
    def takes_back(self) -> bool:
        return bool(self.magic & MAGIC_DELETE)

    def encode(self) -> bytes:
        return ENTRY.pack(*self)


def decode_entry(buffer: memoryview | bytes, at: int) -> TimerEntry | None:
    """The entry that lies there; None if none does."""
    if len(buffer) - at < ENTRY_BYTES:
        return None
    entry = TimerEntry._make(ENTRY.unpack_from(buffer, at))
    return entry if entry.is_sound else None


def walk(
    buffer: memoryview, start: int, position: int, most: int
) -> tuple[list[tuple[int, TimerEntry]], int]:
    """Entries of a chain, the newest first, as far as they lie in one file; and where to go on.

    Touches nothing but the file's memory: for a thread.
    """
    found: list[tuple[int, TimerEntry]] = []
    while position >= start and len(found) < most:
        entry = decode_entry(buffer, position - start)
        if entry is None:
            return found, NOWHERE
        found.append((position, entry))
        if entry.previous >= position:
            return found, NOWHERE
        position = entry.previous
    return found, position


class TimerLog:
    """Appends entries and finds them again. `end` is behind the last one."""

    def __init__(self, disk: Disk, folder: Path, file_bytes: int) -> None:
        self.segments = Segments(disk, folder, file_bytes)
        self.end = 0
        self._reserved = 0
        self._synced = 0

    def load(self) -> list[str]:
        """Find the files; `open_at` comes next. Returns what is odd about them."""
        oddities = self.segments.load(setting="mappedFileSizeTimerLog")
        self.end = self.segments.min_offset
        return oddities

    def open_at(self, end: int) -> None:
        """Write from here on, and have nothing behind it. Blocks."""
        if self.segments.starts:
            # Not by looking: a power loss leaves holes, and what lies behind one may be far.
            self.segments.truncate(end)
        self.end = self._reserved = self._synced = end

    @property
    def min_position(self) -> int:
        return self.segments.min_offset

    def append(self, entry: TimerEntry) -> int:
        """Write an entry; returns its position. ServiceNotAvailable when there is no room."""
        try:
            file, start = self._room()
        except OSError as error:
            raise ServiceNotAvailable(f"no disk space for the timer log: {error}") from error
        position = self.end
        at = position - start
        file.buffer[at : at + ENTRY_BYTES] = entry.encode()
        self.end = position + ENTRY_BYTES
        return position

    def _room(self) -> tuple[MappedFile, int]:
        segments = self.segments
        start = segments.start_of(self.end)
        if start is not None:
            left = start + segments.file_bytes - self.end
            if left >= ENTRY_BYTES + FILLER.size:
                file = segments.file(start)
                self._reserve(file, start, ENTRY_BYTES + FILLER.size)
                return file, start
            FILLER.pack_into(segments.file(start).buffer, self.end - start, left, 0, MAGIC_BLANK)
            self.end = start + segments.file_bytes
        start = self.end
        file = segments.file(start) if start in segments.starts else segments.add(start)
        self._reserved = start
        self._reserve(file, start, ENTRY_BYTES + FILLER.size)
        return file, start

    def _reserve(self, file: MappedFile, start: int, size: int) -> None:
        if self.end + size > self._reserved:
            stop = min(self.end + _RESERVE_BYTES, start + self.segments.file_bytes)
            file.reserve(self.end - start, stop - self.end)
            self._reserved = stop

    @property
    def next_file(self) -> int | None:
        """Where the next file starts, when it is time to make it."""
        start = self.segments.start_of(self.end)
        if start is None or self.segments.is_prepared:
            return None
        filled = (self.end - start) / self.segments.file_bytes
        return start + self.segments.file_bytes if filled >= _PREPARE_AT else None

    def entry(self, position: int) -> TimerEntry | None:
        start = self.segments.start_of(position)
        if start is None or not 0 <= position < self.end:
            return None
        return decode_entry(self.segments.file(start).buffer, position - start)

    def piece(self, position: int) -> tuple[memoryview, int] | None:
        """The memory of the file that holds a position, and where it starts: what `walk` needs."""
        start = self.segments.start_of(position)
        return None if start is None else (self.segments.file(start).buffer, start)

    def entries(self, position: int) -> Iterator[tuple[int, TimerEntry]]:
        """All entries from a position on, over fillers; ends where no entry is."""
        segments = self.segments
        start = segments.start_of(position)
        while start is not None:
            buffer, at = segments.file(start).buffer, position - start
            while True:
                entry = decode_entry(buffer, at)
                if entry is None:
                    break
                yield start + at, entry
                at += ENTRY_BYTES
            if not _is_filler(buffer, at):
                return
            position = start + segments.file_bytes
            start = segments.start_of(position)

    def dirty_files(self) -> tuple[list[MappedFile], int]:
        """What has to be synced for everything before `end`, and that end."""
        return self.segments.files_between(self._synced, self.end), self.end

    def note_synced(self, end: int) -> None:
        self._synced = max(self._synced, end)

    def remove_before(self, log_min: int) -> int:
        """Remove the oldest files whose entries lead to what is gone; returns how many. Blocks."""
        removed = 0
        while len(self.segments.starts) > 1:
            last = self._last_entry(self.segments.starts[0])
            if last is None or last.physical_offset >= log_min:
                break
            self.segments.remove_first()
            removed += 1
        return removed

    def _last_entry(self, start: int) -> TimerEntry | None:
        """The last entry of a file that is closed."""
        at = (self.segments.file_bytes - FILLER.size) // ENTRY_BYTES * ENTRY_BYTES - ENTRY_BYTES
        return decode_entry(self.segments.file(start).buffer, at)

    def close(self) -> None:
        self.segments.close()


def _is_filler(buffer: memoryview, at: int) -> bool:
    return len(buffer) - at >= FILLER.size and FILLER.unpack_from(buffer, at)[2] == MAGIC_BLANK
