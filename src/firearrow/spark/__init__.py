"""The connector: topics and commit logs as Spark tables, without a jar.

    spark = firearrow.spark.session()      # or a session of your own and firearrow.spark.register
    spark.read.format("rocketmq").option("subscribe", "orders").load()

Importing this costs nothing; PySpark and the client are loaded when they are used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

__all__ = ["register", "session"]


def register(spark: SparkSession) -> None:
    """Make the sources `rocketmq` and `commitlog` known to a session."""
    importlib.import_module("firearrow.spark.sessions").register(spark)


def session(
    app_name: str = "firearrow",
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """A session with the connector registered; the running one if there is one.

    Args:
        app_name: What the Spark UI shows.
        master: ``local[*]`` by default, or what MASTER or spark-submit say.
        conf: Settings that outrank those of `firearrow.spark.sessions`.
    """
    found: SparkSession = importlib.import_module("firearrow.spark.sessions").session(
        app_name, master=master, conf=conf
    )
    return found
