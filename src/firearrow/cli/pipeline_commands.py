"""`firearrow pipeline archive|replay|metrics`: jobs on topics."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from firearrow.cli.pipeline_app import (
    AsJson,
    Conf,
    Master,
    Nameservers,
    Quiet,
    SparkLog,
    carry_out,
    needed,
    pipeline_app,
    spark_needed,
)

Topics = Annotated[list[str] | None, typer.Option("-t", "--topic", help="A topic; repeatable.")]
Pattern = Annotated[
    str | None, typer.Option("--pattern", help="Or a regular expression for topics.")
]
Starting = Annotated[
    str,
    typer.Option(
        help="From where on: earliest, latest, a time (2026-11-15T08:55), @milliseconds, or "
        "offsets as JSON. Only before there is a checkpoint."
    ),
]
Group = Annotated[
    str | None, typer.Option(help="Consumer group under which progress shows in consoles.")
]
Tags = Annotated[str | None, typer.Option(help="Only these tags: 'paid || refunded'.")]
Sql = Annotated[str | None, typer.Option(help="Only what this SQL92 expression fits.")]

Plots = Annotated[Path | None, typer.Option(help="A directory for pictures (PNG).")]


class Compression(StrEnum):
    SNAPPY = "snappy"
    ZSTD = "zstd"
    GZIP = "gzip"
    NONE = "uncompressed"


@pipeline_app.command("archive")
def archive_command(  # noqa: PLR0917 - options, all of them named on the command line
    table: Annotated[str, typer.Argument(help="The table's directory.", show_default=False)],
    nameservers: Nameservers = None,
    topic: Topics = None,
    pattern: Pattern = None,
    starting: Starting = "earliest",
    group: Group = None,
    tags: Tags = None,
    sql: Sql = None,
    by_hour: Annotated[  # noqa: FBT002
        bool, typer.Option("--by-hour", help="Directories by hour, below those by day.")
    ] = False,
    follow: Annotated[  # noqa: FBT002
        bool, typer.Option("--follow", help="Go on until Ctrl-C, instead of ending.")
    ] = False,
    every: Annotated[str, typer.Option(help="How often, when following.")] = "10s",
    batch: Annotated[int, typer.Option(min=1, help="Messages in one batch at most.")] = 200_000,
    checkpoint: Annotated[
        str | None, typer.Option(help="Where progress is kept; TABLE/_checkpoint.")
    ] = None,
    compression: Annotated[Compression, typer.Option()] = Compression.SNAPPY,
    master: Master = None,
    conf: Conf = None,
    as_json: AsJson = False,  # noqa: FBT002
    quiet: Quiet = False,  # noqa: FBT002
    spark_log: SparkLog = None,
) -> None:
    """Land topics in a Parquet table, every message once, by topic and day.

    Killed and started again, it goes on where it was; any Parquet reader can read the table.

    [bold]Examples[/bold]

      firearrow pipeline archive /data/archive -n 127.0.0.1:9876 --topic orders

      firearrow pipeline archive /data/archive --pattern 'shop-.*' --by-hour --follow --every 1m
    """
    with spark_needed("archive"):
        from firearrow.pipeline import archive  # noqa: PLC0415 - needs Spark
        from firearrow.pipeline.topics import TopicSelection, duration_ms  # noqa: PLC0415

        options = archive.ArchiveOptions(
            selection=TopicSelection(
                needed("--nameservers", nameservers),
                tuple(topic or ()),
                pattern,
                starting=starting,
                group=group,
                tags=tags,
                sql=sql,
                max_per_trigger=batch,
            ),
            table=table,
            checkpoint=checkpoint,
            by_hour=by_hour,
            follow=follow,
            every_ms=duration_ms(every, "--every"),
            compression=compression.value,
        )
        carry_out(
            archive.JOB,
            lambda spark, watch: archive.run(spark, options, watch),
            master,
            conf,
            as_json,
            quiet,
            spark_log,
        )


class Delivery(StrEnum):
    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


@pipeline_app.command("replay")
def replay_command(  # noqa: PLR0917 - options, all of them named on the command line
    checkpoint: Annotated[
        str,
        typer.Argument(help="A directory of this replay's own, for its progress.", metavar="STATE"),
    ],
    nameservers: Nameservers = None,
    table: Annotated[str | None, typer.Option(help="A table that archive wrote.")] = None,
    topic: Topics = None,
    to_topic: Annotated[
        str, typer.Option("--to-topic", help="Where to; each to its own topic if not said.")
    ] = "",
    to_nameservers: Annotated[
        str | None, typer.Option(help="Of the cluster that gets them, if it is another one.")
    ] = None,
    where: Annotated[
        str | None, typer.Option(help="Which messages, in Spark's SQL: \"tags = 'paid'\".")
    ] = None,
    begin: Annotated[
        str | None, typer.Option("--from", help="Stored from then on: 2026-11-15T08:00.")
    ] = None,
    end: Annotated[str | None, typer.Option("--to", help="Stored before then.")] = None,
    rate: Annotated[float | None, typer.Option(help="Messages a second.")] = None,
    speed: Annotated[
        float | None, typer.Option(help="So many times as fast as it happened.")
    ] = None,
    delivery: Annotated[Delivery, typer.Option()] = Delivery.EXACTLY_ONCE,
    master: Master = None,
    conf: Conf = None,
    as_json: AsJson = False,  # noqa: FBT002
    quiet: Quiet = False,  # noqa: FBT002
    spark_log: SparkLog = None,
) -> None:
    """Send a table, or a topic and a span of time, to a topic: in order per key, at a pace.

    Stopped or killed, it goes on when it is started again with the same STATE, and repeats nothing.

    [bold]Examples[/bold]

      firearrow pipeline replay /data/replay-1 --table /data/archive --to-topic orders-again

      firearrow pipeline replay /data/replay-2 -t orders --from 2026-11-18T08:00 --speed 10
    """
    with spark_needed("replay"):
        from firearrow.pipeline import replay  # noqa: PLC0415 - needs Spark
        from firearrow.pipeline.replay_plan import Pace  # noqa: PLC0415
        from firearrow.pipeline.topics import TopicSelection, time_ms  # noqa: PLC0415

        servers = needed("--nameservers", nameservers)
        options = replay.ReplayOptions(
            to_topic,
            to_nameservers or servers,
            checkpoint,
            table=table,
            selection=TopicSelection(servers, tuple(topic)) if topic else None,
            where=where,
            from_ms=time_ms(begin, "--from") if begin else None,
            to_ms=time_ms(end, "--to") if end else None,
            pace=Pace(rate, speed),
            delivery=delivery.value,
        )
        carry_out(
            replay.JOB,
            lambda spark, watch: replay.run(spark, options, watch),
            master,
            conf,
            as_json,
            quiet,
            spark_log,
        )


@pipeline_app.command("metrics")
def metrics_command(  # noqa: PLR0917 - options, all of them named on the command line
    table: Annotated[str, typer.Argument(help="Directory of the tables.", show_default=False)],
    nameservers: Nameservers = None,
    topic: Topics = None,
    pattern: Pattern = None,
    starting: Starting = "earliest",
    measured: Annotated[
        list[str] | None, typer.Option("-g", "--group", help="A consumer group; repeatable.")
    ] = None,
    window: Annotated[str, typer.Option(help="How long a window is: 10s, 1m.")] = "10s",
    late: Annotated[str, typer.Option(help="How long it waits for late messages.")] = "10s",
    to_topic: Annotated[
        str | None, typer.Option("--to-topic", help="A topic that gets every row as JSON.")
    ] = None,
    plots: Plots = None,
    follow: Annotated[  # noqa: FBT002
        bool, typer.Option("--follow", help="Go on until Ctrl-C, instead of ending.")
    ] = False,
    every: Annotated[str, typer.Option(help="How often, when following.")] = "5s",
    master: Master = None,
    conf: Conf = None,
    as_json: AsJson = False,  # noqa: FBT002
    quiet: Quiet = False,  # noqa: FBT002
    spark_log: SparkLog = None,
) -> None:
    """Measure topics and groups: rates, latency percentiles, retries, lag, over windows of time.

    [bold]Examples[/bold]

      firearrow pipeline metrics /data/metrics --topic orders --group billing --plots plots

      firearrow pipeline metrics /data/metrics --pattern '.*' --follow --to-topic metrics
    """
    with spark_needed("metrics"):
        from firearrow.pipeline import metrics  # noqa: PLC0415 - needs Spark
        from firearrow.pipeline.topics import TopicSelection, duration_ms  # noqa: PLC0415

        options = metrics.MetricsOptions(
            TopicSelection(
                needed("--nameservers", nameservers),
                tuple(topic or ()),
                pattern,
                starting=starting,
            ),
            table,
            groups=tuple(measured or ()),
            window=f"{duration_ms(window, '--window')} milliseconds",
            late=f"{duration_ms(late, '--late')} milliseconds",
            to_topic=to_topic,
            plots=plots,
            follow=follow,
            every_ms=duration_ms(every, "--every"),
        )
        carry_out(
            metrics.JOB,
            lambda spark, watch: metrics.run(spark, options, watch),
            master,
            conf,
            as_json,
            quiet,
            spark_log,
        )
