"""A Spark session that suits the connector: our Python, a Java that works, quick checkpoints."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from typing import TYPE_CHECKING, Final

from firearrow.spark.java import java_home

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

CONF: Final = {
    # Without the first, workers run whatever `python3` is on PATH.
    "spark.pyspark.python": sys.executable,
    "spark.pyspark.driver.python": sys.executable,
    "spark.sql.session.timeZone": "UTC",
    # Batches into Python sinks; rows of a kilobyte are fastest by the thousand.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    "spark.ui.showConsoleProgress": "false",
}
# A third quicker for each micro-batch, but only right on a disk of this machine.
LOCAL_CONF: Final = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing"
        ".FileSystemBasedCheckpointFileManager"
    ),
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def register(spark: SparkSession) -> None:
    """Make the sources `rocketmq` and, where it is installed, `commitlog` known to a session."""
    from firearrow.spark.source import RocketMQDataSource  # noqa: PLC0415 - imports PySpark

    spark.dataSource.register(RocketMQDataSource)
    if importlib.util.find_spec("firearrow.spark.log_source") is not None:
        module = importlib.import_module("firearrow.spark.log_source")
        spark.dataSource.register(module.CommitLogDataSource)


def session(
    app_name: str = "firearrow",
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """See `firearrow.spark.session`."""
    home = java_home(os.environ)
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)

    from pyspark.sql import SparkSession  # noqa: PLC0415 - slow, and looks at the environment

    local = master is None or master.startswith("local")
    builder = SparkSession.builder.appName(app_name)
    if master is not None:
        builder = builder.master(master)
    elif "spark.master" not in (conf or {}) and "MASTER" not in os.environ:
        builder = builder.master("local[*]")
    for key, value in (CONF | (LOCAL_CONF if local else {}) | dict(conf or {})).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark
