"""`firearrow pipeline audit|rebuild|trace`: jobs on store directories, and on traces."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from firearrow.cli.pipeline_app import (
    AsJson,
    Conf,
    Master,
    Quiet,
    SparkLog,
    carry_out,
    pipeline_app,
    spark_needed,
)

Directories = Annotated[
    list[Path],
    typer.Argument(
        metavar="DIR...",
        help="Brokers' storePathRootDir, as every executor sees them.",
        show_default=False,
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "-c",
        "--config",
        help="The brokers' configuration. Needed only where the files themselves do not show "
        "their sizes, or storePathCommitLog is set.",
    ),
]


class Only(StrEnum):
    QUEUES = "queues"
    INDEX = "index"


@pipeline_app.command("audit")
def audit_command(  # noqa: PLR0917 - options, all of them named on the command line
    directories: Directories,
    config: Config = None,
    master: Master = None,
    conf: Conf = None,
    as_json: AsJson = False,  # noqa: FBT002
    quiet: Quiet = False,  # noqa: FBT002
    spark_log: SparkLog = None,
) -> None:
    """Check every invariant of store directories, many files at once.

    The rules and their names are those of [bold]firearrow store check[/bold]. The exit code is 1 if
    something is broken. Nothing is changed; a store whose broker runs is judged by what it had.

    [bold]Examples[/bold]

      firearrow pipeline audit /data/broker-a/store /data/broker-b/store

      firearrow pipeline audit /mnt/*/store --master spark://host:7077 --json
    """
    with spark_needed("audit"):
        from firearrow.pipeline import audit  # noqa: PLC0415 - needs Spark

        options = audit.AuditOptions(tuple(map(str, directories)), _text(config))
        carry_out(
            "audit",
            lambda spark, watch: audit.run(spark, options, watch),
            *(master, conf, as_json, quiet, spark_log),
        )


@pipeline_app.command("rebuild")
def rebuild_command(  # noqa: PLR0917 - options, all of them named on the command line
    directories: Directories,
    only: Annotated[Only | None, typer.Option(help="Leave the other as it is.")] = None,
    dry_run: Annotated[  # noqa: FBT002
        bool, typer.Option("--dry-run", help="Read the log and count; change nothing.")
    ] = False,
    config: Config = None,
    master: Master = None,
    conf: Conf = None,
    as_json: AsJson = False,  # noqa: FBT002
    quiet: Quiet = False,  # noqa: FBT002
    spark_log: SparkLog = None,
) -> None:
    """Make consume queues and index files again from commit logs, queues in parallel.

    They are what the broker would have written, to the byte. The new files are built beside the old
    ones and replace them at the end; stopped before that, the store is as it was. Refused while a
    broker has a directory open. The exit code is 1 if parts of a log could not be read.

    [bold]Examples[/bold]

      firearrow pipeline rebuild /data/store --dry-run

      firearrow pipeline rebuild /data/store --only index -c conf/broker.conf
    """
    with spark_needed("rebuild"):
        from firearrow.pipeline import rebuild  # noqa: PLC0415 - needs Spark

        options = rebuild.RebuildOptions(
            tuple(map(str, directories)),
            queues=only != Only.INDEX,
            index=only != Only.QUEUES,
            dry_run=dry_run,
            config=_text(config),
        )
        carry_out(
            "rebuild",
            lambda spark, watch: rebuild.run(spark, options, watch),
            *(master, conf, as_json, quiet, spark_log),
        )


Output = Annotated[
    str | None,
    typer.Argument(help="Directory for the life-lines, as Parquet.", show_default=False),
]
TraceNameservers = Annotated[
    str | None,
    typer.Option(
        "-n",
        "--nameservers",
        help="Of the cluster whose trace topic is read; NAMESRV_ADDR without --store.",
    ),
]
Store = Annotated[
    str | None, typer.Option(help="Or the broker's storePathRootDir: no broker is needed.")
]
TraceTopic = Annotated[str, typer.Option("-t", "--topic", help="The trace topic.")]
Starting = Annotated[
    str | None, typer.Option(help="From this time on: 2026-11-15T08:55, @milliseconds.")
]
Plot = Annotated[
    Path | None, typer.Option(help="Write a picture of latencies: a .png or .html file.")
]
Follow = Annotated[bool, typer.Option("--follow", help="Go on until Ctrl-C, instead of ending.")]
New = Annotated[bool, typer.Option("--new", help="Only what came since the last run, then end.")]
Within = Annotated[
    str, typer.Option(help="How long --follow and --new wait for more of a message.")
]
Checkpoint = Annotated[str | None, typer.Option(help="Where progress is kept; OUTPUT/_checkpoint.")]


@pipeline_app.command("trace")
def trace_command(  # noqa: PLR0917 - options, all of them named on the command line
    output: Output = None,
    nameservers: TraceNameservers = None,
    store: Store = None,
    topic: TraceTopic = "RMQ_SYS_TRACE_TOPIC",
    starting: Starting = None,
    plot: Plot = None,
    follow: Follow = False,  # noqa: FBT002
    new: New = False,  # noqa: FBT002
    within: Within = "10 minutes",
    checkpoint: Checkpoint = None,
    master: Master = None,
    conf: Conf = None,
    as_json: AsJson = False,  # noqa: FBT002
    quiet: Quiet = False,  # noqa: FBT002
    spark_log: SparkLog = None,
) -> None:
    """Join trace messages into one life-line for each message.

    Who produced it, when, where it was stored, which group consumed it with what cost and status,
    how its transaction ended. Clients write traces if they are told to (trace=True).

    [bold]Examples[/bold]

      firearrow pipeline trace /data/lifelines -n 127.0.0.1:9876 --plot latency.html

      firearrow pipeline trace --store /data/store --starting 2026-11-18T08:00

      firearrow pipeline trace /data/lifelines -n 127.0.0.1:9876 --follow --within '5 minutes'
    """
    with spark_needed("trace"):
        from firearrow.pipeline import trace  # noqa: PLC0415 - needs Spark
        from firearrow.pipeline.topics import time_ms  # noqa: PLC0415

        options = trace.TraceOptions(
            nameservers=nameservers or (None if store else os.environ.get("NAMESRV_ADDR")),
            path=None if store is None else ",".join(map(_here, store.split(","))),
            topic=topic,
            starting=None
            if starting is None
            else {"startingTimestamp": str(time_ms(starting, "--starting"))},
            output=None if output is None else _here(output),
            plot=plot,
            follow=follow,
            available_now=new and not follow,
            within=within,
            checkpoint=None if checkpoint is None else _here(checkpoint),
        )
        carry_out(
            "trace",
            lambda spark, watch: trace.run(spark, options, watch),
            *(master, conf, as_json, quiet, spark_log),
        )


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _here(place: str) -> str:
    """A path as other processes understand it, which may have been started elsewhere."""
    return place if "://" in place else str(Path(place.strip()).absolute())
