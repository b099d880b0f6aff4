"""The data source `commitlog`, as Spark sees it: `spark.read.format("commitlog").load(directory)`.

Planners of every session on a machine import this, so the work is imported where it is done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
    from pyspark.sql.types import StructType


class CommitLogDataSource(DataSource):
    """Commit logs of brokers, FireArrow's and Apache RocketMQ's, read from their files."""

    @classmethod
    def name(cls) -> str:
        return "commitlog"

    def schema(self) -> str:
        """All columns; a schema of the user's own reads fewer and costs less."""
        from firearrow.spark.columns import COLUMNS  # noqa: PLC0415
        from firearrow.spark.log_reading import LOG_COLUMNS  # noqa: PLC0415

        return ", ".join(f"{name} {kind}" for name, kind in (COLUMNS | LOG_COLUMNS).items())

    def reader(self, schema: StructType) -> DataSourceReader:
        from firearrow.spark.log_options import LogOptions  # noqa: PLC0415
        from firearrow.spark.log_reader import LogReader  # noqa: PLC0415

        return LogReader(LogOptions.parse(self.options, streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from firearrow.spark.log_options import LogOptions  # noqa: PLC0415
        from firearrow.spark.log_reader import LogStreamReader  # noqa: PLC0415

        return LogStreamReader(LogOptions.parse(self.options, streaming=True), schema)
