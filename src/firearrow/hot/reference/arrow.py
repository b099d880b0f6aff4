"""Stored messages as columns: from records that lie back to back to the buffers of Arrow arrays.

Only the columns that somebody asked for are made. Bodies come out as an application sees them:
`unwrap` unpacks a compressed record and takes an inner batch apart. Text that is no UTF-8 gets
replacement characters. Whoever knows Arrow wraps the buffers; nothing here imports it.
"""

from __future__ import annotations

import ipaddress
import struct
from typing import TYPE_CHECKING, NamedTuple

from firearrow.base.errors import RecordError
from firearrow.hot.layout import COLUMN_BYTES_MAX, COLUMN_KINDS, FLAG_PACKED, FLAG_WRAPPED
from firearrow.hot.reference.records import Record, decode_record
from firearrow.hot.reference.text import decode_properties, offset_message_id

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    Buffers = tuple[bytearray | int | None, ...]


class Row(NamedTuple):
    """One message, and where it was read."""

    record: Record
    properties: dict[str, str]
    broker: str
    offset: int
    size: int  # of the record that it was stored in, perhaps with others


class ArrowRows:
    """Collects rows of some columns; `take` hands the buffers out and begins anew.

    Args:
        columns: Names of `COLUMN_KINDS`, in the order in which `take` has them.
        unwrap: The messages of a record that is packed or holds several.
    """

    def __init__(
        self, columns: Sequence[str], unwrap: Callable[[Record], Sequence[Record]]
    ) -> None:
        unknown = [name for name in columns if name not in COLUMN_KINDS]
        if unknown:
            raise ValueError(f"no such columns: {unknown}")
        if {"body", "bodyText"} <= set(columns):
            raise ValueError("a body is either bytes or text")
        self._columns = tuple(columns)
        self._unwrap = unwrap
        self._rows: list[Row] = []
        self.size = 0  # bytes of bodies and properties, roughly

    @property
    def rows(self) -> int:
        """How many there are since the last `take`."""
        return len(self._rows)

    def add(  # noqa: PLR0917 - by position: it is called for every pull
        self,
        data: bytes | bytearray | memoryview,
        broker: str,
        from_offset: int,
        until_offset: int,
        delta: int = 0,
        tags: Collection[str] | None = None,
        *,
        check_crc: bool = True,
    ) -> int:
        """Add records whose offset (plus `delta`) and tag are wanted; how many rows that made.

        RecordError says what is wrong with bytes that are no records; nothing is added then.
        """
        found: list[Row] = []
        at = 0
        while at < len(data):
            record = decode_record(data, at, check_crc=check_crc)
            at += record.size
            inner = record.sys_flag & FLAG_WRAPPED == FLAG_WRAPPED
            if not inner and not from_offset <= record.queue_offset + delta < until_offset:
                continue
            usual = not inner and not (record.sys_flag & FLAG_PACKED and record.body)
            for one in (record,) if usual else self._unwrap(record):
                offset = one.queue_offset + delta
                properties = decode_properties(one.properties)
                if from_offset <= offset < until_offset and (
                    tags is None or properties.get("TAGS") in tags
                ):
                    found.append(Row(one, properties, broker, offset, record.size))
        self._rows += found
        self.size += sum(len(row.record.body) + len(row.record.properties) for row in found)
        return len(found)

    def take(self) -> list[Buffers]:
        """The buffers of each column, and no rows from now on."""
        rows, self._rows, self.size = self._rows, [], 0
        return [_column(name, rows) for name in self._columns]


def _column(name: str, rows: list[Row]) -> Buffers:
    kind = COLUMN_KINDS[name]
    if kind == "map":
        return _map_column([row.properties for row in rows])
    if kind == "int32":
        numbers = [_number(name, row) for row in rows]
        return (bytearray(struct.pack(f"<{len(rows)}i", *numbers)),)
    if kind in {"int64", "time"}:
        numbers = [_number(name, row) for row in rows]
        return (bytearray(struct.pack(f"<{len(rows)}q", *numbers)),)
    return _text_column([_text(name, row) for row in rows])


def _number(name: str, row: Row) -> int:  # noqa: PLR0911 - one line a column
    record = row.record
    match name:
        case "queueId":
            return record.queue_id
        case "offset":
            return row.offset
        case "bornTimestamp":
            return _microseconds(record.born_timestamp)
        case "storeTimestamp":
            return _microseconds(record.store_timestamp)
        case "reconsumeTimes":
            return record.reconsume_times
        case "flag":
            return record.flag
        case "sysFlag":
            return record.sys_flag
        case "physicalOffset":
            return record.physical_offset
        case "recordSize":
            return row.size
        case _:
            return record.prepared_offset


def _microseconds(ms: int) -> int:
    """As Java would multiply it: a hostile number wraps around."""
    return (ms * 1000 + (1 << 63)) % (1 << 64) - (1 << 63)


def _text(name: str, row: Row) -> bytes | None:  # noqa: PLR0911 - one line a column
    record = row.record
    match name:
        case "body":
            return record.body
        case "bodyText":
            return record.body.decode("utf-8", "replace").encode()
        case "propertiesRaw":
            return record.properties.encode()
        case "topic":
            return record.topic.encode()
        case "broker":
            return row.broker.encode()
        case "msgId":
            return row.properties.get("UNIQ_KEY", "").encode() or _offset_id(record)
        case "offsetMsgId":
            return _offset_id(record)
        case "bornHost":
            return _host(record.born_ip, record.born_port)
        case "storeHost":
            return _host(record.store_ip, record.store_port)
        case _:
            value = row.properties.get(name.upper())
            return None if value is None else value.encode()


def _offset_id(record: Record) -> bytes:
    port, place = record.store_port & 0xFFFFFFFF, record.physical_offset & ((1 << 63) - 1)
    return offset_message_id(record.store_ip, port, place).encode()


def _host(ip: bytes, port: int) -> bytes:
    if len(ip) == 4:
        return f"{ip[0]}.{ip[1]}.{ip[2]}.{ip[3]}:{port}".encode()
    return f"[{ipaddress.IPv6Address(ip)}]:{port}".encode()


def _text_column(values: list[bytes | None]) -> Buffers:
    offsets, joined = _joined(value or b"" for value in values)
    nulls = sum(value is None for value in values)
    validity = None
    if nulls:
        validity = bytearray((len(values) + 7) // 8)
        for number, value in enumerate(values):
            if value is not None:
                validity[number // 8] |= 1 << number % 8
    return offsets, joined, validity, nulls


def _map_column(rows: list[dict[str, str]]) -> Buffers:
    offsets = [0]
    for properties in rows:
        offsets.append(offsets[-1] + len(properties))
    names = _joined(name.encode() for properties in rows for name in properties)
    values = _joined(value.encode() for properties in rows for value in properties.values())
    return bytearray(struct.pack(f"<{len(offsets)}i", *offsets)), *names, *values


def _joined(values: Iterable[bytes]) -> tuple[bytearray, bytearray]:
    offsets = [0]
    joined = bytearray()
    for value in values:
        joined += value
        offsets.append(len(joined))
    if len(joined) > COLUMN_BYTES_MAX:
        raise RecordError(f"{len(joined)} bytes do not fit one column; take rows more often")
    return bytearray(struct.pack(f"<{len(offsets)}i", *offsets)), joined
