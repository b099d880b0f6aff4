"""Where replica sets are kept for good, and who may change them: the interface and the file.

The file is for a controller that is alone; several of them agree in etcd (`etcd_metadata.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import msgspec

from firearrow.base.errors import ConfigError
from firearrow.base.files import load_with_backup, write_atomically
from firearrow.controller.replicas import ReplicaSet

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Leader:
    """Which controller decides."""

    name: str
    address: str
    is_me: bool


class Metadata(Protocol):
    """What a controller needs of the place where its decisions are kept."""

    @property
    def leader(self) -> Leader | None: ...

    async def start(self, address: str, on_leading: Callable[[], None]) -> None:
        """Begin; `on_leading` is called each time this controller comes to lead."""
        ...

    async def stop(self) -> None: ...

    async def load(self) -> dict[str, ReplicaSet]:
        """Everything as it is now, by broker name. For whoever leads."""
        ...

    async def save(self, name: str, after: ReplicaSet | None) -> None:
        """Keep one set (None: forget it) for good; NotLeader, and nothing kept, if not leading.

        Returns when the change can no longer be lost.
        """
        ...


class MetadataFile:
    """Metadata of the only controller there is, which therefore always leads."""

    def __init__(self, path: Path, name: str) -> None:
        self._path = path
        self._name = name
        self._address = ""
        self._sets: dict[str, ReplicaSet] = {}

    @property
    def leader(self) -> Leader | None:
        return Leader(self._name, self._address, is_me=True) if self._address else None

    async def start(self, address: str, on_leading: Callable[[], None]) -> None:
        self._sets = load_with_backup(self._path, _decode) or {}
        self._address = address
        on_leading()

    async def stop(self) -> None:
        self._address = ""

    async def load(self) -> dict[str, ReplicaSet]:
        return dict(self._sets)

    async def save(self, name: str, after: ReplicaSet | None) -> None:
        """On the loop, on purpose: a kilobyte, at most a few times in the life of a master."""
        changed = {of: known for of, known in self._sets.items() if of != name}
        if after is not None:
            changed[name] = after
        try:
            write_atomically(self._path, msgspec.json.format(msgspec.json.encode(changed)))
        except OSError as error:
            raise ConfigError(f"nothing is changed: {self._path}: {error}") from error
        self._sets = changed


def _decode(content: bytes) -> dict[str, ReplicaSet]:
    return msgspec.json.decode(content, type=dict[str, ReplicaSet])
