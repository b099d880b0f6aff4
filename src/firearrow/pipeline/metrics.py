"""Rates, latencies, lag and retries over windows of time: to a table, a topic and pictures.

    table/topics   per window and topic: messages, bytes, retries, latency percentiles
    table/groups   per batch, group and topic: lag, how old the oldest waiting message is, rate

Latency is from a message's birth at its producer to its storage at the broker; for messages of
retry topics that is the whole time since the first try. A window is written once, when it is over
and the delay for late messages has passed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from firearrow.base.runtime import SystemClock
from firearrow.client.blocking_admin import Admin
from firearrow.pipeline.archive import read_table
from firearrow.pipeline.errors import PipelineError
from firearrow.pipeline.landing import CHECKPOINT, Landing, query_of
from firearrow.pipeline.plots import plot_lines
from firearrow.pipeline.report import Outcome, Report, Table
from firearrow.pipeline.watching import Watch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, Row, SparkSession

    from firearrow.base.runtime import Clock
    from firearrow.client.admin_results import GroupLag
    from firearrow.pipeline.topics import TopicSelection

JOB: Final = "metrics"
TOPICS: Final = "topics"
GROUPS: Final = "groups"
MESSAGE_COLUMNS: Final = (
    "topic string, bornTimestamp timestamp, storeTimestamp timestamp, reconsumeTimes int, "
    "body binary"
)
GROUP_COLUMNS: Final = (
    "at timestamp, group string, topic string, lag bigint, delayMs bigint, consumeTps double"
)
SHOWN: Final = (
    "start",
    "topic",
    "messages",
    "messagesPerSecond",
    "retries",
    "latencyP50Ms",
    "latencyP95Ms",
    "latencyP99Ms",
)
SHOWN_WINDOWS: Final = 20
PLOTTED_ROWS: Final = 20_000
EVERY_MS: Final = 5_000


@dataclass(frozen=True, slots=True)
class MetricsOptions:
    """What `metrics` is told.

    Args:
        selection: Which topics are measured.
        table: The directory of both tables.
        groups: Consumer groups whose lag is written down with every batch.
        window: How long a window is, as Spark writes it.
        late: How long a window waits for late messages.
        to_topic: A topic that gets every row as JSON, for consoles; None for none.
        plots: A directory for pictures; None for none.
        follow: Go on until told to stop.
        every_ms: How often a batch begins when following.
    """

    selection: TopicSelection
    table: str
    groups: tuple[str, ...] = ()
    window: str = "10 seconds"
    late: str = "10 seconds"
    to_topic: str | None = None
    plots: Path | None = None
    follow: bool = False
    every_ms: int = EVERY_MS


def run(
    spark: SparkSession,
    options: MetricsOptions,
    watch: Watch | None = None,
    *,
    clock: Clock | None = None,
) -> Report:
    """Measure until everything that is there is measured, or until told to stop."""
    watch, clock = watch or Watch(), clock or SystemClock()
    checkpoint = f"{options.table.rstrip('/')}/{CHECKPOINT}"
    landing = Landing(spark, f"{options.table.rstrip('/')}/{TOPICS}")
    lags = Landing(spark, f"{options.table.rstrip('/')}/{GROUPS}")
    landing.check_owner(spark, checkpoint)
    resumed = query_of(spark, checkpoint) is not None

    def batch_done(rows: DataFrame, batch: int) -> None:
        rows = rows.persist()
        try:
            landing.write(rows, batch)
            _publish(rows, TOPICS, batch, options)
        finally:
            rows.unpersist()
        if options.groups:
            sampled = _sample_groups(spark, options, clock.now_ms())
            lags.write(sampled, batch)
            _publish(sampled, GROUPS, batch, options)

    writer = (
        windows(options.selection.stream(spark, MESSAGE_COLUMNS), options.window, options.late)
        .writeStream.queryName(f"metrics {options.selection}")
        .foreachBatch(batch_done)
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
    report = Report(
        JOB,
        outcome,
        facts={
            "topics": str(options.selection),
            "table": options.table,
            "resumed": resumed,
            "messagesMeasured": progress.rows,
            "windowsWritten": sum(one.rows for one in landing.landed if not one.repeated),
            "tooLate": progress.dropped_late,
            "behind": progress.lag_total,
        },
    )
    _show(spark, options, report)
    return report


def windows(messages: DataFrame, window: str, late: str) -> DataFrame:
    """Messages counted and measured by window and topic."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - only who runs a job pays

    latency = f.greatest(f.unix_millis("storeTimestamp") - f.unix_millis("bornTimestamp"), f.lit(0))
    seconds = f.unix_millis("window.end") - f.unix_millis("window.start")
    return (
        messages.select(
            "topic",
            "storeTimestamp",
            "reconsumeTimes",
            latency.alias("latencyMs"),
            f.length("body").alias("size"),
        )
        .withWatermark("storeTimestamp", late)
        .groupBy(f.window("storeTimestamp", window), "topic")
        .agg(
            f.count(f.lit(1)).alias("messages"),
            f.sum("size").alias("bytes"),
            f.sum((f.col("reconsumeTimes") > 0).cast("long")).alias("retries"),
            f.percentile_approx("latencyMs", [0.5, 0.95, 0.99]).alias("latency"),
            f.max("latencyMs").alias("latencyMaxMs"),
        )
        .select(
            f.col("window.start").alias("start"),
            f.col("window.end").alias("end"),
            "topic",
            f.regexp_extract("topic", "^%(?:RETRY|DLQ)%(.+)$", 1).alias("group"),
            "messages",
            "bytes",
            (f.col("messages") * 1000 / seconds).alias("messagesPerSecond"),
            (f.col("bytes") * 1000 / seconds).alias("bytesPerSecond"),
            "retries",
            f.col("latency")[0].alias("latencyP50Ms"),
            f.col("latency")[1].alias("latencyP95Ms"),
            f.col("latency")[2].alias("latencyP99Ms"),
            "latencyMaxMs",
        )
    )


# --- groups -------------------------------------------------------------------------------------


def _sample_groups(spark: SparkSession, options: MetricsOptions, now_ms: int) -> DataFrame:
    with Admin(nameservers=options.selection.nameservers) as admin:
        known = set(admin.groups())
        missing = [group for group in options.groups if group not in known]
        if missing:
            raise PipelineError(
                f"there is no consumer group {missing[0]!r}; there are: {', '.join(sorted(known))}"
            )
        lags = [admin.group_lag(group) for group in options.groups]
    rows = [row for lag in lags for row in lag_rows(lag, now_ms)]
    return spark.createDataFrame(rows, GROUP_COLUMNS)


def lag_rows(lag: GroupLag, now_ms: int) -> list[tuple[datetime, str, str, int, int | None, float]]:
    """One row for each topic of a group; the delay is that of its slowest queue that is behind."""
    at = datetime.fromtimestamp(now_ms / 1000, UTC)
    rows = []
    for topic, behind in sorted(lag.by_topic.items()):
        delays = [
            now_ms - one.last_timestamp_ms
            for one in lag.queues
            if one.queue.topic == topic and one.lag > 0 and one.last_timestamp_ms
        ]
        delay = max(delays) if delays else (0 if not behind else None)
        rows.append((at, lag.group, topic, behind, delay, lag.consume_tps))
    return rows


# --- where it goes ------------------------------------------------------------------------------


def _publish(rows: DataFrame, kind: str, batch: int, options: MetricsOptions) -> None:
    """Every row as a JSON message, once for each batch of the query."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    if options.to_topic is None:
        return
    query = rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    name = "topic" if kind == TOPICS else "group"
    messages = rows.select(
        f.to_json(f.struct(f.lit(name).alias("kind"), *rows.columns)).alias("body"),
        f.lit(name).alias("tags"),
        f.col(name).alias("keys"),
        f.col(name).alias("shardingKey"),
    )
    messages.coalesce(1).write.format("rocketmq").mode("append").options(
        nameservers=options.selection.nameservers,
        topic=options.to_topic,
        group="firearrow-metrics",
        jobId=f"metrics-{query}-{batch}-{kind}",
    ).save()


def _show(spark: SparkSession, options: MetricsOptions, report: Report) -> None:
    from pyspark.sql import functions as f  # noqa: PLC0415

    base = options.table.rstrip("/")
    found: dict[str, Sequence[Row]] = {}
    for name, time in ((TOPICS, "start"), (GROUPS, "at")):
        table = read_table(spark, f"{base}/{name}")
        found[name] = table.orderBy(f.desc(time)).limit(PLOTTED_ROWS).collect() if table else []
    if found[TOPICS]:
        rows = [tuple(_plain(row[column]) for column in SHOWN) for row in found[TOPICS]]
        report.tables.append(Table("newest windows", SHOWN, rows[:SHOWN_WINDOWS]))
    if found[GROUPS]:
        newest = {(row["group"], row["topic"]): row for row in reversed(found[GROUPS])}
        shown = ("group", "topic", "lag", "delayMs", "consumeTps")
        rows = [tuple(_plain(row[column]) for column in shown) for row in newest.values()]
        report.tables.append(Table("groups", shown, rows))
    if options.plots is not None:
        report.plots += _plots(options.plots, found[TOPICS], found[GROUPS])


def _plain(value: object) -> object:
    return value.isoformat(" ", "seconds") if isinstance(value, datetime) else value


def _plots(folder: Path, topics: Sequence[Row], groups: Sequence[Row]) -> list[Path]:
    rates: dict[str, list[Any]] = {}
    latencies: dict[str, list[Any]] = {}
    lags: dict[str, list[Any]] = {}
    for row in topics:
        rates.setdefault(row["topic"], []).append((row["start"], row["messagesPerSecond"]))
        for name in ("P50", "P95", "P99"):
            line = latencies.setdefault(f"{row['topic']} {name.lower()}", [])
            line.append((row["start"], row[f"latency{name}Ms"]))
    for row in groups:
        lags.setdefault(f"{row['group']} {row['topic']}", []).append((row["at"], row["lag"]))
    made = (
        plot_lines(folder / "rates.png", "messages stored", "messages a second", rates),
        plot_lines(folder / "latency.png", "birth to storage", "milliseconds", latencies),
        plot_lines(folder / "lag.png", "messages that wait for a group", "messages", lags),
    )
    return [path for path in made if path is not None]
