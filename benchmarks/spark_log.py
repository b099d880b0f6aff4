"""Commit-log files from Spark: rows a second and CPU a row, beside Parquet as the upper limit.

    python -m benchmarks.spark_log                     400,000 x 1 KiB in files of 128 MiB
    python -m benchmarks.spark_log --rows 2000000 --master 'local[2]'

"alone" is what the decoding costs in one process without Spark. How it is measured stands in
`spark_bench`.
"""

from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.spark_bench import arguments_of, bench_session, java_of, run_rounds
from benchmarks.spark_read import LIKE_KAFKA, to_noop
from firearrow import hot
from firearrow.offline.directory import Shape
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
    arguments = arguments_of(__doc__, rows=400_000, rounds=3, kafka=False)
    with tempfile.TemporaryDirectory() as name:
        root = Path(name) / "store"
        write_log(root, arguments.rows, arguments.body_bytes)
        spark = bench_session(arguments)
        java = java_of(spark)
        run_rounds(
            "spark-log",
            jobs(spark, root, Path(name)),
            arguments,
            lambda job: ((os.getpid() if job.startswith("alone") else java,), ()),
        )
        spark.stop()


if __name__ == "__main__":
    main()
