"""Consume queues and index made again from the log, as a broker would have written them.

Built beside, then swapped in. The store's own files stay as they are until everything new is on
disk; a crash before that leaves only a folder `rebuild.tmp` behind.

    rebuild.tmp/     being built: consumequeue/ batchconsumequeue/ index/ checkpoint
    rebuild.ready/   the same, complete and on disk
    rebuild.old/     what was replaced, until it is deleted

The swap is several renames, so a broker might be started in the middle of it. While it lasts, the
store says that it crashed (`abort`) with nothing derived (a `checkpoint` of zeros), and whoever
opens it makes everything again by itself.
"""

from __future__ import annotations

import shutil
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from firearrow.base.errors import ConfigError
from firearrow.hot import decode_properties
from firearrow.model.message import FLAG_TRANSACTION, TRANSACTION_ROLLBACK
from firearrow.offline.config_tables import ConfigTables, unit_rules
from firearrow.offline.derived import QueueRuns, keys_of
from firearrow.offline.directory import hold_lock
from firearrow.offline.index_writer import IndexWriter
from firearrow.offline.log_walk import Damage
from firearrow.offline.output import give_to_owner_of, sync_path, sync_tree
from firearrow.offline.queue_writer import QueueWriter
from firearrow.store.checkpoint import OWN_NOTE, Checkpoint
from firearrow.store.errors import StoreInUse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from firearrow.offline.derived import Jump, QueueKey
    from firearrow.offline.directory import StoreDirectory
    from firearrow.offline.log_walk import Batch

QUEUE_FOLDERS: Final = ("consumequeue", "batchconsumequeue")
INDEX_FOLDERS: Final = ("index",)
BUILDING: Final = "rebuild.tmp"
READY: Final = "rebuild.ready"
OLD: Final = "rebuild.old"


@dataclass(slots=True)
class Rebuilt:
    """What was made, or would be."""

    records: int = 0
    queues: int = 0
    units: int = 0
    kept_queues: int = 0
    index_files: int = 0
    index_entries: int = 0
    skipped_topics: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)

    def take_damage(self, damage: Damage) -> None:
        what = f"{damage.size} bytes cannot be read: {damage.reason}"
        self.problems.append(f"{damage.code} commitlog {damage.offset}: {what}")

    def take_jump(self, jump: Jump) -> None:
        if jump.is_wrong:
            key = jump.key
            what = f"says queue offset {jump.offset} of {key.topic} queue {key.queue_id}"
            what = f"left out, {what} where {jump.expected} follows"
            self.problems.append(f"C6 commitlog {jump.physical}: {what}")


def rebuild(
    store: StoreDirectory,
    *,
    queues: bool = True,
    index: bool = True,
    dry_run: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Rebuilt:
    """Make queues and index again. Refuses while a broker has the directory; a dry run counts."""
    refuse_rocksdb(store)
    if dry_run:
        if store.is_locked:
            raise StoreInUse(f"{store.root} is in use by a broker. Stop it first")
        return _Builder(store, None, queues=queues, index=index).build(progress)
    with replacing(store, queues=queues, index=index) as building:
        return _Builder(store, building, queues=queues, index=index).build(progress)


def refuse_rocksdb(store: StoreDirectory) -> None:
    if store.has_rocksdb_queues:
        raise ConfigError(
            f"{store.root / 'consumequeue'} holds queues in RocksDB (storeType=defaultRocksDB), "
            "which only the broker that wrote them can rebuild"
        )


@contextmanager
def replacing(store: StoreDirectory, *, queues: bool, index: bool) -> Iterator[Path]:
    """A folder to build in, brokers kept out; it replaces the store's own files at the end.

    If the block raises, the store stays as it was.
    """
    with hold_lock(store.root):
        _clear_away(store.root)
        building = store.root / BUILDING
        folders = (QUEUE_FOLDERS if queues else ()) + (INDEX_FOLDERS if index else ())
        with ExitStack() as on_failure:
            on_failure.callback(shutil.rmtree, building, ignore_errors=True)
            for folder in folders:
                (building / folder).mkdir(parents=True)
            yield building
            give_to_owner_of(store.root, building)
            on_failure.pop_all()
        _swap(store.root, folders, has_crashed=store.has_abort)


class _Builder:
    """One pass over the log into a folder; None counts and writes nothing."""

    def __init__(
        self, store: StoreDirectory, building: Path | None, *, queues: bool, index: bool
    ) -> None:
        self._store = store
        self._building = building
        self._tables = ConfigTables(store.root)
        self._rebuilt = Rebuilt()
        self._queues: QueueWriter | None = None
        self._index: IndexWriter | None = None
        if queues:
            self._queues = QueueWriter(
                building,
                queue_file_bytes=store.queue_file_bytes,
                batch_queue_file_bytes=store.batch_queue_file_bytes,
            )
        if index:
            slots, entries = store.index_shape
            folder = None if building is None else building / INDEX_FOLDERS[0]
            self._index = IndexWriter(folder, slots=slots, entries=entries)

    def build(self, progress: Callable[[int, int], None] | None) -> Rebuilt:
        rules = unit_rules(self._store, self._tables)
        runs = QueueRuns(self._take_units, rules=rules, jump=self._rebuilt.take_jump)
        walk = self._store.walk(progress=progress)
        for found in walk:
            if isinstance(found, Damage):
                self._rebuilt.take_damage(found)
            else:
                self._take(found, runs)
        runs.finish()
        refuse_empty(self._store, walk.records)
        if self._queues is not None:
            self._rebuilt.kept_queues = keep_expired(self._store, self._tables, self._queues)
            self._queues.finish()
            self._rebuilt.queues = self._queues.queues
            self._rebuilt.units = self._queues.units
        if self._index is not None:
            self._index.finish()
            self._rebuilt.index_files = self._index.files
            self._rebuilt.index_entries = self._index.entries
        self._rebuilt.records = walk.records
        write_checkpoint(
            self._store,
            self._building,
            queues_ms=None if self._queues is None else walk.newest_timestamp,
            index_ms=None if self._index is None else self._index.end_timestamp,
        )
        return self._rebuilt

    def _take(self, batch: Batch, runs: QueueRuns) -> None:
        index = self._index
        for record in batch.records:
            properties = decode_properties(record.properties)
            if self._queues is not None:
                runs.add(record, properties)
            if index is not None and record.sys_flag & FLAG_TRANSACTION != TRANSACTION_ROLLBACK:
                index.add(
                    record.topic,
                    keys_of(properties),
                    record.physical_offset,
                    record.store_timestamp,
                )

    def _take_units(self, key: QueueKey, first: int, units: bytes) -> None:
        assert self._queues is not None
        if self._tables.has_topic(key.topic):
            self._queues.take(key, first, units)
        else:  # deleted; its records stay in the log until their file expires
            self._rebuilt.skipped_topics.add(key.topic)


def refuse_empty(store: StoreDirectory, records: int) -> None:
    if not records:
        raise ConfigError(
            f"{store.root} has no records in its log, so there is nothing to build from. "
            "If the log is elsewhere (storePathCommitLog), give the broker's configuration with -c"
        )


def keep_expired(store: StoreDirectory, tables: ConfigTables, queues: QueueWriter) -> int:
    """Queues that have no records in the log any more, but must not start again at 0."""
    kept = 0
    for key in store.queues:
        if key not in queues and tables.has_topic(key.topic):
            kept += queues.keep(key, store.units_of(key), min_offset=store.min_offset)
    return kept


def write_checkpoint(
    store: StoreDirectory, building: Path | None, *, queues_ms: int | None, index_ms: int | None
) -> None:
    """A broker may trust the new files: they are complete, and will be on disk."""
    checkpoint = store.checkpoint or Checkpoint()
    if queues_ms is not None:
        checkpoint = replace(checkpoint, queues_ms=queues_ms)
    if index_ms is not None:
        checkpoint = replace(checkpoint, index_ms=index_ms)
    if building is not None:
        (building / "checkpoint").write_bytes(checkpoint.encode())


def _swap(root: Path, folders: tuple[str, ...], *, has_crashed: bool) -> None:
    """Put what was built in its place. Every state in between is one that brokers recover from."""
    sync_tree(root / BUILDING)
    ready, old = root / READY, root / OLD
    (root / BUILDING).rename(ready)
    (root / "abort").touch()
    give_to_owner_of(root, root / "abort")
    (root / OWN_NOTE).unlink(missing_ok=True)  # it vouches for the files that go now
    (root / "checkpoint").write_bytes(Checkpoint().encode())
    for path in (root / "checkpoint", root):
        sync_path(path)
    old.mkdir()
    for folder in folders:
        if (root / folder).exists():
            (root / folder).rename(old / folder)
        (ready / folder).rename(root / folder)
    sync_path(root)
    (ready / "checkpoint").replace(root / "checkpoint")
    if not has_crashed:
        (root / "abort").unlink()
    sync_path(root)
    _clear_away(root)


def _clear_away(root: Path) -> None:
    """Remove what a rebuild left behind; if it crashed in the middle of a swap, after saving it."""
    ready = root / READY
    for folder in QUEUE_FOLDERS + INDEX_FOLDERS:
        if (ready / folder).exists() and not (root / folder).exists():
            (ready / folder).rename(root / folder)
    for name in (BUILDING, READY, OLD):
        shutil.rmtree(root / name, ignore_errors=True)
