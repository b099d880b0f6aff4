"""Batch reads: everything between two positions, once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from firearrow.spark import pool
from firearrow.spark.columns import column_names
from firearrow.spark.options import EARLIEST, LATEST
from firearrow.spark.planning import Range, plan
from firearrow.spark.positions import check_start, find_queues, resolve
from firearrow.spark.reading import QueueRanges, read_partition

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from firearrow.spark.options import ReadOptions


class BatchReader(DataSourceReader):
    """Reads ranges of queues.

    It has no `pushFilters` on purpose: Spark 4.3 keeps what a reader narrowed for every later query
    on the same DataFrame, so that `df.where("offset > 5").count(); df.count()` counts too few.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._names = column_names(schema)

    def partitions(self) -> Sequence[QueueRanges]:
        """The tasks. Whatever is wrong with the options is said here, before anything is read."""
        options = self._options
        directory = pool.directory(options)
        queues = find_queues(options, directory)
        bounds = directory.bounds(queues)
        start = resolve(
            options.starting,
            bounds,
            directory,
            default=EARLIEST,
            when_no_later_message=options.when_no_later_message,
        )
        end = resolve(options.ending, bounds, directory, default=LATEST)
        start = check_start(start, bounds, fail=options.fail_on_data_loss)
        ranges = [
            Range(queue, start[queue], min(end[queue], bounds[queue].behind))
            for queue in sorted(bounds)
        ]
        return self._tasks([one for one in ranges if one.rows > 0])

    def _tasks(self, ranges: list[Range]) -> list[QueueRanges]:
        options = self._options
        if not ranges:
            return [QueueRanges((), ())]
        addresses = pool.directory(options).addresses(one.queue for one in ranges)
        tasks = plan(
            ranges,
            partitions_min=options.partitions_min,
            partitions_max=options.partitions_max,
            rows_max=options.partition_rows_max,
        )
        return [QueueRanges(ranges, tuple(sorted(addresses.items()))) for ranges in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        assert isinstance(partition, QueueRanges)
        return read_partition(self._options, self._schema, self._names, partition)
