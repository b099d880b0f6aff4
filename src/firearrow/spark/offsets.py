"""Where a query is: the next offset of every queue, as JSON that is always written the same way.

    {"orders@broker-a@0": 1200, "orders@broker-a@1": 900}

Spark compares positions as text, so keys are sorted, and nothing else is in there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from firearrow.spark.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping


class QueueName(NamedTuple):
    """One queue of a topic on one broker."""

    topic: str
    broker: str
    queue_id: int

    @property
    def key(self) -> str:
        return f"{self.topic}@{self.broker}@{self.queue_id}"

    def __str__(self) -> str:
        return f"queue {self.queue_id} of topic {self.topic} on broker {self.broker}"

    @classmethod
    def parse(cls, key: str) -> QueueName:
        """Take a key apart; topics and queue numbers contain no ``@``."""
        topic, first, rest = key.partition("@")
        broker, last, number = rest.rpartition("@")
        if not (topic and first and broker and last and number.isdecimal()):
            raise OptionError(f"{key!r} is no queue: 'topic@broker@number' expected")
        return cls(topic, broker, int(number))


def to_json(offsets: Mapping[QueueName, int]) -> dict[str, int]:
    """A position as Spark keeps it."""
    return {name.key: offset for name, offset in sorted(offsets.items(), key=lambda o: o[0].key)}


def from_json(position: Mapping[str, int]) -> dict[QueueName, int]:
    """A position as it was before `to_json`."""
    return {QueueName.parse(key): int(offset) for key, offset in position.items()}
