"""Spark reads from an unmodified Apache broker: tables, filters, streams, progress."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.spark.sessions import spark_session

from firearrow import Admin, Message, Producer
from firearrow.spark import pool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from .apache import Cluster

MESSAGES = 500


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with spark_session(tmp_path_factory.mktemp("spark")) as found:
        yield found
    pool.close_all()


@pytest.fixture
def filled(cluster: Cluster, unique: Callable[[str], str]) -> tuple[str, str]:
    """Name server and topic, with messages of every kind."""
    address, topic = cluster.nameserver.address, unique("spark")
    with Admin(nameservers=address) as admin:
        admin.create_topic(topic, queues=4)
    with Producer("spark-tests", nameservers=address, compress_over_bytes=2_000) as producer:
        for number in range(MESSAGES):
            body = f"{number} ".ljust(4_000 if number % 50 == 0 else 10)
            message = Message(
                topic,
                body,
                tags="odd" if number % 2 else "even",
                keys=f"k{number}",
                properties={"n": str(number)},
            )
            assert producer.send(message).ok
    return address, topic


def numbers(frame: DataFrame) -> list[int]:
    rows = frame.selectExpr("cast(trim(cast(body as string)) as int) as n").collect()
    return sorted(row.n for row in rows)


def options(filled: tuple[str, str], **more: str) -> dict[str, str]:
    return {"nameservers": filled[0], "subscribe": filled[1]} | more


def test_spark_reads_every_message_of_an_apache_broker(
    spark: SparkSession, filled: tuple[str, str]
) -> None:
    frame = spark.read.format("rocketmq").options(**options(filled)).load()
    assert numbers(frame) == list(range(MESSAGES))
    row = frame.where("keys = 'k50'").first()
    assert row is not None
    assert row.properties["n"] == "50"
    assert len(row.body) == 4_000
    odd = spark.read.format("rocketmq").options(**options(filled, tags="odd")).load()
    assert numbers(odd) == list(range(1, MESSAGES, 2))


def test_spark_streams_from_an_apache_broker_and_its_group_shows_it(
    spark: SparkSession, filled: tuple[str, str], tmp_path: Path, unique: Callable[[str], str]
) -> None:
    group = unique("spark-group")
    given = options(filled, startingOffsets="earliest", maxOffsetsPerTrigger="200", group=group)
    query = (
        spark.readStream.format("rocketmq")
        .options(**given)
        .load()
        .writeStream.format("parquet")
        .option("path", str(tmp_path / "table"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(240)
    assert numbers(spark.read.parquet(str(tmp_path / "table"))) == list(range(MESSAGES))
    assert [one["numInputRows"] for one in query.recentProgress if one["numInputRows"]] == [
        *(200, 200, 100)
    ]
    with Admin(nameservers=filled[0]) as admin:
        lag = admin.group_lag(group)
    assert sum(one.committed_offset for one in lag.queues) == MESSAGES
    assert json.loads(query.lastProgress["sources"][0]["endOffset"])  # type: ignore[index]
