"""What a producer writes and reads for each message: requests, batches, receipts.

Only the ordinary is done here. Whatever else there is (odd properties, answers that say no, or more
than usual) is left to the general code, which knows all rules and has the words for what is wrong.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, Protocol

from firearrow.hot.layout import PROPERTIES_BYTES_MAX
from firearrow.hot.reference.commands import Command, encode_frame
from firearrow.hot.reference.frames import decode_frames
from firearrow.hot.reference.text import encode_properties

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

SEND_MESSAGE_V2: Final = 310
SEND_BATCH_MESSAGE: Final = 320
FRAME_BYTES_MAX: Final = (1 << 31) - 1

# One message of a batch; the two zero words are a magic code and a CRC that nobody fills:
#
#   | size 4 | 0 4 | 0 4 | flag 4 | body length 4 | body | properties length 2 | properties |
_BATCHED: Final = struct.Struct(">iiiii")
BATCHED_EXTRA: Final = _BATCHED.size + 2

_RECEIPT_FIELDS: Final = frozenset(
    {"msgId", "queueId", "queueOffset", "transactionId", "MSG_REGION", "TRACE_ON"}
)


class SendForm:
    """The request of one producer for one topic: what differs by message is filled in."""

    __slots__ = ("_creation_queue_nums", "_group", "_topic")

    def __init__(self, group: str, topic: str, creation_queue_nums: str) -> None:
        self._group = group
        self._topic = topic
        self._creation_queue_nums = creation_queue_nums

    def frame(  # noqa: PLR0917 - by position: names would cost as much as the work
        self,
        broker_name: str,
        queue_id: int,
        properties: Mapping[str, str],
        body: bytes,
        opaque: int,
        born_ms: int,
        sys_flag: int,
        flag: int,
        batch: bool,  # noqa: FBT001
    ) -> bytes | None:
        """One whole frame; None if the properties cannot travel as they are.

        What the one-letter names mean is in `wire.headers.SendMessageRequestV2`.
        """
        try:
            text = encode_properties(properties)
            if len(text.encode()) > PROPERTIES_BYTES_MAX:
                return None
        except (TypeError, ValueError):
            return None
        ext = {
            "a": self._group,
            "b": self._topic,
            "c": "TBW102",
            "d": self._creation_queue_nums,
            "e": str(queue_id),
            "f": str(sys_flag),
            "g": str(born_ms),
            "h": str(flag),
            "i": text,
            "j": "0",
            "k": "false",
            "m": "true" if batch else "false",
            "n": broker_name,
        }
        code = SEND_BATCH_MESSAGE if batch else SEND_MESSAGE_V2
        return encode_frame(Command(code, ext, body, opaque=opaque))


def number_keys(head: str, first: int, last: int) -> list[str]:
    """Message ids that differ only in a counter: its four hexadecimal digits behind `head`."""
    return [f"{head}{number:04X}" for number in range(first, last)]


class Sendable(Protocol):
    """A message, as far as it is written here."""

    @property
    def body(self) -> bytes: ...

    @property
    def flag(self) -> int: ...

    @property
    def properties(self) -> dict[str, str]: ...


def encode_messages(
    messages: Sequence[Sendable], start: int, bytes_max: int
) -> tuple[bytes, int] | None:
    """Messages from `start` on as the body of a batch, and the first that has no room in it.

    At least one, whatever its size. None if one of them cannot be written as it is.
    """
    parts: list[bytes] = []
    size = 0
    for place in range(start, len(messages)):
        message = messages[place]
        body = message.body
        try:
            properties = encode_properties(message.properties).encode()
            if len(properties) > PROPERTIES_BYTES_MAX or not body:
                return None
            one = BATCHED_EXTRA + len(body) + len(properties)
            head = _BATCHED.pack(one, 0, 0, message.flag, len(body))
        except (TypeError, ValueError, struct.error):
            return None
        if parts and size + one > bytes_max:
            return b"".join(parts), place
        parts += (head, body, len(properties).to_bytes(2, "big"), properties)
        size += one
    return b"".join(parts), len(messages)


class ReceiptReader:
    """Reads the answers to sends that were stored as they should be, and tells who waits.

    Args:
        make: The class of receipts, a tuple of the nine fields of `SendReceipt`.
        ok: What their status is.
    """

    __slots__ = ("_make", "_ok")

    def __init__(self, make: Callable[..., Any], ok: object) -> None:
        self._make = make
        self._ok = ok

    def take(self, data: bytes, pending: dict[int, tuple[Any, int, int, Any]]) -> int:
        """Take whole frames from the front of `data`, as long as they are such answers.

        An entry of `pending` is: who waits, two times, and of sends the id of the message and its
        queue. Returns how many bytes were taken.
        """
        at = 0
        while True:
            size = 4 + int.from_bytes(data[at : at + 4], "big")
            if len(data) - at < size or size < 8:
                return at
            commands, _, bad = decode_frames(data[at : at + size], FRAME_BYTES_MAX, 1 << 20)
            if bad or not self._settle(commands[0], pending):
                return at
            at += size

    def _settle(self, answer: Command, pending: dict[int, tuple[Any, int, int, Any]]) -> bool:
        ext = answer.ext
        entry = pending.get(answer.opaque)
        if entry is None or entry[3] is None or answer.code or answer.flag != 1 or answer.body:
            return False
        msg_id, queue = entry[3]
        offset, region = ext.get("queueOffset", ""), ext.get("MSG_REGION", "DefaultRegion")
        if (
            not ext.keys() <= _RECEIPT_FIELDS
            or "msgId" not in ext
            or ext.get("queueId") != str(queue.queue_id)
            or not (0 < len(offset) <= 18 and offset.isascii() and offset.isdecimal())
            or not region
        ):
            return False
        del pending[answer.opaque]
        if not entry[0].done():
            entry[0].set_result(
                self._make(
                    self._ok,
                    msg_id,
                    ext["msgId"],
                    queue,
                    int(offset),
                    ext.get("transactionId"),
                    None,
                    region,
                    ext.get("TRACE_ON") != "false",
                )
            )
        return True
