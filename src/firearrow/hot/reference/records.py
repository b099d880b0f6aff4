"""Stored messages: the record layout of the commit log, which is also the body of a pull.

    | size 4 | magic 4 | body crc 4 | queue id 4 | flag 4 | queue offset 8 | physical offset 8 |
    | sys flag 4 | born time 8 | born host 8/20 | store time 8 | store host 8/20 |
    | reconsume times 4 | prepared offset 8 | body length 4, body | topic length 1/2, topic |
    | properties length 2, properties |

All integers are big-endian and signed. A host is 4 or 16 bytes of IP and a 4-byte port; bits 0x10
and 0x20 of the sys flag say which. The topic length has 2 bytes in records of version 2.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from firearrow.base.errors import RecordError
from firearrow.hot.layout import (
    BLANK_BYTES,
    FLAG_BORN_HOST_V6,
    FLAG_STORE_HOST_V6,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    PROPERTIES_BYTES_MAX,
    RECORD_BYTES_MIN,
    TOPIC_V1_BYTES_MAX,
    TOPIC_V2_BYTES_MAX,
    Scan,
    ScannedRecord,
    Selected,
    Tiling,
    record_bytes,
)
from firearrow.hot.reference.text import crc31, java_hash

if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable

_FRONT: Final = struct.Struct(">iiiiiqqiq")  # size to born time: 48 bytes
_BACK: Final = struct.Struct(">iqi")  # reconsume times, prepared offset, body length
_SIZE_MAGIC: Final = struct.Struct(">ii")


class Record:
    """One stored message with every field of its record."""

    __slots__ = (
        "body",
        "body_crc",
        "born_ip",
        "born_port",
        "born_timestamp",
        "flag",
        "physical_offset",
        "prepared_offset",
        "properties",
        "queue_id",
        "queue_offset",
        "reconsume_times",
        "size",
        "store_ip",
        "store_port",
        "store_timestamp",
        "sys_flag",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        body: bytes,
        properties: str = "",
        *,
        queue_id: int = 0,
        flag: int = 0,
        queue_offset: int = 0,
        physical_offset: int = 0,
        sys_flag: int = 0,
        born_timestamp: int = 0,
        born_ip: bytes = b"\x7f\x00\x00\x01",
        born_port: int = 0,
        store_timestamp: int = 0,
        store_ip: bytes = b"\x7f\x00\x00\x01",
        store_port: int = 0,
        reconsume_times: int = 0,
        prepared_offset: int = 0,
        body_crc: int = 0,
        size: int = 0,
    ) -> None:
        self.topic = topic
        self.body = body
        self.properties = properties
        self.queue_id = queue_id
        self.flag = flag
        self.queue_offset = queue_offset
        self.physical_offset = physical_offset
        self.sys_flag = sys_flag
        self.born_timestamp = born_timestamp
        self.born_ip = born_ip
        self.born_port = born_port
        self.store_timestamp = store_timestamp
        self.store_ip = store_ip
        self.store_port = store_port
        self.reconsume_times = reconsume_times
        self.prepared_offset = prepared_offset
        self.body_crc = body_crc  # as read; encode_record computes its own
        self.size = size  # as read; encode_record computes its own

    def __repr__(self) -> str:
        return (
            f"Record({self.topic!r}, queue {self.queue_id} offset {self.queue_offset}, "
            f"physical {self.physical_offset}, body={len(self.body)} bytes)"
        )


def encode_record(record: Record) -> bytes:
    """The bytes of `record`; size, body CRC, version and host bits follow from its content."""
    return encode_with(write_record, record)


def encode_with(write: Callable[..., int], record: Record) -> bytes:
    """The same by either twin's `write_record`."""
    topic = record.topic.encode("utf-8", "replace")
    # The version is chosen by characters, as Java does, not by bytes.
    characters = len(record.topic.encode("utf-16-le", "surrogatepass")) // 2
    if characters <= TOPIC_V1_BYTES_MAX < len(topic):
        raise RecordError(f"topic of {len(topic)} bytes does not fit its length field")
    properties = record.properties.encode("utf-8", "replace")
    raw = bytearray(record_bytes(len(record.body), len(topic), len(properties)) + 24)
    size = write(
        raw,
        0,
        len(raw),
        topic,
        record.body,
        properties,
        record.queue_id,
        record.flag,
        record.queue_offset,
        record.physical_offset,
        record.sys_flag,
        record.born_timestamp,
        host_bytes(record.born_ip, record.born_port),
        record.store_timestamp,
        host_bytes(record.store_ip, record.store_port),
        record.reconsume_times,
        record.prepared_offset,
    )
    return bytes(raw[:size])


def host_bytes(ip: bytes, port: int) -> bytes:
    """A host as records hold it: 4 or 16 bytes of IP, 4 of port."""
    if len(ip) not in {4, 16}:
        raise RecordError("a host address is neither 4 nor 16 bytes long")
    try:
        return ip + struct.pack(">i", port)
    except struct.error as error:
        raise RecordError(f"a field does not fit its place: {error}") from None


def write_record(  # noqa: PLR0917 - called per message: keywords would cost more than the record
    buffer: bytearray | memoryview,
    position: int,
    stop: int,
    topic: bytes,
    body: bytes | bytearray | memoryview,
    properties: bytes,
    queue_id: int,
    flag: int,
    queue_offset: int,
    physical_offset: int,
    sys_flag: int,
    born_timestamp: int,
    born_host: bytes,
    store_timestamp: int,
    store_host: bytes,
    reconsume_times: int,
    prepared_offset: int,
) -> int:
    """Write a record straight into a log; returns its size, or 0 if it does not fit.

    Hosts are `host_bytes`. `stop` is where the caller's room ends.
    """
    long_topic = len(topic) > TOPIC_V1_BYTES_MAX
    if len(topic) > TOPIC_V2_BYTES_MAX or len(properties) > PROPERTIES_BYTES_MAX:
        longer, what = max((len(topic), "topic"), (len(properties), "properties"))
        raise RecordError(f"{what} of {longer} bytes; the limit is {PROPERTIES_BYTES_MAX}")
    size = record_bytes(len(body), len(topic), len(properties)) + (
        len(born_host) + len(store_host) - 16
    )
    if size > stop - position:
        return 0
    sys_flag &= ~(FLAG_BORN_HOST_V6 | FLAG_STORE_HOST_V6)
    if len(born_host) == 20:
        sys_flag |= FLAG_BORN_HOST_V6
    if len(store_host) == 20:
        sys_flag |= FLAG_STORE_HOST_V6
    try:
        raw = b"".join(
            (
                _FRONT.pack(
                    size,
                    MAGIC_V2 if long_topic else MAGIC_V1,
                    crc31(body),
                    queue_id,
                    flag,
                    queue_offset,
                    physical_offset,
                    sys_flag,
                    born_timestamp,
                ),
                born_host,
                struct.pack(">q", store_timestamp),
                store_host,
                _BACK.pack(reconsume_times, prepared_offset, len(body)),
                body,
                len(topic).to_bytes(2 if long_topic else 1, "big"),
                topic,
                len(properties).to_bytes(2, "big"),
                properties,
            )
        )
    except struct.error as error:
        raise RecordError(f"a field does not fit its place: {error}") from None
    assert len(raw) == size
    buffer[position : position + size] = raw
    return size


def decode_record(
    data: bytes | bytearray | memoryview, position: int = 0, *, check_crc: bool = True
) -> Record:
    """Decode the record at `position`; raises RecordError when it is not whole and sound."""
    stop = len(data)
    if position < 0 or stop - position < RECORD_BYTES_MIN:
        raise RecordError(f"{max(0, stop - position)} bytes cannot hold a record")
    size, magic = _SIZE_MAGIC.unpack_from(data, position)
    if magic not in {MAGIC_V1, MAGIC_V2}:
        raise RecordError(f"magic code {magic & 0xFFFFFFFF:#010x} is not a record's")
    if size < RECORD_BYTES_MIN or size > stop - position:
        raise RecordError(f"record of {size} bytes where {stop - position} are left")
    with memoryview(data)[position : position + size] as record:
        return _decode(record, check_crc=check_crc)


def decode_records(data: bytes) -> list[Record]:
    """Every record of a pull's answer; RecordError if one is not whole and sound."""
    found = []
    at = 0
    while at < len(data):
        record = decode_record(data, at)
        found.append(record)
        at += record.size
    return found


def _decode(raw: memoryview, *, check_crc: bool) -> Record:
    size, magic, crc, queue_id, flag, queue_offset, physical, sys_flag, born_time = (
        _FRONT.unpack_from(raw)
    )
    at = _FRONT.size
    born_bytes = 16 if sys_flag & FLAG_BORN_HOST_V6 else 4
    store_bytes = 16 if sys_flag & FLAG_STORE_HOST_V6 else 4
    topic_length_bytes = 1 if magic == MAGIC_V1 else 2
    # Behind the hosts: 32 bytes of numbers, then at least the two remaining length fields.
    if size < at + born_bytes + store_bytes + 32 + topic_length_bytes + 2:
        raise RecordError(f"record of {size} bytes is too small for its hosts")
    born_ip = bytes(raw[at : at + born_bytes])
    at += born_bytes
    born_port, store_time = struct.unpack_from(">iq", raw, at)
    at += 12
    store_ip = bytes(raw[at : at + store_bytes])
    at += store_bytes
    store_port, reconsume_times, prepared, body_bytes = struct.unpack_from(">iiqi", raw, at)
    at += 20
    if not 0 <= body_bytes <= size - at - topic_length_bytes - 2:
        raise RecordError(f"body of {body_bytes} bytes in a record of {size}")
    body = bytes(raw[at : at + body_bytes])
    at += body_bytes
    (topic_bytes,) = struct.unpack_from(">b" if topic_length_bytes == 1 else ">h", raw, at)
    at += topic_length_bytes
    if not 0 <= topic_bytes <= size - at - 2:
        raise RecordError(f"topic of {topic_bytes} bytes in a record of {size}")
    topic = bytes(raw[at : at + topic_bytes]).decode("utf-8", "replace")
    at += topic_bytes
    (properties_bytes,) = struct.unpack_from(">h", raw, at)
    at += 2
    if at + properties_bytes != size or properties_bytes < 0:
        raise RecordError(f"fields end at {at + properties_bytes}, the record at {size}")
    if check_crc and body_bytes and crc31(body) != crc:
        raise RecordError(f"body CRC is {crc31(body):#010x}, the record says {crc:#010x}")
    return Record(
        topic,
        body,
        bytes(raw[at:]).decode("utf-8", "replace"),
        queue_id=queue_id,
        flag=flag,
        queue_offset=queue_offset,
        physical_offset=physical,
        sys_flag=sys_flag,
        born_timestamp=born_time,
        born_ip=born_ip,
        born_port=born_port,
        store_timestamp=store_time,
        store_ip=store_ip,
        store_port=store_port,
        reconsume_times=reconsume_times,
        prepared_offset=prepared,
        body_crc=crc,
        size=size,
    )


def scan_records(  # noqa: PLR0911 - one return per ending
    data: bytes | bytearray | memoryview, start: int, stop: int, *, check_crc: bool = False
) -> Scan:
    """Walk records that lie back to back in ``data[start:stop]``."""
    records: list[ScannedRecord] = []
    at = start
    if not 0 <= start <= stop <= len(data):
        raise ValueError(f"range {start} to {stop} outside a buffer of {len(data)} bytes")
    while True:
        if stop - at < BLANK_BYTES:
            # Too short even for a filler: the buffer ends here, or a record is cut in its size.
            rest = bytes(data[at:stop])
            return Scan(records, at, "partial" if rest.strip(b"\0") else "end", "")
        size, magic = _SIZE_MAGIC.unpack_from(data, at)
        if magic == MAGIC_BLANK:
            if size < BLANK_BYTES:
                return Scan(records, at, "broken", f"filler of {size} bytes")
            return Scan(records, min(at + size, stop), "blank", "")
        if size == 0 and magic == 0:
            return Scan(records, at, "end", "")
        if magic not in {MAGIC_V1, MAGIC_V2}:
            reason = f"magic code {magic & 0xFFFFFFFF:#010x} is not a record's"
            return Scan(records, at, "broken", reason)
        if size < RECORD_BYTES_MIN:
            return Scan(records, at, "broken", f"record of {size} bytes")
        if size > stop - at:
            return Scan(records, at, "partial", f"record of {size} bytes, {stop - at} are left")
        try:
            with memoryview(data)[at : at + size] as raw:
                record = _decode(raw, check_crc=check_crc)
        except RecordError as error:
            return Scan(records, at, "broken", str(error))
        records.append(_scanned(record, at))
        at += size


def tile_records(
    data: bytes | bytearray | memoryview | mmap.mmap,
    start: int,
    stop: int,
    first_offset: int,
    every: int,
) -> Tiling:
    """Hop from record to record, touching no body; `first_offset` is that of ``data[0]``.

    Whoever wants to begin in the middle of a file needs this: a body may hold anything, also what
    looks like a record, so a place is a record's beginning only if those before it lead there.
    """
    if not 0 <= start <= stop <= len(data) or every < 1:
        raise ValueError(f"range {start} to {stop} outside a buffer of {len(data)} bytes")
    starts: list[tuple[int, int]] = []
    at, wanted, records, timestamp, falls = start, start, 0, 0, False
    while stop - at >= BLANK_BYTES:
        size, magic = _SIZE_MAGIC.unpack_from(data, at)
        if size == 0 and magic == 0:
            return Tiling(starts, at, records, "end", timestamp, falls)
        if magic == MAGIC_BLANK and size == stop - at:
            return Tiling(starts, at, records, "blank", timestamp, falls)
        if magic not in {MAGIC_V1, MAGIC_V2} or not RECORD_BYTES_MIN <= size <= stop - at:
            return Tiling(starts, at, records, "broken", timestamp, falls)
        with memoryview(data)[at : at + size] as raw:
            try:
                record = _decode(raw, check_crc=False)
            except RecordError:
                return Tiling(starts, at, records, "broken", timestamp, falls)
        if record.physical_offset != first_offset + at:
            return Tiling(starts, at, records, "broken", timestamp, falls)
        falls = falls or (records > 0 and record.store_timestamp < timestamp)
        timestamp = record.store_timestamp
        if at >= wanted:
            starts.append((at, timestamp))
            wanted = at - (at - start) % every + every
        records += 1
        at += size
    return Tiling(starts, at, records, "end" if at == stop else "broken", timestamp, falls)


def select_records(  # noqa: PLR0917 - called per window, by position as its neighbours
    data: bytes | bytearray | memoryview | mmap.mmap,
    start: int,
    stop: int,
    first_offset: int,
    begin_ms: int,
    end_ms: int,
    topics: dict[bytes, bool] | None,
    wants: Callable[[str], bool],
    bytes_max: int,
) -> Selected:
    """Sound records from `start` on that were stored in a span of time, in topics that are wanted.

    Every record is proved, wanted or not: its parts add up, its body has its checksum, and it says
    that it lies here. `topics` remembers what `wants` said; None wants all.
    """
    if not 0 <= start <= stop <= len(data):
        raise ValueError(f"range {start} to {stop} outside a buffer of {len(data)} bytes")
    runs: list[tuple[int, int]] = []
    at, taken = start, 0
    while at < stop:
        if taken >= bytes_max:
            return Selected(runs, at, "full")
        try:
            with memoryview(data)[at:stop] as rest:
                record = decode_record(rest)
        except RecordError:
            return Selected(runs, at, "odd")
        if record.physical_offset != first_offset + at:
            return Selected(runs, at, "odd")
        wanted = begin_ms <= record.store_timestamp < end_ms
        if wanted and topics is not None:
            topic = record.topic.encode()
            if topic not in topics:
                topics[topic] = wants(record.topic)
            wanted = topics[topic]
        if wanted:
            taken += record.size
            if runs and runs[-1][1] == at:
                runs[-1] = (runs[-1][0], at + record.size)
            else:
                runs.append((at, at + record.size))
        at += record.size
    return Selected(runs, at, "stop")


def _scanned(record: Record, position: int) -> ScannedRecord:
    return ScannedRecord(
        position,
        record.size,
        record.topic,
        record.queue_id,
        record.queue_offset,
        record.physical_offset,
        record.sys_flag,
        record.store_timestamp,
        record.prepared_offset,
        tags_code(record.properties),
        record.properties,
    )


def tags_code(properties: str) -> int:
    """Java hash of the last TAGS value of a property string; 0 without one."""
    code = 0
    for pair in properties.split("\x02"):
        name, _, value = pair.partition("\x01")
        if name == "TAGS" and value:
            code = java_hash(value)
    return code
