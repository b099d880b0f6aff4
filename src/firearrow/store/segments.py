"""Fixed-size mapped files as one address space.

    folder/00000000000000000000   bytes 0 .. F-1
    folder/00000000000000F…       bytes F .. 2F-1      named by their first offset, 20 digits

Offsets never change once given out. A file that is missing in the middle leaves a hole: reads there
find nothing, everything else is served.
"""

from __future__ import annotations

import bisect
import logging
from typing import TYPE_CHECKING, Final

from firearrow.base.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from firearrow.store.disk import Disk, MappedFile

log = logging.getLogger(__name__)

PAGE_BYTES: Final = 4096


def segment_name(start: int) -> str:
    return f"{start:020d}"


class Segments:
    """Knows which file holds which offset. Says nothing about what the bytes mean."""

    def __init__(self, disk: Disk, folder: Path, file_bytes: int) -> None:
        assert file_bytes > 0
        self._disk = disk
        self.folder = folder
        self.file_bytes = file_bytes
        self._starts: list[int] = []
        self._files: dict[int, MappedFile] = {}
        self.buffers: dict[int, memoryview] = {}  # memory of the mapped files, by first offset
        self._prepared: MappedFile | None = None

    def load(self, *, setting: str) -> list[str]:
        """Find the files; returns what is odd about them. `setting` names the size in errors."""
        oddities: list[str] = []
        sizes = {}
        for name in self._disk.names(self.folder):
            size = self._disk.size_of(self.folder / name)
            if name.isdecimal() and len(name) >= 20 and size is not None:
                sizes[int(name)] = size
        self._refuse_other_size(sizes, setting)
        for start in sorted(sizes):
            path = self.folder / segment_name(start)
            if sizes[start] == 0 and start == max(sizes):
                # No damage: a process died while it made the next file.
                log.info("%s was empty and is removed", path.name)
                self._disk.remove(path)
                continue
            if sizes[start] != self.file_bytes:
                # Cut short by a crash or a copy: what is there is served, the rest is zeros.
                self._disk.resize(path, keep=sizes[start], size=self.file_bytes)
                oddities.append(f"{path.name} had {sizes[start]} of {self.file_bytes} bytes")
            self._starts.append(start)
        for before, after in zip(self._starts, self._starts[1:], strict=False):
            if after - before != self.file_bytes:
                oddities.append(f"bytes {before + self.file_bytes} to {after} are missing")
        return oddities

    def _refuse_other_size(self, sizes: dict[int, int], setting: str) -> None:
        """Files that agree on another size, or whose names do, belong to another setting."""
        in_use = [size for size in sizes.values() if size]
        found = set(in_use)
        if (len(found) == 1 and len(in_use) > 1 and found != {self.file_bytes}) or any(
            size > self.file_bytes for size in found
        ):
            raise ConfigError(
                f"{setting} is {self.file_bytes}, but files in {self.folder.name}/ have "
                f"{max(found)} bytes: set it to that; a store keeps the size it was made with"
            )
        base = min(sizes, default=0)
        for start in sizes:
            if (start - base) % self.file_bytes:
                raise ConfigError(
                    f"{setting} is {self.file_bytes}, but {segment_name(start)} does not start at "
                    f"a multiple of it: set it to the size that the store was made with"
                )

    # --- places -----------------------------------------------------------------------------

    @property
    def starts(self) -> list[int]:
        return self._starts

    @property
    def min_offset(self) -> int:
        return self._starts[0] if self._starts else 0

    @property
    def end_offset(self) -> int:
        """Behind the last file; what is really written may end before."""
        return self._starts[-1] + self.file_bytes if self._starts else 0

    def start_of(self, offset: int) -> int | None:
        """The first offset of the file that holds `offset`; None in a hole or outside."""
        index = bisect.bisect_right(self._starts, offset) - 1
        if index < 0 or offset >= self._starts[index] + self.file_bytes:
            return None
        return self._starts[index]

    def next_start(self, offset: int) -> int | None:
        """The first file that starts behind `offset`."""
        index = bisect.bisect_right(self._starts, offset)
        return self._starts[index] if index < len(self._starts) else None

    def file(self, start: int) -> MappedFile:
        """The file that starts there, mapped on first use."""
        file = self._files.get(start)
        if file is None:
            path = self.folder / segment_name(start)
            file = self._disk.map(path, self.file_bytes)
            self._keep(start, file)
        return file

    def slice(self, offset: int, size: int) -> memoryview | None:
        """Bytes of the log, not copied; None if they are not all in one file."""
        start = self.start_of(offset)
        if start is None or offset - start + size > self.file_bytes:
            return None
        return self.file(start).buffer[offset - start : offset - start + size]

    def bytes_behind(self, offset: int) -> int:
        """How many bytes that are not zero lie behind an offset, in its next page."""
        start = self.start_of(offset)
        if start is None:
            return 0
        rest = self.file(start).buffer[offset - start :]
        return len(bytes(rest[:PAGE_BYTES]).rstrip(b"\0"))

    def parts(self, offset: int, stop: int) -> list[tuple[MappedFile, int, int]]:
        """File, position and size of these bytes of the log, as far as it has them."""
        found = []
        at = max(offset, self.min_offset)
        while at < stop and (start := self.start_of(at)) is not None:
            end = min(stop, start + self.file_bytes)
            found.append((self.file(start), at - start, end - at))
            at = end
        return found

    # --- growing and shrinking --------------------------------------------------------------

    def prepare(self, start: int) -> MappedFile:
        """Make the file that starts there. Blocking and free of shared state: for a thread."""
        return self._disk.map(self.folder / segment_name(start), self.file_bytes, create=True)

    @property
    def is_prepared(self) -> bool:
        """Whether the next file is there already."""
        return self._prepared is not None

    def keep_prepared(self, file: MappedFile) -> None:
        self._prepared = file

    def add(self, start: int) -> MappedFile:
        """The next file, prepared ahead or made now."""
        assert not self._starts or start >= self.end_offset
        name = segment_name(start)
        prepared, self._prepared = self._prepared, None
        if prepared is not None and prepared.path.name != name:
            self._drop(prepared)
            prepared = None
        file = self.prepare(start) if prepared is None else prepared
        self._starts.append(start)
        self._keep(start, file)
        return file

    def _keep(self, start: int, file: MappedFile) -> None:
        self._files[start] = file
        self.buffers[start] = file.buffer

    def _unmap(self, start: int) -> None:
        self.buffers.pop(start, None)
        file = self._files.pop(start, None)
        if file is not None:
            file.close()

    def remove_first(self) -> int:
        """Forget the oldest file; returns the offset that the log starts with now. Blocks.

        Files go one by one on the disk, too: after a power loss none is missing in the middle.
        """
        self._remove(self._starts[0])
        self._disk.sync_folder(self.folder)
        return self.min_offset

    def truncate(self, offset: int) -> None:
        """Forget everything from `offset` on; the rest of its file reads as zeros."""
        gone = [start for start in self._starts if start >= offset]
        for start in gone:
            self._remove(start)
        if gone:  # or a power loss brings them back, and a filler that leads to them
            self._disk.sync_folder(self.folder)
        last = self.start_of(offset)
        if last is not None:
            self._unmap(last)
            path = self.folder / segment_name(last)
            self._disk.resize(path, keep=offset - last, size=self.file_bytes)

    def _remove(self, start: int) -> None:
        self._starts.remove(start)
        self._unmap(start)
        self._disk.remove(self.folder / segment_name(start))

    def _drop(self, file: MappedFile) -> None:
        file.close()
        self._disk.remove(file.path)

    def files_between(self, start_offset: int, end_offset: int) -> list[MappedFile]:
        """Mapped files that hold a part of this range; a range that was written is mapped."""
        index = max(0, bisect.bisect_right(self._starts, start_offset) - 1)
        return [
            self._files[start]
            for start in self._starts[index:]
            if start < end_offset
            and start + self.file_bytes > start_offset
            and start in self._files
        ]

    def sync_from(self, offset: int, *, rewrite: bool) -> None:
        """Have everything from `offset` on to the end on disk, written again if asked. Blocks."""
        for start in self._starts:
            if start + self.file_bytes > offset:
                file = self.file(start)
                if rewrite:
                    file.rewrite(max(0, offset - start))
                file.sync()

    def modified_ms(self, start: int) -> int:
        return self.file(start).modified_ms()

    def close(self) -> None:
        """Give the maps back, and remove a file that was prepared for nothing."""
        if self._prepared is not None:
            self._drop(self._prepared)
            self._prepared = None
        for start in list(self._files):
            self._unmap(start)
