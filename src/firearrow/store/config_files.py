"""Tables that a broker keeps beside its messages: `config/topics.json` and its kin.

Each is a small file that is written whole, with the version before it kept as ``.bak``, as RocketMQ
does. What is in it is the owner's business; here it is only never lost: a main file that is
missing, empty or not to be understood gives way to its backup.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from firearrow.base.errors import ConfigError
from firearrow.base.files import backup_of, write_atomically

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

log = logging.getLogger(__name__)

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
        """The table, or None if it was never written.

        ConfigError if there are files and none of them can be understood: to start without the
        table would be to lose it at the next save.
        """
        complaints = []
        for path in (self._path, backup_of(self._path)):
            try:
                content = path.read_bytes()
            except FileNotFoundError:
                continue
            if not content.strip():
                complaints.append(f"{path.name} is empty")
                continue
            try:
                value = self._decode(content)
            except ValueError as error:
                complaints.append(f"{path.name}: {error}")
                continue
            if complaints:
                log.error("%s; %s is used", "; ".join(complaints), path.name)
            return value
        if any(not complaint.endswith("is empty") for complaint in complaints):
            raise ConfigError(
                f"{self._path} cannot be read: {'; '.join(complaints)}. Mend it, or remove it and "
                "its .bak to start without this table"
            )
        return None

    def save(self, value: T) -> None:
        """Write the table, durably; the version before becomes the backup."""
        write_atomically(self._path, self._encode(value))
