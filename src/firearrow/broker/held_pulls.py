"""Pull requests that wait for messages (long polling).

A pull that finds nothing new is parked under its queue. It is answered when something arrives that
its filter lets through, or when its time is up; it is forgotten when its connection ends.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from firearrow.store.consume_queue import ENTRY

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable

    from firearrow.base.runtime import Clock
    from firearrow.store.consume_queue import ConsumeQueue


@dataclass(slots=True, eq=False)
class HeldPull:
    """One parked request. `answer` runs it again, and that time it must answer."""

    topic: str
    queue_id: int
    offset: int
    until_ms: int
    channel: Hashable
    codes: Collection[int] | None  # tag hashes that would wake it; None: anything
    answer: Callable[[], None]
    checked_to: int = field(default=0)  # entries before this one do not match
    done: bool = False
    # Looks at a whole record that a tag lets through; None: that is enough.
    wanted: Callable[[memoryview], bool] | None = None
    looks: int | None = None  # so many at a time; then it is answered that it may go on


@dataclass(frozen=True, slots=True)
class HeldPullStatistics:
    waiting: int
    queues: int


class HeldPulls:
    """All parked pulls, by queue, by time and by connection."""

    def __init__(
        self,
        clock: Clock,
        *,
        limit: int,
        limit_of_channel: int,
        read: Callable[[int, int], memoryview | None],
    ) -> None:
        self._clock = clock
        self._limit = limit
        self._limit_of_channel = limit_of_channel
        self._read = read  # a record, by its place and size in the log
        self._by_queue: dict[tuple[str, int], dict[HeldPull, None]] = {}
        self._by_channel: dict[Hashable, dict[HeldPull, None]] = {}
        self._by_time: list[tuple[int, int, HeldPull]] = []
        self._order = itertools.count()
        self._waiting = 0

    def park(self, held: HeldPull) -> bool:
        """Keep a request; False if too many wait already, of all peers or of this one."""
        if (
            self._waiting >= self._limit
            or len(self._by_channel.get(held.channel, ())) >= self._limit_of_channel
        ):
            return False
        held.checked_to = max(held.checked_to, held.offset)
        self._waiting += 1
        self._by_queue.setdefault((held.topic, held.queue_id), {})[held] = None
        self._by_channel.setdefault(held.channel, {})[held] = None
        heapq.heappush(self._by_time, (held.until_ms, next(self._order), held))
        return True

    def wake(self, grown: list[ConsumeQueue]) -> None:
        """Queues have new messages: answer whoever waits for one of them."""
        for queue in grown:
            waiting = self._by_queue.get((queue.topic, queue.queue_id))
            if waiting:
                for held in [held for held in waiting if self._is_for(held, queue)]:
                    self._release(held)

    def _is_for(self, held: HeldPull, queue: ConsumeQueue) -> bool:
        if queue.max_offset <= held.checked_to:
            return False
        codes = held.codes
        if codes is None and held.wanted is None:
            return True
        looks_end = None if held.looks is None else held.checked_to + held.looks
        while held.checked_to < queue.max_offset:
            raw = queue.entries(held.checked_to, queue.max_offset - held.checked_to)
            if not raw:
                return True  # something is odd there: let the pull find out
            for physical, size, code in ENTRY.iter_unpack(raw):
                low = code & 0xFFFFFFFF
                if (codes is None or (low - (1 << 32) if low >> 31 else low) in codes) and (
                    held.wanted is None
                    or (record := self._read(physical, size)) is None
                    or held.wanted(record)
                ):
                    return True
                held.checked_to += 1
                if held.checked_to == looks_end and looks_end < queue.max_offset:
                    return True
        return False

    def expire(self) -> None:
        """Answer those whose time is up."""
        now_ms = self._clock.elapsed_ms()
        while self._by_time and self._by_time[0][0] <= now_ms:
            _, _, held = heapq.heappop(self._by_time)
            if not held.done:
                self._release(held)

    def channel_closed(self, channel: Hashable) -> None:
        for held in list(self._by_channel.get(channel, ())):
            self._forget(held)

    def release(self, topic: str, queue_id: int) -> None:
        """Answer everybody who waits for a queue: something other than a message has happened."""
        for held in list(self._by_queue.get((topic, queue_id), ())):
            self._release(held)

    def wake_all(self) -> None:
        """Answer everybody: the broker stops."""
        for waiting in list(self._by_queue.values()):
            for held in list(waiting):
                self._release(held)

    def _release(self, held: HeldPull) -> None:
        self._forget(held)
        held.answer()

    def _forget(self, held: HeldPull) -> None:
        held.done = True
        self._waiting -= 1
        for table, key in (
            (self._by_queue, (held.topic, held.queue_id)),
            (self._by_channel, held.channel),
        ):
            waiting = table[key]  # type: ignore[index]
            del waiting[held]
            if not waiting:
                del table[key]  # type: ignore[arg-type]
        if len(self._by_time) > 64 and len(self._by_time) > 2 * self._waiting:
            # Most of the heap is done with: do not let it grow with every answered pull.
            self._by_time = [entry for entry in self._by_time if not entry[2].done]
            heapq.heapify(self._by_time)

    def statistics(self) -> HeldPullStatistics:
        return HeldPullStatistics(waiting=self._waiting, queues=len(self._by_queue))
