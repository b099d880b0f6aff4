"""RocketMQ's trace messages joined into one life-line for each message.

From a cluster's trace topic or from the files of a store; once, over all that is there, or as a
stream, which writes a life-line when nothing was told of its message for a while. With the files
of a store, life-lines also say when and where the broker stored the message.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from firearrow.base.errors import ConfigError
from firearrow.model.topic import TRACE_TOPIC
from firearrow.pipeline.lifelines import consumptions, lifelines, with_stored
from firearrow.pipeline.report import Outcome, Report, Table
from firearrow.pipeline.trace_events import BROKEN, events_of
from firearrow.pipeline.trace_plot import SHARES, check_plot, plot_latencies
from firearrow.pipeline.watching import Watch

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, Row, SparkSession

JOB: Final = "trace"
WITHIN: Final = "10 minutes"
PROBLEMS_MAX: Final = 10
_TRACE_SCHEMA: Final = "storeTimestamp timestamp, body binary"
_LOG_SCHEMA: Final = (
    "topic string, msgId string, queueId int, offset bigint, storeTimestamp timestamp"
)
_QUANTILES: Final = (0.5, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """What `trace` is told.

    Args:
        nameservers: Of the cluster whose trace topic is read; or `path`.
        path: Directories of stores, with commas between.
        topic: The trace topic, where it has another name.
        starting: From where on, as the source takes it: startingOffsets or startingTimestamp.
        output: Directory for the life-lines, as Parquet; None writes none.
        plot: A file for the picture of latencies, .png or .html.
        follow: Go on until told to stop; needs `output`.
        within: How long a stream waits for more to be told of a message.
        checkpoint: Where a stream keeps its progress; `output`/_checkpoint by default.
        available_now: As a stream, but end with what is there: only what is new is read.
    """

    nameservers: str | None = None
    path: str | None = None
    topic: str = TRACE_TOPIC
    starting: dict[str, str] | None = None
    output: str | None = None
    plot: Path | None = None
    follow: bool = False
    within: str = WITHIN
    checkpoint: str | None = None
    available_now: bool = False

    def __post_init__(self) -> None:
        if bool(self.nameservers) == bool(self.path):
            raise ConfigError("nameservers or the path of a store expected: one of the two")
        if self.is_stream and self.output is None:
            raise ConfigError("a stream needs an output: give a directory for its life-lines")
        if self.plot is not None:
            check_plot(self.plot)

    @property
    def is_stream(self) -> bool:
        return self.follow or self.available_now

    def source(self) -> tuple[str, dict[str, str]]:
        """Format and options of the source of trace messages."""
        options = {"subscribe": self.topic, **(self.starting or {})}
        if self.path is not None:
            return "commitlog", options | {"path": self.path}
        if self.is_stream:
            options.setdefault("startingOffsets", "earliest")
        return "rocketmq", options | {"nameservers": str(self.nameservers)}


def run(spark: SparkSession, options: TraceOptions, watch: Watch | None = None) -> Report:
    """Join what was told; the report sums up outcomes and latencies."""
    watch = watch or Watch()
    if options.is_stream:
        return _run_stream(spark, options, watch)
    name, told = options.source()
    told_of = spark.read.format(name).schema(_TRACE_SCHEMA).options(**told).load()
    events = events_of(told_of).persist()
    try:
        with watch.batch(spark, "reading traces"):
            counts = {row["kind"]: row["count"] for row in events.groupBy("kind").count().collect()}
            problems = _problems(events)
        lines = lifelines(events)
        if options.path is not None:
            lines = with_stored(lines, _log(spark, options.path))
        lines = lines.persist()
        try:
            if options.output is not None:
                with watch.batch(spark, "writing life-lines"):
                    lines.write.mode("overwrite").parquet(options.output)
            with watch.batch(spark, "summing up"):
                report = summary(lines, options)
        finally:
            lines.unpersist()
    finally:
        events.unpersist()
    report.facts = {"events": sum(counts.values()) - counts.get(BROKEN, 0), **report.facts}
    report.problems = problems
    return report


def _run_stream(spark: SparkSession, options: TraceOptions, watch: Watch) -> Report:
    name, told = options.source()
    events = events_of(spark.readStream.format(name).schema(_TRACE_SCHEMA).options(**told).load())
    window = F.session_window("at", options.within)
    lines = lifelines(events.withWatermark("at", options.within), window)
    output = str(options.output)
    writer = (
        lines.writeStream.queryName("trace")
        .format("parquet")
        .outputMode("append")
        .option("path", output)
        .option("checkpointLocation", options.checkpoint or f"{output}/_checkpoint")
    )
    if options.available_now:
        writer = writer.trigger(availableNow=True)
    (progress,) = watch.follow(writer.start())
    with Watch().batch(spark, "summing up"):
        report = summary(spark.read.schema(lines.schema).parquet(output), options)
    report.facts = {"events": progress.rows, "late": progress.dropped_late, **report.facts}
    if watch.stopping:
        report.outcome = Outcome.ENDED if options.follow else Outcome.STOPPED
    return report


def _log(spark: SparkSession, path: str) -> DataFrame:
    """Where and when messages were stored, by the same files."""
    return spark.read.format("commitlog").schema(_LOG_SCHEMA).load(path)


def _problems(events: DataFrame) -> list[str]:
    broken = events.where(F.col("kind") == BROKEN).select("problem")
    shown = [f"a trace message cannot be read: {row[0]}" for row in broken.take(PROBLEMS_MAX)]
    if len(shown) == PROBLEMS_MAX and (more := broken.count() - PROBLEMS_MAX) > 0:
        shown.append(f"and {more} more trace messages cannot be read")
    return shown


# --- summing up -----------------------------------------------------------------------------------


def summary(lines: DataFrame, options: TraceOptions) -> Report:
    """Counts by outcome, latencies by topic and group, and the picture."""
    outcomes = lines.groupBy("topic", "outcome").count().orderBy("topic", "outcome").collect()
    sends = lines.where("sent").groupBy("topic").agg(*_latencies("sendCostMs")).orderBy("topic")
    groups = (
        consumptions(lines)
        .groupBy("topic", "group")
        .agg(
            F.count("*").alias("deliveries"),
            F.sum(F.when(F.col("success"), 0).otherwise(1)).alias("failed"),
            *_latencies("waitMs"),
            *_latencies("costMs"),
        )
        .orderBy("topic", "group")
    )
    report = Report(
        JOB,
        facts={"messages": sum(row["count"] for row in outcomes)},
        tables=[
            _table("outcomes", ("topic", "outcome", "messages"), outcomes),
            _table("sending", ("topic", *_names("sendCostMs")), sends.collect()),
            _table(
                "consuming",
                ("topic", "group", "deliveries", "failed", *_names("waitMs"), *_names("costMs")),
                groups.collect(),
            ),
        ],
    )
    if options.output is not None:
        report.facts["output"] = options.output
    if options.plot is not None:
        plot_latencies(options.plot, curves_of(lines), "Latencies of traced messages")
        report.plots.append(options.plot)
    return report


def curves_of(lines: DataFrame) -> dict[str, list[float]]:
    """Milliseconds at each of SHARES: sending, waiting and consuming of each group."""
    shares = list(SHARES)
    sent = lines.where("sent").agg(F.percentile(F.col("sendCostMs"), shares)).first()
    got = (
        consumptions(lines)
        .groupBy("group")
        .agg(F.percentile(F.col("waitMs"), shares), F.percentile(F.col("costMs"), shares))
        .orderBy("group")
        .collect()
    )
    found = {"send": sent[0] if sent is not None else None}
    for group, wait, cost in got:
        found[f"{group}: sent until got"] = wait
        found[f"{group}: consume"] = cost
    return {name: [float(one) for one in curve] for name, curve in found.items() if curve}


def _latencies(column: str) -> list[Column]:
    return [
        F.percentile(F.col(column), share).alias(name)
        for share, name in zip(_QUANTILES, _names(column), strict=True)
    ]


def _names(column: str) -> tuple[str, ...]:
    return tuple(f"{column}P{round(100 * share)}" for share in _QUANTILES)


def _table(title: str, columns: tuple[str, ...], rows: list[Row]) -> Table:
    return Table(title, columns, [tuple(row) for row in rows])
