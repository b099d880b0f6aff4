"""A small Spark session for tests, and its Java gone afterwards."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from firearrow.spark import session

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


@contextmanager
def spark_session(folder: Path) -> Iterator[SparkSession]:
    found = session(
        "tests",
        master="local[2]",
        conf={
            "spark.ui.enabled": "false",
            "spark.driver.memory": "768m",
            "spark.sql.shuffle.partitions": "2",
            "spark.local.dir": str(folder / "local"),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.log.level": "ERROR",
        },
    )
    gateway = found.sparkContext._gateway  # noqa: SLF001 - PySpark has no public way to end Java
    assert gateway is not None
    try:
        yield found
    finally:
        found.stop()
        gateway.shutdown()
        java: subprocess.Popen[bytes] = gateway.proc
        if java.stdin is not None:
            java.stdin.close()
        java.wait(30)
