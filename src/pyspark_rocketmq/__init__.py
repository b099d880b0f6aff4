"""Lets Spark find the data source `rocketmq` by itself: it looks into every `pyspark_*` package.

All Python planners on the machine import this, so that nothing heavy may be imported with it.
"""

from firearrow.spark.source import RocketMQDataSource as DefaultSource

__all__ = ["DefaultSource"]
