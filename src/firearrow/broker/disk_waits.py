"""Answers that wait for the disk, but not for ever.

A producer whose message is in the log and not yet on disk is told so after a while
(FLUSH_DISK_TIMEOUT): its client counts the message as stored, and its connection is not lost. When
too many wait, or the disk has not finished a sync for long, others had better go elsewhere.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from firearrow.base.runtime import Clock
    from firearrow.net.router import Lane
    from firearrow.store.store import MessageStore

    Answer = Callable[[bool], None]


class DiskWaits:
    """In order of arrival, and so of their time limits."""

    def __init__(
        self, store: MessageStore, clock: Clock, lane: Lane, *, timeout_ms: int, busy_ms: int
    ) -> None:
        self._store = store
        self._clock = clock
        self._lane = lane
        self._timeout_ms = timeout_ms
        self._busy_ms = busy_ms
        self._waiting: deque[tuple[int, list[Answer], Answer]] = deque()

    def reconfigure(self, *, timeout_ms: int, busy_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._busy_ms = busy_ms

    def refusal(self) -> str:
        """Why nobody should begin to wait now; empty when anybody may."""
        lane = self._lane
        if lane.in_progress >= lane.requests_max:
            return lane.refusal()
        syncing_ms = self._store.syncing_ms()
        if syncing_ms >= self._busy_ms:
            return (
                "[PC_SYNCHRONIZED]broker busy, start flow control for a while: the disk has not "
                f"finished a sync for {syncing_ms} ms"
            )
        return ""

    def answer_when_stored(self, end_offset: int, answer: Answer, count: int = 1) -> None:
        """Call `answer(True)` when the log is on disk up to there, `answer(False)` if it is late.

        Once; before this returns if it is there already. `count` requests wait for it.
        """
        once = [answer]
        lane = self._lane
        lane.in_progress += count

        def tell(on_disk: bool) -> None:  # noqa: FBT001
            if once:
                lane.in_progress -= count
                once.pop()(on_disk)

        self._store.when_flushed(end_offset, tell)
        if once:
            self._waiting.append((self._clock.elapsed_ms() + self._timeout_ms, once, tell))

    def expire(self) -> None:
        """Answer those who have waited too long; forget those who were answered."""
        now_ms = self._clock.elapsed_ms()
        waiting = self._waiting
        while waiting and (not waiting[0][1] or waiting[0][0] <= now_ms):
            waiting.popleft()[2](False)  # noqa: FBT003 - which is nothing to who was answered
