"""A Spark job to be killed: files to a topic, or a topic to Parquet; ends when all is done.

python spark_job.py write|read nameservers=... topic=... input=... output=... checkpoint=...
                    master=... [conf.<key>=...] [option.<name>=...]
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import firearrow.spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def write(spark: SparkSession, given: dict[str, str], options: dict[str, str]) -> None:
    """One file for each micro-batch, two tasks for each file."""
    rows = (
        spark.readStream.format("text")
        .option("maxFilesPerTrigger", "1")
        .load(given["input"])
        .repartition(2)
        .selectExpr(
            "value AS body",
            "'spark' AS tags",
            "split(value, ' ')[0] AS keys",
            "split(value, ' ')[1] AS shardingKey",
            "map('length', cast(length(value) AS string)) AS properties",
        )
    )
    query = (
        rows.writeStream.format("rocketmq")
        .options(**options)
        .option("nameservers", given["nameservers"])
        .option("topic", given["topic"])
        .option("checkpointLocation", given["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def read(spark: SparkSession, given: dict[str, str], options: dict[str, str]) -> None:
    rows = (
        spark.readStream.format("rocketmq")
        .options(**options)
        .option("nameservers", given["nameservers"])
        .option("subscribe", given["topic"])
        .option("startingOffsets", "earliest")
        .load()
        .select("queueId", "offset", "keys", "body")
    )
    query = (
        rows.writeStream.format("parquet")
        .option("path", given["output"])
        .option("checkpointLocation", given["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def main() -> None:
    kind, *arguments = sys.argv[1:]
    given = dict(argument.split("=", 1) for argument in arguments)
    conf = {name[5:]: value for name, value in given.items() if name.startswith("conf.")}
    options = {name[7:]: value for name, value in given.items() if name.startswith("option.")}
    spark = firearrow.spark.session("faults", master=given["master"], conf=conf)
    spark.sparkContext.setLogLevel("ERROR")
    {"write": write, "read": read}[kind](spark, given, options)
    print("all is done", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
