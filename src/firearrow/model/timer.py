"""Messages with a delivery time of their own: what their properties mean, and how one is recalled.

A message waits in a slot of the timer's wheel. With the usual precision of a second:

    due         12:00:00.001 .. 12:00:01.000      slot 12:00:00.000      property TIMER_OUT_MS

so a slot may be delivered as a whole when it is over, and then no message of it is early. Which
millisecond a message asked for follows from its own properties.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Final, NamedTuple

from firearrow.model.errors import MessageIllegal
from firearrow.model.message import (
    TIMER_DEL_UNIQKEY,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

TIMER_PROPERTIES: Final = (TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS)  # the first counts
RECALL_TAG: Final = "_RECALL_TAG_"
RECALL_BODY: Final = b"0"
NEVER_ENQUEUED: Final = (1 << 63) - 1  # TIMER_ENQUEUE_MS of what came too late for its slot
_HANDLE_VERSION: Final = "v1"
_INT64: Final = 1 << 63


def is_timed(properties: Mapping[str, str]) -> bool:
    """Whether a message asks for a delivery time, and has not been in the timer already."""
    return TIMER_OUT_MS not in properties and any(name in properties for name in TIMER_PROPERTIES)


def deliver_time(properties: Mapping[str, str], now_ms: int) -> int:
    """When a message wants to be delivered; MessageIllegal if nobody can tell."""
    for deliver_ms in _wishes(properties, now_ms):
        return deliver_ms
    raise MessageIllegal("the message has no delivery time")


def _wishes(properties: Mapping[str, str], now_ms: int) -> Iterator[int]:
    for name, unit_ms, since_ms in (
        (TIMER_DELAY_SEC, 1_000, now_ms),
        (TIMER_DELAY_MS, 1, now_ms),
        (TIMER_DELIVER_MS, 1, 0),
    ):
        text = properties.get(name)
        if text is not None:
            yield since_ms + _long(name, text) * unit_ms


def _long(name: str, text: str) -> int:
    """A number as Java's `Long.parseLong` takes it."""
    digits = text[1:] if text[:1] in {"+", "-"} else text
    if digits.isascii() and digits.isdecimal() and len(digits) < 20:
        number = int(text)
        if -_INT64 <= number < _INT64:
            return number
    raise MessageIllegal(f"timer message: {name} is {text!r}, not a number")


def slot_time(deliver_ms: int, precision_ms: int) -> int:
    """The slot of a delivery time: it begins before, and ends then or later."""
    return (deliver_ms - 1) // precision_ms * precision_ms


def exact_time(
    properties: Mapping[str, str], *, slot_ms: int, precision_ms: int, stored_ms: int
) -> int:
    """The millisecond at which a message of a slot is due, as far as it can be told.

    A time within the slot that the message names, or that follows from when it was stored; what
    does not fit (it was stored again since, or the precision was another one) waits for the end of
    the slot, as RocketMQ would have it.
    """
    latest_ms = slot_ms + precision_ms
    try:
        for due_ms in _wishes(properties, stored_ms):
            if slot_ms < due_ms <= latest_ms:
                return due_ms
    except MessageIllegal:
        pass
    return latest_ms


def delete_key(topic: str, unique_key: str) -> str:
    """What TIMER_DEL_UNIQKEY says of the message that it takes back."""
    return f"{topic}+{unique_key}"


def is_delete(properties: Mapping[str, str]) -> bool:
    return TIMER_DEL_UNIQKEY in properties


class RecallHandle(NamedTuple):
    """What a producer gets for a timer message, and hands in to take it back.

    URL-safe Base64 of ``v1 <topic> <broker> <time> <unique key>``; the time is a millisecond behind
    the beginning of the slot, so that the message that takes back lands in the same one.
    """

    topic: str
    broker_name: str
    time_ms: int
    unique_key: str

    def encode(self) -> str:
        words = (_HANDLE_VERSION, self.topic, self.broker_name, str(self.time_ms), self.unique_key)
        return base64.urlsafe_b64encode(" ".join(words).encode()).decode()

    @classmethod
    def decode(cls, text: str) -> RecallHandle:
        """ValueError for what is no handle."""
        try:
            raw = base64.b64decode(text.encode(), altchars=b"-_", validate=True).decode()
        except (binascii.Error, UnicodeError) as error:
            raise ValueError(f"recall handle {text[:200]!r} is not Base64 of text") from error
        words = raw.split(" ")
        if len(words) < 5 or words[0] != _HANDLE_VERSION:
            raise ValueError(f"recall handle {text[:200]!r} is not of version {_HANDLE_VERSION}")
        _, topic, broker_name, time, unique_key = words[:5]
        if not (time.isascii() and time.isdecimal() and len(time) < 19):
            time = "-1"
        return cls(topic, broker_name, int(time), unique_key)
