"""Writes queues to their files, and now and then says how far everything is on disk.

Writing is cheap and often: a crash of the process loses nothing that was written. Saying so needs
syncs of many files; they run in a thread while messages come in, every minute or every 256 MiB of
log, and only what was written before they began is vouched for.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from typing import TYPE_CHECKING, Final

from firearrow.store.checkpoint import Checkpoint, CheckpointFiles, OwnNote

if TYPE_CHECKING:
    from pathlib import Path

    from firearrow.store.consume_queue import ConsumeQueues
    from firearrow.store.disk import Disk
    from firearrow.store.dispatcher import Dispatcher
    from firearrow.store.flusher import Flusher
    from firearrow.store.key_index import KeyIndex
    from firearrow.store.segments import Segments

log = logging.getLogger(__name__)

LOG_BYTES_MAX: Final = 256 * 1024 * 1024  # between checkpoints: what a recovery has to scan
QUEUES_PER_TURN: Final = 500  # written before the loop serves others again


class Checkpointer:
    """Owns `checkpoint` and `firearrow.json`."""

    def __init__(
        self,
        disk: Disk,
        root: Path,
        *,
        queues: ConsumeQueues,
        index: KeyIndex,
        dispatcher: Dispatcher,
        flusher: Flusher,
        segments: Segments,
    ) -> None:
        self._disk = disk
        self._files = CheckpointFiles(disk, root)
        self._queues = queues
        self._index = index
        self._dispatcher = dispatcher
        self._flusher = flusher
        self._segments = segments
        self._queues_folder = root / "consumequeue"
        self._note: OwnNote | None = None
        self._checkpoint = Checkpoint()
        self._touched: set[Path] = set()
        self._saved_to = -1
        self.vouched_to = 0  # of the log: what queues and index on disk do without
        self._saved_ms = 0
        self._due = False

    def load(self) -> tuple[Checkpoint, OwnNote | None]:
        self._checkpoint, self._note = self._files.load()
        return self._checkpoint, self._note

    async def opened(self, end_offset: int) -> None:
        """After a recovery: what was just derived is not vouched for yet.

        A note that says more than the log has left would mislead the next recovery, and without a
        note it would not know that the log is ours, so these are replaced before anything else.
        """
        note, self._note = self._note, None
        saved_to = -1 if note is None else note.derived_to
        self._due = saved_to != end_offset
        self._saved_to = end_offset
        self.vouched_to = max(0, min(saved_to, end_offset))
        if note is None or max(note.derived_to, note.flushed_to) > end_offset:
            try:
                await self.save()
            except OSError as error:
                log.warning("there is no checkpoint yet: %s; trying again", error)
                await asyncio.to_thread(self._files.withdraw)

    def withdraw(self) -> None:
        """Have no note of ours on disk for now. Blocks."""
        self._files.withdraw()
        self._saved_to = -1
        self.vouched_to = 0

    def make_due(self) -> None:
        self._due = True

    def write_queues(self, limit: int | None = QUEUES_PER_TURN) -> None:
        """Write queues that grew, at most `limit` of them."""
        self._queues.save(self._touched, limit)

    def is_due(self, elapsed_ms: int, interval_ms: int) -> bool:
        position = self._dispatcher.position
        if self._due or position - self._saved_to >= LOG_BYTES_MAX:
            return True
        if position == self._saved_to or elapsed_ms - self._saved_ms < interval_ms:
            return False
        self._saved_ms = elapsed_ms
        return True

    async def save(self) -> None:
        """Sync what was derived so far, then vouch for it. OSError: nothing has changed."""
        # One moment of the loop: everything derived before `position` is in files, and counted.
        self.write_queues(None)
        position = self._dispatcher.position
        newest_ms = self._dispatcher.last_store_timestamp
        log_min = self._segments.min_offset
        extents = self._queues.extents()
        mark = self._index.mark()
        touched, self._touched = self._touched, set()
        self._due = False
        try:
            await self._flusher.wait_flushed(position)
            index_ms = await asyncio.to_thread(self._sync, sorted(touched))
        except BaseException:
            self._touched |= touched
            self._due = True
            raise
        before = self._checkpoint
        after = dataclasses.replace(
            before,
            physical_ms=max(newest_ms, before.physical_ms),
            queues_ms=max(newest_ms, before.queues_ms),
            index_ms=max(index_ms, before.index_ms),
        )
        await asyncio.to_thread(
            self._files.save,
            after,
            before=before,
            derived_to=position,
            flushed_to=max(position, self._flusher.flushed),
            log_min=log_min,
            queues=extents,
            index=mark,
        )
        self._checkpoint = after
        self._saved_to = self.vouched_to = position

    def _sync(self, touched: list[Path]) -> int:
        self._disk.sync(touched)
        with contextlib.suppress(FileNotFoundError):  # topics that were deleted must stay so
            self._disk.sync_folder(self._queues_folder)
        return self._index.sync()
