"""Rates, latencies, lag and retries out of a topic."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from firearrow import ConsumeFromWhere, Message, Producer, PullConsumer
from firearrow.client.admin_results import GroupLag, QueueLag
from firearrow.model.topic import MessageQueue
from firearrow.pipeline import metrics
from firearrow.pipeline.errors import PipelineError
from firearrow.pipeline.metrics import MetricsOptions, lag_rows, windows
from firearrow.pipeline.topics import TopicSelection

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from firearrow.testing import LocalCluster

PATIENCE_MS = 30_000


def send(cluster: LocalCluster, count: int) -> None:
    with Producer("shop", nameservers=cluster.nameservers) as producer:
        for number in range(count):
            producer.send(Message("orders", f"order {number:04}", keys=f"k{number}"))


def reader(cluster: LocalCluster, group: str) -> PullConsumer:
    return PullConsumer(
        group,
        nameservers=cluster.nameservers,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )


def consume(cluster: LocalCluster, group: str, topic: str, count: int) -> list[str]:
    texts: list[str] = []
    with reader(cluster, group) as consumer:
        consumer.subscribe(topic)
        while len(texts) < count:
            got = consumer.poll(PATIENCE_MS)
            assert got, f"{len(texts)} of {count} came"
            texts += [message.text for message in got]
        consumer.commit()
    return texts


def test_windows_of_a_topic_reach_table_topic_and_pictures(
    spark: SparkSession, rocketmq: LocalCluster, tmp_path: Path
) -> None:
    send(rocketmq, 30)
    consume(rocketmq, "billing", "orders", 30)
    rocketmq.advance(minutes=5)  # the first window is over, and past its watermark
    send(rocketmq, 10)
    options = MetricsOptions(
        TopicSelection(rocketmq.nameservers, ("orders",)),
        str(tmp_path / "metrics"),
        groups=("billing",),
        window="1 minute",
        to_topic="metrics",
        plots=tmp_path / "plots",
    )
    report = metrics.run(spark, options)
    assert report.facts["messagesMeasured"] == 40
    table = spark.read.parquet(str(tmp_path / "metrics" / "topics"))
    closed = table.groupBy("topic").sum("messages", "bytes").collect()
    assert [tuple(row) for row in closed] == [("orders", 30, 30 * len("order 0000"))]
    lag = spark.read.parquet(str(tmp_path / "metrics" / "groups")).orderBy("at").collect()[-1]
    assert (lag["group"], lag["topic"], lag["lag"]) == ("billing", "orders", 10)
    assert {path.name for path in report.plots} == {"rates.png", "latency.png", "lag.png"}
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in report.plots)
    written = report.facts["windowsWritten"]
    assert isinstance(written, int)
    batches = len({row["at"] for row in spark.read.parquet(f"{options.table}/groups").collect()})
    told = [json.loads(text) for text in consume(rocketmq, "c", "metrics", written + batches)]
    by_kind: dict[str, list[dict[str, Any]]] = {"topic": [], "group": []}
    for one in told:
        by_kind[one["kind"]].append(one)
    assert sum(one["messages"] for one in by_kind["topic"]) == 30
    assert by_kind["group"][-1]["lag"] == 10
    again = metrics.run(spark, options)
    assert (again.facts["resumed"], again.facts["windowsWritten"]) == (True, 0)


def test_a_window_counts_retries_and_latencies(spark: SparkSession) -> None:
    base = datetime(2026, 11, 18, 10, 0, tzinfo=UTC)
    rows = [
        (
            "%RETRY%billing",
            base.replace(second=number // 10),
            base.replace(second=number // 10, microsecond=(number % 10) * 1000),
            int(number < 4),
            b"12345",
        )
        for number in range(100)
    ]
    columns = "topic string, bornTimestamp timestamp, storeTimestamp timestamp, "
    frame = spark.createDataFrame(rows, columns + "reconsumeTimes int, body binary")
    (row,) = windows(frame, "10 seconds", "1 second").collect()
    assert (row["messages"], row["bytes"], row["retries"]) == (100, 500, 4)
    assert (row["messagesPerSecond"], row["bytesPerSecond"]) == (10.0, 50.0)
    assert (row["latencyP50Ms"], row["latencyP99Ms"], row["latencyMaxMs"]) == (4, 9, 9)
    assert row["group"] == "billing"


def test_a_group_that_is_not_there_is_named(
    spark: SparkSession, rocketmq: LocalCluster, tmp_path: Path
) -> None:
    send(rocketmq, 1)
    selection = TopicSelection(rocketmq.nameservers, ("orders",))
    options = MetricsOptions(selection, str(tmp_path / "m"), groups=("biling",))
    with pytest.raises(PipelineError, match="no consumer group 'biling'"):
        metrics.run(spark, options)


def test_the_delay_of_a_group_is_that_of_its_slowest_queue() -> None:
    def queue(number: int, behind: int, last_ms: int | None) -> QueueLag:
        return QueueLag(
            queue=MessageQueue(topic="orders", broker_name="a", queue_id=number),
            broker_offset=10,
            committed_offset=10 - behind,
            pulled_offset=None,
            last_timestamp_ms=last_ms,
        )

    queues = (queue(0, 0, 1_000), queue(1, 4, 7_000), queue(2, 1, 9_000))
    ((at, *row),) = lag_rows(GroupLag(group="g", queues=queues, consume_tps=2.5), 10_000)
    assert at.timestamp() == 10
    assert row == ["g", "orders", 5, 3_000, 2.5]
