"""Appending to the log: a message that was not stored yet, and the file it goes into.

One `append` per message is all that the send path does to the store, so it takes its fields from
objects that are already there and makes none.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from firearrow.hot.layout import HOST_BYTES, LOOPBACK_HOST, PROPERTIES_BYTES_MAX, record_bytes
from firearrow.hot.reference.records import write_record

if TYPE_CHECKING:
    from firearrow.hot.reference.queues import QueueTail

NO_ROOM: Final = 0
NOT_ALLOWED: Final = -1
_PART_HEAD: Final = struct.Struct(">iiiii")
_PART_BYTES_MIN: Final = _PART_HEAD.size + 2


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

    def append_parts(
        self, message: StoreMessage, queue: QueueTail, store_timestamp: int, skip: int
    ) -> int:
        """Write what a message's body lists, from part `skip` on; returns as `append`.

        The body is that of a batch that `count_parts` has passed; the message's properties are put
        behind those of each part. Its place is that of the first part, its size that of all.
        """
        parts = _parts(message.body)[skip:]
        behind = message.properties
        host = message.store_host or self.store_host
        hosts = len(message.born_host) + len(host) - 16
        total = 0
        for _, body, own in parts:
            size = record_bytes(len(body), len(queue.topic_bytes), len(own) + len(behind))
            total += size + hosts
        if not parts or total > self.room - self.position:
            return NO_ROOM
        first = self.start + self.position, queue.next_offset
        end = 0
        for flag, body, own in parts:
            one = StoreMessage(
                message.topic,
                message.queue_id,
                body,
                own + behind,
                flag=flag,
                sys_flag=message.sys_flag,
                born_timestamp=message.born_timestamp,
                born_host=message.born_host,
                store_host=message.store_host,
                reconsume_times=message.reconsume_times,
                prepared_offset=message.prepared_offset,
            )
            end = self.append(one, queue, store_timestamp)
            assert end > 0, "the room for all of them was there before"
        message.physical_offset, message.queue_offset = first
        message.size = total
        message.store_timestamp = store_timestamp
        return end


def count_parts(body: bytes, behind: int) -> int:
    """How many messages a batch has; 0 if it is empty or broken, or one can never be stored.

    `behind` bytes of properties will be added to those of each. One message of a batch:

      | size 4 | magic 4 | crc 4 | flag 4 | body length 4, body | properties length 2, properties |
    """
    at = count = 0
    while at < len(body):
        if len(body) - at < _PART_BYTES_MIN:
            return 0
        size, _, _, _, body_bytes = _PART_HEAD.unpack_from(body, at)
        if not _PART_BYTES_MIN < size <= len(body) - at or not (
            0 < body_bytes <= size - _PART_BYTES_MIN
        ):
            return 0
        own_at = at + _PART_BYTES_MIN + body_bytes
        own = body[own_at : at + size]
        if int.from_bytes(body[own_at - 2 : own_at], "big", signed=True) != len(own):
            return 0
        if own and (not own.endswith(b"\x02") or b"\0" in own):
            return 0
        if len(own) + behind > PROPERTIES_BYTES_MAX:
            return 0
        count += 1
        at += size
    return count


def _parts(body: bytes) -> list[tuple[int, bytes, bytes]]:
    """Flag, body and properties of each message of a sound batch."""
    found = []
    at = 0
    while at < len(body):
        size, _, _, flag, body_bytes = _PART_HEAD.unpack_from(body, at)
        own_at = at + _PART_BYTES_MIN + body_bytes
        found.append((flag, body[at + _PART_HEAD.size : own_at - 2], body[own_at : at + size]))
        at += size
    return found
