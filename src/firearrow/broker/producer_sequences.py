"""Which messages producers have already sent: a resend after a lost answer makes no second message.

A producer that wants it puts a name of its own and a growing number into each message:

    FA_PRODUCER   billing-7f3a        one run of one producer: a new run takes a new name
    FA_SEQ        1041                any order, but each number once

A number that is known, for that producer and topic, in whichever queue, is answered with the place
of the first message. What is kept is bounded: of each producer and topic the largest numbers, of
all producers together the most recently used. A number too small to be known is refused: nobody can
say whether it was stored.

The table is saved with the offset of the log that it covers; what came behind is read from the log.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from firearrow.model.errors import MessageIllegal
from firearrow.model.message import REAL_QUEUE_ID, REAL_TOPIC
from firearrow.model.topic import is_dlq_topic, is_retry_topic
from firearrow.store.rules import property_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from firearrow.hot.layout import ScannedRecord

PRODUCER: Final = "FA_PRODUCER"
SEQUENCE: Final = "FA_SEQ"
PRODUCER_CHARS_MAX: Final = 128
SEQUENCE_MAX: Final = (1 << 63) - 1
RETRY_TOPIC: Final = "RETRY_TOPIC"


class SequenceKey(NamedTuple):
    producer: str
    topic: str
    number: int


class Stored(NamedTuple):
    """Where a message, or a batch, was put the first time; as its producer was told."""

    physical_offset: int
    end_offset: int
    queue_id: int
    queue_offset: int
    messages: int = 1


class SavedProducer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    producer: str
    topic: str
    floor: int = -1  # numbers up to here are not known any more
    sequences: dict[int, Stored] = {}


class SavedSequences(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`config/firearrowProducers.json`: ours, other brokers do not read it. Oldest use first."""

    log_offset: int = 0  # what lies behind it in the log is not in here
    producers: list[SavedProducer] = []


class _Window:
    """The largest numbers of one producer in one topic."""

    __slots__ = ("floor", "heap", "stored")

    def __init__(self, floor: int = -1) -> None:
        self.floor = floor
        self.stored: dict[int, Stored] = {}
        self.heap: list[int] = []


class ProducerSequences:
    """Pure state; `entries_max` 0 turns it off."""

    def __init__(self, window: int, entries_max: int) -> None:
        self._window = min(window, entries_max)
        self._entries_max = entries_max
        self._windows: OrderedDict[tuple[str, str], _Window] = OrderedDict()
        self._entries = 0
        self.duplicates = 0

    def __len__(self) -> int:
        return self._entries

    def key_of(
        self, topic: str, properties: Mapping[str, str], reconsume_times: int
    ) -> SequenceKey | None:
        """What makes a message known again; None for those that do not want it.

        What was consumed and comes back has the properties of the message that it once was.
        """
        producer = properties.get(PRODUCER)
        if not producer or self._entries_max == 0:
            return None
        if reconsume_times > 0 or RETRY_TOPIC in properties or _is_second_hand(topic):
            return None
        number = parse_number(properties.get(SEQUENCE, ""))
        if number is None:
            raise MessageIllegal(
                f"{SEQUENCE} {properties.get(SEQUENCE)!r} of {PRODUCER} {producer[:40]!r}: "
                f"a number from 0 to {SEQUENCE_MAX} is expected, a larger one for each message"
            )
        if len(producer) > PRODUCER_CHARS_MAX:
            raise MessageIllegal(
                f"{PRODUCER} of {len(producer)} characters; the limit is {PRODUCER_CHARS_MAX}"
            )
        return SequenceKey(producer, topic, number)

    def find(self, key: SequenceKey) -> Stored | None:
        """Where the message was put before; MessageIllegal if that is too long ago to tell."""
        window = self._windows.get(key[:2])
        if window is None:
            return None
        self._windows.move_to_end(key[:2])
        stored = window.stored.get(key.number)
        if stored is not None:
            self.duplicates += 1
        elif key.number <= window.floor:
            raise MessageIllegal(
                f"{SEQUENCE} {key.number} of {PRODUCER} {key.producer!r} in topic {key.topic} is "
                f"not above {window.floor}, so nobody can say whether it was stored before "
                "(deduplicationWindow); a producer that starts anew takes a new name"
            )
        return stored

    def remember(self, key: SequenceKey, stored: Stored) -> None:
        window = self._windows.get(key[:2])
        if window is None:
            window = self._windows[key[:2]] = _Window()
        self._windows.move_to_end(key[:2])
        if key.number not in window.stored:
            heapq.heappush(window.heap, key.number)
            self._entries += 1
        window.stored[key.number] = stored
        while len(window.stored) > self._window:
            window.floor = heapq.heappop(window.heap)
            del window.stored[window.floor]
            self._entries -= 1
        while self._entries > self._entries_max:
            _, oldest = self._windows.popitem(last=False)
            self._entries -= len(oldest.stored)

    def forget_topic(self, topic: str) -> None:
        """A topic is gone, and with it all that was sent to it."""
        for key in [key for key in self._windows if key[1] == topic]:
            self._entries -= len(self._windows.pop(key).stored)

    # --- lasting ----------------------------------------------------------------------------

    def snapshot(self, log_offset: int) -> SavedSequences:
        """All of it, as of an offset of the log."""
        return SavedSequences(
            log_offset=log_offset,
            producers=[
                SavedProducer(
                    producer=producer, topic=topic, floor=one.floor, sequences=dict(one.stored)
                )
                for (producer, topic), one in self._windows.items()
            ],
        )

    def load(self, saved: SavedSequences, log_end: int) -> None:
        """Take up what was saved, but for messages that the log has lost since."""
        for one in saved.producers:
            window = self._windows[one.producer, one.topic] = _Window(one.floor)
            for number, stored in one.sequences.items():
                if stored.end_offset <= log_end:
                    self.remember(SequenceKey(one.producer, one.topic, number), stored)
            window.floor = max(window.floor, one.floor)

    def follow(self, records: Iterable[ScannedRecord]) -> None:
        """Take up what the log says, oldest first: the first of several is the one that counts."""
        if self._entries_max == 0:
            return
        for record in records:
            if "FA_PRODUCER\x01" in record.properties:
                self._follow(record)

    def _follow(self, record: ScannedRecord) -> None:
        text = record.properties
        producer, number = property_of(text, PRODUCER), parse_number(property_of(text, SEQUENCE))
        moved_to = property_of(text, REAL_TOPIC)
        topic = moved_to or record.topic
        if not producer or number is None or property_of(text, RETRY_TOPIC):
            return
        if len(producer) > PRODUCER_CHARS_MAX or _is_second_hand(topic):
            return
        key = SequenceKey(producer, topic, number)
        window = self._windows.get(key[:2])
        known = None if window is None else window.stored.get(number)
        end = record.physical_offset + record.size
        if known is None and (window is None or number > window.floor):
            waits_at = parse_number(property_of(text, REAL_QUEUE_ID))
            queue_id = record.queue_id if topic == record.topic or waits_at is None else waits_at
            self.remember(key, Stored(record.physical_offset, end, queue_id, record.queue_offset))
        elif known is not None and not moved_to and known.queue_id == record.queue_id:
            behind = known.queue_offset + known.messages
            if (known.end_offset, behind) == (record.physical_offset, record.queue_offset):
                # The next one of a batch, which has one number for all.
                self.remember(key, known._replace(end_offset=end, messages=known.messages + 1))


def parse_number(text: str | None) -> int | None:
    if not text or not text.isascii() or not text.isdecimal() or len(text) > 19:
        return None
    number = int(text)
    return number if number <= SEQUENCE_MAX else None


def _is_second_hand(topic: str) -> bool:
    return is_retry_topic(topic) or is_dlq_topic(topic)
