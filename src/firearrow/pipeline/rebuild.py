"""Consume queues and index files from commit logs, in parallel: what a broker would have written.

The files are those of `firearrow store rebuild`, to the byte: built beside the old ones, swapped in
at the end. Queues are built each by one task, and so are index files.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from firearrow.offline.rebuild import refuse_rocksdb, replacing
from firearrow.offline.rebuild_parts import ChunkFacts, PartedRebuild, build_queue, build_table
from firearrow.pipeline.report import Report, Table
from firearrow.pipeline.store_parts import Parts, open_directories
from firearrow.pipeline.watching import Watch
from firearrow.store.errors import StoreInUse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from firearrow.offline.derived import QueueKey
    from firearrow.offline.directory import StoreDirectory
    from firearrow.offline.parts import KeyChunk, UnitChunk
    from firearrow.offline.rebuild import Rebuilt
    from firearrow.offline.rebuild_parts import BuiltQueue, BuiltTable

JOB: Final = "rebuild"


@dataclass(frozen=True, slots=True)
class RebuildOptions:
    """What `rebuild` is told.

    Args:
        paths: Directories of stores, as the driver and every executor see them.
        queues: Whether consume queues are made.
        index: Whether index files are made.
        dry_run: Read and count, change nothing.
        config: The broker's configuration, where files do not show their sizes.
    """

    paths: tuple[str, ...]
    queues: bool = True
    index: bool = True
    dry_run: bool = False
    config: str | None = None


def run(spark: SparkSession, options: RebuildOptions, watch: Watch | None = None) -> Report:
    """One store after the other; each is done or left as it was."""
    watch = watch or Watch()
    stores = open_directories(options.paths, options.config)
    for store in stores:
        refuse_rocksdb(store)
        if store.is_locked:
            raise StoreInUse(f"{store.root} is in use by a broker. Stop it first")
    found = [(store, rebuild_store(spark, store, options, watch)) for store in stores]
    rows: list[tuple[object, ...]] = [
        (
            str(store.root),
            one.records,
            one.queues,
            one.units,
            one.kept_queues,
            one.index_files,
            one.index_entries,
            ", ".join(sorted(one.skipped_topics)) or None,
        )
        for store, one in found
    ]
    columns = ("store", "records", "queues", "units", "keptQueues", "indexFiles", "indexEntries")
    return Report(
        JOB,
        facts={"stores": len(stores), "dryRun": options.dry_run},
        tables=[Table("rebuilt", (*columns, "skippedTopics"), rows)],
        problems=[f"{store.root}: {what}" for store, one in found for what in one.problems],
    )


def rebuild_store(
    spark: SparkSession, store: StoreDirectory, options: RebuildOptions, watch: Watch
) -> Rebuilt:
    """Build everything beside, then swap it in; whatever goes wrong before leaves it as it was."""
    place = (
        nullcontext(None)
        if options.dry_run
        else replacing(store, queues=options.queues, index=options.index)
    )
    with place as folder:
        return _build(spark, store, folder, options, watch)


def _build(
    spark: SparkSession,
    store: StoreDirectory,
    folder: Path | None,
    options: RebuildOptions,
    watch: Watch,
) -> Rebuilt:
    whole = PartedRebuild(store, folder, queues=options.queues, index=options.index)
    building = whole.building
    rules = building.rules if options.queues else None

    def queue(_: StoreDirectory, __: int, key: QueueKey, chunks: Iterator[UnitChunk]) -> BuiltQueue:
        return build_queue(building, key, chunks)

    with Parts(spark, [(store, rules)], index=options.index) as parts:
        with watch.batch(spark, "reading the log"):
            logs = parts.logs()
        whole.take_logs(logs.get(0, []))
        if options.queues:
            with watch.batch(spark, "building queues"):
                queues = parts.by_queue(queue)
            whole.take_queues(queues.get(0, []))
        if options.index:
            with watch.batch(spark, "building index files"):
                tables = _tables(parts, whole)
            whole.take_tables(tables)
    return whole.finish()


def _tables(parts: Parts, whole: PartedRebuild) -> list[BuiltTable]:
    building = whole.building
    chunks = parts.key_chunks().map(lambda one: ChunkFacts(*one[1][:3])).collect()
    plans = {plan.number: plan for plan in whole.plan_tables(chunks)}
    tables: dict[int, list[int]] = {}
    for plan in plans.values():
        for place in plan.chunks:
            tables.setdefault(place, []).append(plan.number)

    def table(number: int, found: list[KeyChunk]) -> BuiltTable:
        return build_table(building, plans[number], found)

    return parts.by_table(tables, table)
