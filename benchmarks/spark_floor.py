"""How long a micro-batch takes that has next to nothing to do: topics, beside Kafka if told where.

    python -m benchmarks.spark_floor
    python -m benchmarks.spark_floor --kafka 127.0.0.1:9092 --kafka-topic tiny --kafka-jars DIR \\
        --kafka-tools 'DIR/*'

Two hundred messages a second go to a topic of two queues, and to Kafka's, all the time, whichever
is read; the trigger is "at once", the sink noop. Each is read twice, in the order A B B A, after a
turn that nobody counts. Checkpoints are on this disk, with the manager that `session()` chooses.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.harness import keep_lines
from benchmarks.spark_bench import bench_session, broker
from benchmarks.spark_read import LIKE_KAFKA
from firearrow import Admin, Message, Producer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

TOPIC: Final = "tiny"
PER_SECOND: Final = 200
BODY: Final = b"x" * 1024
SKIPPED: Final = 10  # batches until a query runs evenly
PATIENCE_S: Final = 120
PARTS: Final = ("latestOffset", "queryPlanning", "walCommit", "addBatch", "commitOffsets")


@contextmanager
def fed(nameservers: str) -> Iterator[None]:
    """Messages come to the topic, one every few milliseconds."""
    over = threading.Event()

    def run() -> None:
        with Producer("bench", nameservers=nameservers) as producer:
            while not over.wait(1 / PER_SECOND):
                producer.send(Message(TOPIC, BODY))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def fed_kafka(address: str, topic: str, tools: str) -> Iterator[None]:
    """The same for Kafka, by its own program."""
    command = [
        *("java", "-Xmx64m", "-XX:+UseSerialGC", "-cp", tools),
        *("org.apache.kafka.tools.ProducerPerformance", "--topic", topic),
        *("--num-records", "1000000", "--record-size", "1024", "--throughput", str(PER_SECOND)),
        *("--producer-props", f"bootstrap.servers={address}", "acks=1"),
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()


def batches(frame: DataFrame, checkpoint: Path, count: int) -> list[dict[str, int]]:
    """How long the parts of some batches took, in milliseconds."""
    query = (
        frame.writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="0 seconds")
        .start()
    )
    found: dict[int, dict[str, int]] = {}
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count + SKIPPED and time.monotonic() < deadline and query.isActive:
        for one in query.recentProgress:
            if one["numInputRows"]:
                found[one["batchId"]] = one["durationMs"]
        time.sleep(0.2)
    query.stop()
    return [found[number] for number in sorted(found)][SKIPPED : count + SKIPPED]


def turns(
    spark: SparkSession, nameservers: str, arguments: argparse.Namespace
) -> dict[str, Callable[[], DataFrame]]:
    """What is read, in order; the first of each is not counted."""

    def topic() -> DataFrame:
        reader = spark.readStream.format("rocketmq").schema(LIKE_KAFKA)
        return reader.options(nameservers=nameservers, subscribe=TOPIC, minPartitions="2").load()

    def kafka() -> DataFrame:
        reader = spark.readStream.format("kafka").option("subscribe", arguments.kafka_topic)
        return reader.option("kafka.bootstrap.servers", arguments.kafka).load()

    if not arguments.kafka:
        return {"warm topic": topic, "topic, 1": topic, "topic, 2": topic}
    return {
        "warm Kafka": kafka,
        "warm topic": topic,
        "topic, 1": topic,
        "Kafka, 1": kafka,
        "Kafka, 2": kafka,
        "topic, 2": topic,
    }


def line_of(name: str, found: list[dict[str, int]]) -> dict[str, Any]:
    def quantile(part: str, share: float) -> int:
        return sorted(one.get(part, 0) for one in found)[int(share * (len(found) - 1))]

    return {
        "job": name,
        "batches": len(found),
        "p50_ms": quantile("triggerExecution", 0.5),
        "p95_ms": quantile("triggerExecution", 0.95),
        **{part: quantile(part, 0.5) for part in PARTS},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--kafka", help="host:port of a Kafka with --kafka-topic, two partitions")
    parser.add_argument("--kafka-topic", default="t1k-tiny")
    parser.add_argument("--kafka-jars", help="a directory with Spark's Kafka connector")
    parser.add_argument("--kafka-tools", help="class path of Kafka's tools")
    arguments = parser.parse_args()
    lines = []
    with ExitStack() as open_:
        folder = Path(open_.enter_context(tempfile.TemporaryDirectory()))
        address, _ = open_.enter_context(broker(folder / "data"))
        with Admin(nameservers=address) as admin:
            admin.create_topic(TOPIC, queues=2)
        spark = bench_session(arguments)
        open_.callback(spark.stop)
        open_.enter_context(fed(address))
        if arguments.kafka:
            tools = fed_kafka(arguments.kafka, arguments.kafka_topic, arguments.kafka_tools)
            open_.enter_context(tools)
        for number, (name, make) in enumerate(turns(spark, address, arguments).items()):
            found = batches(make(), folder / f"checkpoint-{number}", arguments.batches)
            if found and not name.startswith("warm"):
                lines.append(line_of(name, found))
                print(lines[-1], flush=True)
    print(f"load when done: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    keep_lines("spark-floor", lines)


if __name__ == "__main__":
    main()
