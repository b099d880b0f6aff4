"""Columns to batches: rows of a table, as Arrow lays them out, as the messages of a batch.

    body      | o0 o1 o2 ... |  | bytes ......... |     offsets and data, a bit per row for nulls
    TAGS      | o0 o1 o2 ... |  | text .......... |
    pairs     | o0 o1 o2 ... |  names and values, columns of their own

One message of a batch; the two zero words are a magic code and a CRC that nobody fills:

    | size 4 | 0 4 | 0 4 | flag 4 | body length 4, body | properties length 2, properties |

There is no object per row, and nothing here knows Arrow: buffers come in, bytes go out.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from firearrow.hot.layout import PROPERTIES_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

Buffer: TypeAlias = "bytes | bytearray | memoryview"

_OFFSET: Final = struct.Struct("=i")
_HEAD: Final = struct.Struct(">iiiii")
_KEY: Final = b"UNIQ_KEY\x01"
COUNTER_MAX: Final = 1 << 16


class TextColumn(NamedTuple):
    """Texts or bytes of variable length; `first` is the row of the buffers that counts as 0."""

    valid: Buffer | None  # a bit per row, lowest first; None: all are there
    offsets: Buffer  # 32 bits each, in the machine's order
    data: Buffer
    first: int


class PairsColumn(NamedTuple):
    """Names and values for each row."""

    valid: Buffer | None
    offsets: Buffer  # into the two columns
    first: int
    names: TextColumn
    values: TextColumn


def encode_rows(
    body: TextColumn,
    texts: Sequence[tuple[bytes, TextColumn]],
    pairs: PairsColumn | None,
    *,
    start: int,
    stop: int,
    bytes_max: int,
    key_head: bytes,
    counter: int,
) -> tuple[bytes, int]:
    """Rows from `start` on as a batch of at most `bytes_max` bytes, and the first row behind them.

    One row at least, whatever its size. Each gets a UNIQ_KEY: `key_head`, and `counter` counted up
    in four hexadecimal digits. Texts and values that are null or empty make no property.

    Raises:
        ValueError: for a row that cannot be a message; `args` are the row and the reason.
    """
    parts: list[bytes] = []
    size = 0
    row = start
    while row < stop and counter < COUNTER_MAX:
        content = _value(body, row)
        if not content:
            raise ValueError(row, "it has no body, and a message needs at least one byte")
        properties = [_KEY, key_head, b"%04X\x02" % counter]
        for name, column in texts:
            value = _value(column, row)
            if value:
                properties += [name, b"\x01", _checked(value, row, name), b"\x02"]
        if pairs is not None and _is_valid(pairs.valid, pairs.first + row):
            first, behind = _span(pairs.offsets, pairs.first + row)
            for place in range(first, behind):
                named, value = _value(pairs.names, place), _value(pairs.values, place)
                if not named:
                    raise ValueError(row, "it has a property without a name")
                if value:
                    _checked(named, row, named)
                    properties += [named, b"\x01", _checked(value, row, named), b"\x02"]
        text = b"".join(properties)
        if len(text) > PROPERTIES_BYTES_MAX:
            raise ValueError(
                row, f"its properties have {len(text)} bytes; the limit is {PROPERTIES_BYTES_MAX}"
            )
        one = _HEAD.size + 2 + len(content) + len(text)
        if parts and size + one > bytes_max:
            break
        parts += [_HEAD.pack(one, 0, 0, 0, len(content)), content]
        parts += [len(text).to_bytes(2, "big"), text]
        size += one
        row += 1
        counter += 1
    return b"".join(parts), row


def _checked(value: bytes, row: int, name: bytes) -> bytes:
    if b"\x01" in value or b"\x02" in value or b"\0" in value:
        shown = name.decode("utf-8", "replace")
        raise ValueError(row, f"{shown} has a character 0, 1 or 2, which RocketMQ cannot carry")
    return value


def _value(column: TextColumn, row: int) -> bytes | None:
    if not _is_valid(column.valid, column.first + row):
        return None
    first, behind = _span(column.offsets, column.first + row)
    return bytes(column.data[first:behind])


def _span(offsets: Buffer, row: int) -> tuple[int, int]:
    return _OFFSET.unpack_from(offsets, 4 * row)[0], _OFFSET.unpack_from(offsets, 4 * row + 4)[0]


def _is_valid(valid: Buffer | None, row: int) -> bool:
    return valid is None or bool(memoryview(valid)[row >> 3] >> (row & 7) & 1)
