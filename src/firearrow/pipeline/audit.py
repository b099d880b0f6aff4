"""Every invariant of store directories, checked in parallel: what `firearrow store check` checks.

The rules, their names and the report are those of `offline/`; Spark only carries the parts, so any
number of stores of any size are one job.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from firearrow.offline.check_parts import PartedCheck, check_index, check_queue, check_timer
from firearrow.offline.findings import RULES
from firearrow.pipeline.report import Report, Table
from firearrow.pipeline.store_parts import Parts, by_store, open_directories, slices_of
from firearrow.pipeline.watching import Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from firearrow.offline.check import Report as StoreReport
    from firearrow.offline.check_parts import QueuePart
    from firearrow.offline.derived import QueueKey
    from firearrow.offline.directory import StoreDirectory
    from firearrow.offline.findings import Findings
    from firearrow.offline.parts import UnitChunk

JOB: Final = "audit"


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """What `audit` is told.

    Args:
        paths: Directories of stores, as the driver and every executor see them.
        config: The broker's configuration, where files do not show their sizes.
    """

    paths: tuple[str, ...]
    config: str | None = None


def run(
    spark: SparkSession,
    options: AuditOptions,
    watch: Watch | None = None,
    *,
    clock_ms: Callable[[], int] = lambda: int(time.time() * 1000),
) -> Report:
    """Check everything; the report names each broken rule and its place."""
    watch = watch or Watch()
    checks = [
        PartedCheck(store, now_ms=clock_ms())
        for store in open_directories(options.paths, options.config)
    ]
    found = check_stores(spark, checks, watch)
    return report_of(list(zip([check.store for check in checks], found, strict=True)))


def check_stores(spark: SparkSession, checks: list[PartedCheck], watch: Watch) -> list[StoreReport]:
    """The report of each store, as one process would write it."""
    stores = [(check.store, check.rules) for check in checks]
    with Parts(spark, stores, judge=True) as parts:
        with watch.batch(spark, "reading logs"):
            logs = parts.logs()
        facts = [check.take_logs(logs.get(n, [])) for n, check in enumerate(checks)]
        shared = spark.sparkContext.broadcast(facts)

        def queue(
            store: StoreDirectory, number: int, key: QueueKey, chunks: Iterator[UnitChunk]
        ) -> QueuePart:
            return check_queue(store, shared.value[number], key, chunks)

        with watch.batch(spark, "checking queues"):
            folders = [(n, key) for n, check in enumerate(checks) for key in check.store.queues]
            queues = parts.by_queue(queue, folders)
        with watch.batch(spark, "checking index files"):
            others = _check_others(spark, checks, shared)
        shared.destroy()
    for number, check in enumerate(checks):
        if not check.store.has_rocksdb_queues:
            check.take_queues(queues.get(number, []))
        check.take_findings(others.get(number, []))
    return [check.report() for check in checks]


def _check_others(
    spark: SparkSession,
    checks: list[PartedCheck],
    shared: Any,  # noqa: ANN401 - a broadcast
) -> dict[int, list[Findings]]:
    """Index files, and the timers of each store (-1)."""
    work = [
        (number, table)
        for number, check in enumerate(checks)
        for table in (-1, *range(len(check.store.index_tables)))
    ]
    context = spark.sparkContext
    stores = context.broadcast([check.store for check in checks])

    def check_one(one: tuple[int, int]) -> tuple[int, Findings]:
        number, table = one
        store, facts = stores.value[number], shared.value[number]
        return number, (
            check_timer(store, facts) if table < 0 else check_index(store, facts, table)
        )

    size = sum(table.size for check in checks for table in check.store.index_tables)
    slices = slices_of(context, len(work), size)
    found = context.parallelize(work, slices).map(check_one).collect()
    stores.destroy()
    return by_store(found)


def report_of(found: list[tuple[StoreDirectory, StoreReport]]) -> Report:
    """One report about all stores; any broken rule is a problem."""
    broken = [(store, finding) for store, report in found for finding in report.findings]
    report = Report(
        JOB,
        facts={
            "stores": len(found),
            "rules": len(RULES),
            "broken": sum(finding.places for _, finding in broken),
        },
        tables=[_stores_table(found)],
        problems=[f"{store.root}: {finding}" for store, finding in broken],
    )
    if broken:
        rows: list[tuple[object, ...]] = [
            (str(store.root), each.code, RULES[each.code], each.where, each.what, each.places)
            for store, each in broken
        ]
        columns = ("store", "code", "rule", "where", "what", "places")
        report.tables.append(Table("findings", columns, rows))
    notes: list[tuple[object, ...]] = [
        (str(store.root), note) for store, one in found for note in one.notes
    ]
    if notes:
        report.tables.append(Table("notes", ("store", "note"), notes))
    return report


def _stores_table(found: list[tuple[StoreDirectory, StoreReport]]) -> Table:
    rows: list[tuple[object, ...]] = [
        (
            str(store.root),
            one.is_sound,
            one.records,
            one.min_offset,
            one.end_offset,
            one.log_files,
            one.queues,
            one.index_files,
            one.index_entries,
        )
        for store, one in found
    ]
    columns = ("store", "sound", "records", "minOffset", "maxOffset", "commitLogFiles", "queues")
    return Table("stores", (*columns, "indexFiles", "indexEntries"), rows)
