"""The check of `check.py` in parts, for many processes: the same rules, the same report.

    one driver                         many workers
    PartedCheck.files      ──►  read_part(store, file)        units of each queue, rules C
      .take_logs()         ◄──
      .facts, .keys        ──►  check_queue(store, facts, …)  rules Q
      .take_queues()       ◄──
      .facts               ──►  check_index(store, facts, …)  rules I
      .take_findings()     ◄──  check_timer(store, facts)     rule O6
      .report()                 rules O1-O5, what is missing in queues

Whoever carries things from one to the other (a loop, a pool, Spark) has nothing to decide.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from firearrow.hot import decode_properties
from firearrow.offline.check import Report, notes_of, recovery_offset, turned_to_damage
from firearrow.offline.check_index import NOWHERE, IndexCheck, check_order
from firearrow.offline.check_log import LogCheck, LostBytes
from firearrow.offline.check_offsets import OffsetsCheck
from firearrow.offline.check_queues import QueuesCheck
from firearrow.offline.check_timer import TimerCheck
from firearrow.offline.config_tables import ConfigTables, unit_rules
from firearrow.offline.derived import QueueRuns
from firearrow.offline.findings import Findings
from firearrow.offline.log_walk import OpenLogFile

if TYPE_CHECKING:
    from collections.abc import Iterable

    from firearrow.hot import ScannedRecord
    from firearrow.offline.check_queues import QueueCheck
    from firearrow.offline.derived import Jump, QueueKey, UnitRules
    from firearrow.offline.directory import StoreDirectory
    from firearrow.offline.log_walk import Debris
    from firearrow.offline.parts import LogPart, UnitChunk


@dataclass(slots=True)
class Facts:
    """What the log as a whole says, which every part needs to know."""

    lost: LostBytes
    tables: ConfigTables
    rules: UnitRules
    closed: bool
    running: bool
    recovered_from: int
    end_offset: int


@dataclass(slots=True)
class QueuePart:
    """What was found about one queue."""

    findings: Findings
    jumps: list[Jump]
    queues: list[QueueCheck]


class PartedCheck:
    """One store, seen from the driver."""

    def __init__(self, store: StoreDirectory, *, now_ms: int) -> None:
        self.store = store
        self.tables = ConfigTables(store.root)
        self.rules = unit_rules(store, self.tables)
        self._now_ms = now_ms
        self._running = store.is_locked
        self._findings = Findings()
        self._log = LogCheck(store, self._findings)
        self._log.check_files()
        self._debris: list[Debris] = []
        self._records = self._newest_ms = 0
        self._end_offset = store.min_offset
        self._queues: QueuesCheck | None = None
        _ = store.index_tables  # so that workers need not find out their shape again

    @property
    def files(self) -> list[int]:
        return [file.first_offset for file in self.store.log_files]

    def take_logs(self, parts: Iterable[LogPart]) -> Facts:
        """Every file has been read."""
        log, debris = self._log, []
        for part in sorted(parts, key=lambda part: part.first_offset):
            self._findings.merge(part.findings)
            if part.first_record is not None:
                offset, timestamp = part.first_record
                if timestamp > 0 and log.last_timestamp:  # else its part has said so
                    log.check_time(timestamp, offset)
                log.last_timestamp = part.last_timestamp
                self._end_offset = part.end_offset
            for damage in part.damages:
                log.take_damage(damage)
            log.halves += part.halves
            debris += part.debris
            self._records += part.records
            self._newest_ms = max(self._newest_ms, part.newest_timestamp)
        log.finish()
        self._debris = [] if self._running else turned_to_damage(self.store, debris, log)
        facts = Facts(
            log.lost,
            self.tables,
            self.rules,
            closed=not (self._running or self.store.has_abort),
            running=self._running,
            recovered_from=recovery_offset(self.store),
            end_offset=self._end_offset,
        )
        self._queues = _queues_check(self.store, self._findings, facts, log.lost)
        return facts

    def take_queues(self, parts: Iterable[QueuePart]) -> None:
        """Every queue has been checked."""
        assert self._queues is not None
        jumps: list[Jump] = []
        for part in parts:
            self._findings.merge(part.findings)
            jumps += part.jumps
            for queue in part.queues:
                self._queues.join(queue)
        for jump in sorted(jumps, key=lambda jump: jump.physical):
            self._log.take_jump(jump)

    def take_findings(self, found: Iterable[Findings]) -> None:
        for findings in found:
            self._findings.merge(findings)

    def report(self) -> Report:
        """Everything has been taken."""
        store, queues, findings = self.store, self._queues, self._findings
        assert queues is not None
        if not store.has_rocksdb_queues:
            queues.report()
            OffsetsCheck(store, self.tables, findings, queues.max_offsets).check(
                end_offset=self._end_offset,
                newest_ms=None if self._log.lost else self._newest_ms,
                now_ms=max(self._now_ms, self._newest_ms),
            )
        check_order(store.index_tables, findings)
        return Report(
            findings.sorted(),
            notes=notes_of(
                store, running=self._running, pending=queues.pending, debris=self._debris
            ),
            min_offset=store.min_offset,
            end_offset=self._end_offset,
            log_files=len(store.log_files),
            records=self._records,
            queues=len(store.queues),
            index_files=len(store.index_tables),
            index_entries=sum(table.count for table in store.index_tables),
            newest_timestamp=self._newest_ms,
        )


def _queues_check(
    store: StoreDirectory, findings: Findings, facts: Facts, lost: LostBytes
) -> QueuesCheck:
    queues = QueuesCheck(
        store,
        findings,
        has_topic=facts.tables.has_topic,
        lost=lost,
        closed=facts.closed,
        running=facts.running,
        recovered_from=facts.recovered_from,
    )
    queues.end_offset = facts.end_offset
    return queues


# --- parts ----------------------------------------------------------------------------------------


def check_queue(
    store: StoreDirectory, facts: Facts, key: QueueKey, chunks: Iterable[UnitChunk]
) -> QueuePart:
    """One queue against all that the log says of it, in the order of the log."""
    findings, lost, jumps = Findings(), copy.deepcopy(facts.lost), []

    def take_jump(jump: Jump) -> None:
        jumps.append(jump)
        if jump.is_wrong:
            lost.add(jump.physical, jump.physical + jump.size, hides=False)

    queues = _queues_check(store, findings, facts, lost)
    runs = QueueRuns(queues.take, rules=facts.rules, jump=take_jump)
    for chunk in chunks:
        chunk.replay(runs)
    runs.finish()
    found = queues.check_rest([key], end_offset=facts.end_offset)
    return QueuePart(findings, jumps, list(found))


def check_index(store: StoreDirectory, facts: Facts, number: int) -> Findings:
    """One index file against the records that it points to."""
    findings, tables = Findings(), store.index_tables
    index = IndexCheck(
        [tables[number]],
        findings,
        min_offset=store.min_offset,
        lost=facts.lost,
        closed=facts.closed,
        newest=max((table.last_offset for table in tables[:number]), default=-1),
        is_end=number + 1 == len(tables),
    )
    with RecordReader(store) as log:
        while index.next_offset != NOWHERE:
            record = log.record_at(index.next_offset)
            if record is not None:
                index.follow(record, decode_properties(record.properties))
            elif facts.running and index.next_offset >= facts.end_offset:
                break
            else:
                index.nothing()
    index.finish(end_offset=facts.end_offset, running=facts.running)
    return findings


def check_timer(store: StoreDirectory, facts: Facts) -> Findings:
    findings = Findings()
    TimerCheck(store, findings, facts.lost).check()
    return findings


class RecordReader:
    """Single records by their offset; keeps the file open that it read last."""

    def __init__(self, store: StoreDirectory) -> None:
        self._store = store
        self._opened: OpenLogFile | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._opened is not None:
            self._opened.__exit__()
            self._opened = None

    def record_at(self, offset: int) -> ScannedRecord | None:
        """The sound record that begins there, if there is one."""
        try:
            opened = self._file_of(offset)
            if opened is None:
                return None
            found = opened.single(offset - opened.file.first_offset).records
        except OSError:
            return None
        return found[0] if found else None

    def _file_of(self, offset: int) -> OpenLogFile | None:
        opened = self._opened
        if opened is not None and 0 <= offset - opened.file.first_offset < opened.file.size:
            return opened
        for file in self._store.log_files:
            if 0 <= offset - file.first_offset < file.size:
                self.__exit__()
                self._opened = OpenLogFile(file, self._store.segment_bytes).__enter__()
                return self._opened
        return None
