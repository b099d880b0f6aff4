"""Who has the directory, and how its last owner left it."""

from __future__ import annotations

import fcntl
import os
from typing import IO, TYPE_CHECKING, Final

from firearrow.base.files import make_directory
from firearrow.store.errors import StoreInUse

if TYPE_CHECKING:
    from pathlib import Path

    from firearrow.store.disk import Disk


SYNC_FAILED: Final = b"the last sync failed"  # in the abort file, instead of a process id


class DirectoryLock:
    """RocketMQ's `lock` file, which the system frees when a process dies, and its `abort` file,
    which is there while a broker runs and after it crashed.
    """  # noqa: D205 - one thought

    def __init__(self, disk: Disk, root: Path) -> None:
        self._disk = disk
        self._root = root
        self._abort = root / "abort"
        self._file: IO[bytes] | None = None

    def take(self) -> None:
        """Own the directory, or raise StoreInUse."""
        make_directory(self._root)
        file = (self._root / "lock").open("a+b")
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as error:
            file.close()
            raise StoreInUse(
                f"{self._root} is in use by another process: stop it, or choose another "
                "storePathRootDir"
            ) from error
        file.truncate(0)
        file.write(b"lock")
        file.flush()
        self._file = file

    def release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def last_stop_was_clean(self) -> bool:
        return self._disk.size_of(self._abort) is None

    def write_abort_file(self) -> None:
        self._disk.replace(self._abort, str(os.getpid()).encode())

    def note_failed_sync(self) -> None:
        """Tell the next process, should the machine not have been restarted by then.

        The system has dropped what it could not write, but still shows it to everybody.
        """
        self._disk.write_at(self._abort, 0, SYNC_FAILED, file_bytes=len(SYNC_FAILED))

    def last_sync_has_failed(self) -> bool:
        return (self._disk.read(self._abort) or b"").startswith(SYNC_FAILED)

    def remove_abort_file(self) -> None:
        self._disk.remove(self._abort)
        self._disk.sync_folder(self._root)
