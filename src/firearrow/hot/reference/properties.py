"""Properties of a stored record, without decoding anything else of it: what filters ask for."""

from __future__ import annotations

import struct
from typing import Final

from firearrow.base.errors import RecordError
from firearrow.hot.layout import (
    FLAG_BORN_HOST_V6,
    FLAG_STORE_HOST_V6,
    MAGIC_V1,
    RECORD_BYTES_MIN,
)

_PAIR_END: Final = b"\x02"
_NAME_VALUE: Final = b"\x01"


def property_values(
    record: bytes | bytearray | memoryview, names: tuple[bytes, ...]
) -> list[str | None]:
    """The values of some properties of a record, in the order of their names; None for the rest.

    As in `decode_properties`, the last value that is not empty counts. `record` is sound and whole;
    RecordError if its fields do not even fit into it.
    """
    found: dict[bytes, bytes | None] = dict.fromkeys(names)
    for pair in _properties(memoryview(record)).split(_PAIR_END):
        name, _, value = pair.partition(_NAME_VALUE)
        if value and name in found:
            found[name] = value
    values = [found[name] for name in names]
    return [None if value is None else value.decode("utf-8", "replace") for value in values]


def _properties(record: memoryview) -> bytes:
    """The last field: behind hosts, body and topic, whose lengths are in the record."""
    if len(record) < RECORD_BYTES_MIN:
        raise RecordError(f"{len(record)} bytes cannot hold a record")
    (magic,) = struct.unpack_from(">i", record, 4)
    (sys_flag,) = struct.unpack_from(">i", record, 36)
    at = 84  # the body's length, if both hosts are IPv4
    at += 12 if sys_flag & FLAG_BORN_HOST_V6 else 0
    at += 12 if sys_flag & FLAG_STORE_HOST_V6 else 0
    try:
        (body_bytes,) = struct.unpack_from(">i", record, at)
        at += 4 + body_bytes
        length = ">b" if magic == MAGIC_V1 else ">h"
        (topic_bytes,) = struct.unpack_from(length, record, at)
        at += struct.calcsize(length) + topic_bytes
        (properties_bytes,) = struct.unpack_from(">h", record, at)
    except struct.error:
        raise RecordError("the fields of a record do not fit into it") from None
    if min(body_bytes, topic_bytes) < 0 or at + 2 + properties_bytes != len(record):
        raise RecordError("the fields of a record do not fit into it")
    return bytes(record[at + 2 :])
