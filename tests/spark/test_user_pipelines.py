"""Pipelines of users: the examples do what they say, and mistakes are found before rows flow."""

from __future__ import annotations

import json
import runpy
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset
import pytest

from firearrow import ConsumeFromWhere, Message, Producer, PullConsumer, ReceivedMessage
from firearrow.base.errors import ConfigError
from firearrow.pipeline import project_run
from firearrow.pipeline.errors import PipelineError
from firearrow.pipeline.project import load_project
from firearrow.pipeline.status import read_status
from firearrow.pipeline.template import write_template

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from firearrow.pipeline.report import Report
    from firearrow.testing import LocalCluster

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "pipelines"
PATIENCE_MS = 30_000


@pytest.fixture(autouse=True)
def reached_by_environment(rocketmq: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", rocketmq.nameservers)


def copy_of(name: str, folder: Path) -> Path:
    return Path(shutil.copytree(EXAMPLES / name, folder / name))


def produce(project: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["produce.py", *arguments])
    runpy.run_path(str(project / "produce.py"), run_name="__main__")


def run(spark: SparkSession, project: Path) -> Report:
    return project_run.run(spark, load_project(project))


def rows(table: Path) -> list[dict[str, Any]]:
    """What a reader finds who has never heard of Spark."""
    found = pyarrow.dataset.dataset(table, format="parquet", partitioning="hive").to_table()
    return list(found.to_pylist())


def consume(cluster: LocalCluster, topic: str, count: int) -> list[ReceivedMessage]:
    found: list[ReceivedMessage] = []
    with PullConsumer(
        "reader",
        nameservers=cluster.nameservers,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    ) as reader:
        reader.subscribe(topic)
        while len(found) < count:
            got = reader.poll(PATIENCE_MS)
            assert got, f"{len(found)} of {count} messages came"
            found += got
        found += reader.poll(200)
    return found


def test_every_example_is_run_here() -> None:
    assert {path.name for path in EXAMPLES.iterdir()} == {"orders", "dead-letters", "clicks"}


def test_late_orders_count_while_their_window_is_open(
    spark: SparkSession, rocketmq: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = copy_of("orders", tmp_path)
    produce(project, monkeypatch)
    run(spark, project)
    # The newest order is of 10:39:50, so that every window up to 10:25 is closed.
    closed = rows(project / "out/totals")
    assert sum(row["orders"] for row in closed) == 25 * 6
    produce(project, monkeypatch, "late")
    with Producer("shop", nameservers=rocketmq.nameservers) as producer:  # time goes on
        order = {"id": 3000, "category": "books", "amount": 1.0, "at": "2026-11-18T11:00:00Z"}
        producer.send(Message("shop-orders", json.dumps(order)))
    run(spark, project)
    totals = rows(project / "out/totals")
    assert sum(row["orders"] for row in totals) == 240 + 3, "three were late, three were too late"
    assert len({(row["begin"], row["category"]) for row in totals}) == len(totals)
    orders = rows(project / "out/orders")
    assert len({row["id"] for row in orders}) == len(orders) == 240 + 3 + 3 + 1
    told = [json.loads(one.text) for one in consume(rocketmq, "shop-totals", len(totals))]
    assert sum(one["orders"] for one in told) == 243
    streams = {one["name"]: one for one in read_status(project / ".firearrow")["streams"]}
    assert streams["order-analytics.totals_table"]["droppedLate"] > 0
    assert streams["order-analytics.orders_table"]["lagTotal"] == 0


def test_dead_letters_go_back_or_are_parked_once(
    spark: SparkSession, rocketmq: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = copy_of("dead-letters", tmp_path)
    produce(project, monkeypatch)
    for _ in range(2):  # a second run has nothing to do
        run(spark, project)
    verdicts = {row["keys"]: row["verdict"] for row in rows(project / "out/verdicts")}
    wanted = {"order-2": "again", "order-3": "invalid", "order-4": "again", "order-5": "broken"}
    assert verdicts == wanted
    back = [one for one in consume(rocketmq, "paid-orders", 7) if one.properties.get("redriven")]
    assert sorted(one.keys[0] for one in back) == ["order-2", "order-4"]
    assert {json.loads(one.text)["bank"] for one in back} == {"south"}
    parked = consume(rocketmq, "billing-parked", 2)
    assert {one.keys[0]: one.properties["verdict"] for one in parked} == {
        "order-3": "invalid",
        "order-5": "broken",
    }


def test_clicks_become_sessions(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = copy_of("clicks", tmp_path)
    produce(project, monkeypatch)
    run(spark, project)
    table = rows(project / "out/sessions")
    found = sorted((row["user"], row["clicks"], row["bought"]) for row in table)
    # Ann's second session, which moves the watermark, is not over yet.
    assert found == [("ann", 4, True), ("ben", 1, False), ("ben", 2, False), ("cem", 1, False)]


def test_a_new_project_runs_as_it_is(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    project = tmp_path / "orders"
    write_template(project, "orders")
    produce(project, monkeypatch)
    looked = project_run.dry_run(spark, load_project(project))
    columns, sinks, *plans = looked.tables
    assert ("orders", "stream", "amount", "double") in columns.rows
    assert [row[0] for row in sinks.rows] == ["archive", "screen"]
    assert len(plans) == 2
    assert not (project / ".firearrow").exists(), "a dry run writes nothing"
    capsys.readouterr()
    run(spark, project)
    assert len(rows(project / "out/orders")) == 99
    assert "screen, batch 0" in capsys.readouterr().out
    status = read_status(project / ".firearrow")
    assert (status["state"], status["error"]) == ("finished", None)


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("topic: orders", "topic: oders", r"line 9, sources\.orders: there is no topic 'oders'"),
        ("FROM valid", "FROM vald", r"line 19, steps\.by_minute: .*vald"),
        ("count(*)", "count(*", r"line 19, steps\.by_minute: .*[Ss]yntax"),
        ("steps.py:valid", "steps.py:vald", r"line 16, .*has no function 'vald'; it has .*valid"),
        ("column: at", "column: when", r"line 9, .*no column 'when'; there are id, customer"),
        ("partition_by: day", "partition_by: date", r"line 25, .*no column 'date'"),
        ("schema: id bigint", "schema: id bigit", r"line 9, sources\.orders: .*bigit"),
        ("console: true\n    mode: update", "topic: x\n    options: {delivry: x}", "delivry"),
    ],
)
def test_a_mistake_is_found_before_anything_is_written(  # noqa: PLR0917 - fixtures, examples
    spark: SparkSession,
    rocketmq: LocalCluster,
    tmp_path: Path,
    old: str,
    new: str,
    error: str,
) -> None:
    project = tmp_path / "orders"
    write_template(project, "orders")
    with Producer("shop", nameservers=rocketmq.nameservers) as producer:
        producer.send(Message("orders", "{}"))
    file = project / "pipeline.yaml"
    text = file.read_text("utf-8")
    assert old in text
    file.write_text(text.replace(old, new), "utf-8")
    with pytest.raises((ConfigError, PipelineError), match=error):
        project_run.run(spark, load_project(project))
    assert not (project / "out").exists()
    assert read_status(project / ".firearrow")["state"] == "failed"


def test_a_running_total_without_a_watermark_is_explained(
    spark: SparkSession, rocketmq: LocalCluster, tmp_path: Path
) -> None:
    project = tmp_path / "orders"
    write_template(project, "orders")
    with Producer("shop", nameservers=rocketmq.nameservers) as producer:
        producer.send(Message("orders", "{}"))
    file = project / "pipeline.yaml"
    text = file.read_text("utf-8").replace("    watermark: {column: at, delay: 10 minutes}\n", "")
    file.write_text(text.replace("mode: update", "mode: append"), "utf-8")
    with pytest.raises(ConfigError, match=r"sinks\.screen: .*need a watermark: \{column"):
        project_run.dry_run(spark, load_project(project))
