"""Messages of one queue that were pulled and are not done with: Java's process queue. Pure.

    pulled ─────▶ waiting ─────▶ (concurrent) removed one by one, in any order
                     │
                     └─ take ──▶ consuming ── commit ──▶ gone       (ordered)
                                     └────── rollback ─▶ waiting

What may be committed is the offset before which everything is done: the first message left, or one
past the last message ever pulled when none is left.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from firearrow.client.message import ReceivedMessage
    from firearrow.model.topic import MessageQueue

LOCK_LIVES_MS: Final = 30_000  # a lock that was not renewed for so long is not trusted any more
PULL_IDLE_MS: Final = 120_000  # a queue that was not pulled for so long is given up and taken anew


@dataclass(frozen=True, slots=True)
class WindowLimits:
    """How much of one queue may be in memory before pulling pauses."""

    messages_max: int = 1_000
    bytes_max: int = 100 * 1024 * 1024
    span_max: int = 2_000  # from the first to the last offset; ordered consumption ignores it


class Window:
    """State of one queue that this consumer owns. Belongs to the event loop."""

    __slots__ = (
        "_room_wanted",
        "bytes",
        "consuming",
        "count",
        "dropped",
        "last_consume_ms",
        "last_lock_ms",
        "last_offset",
        "last_pull_ms",
        "locked",
        "next_offset",
        "queue",
        "unlock_tries",
        "waiting",
    )

    def __init__(self, queue: MessageQueue, next_offset: int, now_ms: int) -> None:
        self.queue = queue
        self.next_offset = next_offset  # where the next pull begins
        self.waiting: OrderedDict[int, ReceivedMessage] = OrderedDict()
        self.consuming: list[ReceivedMessage] = []
        self.count = 0
        self.bytes = 0
        self.last_offset = -1  # of the last message ever pulled
        self.dropped = False
        self.locked = False
        self.last_lock_ms = now_ms
        self.last_pull_ms = now_ms
        self.last_consume_ms = now_ms
        self.unlock_tries = 0
        self._room_wanted: Callable[[], None] | None = None

    def __repr__(self) -> str:
        state = "dropped" if self.dropped else f"{self.count} messages"
        return f"<Window {self.queue.topic}/{self.queue.broker_name}/{self.queue.queue_id} {state}>"

    # --- filling ----------------------------------------------------------------------------

    def put(self, messages: Iterable[ReceivedMessage]) -> list[ReceivedMessage]:
        """Add what a pull brought; returns what was not there already."""
        added = []
        waiting, size, last = self.waiting, 0, self.last_offset
        for message in messages:
            offset = message.queue_offset
            if offset in waiting:
                continue
            waiting[offset] = message
            size += message.stored_bytes
            if offset > last:  # noqa: PLR1730 - a call would cost as much as the rest
                last = offset
            added.append(message)
        self.bytes += size
        self.last_offset = last
        self.count += len(added)
        return added

    @property
    def span(self) -> int:
        """From the first to the last offset that waits."""
        if not self.waiting:
            return 0
        return next(reversed(self.waiting)) - next(iter(self.waiting))

    def has_room(self, limits: WindowLimits, *, ordered: bool = False) -> bool:
        """Whether another pull may be made."""
        return (
            self.count <= limits.messages_max
            and self.bytes <= limits.bytes_max
            and (ordered or self.span <= limits.span_max)
        )

    def when_changed(self, callback: Callable[[], None] | None) -> None:
        """Call once when something leaves the window, or when it is dropped."""
        self._room_wanted = callback

    def _changed(self) -> None:
        callback, self._room_wanted = self._room_wanted, None
        if callback is not None:
            callback()

    def drop(self) -> None:
        """The queue is not ours any more; results that come later are ignored."""
        self.dropped = True
        self._changed()

    # --- concurrent -------------------------------------------------------------------------

    def remove(self, messages: Iterable[ReceivedMessage]) -> int:
        """Take out what is done; what may be committed now, or -1 if there was nothing."""
        waiting = self.waiting
        if not waiting:
            return -1
        before, size = len(waiting), 0
        for message in messages:
            if waiting.pop(message.queue_offset, None) is not None:
                size += message.stored_bytes
        self.count -= before - len(waiting)
        self.bytes -= size
        self._changed()
        return next(iter(waiting)) if waiting else self.last_offset + 1

    def expired(self, now_ms: int, timeout_ms: int, count_max: int = 16) -> list[ReceivedMessage]:
        """The first messages whose handlers run for longer than they may."""
        found: list[ReceivedMessage] = []
        for message in self.waiting.values():
            started_ms = message.consume_started_ms
            if not started_ms or now_ms - started_ms <= timeout_ms or len(found) >= count_max:
                break
            found.append(message)
        return found

    # --- ordered ----------------------------------------------------------------------------

    def take(self, count: int) -> list[ReceivedMessage]:
        """The first messages, to be consumed now; they stay ours until commit or rollback."""
        taken: list[ReceivedMessage] = []
        while self.waiting and len(taken) < count:
            taken.append(self.waiting.popitem(last=False)[1])
        self.consuming.extend(taken)
        return taken

    def commit(self, count: int | None = None) -> int:
        """All that was taken is done, or the first few; what may be committed, -1 if none is."""
        done = self.consuming[:count]
        if not done:
            return -1
        del self.consuming[: len(done)]
        self.count -= len(done)
        self.bytes -= sum(message.stored_bytes for message in done)
        self._changed()
        return done[-1].queue_offset + 1

    def rollback(self) -> None:
        """Everything taken comes again, before what waits."""
        for message in reversed(self.consuming):
            self.waiting[message.queue_offset] = message
            self.waiting.move_to_end(message.queue_offset, last=False)
        self.consuming.clear()

    def lock_expired(self, now_ms: int) -> bool:
        return now_ms - self.last_lock_ms > LOCK_LIVES_MS

    def set_locked(self, now_ms: int, *, locked: bool) -> None:
        self.locked = locked
        if locked:
            self.last_lock_ms = now_ms

    # --- all --------------------------------------------------------------------------------

    def pull_expired(self, now_ms: int) -> bool:
        """Whether nobody has pulled for so long that something must be wrong."""
        return now_ms - self.last_pull_ms > PULL_IDLE_MS
