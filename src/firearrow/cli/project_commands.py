"""`firearrow pipeline init|dry-run|run|status`: pipelines of users."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

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

if TYPE_CHECKING:
    from firearrow.pipeline.project import Project

Place = Annotated[
    Path,
    typer.Argument(metavar="[PROJECT]", help="The project's file or folder; here if not said."),
]


@pipeline_app.command("init")
def init_command(
    folder: Annotated[Path, typer.Argument(help="Where; made if it is not there.")] = Path(),
    name: Annotated[str | None, typer.Option(help="The pipeline's name; the folder's.")] = None,
) -> None:
    """Write a small project that works: pipeline.yaml, a step in Python, a producer to try it.

    [bold]Examples[/bold]

      firearrow pipeline init orders-pipeline
    """
    with spark_needed("init"):
        from firearrow.pipeline.template import write_template  # noqa: PLC0415 - needs YAML

        called = name or re.sub(r"\W+", "-", folder.resolve().name).strip("-") or "pipeline"
        for path in write_template(folder, called):
            typer.echo(f"wrote {path}")


@pipeline_app.command("dry-run")
def dry_run_command(  # noqa: PLR0917 - options, all of them named on the command line
    project: Place = Path(),
    master: Master = None,
    conf: Conf = None,
    as_json: AsJson = False,  # noqa: FBT002
    quiet: Quiet = False,  # noqa: FBT002
    spark_log: SparkLog = None,
) -> None:
    """Check a project and show its columns and plans; nothing is written.

    Topics must be there, columns must fit, SQL must be understood: every mistake is named with its
    line. The exit code is 2 if there is one.

    [bold]Example[/bold]

      firearrow pipeline dry-run
    """
    with spark_needed("dry-run"):
        from firearrow.pipeline import project_run  # noqa: PLC0415 - needs Spark

        read, settings = _load(project, master, conf)
        carry_out(
            project_run.DRY_RUN,
            lambda spark, watch: project_run.dry_run(spark, read, watch),
            settings[0],
            settings[1],
            as_json,
            quiet,
            spark_log,
        )


@pipeline_app.command("run")
def run_command(  # noqa: PLR0917 - options, all of them named on the command line
    project: Place = Path(),
    master: Master = None,
    conf: Conf = None,
    as_json: AsJson = False,  # noqa: FBT002
    quiet: Quiet = False,  # noqa: FBT002
    spark_log: SparkLog = None,
) -> None:
    """Run a project; it goes on where its last run ended.

    With `trigger: available-now` it ends when everything that is there now is done, otherwise with
    Ctrl-C or SIGTERM, after the batch that is under way. A project of Spark's own declarative
    pipelines (spark-pipeline.yml) is handed to spark-pipelines.

    [bold]Examples[/bold]

      firearrow pipeline run

      firearrow pipeline run examples/pipelines/orders --master spark://127.0.0.1:7077
    """
    with spark_needed("run"):
        from firearrow.pipeline import declarative, project_run  # noqa: PLC0415 - needs Spark

        spec = declarative.spec_of(project)
        if spec is not None:
            raise typer.Exit(declarative.run(spec, master=master, conf=conf or []))
        read, settings = _load(project, master, conf)
        carry_out(
            project_run.RUN,
            lambda spark, watch: project_run.run(spark, read, watch),
            settings[0],
            settings[1],
            as_json,
            quiet,
            spark_log,
        )


def _load(
    path: Path, master: str | None, conf: list[str] | None
) -> tuple[Project, tuple[str | None, list[str]]]:
    """The project, and Spark's settings: those of the file below those of the command line."""
    from firearrow.pipeline.project import load_project  # noqa: PLC0415 - needs YAML

    project = load_project(path)
    settings = [f"{key}={value}" for key, value in project.conf.items()]
    return project, (master or project.master, [*settings, *(conf or [])])


@pipeline_app.command("status")
def status_command(
    project: Place = Path(),
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """How far a pipeline is: rows, rates, lag, of its running or its last run.

    The exit code is 1 if that run failed or its process is gone.

    [bold]Example[/bold]

      firearrow pipeline status
    """
    with spark_needed("status"):
        from firearrow.pipeline.project import load_project  # noqa: PLC0415 - needs YAML
        from firearrow.pipeline.status import State, read_status  # noqa: PLC0415

        status = read_status(load_project(project).state_folder)
        if as_json:
            typer.echo(json.dumps(status))
        else:
            _print_status(status)
        if status["state"] in {State.FAILED, State.LOST}:
            raise typer.Exit(1)


def _print_status(status: dict[str, Any]) -> None:
    console = Console(highlight=False)
    ended = f", ended {status['endedAt']}" if status["endedAt"] else ""
    console.print(
        f"{status['pipeline']}: {status['state']} (process {status['pid']}), "
        f"started {status['startedAt']}{ended}",
        markup=False,
        soft_wrap=True,
    )
    if status["error"]:
        console.print(status["error"], markup=False, style="red", soft_wrap=True)
    if not status["streams"]:
        return
    table = Table("stream")
    names = ("batches", "rows", "rows/s in", "rows/s done", "late", "state", "behind")
    for name in names:
        table.add_column(name, justify="right")
    for one in status["streams"]:
        table.add_row(
            Text(one["name"]),
            f"{one['batches']:,}",
            f"{one['rows']:,}",
            f"{one['inputRowsPerSecond']:,.0f}",
            f"{one['processedRowsPerSecond']:,.0f}",
            f"{one['droppedLate']:,}",
            f"{one['stateRows']:,}",
            f"{one['lagTotal']:,}",
        )
    console.print(table)


@pipeline_app.command("package")
def package_command(
    archive: Annotated[Path, typer.Argument(help="What to write: a name ending with .tar.gz.")],
    also: Annotated[
        list[Path] | None, typer.Option("--with", help="A file or package of yours; repeatable.")
    ] = None,
) -> None:
    """Pack what executors need for `spark-submit`; prints the program to submit.

    Executors need Python and pyarrow besides, and nothing of FireArrow.

    [bold]Example[/bold]

      spark-submit --master spark://host:7077 --archives firearrow.tar.gz#packages
      --conf spark.executorEnv.PYTHONPATH=./packages
      "$(firearrow pipeline package firearrow.tar.gz)" archive /data/archive --topic orders

    [bold]Example[/bold]

      firearrow pipeline package jobs.tar.gz --with steps.py
    """
    with spark_needed("package"):
        from firearrow.pipeline.packaging import package  # noqa: PLC0415 - needs nothing, is rare

        typer.echo(package(archive, also or ()))
