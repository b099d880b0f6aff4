"""Batch reads on a real session, from a real broker."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.spark.topics import BROKER, Topic, forget, numbers

from firearrow import Message, Producer, PullConsumer
from firearrow.testing.cluster import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from firearrow.client.message import ReceivedMessage


def consumed(topic: Topic, count: int) -> dict[str, ReceivedMessage]:
    """What our own client gets, by message id."""
    found: dict[str, ReceivedMessage] = {}
    with PullConsumer("reader", nameservers=topic.nameservers) as consumer:
        queues = consumer.queues(topic.name)
        consumer.assign(queues)
        for queue in queues:
            consumer.seek_to_beginning(queue)
        while len(found) < count:
            found |= {one.msg_id: one for one in consumer.poll()}
    return found


def test_every_column_is_what_the_client_sees(spark: SparkSession, topic: Topic) -> None:
    topic.send("plain", "naïve ✓", tags="paid", keys=["k1", "k2"], properties={"région": "süd"})
    topic.send("neither tags nor keys", flag=7)
    for compression in ("zlib", "lz4", "zstd"):
        with Producer(
            compression,
            nameservers=topic.nameservers,
            compress_over_bytes=10,
            compression=compression,
        ) as producer:
            producer.send(Message(topic.name, f"packed by {compression} " * 50))
    with Producer("batches", nameservers=topic.nameservers) as producer:
        producer.send_batch([Message(topic.name, f"of a batch {n}") for n in range(3)])
    seen = consumed(topic, 9)
    rows = {row.msgId: row for row in topic.table(spark).collect()}
    assert rows.keys() == seen.keys()
    for key, message in seen.items():
        row = rows[key]
        assert bytes(row.body) == message.body
        assert row.properties == message.properties
        assert (row.topic, row.broker, row.queueId, row.offset) == (
            message.topic,
            message.broker_name,
            message.queue_id,
            message.queue_offset,
        )
        assert (row.keys, row.tags) == (
            message.properties.get("KEYS"),
            message.properties.get("TAGS"),
        )
        assert row.offsetMsgId == message.offset_msg_id
        assert row.bornTimestamp.timestamp() * 1000 == pytest.approx(message.born_timestamp)
        assert row.storeTimestamp.timestamp() * 1000 == pytest.approx(message.store_timestamp)
        assert (row.bornHost, row.storeHost) == (message.born_host, message.store_host)
        assert (row.reconsumeTimes, row.flag) == (message.reconsume_times, message.flag)
        assert (row.sysFlag, row.physicalOffset) == (message.sys_flag, message.commit_log_offset)
        assert row.preparedTransactionOffset == message.prepared_offset


def test_a_schema_of_ones_own_reads_only_its_columns(spark: SparkSession, topic: Topic) -> None:
    topic.send("eins", tags="a", properties={"x": "1"})
    found = topic.table(spark, "body string, propertiesRaw string, offset bigint").collect()
    assert [(row.body, row.offset) for row in found] == [("eins", 0)]
    pairs = dict(pair.split("\x01") for pair in found[0].propertiesRaw.split("\x02") if pair)
    assert pairs["x"] == "1"
    assert pairs["TAGS"] == "a"


def test_ranges_are_cut_by_offsets_and_times(spark: SparkSession, topic: Topic) -> None:
    topic.send_many(40)
    everything = topic.table(
        spark, "queueId int, offset bigint, body binary, storeTimestamp timestamp"
    )
    assert numbers(everything) == list(range(40))
    cut = topic.table(
        spark,
        startingOffsets=json.dumps({topic.name: {"0": 7, f"{BROKER}:1": -1, f"{BROKER}@2": -2}}),
        endingOffsets=json.dumps({f"{topic.name}@{BROKER}@2": 2}),
    )
    assert sorted((row.queueId, row.offset) for row in cut.collect()) == [
        *((0, offset) for offset in (7, 8, 9)),
        *((2, offset) for offset in (0, 1)),
        *((3, offset) for offset in range(10)),
    ]
    times = sorted(row.storeTimestamp.timestamp() for row in everything.collect())
    last_ms = round(times[-1] * 1000)
    expected = sum(round(time * 1000) >= last_ms for time in times)
    late = topic.table(
        spark, startingTimestamp=str(last_ms), startingOffsetsByTimestampStrategy="latest"
    )
    assert late.count() == expected
    assert topic.table(spark, endingTimestamp=str(last_ms)).count() == 40 - expected


def test_tags_and_sql_are_judged_by_the_broker(spark: SparkSession, topic: Topic) -> None:
    topic.send_many(300)
    assert numbers(topic.table(spark, tags="odd || other")) == list(range(1, 300, 2))
    assert numbers(topic.table(spark, sql="n > 290 AND TAGS = 'even'")) == [292, 294, 296, 298]
    assert numbers(topic.table(spark, tags="none")) == []


def test_sql_without_the_brokers_leave_names_the_setting(spark: SparkSession) -> None:
    with LocalCluster() as cluster:
        topic = Topic(cluster, "plain", queues=1)
        topic.send("x")
        with pytest.raises(Exception, match="enablePropertyFilter"):
            topic.table(spark, sql="n > 1").count()


def test_tasks_are_as_many_as_asked_for(spark: SparkSession, topic: Topic) -> None:
    topic.send_many(200)
    schema = "queueId int, offset bigint, body binary"
    assert topic.table(spark, schema, maxPartitions="3").rdd.getNumPartitions() == 3
    many = topic.table(spark, schema, minPartitions="9")
    assert many.rdd.getNumPartitions() >= 9
    assert numbers(many) == list(range(200))
    small = topic.table(spark, schema, maxRecordsPerPartition="25")
    assert small.rdd.getNumPartitions() == 8
    assert numbers(small) == list(range(200))


def test_conditions_of_one_query_are_forgotten_in_the_next(
    spark: SparkSession, topic: Topic
) -> None:
    topic.send_many(100)
    frame = topic.table(spark, "queueId int, offset bigint, tags string, body binary")
    assert numbers(frame.where("queueId = 1 and offset >= 20")) == [81, 85, 89, 93, 97]
    assert numbers(frame) == list(range(100))
    assert frame.where("offset > 20").union(frame).count() == 16 + 100


def test_a_table_stays_as_its_first_query_found_it(spark: SparkSession, topic: Topic) -> None:
    topic.send_many(10)
    table = topic.table(spark, "offset bigint")
    assert table.count() == 10
    topic.send_many(5)
    assert table.count() == table.where("offset >= 0").count() == 10
    assert topic.table(spark, "offset bigint").count() == 15


def test_sessions_find_the_source_without_registration(spark: SparkSession, topic: Topic) -> None:
    topic.send("found")
    fresh = spark.newSession()
    assert topic.table(fresh, "body string").first().body == "found"  # type: ignore[union-attr]


def test_an_empty_topic_is_an_empty_table(spark: SparkSession, topic: Topic) -> None:
    assert topic.table(spark).count() == 0


MISTAKES: list[tuple[str | None, dict[str, str], str]] = [
    (None, {"subscribe": "nowhere"}, "'nowhere' of option 'subscribe' does not exist"),
    (None, {"maxPartition": "2"}, "did you mean 'maxPartitions'"),
    (None, {"nameservers": "127.0.0.1:1", "fetchOffset.numRetries": "0"}, "servers 127.0.0.1:1"),
    ("offset string", {}, "column 'offset' is bigint, not string"),
    ("colour string", {}, "no column 'colour'"),
]


def test_mistakes_are_named_before_anything_is_read(spark: SparkSession, topic: Topic) -> None:
    for schema, options, said in MISTAKES:
        with pytest.raises(Exception, match=said):
            topic.table(spark, schema, **options).count()


def test_expired_offsets_are_an_error_or_a_gap(
    spark: SparkSession, forgetful: LocalCluster
) -> None:
    topic = Topic(forgetful, "fading", queues=1)
    topic.send_many(100, size=500)
    least, behind = next(iter(forget(topic).values()))
    start = json.dumps({"fading": {"0": 0}})
    with pytest.raises(Exception, match=f"messages 0 to {least - 1} are lost.*failOnDataLoss"):
        topic.table(spark, startingOffsets=start).count()
    rest = topic.table(spark, startingOffsets=start, failOnDataLoss="false")
    assert rest.count() == behind - least
