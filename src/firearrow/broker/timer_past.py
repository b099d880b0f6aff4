"""What the last broker on this directory had done with its timer, and had not saved.

It is in the commit log: messages that were delivered, and those that went into the timer once more,
which takes the place of what they were before. A message is known by topic, unique key and slot;
two that agree in all of that are one message that its producer sent twice.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from firearrow.hot import decode_properties
from firearrow.model.message import (
    REAL_TOPIC,
    TIMER_DEL_UNIQKEY,
    TIMER_DEQUEUE_MS,
    TIMER_OUT_MS,
    TIMER_ROLL_TIMES,
    UNIQ_KEY,
)
from firearrow.model.topic import TIMER_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterable

    from firearrow.hot import ScannedRecord
    from firearrow.store.timer_files import Found

    Identity = tuple[str, str, str, str]


class Past:
    """Empty for a directory that was stopped cleanly."""

    def __init__(
        self,
        found: Found | None = None,
        *,
        log_end: int = 0,
        until_ms: int = 0,
        records: Iterable[ScannedRecord] = (),
    ) -> None:
        self._known = set() if found is None else found.known
        self.rebuilt_to = 0 if found is None else found.rebuilt_to
        self._log_end = log_end  # what comes behind is not of the past
        self._until_ms = until_ms  # slots that may have been delivered, or partly
        self._delivered: Counter[Identity] = Counter()
        self._put_back: Counter[tuple[Identity, int]] = Counter()  # and how often
        for record in records:
            self._look_at(record)
        is_empty = not self._delivered and not self._put_back
        self._mark = None if found is None or is_empty else found.log_offset

    def _look_at(self, record: ScannedRecord) -> None:
        if TIMER_DEQUEUE_MS not in record.properties:
            return
        properties = decode_properties(record.properties)
        identity = identity_of(properties)
        if identity is None or TIMER_DEQUEUE_MS not in properties:
            return
        if record.topic == TIMER_TOPIC:
            self._put_back[identity, roll_times(properties)] += 1
        elif record.topic == properties.get(REAL_TOPIC):
            self._delivered[identity] += 1  # one that was sent back since has another topic

    def is_known(self, physical_offset: int) -> bool:
        """Whether the timer log has a message already."""
        return bool(self._known) and physical_offset in self._known

    def is_over(self, physical_offset: int, properties: dict[str, str]) -> bool:
        """Whether a message has left the wheel already; each leaving counts for one message."""
        if self._mark is None or physical_offset >= self._log_end:
            return False
        identity = identity_of(properties)
        if identity is None:
            return False
        after = (identity, roll_times(properties) + 1)
        if self._put_back[after] > 0:
            self._put_back[after] -= 1
            return True
        if self._delivered[identity] > 0:
            self._delivered[identity] -= 1
            return True
        return False

    def mark(self, mark: int) -> int:
        """Where the log ended before the first delivery that is not saved yet."""
        return mark if self._mark is None else min(mark, self._mark)

    def passed(self, time_ms: int) -> None:
        """Slots before this are done."""
        if self._mark is not None and time_ms > self._until_ms:
            self._mark = None
            self._delivered.clear()
            self._put_back.clear()


def roll_times(properties: dict[str, str]) -> int:
    text = properties.get(TIMER_ROLL_TIMES, "")
    return int(text) if text.isascii() and text.isdecimal() else 0


def identity_of(properties: dict[str, str]) -> Identity | None:
    """What a message is known by; one that takes it back has the same unique key."""
    topic, unique = properties.get(REAL_TOPIC), properties.get(UNIQ_KEY)
    out = properties.get(TIMER_OUT_MS)
    if topic is None or unique is None or out is None:
        return None
    return topic, unique, out, properties.get(TIMER_DEL_UNIQKEY, "")
