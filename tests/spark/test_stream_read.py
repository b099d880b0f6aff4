"""Streaming reads on a real session, from a real broker."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.topics import PATIENCE_S, Topic, forget, numbers

from firearrow import Admin
from firearrow.model.errors import SubscriptionGroupNotFound

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from firearrow.testing.cluster import LocalCluster

SCHEMA = "queueId int, offset bigint, body binary"


def to_parquet(
    topic: Topic, spark: SparkSession, folder: Path, *, now: bool = True, **options: str
) -> StreamingQuery:
    writer = (
        topic.stream(spark, SCHEMA, **options)
        .writeStream.format("parquet")
        .option("path", str(folder / "table"))
        .option("checkpointLocation", str(folder / "checkpoint"))
    )
    return (writer.trigger(availableNow=True) if now else writer).start()


def finished(query: StreamingQuery) -> list[Any]:
    assert query.awaitTermination(PATIENCE_S * 2)
    return [progress["numInputRows"] for progress in query.recentProgress]


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {what}"


def committed(topic: Topic, group: str) -> int:
    """What brokers know; 0 before they have heard of the group."""
    with Admin(nameservers=topic.nameservers) as admin, suppress(SubscriptionGroupNotFound):
        return sum(queue.committed_offset for queue in admin.group_lag(group).queues)
    return 0


def test_a_restarted_query_goes_on_where_it_stopped(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    topic.send_many(100)
    first = finished(to_parquet(topic, spark, tmp_path, maxOffsetsPerTrigger="40", group="jobs"))
    assert [rows for rows in first if rows] == [40, 40, 20]
    assert committed(topic, "jobs") == 100
    topic.send_many(50, start=100)
    assert sum(finished(to_parquet(topic, spark, tmp_path, group="jobs"))) == 50
    assert numbers(spark.read.parquet(str(tmp_path / "table"))) == list(range(150))
    assert committed(topic, "jobs") == 150


def test_a_running_query_follows_the_topic_and_tells_its_group(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    topic.send_many(10)
    query = to_parquet(
        topic,
        spark,
        tmp_path,
        now=False,
        group="live",
        metadataMaxAgeMs="200",
        commitIntervalMs="0",
    )
    try:
        until((tmp_path / "table").exists, "the first batch")
        with Admin(nameservers=topic.nameservers) as admin:
            admin.update_topic(topic.name, queues=5)
        topic.queues = 5
        topic.send_many(20, start=10)
        until(lambda: committed(topic, "live") == 30, "everything is committed to the group")
        progress = query.lastProgress
        assert progress is not None
        assert progress["sources"][0]["latestOffset"]
    finally:
        query.stop()
    assert numbers(spark.read.parquet(str(tmp_path / "table"))) == list(range(30))


def test_lost_messages_stop_a_restarted_query_until_it_may_leave_them_out(
    spark: SparkSession, forgetful: LocalCluster, tmp_path: Path
) -> None:
    topic = Topic(forgetful, "fading", queues=1)
    topic.send_many(5, size=500)
    assert sum(finished(to_parquet(topic, spark, tmp_path))) == 5
    topic.send_many(100, start=5, size=500)
    ((_, (least, behind)),) = forget(topic).items()
    with pytest.raises(Exception, match=f"messages 5 to {least - 1} are lost"):
        finished(to_parquet(topic, spark, tmp_path))
    assert sum(finished(to_parquet(topic, spark, tmp_path, failOnDataLoss="false"))) == (
        behind - least
    )
    expected = [*range(5), *range(least, behind)]
    assert numbers(spark.read.parquet(str(tmp_path / "table"))) == expected
