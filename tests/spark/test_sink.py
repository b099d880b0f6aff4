"""The sink on a real Spark session: both deliveries, batch and stream, mistakes before data."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from tests.spark.topics import Topic

from firearrow import PullConsumer
from firearrow.client.portal import portal
from firearrow.spark.options import ConnectionOptions, Given
from firearrow.spark.sink_cluster import SinkCluster
from firearrow.wire import java_json
from firearrow.wire.bodies import OpenTransactions
from firearrow.wire.codes import RequestCode

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from firearrow.client.message import ReceivedMessage

DELIVERIES = ["exactly-once", "at-least-once"]


def messages_of(topic: Topic) -> list[ReceivedMessage]:
    """All of a topic, each queue in its order."""
    found: list[Any] = []
    with PullConsumer("sink-tests", nameservers=topic.nameservers) as consumer:
        queues = consumer.queues(topic.name)
        consumer.assign(queues)
        for queue in queues:
            consumer.seek_to_beginning(queue)
        count = sum(consumer.max_offset(queue) for queue in queues)
        while len(found) < count:
            found += consumer.poll(1_000)
    return sorted(found, key=lambda message: (message.queue_id, message.queue_offset))


def numbers(topic: Topic) -> Counter[int]:
    return Counter(int(message.body) for message in messages_of(topic))


def save(rows: DataFrame, topic: Topic, **options: str) -> None:
    writer = rows.write.format("rocketmq").option("nameservers", topic.nameservers)
    if "topic" not in options:
        writer = writer.option("topic", topic.name)
    writer.options(**options).mode("append").save()


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_rows_become_messages(spark: SparkSession, topic: Topic, delivery: str) -> None:
    rows = spark.range(2_000).selectExpr(
        "cast(id AS string) AS body",
        "if(id % 2 = 0, 'even', 'odd') AS tags",
        "concat('k', id) AS keys",
        "map('n', cast(id AS string)) AS properties",
        "cast(id % 10 AS string) AS shardingKey",
    )
    save(rows.repartition(3), topic, delivery=delivery)
    found = messages_of(topic)
    assert Counter(int(message.body) for message in found) == Counter(range(2_000))
    assert len({message.msg_id for message in found}) == 2_000
    queues: dict[str, set[int]] = {}
    for message in found:
        number = int(message.body)
        assert message.tags == ("odd" if number % 2 else "even")
        assert message.properties["KEYS"] == f"k{number}"
        assert message.properties["n"] == str(number)
        queues.setdefault(message.properties["__SHARDINGKEY"], set()).add(message.queue_id)
    assert len(queues) == 10
    assert all(len(places) == 1 for places in queues.values())


def test_rows_of_one_key_stay_in_order(spark: SparkSession, topic: Topic) -> None:
    rows = (
        spark.range(3_000)
        .coalesce(1)
        .selectExpr("cast(id AS string) AS body", "cast(id % 3 AS string) AS shardingKey")
    )
    for delivery in DELIVERIES:
        save(rows, topic, delivery=delivery, requestBytes="2000")
    by_key: dict[str, list[int]] = {}
    for message in messages_of(topic):
        by_key.setdefault(message.properties["__SHARDINGKEY"], []).append(int(message.body))
    for found in by_key.values():
        assert found[:1_000] == sorted(found[:1_000])
        assert found[1_000:] == found[:1_000]


def test_each_row_may_name_its_topic_and_queue(spark: SparkSession, topic: Topic) -> None:
    other = Topic(topic.cluster, f"{topic.name}_2", queues=4)
    rows = spark.range(40).selectExpr(
        "cast(cast(id AS string) AS binary) AS value",
        f"if(id % 2 = 0, '{topic.name}', '{other.name}') AS topic",
        "cast(id % 4 AS int) AS queueId",
    )
    writer = rows.write.format("rocketmq").option("nameservers", topic.nameservers)
    writer.mode("append").save()
    for place, first in ((topic, 0), (other, 1)):
        found = messages_of(place)
        assert sorted(int(message.body) for message in found) == [*range(first, 40, 2)]
        assert all(int(message.body) % 4 == message.queue_id for message in found)


def test_job_that_is_run_again_writes_nothing_twice(spark: SparkSession, topic: Topic) -> None:
    rows = spark.range(100).selectExpr("cast(id AS string) AS body")
    for _ in range(2):
        save(rows, topic, jobId=f"{topic.name}-1")
    assert numbers(topic) == Counter(range(100))
    save(rows, topic, jobId=f"{topic.name}-2")
    assert numbers(topic) == Counter([*range(100)] * 2)


def test_what_was_read_can_be_written_again(spark: SparkSession, topic: Topic) -> None:
    topic.send_many(20)
    copy = Topic(topic.cluster, f"{topic.name}_copy", queues=4)
    rows = (
        spark.read.format("rocketmq")
        .option("nameservers", topic.nameservers)
        .option("subscribe", topic.name)
        .load()
    )
    save(rows, copy)
    before, after = messages_of(topic), messages_of(copy)
    assert [(one.queue_id, one.body, one.tags, one.properties["n"]) for one in before] == [
        (one.queue_id, one.body, one.tags, one.properties["n"]) for one in after
    ]
    assert {one.msg_id for one in before}.isdisjoint({one.msg_id for one in after})


def test_stream_is_written_and_goes_on_where_it_was(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    copy = Topic(topic.cluster, f"{topic.name}_copy", queues=2)
    for start in (0, 50):
        topic.send_many(50, start=start)
        query = (
            spark.readStream.format("rocketmq")
            .option("nameservers", topic.nameservers)
            .option("subscribe", topic.name)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "20")
            .load()
            .select("body", "tags")
            .writeStream.format("rocketmq")
            .option("nameservers", topic.nameservers)
            .option("topic", copy.name)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
        assert query.exception() is None
        assert numbers(copy) == Counter(range(start + 50))


def test_task_that_fails_for_good_leaves_nothing_open(spark: SparkSession, topic: Topic) -> None:
    rows = spark.range(100).coalesce(1).selectExpr("if(id = 99, '', cast(id AS string)) AS body")
    with pytest.raises(PySparkException, match="a row cannot be a message"):
        save(rows, topic, requestBytes="500")
    assert messages_of(topic) == []
    assert all(one.topic != topic.name for one in opened(topic))


def opened(topic: Topic) -> list[Any]:
    async def ask() -> list[Any]:
        cluster = SinkCluster(ConnectionOptions.parse(Given({"nameservers": topic.nameservers})))
        session = await cluster.open()
        try:
            code = RequestCode.FIREARROW_GET_OPEN_TRANSACTIONS
            answer = await session.call(topic.cluster.broker_address, code)
            return list(java_json.decode(answer.body, OpenTransactions).transactions)
        finally:
            await cluster.close()

    return portal.call(ask)


# --- mistakes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "options", "because"),
    [
        ("id", {}, "column 'id' is none that the sink"),
        ("id AS body", {}, "'body' must be binary or string, not bigint"),
        ("'x' AS body", {"topik": "t"}, "did you mean 'topic'"),
        ("'x' AS body", {"nameservers": "127.0.0.1:1"}, "option nameservers"),
        ("'x' AS body", {"delivery": "maybe"}, "exactly-once, at-least-once expected"),
    ],
)
def test_mistake_is_named_before_anything_is_written(
    spark: SparkSession, topic: Topic, columns: str, options: dict[str, str], because: str
) -> None:
    with pytest.raises(PySparkException, match=because):
        save(spark.range(3).selectExpr(columns), topic, **options)
    assert messages_of(topic) == []


def test_topic_cannot_be_overwritten(spark: SparkSession, topic: Topic) -> None:
    writer = spark.range(3).selectExpr("'x' AS body").write.format("rocketmq")
    writer = writer.option("nameservers", topic.nameservers).option("topic", topic.name)
    with pytest.raises(PySparkException, match="cannot be overwritten"):
        writer.mode("overwrite").save()
