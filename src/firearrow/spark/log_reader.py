"""Commit logs for Spark: batch reads of whole directories, streams that follow their ends.

A stream's position is one physical offset for each directory, always the beginning of a record
that the records before it led to.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)

from firearrow.spark.errors import DataLoss
from firearrow.spark.log_follow import find_end, ranges_between
from firearrow.spark.log_options import LATEST
from firearrow.spark.log_plan import ALWAYS, open_stores, pack_ranges, plan_ranges
from firearrow.spark.log_reading import LogRanges, log_column_names, read_ranges

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from firearrow.offline.directory import StoreDirectory
    from firearrow.spark.log_options import LogOptions
    from firearrow.spark.log_plan import LogRange

log = logging.getLogger(__name__)


class LogReader(DataSourceReader):
    """Reads everything that is there when the query is planned."""

    def __init__(self, options: LogOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        log_column_names(schema)

    def partitions(self) -> Sequence[LogRanges]:
        """The tasks. Whatever is wrong with the options is said here, before anything is read."""
        options = self._options
        ranges = plan_ranges(
            open_stores(options.path, options.shape),
            span=options.span,
            lenient=options.skip_corrupt,
            min_partitions=options.partitions_min,
            range_bytes=options.partition_bytes,
        )
        tasks = pack_ranges(
            ranges, pieces=options.partitions_min, range_bytes=options.partition_bytes
        )
        return [LogRanges(one) for one in tasks] or [LogRanges(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        assert isinstance(partition, LogRanges)
        return read_ranges(self._options, self._schema, partition)


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the ends of logs, also while brokers write them."""

    def __init__(self, options: LogOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._target: dict[str, int] | None = None
        log_column_names(schema)

    def initialOffset(self) -> dict[str, int]:
        latest = self._options.starting == LATEST
        return _position(
            {
                str(store.root): find_end(store, store.min_offset) if latest else store.min_offset
                for store in self._stores()
            }
        )

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.trigger_bytes_max:
            return ReadMaxBytes(self._options.trigger_bytes_max)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        stores = self._stores()
        bytes_max = limit.max_bytes if isinstance(limit, ReadMaxBytes) else ALWAYS
        share = max(1, bytes_max // len(stores))
        found = dict(start)
        for store in stores:
            root = str(store.root)
            begin = self._begin(store, start.get(root))
            end = find_end(store, begin, bytes_max=share)
            if self._target is not None:
                end = min(end, self._target.get(root, begin))
            found[root] = max(end, begin)
        return _position(found)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = {str(s.root): find_end(s, s.min_offset) for s in self._stores()}

    def reportLatestOffset(self) -> dict[str, int]:
        return _position({str(s.root): find_end(s, s.min_offset) for s in self._stores()})

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[LogRanges]:
        """The tasks of a batch; the same batch is asked for again after a crash."""
        options = self._options
        ranges: list[LogRange] = []
        for store in self._stores():
            root = str(store.root)
            if root in end:
                begin = self._begin(store, start.get(root))
                ranges += ranges_between(store, begin, end[root])
        tasks = pack_ranges(
            ranges, pieces=options.partitions_min, range_bytes=options.partition_bytes
        )
        return [LogRanges(one) for one in tasks]

    def commit(self, end: dict[str, int]) -> None:
        """Files know nothing of their readers."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, LogRanges)
        return read_ranges(self._options, self._schema, partition)

    def _stores(self) -> list[StoreDirectory]:
        return open_stores(self._options.path, self._options.shape)

    def _begin(self, store: StoreDirectory, offset: int | None) -> int:
        """Where to go on; the oldest files may be gone."""
        if offset is None or offset >= store.min_offset:
            return store.min_offset if offset is None else offset
        what = f"{store.root}: the log begins at {store.min_offset}, and the query was at {offset}"
        if self._options.fail_on_data_loss:
            raise DataLoss(
                f"{what}: what lies between was deleted unread. Set failOnDataLoss=false to go on "
                "with what is left"
            )
        log.warning("%s; it goes on with what is left", what)
        return store.min_offset


def _position(offsets: dict[str, int]) -> dict[str, int]:
    """Spark compares positions as text, so keys are sorted."""
    return dict(sorted(offsets.items()))
