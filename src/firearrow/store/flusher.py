"""Group commit: one `fdatasync` in a thread serves every append since the last one.

    append ... append ... append        (the loop never waits)
       |          |          |
       +---- one sync of everything up to here ----> all three are told

Whoever must not answer before its message is on disk waits for an offset; offsets grow, so waiters
form a queue. A failed sync is final: after it the kernel may have dropped the pages, and a second
sync that succeeds would prove nothing. The store then refuses to write and says so.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from firearrow.base.histogram import Histogram
from firearrow.model.errors import ServiceNotAvailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from firearrow.base.runtime import Clock
    from firearrow.store.commit_log import CommitLog
    from firearrow.store.syncer import Syncer

    Tell = Callable[[bool], None]

log = logging.getLogger(__name__)

SYNC_TIMES_KEPT: Final = 1_000
SYNC_BOUNDS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000)


class Flusher:
    """Knows how far the log is on disk.

    `on_flushed` is called whenever that has changed, `on_failed` when it never will again.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        syncer: Syncer,
        *,
        on_flushed: Callable[[], None],
        on_failed: Callable[[OSError], None],
        clock: Clock,
    ) -> None:
        self._log = commit_log
        self._syncer = syncer
        self._on_flushed = on_flushed
        self._on_failed = on_failed
        self._clock = clock
        self._began_ms = 0
        self._waiting: deque[tuple[int, Tell]] = deque()
        self._running = False
        self._asked = False
        self._idle: asyncio.Event = asyncio.Event()
        self._idle.set()
        self.flushed = 0
        self.failed: OSError | None = None
        self.syncs = 0
        self.sync_times_ms: deque[int] = deque(maxlen=SYNC_TIMES_KEPT)
        self.sync_histogram = Histogram(SYNC_BOUNDS_MS)  # of all syncs since the start

    @property
    def waiting(self) -> int:
        """How many wait to be told."""
        return len(self._waiting)

    def syncing_ms(self) -> int:
        """For how long the disk has been at the current sync; 0 if there is none."""
        return self._clock.elapsed_ms() - self._began_ms if self._running else 0

    def start_at(self, offset: int) -> None:
        """Everything before is on disk."""
        self.flushed = offset

    def when_flushed(self, offset: int, tell: Tell) -> None:
        """Call `tell(True)` once the log is on disk up to `offset`, `tell(False)` if it fails."""
        if offset <= self.flushed:
            tell(True)  # noqa: FBT003
        elif self.failed is not None:
            tell(False)  # noqa: FBT003
        else:
            waiting = self._waiting
            if not waiting or waiting[-1][0] <= offset:
                waiting.append((offset, tell))
            else:  # somebody waits for less than one who came before
                self._waiting = deque(sorted([*waiting, (offset, tell)], key=lambda w: w[0]))
            self.request()

    async def wait_flushed(self, offset: int) -> None:
        """Return once the log is on disk up to `offset`."""
        if offset <= self.flushed:
            return
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def tell(on_disk: bool) -> None:  # noqa: FBT001
            if not done.done():
                done.set_result(on_disk)

        self.when_flushed(offset, tell)
        if not await done:
            raise ServiceNotAvailable(f"the disk failed: {self.failed}; the store is read-only")

    def request(self) -> None:
        """See to it that everything written so far gets to the disk.

        It begins at the end of this turn of the loop, so that all appends of the turn are in it.
        """
        if not self._asked:
            self._asked = True
            if not self._running and self.failed is None:
                self._idle.clear()
                self._running = True
                self._began_ms = self._clock.elapsed_ms()
                asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        self._asked = False
        self._began_ms = self._clock.elapsed_ms()
        target = self._log.end_offset
        files = self._log.segments.files_between(self.flushed, target)
        self._syncer.begin(files, lambda error: self._synced(error, target))

    def _synced(self, error: OSError | None, target: int) -> None:
        if error is not None:
            self._fail(error)
            return
        self.syncs += 1
        took_ms = self._clock.elapsed_ms() - self._began_ms
        self.sync_times_ms.append(took_ms)
        self.sync_histogram.observe(took_ms)
        self.flushed = max(self.flushed, target)
        if self._asked:
            self._begin()  # others came meanwhile; the disk need not wait for us
        else:
            self._running = False
            self._idle.set()
        waiting = self._waiting
        while waiting and waiting[0][0] <= target:
            waiting.popleft()[1](True)  # noqa: FBT003
        self._on_flushed()

    def _fail(self, error: OSError) -> None:
        log.critical("the log cannot be synced: %s. The store is read-only from now on", error)
        self.failed = error
        self._on_failed(error)
        self._running = False
        self._idle.set()
        while self._waiting:
            self._waiting.popleft()[1](False)  # noqa: FBT003

    async def drain(self) -> None:
        """Get everything to the disk and wait for it."""
        while self.failed is None and self.flushed < self._log.end_offset:
            self.request()
            await self._idle.wait()
        await self._idle.wait()

    def close(self) -> None:
        self._syncer.close()
