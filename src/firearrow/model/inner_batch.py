"""Batches that are stored as one record: several messages in the body of one."""

from __future__ import annotations

import struct
from typing import Final

from firearrow.hot import Record
from firearrow.model.compression import compression_of, unpack
from firearrow.model.message import FLAG_COMPRESSED, FLAG_INNER_BATCH, FLAG_NEED_UNWRAP

# One message inside an inner batch; the two zero words are a magic code and a CRC nobody fills:
#
#   | size 4 | 0 4 | 0 4 | flag 4 | body length 4 | body | properties length 2 | properties |
_INNER: Final = struct.Struct(">iiiii")
_INNER_BYTES_MIN: Final = _INNER.size + 2
_WRAPPED: Final = FLAG_INNER_BATCH | FLAG_NEED_UNWRAP


def is_inner_batch(sys_flag: int) -> bool:
    return sys_flag & _WRAPPED == _WRAPPED


def split_inner_batch(body: bytes) -> list[tuple[int, str, bytes]] | None:
    """Flag, properties and body of each message; None if the bytes do not divide up exactly."""
    found: list[tuple[int, str, bytes]] = []
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
        found.append((flag, text, body[body_at : body_at + length]))
        at += size
    return found


def inner_records(record: Record) -> list[Record]:
    """The messages of an inner batch as records of their own; the record itself if it is none.

    They share everything that the batch has once: place, size, times and hosts.
    """
    if not is_inner_batch(record.sys_flag):
        return [record]
    compression = compression_of(record.sys_flag)
    body = record.body if compression is None else unpack(record.body, compression)
    inner = split_inner_batch(body)
    if inner is None:
        return [record]
    return [
        Record(
            record.topic,
            part,
            properties,
            queue_id=record.queue_id,
            flag=flag,
            queue_offset=record.queue_offset + index,
            physical_offset=record.physical_offset,
            sys_flag=record.sys_flag & ~(_WRAPPED | FLAG_COMPRESSED),
            born_timestamp=record.born_timestamp,
            born_ip=record.born_ip,
            born_port=record.born_port,
            store_timestamp=record.store_timestamp,
            store_ip=record.store_ip,
            store_port=record.store_port,
            reconsume_times=record.reconsume_times,
            prepared_offset=record.prepared_offset,
            size=record.size,
        )
        for index, (flag, properties, part) in enumerate(inner)
    ]
