"""Topics land in a Parquet table exactly once, whatever happens on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.dataset
import pytest

from firearrow import Message, Producer
from firearrow.pipeline import archive
from firearrow.pipeline.archive import ArchiveOptions
from firearrow.pipeline.errors import PipelineError
from firearrow.pipeline.hadoop_files import HadoopFiles
from firearrow.pipeline.report import Outcome
from firearrow.pipeline.topics import TopicSelection
from firearrow.pipeline.watching import Watch

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from firearrow.testing import LocalCluster


def send(cluster: LocalCluster, numbers: range, topic: str = "orders") -> None:
    with Producer("shop", nameservers=cluster.nameservers) as producer:
        for number in numbers:
            producer.send(Message(topic, f"order {number}", tags="paid", keys=f"k{number % 5}"))


def options(cluster: LocalCluster, table: Path, **more: Any) -> ArchiveOptions:
    selection = TopicSelection(
        cluster.nameservers,
        more.pop("topics", ("orders",)),
        max_per_trigger=more.pop("batch", None),
    )
    return ArchiveOptions(selection, str(table), **more)


def bodies(table: Path) -> list[str]:
    """What somebody finds in the table who has never heard of Spark."""
    found = pyarrow.dataset.dataset(table, format="parquet", partitioning="hive").to_table()
    return sorted((body.decode() for body in found["body"].to_pylist()), key=lambda t: int(t[6:]))


def expected(count: int) -> list[str]:
    return [f"order {number}" for number in range(count)]


def test_every_message_is_in_the_table_once_and_a_second_run_adds_what_is_new(
    spark: SparkSession, rocketmq: LocalCluster, tmp_path: Path
) -> None:
    send(rocketmq, range(50))
    first = archive.run(spark, options(rocketmq, tmp_path / "t", batch=20, by_hour=True))
    assert (first.facts["rowsWritten"], first.facts["resumed"]) == (50, False)
    assert bodies(tmp_path / "t") == expected(50)
    send(rocketmq, range(50, 80))
    second = archive.run(spark, options(rocketmq, tmp_path / "t", by_hour=True))
    assert (second.facts["rowsWritten"], second.facts["resumed"]) == (30, True)
    assert bodies(tmp_path / "t") == expected(80)
    third = archive.run(spark, options(rocketmq, tmp_path / "t", by_hour=True))
    assert (third.facts["rowsWritten"], third.outcome) == (0, Outcome.FINISHED)
    (counts,) = third.tables
    assert sum(row[2] for row in counts.rows if isinstance(row[2], int)) == 80
    folders = {path.parent.relative_to(tmp_path / "t").parts for path in files(tmp_path / "t")}
    assert {len(parts) for parts in folders} == {3}
    assert {parts[0] for parts in folders} == {"topic=orders"}


def files(table: Path) -> list[Path]:
    return [path for path in table.rglob("*.parquet") if "_staging" not in str(path)]


class Killed(Exception):
    """Stands for a process that ends here."""


@pytest.mark.parametrize(
    ("method", "call"),
    [
        ("write_atomically", 1),  # rows staged, nothing decided
        ("rename", 2),  # decided, nothing moved
        ("rename", 3),  # some moved
        ("delete", 2),  # all moved, Spark not told
    ],
)
def test_a_batch_that_dies_anywhere_lands_once(  # noqa: PLR0917 - fixtures and examples
    spark: SparkSession,
    rocketmq: LocalCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    call: int,
) -> None:
    send(rocketmq, range(20))
    send(rocketmq, range(20, 40), topic="returns")  # two files to move
    both = options(rocketmq, tmp_path / "t", topics=("orders", "returns"))
    calls = 0
    whole = getattr(HadoopFiles, method)

    def dies(self: HadoopFiles, *given: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            raise Killed(method)
        return whole(self, *given)

    with monkeypatch.context() as patched:
        patched.setattr(HadoopFiles, method, dies)
        with pytest.raises(PipelineError, match="Killed"):
            archive.run(spark, both)
    assert calls == call
    send(rocketmq, range(40, 50))
    again = archive.run(spark, both)
    assert bodies(tmp_path / "t") == expected(50)
    decided = method == "delete" or call > 1
    assert again.facts["batchesFinishedFromLastRun"] == int(decided)


def test_a_run_that_is_told_to_stop_goes_on_later(
    spark: SparkSession, rocketmq: LocalCluster, tmp_path: Path
) -> None:
    send(rocketmq, range(30))
    watch = Watch()
    watch.on_progress(lambda streams, _: watch.stop() if streams[0].batches else None)
    following = options(rocketmq, tmp_path / "t", follow=True, every_ms=100)
    ended = archive.run(spark, following, watch)
    assert (ended.outcome, ended.exit_code) == (Outcome.ENDED, 0)
    assert bodies(tmp_path / "t") == expected(30)
    watch = Watch()
    watch.stop()
    stopped = archive.run(spark, options(rocketmq, tmp_path / "t"), watch)
    assert (stopped.outcome, stopped.exit_code) == (Outcome.STOPPED, 3)
    assert bodies(tmp_path / "t") == expected(30)


def test_a_table_is_not_filled_twice_from_two_checkpoints(
    spark: SparkSession, rocketmq: LocalCluster, tmp_path: Path
) -> None:
    send(rocketmq, range(5))
    archive.run(spark, options(rocketmq, tmp_path / "t"))
    other = options(rocketmq, tmp_path / "t", checkpoint=str(tmp_path / "other"))
    with pytest.raises(PipelineError, match="would write its rows again"):
        archive.run(spark, other)
    assert bodies(tmp_path / "t") == expected(5)


def test_a_topic_that_is_not_there_is_named(
    spark: SparkSession, rocketmq: LocalCluster, tmp_path: Path
) -> None:
    with pytest.raises(PipelineError, match="orders"):
        archive.run(spark, options(rocketmq, tmp_path / "t"))
    assert not files(tmp_path / "t")
