"""Priorities: a message with one goes to the queue of that number, and pops look there first.

RocketMQ's from 5.4 on. Nothing on disk is different: a queue holds one priority, in order. A
message that is also ordered, delayed or part of a transaction has no priority.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from firearrow.model.message import DELAY, PRIORITY, SHARDING_KEY, TRAN_MSG
from firearrow.model.timer import TIMER_PROPERTIES

if TYPE_CHECKING:
    from collections.abc import Mapping

_EXCLUDES: Final = (DELAY, *TIMER_PROPERTIES, SHARDING_KEY)


def priority_of(properties: Mapping[str, str]) -> int | None:
    """What a message asks for; None if it asks for nothing, or for what is no number."""
    text = properties.get(PRIORITY, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


def queue_by_priority(properties: dict[str, str], queue_id: int, write_queues: int) -> int:
    """The queue of a message: that of its priority, or of the highest one that there is."""
    priority = priority_of(properties)
    if priority is None:
        return queue_id
    is_half = properties.get(TRAN_MSG, "").lower() == "true"
    if is_half or any(name in properties for name in _EXCLUDES):
        del properties[PRIORITY]
        return queue_id
    return max(0, min(priority, write_queues - 1))
