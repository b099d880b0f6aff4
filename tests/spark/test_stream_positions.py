"""What the driver of a streaming query decides, asked as Spark asks it; a real broker, no Spark."""

from __future__ import annotations

import logging
import pickle
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import BinaryType, LongType, StructField, StructType
from tests.spark.topics import BROKER, Topic, forget

from firearrow import Admin
from firearrow.spark.errors import DataLoss
from firearrow.spark.options import ReadOptions
from firearrow.spark.reading import QueueRanges
from firearrow.spark.stream_reader import StreamReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from firearrow.testing.cluster import LocalCluster

SCHEMA = StructType([StructField("offset", LongType()), StructField("body", BinaryType())])
ALL = ReadAllAvailable()


class Query:
    """A stream reader, and the positions that Spark would keep."""

    def __init__(self, topic: Topic, **options: str) -> None:
        given = {"startingOffsets": "earliest"} | topic.options | options
        self.topic = topic
        self.reader = StreamReader(ReadOptions.parse(given, streaming=True), SCHEMA)
        self.position = self.reader.initialOffset()

    def batch(self) -> list[int]:
        """Rows of the next batch by queue, read as tasks read them."""
        end = self.reader.latestOffset(self.position, self.reader.getDefaultReadLimit())
        assert end == dict(sorted(end.items()))
        tasks = self.reader.partitions(self.position, end)
        copy = pickle.loads(pickle.dumps(self.reader))
        found = []
        for task in tasks:
            assert isinstance(task, QueueRanges)
            for rows in copy.read(pickle.loads(pickle.dumps(task))):
                found += [int(body) for body in rows.column("body").to_pylist()]
        assert sorted(end.keys() & self.position.keys()) == sorted(self.position)
        assert all(end[key] >= self.position[key] for key in self.position)
        self.position = end
        return sorted(found)

    def tasks(self) -> list[QueueRanges]:
        """The tasks of everything there is."""
        end = self.reader.latestOffset(self.position, ALL)
        return list(self.reader.partitions(self.position, end))

    def advance(self) -> int:
        """How many offsets the next batch would cover; without reading it."""
        end = self.reader.latestOffset(self.position, self.reader.getDefaultReadLimit())
        count = sum(end[key] - self.position.get(key, 0) for key in end)
        self.position = end
        return count


@pytest.fixture
def queries() -> Iterator[list[Query]]:
    found: list[Query] = []
    yield found
    for query in found:
        query.reader.stop()


def test_limits_are_shared_by_backlog_and_every_message_comes_once(
    topic: Topic, queries: list[Query]
) -> None:
    topic.send_many(100)
    query = Query(topic, maxOffsetsPerTrigger="30")
    queries.append(query)
    assert isinstance(query.reader.getDefaultReadLimit(), ReadMaxRows)
    batches = [query.batch() for _ in range(4)]
    assert [len(batch) for batch in batches] == [30, 30, 30, 10]
    assert sorted(n for batch in batches for n in batch) == list(range(100))
    assert query.reader.reportLatestOffset() == query.position


def test_bytes_are_limited_by_what_messages_of_the_topic_weigh(
    topic: Topic, queries: list[Query]
) -> None:
    topic.send_many(400, size=1_000)
    query = Query(topic, maxBytesPerTrigger="120000")
    queries.append(query)
    assert isinstance(query.reader.getDefaultReadLimit(), ReadMaxBytes)
    assert 80 <= len(query.batch()) <= 120


def test_available_now_stops_where_it_was_asked_to(topic: Topic, queries: list[Query]) -> None:
    topic.send_many(40)
    query = Query(topic, maxOffsetsPerTrigger="25", group="now")
    queries.append(query)
    query.reader.prepareForTriggerAvailableNow()
    topic.send_many(40, start=40)
    assert len(query.batch()) == 25
    assert len(query.batch()) == 15
    assert query.reader.latestOffset(query.position, ReadMaxRows(25)) == query.position
    with Admin(nameservers=topic.nameservers) as admin:
        lag = admin.group_lag("now")
    assert sum(queue.committed_offset for queue in lag.queues) == 40, "the last batch counts too"


def test_too_few_messages_wait_until_the_delay_is_over(topic: Topic, queries: list[Query]) -> None:
    topic.send_many(20)
    patient = Query(topic, minOffsetsPerTrigger="50", maxTriggerDelay="1h")
    hasty = Query(topic, minOffsetsPerTrigger="50", maxTriggerDelay="0ms")
    queries += [patient, hasty]
    assert patient.advance() == 0
    assert hasty.advance() == 20
    topic.send_many(40, start=20)
    assert next(filter(None, iter(patient.advance, -1))) == 60


def test_queues_that_appear_are_read_from_their_beginning(
    topic: Topic, queries: list[Query]
) -> None:
    topic.send_many(8)
    query = Query(topic, metadataMaxAgeMs="0", startingOffsets="latest")
    queries.append(query)
    assert query.batch() == []
    with Admin(nameservers=topic.nameservers) as admin:
        admin.update_topic(topic.name, queues=6)
    topic.queues = 6
    topic.send_many(12, start=12)
    found: list[int] = []
    while len(found) < 12:
        found += query.batch()
    assert sorted(found) == list(range(12, 24))
    assert f"{topic.name}@{BROKER}@5" in query.position


def test_an_idle_query_asks_brokers_a_few_times_a_second_at_most(
    topic: Topic, queries: list[Query]
) -> None:
    query = Query(topic)
    queries.append(query)
    for _ in range(3):
        assert query.reader.latestOffset(query.position, ALL) == query.position
        query.reader.reportLatestOffset()
    driver = query.reader._driver  # noqa: SLF001 - what it asked is not Spark's business
    assert driver is not None
    assert driver.heads.asked <= 30


def test_lost_messages_end_the_query_or_are_left_out(
    forgetful: LocalCluster, queries: list[Query], caplog: pytest.LogCaptureFixture
) -> None:
    topic = Topic(forgetful, "fading", queues=1)
    strict, lenient = Query(topic), Query(topic, failOnDataLoss="false")
    queries += [strict, lenient]
    topic.send_many(100, size=500)
    ((_, (least, behind)),) = forget(topic).items()
    with pytest.raises(DataLoss, match=f"queue 0 of topic fading .* 0 to {least - 1} are lost"):
        strict.batch()
    with caplog.at_level(logging.WARNING):
        assert lenient.batch() == list(range(least, behind))
    assert f"messages 0 to {least - 1} are lost" in caplog.text


def test_a_task_that_meets_a_loss_says_so(forgetful: LocalCluster, queries: list[Query]) -> None:
    topic = Topic(forgetful, "fading", queues=1)
    topic.send_many(100, size=500)
    strict, lenient = Query(topic), Query(topic, failOnDataLoss="false")
    queries += [strict, lenient]
    (strict_task,), (lenient_task,) = strict.tasks(), lenient.tasks()
    ((_, (least, behind)),) = forget(topic).items()
    with pytest.raises(DataLoss, match=f"messages 0 to {least - 1} are lost"):
        list(strict.reader.read(strict_task))
    rows = list(lenient.reader.read(lenient_task))
    assert sum(batch.num_rows for batch in rows) == behind - least


def test_a_broker_that_comes_back_is_read_on(forgetful: LocalCluster) -> None:
    topic = Topic(forgetful, "back", queues=1)
    topic.send_many(600, size=1_000)
    query = Query(topic, pullMessages="50", batchRows="50", **{"fetchOffset.numRetries": "9"})
    (task,) = query.tasks()
    batches = query.reader.read(task)
    found = next(batches).column("body").to_pylist()
    forgetful.stop_broker()
    forgetful.restart_broker()
    for batch in batches:
        found += batch.column("body").to_pylist()
    assert [int(body) for body in found] == list(range(600))
    query.reader.stop()
