"""Tables that go to disk in the background: many changes, one write.

`config/*.json` are RocketMQ's own files; integer keys are written bare, as fastjson does.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from firearrow.base.errors import FirearrowError
from firearrow.store.config_files import ConfigFile
from firearrow.wire import java_json

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from firearrow.base.runtime import Service

log = logging.getLogger(__name__)

T = TypeVar("T")


class SavedTable(Generic[T]):
    """Writes what `snapshot` returns, in a thread; changes during a write cause one more."""

    def __init__(
        self,
        path: Path,
        kind: type[T],
        tasks: Service,
        snapshot: Callable[[], T],
        *,
        is_ours: bool = False,
    ) -> None:
        if is_ours:  # plain JSON, and quick: nobody else reads it
            self._file: ConfigFile[T] = ConfigFile(
                path,
                encode=msgspec.json.encode,
                decode=lambda raw: msgspec.json.decode(raw, type=kind),
            )
        else:
            self._file = ConfigFile(
                path,
                encode=lambda value: java_json.encode(value, bare_int_keys=True),
                decode=lambda raw: _decode(raw, kind),
            )
        self._name = path.name
        self._tasks = tasks
        self._snapshot = snapshot
        self._changed = False
        self._writing: asyncio.Task[None] | None = None
        self._settled = False

    def load(self) -> T | None:
        """What was saved last; None if nothing ever was. Blocks."""
        return self._file.load()

    def changed(self) -> None:
        """Something is new: note it, write it at the next `save_soon`."""
        self._changed = True

    def write(self) -> None:
        """Something is new: write it in the background."""
        self.changed()
        self.save_soon()

    def save_soon(self) -> None:
        """Write in the background what has changed."""
        if self._changed and self._writing is None and not self._settled:
            self._writing = self._tasks.spawn(self._write(), name=f"save-{self._name}")

    async def _write(self) -> None:
        try:
            while self._changed:
                self._changed = False
                await asyncio.to_thread(self._file.save, self._snapshot())
        except OSError as error:
            self._changed = True
            log.warning("%s cannot be written: %s; it is tried again later", self._name, error)
        finally:
            self._writing = None

    async def settle(self) -> None:
        """Wait for the write that is under way and begin no other: `save_now` comes next.

        A task that is cancelled leaves its thread behind, which would write what is old by then.
        """
        self._settled = True
        if self._writing is not None:
            await self._writing

    def save_now(self) -> None:
        """Write what has changed, at the end of a broker's life. Blocks."""
        if self._changed:
            self._changed = False
            self._file.save(self._snapshot())


def _decode(raw: bytes, kind: type[T]) -> T:
    try:
        return java_json.decode(raw, kind)
    except FirearrowError as error:
        raise ValueError(str(error)) from error  # what makes the file's backup count
