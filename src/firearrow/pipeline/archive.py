"""Topics to a partitioned Parquet table, exactly once, before retention erases them.

    table/topic=orders/date=2026-11-18/[hour=10/]QUERY-BATCH-N.parquet

What exactly once rests on stands in pipeline/landing.py. Any Parquet reader can read the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from firearrow.pipeline.landing import Landing, query_of
from firearrow.pipeline.report import Outcome, Report, Table
from firearrow.pipeline.watching import Watch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from firearrow.pipeline.topics import TopicSelection

JOB: Final = "archive"
MAX_PER_TRIGGER: Final = 200_000
EVERY_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class ArchiveOptions:
    """What `archive` is told.

    Args:
        selection: Which topics, and from where on when there is no checkpoint yet.
        table: The table's directory, anywhere that Spark can write.
        checkpoint: Where progress is kept; in the table's `_checkpoint` by default.
        by_hour: Directories by hour, below those by day.
        follow: Go on until told to stop; otherwise end with what is there now.
        every_ms: How often a batch begins when following.
        compression: Of the files.
    """

    selection: TopicSelection
    table: str
    checkpoint: str | None = None
    by_hour: bool = False
    follow: bool = False
    every_ms: int = EVERY_MS
    compression: str = "snappy"


def run(spark: SparkSession, options: ArchiveOptions, watch: Watch | None = None) -> Report:
    """Archive until everything is there, or until told to stop."""
    watch = watch or Watch()
    parts = ["topic", "date", *(["hour"] if options.by_hour else [])]
    landing = Landing(spark, options.table, partition_by=parts, compression=options.compression)
    checkpoint = options.checkpoint or landing.checkpoint
    landing.check_owner(spark, checkpoint)
    resumed = query_of(spark, checkpoint) is not None
    writer = (
        dated(options.selection.stream(spark), by_hour=options.by_hour)
        .writeStream.queryName(f"archive {options.selection}")
        .foreachBatch(landing.write)
        .option("checkpointLocation", checkpoint)
    )
    if options.follow:
        writer = writer.trigger(processingTime=f"{options.every_ms} milliseconds")
    else:
        writer = writer.trigger(availableNow=True)
    (progress,) = watch.follow(watch.started(writer.start))
    outcome = Outcome.FINISHED
    if watch.stopping:
        outcome = Outcome.ENDED if options.follow else Outcome.STOPPED
    new = [one for one in landing.landed if not one.repeated]
    return Report(
        JOB,
        outcome,
        facts={
            "topics": str(options.selection),
            "table": options.table,
            "checkpoint": checkpoint,
            "resumed": resumed,
            "rowsWritten": sum(one.rows for one in new),
            "files": sum(one.files for one in new),
            "bytes": sum(one.size_bytes for one in new),
            "batches": len(landing.landed),
            "batchesFinishedFromLastRun": len(landing.landed) - len(new),
            "behind": progress.lag_total,
        },
        tables=_tables(spark, options, watch),
    )


def dated(frame: DataFrame, *, by_hour: bool = False) -> DataFrame:
    """With the day, and the hour, in which the broker stored a message, in UTC."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - only who runs a job pays

    stored = f.to_utc_timestamp("storeTimestamp", f.current_timezone())
    frame = frame.withColumn("date", f.date_format(stored, "yyyy-MM-dd"))
    return frame.withColumn("hour", f.date_format(stored, "HH")) if by_hour else frame


def _tables(spark: SparkSession, options: ArchiveOptions, watch: Watch) -> list[Table]:
    """What the table holds now, by topic and day: only file footers are read for it."""
    if watch.stopping:
        return []
    table = read_table(spark, options.table)
    if table is None:
        return []
    with watch.batch(spark, "counting what the table holds"):
        rows = table.groupBy("topic", "date").count().orderBy("topic", "date").collect()
    shown = [(row["topic"], str(row["date"]), int(row["count"])) for row in rows]
    return [Table("in the table", ("topic", "date", "messages"), shown)]


def read_table(spark: SparkSession, table: str) -> DataFrame | None:
    """The table as Spark sees it; None if nothing has landed yet."""
    from pyspark.errors import AnalysisException  # noqa: PLC0415

    try:
        frame = spark.read.parquet(table)
    except AnalysisException as error:
        if error.getCondition() in {"UNABLE_TO_INFER_SCHEMA", "PATH_NOT_FOUND"}:
            return None
        raise
    return frame
