"""Making files durable beside the event loop: ask, go on, be told.

One request at a time is enough, since one sync serves everything written before it.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from typing import TYPE_CHECKING, Protocol

from firearrow.hot import serve_syncs
from firearrow.hot.reference.syncing import SYNC_REPLY, SYNC_REQUEST

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Done = Callable[[OSError | None], None]


class Syncable(Protocol):
    """A file with a descriptor."""

    descriptor: int


class Syncer(Protocol):
    """Used from the event loop's thread only."""

    def begin(self, files: Sequence[Syncable], done: Done) -> None:
        """Sync these files in the background, then call `done` with None or what went wrong."""
        ...

    def close(self) -> None:
        """End the background; what was begun is finished first, but nobody is told."""
        ...


class PipeSyncer:
    """A thread that reads descriptors from one pipe and writes error numbers to another."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._ask = self._answers = -1
        self._ends: tuple[int, ...] = ()
        self._begun: deque[tuple[int, Done]] = deque()  # how many answers are still to come
        self._error: OSError | None = None

    def begin(self, files: Sequence[Syncable], done: Done) -> None:
        if self._thread is None:
            self._start()
        if not files:
            asyncio.get_running_loop().call_soon(done, None)
            return
        self._begun.append((len(files), done))
        os.write(self._ask, b"".join(SYNC_REQUEST.pack(file.descriptor) for file in files))

    def _start(self) -> None:
        requests, self._ask = os.pipe()
        self._answers, replies = os.pipe()
        self._ends = (requests, self._ask, self._answers, replies)
        self._thread = threading.Thread(
            target=serve_syncs, args=(requests, replies), name="sync", daemon=True
        )
        self._thread.start()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._answers, self._answered)

    def _answered(self) -> None:
        raw = os.read(self._answers, 64 * SYNC_REPLY.size)
        for (number,) in SYNC_REPLY.iter_unpack(raw):
            if number:
                self._error = OSError(number, os.strerror(number))
            missing, done = self._begun.popleft()
            if missing > 1:
                self._begun.appendleft((missing - 1, done))
                continue
            error, self._error = self._error, None
            done(error)

    def close(self) -> None:
        if self._thread is None or self._loop is None:
            return
        os.write(self._ask, SYNC_REQUEST.pack(-1))
        self._thread.join()
        self._loop.remove_reader(self._answers)
        for end in self._ends:
            os.close(end)
        self._thread = None
