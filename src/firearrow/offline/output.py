"""Writing the files of a store from outside: in place, at full length, and onto the disk."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_SYNC_THREADS: Final = 8  # file systems commit what comes at the same time together


def write_at(path: Path, position: int, data: bytes | bytearray, *, file_bytes: int) -> None:
    """Write into a file, which is made with this size if it is not there: zeros, and no space."""
    try:
        descriptor = os.open(path, os.O_WRONLY)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        os.ftruncate(descriptor, file_bytes)
    try:
        left = memoryview(data)
        while left:
            written = os.pwrite(descriptor, left, position)
            left, position = left[written:], position + written
    finally:
        os.close(descriptor)


def give_to_owner_of(model: Path, root: Path) -> None:
    """Everything from `root` on: what an administrator makes must not keep the broker out."""
    owner = model.stat()
    for path in [root, *root.rglob("*")]:
        found = path.stat()
        if (found.st_uid, found.st_gid) != (owner.st_uid, owner.st_gid):
            os.chown(path, owner.st_uid, owner.st_gid)


def sync_tree(root: Path) -> None:
    """Return when every file and folder below `root` is on disk, and `root` itself."""
    with ThreadPoolExecutor(_SYNC_THREADS) as pool:
        for _ in pool.map(sync_path, [*root.rglob("*"), root]):
            pass


def sync_path(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
