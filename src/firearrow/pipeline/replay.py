"""A table, or a topic and a span of time, back to a topic: in order per key, at a chosen pace.

The messages are cut into slices (pipeline/replay_plan.py). A slice is one batch write of the sink,
exactly once under the name of the job and the slice's number, and then remembered in the
checkpoint. A run that dies in a slice sends it again under the same name, which adds only what was
missing, and goes on.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from firearrow.base.errors import ConfigError
from firearrow.base.runtime import SystemClock
from firearrow.pipeline.errors import Stopped
from firearrow.pipeline.hadoop_files import HadoopFiles
from firearrow.pipeline.replay_plan import Pace, Replayed, Slice, plan
from firearrow.pipeline.report import Outcome, Report
from firearrow.pipeline.watching import Watch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from firearrow.base.runtime import Clock
    from firearrow.pipeline.topics import TopicSelection

JOB: Final = "replay"
STATE: Final = "replay.json"
SENT: Final = "sent"  # an empty file there has as its name how many slices are sent
SLICE_ROWS: Final = 100_000
# Columns of their own, and what the dead-letter queue adds; the sink leaves out the rest itself.
NOT_REPLAYED: Final = (
    "KEYS",
    "TAGS",
    "__SHARDINGKEY",
    "DLQ_ORIGIN_TOPIC",
    "DLQ_ORIGIN_MESSAGE_ID",
)
SHARDING_KEY: Final = "__SHARDINGKEY"
ORDER: Final = ("storeTimestamp", "broker", "queueId", "offset")


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """What `replay` is told.

    Args:
        to_topic: Where the messages go; an empty text sends each to the topic that it came from.
        nameservers: Of the cluster that gets them.
        checkpoint: A directory of this replay's own, where its progress is kept.
        table: A table that `archive` wrote; or
        selection: topics to read from.
        where: Which rows of it, as a condition in Spark's SQL.
        from_ms: Only messages stored from then on, and
        to_ms: before then.
        pace: How fast.
        delivery: exactly-once, or at-least-once.
        slice_rows: Messages in one write, about.
    """

    to_topic: str
    nameservers: str
    checkpoint: str
    table: str | None = None
    selection: TopicSelection | None = None
    where: str | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    pace: Pace = field(default_factory=Pace)
    delivery: str = "exactly-once"
    slice_rows: int = SLICE_ROWS

    def __post_init__(self) -> None:
        if (self.table is None) == (self.selection is None):
            raise ConfigError("a table or topics to replay expected: one of the two")

    def what(self) -> dict[str, Any]:
        """What must be the same when a replay goes on."""
        return {
            "source": self.table or str(self.selection),
            "toTopic": self.to_topic,
            "where": self.where,
            "fromMs": self.from_ms,
            "toMs": self.to_ms,
        }


def run(
    spark: SparkSession,
    options: ReplayOptions,
    watch: Watch | None = None,
    *,
    clock: Clock | None = None,
) -> Report:
    """Replay, or go on with it, until everything is sent or until told to stop."""
    watch, clock = watch or Watch(), clock or SystemClock()
    files = HadoopFiles(spark, options.checkpoint)
    state = _state(files, options)
    resumed = state is not None
    if state is None:
        until_ms = options.to_ms if options.to_ms is not None else clock.now_ms()
        rows = _rows(spark, options, options.from_ms or 0, until_ms)
        with watch.batch(spark, "planning"):
            slices = plan(_seconds(rows), options.pace, options.slice_rows)
        state = Replayed(f"replay-{uuid.uuid4().hex[:12]}", options.what(), slices, until_ms)
        files.make_directory(SENT)
        files.write_atomically(STATE, state.to_json())
    first, began_ms = state.sent, clock.elapsed_ms()
    stopped = not _send_all(spark, options, state, files, watch, clock)
    took_s = (clock.elapsed_ms() - began_ms) / 1000
    sent = sum(one.rows for one in state.slices[first : state.sent])
    return Report(
        JOB,
        Outcome.STOPPED if stopped else Outcome.FINISHED,
        facts={
            "from": state.what["source"],
            "toTopic": options.to_topic or "(their own)",
            "resumed": resumed,
            "messagesSent": sent,
            "messagesLeft": sum(one.rows for one in state.slices[state.sent :]),
            "slicesSent": state.sent - first,
            "messagesPerSecond": sent / took_s if took_s else 0.0,
            "checkpoint": options.checkpoint,
        },
    )


def _send_all(  # noqa: PLR0917 - one call, right above
    spark: SparkSession,
    options: ReplayOptions,
    state: Replayed,
    files: HadoopFiles,
    watch: Watch,
    clock: Clock,
) -> bool:
    """Slice after slice, none before its time; False if told to stop."""
    first, began_ms = state.sent, clock.elapsed_ms()
    total = sum(one.rows for one in state.slices)
    for number in range(first, len(state.slices)):
        due_s = options.pace.due_s(state.slices, number, first=first)
        if watch.pause(due_s - (clock.elapsed_ms() - began_ms) / 1000):
            return False
        one = state.slices[number]
        try:
            with watch.batch(spark, f"slice {number + 1} of {len(state.slices)}"):
                rows = _rows(spark, options, one.from_ms, min(one.to_ms, state.until_ms))
                _send(rows, one, f"{state.job}-{number}", options)
        except Stopped:
            return False  # begun and cancelled: sent again under its name when the job goes on
        state.sent = number + 1
        files.write_atomically(f"{SENT}/{state.sent:010d}", b"")
        files.delete(f"{SENT}/{number:010d}")
        watch.step("sending", sum(one.rows for one in state.slices[: state.sent]), total)
    return True


def _send(rows: DataFrame, one: Slice, job: str, options: ReplayOptions) -> None:
    from pyspark.sql import functions as f  # noqa: PLC0415 - only who runs a job pays

    if one.parts > 1:
        rows = rows.where(f.pmod(f.xxhash64("shardingKey"), f.lit(one.parts)) == one.part)
    ordered = rows.repartition("shardingKey").sortWithinPartitions(*ORDER)
    columns = ["body", "tags", "keys", "shardingKey", "properties"]
    if not options.to_topic:
        columns.append("topic")
    writer = ordered.select(*columns).write.format("rocketmq").mode("append")
    settings = {
        "nameservers": options.nameservers,
        "delivery": options.delivery,
        "group": "firearrow-replay",
    }
    if options.to_topic:
        settings["topic"] = options.to_topic
    if options.delivery == "exactly-once":
        settings["jobId"] = job
    writer.options(**settings).save()


def _rows(spark: SparkSession, options: ReplayOptions, from_ms: int, to_ms: int) -> DataFrame:
    """Messages of a span of time, with the key whose order is kept, without what is past."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    if options.table is not None:
        frame = spark.read.parquet(options.table)
        needed = ("topic", "body", "properties", *ORDER)
        missing = [name for name in needed if name not in frame.columns]
        if missing:
            raise ConfigError(
                f"{options.table} has no column {', '.join(missing)}: a table of `archive` expected"
            )
    else:
        assert options.selection is not None
        selection = options.selection
        if from_ms:
            more = {**selection.more, "startingOffsetsByTimestampStrategy": "latest"}
            selection = replace(selection, starting=f"@{from_ms}", ending=f"@{to_ms}", more=more)
        frame = selection.batch(spark)
    if options.where is not None:
        frame = frame.where(options.where)
    stored_ms = f.unix_millis("storeTimestamp")
    frame = frame.where((stored_ms >= from_ms) & (stored_ms < to_ms))
    queue = f.concat_ws("@", "topic", "broker", f.col("queueId").cast("string"))
    key = f.coalesce(f.col("properties")[SHARDING_KEY], f.nullif("keys", f.lit("")), queue)
    kept = f.map_filter("properties", lambda name, _: ~name.isin(*NOT_REPLAYED))
    return frame.withColumn("shardingKey", key).withColumn("properties", kept)


def _seconds(rows: DataFrame) -> list[tuple[int, int]]:
    from pyspark.sql import functions as f  # noqa: PLC0415

    counted = rows.groupBy(f.unix_seconds("storeTimestamp").alias("second")).count().collect()
    return [(int(row["second"]), int(row["count"])) for row in counted]


def _state(files: HadoopFiles, options: ReplayOptions) -> Replayed | None:
    """What the last run remembered; it must have been about the same replay."""
    if not files.exists(STATE):
        return None
    state = Replayed.from_json(files.read(STATE), files.at(STATE))
    state.sent = max((int(name) for name in files.names(SENT) if name.isdecimal()), default=0)
    asked = options.what()
    for name, value in state.what.items():
        if asked.get(name) != value:
            raise ConfigError(
                f"{files.root} belongs to another replay ({name} was {value!r}, now "
                f"{asked.get(name)!r}): name another directory, or ask for the same"
            )
    return state
