"""Writing to topics from Spark: rows a second and CPU a row, in both deliveries, beside noop.

    python -m benchmarks.spark_write                         a broker of its own, 100,000 x 1 KiB
    python -m benchmarks.spark_write --rows 500000 --rounds 3 --master 'local[2]'

Rows come from Parquet, and reading it is part of every figure. CPU is that of Java and of all
Python workers; the broker's is apart, and covers its commits. The first round of each job is thrown
away.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import keep_lines
from benchmarks.spark_read import Meter, broker
from firearrow import Admin
from firearrow.spark import session

if TYPE_CHECKING:
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


def jobs(rows: DataFrame, nameservers: str) -> dict[str, Callable[[], None]]:
    def write(topic: str, delivery: str) -> None:
        with Admin(nameservers=nameservers) as admin:
            admin.create_topic(topic, queues=QUEUES)
        writer = rows.write.format("rocketmq").option("nameservers", nameservers)
        writer.option("topic", topic).option("delivery", delivery).mode("append").save()

    return {
        "Parquet → noop": lambda: rows.write.format("noop").mode("overwrite").save(),
        "Parquet → topic, at least once": lambda: write("bench-once-or-more", "at-least-once"),
        "Parquet → topic, exactly once": lambda: write("bench-once", "exactly-once"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--body-bytes", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--master", default="local[1]")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, broker(Path(name) / "data") as (address, pid):
        fill(Path(name) / "rows", arguments.rows, arguments.body_bytes)
        spark = session("bench", master=arguments.master, conf={"spark.ui.enabled": "false"})
        spark.sparkContext.setLogLevel("ERROR")
        java = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]  # noqa: SLF001
        work = jobs(spark.read.parquet(str(Path(name) / "rows")), address)
        figures: dict[str, list[tuple[float, float, float]]] = {}
        for number in range(arguments.rounds + 1):  # in turn, so that a busy minute hits all
            for what, job in work.items():
                with Meter(java) as ours, Meter(pid) as theirs:
                    began = time.perf_counter()
                    job()
                    took_s = time.perf_counter() - began
                if number:
                    figures.setdefault(what, []).append((took_s, ours.cpu_s, theirs.cpu_s))
        spark.stop()
    lines = []
    for what, rounds in figures.items():
        took_s, cpu_s, broker_s = (statistics.median(one) for one in zip(*rounds, strict=True))
        line = {
            "job": what,
            "rows_per_second": round(arguments.rows / took_s),
            "cpu_us_per_row": round(1e6 * cpu_s / arguments.rows, 2),
            "broker_cpu_us_per_row": round(1e6 * broker_s / arguments.rows, 2),
        }
        lines.append(line)
        print(
            f"{what:<34} {line['rows_per_second']:>10,} rows/s "
            f"{line['cpu_us_per_row']:6.2f} µs CPU a row, "
            f"broker {line['broker_cpu_us_per_row']:.2f}"
        )
    print(f"load when done: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    keep_lines("spark-write", lines)


if __name__ == "__main__":
    main()
