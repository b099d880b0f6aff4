"""What follows from a record: an entry in its queue, and entries in the key index.

    entry of a consume queue   | physical offset 8 | size 4 | tags code 8 |

`derive_records` does it for ordinary records, one read of the log after the other, and stops at
the first that is not ordinary; the store then takes that one by its general rules and comes back.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from firearrow.base.errors import RecordError
from firearrow.hot.layout import (
    ENTRY_BYTES,
    FILLER_SIZE,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_BYTES_MIN,
    Derived,
    Gathered,
)
from firearrow.hot.reference.records import decode_record
from firearrow.hot.reference.text import crc31, java_hash

if TYPE_CHECKING:
    from collections.abc import Collection

    from firearrow.hot.reference.keys import KeyTable

_ENTRY: Final = struct.Struct(">qiq")
_SIZE_MAGIC: Final = struct.Struct(">ii")
_INNER_BATCH: Final = 0x80
_KEYS_MAX: Final = 64  # of one record; one with more is left to the general rules
assert _ENTRY.size == ENTRY_BYTES


class QueueTail:
    """One queue as far as it lives in memory: its next offset, and its newest entries.

    `next_offset` is what the next message gets, `max_offset` is behind the last entry; between
    them lies what is in the log but not derived yet. `tail` holds entries from `tail_first` on.
    Readers begin at `min_offset`. `window` may hold some older entries, from `window_first` on,
    that whoever owns the files has put there for `PullPath`.
    """

    __slots__ = (
        "grown",
        "keys_hash",
        "max_offset",
        "min_offset",
        "next_offset",
        "plain",
        "queue_id",
        "tail",
        "tail_first",
        "topic",
        "topic_bytes",
        "window",
        "window_first",
    )

    def __init__(self, topic: str, queue_id: int, *, plain: bool = True) -> None:
        self.topic = topic
        self.topic_bytes = topic.encode("utf-8", "replace")
        self.queue_id = queue_id
        self.plain = plain  # False: entries of this queue follow rules of their own
        self.keys_hash = java_hash(topic + "#")  # every key of the index begins with this
        self.grown = False  # it is in the list of those that `derive_records` added to
        self.next_offset = self.max_offset = self.tail_first = 0
        self.tail = bytearray()
        self.min_offset = self.window_first = 0
        self.window = b""

    def add_entry(self, physical_offset: int, size: int, tags_code: int) -> None:
        """Add the entry of the next message."""
        self.tail += _ENTRY.pack(physical_offset, size, tags_code)
        self.max_offset += 1


def queue_key(topic: bytes, queue_id: int) -> bytes:
    """Under which `derive_records` looks a queue up."""
    return topic + queue_id.to_bytes(4, "big", signed=True)


def derive_records(  # noqa: PLR0917 - called per batch of the log
    data: bytes | bytearray | memoryview,
    start: int,
    stop: int,
    first_offset: int,
    queues: dict[bytes, QueueTail],
    table: KeyTable | None,
    grown: list[QueueTail],
) -> Derived:
    """Derive entries from the records in ``data[start:stop]``, as long as they are ordinary.

    `data[0]` is at `first_offset` of the log. Ordinary is a sound record that lies where it says,
    is no half or rolled-back message and no batch, continues a plain queue that is in `queues`,
    has a topic, a tag and keys of ASCII, and keys for which `table` has room. Queues that grow are
    added to `grown`, each once, until their mark is taken off.
    """
    at = start
    records = last_timestamp = 0
    while stop - at >= RECORD_BYTES_MIN:
        size, magic = _SIZE_MAGIC.unpack_from(data, at)
        if magic not in {MAGIC_V1, MAGIC_V2} or not RECORD_BYTES_MIN <= size <= stop - at:
            break
        try:
            record = decode_record(memoryview(data)[at : at + size], check_crc=False)
        except RecordError:
            break
        if not record.topic.isascii():
            break
        queue = queues.get(queue_key(record.topic.encode(), record.queue_id))
        if (
            queue is None
            or not queue.plain
            or record.physical_offset != first_offset + at
            or record.sys_flag & (_INNER_BATCH | 0x4)
            or record.queue_offset != queue.max_offset
        ):
            break
        found = _ordinary_properties(record.properties)
        if found is None:
            break
        tags, keys = found
        if table is not None and record.physical_offset >= table.end_offset:
            if len(keys) > table.free:
                break
            hashes = [key_hash(queue.topic, key) for key in keys]
            table.insert(hashes, 0, record.physical_offset, record.store_timestamp)
        queue.add_entry(record.physical_offset, size, java_hash(tags) if tags else 0)
        if not queue.grown:
            queue.grown = True
            grown.append(queue)
        records += 1
        last_timestamp = record.store_timestamp
        at += size
    return Derived(at, records, last_timestamp)


def _ordinary_properties(properties: str) -> tuple[str, list[str]] | None:
    """The tag and the keys; None if they, or something else, need the general rules."""
    tags = unique = own = ""
    for pair in properties.split("\x02"):
        name, _, value = pair.partition("\x01")
        if name == "INNER_MULTI_DISPATCH":
            return None
        if not value or name not in {"TAGS", "KEYS", "UNIQ_KEY"}:
            continue
        if not value.isascii():
            return None
        if name == "TAGS":
            tags = value
        elif name == "KEYS":
            own = value
        else:
            unique = value
    keys = [unique] if unique else []
    keys += [key for key in own.split(" ") if key]
    return (tags, keys) if len(keys) <= _KEYS_MAX else None


def key_hash(topic: str, key: str) -> int:
    """What the index stores for a key: Java's hash without its sign (0 where it has none)."""
    value = java_hash(f"{topic}#{key}")
    return (-value if value < 0 else value) & 0x7FFFFFFF


def gather_entries(  # noqa: PLR0917 - called per pull
    entries: bytes | bytearray | memoryview,
    most: int,
    bytes_max: int,
    cold_most: int,
    cold_bytes_max: int,
    cold_before: int,
    codes: Collection[int] | None,
    files: dict[int, memoryview],
    file_bytes: int,
    verified_from: int,
    topic: bytes,
    queue_id: int,
    first_offset: int,
) -> Gathered:
    """The records of these entries, as slices of the log's own memory.

    At most `most` records and `bytes_max` bytes, but always one record; the smaller `cold` limits
    hold for records before `cold_before`. `codes` are tag hashes that are wanted, None all. `files`
    is the memory of log files by their first offset, all of `file_bytes`. A record that is not in
    them, or not what it should be, ends it. Those before `verified_from` have their bodies checked,
    and whether they are of this topic and queue; `first_offset` is what the first one must have.
    """
    slices: list[memoryview] = []
    records = total = examined = 0
    physical = open_start = -1
    first = last = 0  # of the slice that is still growing
    whole = True
    for number, (physical, size, tags_code) in enumerate(
        _ENTRY.iter_unpack(memoryview(entries)[: len(entries) // ENTRY_BYTES * ENTRY_BYTES])
    ):
        cold = physical < cold_before
        if records and (
            records >= (cold_most if cold else most)
            or total + size > (cold_bytes_max if cold else bytes_max)
        ):
            break
        if size == FILLER_SIZE or (codes is not None and _as_int(tags_code) not in codes):
            examined += 1
            continue
        start = physical - physical % file_bytes if physical >= 0 else -1
        at = physical - start
        data = files.get(start)
        if data is None or not 0 < size <= file_bytes - at:
            whole = False
            break
        if check_run(data, at, at + size, start, check_crc=physical < verified_from) != at + size:
            whole = False
            break
        if physical < verified_from and _owner(data, at) != (
            topic,
            queue_id,
            first_offset + number,
        ):
            whole = False
            break
        examined += 1
        records += 1
        total += size
        if start == open_start and last == at:
            last = at + size
            continue
        if open_start >= 0:
            slices.append(files[open_start][first:last])
        open_start, first, last = start, at, at + size
    if open_start >= 0:
        slices.append(files[open_start][first:last])
    return Gathered(examined, records, total, slices, physical, whole)


def _owner(data: memoryview, at: int) -> tuple[bytes, int, int]:
    """Topic, queue and queue offset of a sound record, as they are stored."""
    record = decode_record(data, at, check_crc=False)
    (magic,) = struct.unpack_from(">i", data, at + 4)
    at += 80 + len(record.born_ip) + len(record.store_ip) + len(record.body)
    length_bytes = 1 if magic == MAGIC_V1 else 2
    stop = at + length_bytes + int.from_bytes(data[at : at + length_bytes], "big")
    return bytes(data[at + length_bytes : stop]), record.queue_id, record.queue_offset


def _as_int(value: int) -> int:
    """The low 32 bits, signed: what RocketMQ compares."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def check_run(
    data: bytes | bytearray | memoryview,
    start: int,
    stop: int,
    first_offset: int,
    *,
    check_crc: bool,
    check_torn: bool = False,
) -> int:
    """Walk records in ``data[start:stop]``; returns where soundness ends, `stop` if it does not.

    `data[0]` is at `first_offset` of the log. Looks at sizes, magic codes and offsets, and with
    `check_crc` at the fields and bodies too. The CRC does not cover what is behind the body: with
    `check_torn` a record fails if there are zeros in its topic or properties, where `LogWriter`
    writes none. Files are zeroed before they are written, so that part of it never was.
    """
    at = start
    while stop - at >= RECORD_BYTES_MIN:
        size, magic = _SIZE_MAGIC.unpack_from(data, at)
        if magic not in {MAGIC_V1, MAGIC_V2} or not RECORD_BYTES_MIN <= size <= stop - at:
            return at
        if int.from_bytes(data[at + 28 : at + 36], "big", signed=True) != first_offset + at:
            return at
        if check_crc:
            try:
                record = decode_record(memoryview(data)[at : at + size], check_crc=False)
            except RecordError:
                return at
            if record.body and crc31(record.body) != record.body_crc:
                return at
            if check_torn and ("\0" in record.topic or "\0" in record.properties):
                return at
        at += size
    return at
