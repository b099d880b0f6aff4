"""Bodies as the application sees them: unpacked, and inner batches taken apart.

The store keeps what producers sent; only tools that show messages need this. A body that cannot be
unpacked stays as stored and a note says why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from firearrow.hot import decode_properties
from firearrow.model.compression import CompressionError, compression_of, unpack
from firearrow.model.inner_batch import is_inner_batch, split_inner_batch

if TYPE_CHECKING:
    from firearrow.hot import Record


class Message(NamedTuple):
    """One message as a consumer would get it."""

    record: Record
    queue_offset: int
    flag: int
    properties: dict[str, str]
    body: bytes
    note: str  # why the body is still packed; empty if it is not
    inner_index: int | None  # place in its inner batch


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
                Message(
                    record,
                    record.queue_offset + index,
                    flag,
                    decode_properties(properties),
                    part,
                    "",
                    index,
                )
                for index, (flag, properties, part) in enumerate(inner)
            ]
        note = "body as stored: it is not an inner batch, although the record says so"
    properties = decode_properties(record.properties)
    return [Message(record, record.queue_offset, record.flag, properties, body, note, None)]
