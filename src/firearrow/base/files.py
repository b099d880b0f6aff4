"""Small files that must survive a crash: written beside, synced, then renamed over."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, TypeVar

from firearrow.base.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

log = logging.getLogger(__name__)

_T = TypeVar("_T")


def read_with_backup(path: Path) -> bytes | None:
    """The content of `path`, or of its ``.bak`` if the file is missing or empty; else None.

    RocketMQ keeps the previous version of each configuration file beside it under that name.
    """
    for candidate in (path, backup_of(path)):
        try:
            content = candidate.read_bytes()
        except FileNotFoundError:
            continue
        if content.strip():
            return content
    return None


def load_with_backup(path: Path, decode: Callable[[bytes], _T]) -> _T | None:
    """What `path` holds, or its ``.bak`` if the file is missing, empty or not to be understood.

    None if neither was ever written. ConfigError if there is something and `decode` takes none of
    it (ValueError): to go on without it would be to lose it at the next write.
    """
    complaints, is_damaged = [], False
    for candidate in (path, backup_of(path)):
        try:
            content = candidate.read_bytes()
        except FileNotFoundError:
            continue
        if not content.strip():
            complaints.append(f"{candidate.name} is empty")
            continue
        try:
            value = decode(content)
        except ValueError as error:
            complaints.append(f"{candidate.name}: {error}")
            is_damaged = True
            continue
        if complaints:
            log.error("%s; %s is used", "; ".join(complaints), candidate.name)
        return value
    if is_damaged:
        raise ConfigError(
            f"{path} cannot be read: {'; '.join(complaints)}. Mend it, or remove it and its .bak "
            "to start without it"
        )
    return None


def write_atomically(path: Path, content: bytes, *, keep_backup: bool = True) -> None:
    """Replace `path` with `content`; a crash leaves the old file or the new one, never a mixture.

    The previous content is kept as ``.bak`` if asked. Blocking: call it where blocking is allowed.
    """
    make_directory(path.parent)
    beside = path.with_name(path.name + ".tmp")
    with beside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    # An empty file is no reason to lose a backup.
    if keep_backup and path.exists() and path.read_bytes().strip():
        _back_up(path)
    beside.replace(path)
    sync_directory(path.parent)


def backup_of(path: Path) -> Path:
    return path.with_name(path.name + ".bak")


def _back_up(path: Path) -> None:
    """Give the content of `path` the backup's name as well; neither name is ever without a file."""
    backup = backup_of(path)
    second = backup.with_name(backup.name + ".tmp")
    second.unlink(missing_ok=True)
    os.link(path, second)
    second.replace(backup)
    second.unlink(missing_ok=True)  # a rename onto another name of the same file does nothing


def make_directory(directory: Path) -> None:
    """Make a folder and those above it as needed; their names are durable."""
    missing = []
    while not directory.exists():
        missing.append(directory)
        directory = directory.parent
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        sync_directory(folder.parent)


def sync_directory(directory: Path) -> None:
    """Make a rename durable: the name lives in the directory, not in the file."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
