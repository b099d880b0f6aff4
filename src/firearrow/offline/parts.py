"""What one file of the log has to say, for whoever checks or rebuilds a store in parts.

Files of the log are read by different processes. What they find for a queue or for the index
travels in chunks, which are put in the order of the log again where they are needed.

    unit chunk   | queue offset 8 | takes 2 | unit 20 or 46 | …        takes 0: of a light queue
    key chunk    | physical offset 8 | store time 8 | keys 2 | hash 4, … | …       one per record
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from firearrow.hot import decode_properties, key_hash
from firearrow.model.message import FLAG_TRANSACTION, TRANSACTION_ROLLBACK
from firearrow.offline.check_log import LogCheck
from firearrow.offline.derived import QueueKey, keys_of
from firearrow.offline.findings import Findings
from firearrow.offline.log_walk import Damage
from firearrow.store.consume_queue import ENTRY as UNIT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from firearrow.hot import ScannedRecord
    from firearrow.offline.derived import QueueRuns, UnitRules
    from firearrow.offline.directory import StoreDirectory
    from firearrow.offline.log_walk import Batch, Debris

CHUNK_BYTES: Final = 4 << 20
_UNIT_HEAD: Final = struct.Struct(">qh")
_KEYS_HEAD: Final = struct.Struct(">qqh")
_HASH: Final = struct.Struct(">i")


class UnitChunk(NamedTuple):
    """Units of one queue, in the order of the log; `place` is where their records begin."""

    key: QueueKey
    place: int
    packed: bytes

    def replay(self, runs: QueueRuns) -> None:
        topic, queue_id, is_batch = self.key
        step = _UNIT_HEAD.size + self.key.unit_bytes
        for at in range(0, len(self.packed), step):
            offset, takes = _UNIT_HEAD.unpack_from(self.packed, at)
            unit = self.packed[at + _UNIT_HEAD.size : at + step]
            if takes:
                runs.add_unit(topic, queue_id, is_batch, offset, takes, unit)
            else:
                runs.add_light(topic, offset, unit)


class IndexedRecord(NamedTuple):
    """What the index has to know of a record; one without keys still may open a file."""

    physical: int
    timestamp: int
    hashes: tuple[int, ...]


class KeyChunk(NamedTuple):
    """Records for the index, in the order of the log; does it end with one that has no keys?"""

    place: int
    entries: int
    ends_keyless: bool
    packed: bytes

    def records(self) -> Iterator[IndexedRecord]:
        at = 0
        while at < len(self.packed):
            physical, timestamp, count = _KEYS_HEAD.unpack_from(self.packed, at)
            at += _KEYS_HEAD.size
            hashes = struct.unpack_from(f">{count}i", self.packed, at)
            at += count * _HASH.size
            yield IndexedRecord(physical, timestamp, hashes)


@dataclass(slots=True)
class LogPart:
    """What is known of one file when it has been read."""

    first_offset: int
    findings: Findings = field(default_factory=Findings)
    damages: list[Damage] = field(default_factory=list)
    debris: list[Debris] = field(default_factory=list)
    halves: list[tuple[int, int, str]] = field(default_factory=list)
    records: int = 0
    end_offset: int = 0
    newest_timestamp: int = 0
    first_record: tuple[int, int] | None = None  # physical offset, store time
    last_timestamp: int = 0


class UnitRuns:
    """Units that wait until there are enough of them to travel."""

    def __init__(self, rules: UnitRules) -> None:
        self.size = 0
        self._rules = rules
        self._places: dict[QueueKey, int] = {}
        self._packed: dict[QueueKey, bytearray] = {}

    def add(self, record: ScannedRecord, properties: dict[str, str]) -> None:
        made = self._rules.unit_of(record, properties)
        if made is None:
            return
        is_batch, takes, unit = made
        key = QueueKey(record.topic, record.queue_id, is_batch)
        self._put(key, record, _UNIT_HEAD.pack(record.queue_offset, takes) + unit)
        for name, offset in self._rules.lights_of(record, properties):
            light = _UNIT_HEAD.pack(offset, 0) + unit[: UNIT.size]
            self._put(QueueKey(name, 0, is_batch=False), record, light)

    def _put(self, key: QueueKey, record: ScannedRecord, packed: bytes) -> None:
        there = self._packed.get(key)
        if there is None:
            there = self._packed[key] = bytearray()
            self._places[key] = record.physical_offset
        there += packed
        self.size += len(packed)

    def take(self) -> Iterator[UnitChunk]:
        for key, packed in self._packed.items():
            yield UnitChunk(key, self._places[key], bytes(packed))
        self._packed.clear()
        self._places.clear()
        self.size = 0


class KeyRun:
    """Keys that wait until there are enough of them to travel."""

    def __init__(self) -> None:
        self._packed = bytearray()
        self._place = 0
        self._entries = 0
        self._keyless = False

    @property
    def size(self) -> int:
        return len(self._packed)

    def add(self, record: ScannedRecord, properties: dict[str, str]) -> None:
        if record.sys_flag & FLAG_TRANSACTION == TRANSACTION_ROLLBACK:
            return
        if not self._packed:
            self._place = record.physical_offset
        hashes = [key_hash(record.topic, key) for key in keys_of(properties)]
        self._packed += _KEYS_HEAD.pack(
            record.physical_offset, record.store_timestamp, len(hashes)
        ) + struct.pack(f">{len(hashes)}i", *hashes)
        self._entries += len(hashes)
        self._keyless = not hashes

    def take(self) -> Iterator[KeyChunk]:
        if self._packed:
            yield KeyChunk(self._place, self._entries, self._keyless, bytes(self._packed))
        self._packed.clear()
        self._entries = 0


def read_part(
    store: StoreDirectory,
    first_offset: int,
    rules: UnitRules | None,
    *,
    judge: bool = False,
    index: bool = False,
) -> Iterator[UnitChunk | KeyChunk | LogPart]:
    """One file of a log: what its records make (by `rules`, for the `index`), last what it is.

    `judge` the records by the rules C.
    """
    part = LogPart(first_offset, end_offset=first_offset)
    log = LogCheck(store, part.findings) if judge else None
    units = None if rules is None else UnitRuns(rules)
    keys = KeyRun() if index else None
    walk = store.walk_file(first_offset)
    for found in walk:
        if isinstance(found, Damage):
            part.damages.append(found)
            continue
        if part.first_record is None:
            first = found.records[0]
            part.first_record = first.physical_offset, first.store_timestamp
        _take(found, log, units, keys)
        part.last_timestamp = found.records[-1].store_timestamp
        if units is not None and units.size > CHUNK_BYTES:
            yield from units.take()
        if keys is not None and keys.size > CHUNK_BYTES:
            yield from keys.take()
    if units is not None:
        yield from units.take()
    if keys is not None:
        yield from keys.take()
    part.debris = walk.debris
    part.halves = [] if log is None else log.halves
    part.records, part.end_offset = walk.records, walk.end_offset
    part.newest_timestamp = walk.newest_timestamp
    yield part


def _take(batch: Batch, log: LogCheck | None, units: UnitRuns | None, keys: KeyRun | None) -> None:
    for record in batch.records:
        properties = decode_properties(record.properties)
        if log is not None:
            log.take(batch, record, properties)
        if units is not None:
            units.add(record, properties)
        if keys is not None:
            keys.add(record, properties)
