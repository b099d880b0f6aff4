"""Every invariant of a store directory, in one pass over its log.

    walk the log ──► LogCheck      C1-C9   files and records
                 ├─► QueueRuns ──► QueuesCheck   Q1-Q7   what the units must be, and are
                 └─► IndexCheck    I1-I4   entries, read along with the log
    then             OffsetsCheck  O1-O5   config/*.json and the checkpoint
                     TimerCheck    O6      wheel and timer log

A store that a broker has open, or that it left with a crash, has loose ends: what recovery will
mend is not reported. Nothing is ever written.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from firearrow.hot import decode_properties
from firearrow.offline.check_index import IndexCheck, check_order
from firearrow.offline.check_log import LogCheck
from firearrow.offline.check_offsets import OffsetsCheck
from firearrow.offline.check_queues import QueuesCheck
from firearrow.offline.check_timer import TimerCheck
from firearrow.offline.config_tables import ConfigTables, unit_rules
from firearrow.offline.derived import QueueRuns
from firearrow.offline.findings import Finding, Findings
from firearrow.offline.log_walk import Damage
from firearrow.store.consume_queue import FILLER

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from firearrow.offline.derived import QueueKey
    from firearrow.offline.directory import StoreDirectory
    from firearrow.offline.log_walk import Batch, Debris

_UNIT_HEAD: Final = struct.Struct(">qi")  # of plain and batch units alike


@dataclass(slots=True)
class Report:
    """What a check saw. `notes` are worth knowing and no damage."""

    findings: list[Finding]
    notes: list[str] = field(default_factory=list)
    min_offset: int = 0
    end_offset: int = 0
    log_files: int = 0
    records: int = 0
    queues: int = 0
    index_files: int = 0
    index_entries: int = 0
    newest_timestamp: int = 0

    @property
    def is_sound(self) -> bool:
        return not self.findings


def check(
    store: StoreDirectory,
    *,
    now_ms: int,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Check everything. `progress` gets bytes of the log done and in all."""
    running = store.is_locked
    closed = not (running or store.has_abort)
    findings = Findings()
    tables = ConfigTables(store.root)
    log = LogCheck(store, findings)
    log.check_files()
    queues = QueuesCheck(
        store,
        findings,
        has_topic=tables.has_topic,
        lost=log.lost,
        closed=closed,
        running=running,
        recovered_from=recovery_offset(store),
    )
    index = IndexCheck(
        store.index_tables, findings, min_offset=store.min_offset, lost=log.lost, closed=closed
    )
    runs = QueueRuns(queues.take, rules=unit_rules(store, tables), jump=log.take_jump)
    walk = store.walk(progress=progress)
    for found in walk:
        if isinstance(found, Damage):
            log.take_damage(found)
        else:
            _take(found, log, runs, index)
    runs.finish()
    log.finish()
    debris = [] if running else turned_to_damage(store, walk.debris, log)
    if not store.has_rocksdb_queues:
        queues.finish(end_offset=walk.end_offset)
        OffsetsCheck(store, tables, findings, queues.max_offsets).check(
            end_offset=walk.end_offset,
            newest_ms=None if log.lost else walk.newest_timestamp,
            # The store may come from a machine whose clock is ahead of ours.
            now_ms=max(now_ms, walk.newest_timestamp),
        )
    index.finish(end_offset=walk.end_offset, running=running)
    check_order(store.index_tables, findings)
    TimerCheck(store, findings, log.lost).check()
    return Report(
        findings.sorted(),
        notes=notes_of(store, running=running, pending=queues.pending, debris=debris),
        min_offset=store.min_offset,
        end_offset=walk.end_offset,
        log_files=len(store.log_files),
        records=walk.records,
        queues=len(store.queues),
        index_files=len(store.index_tables),
        index_entries=sum(table.count for table in store.index_tables),
        newest_timestamp=walk.newest_timestamp,
    )


def notes_of(
    store: StoreDirectory, *, running: bool, pending: int, debris: list[Debris]
) -> list[str]:
    notes = []
    if running:
        notes.append("a broker is running here; what it writes meanwhile is not judged")
    elif store.has_abort:
        notes.append("not closed cleanly: the next broker to open it will recover")
    if pending:
        notes.append(f"{pending} records are not in their queues yet")
    notes += [
        f"debris behind the end of the log, at {found.offset}: {found.reason}" for found in debris
    ]
    if store.has_rocksdb_queues:
        notes.append("the queues are in RocksDB (storeType=defaultRocksDB): not checked")
    return notes


def _take(batch: Batch, log: LogCheck, runs: QueueRuns, index: IndexCheck) -> None:
    """The records of one window; this loop is what a check spends its time in."""
    for record in batch.records:
        properties = decode_properties(record.properties)
        log.take(batch, record, properties)
        runs.add(record, properties)
        if index.next_offset <= record.physical_offset:
            index.follow(record, properties)


def turned_to_damage(store: StoreDirectory, found: Sequence[Debris], log: LogCheck) -> list[Debris]:
    """Debris that queues point to was a record once: damage. Returns the rest."""
    if not found:
        return []
    claimed = max((_last_unit_end(store, key) for key in store.queues), default=0)
    rest = []
    for debris in found:
        if claimed > debris.offset:
            size = claimed - debris.offset
            log.take_damage(Damage(debris.offset, size, debris.code, debris.reason))
        else:
            rest.append(debris)
    return rest


def _last_unit_end(store: StoreDirectory, key: QueueKey) -> int:
    units = store.units_of(key)
    last = units.read(units.end - 1, 1) if units.end > units.first else b""
    if not last or last == FILLER:
        return 0
    offset, size = _UNIT_HEAD.unpack_from(last)
    return int(offset + size)


def recovery_offset(store: StoreDirectory) -> int:
    """From where on a broker dispatches again after a crash, by RocketMQ's rule.

    That is the newest file whose first record is older than what the checkpoint vouches for.
    """
    checkpoint = store.checkpoint
    limit_ms = checkpoint.recover_before_ms if checkpoint is not None else 0
    for file in reversed(store.log_files):
        first = store.record_at(file.first_offset)
        if first is not None and 0 < first.store_timestamp <= limit_ms:
            return file.first_offset
    return store.min_offset
