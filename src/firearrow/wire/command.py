"""Commands: how requests and replies are made, and how a byte stream becomes commands.

`Command` itself is `hot.Command`, since decoding makes one per frame.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from firearrow.base.errors import PeerProtocolError
from firearrow.hot import Command, decode_frames, encode_frame, encode_head
from firearrow.wire.codes import Flag

if TYPE_CHECKING:
    from firearrow.wire.header import Header

__all__ = ["Command", "FrameDecoder", "encode_frame", "encode_head", "reply_to", "request"]

FRAME_BYTES_MAX: Final = 16 * 1024 * 1024  # Java's limit, in both directions, with the length word
# Java has no limit of its own here. The largest honest header holds a property string of 32 KiB,
# six bytes per escaped character, or a list of some thousand topic names.
HEADER_BYTES_MAX: Final = 1024 * 1024


def request(
    code: int, header: Header | None = None, body: bytes = b"", *, oneway: bool = False
) -> Command:
    """A request of ours; its opaque is given by the connection that sends it."""
    ext = None if header is None else header.to_ext()
    return Command(code, ext, body, flag=int(Flag.ONEWAY) if oneway else 0)


def reply_to(
    asked: Command,
    code: int = 0,
    header: Header | None = None,
    body: bytes = b"",
    *,
    remark: str | None = None,
) -> Command:
    """The answer to a request, in the serialization that its sender understands.

    Java servers answer in their own configured form. C++ and Node clients only read JSON, and
    nobody sends a form it cannot read, so the request's own form is the safe one.
    """
    return Command(
        code,
        None if header is None else header.to_ext(),
        body,
        opaque=asked.opaque,
        flag=int(Flag.RESPONSE),
        remark=remark,
        serializer=asked.serializer,
    )


class FrameDecoder:
    """Bytes in, commands out; no I/O. After `failure` is set the stream is beyond repair."""

    __slots__ = ("_frame_bytes_max", "_header_bytes_max", "failure", "pending")

    def __init__(
        self,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        header_bytes_max: int = HEADER_BYTES_MAX,
    ) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._header_bytes_max = header_bytes_max
        self.pending = bytearray()  # what is held of an unfinished frame
        self.failure: PeerProtocolError | None = None

    @property
    def pending_bytes(self) -> int:
        """How much of an unfinished frame is held in memory."""
        return len(self.pending)

    def completes(self, chunk: bytes) -> bool:
        """Whether a frame is whole with `chunk`: before that there is nothing to look at."""
        pending = self.pending
        if len(pending) < 4:
            return True
        return len(pending) + len(chunk) >= 4 + int.from_bytes(pending[:4], "big")

    def take_pending(self, chunk: bytes) -> bytes:
        """What is held of an unfinished frame, and what follows it; nothing is held then."""
        if not self.pending:
            return chunk
        data = bytes(self.pending) + chunk
        self.pending.clear()
        return data

    def feed(self, chunk: bytes) -> list[Command]:
        """Every command that `chunk` completes. What follows a broken frame is ignored."""
        if self.failure is not None:
            return []
        pending = self.pending
        data: bytes | bytearray = chunk
        if pending:
            pending += chunk
            data = pending
        commands, used, bad = decode_frames(data, self._frame_bytes_max, self._header_bytes_max)
        if bad:
            self.failure = PeerProtocolError(bad)
            pending.clear()
        elif pending:
            del pending[:used]  # once per chunk, so the cost stays linear
        elif used < len(chunk):
            pending += memoryview(chunk)[used:]
        return commands
