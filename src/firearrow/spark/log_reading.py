"""What a task does with ranges of commit logs: mapped files in, Arrow batches out.

Records are proved in compiled code and copied once, from the page cache into the batch. Only where
no sound record begins does Python look: at the end of the log, at a blank, at damage.
"""

from __future__ import annotations

import logging
import mmap
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import InputPartition

from firearrow.hot import select_records, tile_records
from firearrow.hot.layout import BLANK_BYTES
from firearrow.model.compression import CompressionError, compression_of, unpack
from firearrow.model.inner_batch import inner_records, is_inner_batch
from firearrow.offline.log_walk import Damage, LogFile, OpenLogFile, judge_break
from firearrow.spark.columns import Batches, column_names
from firearrow.spark.errors import CorruptLog
from firearrow.spark.log_options import SOURCE
from firearrow.spark.log_plan import ALWAYS
from firearrow.spark.reading import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from firearrow.hot import Record
    from firearrow.spark.log_options import LogOptions
    from firearrow.spark.log_plan import LogRange

log = logging.getLogger(__name__)

# Besides those of `rocketmq`; `corrupt` only if a schema asks for it.
LOG_COLUMNS: Final = {"recordSize": "int", "file": "string"}
CORRUPT: Final = {"corrupt": "string"}
_OWN: Final = frozenset({"broker", "file", "corrupt"})  # not in records


@dataclass(frozen=True)
class LogRanges(InputPartition):
    """The work of one task."""

    ranges: tuple[LogRange, ...]

    # A dataclass does not call it, and PySpark looks at `value`.
    value = None


def log_column_names(schema: StructType) -> tuple[str, ...]:
    """The columns of a schema; SchemaError if one cannot be had."""
    return column_names(schema, source=SOURCE, more=LOG_COLUMNS | CORRUPT)


def read_ranges(
    options: LogOptions, schema: StructType, work: LogRanges
) -> Iterator[pa.RecordBatch]:
    """All rows of a task's ranges, in the order of the log."""
    reader = RangeReader(options, log_column_names(schema), arrow_schema(schema))
    for one in work.ranges:
        yield from reader.read(one)


class RangeReader:
    """Reads ranges into batches of one schema."""

    def __init__(self, options: LogOptions, names: Sequence[str], schema: pa.Schema) -> None:
        import pyarrow as pa  # noqa: PLC0415 - heavy

        self._options = options
        self._names = tuple(names)
        self._schema = schema
        self._pa: Any = pa
        fields = [f for f, name in zip(schema, names, strict=True) if name not in _OWN]
        plain = tuple(name for name in names if name not in _OWN)
        self._batches = Batches(plain, pa.schema(fields), self._unwrap)
        self._topics: dict[bytes, bool] | None = None if options.every_topic else {}
        self._path = ""

    def read(self, wanted: LogRange) -> Iterator[pa.RecordBatch]:
        """The rows of one range; CorruptLog where the options say so."""
        self._path = wanted.path
        try:
            with _mapped(wanted) as content:
                yield from self._read(wanted, content)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            if isinstance(error, FileNotFoundError):
                reason = "it was deleted meanwhile, as brokers do with their oldest files"
            lost = Damage(wanted.first_offset + wanted.start, wanted.size, "C1", str(reason))
            yield from self._judge(lost)

    def _read(self, wanted: LogRange, content: memoryview) -> Iterator[pa.RecordBatch]:
        options, collected = self._options, self._batches.collected
        span, at = options.span, wanted.start
        oldest = _Oldest(wanted, content)
        # A record leaves room for the blank that closes a file.
        stop = min(wanted.stop, wanted.segment_bytes - BLANK_BYTES)
        while at < stop:
            found = select_records(
                content,
                at,
                stop,
                wanted.first_offset,
                span.begin_ms,
                span.end_ms,
                self._topics,
                options.wants,
                options.batch_bytes,
            )
            at = found.position
            for first, last in found.runs:
                collected.add(
                    content[first:last], "", -ALWAYS - 1, ALWAYS, 0, None, check_crc=False
                )
                if collected.rows >= options.batch_rows or collected.size >= options.batch_bytes:
                    yield self._take()
            if found.ending != "odd":
                continue
            if collected.rows:
                yield self._take()
            damage = _damage_at(wanted, at, oldest)
            if damage is None:
                break
            yield from self._judge(damage)
            at += damage.size
            oldest.begin(at)
        if collected.rows:
            yield self._take()

    def _judge(self, damage: Damage) -> Iterator[pa.RecordBatch]:
        """Raise, or go on and say so: in a row if there is a column for it, and in the log."""
        what = f"{damage.code} commitlog {damage.offset}: {damage.size} bytes cannot be read: "
        what += damage.reason
        if not self._options.skip_corrupt:
            raise CorruptLog(
                f"{self._path}: {what}. `firearrow store check` tells more; set onCorrupt=skip to "
                "read what is around it"
            )
        log.warning("%s: skipped %s", self._path, what)
        if "corrupt" in self._names:
            yield self._corrupt_row(damage, what)

    def _corrupt_row(self, damage: Damage, what: str) -> pa.RecordBatch:
        values = {
            "file": self._path,
            "physicalOffset": damage.offset,
            "recordSize": min(damage.size, (1 << 31) - 1),
            "corrupt": what,
        }
        arrays = [
            self._pa.array([values.get(name)], type=field.type)
            for field, name in zip(self._schema, self._names, strict=True)
        ]
        return self._pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _take(self) -> pa.RecordBatch:
        """What was collected, with the columns that no record has."""
        rows = self._batches.collected.rows
        taken = iter(self._batches.take().columns)
        if not _OWN.intersection(self._names):
            return self._pa.RecordBatch.from_arrays(list(taken), schema=self._schema)
        arrays = []
        for name in self._names:
            if name == "file":
                arrays.append(self._pa.repeat(self._path, rows))
            elif name in _OWN:
                arrays.append(self._pa.nulls(rows, self._pa.string()))
            else:
                arrays.append(next(taken))
        return self._pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _unwrap(self, record: Record) -> Sequence[Record]:
        """Messages of a record that is packed or holds several."""
        try:
            if is_inner_batch(record.sys_flag):
                return inner_records(record)
            compression = compression_of(record.sys_flag)
            if compression is not None:
                record.body = unpack(record.body, compression)
        except CompressionError as error:
            if not self._options.skip_corrupt:
                raise CorruptLog(
                    f"{self._path}: the body of the record at {record.physical_offset} cannot be "
                    f"unpacked: {error}. Set onCorrupt=skip to get it as it is stored"
                ) from error
        return [record]


@contextmanager
def _mapped(wanted: LogRange) -> Iterator[memoryview]:
    with (
        Path(wanted.path).open("rb") as file,
        mmap.mmap(file.fileno(), wanted.file_bytes, access=mmap.ACCESS_READ) as content,
    ):
        content.madvise(mmap.MADV_SEQUENTIAL)
        with memoryview(content) as view:
            yield view


class _Oldest:
    """How old a record behind a break may be: no older than the last sound one before it."""

    def __init__(self, wanted: LogRange, content: memoryview) -> None:
        self._content = content
        self._first_offset = wanted.first_offset
        self._begin = 0  # a range begins where records lead that begin there
        self._newest_ms = 0

    def begin(self, at: int) -> None:
        """Sound records begin here again."""
        self._begin = at

    def before(self, at: int) -> int:
        """Store time of the last record before a place to which sound records lead."""
        found = tile_records(self._content, self._begin, at, self._first_offset, 1 << 40)
        self._newest_ms = found.last_store_timestamp or self._newest_ms
        return self._newest_ms


def _damage_at(wanted: LogRange, at: int, oldest: _Oldest) -> Damage | None:
    """What is wrong at a place without a record, within the range; None where the log ends."""
    file = LogFile(Path(wanted.path), wanted.first_offset, wanted.file_bytes)
    with OpenLogFile(file, wanted.segment_bytes) as opened:
        found = judge_break(
            opened, at, follows=wanted.follows, reached=True, oldest=lambda: oldest.before(at)
        )
    if not isinstance(found, Damage):
        return None
    return found._replace(size=min(found.size, wanted.stop - at))
