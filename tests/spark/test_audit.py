"""Store directories audited on Spark: many at once, each judged as by one process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.spark.golden import RECORDED_MS, STORES, unpack
from tests.store_builder import StoreBuilder, sample_store
from tests.unit.offline.test_check_rules import BREAKS, NOW_MS

from firearrow.base.errors import ConfigError
from firearrow.offline.check_parts import PartedCheck
from firearrow.offline.findings import RULES
from firearrow.pipeline import audit
from firearrow.pipeline.errors import Stopped
from firearrow.pipeline.watching import Watch

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from firearrow.offline.directory import StoreDirectory

pytestmark = pytest.mark.timeout(300)


def with_gap(root: Path) -> StoreDirectory:
    builder = StoreBuilder(root)
    builder.append()
    builder.append(queue_offset=4)
    return builder.close()


def with_prepared(root: Path) -> StoreDirectory:
    builder = StoreBuilder(root)
    builder.append()
    builder.append(sys_flag=0x4, queue_offset=1)
    return builder.close()


def test_each_planted_fault_is_named_and_nothing_in_healthy_stores(
    spark: SparkSession, tmp_path: Path
) -> None:
    """One job over all of them: every rule broken once or more, between stores without fault."""
    stores, expected = [], []
    for number, (code, break_it) in enumerate(BREAKS):
        sample = sample_store(tmp_path / f"{number:02d}-{code}-{break_it.__name__}")
        break_it(sample)
        stores.append(sample.open())
        expected.append({code})
    stores += [with_gap(tmp_path / "gap"), with_prepared(tmp_path / "prepared")]
    expected += [{"C6"}, {"C7"}]
    for number in range(3):
        stores.append(sample_store(tmp_path / f"healthy-{number}").open())
        expected.append(set())
    assert set().union(*expected) == set(RULES)

    checks = [PartedCheck(store, now_ms=NOW_MS) for store in stores]
    reports = audit.check_stores(spark, checks, Watch())

    assert [{finding.code for finding in report.findings} for report in reports] == expected


def test_the_report_names_rule_and_place_and_makes_the_exit_code_1(
    spark: SparkSession, tmp_path: Path
) -> None:
    healthy, broken = sample_store(tmp_path / "healthy"), sample_store(tmp_path / "broken")
    broken.patch_log(broken.keyless.offset + 88, b"N")
    paths = (str(healthy.root), str(broken.root), str(healthy.root))
    report = audit.run(spark, audit.AuditOptions(paths), clock_ms=lambda: NOW_MS)
    assert report.exit_code == 1
    (problem,) = report.problems
    assert problem.startswith(f"{broken.root}: C3 commitlog {broken.keyless.offset}: ")
    told = json.loads(report.as_json())
    assert told["facts"]["stores"] == 2
    (finding,) = told["tables"]["findings"]
    assert (finding["code"], finding["rule"]) == ("C3", RULES["C3"])
    assert [store["sound"] for store in told["tables"]["stores"]] == [True, False]


def test_apaches_stores_are_sound_and_the_killed_one_has_records_to_dispatch(
    spark: SparkSession, tmp_path: Path
) -> None:
    roots = [unpack(store, tmp_path / store) for store in STORES]
    options = audit.AuditOptions(tuple(map(str, roots)))
    report = audit.run(spark, options, clock_ms=lambda: RECORDED_MS)
    assert (report.exit_code, report.problems) == (0, [])
    notes = next(table for table in report.tables if table.title == "notes")
    assert [(store, note) for store, note in notes.rows] == [
        (str(roots[1]), "not closed cleanly: the next broker to open it will recover"),
        (str(roots[1]), "14 records are not in their queues yet"),
    ]


def test_a_job_that_is_told_to_stop_reads_nothing(spark: SparkSession, tmp_path: Path) -> None:
    sample = sample_store(tmp_path / "store")
    watch = Watch()
    watch.stop()
    with pytest.raises(Stopped):
        audit.run(spark, audit.AuditOptions((str(sample.root),)), watch)


def test_what_is_no_store_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a store directory"):
        audit.run(spark, audit.AuditOptions((str(tmp_path),)))
    with pytest.raises(ConfigError, match="no store directory is given"):
        audit.run(spark, audit.AuditOptions(()))
    sample = sample_store(tmp_path / "store")
    missing = audit.AuditOptions((str(sample.root),), config=str(tmp_path / "no.conf"))
    with pytest.raises(ConfigError, match=r"no\.conf cannot be read"):
        audit.run(spark, missing)
