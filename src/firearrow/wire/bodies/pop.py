"""Acknowledging many popped messages at once."""

from collections.abc import Iterator
from typing import Final

import msgspec

from firearrow.wire import java_json
from firearrow.wire.header import Int32, Int64

_LETTERS: Final = {
    "consumer_group": "c",
    "topic": "t",
    "retry": "r",
    "start_offset": "so",
    "queue_id": "q",
    "revive_queue_id": "rq",
    "pop_time": "pt",
    "invisible_time": "it",
    "bit_set": "b",
}
# Java also reads the long names, though it never writes them.
_LETTER_OF_NAME: Final = {
    "consumerGroup": "c",
    "topic": "t",
    "retry": "r",
    "startOffset": "so",
    "queueId": "q",
    "reviveQueueId": "rq",
    "popTime": "pt",
    "invisibleTime": "it",
    "bitSet": "b",
}


class BatchAck(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename=_LETTERS,
):
    """Acknowledges some of the messages that came with one pop."""

    consumer_group: str
    topic: str
    retry: str = "0"  # 0 the topic itself, 1 and 2 its retry topics
    start_offset: Int64
    queue_id: Int32
    revive_queue_id: Int32
    pop_time: Int64
    invisible_time: Int64
    bit_set: bytes = b""  # bit i, from the lowest of the first byte: start_offset + i

    def offsets(self) -> Iterator[int]:
        """The acknowledged places in the queue."""
        for index, byte in enumerate(self.bit_set):
            for bit in range(8):
                if byte >> bit & 1:
                    yield self.start_offset + 8 * index + bit


class BatchAckBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    broker_name: str | None = None
    acks: tuple[BatchAck, ...] = ()


def decode_batch_ack(body: bytes) -> BatchAckBody:
    """Read a batch of acknowledgements, with short or long names."""
    value = java_json.parse(body)
    if isinstance(value, dict) and isinstance(value.get("acks"), list):
        value["acks"] = [
            {_LETTER_OF_NAME.get(name, name): item for name, item in ack.items()}
            if isinstance(ack, dict)
            else ack
            for ack in value["acks"]
        ]
    return java_json.convert(value, BatchAckBody)
