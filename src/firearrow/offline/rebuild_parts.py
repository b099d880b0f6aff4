"""The rebuild of `rebuild.py` in parts, for many processes: the same files to the byte.

    one driver                          many workers
    PartedRebuild.files     ──►  read_part(store, file)       units of each queue, keys
      .take_logs()          ◄──
                            ──►  build_queue(…, key, chunks)  the files of one queue
      .take_queues()        ◄──
      .plan_tables()        ──►  build_table(…, plan, chunks) one index file
      .take_tables()        ◄──
      .finish()                  checkpoint, names of the index files

How many keys a part of the log has says which of them go into which index file, so index files
need not wait for each other. What a worker writes appears under its name only when it is complete:
a worker may die, and two may do the same.
"""

from __future__ import annotations

import shutil
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from firearrow.offline.config_tables import ConfigTables, unit_rules
from firearrow.offline.derived import QueueRuns
from firearrow.offline.index_writer import EMPTY, TableWriter, header_behind, name_behind
from firearrow.offline.queue_writer import Progress, QueueWriter
from firearrow.offline.rebuild import (
    INDEX_FOLDERS,
    Rebuilt,
    keep_expired,
    refuse_empty,
    write_checkpoint,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from firearrow.offline.derived import Jump, QueueKey, UnitRules
    from firearrow.offline.directory import StoreDirectory
    from firearrow.offline.parts import KeyChunk, LogPart, UnitChunk

ATTEMPTS: Final = "attempts"  # where workers write until they are done


@dataclass(frozen=True, slots=True)
class Building:
    """What every worker needs to know. Without a folder, everybody only counts."""

    folder: Path | None
    tables: ConfigTables
    rules: UnitRules
    queue_file_bytes: int
    batch_queue_file_bytes: int
    slots: int
    entries: int


class BuiltQueue(NamedTuple):
    key: QueueKey
    progress: Progress | None
    restart: int
    jumps: list[Jump]


class ChunkFacts(NamedTuple):
    """What the driver has to know of a `KeyChunk`."""

    place: int
    entries: int
    ends_keyless: bool


class TablePlan(NamedTuple):
    """Which entries go into an index file; `chunks` are those that hold them, by their place.

    They begin with the chunk of the entry before the first, if there is one: a file begins with the
    end of the one before it.
    """

    number: int
    first_entry: int  # counted from the first of `chunks`
    chunks: tuple[int, ...]


class BuiltTable(NamedTuple):
    number: int
    path: Path | None
    opened_ms: int  # store time of the record that made it necessary
    end_ms: int
    entries: int


class PartedRebuild:
    """One store, seen from the driver."""

    def __init__(
        self, store: StoreDirectory, folder: Path | None, *, queues: bool, index: bool
    ) -> None:
        self.store = store
        self.queues = queues
        self.index = index
        self.tables = ConfigTables(store.root)
        slots, entries = store.index_shape
        self.building = Building(
            folder,
            self.tables,
            unit_rules(store, self.tables),
            store.queue_file_bytes,
            store.batch_queue_file_bytes,
            slots,
            entries,
        )
        self._rebuilt = Rebuilt()
        self._newest_ms = 0
        self._index_ms: int | None = None

    @property
    def files(self) -> list[int]:
        return [file.first_offset for file in self.store.log_files]

    def take_logs(self, parts: Iterable[LogPart]) -> None:
        """Every file has been read."""
        for part in sorted(parts, key=lambda part: part.first_offset):
            for damage in part.damages:
                self._rebuilt.take_damage(damage)
            self._rebuilt.records += part.records
            self._newest_ms = max(self._newest_ms, part.newest_timestamp)
        refuse_empty(self.store, self._rebuilt.records)

    def take_queues(self, found: Iterable[BuiltQueue]) -> None:
        """Every queue has been written."""
        writer = _writer(self.building, self.building.folder)
        jumps = []
        for queue in found:
            jumps += queue.jumps
            if not self.tables.has_topic(queue.key.topic):
                # Deleted; its records stay in the log until their file expires.
                self._rebuilt.skipped_topics.add(queue.key.topic)
            elif queue.progress is not None:
                writer.adopt(queue.key, queue.progress, restart=queue.restart)
        for jump in sorted(jumps, key=lambda jump: jump.physical):
            self._rebuilt.take_jump(jump)
        self._rebuilt.kept_queues = keep_expired(self.store, self.tables, writer)
        writer.finish()
        self._rebuilt.queues = writer.queues
        self._rebuilt.units = writer.units

    def plan_tables(self, chunks: Iterable[ChunkFacts]) -> list[TablePlan]:
        return plan_tables(chunks, capacity=self.building.entries - 1)

    def take_tables(self, found: Iterable[BuiltTable]) -> None:
        """Every index file has been written; they get their names."""
        name = ""
        self._index_ms = 0
        for table in sorted(found):
            name = name_behind(name, table.opened_ms)
            if table.path is not None:
                assert self.building.folder is not None
                table.path.rename(self.building.folder / INDEX_FOLDERS[0] / name)
            self._index_ms = table.end_ms
            self._rebuilt.index_files += 1
            self._rebuilt.index_entries += table.entries

    def finish(self) -> Rebuilt:
        if self.building.folder is not None:
            shutil.rmtree(self.building.folder / ATTEMPTS, ignore_errors=True)
        write_checkpoint(
            self.store,
            self.building.folder,
            queues_ms=self._newest_ms if self.queues else None,
            index_ms=self._index_ms,
        )
        return self._rebuilt


def plan_tables(chunks: Iterable[ChunkFacts], *, capacity: int) -> list[TablePlan]:
    """Divide the entries of all chunks; one file is opened by the record behind a full one."""
    ordered = sorted(chunks)
    firsts: list[int] = []  # number of the first entry of each chunk
    total = 0
    for chunk in ordered:
        firsts.append(total)
        total += chunk.entries
    if not ordered:
        return []
    tables = -(-total // capacity)
    holding = [number for number, chunk in enumerate(ordered) if chunk.entries]
    last = holding[-1] if holding else -1
    behind = last + 1 < len(ordered) or (last >= 0 and ordered[last].ends_keyless)
    if total % capacity == 0 and behind:
        tables += 1
    plans = []
    for number in range(tables):
        begin = number * capacity
        end = min(begin + capacity, total)
        wanted = max(begin - 1, 0)
        used = [
            at
            for at, chunk in enumerate(ordered)
            if firsts[at] < end and firsts[at] + chunk.entries > wanted
        ]
        first = used[0] if used else 0
        first = 0 if number == 0 else first
        stop = max(used[-1] if used else 0, first) + 1
        if begin == end:  # nothing in it: the next record opened it
            stop = min(stop + 1, len(ordered))
        places = tuple(chunk.place for chunk in ordered[first:stop])
        plans.append(TablePlan(number, begin - firsts[first], places))
    return plans


# --- parts ----------------------------------------------------------------------------------------


def build_queue(building: Building, key: QueueKey, chunks: Iterable[UnitChunk]) -> BuiltQueue:
    """The files of one queue, from all that the log says of it in the order of the log."""
    jumps: list[Jump] = []
    attempt = _attempt(building) if building.tables.has_topic(key.topic) else None
    writer = _writer(building, attempt)
    runs = QueueRuns(writer.take, rules=building.rules, jump=jumps.append)
    for chunk in chunks:
        chunk.replay(runs)
    runs.finish()
    if attempt is not None and key in writer:
        assert building.folder is not None
        _put_in_place(attempt / key.folder, building.folder / key.folder)
    if attempt is not None:
        shutil.rmtree(attempt, ignore_errors=True)
    return BuiltQueue(key, writer.progress_of(key), writer.restart_of(key.topic), jumps)


def build_table(building: Building, plan: TablePlan, chunks: Sequence[KeyChunk]) -> BuiltTable:
    """One index file, from the chunks of its plan in the order of the log."""
    attempt = _attempt(building)
    path = None
    if attempt is not None:
        attempt.mkdir(parents=True)
        path = attempt / f"index-{plan.number}"
    entry, before = 0, (0, 0)
    opened_ms: int | None = None
    table: TableWriter | None = None
    for record in (record for chunk in chunks for record in chunk.records()):
        if opened_ms is None and entry >= plan.first_entry:
            opened_ms = record.timestamp
        for hashed in record.hashes:
            if table is not None and table.is_full:
                break
            if entry >= plan.first_entry:
                opened_ms = record.timestamp if opened_ms is None else opened_ms
                table = table or _table(building, path, plan, before)
                table.insert(hashed, record.physical, record.timestamp)
            before = record.timestamp, record.physical
            entry += 1
        if table is not None and table.is_full:
            break
    table = table or _table(building, path, plan, before)
    table.close()
    assert opened_ms is not None, "a plan without its record"
    header = table.header
    return BuiltTable(plan.number, path, opened_ms, header.end_timestamp, header.next_entry - 1)


def _table(
    building: Building, path: Path | None, plan: TablePlan, before: tuple[int, int]
) -> TableWriter:
    header = header_behind(*before) if plan.number else EMPTY
    return TableWriter(path, "", header, slots=building.slots, entries=building.entries)


def _writer(building: Building, folder: Path | None) -> QueueWriter:
    return QueueWriter(
        folder,
        queue_file_bytes=building.queue_file_bytes,
        batch_queue_file_bytes=building.batch_queue_file_bytes,
    )


def _attempt(building: Building) -> Path | None:
    """A folder that no other worker has."""
    return None if building.folder is None else building.folder / ATTEMPTS / uuid.uuid4().hex


def _put_in_place(made: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        made.rename(place)
    except OSError:
        if not place.is_dir():  # else another worker was faster, and wrote the same
            raise
