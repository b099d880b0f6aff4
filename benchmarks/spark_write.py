"""Writing to topics from Spark: rows a second and CPU a row, in both deliveries, beside noop.

    python -m benchmarks.spark_write                         a broker of its own, 100,000 x 1 KiB
    python -m benchmarks.spark_write --rows 500000 --rounds 3 --master 'local[2]'
    python -m benchmarks.spark_write --kafka 127.0.0.1:9092 --kafka-topic t-sink --kafka-jars DIR

Rows come from Parquet, and reading it is part of every figure. The broker's CPU covers its commits.
How it is measured stands in `spark_bench`.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.spark_bench import arguments_of, bench_session, broker, java_of, run_rounds
from firearrow import Admin

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from pyspark.sql import DataFrame

QUEUES: Final = 4
FILES: Final = 4


def fill(folder: Path, rows: int, body_bytes: int) -> None:
    """Bodies that differ, so that Parquet does not make one of many."""
    pool = random.Random(7).randbytes(1 << 22)
    folder.mkdir()
    for number in range(FILES):
        numbers = range(number, rows, FILES)
        bodies = [
            pool[at : at + body_bytes]
            for row in numbers
            for at in (row * 1031 % ((1 << 22) - body_bytes),)
        ]
        table = pa.table({"body": bodies, "keys": [str(row) for row in numbers]})
        pq.write_table(table, folder / f"{number}.parquet", use_dictionary=False)


def jobs(
    rows: DataFrame, nameservers: str, arguments: argparse.Namespace
) -> dict[str, Callable[[int], None]]:
    def write(topic: str, delivery: str) -> None:
        with Admin(nameservers=nameservers) as admin:
            admin.create_topic(topic, queues=QUEUES)
        writer = rows.write.format("rocketmq").option("nameservers", nameservers)
        writer.option("topic", topic).option("delivery", delivery).mode("append").save()

    def to_kafka(_: int) -> None:
        writer = rows.selectExpr("body AS value", "keys AS key").write.format("kafka")
        writer.option("kafka.bootstrap.servers", arguments.kafka)
        writer.option("topic", arguments.kafka_topic).mode("append").save()

    found: dict[str, Callable[[int], None]] = {
        "Parquet → noop": lambda _: rows.write.format("noop").mode("overwrite").save(),
        "Parquet → topic, at least once": lambda _: write("bench-once-or-more", "at-least-once"),
        "Parquet → topic, exactly once": lambda _: write("bench-once", "exactly-once"),
    }
    if arguments.kafka:
        found["Parquet → Kafka, at least once"] = to_kafka
    return found


def main() -> None:
    arguments = arguments_of(__doc__, rows=100_000, rounds=2)
    with tempfile.TemporaryDirectory() as name, broker(Path(name) / "data") as (address, pid):
        fill(Path(name) / "rows", arguments.rows, arguments.body_bytes)
        spark = bench_session(arguments)
        java = java_of(spark)
        run_rounds(
            "spark-write",
            jobs(spark.read.parquet(str(Path(name) / "rows")), address, arguments),
            arguments,
            lambda job: ((java,), (arguments.kafka_pid if "Kafka" in job else pid,)),
        )
        spark.stop()


if __name__ == "__main__":
    main()
