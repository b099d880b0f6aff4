"""The send path of a broker for ordinary messages: from bytes of a socket to the log and a reply.

`SendPath.serve` takes frames from the front of what was read, as long as each is an ordinary send:
a SEND_MESSAGE_V2 in JSON, to a topic and queue that have a gate, with nothing that needs a rule of
its own. It stops at the first frame that is anything else; the broker's general handler, which has
all the rules, takes that one and all it does not understand. Both must do the same to the same
frame, and a test sees to it.

The compiled twin may stop earlier (at a header that is written in an unusual way), never later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from firearrow.hot.layout import JSON_HEADER
from firearrow.hot.reference.commands import Command, encode_frame
from firearrow.hot.reference.frames import decode_frames
from firearrow.hot.reference.text import decode_properties, offset_message_id
from firearrow.hot.reference.writing import StoreMessage

if TYPE_CHECKING:
    from firearrow.hot.reference.queues import QueueTail
    from firearrow.hot.reference.writing import LogWriter

SEND_MESSAGE_V2: Final = 310
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
        "_SYS_MSG_PRIORITY_",
    }
)
_INT32: Final = range(-(1 << 31), 1 << 31)


class TopicGate:
    """A topic that ordinary messages may pass to: its queues, and what has passed since."""

    __slots__ = ("count", "queues", "size", "topic")

    def __init__(self, topic: str, queues: list[QueueTail | None]) -> None:
        self.topic = topic
        self.queues = queues  # by id; None where the general handler must go first
        self.count = 0
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
            reply, end = stored
            count += 1
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

    def _store(self, command: Command, born_host: bytes, now_ms: int) -> tuple[bytes, int] | None:
        """Append the message of an ordinary request; None if it is not one."""
        ext = command.ext
        properties = self._properties(ext.get("i", ""))
        if properties is None or not _is_ordinary(command):
            return None
        _, queue_id, sys_flag, flag, reconsume_times = _int32_fields(ext)
        gate = self._gates.get(ext["b"].encode("utf-8", "replace"))
        if gate is None or not 0 <= queue_id < len(gate.queues):
            return None
        queue = gate.queues[queue_id]
        if queue is None:
            return None
        text, unique_key = properties
        message = StoreMessage(
            gate.topic,
            queue_id,
            command.body,
            text,
            flag=flag,
            sys_flag=sys_flag,
            born_timestamp=int(ext["g"]),
            born_host=born_host,
            reconsume_times=reconsume_times,
        )
        end = self._writer.append(message, queue, now_ms)
        if end <= 0:
            return None
        gate.count += 1
        gate.size += message.size
        return self._answer(command, message, unique_key), end

    def _properties(self, text: str) -> tuple[bytes, str] | None:
        """The properties as they are stored, and the unique key; None if a rule is needed."""
        if not text.isascii() or not text.endswith("\x02") or '"' in text or "\\" in text:
            return None
        pairs = text[:-1].split("\x02")
        properties = decode_properties(text)
        if len(properties) != len(pairs) or any(pair.count("\x01") != 1 for pair in pairs):
            return None  # empty or repeated ones: what is left of them is decided elsewhere
        if any(ord(letter) < 32 for pair in pairs for letter in pair.replace("\x01", "")):
            return None
        names = properties.keys()
        if names & SPECIAL_PROPERTIES or names & self._added.keys():
            return None
        if not properties.get("UNIQ_KEY") or properties.get("WAIT", "true") != "true":
            return None
        added = "".join(f"{name}\x01{value}\x02" for name, value in self._added.items())
        return (text + added).encode(), properties["UNIQ_KEY"]

    def _answer(self, command: Command, message: StoreMessage, unique_key: str) -> bytes:
        host = self._writer.store_host
        ext = {
            **self._reply,
            "msgId": offset_message_id(
                host[:-4], int.from_bytes(host[-4:], "big"), message.physical_offset
            ),
            "queueId": str(message.queue_id),
            "queueOffset": str(message.queue_offset),
            "transactionId": unique_key,
        }
        return encode_frame(Command(0, ext, opaque=command.opaque, flag=1))


def _is_ordinary(command: Command) -> bool:
    """Whether every field but the properties is one that the general handler just takes."""
    ext = command.ext
    return (
        command.code == SEND_MESSAGE_V2
        and command.serializer == JSON_HEADER
        and not command.flag & ~_ONEWAY
        and command.remark is None
        and bool(command.body)
        and all(name in ext for name in _REQUIRED)
        and ext.get("m", "false") == "false"
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
