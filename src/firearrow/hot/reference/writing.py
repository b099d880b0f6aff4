"""Appending to the log: a message that was not stored yet, and the file it goes into.

One `append` per message is all that the send path does to the store, so it takes its fields from
objects that are already there and makes none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from firearrow.hot.layout import HOST_BYTES, LOOPBACK_HOST, PROPERTIES_BYTES_MAX
from firearrow.hot.reference.records import write_record

if TYPE_CHECKING:
    from firearrow.hot.reference.queues import QueueTail

NO_ROOM: Final = 0
NOT_ALLOWED: Final = -1


class StoreMessage:
    """What a producer sent, ready to be appended: text is encoded, hosts are bytes.

    The last four fields are where it was put; `LogWriter.append` fills them in.
    """

    __slots__ = (
        "body",
        "born_host",
        "born_timestamp",
        "flag",
        "physical_offset",
        "prepared_offset",
        "properties",
        "queue_id",
        "queue_offset",
        "reconsume_times",
        "size",
        "store_host",
        "store_timestamp",
        "sys_flag",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: bytes = b"",
        *,
        flag: int = 0,
        sys_flag: int = 0,
        born_timestamp: int = 0,
        born_host: bytes = LOOPBACK_HOST,
        store_host: bytes | None = None,
        reconsume_times: int = 0,
        prepared_offset: int = 0,
    ) -> None:
        if len(born_host) not in HOST_BYTES or len(store_host or born_host) not in HOST_BYTES:
            raise ValueError("a host is 4 or 16 bytes of IP and 4 of port")
        self.topic = topic
        self.queue_id = queue_id
        self.body = body
        self.properties = properties
        self.flag = flag
        self.sys_flag = sys_flag
        self.born_timestamp = born_timestamp
        self.born_host = born_host
        self.store_host = store_host  # None: the broker's; redelivered messages keep theirs
        self.reconsume_times = reconsume_times
        self.prepared_offset = prepared_offset
        self.physical_offset = self.queue_offset = -1
        self.store_timestamp = self.size = 0

    def __repr__(self) -> str:
        return (
            f"StoreMessage({self.topic!r}, queue {self.queue_id} offset {self.queue_offset}, "
            f"physical {self.physical_offset}, body={len(self.body)} bytes)"
        )


class LogWriter:
    """The log file that is being written: its memory, and how far it is full.

    Records go up to `room`, which the owner moves: there is disk space that far, and the last
    bytes of the file stay free for the filler.
    """

    __slots__ = ("body_bytes_max", "buffer", "position", "room", "start", "store_host")

    def __init__(self, store_host: bytes, body_bytes_max: int) -> None:
        self.store_host = store_host
        self.body_bytes_max = body_bytes_max
        self.buffer = memoryview(bytearray())
        self.start = self.position = self.room = 0

    def open(self, buffer: memoryview, *, start: int, position: int, room: int) -> None:
        """Go on at `position` of the file whose first byte is at offset `start`."""
        assert 0 <= position <= len(buffer)
        assert room <= len(buffer)
        self.buffer = buffer
        self.start = start
        self.position = position
        self.room = room

    def close(self) -> None:
        """Let go of the memory; the next append finds no room."""
        self.buffer = memoryview(bytearray())
        self.room = 0

    def append(self, message: StoreMessage, queue: QueueTail, store_timestamp: int) -> int:
        """Write a message into its queue's next place; returns the offset behind it.

        0: it does not fit before `room`. -1: it is larger than allowed, or has zeros in its
        properties, by which recovery knows a record that was written in part. Nothing has changed.
        """
        body, properties = message.body, message.properties
        if (
            len(body) > self.body_bytes_max
            or len(properties) > PROPERTIES_BYTES_MAX
            or b"\0" in properties
        ):
            return NOT_ALLOWED
        offset = self.start + self.position
        transaction = message.sys_flag & 0xC
        # Prepared and rolled-back records of old brokers are in no queue.
        counted = transaction in {0, 0x8}
        queue_offset = queue.next_offset if counted else 0
        size = write_record(
            self.buffer,
            self.position,
            max(self.room, self.position),
            queue.topic_bytes,
            body,
            properties,
            queue.queue_id,
            message.flag,
            queue_offset,
            offset,
            message.sys_flag,
            message.born_timestamp,
            message.born_host,
            store_timestamp,
            message.store_host or self.store_host,
            message.reconsume_times,
            message.prepared_offset,
        )
        if not size:
            return NO_ROOM
        self.position += size
        if counted:
            queue.next_offset = queue_offset + 1
        message.physical_offset = offset
        message.size = size
        message.queue_offset = queue_offset
        message.store_timestamp = store_timestamp
        return offset + size
