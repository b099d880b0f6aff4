"""What follows from a record, in general: its tags code, its keys, whether it has a queue.

`hot.derive_records` knows the ordinary case of these rules and leaves the rest to them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from firearrow.hot import check_run, scan_records
from firearrow.hot.layout import TOPIC_BYTES_MAX
from firearrow.model.message import (
    DELAY,
    FLAG_INNER_BATCH,
    FLAG_TRANSACTION,
    KEY_SEPARATOR,
    KEYS,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    UNIQ_KEY,
)
from firearrow.model.topic import SCHEDULE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from firearrow.hot import ScannedRecord
    from firearrow.store.segments import Segments

WINDOW_BYTES: Final = 4 * 1024 * 1024  # scanned at a time, which bounds the memory of a scan
UNKNOWN_LEVEL_DELAY_MS: Final = 1_000
_MAGIC: Final = re.compile(rb"\xda\xa3\x20[\xa7\xab]")
_MAGIC_AT: Final = 4


def can_be_queued(topic: str, queue_id: int, queue_offset: int = 0) -> bool:
    """Whether a queue can have this name, which becomes that of a folder, and this offset."""
    return (
        queue_offset >= 0
        and 0 < len(topic.encode("utf-8", "replace")) <= TOPIC_BYTES_MAX
        and queue_id >= 0
        and topic not in {".", ".."}
        and not set(topic) & {"/", "\0"}
    )


def is_queued(sys_flag: int) -> bool:
    """Half and rolled-back messages of old brokers are in no queue, inner batches in none of the
    usual kind.
    """  # noqa: D205 - one thought
    return not sys_flag & FLAG_INNER_BATCH and (
        sys_flag & FLAG_TRANSACTION not in {TRANSACTION_PREPARED, TRANSACTION_ROLLBACK}
    )


def is_indexed(sys_flag: int) -> bool:
    return sys_flag & FLAG_TRANSACTION != TRANSACTION_ROLLBACK


def tags_code(record: ScannedRecord, delay_levels_ms: Sequence[int]) -> int:
    """What a queue entry says about a message: the hash of its tag, or when it is due."""
    if record.topic == SCHEDULE_TOPIC:
        level = property_of(record.properties, DELAY)
        if level is not None and level.isascii() and level.isdecimal() and int(level) > 0:
            if not delay_levels_ms:
                return record.store_timestamp + UNKNOWN_LEVEL_DELAY_MS
            index = min(int(level), len(delay_levels_ms)) - 1
            return record.store_timestamp + delay_levels_ms[index]
    return record.tags_code


def index_keys(properties: str) -> list[str]:
    """Under which keys a message is found: its unique key, then each of its own keys."""
    keys = []
    unique = property_of(properties, UNIQ_KEY)
    if unique:
        keys.append(unique)
    own = property_of(properties, KEYS)
    if own:
        keys += [key for key in own.split(KEY_SEPARATOR) if key]
    return keys


def property_of(properties: str, name: str) -> str | None:
    """One value out of a property string, without taking the rest apart; the last one counts."""
    found = None
    at = properties.find(name)
    while at >= 0:
        end = at + len(name)
        if properties[end : end + 1] == "\x01" and (at == 0 or properties[at - 1] == "\x02"):
            stop = properties.find("\x02", end)
            value = properties[end + 1 : stop if stop >= 0 else None]
            found = value or found
        at = properties.find(name, end)
    return found


def next_sound(segments: Segments, offset: int) -> int | None:
    """Where the next record lies that names its own place and is whole; None if not in this file.

    For places where records do not follow each other any more.
    """
    start = segments.start_of(offset)
    if start is None:
        return None
    buffer = segments.file(start).buffer
    for match in _MAGIC.finditer(buffer, offset - start + _MAGIC_AT):
        at = match.start() - _MAGIC_AT
        size = int.from_bytes(buffer[at : at + 4], "big", signed=True)
        if 0 < size <= segments.file_bytes - at and (
            check_run(buffer, at, at + size, start, check_crc=True) == at + size
        ):
            return start + at
    return None


def scan_log(segments: Segments, low: int, high: int) -> Iterator[ScannedRecord]:
    """Sound records of the log from `low` on that begin before `high`; over damage and holes."""
    offset: int | None = max(low, segments.min_offset)
    window = WINDOW_BYTES
    while offset is not None and offset < high:
        start = segments.start_of(offset)
        if start is None:
            offset = segments.next_start(offset)
            continue
        at = offset - start
        stop = min(segments.file_bytes, at + window)
        scan = scan_records(segments.file(start).buffer, at, stop)
        for record in scan.records:
            if start + record.position >= high:
                return
            if record.physical_offset == start + record.position:
                yield record
            at = record.position + record.size
        window = WINDOW_BYTES
        if scan.ending == "blank" and scan.position == segments.file_bytes:
            offset = segments.next_start(offset)
        elif stop < segments.file_bytes and (scan.ending == "partial" or at == stop):
            if at == offset - start:  # a record larger than the window
                window = 2 * (stop - at)
            offset = start + at
        else:
            offset = next_sound(segments, start + at + 1) or segments.next_start(offset)
