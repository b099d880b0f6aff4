"""Queues and index files rebuilt on Spark, compared to the byte with those of brokers."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.golden import settings_file, unpack
from tests.store_builder import sample_store
from tests.stores import message, open_store, put_all
from tests.unit.offline.test_rebuild import DERIVED, files_of

from firearrow.base.errors import ConfigError
from firearrow.offline.check import check
from firearrow.offline.directory import StoreDirectory, hold_lock
from firearrow.offline.rebuild import BUILDING
from firearrow.offline.rebuild import rebuild as rebuild_alone
from firearrow.pipeline import rebuild
from firearrow.pipeline.errors import PipelineError
from firearrow.pipeline.watching import Watch
from firearrow.store.errors import StoreInUse

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from firearrow.pipeline.report import Report

pytestmark = pytest.mark.timeout(300)


def without_derived(root: Path, target: Path) -> Path:
    """A copy of only what cannot be rebuilt."""
    for folder in ("commitlog", "config"):
        if (root / folder).exists():
            shutil.copytree(root / folder, target / folder)
    for name in ("checkpoint", "abort"):
        if (root / name).exists():
            shutil.copy(root / name, target)
    return target


def run(spark: SparkSession, root: Path, **options: Any) -> Report:
    return rebuild.run(spark, rebuild.RebuildOptions((str(root),), **options))


def test_the_files_of_our_broker_are_rebuilt_to_the_byte(
    spark: SparkSession, tmp_path: Path
) -> None:
    async def write() -> None:
        async with open_store(tmp_path / "broker") as store:
            await put_all(
                store,
                [
                    message(
                        b"x" * (number % 50),
                        topic=f"topic-{number % 3}",
                        queue_id=number % 4,
                        tags=f"tag{number % 5}" if number % 2 else "",
                        keys=f"k{number} all" if number % 3 else "",
                    )
                    for number in range(400)
                ],
            )

    asyncio.run(write())
    config = tmp_path / "broker.conf"
    config.write_text(
        "mappedFileSizeCommitLog=4096\nmappedFileSizeConsumeQueue=100\n"
        "maxHashSlotNum=7\nmaxIndexNum=12\n"
    )
    copy = without_derived(tmp_path / "broker", tmp_path / "copy")
    report = rebuild.run(spark, rebuild.RebuildOptions((str(copy),), config=str(config)))
    assert report.problems == []
    queues = files_of(tmp_path / "broker", "consumequeue")
    assert len(queues) > 24
    assert files_of(copy, "consumequeue") == queues
    ours = [path.read_bytes() for path in sorted((copy / "index").iterdir())]
    brokers = [path.read_bytes() for path in sorted((tmp_path / "broker/index").iterdir())]
    assert len(brokers) > 20
    assert ours == brokers  # but for the names, which tell when the broker made them


def test_the_files_of_apaches_stopped_broker_are_rebuilt_to_the_byte(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = unpack("clean", tmp_path)
    copy = without_derived(root, tmp_path / "copy")
    config = settings_file("clean", tmp_path)
    rebuild.run(spark, rebuild.RebuildOptions((str(copy),), config=str(config)))
    folders = ("consumequeue", "batchconsumequeue")
    assert files_of(copy, *folders) == files_of(root, *folders)
    ours = [path.read_bytes() for path in sorted((copy / "index").iterdir())]
    apaches = [path.read_bytes() for path in sorted((root / "index").iterdir())]
    assert len(apaches) == 3
    assert ours == apaches


def test_apaches_killed_store_is_rebuilt_as_by_one_process(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = unpack("killed", tmp_path)
    ours, alone = (shutil.copytree(root, tmp_path / name) for name in ("ours", "alone"))
    run(spark, ours)
    rebuild_alone(StoreDirectory(alone))
    assert files_of(ours, *DERIVED) == files_of(alone, *DERIVED)
    assert (ours / "abort").exists()
    assert check(StoreDirectory(ours), now_ms=1_794_800_000_000).findings == []


def test_damaged_queues_and_index_are_as_before_and_problems_are_named(
    spark: SparkSession, tmp_path: Path
) -> None:
    sample = sample_store(tmp_path / "store")
    before = files_of(sample.root, *DERIVED)
    sample.patch_unit("Orders/0", 3, b"\xff" * 60)
    shutil.rmtree(sample.root / "consumequeue" / "Paid")
    sample.index[0].write_bytes(bytes(sample.index[0].stat().st_size))
    report = run(spark, sample.root)
    assert report.exit_code == 0
    assert files_of(sample.root, *DERIVED) == before
    sample.patch_log(sample.keyless.offset + 4, b"oops")
    report = run(spark, sample.root)
    assert report.exit_code == 1
    assert f"C2 commitlog {sample.keyless.offset}" in report.problems[0]


def test_a_dry_run_and_one_of_the_two_leave_the_rest_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    sample = sample_store(tmp_path / "store")
    before = files_of(sample.root, *DERIVED)
    shutil.rmtree(sample.root / "consumequeue" / "Orders")
    report = run(spark, sample.root, dry_run=True)
    (row,) = report.tables[0].as_objects()
    alone = rebuild_alone(sample.open(), dry_run=True)
    assert (row["indexFiles"], row["units"]) == (alone.index_files, alone.units)
    assert alone.units > 30
    assert not (sample.root / "consumequeue" / "Orders").exists()
    run(spark, sample.root, index=False)
    assert files_of(sample.root, *DERIVED) == before


def test_a_store_stays_as_it_was_when_a_task_fails_or_the_job_is_stopped(
    spark: SparkSession, tmp_path: Path
) -> None:
    sample = sample_store(tmp_path / "store")
    before = files_of(sample.root, *DERIVED)

    class StoppedLater(Watch):
        """Told to stop when the queues are about to be built."""

        def step(self, what: str, done: int, total: int | None) -> None:
            del what, done, total

        def batch(self, session: SparkSession, what: str) -> object:  # type: ignore[override]
            if what == "building index files":
                self.stop()
            return super().batch(session, what)

    with pytest.raises(PipelineError, match="told to stop"):
        rebuild.run(spark, rebuild.RebuildOptions((str(sample.root),)), StoppedLater())
    assert files_of(sample.root, *DERIVED) == before
    assert not (sample.root / BUILDING).exists()
    with hold_lock(sample.root):
        pass


def test_what_cannot_be_rebuilt_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "empty/commitlog").mkdir(parents=True)
    with pytest.raises(ConfigError, match="no records in its log"):
        run(spark, tmp_path / "empty")
    sample = sample_store(tmp_path / "store")
    (sample.root / "consumequeue" / "CURRENT").write_text("MANIFEST")
    with pytest.raises(ConfigError, match="RocksDB"):
        run(spark, sample.root)


def test_a_store_that_a_broker_has_open_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    sample = sample_store(tmp_path / "store")
    code = "import fcntl, sys; file = open(sys.argv[1], 'r+b'); fcntl.lockf(file, fcntl.LOCK_EX)"
    code += "; print('locked', flush=True); sys.stdin.read()"
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(sample.root / "lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"locked\n"
    with pytest.raises(StoreInUse, match="in use by a broker"):
        run(spark, sample.root)
    holder.communicate(b"")
