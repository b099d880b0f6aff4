"""Readers far behind the end of the log: the disk is waited for in a thread, not by everybody."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from firearrow.store.warm_pieces import PIECE_BYTES, WarmPieces

if TYPE_CHECKING:
    from firearrow.store.commit_log import CommitLog
    from firearrow.store.consume_queue import ConsumeQueues
    from firearrow.store.disk import Disk

WARM_BYTES_MAX: Final = 16 * 1024 * 1024  # for one reader at once


class Warming:
    """Brings old messages into memory before they are read."""

    def __init__(
        self, disk: Disk, commit_log: CommitLog, queues: ConsumeQueues, memory_bytes: int
    ) -> None:
        self._disk = disk
        self._log = commit_log
        self._queues = queues
        self._memory_bytes = memory_bytes
        self.pieces = WarmPieces()

    def is_cold(self, topic: str, queue_id: int, offset: int) -> bool:
        """Whether a message is so far behind the end of the log that it is hardly in memory."""
        queue = self._queues.find(topic, queue_id)
        entry = None if queue is None else queue.entry(offset)
        if entry is None or self._log.end_offset - entry[0] <= self._memory_bytes:
            return False
        return not self.pieces.cover(entry[0], entry[0] + entry[1])

    async def warm(self, topic: str, queue_id: int, offset: int, max_count: int) -> list[int]:
        """Bring into memory what `MessageStore.get` would read, and what lies beside it.

        Returns the pieces of the log that are warm now. Whoever has read what it waited for hands
        them to `warmed`: what comes next is read as if it were new.
        """
        queue = self._queues.find(topic, queue_id)
        if queue is None or not queue.min_offset <= offset < queue.max_offset:
            return []
        stored = queue.is_stored(offset)
        if stored is not None:
            await asyncio.to_thread(self._disk.warm, *stored, max_count * 20)
        first = queue.entry(offset)
        last = queue.entry(min(offset + max_count, queue.max_offset) - 1)
        if first is None or last is None:
            return []
        stop = min(last[0] + last[1], first[0] + WARM_BYTES_MAX, self._log.end_offset)
        pieces = self.pieces.missing(first[0], stop)
        for piece in pieces:
            start = piece * PIECE_BYTES
            end = min(start + PIECE_BYTES, self._log.end_offset)
            for file, position, size in self._log.segments.parts(start, end):
                await asyncio.to_thread(file.warm, position, size)
        return pieces

    def warmed(self, pieces: list[int]) -> None:
        """What lies in these pieces is in memory."""
        for piece in pieces:
            self.pieces.add(piece)
