"""Reading topics from Spark: rows a second and CPU a row, beside Parquet and perhaps Kafka.

    python -m benchmarks.spark_read                          a broker of its own, 400,000 x 1 KiB
    python -m benchmarks.spark_read --kafka 127.0.0.1:9092 --kafka-topic t --kafka-jars DIR

How it is measured stands in `spark_bench`.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.spark_bench import arguments_of, bench_session, broker, java_of, run_rounds
from firearrow import Admin, Message, Producer
from firearrow.model.topic import MessageQueue
from firearrow.pipeline import archive
from firearrow.pipeline.topics import TopicSelection

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

TOPIC: Final = "bench"
QUEUES: Final = 4
# What a row of Spark's Kafka source has: key, value, topic, partition, offset, timestamp, its type.
LIKE_KAFKA: Final = (
    "keys string, body binary, topic string, queueId int, offset bigint, "
    "storeTimestamp timestamp, flag int"
)


def fill(nameservers: str, count: int, body_bytes: int) -> None:
    """Bodies that differ, so that Parquet does not make one of many."""
    pool = random.Random(7).randbytes(1 << 22)
    with Admin(nameservers=nameservers) as admin:
        admin.create_topic(TOPIC, queues=QUEUES)
    with Producer("bench", nameservers=nameservers) as producer:
        for first in range(0, count, 200):
            queue = MessageQueue(
                topic=TOPIC, broker_name="broker-a", queue_id=first // 200 % QUEUES
            )
            producer.send_batch(
                [
                    Message(TOPIC, pool[at : at + body_bytes], tags="bench", keys=str(number))
                    for number in range(first, min(count, first + 200))
                    for at in (number * 1031 % ((1 << 22) - body_bytes),)
                ],
                queue=queue,
            )


def to_noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def stream_to_noop(frame: DataFrame, checkpoint: Path) -> None:
    query = (
        frame.writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def jobs(spark: SparkSession, nameservers: str, folder: Path) -> dict[str, Callable[[int], None]]:
    """What is measured, by name; each gets the number of its round."""
    given = {"nameservers": nameservers, "subscribe": TOPIC, "maxPartitions": "4"}

    def table(schema: str | None = None) -> DataFrame:
        reader = spark.read.format("rocketmq").options(**given)
        return (reader.schema(schema) if schema else reader).load()

    def stream(number: int) -> None:
        reader = spark.readStream.format("rocketmq").options(**given, startingOffsets="earliest")
        stream_to_noop(reader.schema(LIKE_KAFKA).load(), folder / f"checkpoint-{number}")

    def archived(number: int) -> None:
        selection = TopicSelection(nameservers, (TOPIC,), max_per_trigger=200_000)
        archive.run(spark, archive.ArchiveOptions(selection, str(folder / f"archive-{number}")))

    parquet = folder / "parquet"
    table(LIKE_KAFKA).write.parquet(str(parquet))
    return {
        "topic → noop, 7 columns": lambda _: to_noop(table(LIKE_KAFKA)),
        "topic → noop, offset and body": lambda _: to_noop(table("offset bigint, body binary")),
        "topic → noop, all 19 columns": lambda _: to_noop(table()),
        "topic → Parquet, 7 columns": lambda number: table(LIKE_KAFKA).write.parquet(
            str(folder / f"out-{number}")
        ),
        "topic stream → noop, 7 columns": stream,
        "archive: stream → table, all 19 columns": archived,
        "Parquet → noop": lambda _: to_noop(spark.read.parquet(str(parquet))),
    }


def kafka_jobs(
    spark: SparkSession, arguments: argparse.Namespace, folder: Path
) -> dict[str, Callable[[int], None]]:
    """The same with Spark's own source."""
    given = {
        "kafka.bootstrap.servers": arguments.kafka,
        "subscribe": arguments.kafka_topic,
        "startingOffsets": "earliest",
    }

    def table() -> DataFrame:
        return spark.read.format("kafka").options(**given).load()

    assert table().count() == arguments.rows, "Kafka's topic has another number of rows"
    return {
        "Kafka → noop": lambda _: to_noop(table()),
        "Kafka → Parquet": lambda number: table().write.parquet(str(folder / f"kafka-{number}")),
        "Kafka stream → noop": lambda number: stream_to_noop(
            spark.readStream.format("kafka").options(**given).load(), folder / f"at-{number}"
        ),
    }


def main() -> None:
    arguments = arguments_of(__doc__, rows=400_000, rounds=3)
    with tempfile.TemporaryDirectory() as name, broker(Path(name) / "data") as (address, pid):
        fill(address, arguments.rows, arguments.body_bytes)
        spark = bench_session(arguments)
        todo = jobs(spark, address, Path(name))
        if arguments.kafka:
            todo |= kafka_jobs(spark, arguments, Path(name))
        java = java_of(spark)
        run_rounds(
            "spark-read",
            todo,
            arguments,
            lambda job: ((java,), (arguments.kafka_pid if job.startswith("Kafka") else pid,)),
        )
        spark.stop()


if __name__ == "__main__":
    main()
