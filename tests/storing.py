"""For tests that break a store: messages that say who they are, and a reading of everything."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.stores import records_of

from firearrow.hot import StoreMessage
from firearrow.testing.threads import SteppedExecutor

if TYPE_CHECKING:
    from firearrow.hot import Record
    from firearrow.store.store import MessageStore


@dataclass(slots=True)
class Sent:
    """A message that was put, and what is known about it."""

    number: int
    message: StoreMessage
    key: str
    tag: str
    acknowledged: bool = False
    deleted: bool = False  # its topic was, later

    @property
    def queue(self) -> tuple[str, int]:
        return self.message.topic, self.message.queue_id

    @property
    def place(self) -> tuple[str, int, int]:
        return (*self.queue, self.message.queue_offset)


@dataclass(slots=True)
class Sender:
    """Makes messages whose body says their number, so that nobody can take one for another."""

    sent: list[Sent] = field(default_factory=list)

    def make(self, topic: str, queue_id: int, body_bytes: int, *, key: str, tag: str) -> Sent:
        number = len(self.sent)
        label = b"message %d " % number
        body = (label * (body_bytes // len(label) + 1))[: max(body_bytes, len(label))]
        properties = f"UNIQ_KEY\x01ID{number}\x02"
        properties += f"KEYS\x01{key}\x02" if key else ""
        properties += f"TAGS\x01{tag}\x02" if tag else ""
        host = bytes(15) + b"\1\0\0\0\7" if number % 5 == 4 else bytes([127, 0, 0, 1, 0, 0, 0, 9])
        message = StoreMessage(
            topic,
            queue_id,
            body,
            properties.encode(),
            born_timestamp=number,
            born_host=host,
        )
        self.sent.append(Sent(number, message, key, tag))
        return self.sent[-1]

    def of(self, record: Record, *, unsure: frozenset[int] = frozenset()) -> Sent:
        """Whose record this is; it must be that message to the byte, at the place it was given.

        `unsure` are messages that were damaged: RocketMQ's checksum covers the body alone, so
        nobody can say whether the other fields are still right.
        """
        assert record.body.startswith(b"message "), f"not one of ours: {record!r}"
        sent = self.sent[int(record.body.split()[1])]
        message = sent.message
        assert record.body == message.body
        if sent.number not in unsure:
            assert record.topic == message.topic
            assert record.queue_id == message.queue_id
            assert record.physical_offset == message.physical_offset
            assert record.queue_offset == message.queue_offset
            assert record.properties.encode() == message.properties
            assert record.born_timestamp == message.born_timestamp
            assert record.store_timestamp == message.store_timestamp
        return sent


def read_queue(store: MessageStore, topic: str, queue_id: int) -> dict[int, Record]:
    """Everything in a queue that a consumer can get, by queue offset."""
    found: dict[int, Record] = {}
    offset = store.lookup.min_offset(topic, queue_id)
    stop = store.lookup.max_offset(topic, queue_id)
    while offset < stop:
        got = store.get(topic, queue_id, offset, 32)
        records = records_of(got)
        assert len(records) == got.count
        assert sum(record.size for record in records) == got.size
        for record in records:
            assert offset <= record.queue_offset < got.next_offset
            assert record.queue_offset not in found
            found[record.queue_offset] = record
        assert got.next_offset > offset, f"{topic} {queue_id} at {offset}: {got}"
        offset = got.next_offset
    assert offset == stop
    return found


def stepped_threads() -> SteppedExecutor:
    """Have `asyncio.to_thread` run at once, or when told, in this thread."""
    threads = SteppedExecutor()
    asyncio.get_running_loop().set_default_executor(threads)
    return threads


async def turns(count: int = 8) -> None:
    """Let the loop do what is already due."""
    for _ in range(count):
        await asyncio.sleep(0)
