"""The files of one consume queue: entries of 20 bytes, by queue offset.

    folder/00000000000000000000   entries 0 .. n-1      named by their first byte, 20 digits
    folder/00000000000006000000   entries n .. 2n-1

Nobody promises that they are all there, or whole: what is missing reads as zeros.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from firearrow.hot.layout import ENTRY_BYTES

if TYPE_CHECKING:
    from pathlib import Path

    from firearrow.store.disk import Disk

ENTRY: Final = struct.Struct(">qiq")  # physical offset, size, tags code
ZEROING_BYTES: Final = 64 * 1024
assert ENTRY.size == ENTRY_BYTES


class EntryFiles:
    """Reads and writes entries; keeps no file open and no entry in memory."""

    __slots__ = ("_disk", "_file_bytes", "_folder")

    def __init__(self, disk: Disk, folder: Path, file_bytes: int) -> None:
        self._disk = disk
        self._folder = folder
        self._file_bytes = file_bytes - file_bytes % ENTRY_BYTES

    @property
    def entries_per_file(self) -> int:
        return self._file_bytes // ENTRY_BYTES

    def extent(self, cut: int) -> tuple[int, int]:
        """The first offset, and the one behind the last entry that points before `cut`."""
        starts = self._starts()
        first = starts[0] // ENTRY_BYTES if starts else 0
        for start in reversed(starts):
            low = start // ENTRY_BYTES
            high = low + self.entries_per_file
            while low < high:  # entries come first, zeros behind them
                middle = (low + high) // 2
                physical, size, _ = ENTRY.unpack(self.read(middle, 1))
                if size > 0 and 0 <= physical < cut:
                    low = middle + 1
                else:
                    high = middle
            if low * ENTRY_BYTES > start:
                return first, low
        return first, first

    def read(self, offset: int, count: int) -> bytes:
        """Entries out of one file."""
        path, position = self.place(offset)
        size = min(count * ENTRY_BYTES, self._file_bytes - position)
        raw = self._disk.read_at(path, position, size)
        return raw + bytes(size - len(raw))

    def write(self, offset: int, entries: bytes) -> list[Path]:
        """Write entries; returns the files that need a sync."""
        touched = []
        while entries:
            path, position = self.place(offset)
            size = min(len(entries), self._file_bytes - position)
            self._disk.write_at(path, position, entries[:size], file_bytes=self._file_bytes)
            touched.append(path)
            entries, offset = entries[size:], offset + size // ENTRY_BYTES
        return touched

    def zero_behind(self, end: int) -> None:
        """Nobody must ever take what lies behind the end for entries."""
        path, position = self.place(end)
        while position < self._file_bytes:
            size = min(ZEROING_BYTES, self._file_bytes - position)
            if not self._disk.read_at(path, position, size).strip(b"\0"):
                break
            self._disk.write_at(path, position, bytes(size), file_bytes=self._file_bytes)
            position += size
        for start in self._starts():
            if start >= end * ENTRY_BYTES and start > 0:
                self._disk.remove(self._folder / f"{start:020d}")

    def remove_before(self, offset: int) -> None:
        """Remove files that hold nothing from `offset` on."""
        for start in self._starts():
            if start + self._file_bytes <= offset * ENTRY_BYTES:
                self._disk.remove(self._folder / f"{start:020d}")

    def remove_all(self) -> None:
        self._disk.remove(self._folder)

    def place(self, offset: int) -> tuple[Path, int]:
        """File and position of an entry."""
        at = offset * ENTRY_BYTES
        position = at % self._file_bytes
        return self._folder / f"{at - position:020d}", position

    def _starts(self) -> list[int]:
        return sorted(
            int(name)
            for name in self._disk.names(self._folder)
            if name.isdecimal() and int(name) % self._file_bytes == 0
        )
