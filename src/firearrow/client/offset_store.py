"""How far this consumer has come in each of its queues: in memory first, then where it belongs.

A group that shares its messages keeps offsets on the brokers; one in which every member gets every
message keeps them in a file of each member.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from firearrow.base.errors import FirearrowError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from firearrow.client.calls import Calls
    from firearrow.client.local_offsets import LocalOffsetFile
    from firearrow.model.topic import MessageQueue

log = logging.getLogger(__name__)


class OffsetStore(Protocol):
    """Where a consumer keeps its progress."""

    memory: dict[MessageQueue, int]

    async def load(self, queue: MessageQueue, *, exact: bool = False) -> int | None:
        """What was saved last; None if nothing was. Raises when it cannot be found out.

        Unless it is to be exact, the beginning of a young queue counts as saved.
        """
        ...

    async def save(self, queues: Iterable[MessageQueue], *, wait: bool = False) -> None:
        """Write down what memory has of these queues."""
        ...


def advance(store: OffsetStore, queue: MessageQueue, offset: int) -> None:
    """Note progress; what comes out of turn does not set it back."""
    if offset > store.memory.get(queue, -1):
        store.memory[queue] = offset


class BrokerOffsets:
    """Offsets of a group on its brokers."""

    def __init__(self, calls: Calls, group: str) -> None:
        self.memory: dict[MessageQueue, int] = {}
        self._saved: dict[MessageQueue, int] = {}
        self._calls = calls
        self._group = group  # on the wire

    async def load(self, queue: MessageQueue, *, exact: bool = False) -> int | None:
        return await self._calls.committed_offset(self._group, queue, exact=exact)

    async def save(self, queues: Iterable[MessageQueue], *, wait: bool = False) -> None:
        unsaved: dict[MessageQueue, FirearrowError] = {}
        for queue in queues:
            offset = self.memory.get(queue)
            if offset is None or (self._saved.get(queue) == offset and not wait):
                continue
            try:
                await self._calls.commit_offset(self._group, queue, offset, wait=wait)
            except FirearrowError as error:
                unsaved[queue] = error
            else:
                self._saved[queue] = offset
        if unsaved:
            names = ", ".join(f"{one.topic}/{one.broker_name}/{one.queue_id}" for one in unsaved)
            reason = next(iter(unsaved.values()))
            log.warning("group %s: offsets of %s are not saved yet: %s", self._group, names, reason)
        for queue in set(self._saved) - set(self.memory):
            del self._saved[queue]


class FileOffsets:
    """Offsets of one member of a broadcasting group, in a file."""

    def __init__(self, file: LocalOffsetFile) -> None:
        self.memory: dict[MessageQueue, int] = {}
        self._file = file
        self._loaded: dict[MessageQueue, int] | None = None

    async def load(self, queue: MessageQueue, *, exact: bool = False) -> int | None:
        del exact  # a file always is
        if self._loaded is None:
            self._loaded = await asyncio.to_thread(self._file.load)
        return self._loaded.get(queue)

    async def save(self, queues: Iterable[MessageQueue], *, wait: bool = False) -> None:
        del wait  # a file is always waited for
        offsets = {queue: self.memory[queue] for queue in queues if queue in self.memory}
        if not offsets:
            return
        if self._loaded is not None:
            self._loaded.update(offsets)
        try:
            await asyncio.to_thread(self._file.save, offsets)
        except OSError as error:
            log.warning("offsets are not saved yet: %s", error)
