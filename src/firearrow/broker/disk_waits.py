"""Answers that wait for the disk, and for slaves, but not for ever.

A producer whose message is in the log and not yet on disk is told so after a while
(FLUSH_DISK_TIMEOUT): its client counts the message as stored, and its connection is not lost. The
same with slaves that must have it too (FLUSH_SLAVE_TIMEOUT). When too many wait, or the disk has
not finished a sync for long, others had better go elsewhere.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from firearrow.model.errors import ResponseCode, ServerFailed, SystemBusy

if TYPE_CHECKING:
    from collections.abc import Callable

    from firearrow.base.runtime import Clock
    from firearrow.net.router import Lane
    from firearrow.replication.progress import ReplicationProgress
    from firearrow.store.store import MessageStore

    Answer = Callable[[int], None]  # with a response code; 0 when all is well
    Observer = Callable[[int, int, int], None]  # the same code, milliseconds, how many

STORED = int(ResponseCode.SUCCESS)
DISK_LATE = int(ResponseCode.FLUSH_DISK_TIMEOUT)
SLAVES_LATE = int(ResponseCode.FLUSH_SLAVE_TIMEOUT)
NO_SLAVE = int(ResponseCode.SLAVE_NOT_AVAILABLE)
NOT_HERE = int(ResponseCode.SERVICE_NOT_AVAILABLE)


class _Wait:
    """One answer, and what it still waits for. Slaves have the last word, as in RocketMQ."""

    __slots__ = ("_answer", "disk", "slaves")

    def __init__(self, answer: Answer) -> None:
        self._answer: Answer | None = answer
        self.disk: int | None = None
        self.slaves: int | None = None

    @property
    def is_over(self) -> bool:
        return self._answer is None

    def disk_is(self, code: int) -> None:
        if self.disk is None:
            self.disk = code
            self._look()

    def slaves_are(self, code: int) -> None:
        if self.slaves is None:
            self.slaves = code
            self._look()

    def _look(self) -> None:
        if self.disk is not None and self.slaves is not None:
            self.finish(self.slaves or self.disk)

    def finish(self, code: int) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            answer(code)


class DiskWaits:
    """In order of arrival, and so of their time limits."""

    def __init__(
        self,
        store: MessageStore,
        clock: Clock,
        lane: Lane,
        replicas: ReplicationProgress,
        *,
        timeout_ms: int,
        slaves_timeout_ms: int,
        busy_ms: int,
        observe: Observer | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._lane = lane
        self._replicas = replicas
        self._timeout_ms = timeout_ms
        self._slaves_timeout_ms = slaves_timeout_ms
        self._busy_ms = busy_ms
        self._observe: Observer = observe or (lambda *_: None)
        self._for_disk: deque[tuple[int, _Wait]] = deque()
        self._for_slaves: deque[tuple[int, _Wait]] = deque()
        self.waits = store.waits_for_disk  # whether answers wait for anything at all

    def reconfigure(self, *, timeout_ms: int, slaves_timeout_ms: int, busy_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._slaves_timeout_ms = slaves_timeout_ms
        self._busy_ms = busy_ms
        self.rules_changed()

    def rules_changed(self) -> None:
        """Messages must be held by others from now on, or need not be any more."""
        self.waits = self._store.waits_for_disk or self._replicas.rules.waits

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
        return self._replicas.refusal()

    def refuse_if_needed(self) -> None:
        """Raise what a producer is to be told when it had better go elsewhere."""
        if not self.waits:
            return
        if too_few := self._replicas.refusal():
            raise ServerFailed(too_few)
        if reason := self.refusal():
            raise SystemBusy(reason)

    def answer_when_stored(self, end_offset: int, answer: Answer, count: int = 1) -> None:
        """Call `answer(0)` when the log is safe up to there, with another code if it is late.

        Once; before this returns if it is safe already. `count` requests wait for it.
        """
        lane = self._lane
        lane.in_progress += count
        now_ms = self._clock.elapsed_ms()

        def tell(code: int) -> None:
            lane.in_progress -= count
            self._observe(code, self._clock.elapsed_ms() - now_ms, count)
            answer(code)

        wait = _Wait(tell)
        if not self._replicas.rules.waits:
            wait.slaves = STORED
        elif self._replicas.is_alone:
            wait.slaves = NO_SLAVE
        else:
            self._replicas.when_replicated(
                end_offset, lambda held: wait.slaves_are(STORED) if held else wait.finish(NOT_HERE)
            )
            if wait.slaves is None:
                self._for_slaves.append((now_ms + self._slaves_timeout_ms, wait))
        if not self._store.waits_for_disk:
            wait.disk_is(STORED)
            return
        self._store.when_flushed(
            end_offset, lambda on_disk: wait.disk_is(STORED if on_disk else DISK_LATE)
        )
        if wait.disk is None:
            self._for_disk.append((now_ms + self._timeout_ms, wait))

    async def stored(self, end_offset: int) -> int:
        """The same by waiting; returns the code."""
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.answer_when_stored(
            end_offset, lambda code: None if done.done() else done.set_result(code)
        )
        return await done

    def note_unwaited(self, count: int) -> None:
        """Requests that were answered at once, since nobody waits for anything here."""
        self._observe(STORED, 0, count)

    def expire(self) -> None:
        """Answer those who have waited too long; forget those who were answered."""
        now_ms = self._clock.elapsed_ms()
        waiting = self._for_slaves
        while waiting and (waiting[0][1].is_over or waiting[0][0] <= now_ms):
            waiting.popleft()[1].slaves_are(SLAVES_LATE)
        waiting = self._for_disk
        while waiting and (waiting[0][1].is_over or waiting[0][0] <= now_ms):
            waiting.popleft()[1].disk_is(DISK_LATE)

    def give_up(self) -> None:
        """This broker is no master any more: what is not safe yet may be taken back."""
        for waiting in (self._for_slaves, self._for_disk):
            while waiting:
                waiting.popleft()[1].finish(NOT_HERE)
