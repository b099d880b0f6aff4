"""The log as bytes: what a copy of it reads, and how a copy is written.

Transfers know nothing of records. They end anywhere, fillers and all, and land at the same offsets:

    master   |....record....|..record..|   32 KiB blocks, none across the end of a file
    slave    |....record....|..rec         the rest comes; the dispatcher waits for it
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from firearrow.model.errors import ServiceNotAvailable
from firearrow.store.errors import LogMismatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from firearrow.store.checkpointer import Checkpointer
    from firearrow.store.commit_log import CommitLog
    from firearrow.store.consume_queue import ConsumeQueues
    from firearrow.store.dispatcher import Dispatcher
    from firearrow.store.flusher import Flusher
    from firearrow.store.key_index import KeyIndex

log = logging.getLogger(__name__)


class ReplicaLog:
    """One store's log for its copies, or as one. Belongs to the loop's thread like the store."""

    def __init__(
        self,
        commit_log: CommitLog,
        flusher: Flusher,
        dispatcher: Dispatcher,
        *,
        queues: ConsumeQueues,
        index: KeyIndex,
        checkpointer: Checkpointer,
        is_synchronous: bool,
        memory_bytes: int,
        appended: Callable[[], None],
    ) -> None:
        self._log = commit_log
        self._segments = commit_log.segments
        self._flusher = flusher
        self._dispatcher = dispatcher
        self._queues = queues
        self._index = index
        self._checkpointer = checkpointer
        self._is_synchronous = is_synchronous
        self._memory_bytes = memory_bytes
        self._appended = appended
        self.confirmed: Callable[[], int] | None = None  # readers see no further, if it is given
        # With epochs: who tells when no change of masters takes the log back up to an offset.
        self.when_confirmed: Callable[[int, Callable[[bool], None]], None] | None = None
        self.on_grown: Callable[[], None] | None = None  # when copies can read more

    # --- read by copies ---------------------------------------------------------------------

    @property
    def min_offset(self) -> int:
        return self._log.min_offset

    @property
    def end_offset(self) -> int:
        """Behind the last byte that was written."""
        return self._log.end_offset

    @property
    def readable_end(self) -> int:
        """How far copies may read: with synchronous flush they never have what we could lose."""
        return self._flusher.flushed if self._is_synchronous else self._log.end_offset

    @property
    def newest_file(self) -> int:
        """Where the last file of the log begins: with it a copy that has nothing begins, too."""
        start = self._segments.start_of(max(0, self.end_offset - 1))
        return self.min_offset if start is None else start

    def next_file(self, offset: int) -> int | None:
        """The first file that begins behind an offset."""
        return self._segments.next_start(offset)

    def read(self, offset: int, size_max: int) -> bytes:
        """Bytes from `offset` on, of one file; empty where there are none."""
        start = self._segments.start_of(offset)
        if start is None:
            return b""
        stop = min(self.readable_end, start + self._segments.file_bytes, offset + size_max)
        if stop <= offset:
            return b""
        return bytes(self._segments.file(start).buffer[offset - start : stop - start])

    def is_cold(self, offset: int) -> bool:
        """Whether bytes are so far behind the end that they are hardly in memory."""
        return self._log.end_offset - offset > self._memory_bytes

    async def warm(self, offset: int, size: int) -> None:
        """Bring bytes into memory, in a thread."""
        start = self._segments.start_of(offset)
        if start is not None:
            size = min(size, start + self._segments.file_bytes - offset)
            await asyncio.to_thread(self._segments.file(start).warm, offset - start, size)

    @property
    def visible_end(self) -> int:
        """How far messages are seen by consumers."""
        end = self.readable_end
        return end if self.confirmed is None else min(end, self.confirmed())

    def when_final(self, offset: int, tell: Callable[[bool], None]) -> None:
        """Call `tell(True)` once the log is on disk up to there and stays so, whoever is master."""
        confirmed = self.when_confirmed
        if confirmed is None:
            self._flusher.when_flushed(offset, tell)
            return
        self._flusher.when_flushed(
            offset,
            lambda on_disk: confirmed(offset, tell) if on_disk else tell(False),  # noqa: FBT003
        )

    async def wait_final(self, offset: int) -> None:
        """The same by waiting; ServiceNotAvailable if it will not happen here any more."""
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.when_final(offset, lambda is_so: None if done.done() else done.set_result(is_so))
        if not await done:
            raise ServiceNotAvailable(f"the log is not safe up to {offset}, and nobody is waiting")

    # --- written as a copy ------------------------------------------------------------------

    @property
    def safe_end(self) -> int:
        """How far the copy counts: what is on disk with synchronous flush, else what is written."""
        return self._flusher.flushed if self._is_synchronous else self._log.end_offset

    def when_safe(self, tell: Callable[[], None]) -> None:
        """Call once everything written so far counts; never if the disk fails."""
        if not self._is_synchronous:
            tell()
            return

        def flushed(on_disk: bool) -> None:  # noqa: FBT001
            if on_disk:
                tell()

        self._flusher.when_flushed(self._log.end_offset, flushed)

    def append(self, offset: int, data: bytes | memoryview) -> None:
        """Write bytes of another copy where they belong: behind the last one.

        A copy that is empty, or that has less than the other still keeps, goes on with the first
        byte of a file. LogMismatch when the bytes belong elsewhere; ServiceNotAvailable when the
        disk is full.
        """
        if offset != self.end_offset:
            self._jump_to(offset)
        self._log.append_raw(memoryview(data))
        self._appended()

    def _jump_to(self, offset: int) -> None:
        end, file_bytes = self.end_offset, self._segments.file_bytes
        is_empty = not self._segments.starts
        first = 0 if is_empty else self._segments.min_offset
        if offset < end or (offset - first) % file_bytes:
            raise LogMismatch(f"bytes of offset {offset} do not go on where the log ends, at {end}")
        if not is_empty:
            log.error("bytes %d to %d of the log are lost: the master has no more", end, offset)
        self._log.begin_file(offset)
        if is_empty:
            self._flusher.start_at(offset)
            self._dispatcher.position = self._dispatcher.queues_from = offset

    # --- histories that parted --------------------------------------------------------------

    def whole_end(self) -> int:
        """Behind the last whole record; everything that can be derived is derived then."""
        self._run_dispatcher(self.end_offset)
        return min(self._dispatcher.position, self.end_offset)

    def _run_dispatcher(self, limit: int) -> None:
        while self._dispatcher.run(limit):
            pass

    async def truncate(self, offset: int) -> None:
        """Forget the log from `offset` on and all that was derived from it.

        The checkpoint is withdrawn first: one that says more than the log has would mislead a
        recovery.
        """
        if offset >= self.end_offset:
            return
        await self._flusher.drain()
        if self._flusher.failed is not None:
            raise ServiceNotAvailable(f"the disk failed: {self._flusher.failed}")
        await asyncio.to_thread(self._checkpointer.withdraw)
        log.warning("the log is cut from %d back to %d", self.end_offset, offset)
        self._log.open_at(offset, cut=True)
        self._flusher.start_at(offset)
        self._index.truncate(offset)
        self._queues.truncate(offset)
        self._dispatcher.position = min(self._dispatcher.position, offset)
        self._checkpointer.make_due()
        await self._checkpointer.save()
