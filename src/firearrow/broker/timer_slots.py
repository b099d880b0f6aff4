"""What the timer has in memory: slots whose time has nearly come, and recalls under way."""

from __future__ import annotations

import heapq
from collections import Counter
from typing import TYPE_CHECKING, Final

from firearrow.model.message import REAL_TOPIC, TIMER_DEL_UNIQKEY, UNIQ_KEY
from firearrow.model.timer import delete_key

if TYPE_CHECKING:
    from collections.abc import Container

_POSITION_BITS: Final = 50  # of a position in the timer log, below the time
_POSITION_MASK: Final = (1 << _POSITION_BITS) - 1


class OpenSlot:
    """What is due between `time_ms`, exclusive, and the next slot, inclusive."""

    __slots__ = (
        "_due",
        "changes",
        "is_loading",
        "mark",
        "recalled",
        "rolled_to",
        "rolls",
        "time_ms",
        "unmatched",
    )

    def __init__(self, time_ms: int) -> None:
        self.time_ms = time_ms
        self.is_loading = False  # not everything that waits on disk is here yet
        self._due: list[int] = []  # a heap of times and positions in the timer log
        self.rolls: list[int] = []  # positions of what goes into the timer once more, newest first
        self.recalled: set[str] = set()  # keys of messages that were taken back
        self.rolled_to = -1  # queue offset of the last message that went into the timer again
        # What takes others back, less what it took: one for one, unless somebody asked twice.
        self.unmatched: Counter[str] = Counter()
        self.changes: Counter[str] = Counter()  # of how many wait, by topic, since it is open
        self.mark: int | None = None  # where the commit log ended before the first delivery

    def push(self, due_ms: int, position: int) -> None:
        heapq.heappush(self._due, due_ms << _POSITION_BITS | position)

    @property
    def next_ms(self) -> int | None:
        """When the next message is due."""
        return self._due[0] >> _POSITION_BITS if self._due else None

    @property
    def next_position(self) -> int:
        return self._due[0] & _POSITION_MASK

    def pop(self) -> None:
        heapq.heappop(self._due)

    def __len__(self) -> int:
        return len(self._due) + len(self.rolls)


class Recalls:
    """Messages that were taken back, from when that was put until the wheel knows of it."""

    def __init__(self) -> None:
        self._offsets: dict[str, int] = {}  # by key: in the timer's queue

    def note(self, key: str, queue_offset: int) -> None:
        """A message that takes another one back was put; it counts from now on."""
        self._offsets[key] = queue_offset

    def forget(self, properties: dict[str, str], queue_offset: int) -> None:
        """The one at this offset has come to the wheel, if it is one: its slot knows of it."""
        key = properties.get(TIMER_DEL_UNIQKEY)
        if key is not None and self._offsets.get(key, queue_offset) <= queue_offset:
            self._offsets.pop(key, None)

    def hit(self, properties: dict[str, str], recalled: Container[str] = ()) -> bool:
        """Whether a message was taken back; `recalled` is what its slot knows."""
        unique = properties.get(UNIQ_KEY)
        if unique is None:
            return False
        # RocketMQ before 5.3.2 names the bare key.
        keys = (delete_key(properties[REAL_TOPIC], unique), unique)
        return any(key in self._offsets or key in recalled for key in keys)
