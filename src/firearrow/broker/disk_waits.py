"""Answers that wait for the disk, but not for ever.

A producer whose message is in the log and not yet on disk is told so after a while
(FLUSH_DISK_TIMEOUT): its client counts the message as stored, and its connection is not lost.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from firearrow.base.runtime import Clock
    from firearrow.store.store import MessageStore

    Answer = Callable[[bool], None]


class DiskWaits:
    """In order of arrival, and so of their time limits."""

    def __init__(self, store: MessageStore, clock: Clock, *, timeout_ms: int) -> None:
        self._store = store
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._waiting: deque[tuple[int, list[Answer]]] = deque()

    def answer_when_stored(self, end_offset: int, answer: Answer) -> None:
        """Call `answer(True)` when the log is on disk up to there, `answer(False)` if it is late.

        Once; before this returns if it is there already.
        """
        once = [answer]

        def tell(on_disk: bool) -> None:  # noqa: FBT001
            if once:
                once.pop()(on_disk)

        self._store.when_flushed(end_offset, tell)
        if once:
            self._waiting.append((self._clock.elapsed_ms() + self._timeout_ms, once))

    def expire(self) -> None:
        """Answer those who have waited too long; forget those who were answered."""
        now_ms = self._clock.elapsed_ms()
        waiting = self._waiting
        while waiting and (not waiting[0][1] or waiting[0][0] <= now_ms):
            _, once = waiting.popleft()
            if once:
                once.pop()(False)  # noqa: FBT003
