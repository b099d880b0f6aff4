"""The data source `rocketmq`, as Spark sees it: `spark.read.format("rocketmq")`.

Planners of every session on a machine import this, so the work is imported where it is done.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
    from pyspark.sql.types import StructType


class RocketMQDataSource(DataSource):
    """Topics of RocketMQ clusters, FireArrow's and Apache's, as tables and streams."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> str:
        """All columns; a schema of the user's own reads fewer and costs less."""
        from firearrow.spark.columns import DEFAULT_SCHEMA  # noqa: PLC0415

        return DEFAULT_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        from firearrow.spark.options import ReadOptions  # noqa: PLC0415
        from firearrow.spark.reader import BatchReader  # noqa: PLC0415

        options = ReadOptions.parse(self.options, streaming=False)
        return BatchReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from firearrow.spark.options import ReadOptions  # noqa: PLC0415
        from firearrow.spark.stream_reader import StreamReader  # noqa: PLC0415

        return StreamReader(ReadOptions.parse(self.options, streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> Any:  # noqa: ANN401, FBT001
        return _writing().batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: ANN401, FBT001
        return _writing().stream_writer(self.options, schema, overwrite)


def _writing() -> Any:  # noqa: ANN401 - a module
    try:
        return importlib.import_module("firearrow.spark.writer")
    except ModuleNotFoundError as error:
        if error.name != "firearrow.spark.writer":
            raise
        from firearrow.spark.errors import ConnectorError  # noqa: PLC0415

        raise ConnectorError("this version of the connector reads only: it has no sink") from None
