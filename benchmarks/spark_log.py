"""Commit-log files from Spark: rows a second and CPU a row, beside Parquet as the upper limit.

    python -m benchmarks.spark_log                     400,000 x 1 KiB in files of 128 MiB
    python -m benchmarks.spark_log --rows 2000000 --master 'local[2]'

CPU is that of Java and of all Python workers, as in `spark_read`; "alone" is what the decoding
costs in one process without Spark. The first round of each job is thrown away.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.harness import keep_lines
from benchmarks.spark_read import LIKE_KAFKA, Meter, to_noop
from firearrow import hot
from firearrow.offline.directory import Shape
from firearrow.spark import session
from firearrow.spark.log_options import LogOptions
from firearrow.spark.log_plan import open_stores, plan_ranges
from firearrow.spark.log_reading import LogRanges, read_ranges

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

SEGMENT_BYTES: Final = 128 << 20
BLANK_MAGIC: Final = 0xCBD43194
TOPICS: Final = 4
NOW_MS: Final = 1_794_732_955_000


def write_log(root: Path, rows: int, body_bytes: int) -> None:
    """Bodies that differ, so that Parquet does not make one of many."""
    pool = random.Random(7).randbytes(1 << 22)
    folder = root / "commitlog"
    folder.mkdir(parents=True)
    file, at, start = (folder / f"{0:020d}").open("wb"), 0, 0
    for number in range(rows):
        place = number * 1031 % ((1 << 22) - body_bytes)
        record = hot.Record(
            f"bench-{number % TOPICS}",
            pool[place : place + body_bytes],
            f"UNIQ_KEY\x017F0000012E844E0E{number:016X}\x02KEYS\x01{number}\x02TAGS\x01bench\x02",
            queue_id=number // TOPICS % 4,
            queue_offset=number // 16,
            physical_offset=start + at,
            born_timestamp=NOW_MS + number // 100,
            store_timestamp=NOW_MS + number // 100,
        )
        raw = hot.encode_record(record)
        if at + len(raw) + 8 > SEGMENT_BYTES:
            file.write((SEGMENT_BYTES - at).to_bytes(4, "big") + BLANK_MAGIC.to_bytes(4, "big"))
            file.truncate(SEGMENT_BYTES)
            file.close()
            start, at = start + SEGMENT_BYTES, 0
            file = (folder / f"{start:020d}").open("wb")
            record.physical_offset = start
            raw = hot.encode_record(record)
        file.write(raw)
        at += len(raw)
    file.truncate(SEGMENT_BYTES)
    file.close()


def alone(root: Path, schema: StructType) -> Callable[[int], None]:
    """The work of the tasks in this process."""
    options = LogOptions.parse({"path": str(root)}, streaming=False)

    def run(_: int) -> None:
        ranges = plan_ranges(
            open_stores(str(root), Shape()),
            span=options.span,
            lenient=False,
            min_partitions=1,
            range_bytes=None,
        )
        for _batch in read_ranges(options, schema, LogRanges(tuple(ranges))):
            pass

    return run


def jobs(spark: SparkSession, root: Path, folder: Path) -> dict[str, Callable[[int], None]]:
    """What is measured, by name; each gets the number of its round."""

    def table(schema: str | None = None, **options: str) -> DataFrame:
        reader = spark.read.format("commitlog").options(**options)
        return (reader.schema(schema) if schema else reader).load(str(root))

    parquet = str(folder / "parquet")
    table(LIKE_KAFKA).write.parquet(parquet)
    kafka = table(LIKE_KAFKA).schema
    return {
        "log → noop, 7 columns": lambda _: to_noop(table(LIKE_KAFKA)),
        "log → noop, offset and body": lambda _: to_noop(table("offset bigint, body binary")),
        "log → noop, all 21 columns": lambda _: to_noop(table()),
        "log → noop, 6 columns without body": lambda _: to_noop(
            table(LIKE_KAFKA.replace(" body binary,", ""))
        ),
        "log → noop, one topic of four": lambda _: to_noop(table(LIKE_KAFKA, subscribe="bench-1")),
        "Parquet → noop, 7 columns": lambda _: to_noop(spark.read.parquet(parquet)),
        "alone, 7 columns": alone(root, kafka),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--body-bytes", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--master", default="local[1]")
    arguments = parser.parse_args()
    conf = {"spark.ui.enabled": "false", "spark.log.level": "ERROR", "spark.driver.memory": "1g"}
    lines: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        root = Path(name) / "store"
        write_log(root, arguments.rows, arguments.body_bytes)
        spark = session("bench", master=arguments.master, conf=conf)
        java = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]  # noqa: SLF001
        for job, run in jobs(spark, root, Path(name)).items():
            pids = (os.getpid(),) if job.startswith("alone") else (java,)
            rows_s, cpu_us = [], []
            for number in range(arguments.rounds + 1):
                with Meter(*pids) as meter:
                    began = time.perf_counter()
                    run(number)
                    took_s = time.perf_counter() - began
                if number:
                    rows_s.append(arguments.rows / took_s)
                    cpu_us.append(1e6 * meter.cpu_s / arguments.rows)
            line = {
                "job": job,
                "rows_per_second": round(statistics.median(rows_s)),
                "cpu_us_per_row": round(statistics.median(cpu_us), 2),
                "least_cpu_us_per_row": round(min(cpu_us), 2),
            }
            lines.append(line)
            print(
                f"{job:<36} {line['rows_per_second']:>10,} rows/s "
                f"{line['cpu_us_per_row']:6.2f} µs CPU a row (least {min(cpu_us):.2f})",
                flush=True,
            )
        spark.stop()
    print(f"load when done: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    keep_lines("spark-log", lines)


if __name__ == "__main__":
    main()
