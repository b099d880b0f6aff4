"""One job from its start to its exit code: session, progress, signals, report.

    run_job("archive", lambda spark, watch: archive.run(spark, options, watch), settings)

A job is a function `run(spark, options, watch) -> Report`. What this module adds around it is the
same for all of them, so that a job can also be called from a notebook or a test with a session
that is there already.
"""

from __future__ import annotations

import signal
import sys
import time
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.console import Console

from firearrow.base.errors import FirearrowError
from firearrow.pipeline.display import Display
from firearrow.pipeline.errors import Stopped, explain
from firearrow.pipeline.report import EXIT_NOT_DONE, EXIT_STOPPED, Outcome, Report
from firearrow.pipeline.sessions import opened
from firearrow.pipeline.watching import Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from types import FrameType

    from pyspark.sql import SparkSession

    Job = Callable[[SparkSession, Watch], Report]


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What every job is told.

    Args:
        master: Where Spark runs; `local[*]` unless given or under `spark-submit`.
        conf: Settings of Spark's.
        as_json: The report as JSON on standard output, instead of text.
        quiet: No progress.
        log: A file for what Spark itself prints.
    """

    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    as_json: bool = False
    quiet: bool = False
    log: Path | None = None


def run_job(name: str, job: Job, settings: RunSettings) -> int:
    """Run `job`, print its report, and say with which code the process should exit."""
    started = time.monotonic()
    display = None if settings.quiet else Display(name)
    watch = Watch(display)
    report: Report | None = None
    try:
        with (
            display or nullcontext(),
            terminating_as_interrupted(),
            opened(
                f"firearrow {name}", master=settings.master, conf=settings.conf, log=settings.log
            ) as spark,
            stopping_on_signals(watch),
        ):
            report = _run(name, job, spark, watch)
    except KeyboardInterrupt:  # while Spark started or ended; in between the watch is told
        report = report or Report(name, Outcome.STOPPED, facts={"stoppedAt": "Spark's start"})
    except Exception as error:  # whatever it is: one line and an exit code
        print(f"firearrow pipeline {name}: {explain(error)}", file=sys.stderr)  # noqa: T201
        if not isinstance(error, FirearrowError) and settings.log is not None:
            print(f"Spark's own words are in {settings.log}", file=sys.stderr)  # noqa: T201
        return EXIT_NOT_DONE
    report.took_s = time.monotonic() - started
    if settings.as_json:
        print(report.as_json())  # noqa: T201
    else:
        Console(highlight=False, soft_wrap=not sys.stdout.isatty()).print(report.as_text())
    return report.exit_code


def _run(name: str, job: Job, spark: SparkSession, watch: Watch) -> Report:
    try:
        return job(spark, watch)
    except Stopped as stopped:
        return Report(name, Outcome.STOPPED, facts={"stoppedAt": str(stopped)})


@contextmanager
def terminating_as_interrupted() -> Iterator[None]:
    """SIGTERM raises KeyboardInterrupt, as SIGINT does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def stopping_on_signals(watch: Watch) -> Iterator[None]:
    """SIGINT and SIGTERM ask the watch to stop; a second one of either ends the process at once.

    Comes after the session: PySpark puts its own SIGINT handler there when it starts.
    """

    def asked(number: int, frame: FrameType | None) -> None:
        del frame
        if watch.stopping:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        watch.stop()

    before = {number: signal.signal(number, asked) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


__all__ = ["EXIT_STOPPED", "Job", "RunSettings", "run_job", "stopping_on_signals"]
