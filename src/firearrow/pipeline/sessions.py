"""The Spark session of a job: where it runs, with which settings, where Spark's talk goes."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from firearrow.base.errors import ConfigError
from firearrow.spark.java import java_home

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

LOCAL: Final = "local[*]"
DEFAULTS: Final = {"spark.ui.enabled": "false"}
# Two hundred tasks for each shuffle, Spark's own default, take a laptop half a minute a batch.
LOCAL_DEFAULTS: Final = {"spark.sql.shuffle.partitions": "4", "spark.driver.memory": "1g"}


def parse_conf(given: Sequence[str]) -> dict[str, str]:
    """`--conf key=value`, several times."""
    settings: dict[str, str] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key.startswith("spark."):
            raise ConfigError(f"--conf {text!r}: spark.some.setting=value expected")
        settings[key.strip()] = value.strip()
    return settings


def start(
    name: str,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> SparkSession:
    """A session for a job.

    Args:
        name: What Spark's pages call it.
        master: `local[*]` by default; under `spark-submit`, what that was told.
        conf: Settings of Spark's; they stand above ours.
        log: A file for what Spark, its Java and its workers print; by default they print to
            standard error as they like.
    """
    with _stderr_to(log):
        return _make(name, master, conf or {})


@contextmanager
def opened(
    name: str,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> Iterator[SparkSession]:
    """The same, stopped at the end."""
    spark = start(name, master=master, conf=conf, log=log)
    try:
        yield spark
    finally:
        spark.stop()


def _make(name: str, master: str | None, conf: Mapping[str, str]) -> SparkSession:
    from firearrow.spark import session  # noqa: PLC0415 - only who runs a job pays

    if master is None and "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit started us
        from pyspark import SparkConf, SparkContext  # noqa: PLC0415

        SparkContext._ensure_initialized()  # noqa: SLF001 - what it was told is in its JVM
        master = SparkConf().get("spark.master", LOCAL)
    master = master or LOCAL
    ours = DEFAULTS | (LOCAL_DEFAULTS if master.startswith("local") else {})
    spark = session(name, master=master, conf=ours | dict(conf))
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def java_environment() -> dict[str, str]:
    """What a process that starts Spark must have in its environment, beside our own."""
    home = java_home(os.environ)
    return {} if home is None else {"JAVA_HOME": str(home)}


@contextmanager
def _stderr_to(log: Path | None) -> Iterator[None]:
    """Processes started within write their standard error to `log`, for as long as they live."""
    if log is None:
        yield
        return
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
