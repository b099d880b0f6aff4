"""The files of one consume queue: units of 20 or 46 bytes, in files of one size."""

from __future__ import annotations

import os
from functools import cached_property
from typing import TYPE_CHECKING, Final

from firearrow.offline.log_walk import extents

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from firearrow.offline.log_walk import LogFile

_CHUNK_BYTES: Final = 1 << 16


class UnitFiles:
    """Units by number. Reading never fails: what cannot be read is not there."""

    def __init__(self, files: Sequence[LogFile], *, unit_bytes: int, file_bytes: int) -> None:
        self.files = files
        self.unit_bytes = unit_bytes
        self.file_bytes = file_bytes - file_bytes % unit_bytes
        self._by_start = {file.first_offset: file for file in files}

    @property
    def first(self) -> int:
        """Number of the first unit that there is a place for."""
        return self.files[0].first_offset // self.unit_bytes if self.files else 0

    @cached_property
    def end(self) -> int:
        """Number behind the last unit that is not all zeros."""
        for file in reversed(self.files):
            used = used_bytes(file, most=self.file_bytes)
            if used:
                return -(-(file.first_offset + used) // self.unit_bytes)
        return self.first

    def read(self, number: int, count: int) -> bytes:
        """Units from `number` on; zeros for those that have no file."""
        parts = []
        at, left = number * self.unit_bytes, count * self.unit_bytes
        while left > 0:
            position = at % self.file_bytes
            size = min(left, self.file_bytes - position)
            parts.append(_read(self._by_start.get(at - position), position, size))
            at += size
            left -= size
        return b"".join(parts)

    def units(self, first: int, stop: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Number and bytes of every unit in a range; where a file is missing, nothing."""
        for file in self.files:
            start = file.first_offset // self.unit_bytes
            end = min(start + self.file_bytes // self.unit_bytes, self.end)
            if stop is not None:
                end = min(end, stop)
            number = max(start, first)
            while number < end:
                count = min(end - number, _CHUNK_BYTES // self.unit_bytes)
                data = self.read(number, count)
                for at in range(0, len(data), self.unit_bytes):
                    yield number, data[at : at + self.unit_bytes]
                    number += 1


def _read(file: LogFile | None, position: int, size: int) -> bytes:
    data = b""
    if file is not None:
        try:
            with file.path.open("rb", buffering=0) as opened:
                opened.seek(position)
                data = opened.read(size) or b""
        except OSError:  # a running broker deleted it just now, or the disk is bad
            pass
    return data + bytes(size - len(data))


def used_bytes(file: LogFile, *, most: int) -> int:
    """Bytes up to the last one that is not zero. Holes of a sparse file are not read."""
    try:
        descriptor = os.open(file.path, os.O_RDONLY)
    except OSError:
        return 0
    try:
        for start, stop in reversed(extents(descriptor, min(file.size, most))):
            end = stop
            while end > start:
                size = min(_CHUNK_BYTES, end - start)
                content = os.pread(descriptor, size, end - size).rstrip(b"\0")
                if content:
                    return end - size + len(content)
                end -= size
    except OSError:
        return 0
    finally:
        os.close(descriptor)
    return 0
