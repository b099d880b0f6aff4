"""Lets Spark find the data source `commitlog` by itself: it looks into every `pyspark_*` package.

All Python planners on the machine import this, so that nothing heavy may be imported with it.
"""

from firearrow.spark.log_source import CommitLogDataSource as DefaultSource

__all__ = ["DefaultSource"]
