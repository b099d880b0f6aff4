"""The sinks of a user's pipeline: what each asks of its rows, and how they get there.

| sink    | how often a row arrives after a crash | what that rests on                          |
|---------|---------------------------------------|---------------------------------------------|
| topic   | once (`delivery: at-least-once` too)  | half messages, committed with the batch     |
| parquet | once, for any reader                  | pipeline/landing.py                         |
| delta   | once                                  | the batch's number in Delta's transaction   |
| jdbc    | at least once                         | a batch that is run again is inserted again |
| console | at least once                         | it is only looked at                        |
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from firearrow.base.errors import ConfigError
from firearrow.pipeline.landing import Landing
from firearrow.pipeline.project import EACH_ITS_OWN, SinkKind
from firearrow.pipeline.stages import path_of
from firearrow.spark.rows import plan_of
from firearrow.spark.write_options import WriteOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from firearrow.pipeline.project import Project, SinkSpec

# What the sink `rocketmq` makes of columns; everything else must be in the body.
BODY_COLUMNS: Final = ("body", "value")
ENVELOPE_COLUMNS: Final = ("topic", "tags", "keys", "properties", "queueId", "shardingKey")
CONSOLE_ROWS: Final = 20


# --- before anything is written -----------------------------------------------------------------


def check(spark: SparkSession, project: Project, sink: SinkSpec, frame: DataFrame) -> DataFrame:
    """The rows as the sink takes them; a ConfigError with its line if it cannot."""
    for column in sink.partition_by:
        if column not in frame.columns:
            raise sink.part.wrong(
                f"partition_by: there is no column {column!r}; there are {', '.join(frame.columns)}"
            )
    if sink.kind == SinkKind.TOPIC:
        frame = as_messages(frame)
        if "nameservers" not in sink.options and project.nameservers is None:
            raise sink.part.wrong("nameservers is missing: at the top of the file, or in options")
        try:
            WriteOptions.parse(topic_options(project, sink), streaming=frame.isStreaming)
            plan_of(frame.schema, None if sink.target == EACH_ITS_OWN else sink.target)
        except ConfigError as error:
            raise sink.part.wrong(str(error)) from error
        if sink.target == EACH_ITS_OWN and "topic" not in frame.columns:
            raise sink.part.wrong("topic: '*' needs a column topic, which says where a row goes")
    if sink.kind == SinkKind.DELTA and importlib.util.find_spec("deltalake") is None:
        raise sink.part.wrong("delta needs one more package: pip install deltalake")
    if frame.isStreaming:
        if sink.mode == "overwrite":
            raise sink.part.wrong("mode overwrite: a stream has no end; append expected")
        _check_streaming(spark, sink, frame)
    elif sink.mode in {"update", "complete"}:
        raise sink.part.wrong(f"mode {sink.mode} is for streams; append or overwrite expected")
    return frame


def as_messages(frame: DataFrame) -> DataFrame:
    """Rows that have no body get one: their own columns as a JSON object."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - only who runs a job pays

    if any(name in frame.columns for name in BODY_COLUMNS):
        return frame
    inside = [name for name in frame.columns if name not in ENVELOPE_COLUMNS]
    around = [name for name in frame.columns if name in ENVELOPE_COLUMNS]
    body = f.to_json(f.struct(*(f.col(f"`{name}`") for name in inside))).cast("binary")
    return frame.select(*around, body.alias("body"))


def _check_streaming(spark: SparkSession, sink: SinkSpec, frame: DataFrame) -> None:
    """Ask Spark now what it would say only when the stream starts."""
    jvm: Any = spark._jvm  # noqa: SLF001 - there is no other way to ask
    mode = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, sink.mode.capitalize())()
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    try:
        checker.checkForStreaming(frame._jdf.queryExecution().analyzed(), mode)  # noqa: SLF001
    except Exception as error:
        words = str(error).partition("\n")[0].removeprefix("An error occurred while calling")
        words = words.rpartition(": ")[2] if "Exception: " in words else words
        raise sink.part.wrong(
            f"Spark cannot run this as a stream in mode {sink.mode}: {_reason(error, words)}"
        ) from error


def _reason(error: BaseException, otherwise: str) -> str:
    """A streaming aggregate without a watermark is by far the commonest mistake."""
    text = str(error)
    if "watermark" in text:
        return "aggregates over a stream need a watermark: {column: at, delay: 10 minutes}"
    return text.partition(";")[0].partition("\n")[0] or otherwise


# --- streams ------------------------------------------------------------------------------------


def start(
    spark: SparkSession,
    project: Project,
    sink: SinkSpec,
    frame: DataFrame,
    say: Callable[[str], None],
) -> StreamingQuery:
    """Begin the stream of one sink."""
    checkpoint = str((project.checkpoint / sink.name).resolve())
    writer = (
        frame.writeStream.queryName(f"{project.name}.{sink.name}")
        .option("checkpointLocation", checkpoint)
        .outputMode(sink.mode)
    )
    writer = _towards(writer, spark, project, sink, checkpoint, say)
    if project.every_ms is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{project.every_ms} milliseconds").start()


def _towards(  # noqa: PLR0917 - one call, right above
    writer: DataStreamWriter,
    spark: SparkSession,
    project: Project,
    sink: SinkSpec,
    checkpoint: str,
    say: Callable[[str], None],
) -> DataStreamWriter:
    if sink.kind == SinkKind.TOPIC:
        return writer.format("rocketmq").options(**topic_options(project, sink))
    if sink.kind == SinkKind.PARQUET:
        landing = Landing(
            spark,
            path_of(project.folder, sink.target),
            partition_by=sink.partition_by,
            compression=sink.options.get("compression", "snappy"),
        )
        landing.check_owner(spark, checkpoint)
        return writer.foreachBatch(landing.write)
    if sink.kind == SinkKind.DELTA:
        return writer.foreachBatch(_to_delta(project, sink))
    if sink.kind == SinkKind.JDBC:
        return writer.foreachBatch(lambda rows, _: _to_jdbc(rows, sink))
    return writer.foreachBatch(lambda rows, batch: _to_console(rows, sink, f"batch {batch}", say))


def topic_options(project: Project, sink: SinkSpec) -> dict[str, str]:
    """As the sink `rocketmq` takes them."""
    options = {"group": f"{project.name}-{sink.name}"}
    if sink.target != EACH_ITS_OWN:
        options["topic"] = sink.target
    if project.nameservers is not None:
        options["nameservers"] = project.nameservers
    return options | dict(sink.options)


def _to_jdbc(rows: DataFrame, sink: SinkSpec) -> None:
    mode = "append" if sink.mode in {"append", "update"} else "overwrite"
    options = {"truncate": "true", **sink.options} if mode == "overwrite" else dict(sink.options)
    rows.write.format("jdbc").options(url=sink.target, **options).mode(mode).save()


def _to_delta(project: Project, sink: SinkSpec) -> Callable[[DataFrame, int], None]:
    """A batch's number goes into the table with its rows, so that it comes in once."""
    path = path_of(project.folder, sink.target)

    def write(rows: DataFrame, batch: int) -> None:
        import deltalake  # type: ignore[import-not-found]  # noqa: PLC0415 - only if it is there

        query = rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        known = None
        if deltalake.DeltaTable.is_deltatable(path):
            known = deltalake.DeltaTable(path).transaction_version(query)
        if known is not None and known >= batch:
            return
        deltalake.write_deltalake(
            path,
            rows.toArrow(),
            mode="append",
            partition_by=list(sink.partition_by) or None,
            commit_properties=deltalake.CommitProperties(
                app_transactions=[deltalake.Transaction(query, batch)]
            ),
        )

    return write


def _to_console(rows: DataFrame, sink: SinkSpec, title: str, say: Callable[[str], None]) -> None:
    limit = int(sink.options.get("rows", CONSOLE_ROWS))
    found = rows.limit(limit + 1).collect()
    if not found:
        return
    table = Table(*rows.columns, title=f"{sink.name}, {title}", title_justify="left")
    for row in found[:limit]:
        table.add_row(*(Text(_shown(value)) for value in row))
    Console(highlight=False).print(table)
    if len(found) > limit:
        say(f"{sink.name}: only the first {limit} rows of {title} are shown")


def _shown(value: object) -> str:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "backslashreplace")
    return "" if value is None else str(value)


# --- tables that are there as a whole -----------------------------------------------------------


def write_once(
    project: Project, sink: SinkSpec, frame: DataFrame, say: Callable[[str], None]
) -> None:
    """A sink whose rows do not come from a stream."""
    if sink.kind == SinkKind.TOPIC:
        options = topic_options(project, sink)
        frame.write.format("rocketmq").options(**options).mode("append").save()
    elif sink.kind == SinkKind.PARQUET:
        writer = frame.write.mode(sink.mode).options(**sink.options)
        writer.partitionBy(*sink.partition_by).parquet(path_of(project.folder, sink.target))
    elif sink.kind == SinkKind.DELTA:
        import deltalake  # noqa: PLC0415 - only if it is there

        path = path_of(project.folder, sink.target)
        deltalake.write_deltalake(path, frame.toArrow(), mode=sink.mode)
    elif sink.kind == SinkKind.JDBC:
        _to_jdbc(frame, sink)
    else:
        _to_console(frame, sink, "all", say)
