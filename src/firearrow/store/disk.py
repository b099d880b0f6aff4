"""The only place where the store touches files, so that a test can put a lying disk here.

What the store asks of a disk is little: map a file of a fixed size, read and write at a place, say
which bytes must survive a power loss, and forget a file. Data is durable when its file is synced;
a name that was created or removed, when its folder is.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import shutil
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Protocol

from firearrow.base.files import make_directory, sync_directory, write_atomically
from firearrow.hot import bring_in
from firearrow.store.syncer import PipeSyncer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from firearrow.store.syncer import Syncer

OPEN_FILES_MAX: Final = 512  # descriptors kept for files that are not mapped
SYNCS_MAX: Final = 256  # one by one; more files than this go with the whole file system, at once
BRING_IN_BYTES: Final = 1024 * 1024  # at once
FOLDERS_DEEP: Final = 3  # consumequeue/topic/queue/: the folders whose names `sync` makes durable


class MappedFile(Protocol):
    """A file of fixed size whose bytes are memory."""

    path: Path
    size: int
    descriptor: int  # for the syncer of the same disk

    @property
    def buffer(self) -> memoryview:
        """All of it, writable. Slices stay valid after `close`, which waits for none of them."""
        ...

    def sync(self) -> None:
        """Return when everything written so far is on disk. Blocks; may run in a thread."""
        ...

    def reserve(self, position: int, size: int) -> None:
        """Have real disk space for these bytes; OSError (disk full) instead of a crash later.

        A write into a hole of a mapped file on a full disk would kill the process.
        """
        ...

    def preparation(self, position: int, size: int) -> Callable[[], None]:
        """What a thread has to do so that writing there later waits for nothing: disk space, and
        memory. It may run, and fail as `reserve` does, also after `close`.
        """  # noqa: D205 - one thought
        ...

    def rewrite(self, position: int) -> None:
        """Have everything from there on written again by the next sync, whatever the system thinks.

        Pages whose sync has failed count as written to it.
        """
        ...

    def warm(self, position: int, size: int) -> None:
        """Bring these bytes into memory. Blocks without holding up other threads."""
        ...

    def modified_ms(self) -> int:
        """When the file changed last, since 1970: what retention by time goes by."""
        ...

    def close(self) -> None:
        """Give the memory back as soon as no slice of it is in use."""
        ...


class Disk(Protocol):
    """A file system, as far as the store needs one."""

    def names(self, folder: Path) -> list[str]:
        """Names in a folder, sorted; empty when there is no such folder."""
        ...

    def size_of(self, path: Path) -> int | None:
        """The length of a file; None when there is none."""
        ...

    def map(self, path: Path, size: int, *, create: bool = False, head: bytes = b"") -> MappedFile:
        """Map a file that has this size, or make it: sparse, all zeros, folders as needed.

        A file that was made is durable with its length and its name. With a `head` it begins so,
        and has its name only then: nobody ever sees it without.
        """
        ...

    def resize(self, path: Path, *, keep: int, size: int) -> None:
        """Give a file `size` bytes of which all behind `keep` are zero. It must not be mapped."""
        ...

    def read_at(self, path: Path, position: int, size: int) -> bytes:
        """Bytes of a file; fewer at its end, none if it does not exist."""
        ...

    def write_at(self, path: Path, position: int, data: bytes, *, file_bytes: int) -> None:
        """Write into a file, which is made with `file_bytes` zeros if it does not exist."""
        ...

    def sync(self, paths: list[Path]) -> None:
        """Return when what `write_at` wrote to these files, and their names, are on disk.

        For a thread: it shares nothing with the other methods.
        """
        ...

    def warm(self, path: Path, position: int, size: int) -> None:
        """Bring bytes into memory. For a thread, as `sync`."""
        ...

    def syncer(self) -> Syncer:
        """What makes mapped files durable beside the event loop; one per store."""
        ...

    def read(self, path: Path) -> bytes | None:
        """All of a small file; None when there is none."""
        ...

    def replace(self, path: Path, content: bytes) -> None:
        """Write a small file, durably, all of it or nothing."""
        ...

    def remove(self, path: Path) -> None:
        """Remove a file, or a folder with all that is in it; what is not there is fine."""
        ...

    def sync_folder(self, folder: Path) -> None: ...

    def usage(self, folder: Path) -> tuple[int, int]:
        """Bytes used and bytes still free on the partition of `folder`."""
        ...

    def close(self) -> None:
        """Let go of what is kept open; maps have their own `close`."""
        ...


class RealFile:
    """A file mapped shared: what is written is in the page cache at once, on disk after `sync`."""

    __slots__ = ("_buffer", "_map", "descriptor", "path", "size")

    def __init__(self, path: Path, descriptor: int, size: int) -> None:
        self.path = path
        self.size = size
        self.descriptor = descriptor
        self._map = mmap.mmap(descriptor, size)
        self._buffer = memoryview(self._map)

    @property
    def buffer(self) -> memoryview:
        return self._buffer

    def sync(self) -> None:
        os.fdatasync(self.descriptor)

    def reserve(self, position: int, size: int) -> None:
        os.posix_fallocate(self.descriptor, position, size)

    def preparation(self, position: int, size: int) -> Callable[[], None]:
        descriptor = os.dup(self.descriptor)
        memory = self._buffer[position : position + size]

        def prepare() -> None:
            try:
                os.posix_fallocate(descriptor, position, size)
                for at in range(0, len(memory), BRING_IN_BYTES):
                    bring_in(memory, at, min(at + BRING_IN_BYTES, len(memory)))
            finally:
                os.close(descriptor)
                memory.release()

        return prepare

    def rewrite(self, position: int) -> None:
        for at in range(position, self.size, mmap.PAGESIZE):
            if bytes(self._buffer[at : at + mmap.PAGESIZE]).strip(b"\0"):  # and not a hole
                self._buffer[at] = self._buffer[at]

    def warm(self, position: int, size: int) -> None:
        stop = position + size
        while position < stop:  # pread lets other threads run; a page fault would not
            position += len(os.pread(self.descriptor, min(stop - position, 1 << 20), position)) or (
                stop - position
            )

    def modified_ms(self) -> int:
        return os.fstat(self.descriptor).st_mtime_ns // 1_000_000

    def close(self) -> None:
        os.close(self.descriptor)
        self._buffer.release()
        # While a slice is being sent somewhere the map stays; it goes with its last reader.
        with contextlib.suppress(BufferError):
            self._map.close()


class RealDisk:
    """The machine's own file system."""

    def __init__(self) -> None:
        self._open: OrderedDict[Path, int] = OrderedDict()  # least recently used first

    def names(self, folder: Path) -> list[str]:
        try:
            return sorted(os.listdir(folder))  # noqa: PTH208 - names are wanted, not paths
        except FileNotFoundError:
            return []

    def size_of(self, path: Path) -> int | None:
        try:
            return path.stat().st_size
        except FileNotFoundError:
            return None

    def map(self, path: Path, size: int, *, create: bool = False, head: bytes = b"") -> RealFile:
        flags = os.O_RDWR
        if create:
            make_directory(path.parent)
            if head and not path.exists():
                _make_beside(path, size, head)
            flags |= os.O_CREAT
        descriptor = os.open(path, flags, 0o644)
        try:
            if create and os.fstat(descriptor).st_size == 0:
                os.ftruncate(descriptor, size)
                # The length must be on disk before a record is: fdatasync of data inside a
                # length that was lost would be worth nothing.
                os.fsync(descriptor)
                self.sync_folder(path.parent)
            return RealFile(path, descriptor, size)
        except BaseException:
            os.close(descriptor)
            raise

    def resize(self, path: Path, *, keep: int, size: int) -> None:
        descriptor = os.open(path, os.O_RDWR)
        try:
            os.ftruncate(descriptor, keep)
            os.ftruncate(descriptor, size)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def read_at(self, path: Path, position: int, size: int) -> bytes:
        try:
            return os.pread(self._descriptor(path, None), size, position)
        except FileNotFoundError:
            return b""

    def write_at(self, path: Path, position: int, data: bytes, *, file_bytes: int) -> None:
        descriptor = self._descriptor(path, file_bytes)
        view = memoryview(data)
        while view:
            written = os.pwrite(descriptor, view, position)
            view, position = view[written:], position + written

    def sync(self, paths: list[Path]) -> None:
        if len(paths) > SYNCS_MAX and _sync_filesystem(paths[0].parents[2]):
            return
        for path in paths:
            with contextlib.suppress(FileNotFoundError):  # its topic was deleted meanwhile
                descriptor = os.open(path, os.O_RDWR)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
        for folder in {parent for path in paths for parent in list(path.parents)[:FOLDERS_DEEP]}:
            with contextlib.suppress(FileNotFoundError):
                self.sync_folder(folder)

    def warm(self, path: Path, position: int, size: int) -> None:
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.pread(descriptor, size, position)
            finally:
                os.close(descriptor)

    def syncer(self) -> Syncer:
        return PipeSyncer()

    def _descriptor(self, path: Path, file_bytes: int | None) -> int:
        """An open descriptor; `file_bytes` makes the file if need be."""
        descriptor = self._open.get(path)
        if descriptor is not None:
            self._open.move_to_end(path)
            return descriptor
        try:
            descriptor = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            if file_bytes is None:
                raise
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        if file_bytes is not None and os.fstat(descriptor).st_size < file_bytes:
            os.ftruncate(descriptor, file_bytes)
        self._open[path] = descriptor
        if len(self._open) > OPEN_FILES_MAX:
            _, oldest = self._open.popitem(last=False)
            os.close(oldest)
        return descriptor

    def _forget(self, path: Path) -> None:
        for known in [p for p in self._open if p == path or path in p.parents]:
            os.close(self._open.pop(known))

    def read(self, path: Path) -> bytes | None:
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None

    def replace(self, path: Path, content: bytes) -> None:
        write_atomically(path, content, keep_backup=False)

    def remove(self, path: Path) -> None:
        self._forget(path)
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    def sync_folder(self, folder: Path) -> None:
        sync_directory(folder)

    def usage(self, folder: Path) -> tuple[int, int]:
        while not folder.exists():
            folder = folder.parent
        usage = shutil.disk_usage(folder)
        return usage.used, usage.free

    def close(self) -> None:
        while self._open:
            os.close(self._open.popitem()[1])


def _make_beside(path: Path, size: int, head: bytes) -> None:
    """A sparse file that begins with `head` and is whole when it gets its name."""
    beside = path.with_name(path.name + ".tmp")
    try:
        with beside.open("wb") as file:
            file.write(head)
            file.truncate(size)
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def _sync_filesystem(folder: Path) -> bool:
    """Sync everything on the file system of `folder`; False where that cannot be asked for.

    Thousands of files cost a sync each otherwise, some milliseconds apiece.
    """
    try:
        syncfs = ctypes.CDLL(None, use_errno=True).syncfs
    except (OSError, AttributeError):
        return False
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        if syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(descriptor)
    return True
