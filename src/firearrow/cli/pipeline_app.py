"""What the commands of `firearrow pipeline` share: the group, common options, how a job is run.

Nothing of Spark is imported before a command that needs it is run, so that every other command
works, and starts quickly, without it.
"""

from __future__ import annotations

import importlib.util
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from firearrow.base.errors import ConfigError, FirearrowError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from firearrow.pipeline.running import Job

pipeline_app = typer.Typer(
    help="Jobs on Spark: archive, replay and measure topics, run pipelines of your own.\n\n"
    "Exit codes: 0 done (or an endless job was told to stop), 1 something is wrong with what was "
    "looked at, 2 the job could not do its work, 3 told to stop before the end: start it again "
    "and it goes on.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

EXIT_NOT_DONE: Final = 2

Nameservers = Annotated[
    str | None,
    typer.Option(
        "-n", "--nameservers", envvar="NAMESRV_ADDR", help="host:port, several separated by ';'."
    ),
]
Master = Annotated[
    str | None,
    typer.Option(help="Where Spark runs: local[*] (the default), spark://host:7077, yarn, k8s://…"),
]
Conf = Annotated[
    list[str] | None, typer.Option("--conf", help="A setting of Spark's, key=value; repeatable.")
]
AsJson = Annotated[bool, typer.Option("--json", help="The report as one JSON object.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No progress.")]
SparkLog = Annotated[
    Path | None,
    typer.Option(help="File for what Spark itself prints; '-' lets it print to standard error."),
]


def carry_out(  # noqa: PLR0917 - the options of a command, in their order
    name: str,
    job: Job,
    master: str | None = None,
    conf: list[str] | None = None,
    as_json: bool = False,  # noqa: FBT001, FBT002
    quiet: bool = False,  # noqa: FBT001, FBT002
    log: Path | None = None,
) -> None:
    """Run a job with the common options, and exit with its code."""
    from firearrow.pipeline.running import RunSettings, run_job  # noqa: PLC0415 - needs Spark
    from firearrow.pipeline.sessions import parse_conf  # noqa: PLC0415

    settings = RunSettings(
        master=master,
        conf=parse_conf(conf or []),
        as_json=as_json,
        quiet=quiet,
        log=_log_file(name, log),
    )
    raise typer.Exit(run_job(name, job, settings))


def _log_file(name: str, log: Path | None) -> Path | None:
    if log is None:
        return Path(tempfile.gettempdir()) / f"firearrow-{name}-{_user()}.log"
    return None if str(log) == "-" else log


def _user() -> str:
    import os  # noqa: PLC0415

    return str(os.getuid()) if hasattr(os, "getuid") else "user"


@contextmanager
def spark_needed(command: str) -> Iterator[None]:
    """Around a command: one clear sentence instead of a traceback, also where Spark is missing."""
    missing = [one for one in ("pyspark", "pyarrow") if importlib.util.find_spec(one) is None]
    if missing:
        typer.echo(
            f"firearrow pipeline {command}: {' and '.join(missing)} not installed; "
            "install it: pip install 'firearrow[spark]'",
            err=True,
        )
        raise typer.Exit(EXIT_NOT_DONE)
    try:
        yield
    except ModuleNotFoundError as error:
        typer.echo(
            f"firearrow pipeline {command}: {error.name} is missing; "
            "install it: pip install 'firearrow[spark]'",
            err=True,
        )
        raise typer.Exit(EXIT_NOT_DONE) from error
    except FirearrowError as error:
        typer.echo(f"firearrow pipeline {command}: {error}", err=True)
        raise typer.Exit(EXIT_NOT_DONE) from error


def needed(name: str, value: str | None) -> str:
    """An option that has no default but may come from the environment."""
    if not value:
        raise ConfigError(f"{name} is missing: give it, or set NAMESRV_ADDR")
    return value
