"""Reading topics from Spark: rows a second and CPU a row, beside Parquet and perhaps Kafka.

    python -m benchmarks.spark_read                          a broker of its own, 400,000 x 1 KiB
    python -m benchmarks.spark_read --kafka 127.0.0.1:9092 --kafka-topic t --kafka-jars DIR

CPU is that of Java and of all Python workers; the broker's is apart. Workers that end between two
looks would be lost, because PySpark's daemon does not wait for them, so a thread keeps looking and
the last figure of every process counts. The first round of each job is thrown away.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from benchmarks.harness import keep_lines
from firearrow import Admin, Message, Producer
from firearrow.model.topic import MessageQueue
from firearrow.spark import session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

TICKS: Final = os.sysconf("SC_CLK_TCK")
TOPIC: Final = "bench"
QUEUES: Final = 4
# What a row of Spark's Kafka source has: key, value, topic, partition, offset, timestamp, its type.
LIKE_KAFKA: Final = (
    "keys string, body binary, topic string, queueId int, offset bigint, "
    "storeTimestamp timestamp, flag int"
)
LOOK_S: Final = 0.02


class Meter:
    """CPU time of processes and everything that they started, also of those that ended."""

    def __init__(self, *roots: int) -> None:
        self._roots = set(roots)
        self._seen: dict[tuple[int, str], float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._look()
        self._first = dict(self._seen)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._look()

    @property
    def cpu_s(self) -> float:
        return sum(self._seen.values()) - sum(self._first.values())

    def _run(self) -> None:
        while not self._stop.wait(LOOK_S):
            self._look()

    def _look(self) -> None:
        found: dict[int, tuple[int, str, float]] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                try:
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue  # it has just ended
                used = (int(fields[11]) + int(fields[12])) / TICKS
                found[int(entry.name)] = int(fields[1]), fields[19], used
        ours = set(self._roots)
        grown = True
        while grown:
            more = {pid for pid, (parent, _, _) in found.items() if parent in ours} - ours
            grown = bool(more)
            ours |= more
        for pid in ours & found.keys():
            _, started, used = found[pid]
            self._seen[pid, started] = used


@contextmanager
def broker(folder: Path) -> Iterator[tuple[str, int]]:
    """Name server and broker in a process of their own: address and process id."""
    command = [
        *(str(Path(sys.executable).parent / "firearrow"), "up", "--data", str(folder)),
        *("--nameserver-port", "0", "--broker-port", "0", "-o", "flushDiskType=ASYNC_FLUSH"),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        try:
            yield ready.partition("name server ")[2].partition(",")[0], process.pid
        finally:
            process.terminate()


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


def jobs(
    spark: SparkSession, arguments: argparse.Namespace, nameservers: str, folder: Path
) -> dict[str, Callable[[int], None]]:
    """What is measured, by name; each gets the number of its round."""
    given = {"nameservers": nameservers, "subscribe": TOPIC, "maxPartitions": "4"}

    def table(schema: str | None = None) -> DataFrame:
        reader = spark.read.format("rocketmq").options(**given)
        return (reader.schema(schema) if schema else reader).load()

    def stream(number: int) -> None:
        reader = spark.readStream.format("rocketmq").options(**given, startingOffsets="earliest")
        stream_to_noop(reader.schema(LIKE_KAFKA).load(), folder / f"checkpoint-{number}")

    parquet = folder / "parquet"
    table(LIKE_KAFKA).write.parquet(str(parquet))
    found: dict[str, Callable[[int], None]] = {
        "topic → noop, 7 columns": lambda _: to_noop(table(LIKE_KAFKA)),
        "topic → noop, offset and body": lambda _: to_noop(table("offset bigint, body binary")),
        "topic → noop, all 19 columns": lambda _: to_noop(table()),
        "topic → Parquet, 7 columns": lambda number: table(LIKE_KAFKA).write.parquet(
            str(folder / f"out-{number}")
        ),
        "topic stream → noop, 7 columns": stream,
        "Parquet → noop": lambda _: to_noop(spark.read.parquet(str(parquet))),
    }
    if arguments.kafka:
        kafka = {
            "kafka.bootstrap.servers": arguments.kafka,
            "subscribe": arguments.kafka_topic,
            "startingOffsets": "earliest",
        }
        found["Kafka → noop"] = lambda _: to_noop(
            spark.read.format("kafka").options(**kafka).load()
        )
        found["Kafka stream → noop"] = lambda number: stream_to_noop(
            spark.readStream.format("kafka").options(**kafka).load(), folder / f"kafka-{number}"
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--body-bytes", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--master", default="local[1]")
    parser.add_argument("--kafka", help="a broker that has --kafka-topic, with as many rows")
    parser.add_argument("--kafka-topic", default="t1k")
    parser.add_argument("--kafka-jars", help="a directory with Spark's Kafka connector")
    arguments = parser.parse_args()
    conf = {"spark.ui.enabled": "false", "spark.log.level": "ERROR", "spark.driver.memory": "1g"}
    if arguments.kafka_jars:
        conf["spark.jars"] = ",".join(map(str, Path(arguments.kafka_jars).glob("*.jar")))
    lines: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name, broker(Path(name) / "data") as (address, pid):
        fill(address, arguments.rows, arguments.body_bytes)
        spark = session("bench", master=arguments.master, conf=conf)
        java = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]  # noqa: SLF001
        for job, run in jobs(spark, arguments, address, Path(name)).items():
            rows_s, spark_us, broker_us = [], [], []
            for number in range(arguments.rounds + 1):
                with Meter(java) as ours, Meter(pid) as theirs:
                    began = time.perf_counter()
                    run(number)
                    took_s = time.perf_counter() - began
                if number:
                    rows_s.append(arguments.rows / took_s)
                    spark_us.append(1e6 * ours.cpu_s / arguments.rows)
                    broker_us.append(1e6 * theirs.cpu_s / arguments.rows)
            line = {
                "job": job,
                "rows_per_second": round(statistics.median(rows_s)),
                "cpu_us_per_row": round(statistics.median(spark_us), 2),
                "least_cpu_us_per_row": round(min(spark_us), 2),
                "broker_cpu_us_per_row": round(statistics.median(broker_us), 2),
            }
            lines.append(line)
            print(
                f"{job:<34} {line['rows_per_second']:>10,} rows/s "
                f"{line['cpu_us_per_row']:6.2f} µs CPU a row (least {min(spark_us):.2f}), "
                f"broker {line['broker_cpu_us_per_row']:.2f}",
                flush=True,
            )
        spark.stop()
    print(f"load when done: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    keep_lines("spark-read", lines)


if __name__ == "__main__":
    main()
