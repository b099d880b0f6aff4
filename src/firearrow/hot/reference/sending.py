"""The send path of a broker for ordinary messages: from bytes of a socket to the log and a reply.

`SendPath.serve` takes frames from the front of what was read, as long as each is an ordinary send:
a SEND_MESSAGE, SEND_MESSAGE_V2 or SEND_BATCH_MESSAGE in JSON, to a topic and queue that have a
gate, with nothing that needs a rule of its own. One message of a batch:

    | size 4 | magic 4 | crc 4 | flag 4 | body length 4, body | properties length 2, properties |

It stops at the first frame that is anything else; the broker's general handler, which has
all the rules, takes that one and all it does not understand. Both must do the same to the same
frame, and a test sees to it.

The compiled twin may stop earlier (at a header that is written in an unusual way), never later.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from firearrow.hot.layout import (
    JSON_HEADER,
    PROPERTIES_BYTES_MAX,
    TOPIC_V1_BYTES_MAX,
    record_bytes,
)
from firearrow.hot.reference.commands import Command, encode_frame
from firearrow.hot.reference.frames import decode_frames
from firearrow.hot.reference.text import decode_properties, offset_message_id
from firearrow.hot.reference.writing import StoreMessage

if TYPE_CHECKING:
    from firearrow.hot.reference.queues import QueueTail
    from firearrow.hot.reference.writing import LogWriter

SEND_MESSAGE: Final = 10
SEND_MESSAGE_V2: Final = 310
SEND_BATCH_MESSAGE: Final = 320
_BATCH_HEAD: Final = struct.Struct(">iiiii")
_BATCH_BYTES_MIN: Final = _BATCH_HEAD.size + 2
_REQUIRED: Final = "abcdefgh"
_ONEWAY: Final = 2
_TRANSACTION: Final = 0xC
# A message with one of these needs a rule that is not here.
SPECIAL_PROPERTIES: Final = frozenset(
    {
        "DELAY",
        "TRAN_MSG",
        "POP_CK",
        "TIMER_DELAY_SEC",
        "TIMER_DELAY_MS",
        "TIMER_DELIVER_MS",
        "TIMER_DEL_UNIQKEY",
        "INNER_NUM",
        "INNER_MULTI_DISPATCH",
        "FA_PRODUCER",
        "_SYS_MSG_PRIORITY_",
    }
)
_INT32: Final = range(-(1 << 31), 1 << 31)
# What the fields of the first form of the header, which Go sends, are called in the second.
_LETTERS: Final = {
    "producerGroup": "a",
    "topic": "b",
    "defaultTopic": "c",
    "defaultTopicQueueNums": "d",
    "queueId": "e",
    "sysFlag": "f",
    "bornTimestamp": "g",
    "flag": "h",
    "properties": "i",
    "reconsumeTimes": "j",
    "batch": "m",
}


class TopicGate:
    """A topic that ordinary messages may pass to: its queues, and what has passed since."""

    __slots__ = ("count", "queues", "size", "times", "topic")

    def __init__(self, topic: str, queues: list[QueueTail | None]) -> None:
        self.topic = topic
        self.queues = queues  # by id; None where the general handler must go first
        self.count = 0  # of messages
        self.times = 0  # of requests
        self.size = 0


class Served(NamedTuple):
    """What was done with the front of a read."""

    used: int  # bytes of whole frames
    messages: int  # that were stored
    replies: bytes
    end_offset: int  # of the log, behind the last of them; 0 without any


class SendPath:
    """Knows the gates, the writer, and how a reply looks."""

    def __init__(
        self,
        writer: LogWriter,
        gates: dict[bytes, TopicGate],
        added: dict[str, str],
        reply: dict[str, str],
    ) -> None:
        self._writer = writer
        self._gates = gates
        self._added = added  # properties that every message gets
        self._reply = reply  # fields that every reply has

    def serve(
        self,
        data: bytes | bytearray,
        frame_bytes_max: int,
        born_host: bytes,
        now_ms: int,
    ) -> Served:
        """Store ordinary messages from the front of `data`."""
        used = count = end = 0
        replies: list[bytes] = []
        while True:
            frame = self._first_frame(data, used, frame_bytes_max)
            if frame is None:
                break
            command, frame_bytes = frame
            stored = self._store(command, born_host, now_ms)
            if stored is None:
                break
            reply, end, messages = stored
            count += messages
            used += frame_bytes
            if not command.flag & _ONEWAY:
                replies.append(reply)
        return Served(used, count, b"".join(replies), end if count else 0)

    @staticmethod
    def _first_frame(
        data: bytes | bytearray, at: int, frame_bytes_max: int
    ) -> tuple[Command, int] | None:
        size = 4 + int.from_bytes(data[at : at + 4], "big")
        if len(data) - at < 8 or not 8 <= size <= min(frame_bytes_max, len(data) - at):
            return None
        commands, taken, bad = decode_frames(bytes(data[at : at + size]), frame_bytes_max, size)
        if bad or taken != size or len(commands) != 1:
            return None
        return commands[0], size

    def _store(
        self, command: Command, born_host: bytes, now_ms: int
    ) -> tuple[bytes, int, int] | None:
        """Append what an ordinary request brings; None if it is not one."""
        ext = _short_names(command)
        properties = self._properties(ext.get("i", ""))
        if properties is None or not _is_ordinary(command, ext):
            return None
        _, queue_id, sys_flag, flag, reconsume_times = _int32_fields(ext)
        gate = self._gates.get(ext["b"].encode("utf-8", "replace"))
        if gate is None or not 0 <= queue_id < len(gate.queues):
            return None
        queue = gate.queues[queue_id]
        text, unique_key = properties
        parts: list[tuple[int, bytes, bytes]] | None = None
        if command.code == SEND_BATCH_MESSAGE:
            parts = self._parts(command.body, gate.topic)
        elif unique_key:  # else the general handler makes one
            parts = [(flag, command.body, b"")]
        if queue is None or parts is None:
            return None
        added = "".join(f"{name}\x01{value}\x02" for name, value in self._added.items())
        messages = [
            StoreMessage(
                gate.topic,
                queue_id,
                body,
                text.encode() + own + added.encode(),
                flag=own_flag,
                sys_flag=sys_flag,
                born_timestamp=int(ext["g"]),
                born_host=born_host,
                reconsume_times=reconsume_times,
            )
            for own_flag, body, own in parts
        ]
        end = self._append(messages, queue, now_ms)
        if end <= 0:
            return None
        gate.count += len(messages)
        gate.times += 1
        gate.size += sum(message.size for message in messages)
        return self._answer(command, messages, unique_key), end, len(messages)

    def _parts(self, body: bytes, topic: str) -> list[tuple[int, bytes, bytes]] | None:
        """Flag, body and properties of each message of a batch; None if it is not ordinary."""
        if len(body) > self._writer.body_bytes_max or len(topic) > TOPIC_V1_BYTES_MAX:
            return None
        parts = []
        at = 0
        while at < len(body):
            if len(body) - at < _BATCH_BYTES_MIN:
                return None
            size, _, _, flag, body_bytes = _BATCH_HEAD.unpack_from(body, at)
            if not _BATCH_BYTES_MIN < size <= len(body) - at or not (
                0 < body_bytes <= size - _BATCH_BYTES_MIN
            ):
                return None
            behind = at + _BATCH_HEAD.size + body_bytes
            own = body[behind + 2 : at + size]
            if int.from_bytes(body[behind : behind + 2], "big", signed=True) != len(own):
                return None
            if own and not own.endswith(b"\x02"):  # older clients leave out the last separator
                own += b"\x02"
            parts.append((flag, body[at + _BATCH_HEAD.size : behind], own))
            at += size
        return parts

    def _append(self, messages: list[StoreMessage], queue: QueueTail, now_ms: int) -> int:
        """All or none; the end of the log behind the last, 0 if they are not appended."""
        writer = self._writer
        total = 0
        for message in messages:
            if len(message.properties) > PROPERTIES_BYTES_MAX or b"\0" in message.properties:
                return 0
            size = record_bytes(len(message.body), len(queue.topic_bytes), len(message.properties))
            total += size + len(message.born_host) + len(writer.store_host) - 16
        if len(messages) > 1 and total > writer.room - writer.position:
            return 0
        end = 0
        for message in messages:
            end = writer.append(message, queue, now_ms)
            assert end > 0 or len(messages) == 1
        return end

    def _properties(self, text: str) -> tuple[str, str] | None:
        """Properties that are stored as they are, and the unique key; None if a rule is needed."""
        if not text:
            return "", ""
        if not text.endswith("\x02"):
            text += "\x02"  # older clients leave out the last separator
        pairs = text[:-1].split("\x02")
        properties = decode_properties(text)
        if len(properties) != len(pairs) or any(pair.count("\x01") != 1 for pair in pairs):
            return None  # empty or repeated ones: what is left of them is decided elsewhere
        plain = text.replace("\x01", "").replace("\x02", "")
        if not plain.isascii() or any(letter < " " or letter in '"\\' for letter in plain):
            return None
        names = properties.keys()
        if names & SPECIAL_PROPERTIES or names & self._added.keys():
            return None
        if properties.get("WAIT", "true") != "true":
            return None
        return text, properties.get("UNIQ_KEY", "")

    def _answer(self, command: Command, messages: list[StoreMessage], unique_key: str) -> bytes:
        host = self._writer.store_host
        ip, port = host[:-4], int.from_bytes(host[-4:], "big")
        ext = {
            **self._reply,
            "msgId": ",".join(offset_message_id(ip, port, m.physical_offset) for m in messages),
            "queueId": str(messages[0].queue_id),
            "queueOffset": str(messages[0].queue_offset),
        }
        if unique_key:
            ext["transactionId"] = unique_key
        return encode_frame(Command(0, ext, opaque=command.opaque, flag=1))


def _short_names(command: Command) -> dict[str, str]:
    """The fields by their letters; nothing for a mixture of both forms."""
    ext = command.ext
    if command.code != SEND_MESSAGE:
        return ext
    if "b" in ext:
        return {}
    return {_LETTERS[name]: value for name, value in ext.items() if name in _LETTERS}


def _is_ordinary(command: Command, ext: dict[str, str]) -> bool:
    """Whether every field but the properties is one that the general handler just takes."""
    return (
        (command.code, ext.get("m", "false"))
        in {(SEND_MESSAGE, "false"), (SEND_MESSAGE_V2, "false"), (SEND_BATCH_MESSAGE, "true")}
        and command.serializer == JSON_HEADER
        and not command.flag & ~_ONEWAY
        and bool(command.body)
        and all(name in ext for name in _REQUIRED)
        and all(_is_integer(ext[name]) for name in "defgh")
        and _is_integer(ext.get("j", "0"))
        and all(number in _INT32 for number in _int32_fields(ext))
        and not int(ext["f"]) & _TRANSACTION
    )


def _int32_fields(ext: dict[str, str]) -> tuple[int, int, int, int, int]:
    """Wanted queues, queue id, system flag, flag and attempts."""
    return int(ext["d"]), int(ext["e"]), int(ext["f"]), int(ext["h"]), int(ext.get("j", "0"))


def _is_integer(text: str) -> bool:
    """A plain decimal that fits 64 bits; anything else is for the general handler."""
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdecimal() and len(digits) <= 18
