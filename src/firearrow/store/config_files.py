"""Tables that a broker keeps beside its messages: `config/topics.json` and its kin.

Each is a small file that is written whole, with the version before it kept as ``.bak``, as RocketMQ
does. What is in it is the owner's business; here it is only never lost: a main file that is
missing, empty or not to be understood gives way to its backup.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

from firearrow.base.files import load_with_backup, write_atomically

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FOLDER: Final = "config"
T = TypeVar("T")


class ConfigFile(Generic[T]):
    """One table on disk. `load` and `save` block: call them where that is allowed."""

    def __init__(
        self,
        path: Path,
        *,
        encode: Callable[[T], bytes],
        decode: Callable[[bytes], T],
    ) -> None:
        self._path = path
        self._encode = encode
        self._decode = decode

    def load(self) -> T | None:
        """The table, or None if it was never written; ConfigError if neither file can be read."""
        return load_with_backup(self._path, self._decode)

    def save(self, value: T) -> None:
        """Write the table, durably; the version before becomes the backup."""
        write_atomically(self._path, self._encode(value))
