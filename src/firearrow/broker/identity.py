"""A replica's own id, given by the controller and kept for life, as RocketMQ keeps it.

brokerIdentity        cluster#name#id
brokerIdentity-temp   cluster#name#id#address;time   asked for, and perhaps not granted
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from firearrow.base.errors import ConfigError
from firearrow.base.files import write_atomically

if TYPE_CHECKING:
    from pathlib import Path

FILE_NAME: Final = "brokerIdentity"
TEMPORARY: Final = "brokerIdentity-temp"


@dataclass(frozen=True, slots=True)
class Wish:
    """An id that was asked for; the same words again get the same id again."""

    broker_id: int
    check_code: str


class IdentityFile:
    """Two small files in the store's directory. Blocking: at the start, and once in a life."""

    def __init__(self, root: Path, *, cluster: str, name: str) -> None:
        self._path = root / FILE_NAME
        self._wish_path = root / TEMPORARY
        self._cluster = cluster
        self._name = name

    def load(self) -> int | None:
        """Our id, or None before it was granted; ConfigError if the files are somebody else's."""
        fields = self._read(self._path, 3)
        return None if fields is None else self._number(self._path, fields[2])

    def load_wish(self) -> Wish | None:
        fields = self._read(self._wish_path, 4)
        if fields is None:
            return None
        return Wish(self._number(self._wish_path, fields[2]), fields[3])

    def wish(self, wish: Wish) -> None:
        text = f"{self._cluster}#{self._name}#{wish.broker_id}#{wish.check_code}"
        write_atomically(self._wish_path, text.encode(), keep_backup=False)

    def grant(self, broker_id: int) -> None:
        text = f"{self._cluster}#{self._name}#{broker_id}"
        write_atomically(self._path, text.encode(), keep_backup=False)
        self.give_up()

    def give_up(self) -> None:
        """The wish was not granted, or has been."""
        self._wish_path.unlink(missing_ok=True)

    def _read(self, path: Path, count: int) -> list[str] | None:
        try:
            text = path.read_text().strip()
        except FileNotFoundError:
            return None
        fields = text.split("#", count - 1)
        if len(fields) != count or fields[:2] != [self._cluster, self._name]:
            raise ConfigError(
                f"{path} says {text!r}, and this is {self._cluster}#{self._name}: the directory "
                "belongs to another broker; use its brokerClusterName and brokerName, or another "
                "storePathRootDir"
            )
        return fields

    def _number(self, path: Path, text: str) -> int:
        try:
            return int(text)
        except ValueError:
            raise ConfigError(f"{path}: {text!r} is not the number of a replica") from None
