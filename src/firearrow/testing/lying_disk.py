"""A disk in memory that remembers only what it was made to remember.

A real disk keeps what was synced; of everything written since, a power loss keeps what it likes:
this page and not that one, the new name of a file but not its content, a removed file that is back.
`LyingDisk` does the same from a seed, so that a store can be cut off at any moment, many times a
second, and asked afterwards what it still knows:

    disk = LyingDisk(root, seed=7)
    ... run a store on it ...
    disk = disk.after_power_loss()      # what a machine finds when it comes up again
    disk = disk.after_process_crash()   # the other death: the page cache lives on

It can also be full, slow, and fail to sync. It is meant for small stores: it looks at whole files.
All calls belong to one thread; give the loop a `testing.threads.SteppedExecutor`.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections import deque
from typing import TYPE_CHECKING, Final

from firearrow.testing.lying_files import Content, Folder, HoleWritten, Survivors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from firearrow.store.syncer import Done, Syncable

PLENTY_BYTES: Final = 1 << 40  # free, unless told otherwise
HISTORY: Final = 200  # operations remembered, for the one who must understand a failure


class LyingFile:
    """A file of a `LyingDisk`, mapped."""

    def __init__(self, disk: LyingDisk, path: Path, content: Content) -> None:
        self.path = path
        self.size = len(content.live)
        self.descriptor = 0
        self.content = content
        self._disk = disk
        self._buffer = memoryview(content.live)

    @property
    def buffer(self) -> memoryview:
        return self._buffer

    def sync(self) -> None:
        self._disk.sync_content(self)

    def reserve(self, position: int, size: int) -> None:
        self._disk.reserve(self.content, position, size)

    def preparation(self, position: int, size: int) -> Callable[[], None]:
        return lambda: self.reserve(position, size)

    def rewrite(self, position: int) -> None:
        self.content.rewrite(position)

    def warm(self, position: int, size: int) -> None:
        assert self.descriptor >= 0, "a closed file is used"
        assert 0 <= position <= position + size <= self.size

    def modified_ms(self) -> int:
        self._disk.observe()
        return self.content.modified_ms

    def close(self) -> None:
        assert self.descriptor >= 0, "closed twice"
        self._disk.observe()
        self.descriptor = -1
        self._buffer.release()


class LyingSyncer:
    """Syncs that end in the next turn of the loop, or when the disk is told to end them."""

    def __init__(self, disk: LyingDisk) -> None:
        self._disk = disk
        self._closed = False

    def begin(self, files: Sequence[Syncable], done: Done) -> None:
        self._disk.step("sync begins")
        lying = [file for file in files if isinstance(file, LyingFile)]
        assert len(lying) == len(files), "a file of another disk"
        captured = [(file, file.content.capture()) for file in lying]

        def end() -> None:
            error = self._disk.next_sync_error()
            for file, moment in captured:
                if file.descriptor < 0:  # the system would say the same
                    error = error or OSError(errno.EBADF, os.strerror(errno.EBADF))
                elif error is not None:
                    file.content.forget()
                else:
                    file.content.settle(moment)
            self._disk.step("sync ends")
            if not self._closed:
                done(error)

        if self._disk.slow:
            self._disk.begun.append(end)
        else:
            asyncio.get_running_loop().call_soon(end)

    def close(self) -> None:
        self._closed = True


class LyingDisk:
    """A `store.disk.Disk` in memory. Everything that it decides follows from `seed`."""

    def __init__(
        self,
        root: Path,
        *,
        seed: int,
        torn_sectors: bool = False,
        now_ms: Callable[[], int] = lambda: 0,
        folder: Folder | None = None,
    ) -> None:
        self._root = root
        self._seed = seed
        self._random = random.Random(seed)
        self._now_ms = now_ms
        self._torn_sectors = torn_sectors  # pages are written in pieces of 512 bytes
        self._folder = folder or Folder()
        self._left: int | None = None  # operations until the power goes
        self._survivors: Folder | None = None
        self._sync_errors: deque[OSError | None] = deque()  # of the next syncs
        self.slow = False  # syncs of the log end when `end_syncs` is called
        self.begun: deque[Callable[[], None]] = deque()
        self.capacity: int | None = None  # bytes; None: plenty
        self.operations = 0
        self.history: deque[str] = deque(maxlen=HISTORY)

    # --- what a test does to it ---------------------------------------------------------------

    def lose_power_after(self, operations: int) -> None:
        """Have the power go in the middle of things: right before the n-th operation from now.

        The store goes on with a ghost and does not notice; `power_is_lost` tells the test, and
        `after_power_loss` returns what was there at that moment.
        """
        assert operations > 0
        self._left = operations

    @property
    def power_is_lost(self) -> bool:
        return self._survivors is not None

    def after_power_loss(self) -> LyingDisk:
        """What is left after the power is lost (now, if it was not already)."""
        if self._survivors is None:
            self._lose_power()
        assert self._survivors is not None
        return self._successor(self._survivors)

    def after_process_crash(self) -> LyingDisk:
        """What the next process finds: all that was written, and still not synced."""
        self.observe()
        return self._successor(self._folder.copied({}))

    def _successor(self, folder: Folder) -> LyingDisk:
        disk = LyingDisk(
            self._root,
            seed=self._random.getrandbits(32),
            torn_sectors=self._torn_sectors,
            now_ms=self._now_ms,
            folder=folder,
        )
        disk.capacity = self.capacity
        return disk

    def fail_sync(self, number: int = errno.EIO, *, after: int = 0) -> None:
        """Have the next sync of a file fail, or one some syncs later.

        As with a real kernel, a later one that succeeds proves nothing: the pages that could not be
        written count as clean and are not tried again.
        """
        self._sync_errors.extend([None] * (after - len(self._sync_errors)))
        self._sync_errors.append(OSError(number, os.strerror(number)))

    def get_well(self) -> None:
        """Be neither slow nor full, and fail no sync."""
        self.slow = False
        self.capacity = None
        self._sync_errors.clear()

    def end_syncs(self, most: int | None = None) -> None:
        """End syncs of a slow disk, the oldest first."""
        while self.begun and (most is None or most > 0):
            self.begun.popleft()()
            most = None if most is None else most - 1

    def damage(self, path: Path, change: Callable[[bytearray], object]) -> None:
        """Change a file behind everybody's back, on the disk itself. It must not be mapped."""
        content = self._content(path)
        assert content is not None, f"there is no {path}"
        changed = bytearray(content.live)
        change(changed)
        content.replace_all(changed)
        content.settle(content.capture())

    # --- how it lies --------------------------------------------------------------------------

    def step(self, name: str) -> None:
        """One operation more; the power may go right before it."""
        self.observe()
        self.operations += 1
        self.history.append(name)
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                self._lose_power()

    def _lose_power(self) -> None:
        if self._survivors is None:
            self.observe()
            self.history.append("POWER LOST")
            choice = Survivors(random.Random(self._random.getrandbits(32)), self._torn_sectors)
            self._survivors = choice.of_folder(self._folder)

    def observe(self) -> None:
        """Look at all files: memory can be written without asking."""
        now_ms = self._now_ms()
        for content in self._folder.contents():
            content.observe(now_ms)
            holes = content.take_filled_holes()
            if holes and self.free_bytes < 0:
                raise HoleWritten(f"{len(holes)} pages were written that the full disk cannot hold")

    def next_sync_error(self) -> OSError | None:
        return self._sync_errors.popleft() if self._sync_errors else None

    def sync_content(self, file: LyingFile) -> None:
        self.step(f"sync {file.path.name}")
        if file.descriptor < 0:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        self._sync(file.content)

    def _sync(self, content: Content) -> None:
        error = self.next_sync_error()
        if error is not None:
            content.forget()
            raise error
        content.settle(content.capture())

    # --- space --------------------------------------------------------------------------------

    @property
    def used_bytes(self) -> int:
        return sum(content.allocated_bytes for content in self._folder.contents())

    @property
    def free_bytes(self) -> int:
        return PLENTY_BYTES if self.capacity is None else self.capacity - self.used_bytes

    def reserve(self, content: Content, position: int, size: int) -> None:
        self.step("reserve")
        if content.missing_bytes(position, size) > max(0, self.free_bytes):
            raise _disk_full()
        content.allocate(position, size)

    # --- Disk ---------------------------------------------------------------------------------

    def names(self, folder: Path) -> list[str]:
        found = self._find(folder)
        return sorted(found.entries) if isinstance(found, Folder) else []

    def size_of(self, path: Path) -> int | None:
        content = self._content(path)
        return None if content is None else len(content.live)

    def map(self, path: Path, size: int, *, create: bool = False, head: bytes = b"") -> LyingFile:
        content = self._content(path)
        if create and content is None and head:
            content = self._make_beside(path, head.ljust(size, b"\0"), len(head))
        if create and (content is None or not content.live):
            content = content or self._create(path)
            self.step(f"give {path.name} its size")
            content.replace_all(bytearray(size))
            content.settle(content.capture())
            self._sync_folders(path)
        if content is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        if len(content.live) < size:
            raise ValueError(
                f"{path} has {len(content.live)} bytes and cannot be mapped with {size}"
            )
        return LyingFile(self, path, content)

    def resize(self, path: Path, *, keep: int, size: int) -> None:
        content = self._content(path)
        if content is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        self.step(f"cut {path.name}")
        content.replace_all(bytearray(content.live[:keep]))
        self.step(f"extend {path.name}")
        content.replace_all(content.live + bytes(size - len(content.live)))
        self.step(f"sync {path.name}")
        self._sync(content)

    def read_at(self, path: Path, position: int, size: int) -> bytes:
        content = self._content(path)
        return b"" if content is None else bytes(content.live[position : position + size])

    def write_at(self, path: Path, position: int, data: bytes, *, file_bytes: int) -> None:
        content = self._content(path)
        if content is None:
            content = self._create(path)
        if len(content.live) < file_bytes:
            self.step(f"give {path.name} its size")
            content.replace_all(content.live + bytes(file_bytes - len(content.live)))
        self.step(f"write {path.name}")
        fits = content.fitting_bytes(position, len(data), max(0, self.free_bytes))
        content.allocate(position, fits)
        content.live[position : position + fits] = data[:fits]
        if fits < len(data):
            raise _disk_full()

    def sync(self, paths: list[Path]) -> None:
        for path in paths:
            content = self._content(path)
            if content is not None:
                self.step(f"sync {path.name}")
                self._sync(content)
        for path in paths:
            self._sync_folders(path)

    def warm(self, path: Path, position: int, size: int) -> None:
        assert position >= 0
        assert size >= 0
        self._content(path)

    def syncer(self) -> LyingSyncer:
        return LyingSyncer(self)

    def read(self, path: Path) -> bytes | None:
        content = self._content(path)
        return None if content is None else bytes(content.live)

    def replace(self, path: Path, content: bytes) -> None:
        self._make_beside(path, content, len(content))

    def _make_beside(self, path: Path, content: bytes, written: int) -> Content:
        """A file beside, synced, then renamed over, then its folder synced."""
        beside = Content()
        if written > max(0, self.free_bytes):
            raise _disk_full()
        beside.replace_all(bytearray(content))
        beside.allocate(0, written)
        self.step(f"sync a new {path.name}")
        self._sync(beside)
        folder = self._make_folder(path.parent)
        self.step(f"rename {path.name}")
        folder.put(path.name, beside)
        self._sync_folders(path)
        return beside

    def remove(self, path: Path) -> None:
        folder = self._find(path.parent)
        if not isinstance(folder, Folder):
            return
        inside = folder.entries.get(path.name)
        if isinstance(inside, Folder):  # its files go one by one, as the system does it
            for name in sorted(inside.entries):
                self.remove(path / name)
        if inside is not None:
            self.step(f"remove {path.name}")
            folder.put(path.name, None)

    def sync_folder(self, folder: Path) -> None:
        found = self._find(folder)
        if not isinstance(found, Folder):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))
        self.step(f"sync {folder.name}/")
        found.settle()

    def usage(self, folder: Path) -> tuple[int, int]:
        assert folder == self._root or self._root in folder.parents
        return self.used_bytes, max(0, self.free_bytes)

    def close(self) -> None:
        self.step("close")

    # --- places -------------------------------------------------------------------------------

    def _find(self, path: Path) -> Folder | Content | None:
        found: Folder | Content | None = self._folder
        for name in path.relative_to(self._root).parts:
            if not isinstance(found, Folder):
                return None
            found = found.entries.get(name)
        return found

    def _content(self, path: Path) -> Content | None:
        found = self._find(path)
        return found if isinstance(found, Content) else None

    def _create(self, path: Path) -> Content:
        if self.free_bytes <= 0:
            raise _disk_full()
        folder = self._make_folder(path.parent)
        self.step(f"create {path.name}")
        content = Content()
        content.modified_ms = self._now_ms()
        folder.put(path.name, content)
        return content

    def _make_folder(self, path: Path) -> Folder:
        folder = self._folder
        for name in path.relative_to(self._root).parts:
            inside = folder.entries.get(name)
            if inside is None:
                self.step(f"make {name}/")
                inside = Folder()
                folder.put(name, inside)
            assert isinstance(inside, Folder), f"{path} is no folder"
            folder = inside
        return folder

    def _sync_folders(self, path: Path) -> None:
        """The file's own name, and those of the folders that it is in."""
        for folder in path.parents:
            found = self._find(folder)
            if isinstance(found, Folder) and not found.is_settled:
                self.step(f"sync {folder.name}/")
                found.settle()
            if folder == self._root:
                return


def _disk_full() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
