"""Bodies as the application sees them: unpacked, and inner batches taken apart.

The store keeps what producers sent; only tools that show messages need this. A body that cannot be
unpacked stays as stored and a note says why.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from firearrow.hot import decode_properties
from firearrow.model.compression import CompressionError, compression_of, unpack
from firearrow.model.message import FLAG_INNER_BATCH, FLAG_NEED_UNWRAP

if TYPE_CHECKING:
    from firearrow.hot import Record

# One message inside an inner batch; the two zero words are a magic code and a CRC nobody fills:
#
#   | size 4 | 0 4 | 0 4 | flag 4 | body length 4 | body | properties length 2 | properties |
_INNER: Final = struct.Struct(">iiiii")
_INNER_BYTES_MIN: Final = _INNER.size + 2


class Message(NamedTuple):
    """One message as a consumer would get it."""

    record: Record
    queue_offset: int
    flag: int
    properties: dict[str, str]
    body: bytes
    note: str  # why the body is still packed; empty if it is not
    inner_index: int | None  # place in its inner batch


def is_inner_batch(sys_flag: int) -> bool:
    wrapped = FLAG_INNER_BATCH | FLAG_NEED_UNWRAP
    return sys_flag & wrapped == wrapped


def messages_of(record: Record) -> list[Message]:
    """The message of a record, or those of its inner batch. Never raises on odd bytes."""
    body, note = record.body, ""
    compression = compression_of(record.sys_flag)
    if compression is not None and body:
        try:
            body = unpack(body, compression)
        except CompressionError as error:
            note = f"body as stored: {error}"
    if is_inner_batch(record.sys_flag) and not note:
        inner = split_inner_batch(body)
        if inner is not None:
            return [
                Message(record, record.queue_offset + index, flag, properties, part, "", index)
                for index, (flag, properties, part) in enumerate(inner)
            ]
        note = "body as stored: it is not an inner batch, although the record says so"
    properties = decode_properties(record.properties)
    return [Message(record, record.queue_offset, record.flag, properties, body, note, None)]


def split_inner_batch(body: bytes) -> list[tuple[int, dict[str, str], bytes]] | None:
    """Flag, properties and body of each message; None if the bytes do not divide up exactly."""
    found: list[tuple[int, dict[str, str], bytes]] = []
    at = 0
    while at < len(body):
        if len(body) - at < _INNER_BYTES_MIN:
            return None
        size, _, _, flag, length = _INNER.unpack_from(body, at)
        body_at = at + _INNER.size
        if not (_INNER_BYTES_MIN <= size <= len(body) - at):
            return None
        if not 0 <= length <= size - _INNER_BYTES_MIN:
            return None
        properties_at = body_at + length + 2
        properties_bytes = int.from_bytes(body[properties_at - 2 : properties_at], "big")
        if properties_at + properties_bytes != at + size:
            return None
        text = body[properties_at : at + size].decode("utf-8", "replace")
        found.append((flag, decode_properties(text), body[body_at : body_at + length]))
        at += size
    return found
