"""Messages as a table: which columns there are, and how pulled records become Arrow batches."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from firearrow.hot import ArrowRows
from firearrow.hot.layout import COLUMN_KINDS
from firearrow.model.compression import CompressionError, compression_of, unpack
from firearrow.model.inner_batch import inner_records, is_inner_batch
from firearrow.spark.errors import ConnectorError, SchemaError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

    from firearrow.hot import Record

# In this order by default; `propertiesRaw` and a body as string only if a schema asks for them.
COLUMNS: Final = {
    "topic": "string",
    "broker": "string",
    "queueId": "int",
    "offset": "bigint",
    "msgId": "string",
    "offsetMsgId": "string",
    "keys": "string",
    "tags": "string",
    "bornTimestamp": "timestamp",
    "storeTimestamp": "timestamp",
    "bornHost": "string",
    "storeHost": "string",
    "reconsumeTimes": "int",
    "flag": "int",
    "sysFlag": "int",
    "physicalOffset": "bigint",
    "preparedTransactionOffset": "bigint",
    "properties": "map<string,string>",
    "body": "binary",
}
DEFAULT_SCHEMA: Final = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
_ALSO: Final = {"propertiesRaw": ("string",), "body": ("binary", "string")}


def column_names(
    schema: StructType, *, source: str = "rocketmq", more: Mapping[str, str] = MappingProxyType({})
) -> tuple[str, ...]:
    """The columns of a schema as `ArrowRows` calls them; SchemaError if one cannot be had.

    `more` are columns that this source has besides.
    """
    columns = COLUMNS | dict(more)
    names = []
    for field in schema.fields:
        allowed = _ALSO.get(field.name) or (columns.get(field.name, ""),)
        if not allowed[0]:
            known = ", ".join((*columns, "propertiesRaw"))
            raise SchemaError(f"the source {source!r} has no column {field.name!r}: it has {known}")
        kind = _simple(field.dataType)
        if kind not in allowed:
            raise SchemaError(
                f"column {field.name!r} is {' or '.join(allowed)}, not {kind}: read it so and cast"
            )
        if not field.nullable:
            raise SchemaError(f"column {field.name!r} cannot be NOT NULL: leave that out")
        names.append("bodyText" if field.name == "body" and kind == "string" else field.name)
    if len(set(names)) < len(names):
        raise SchemaError(f"a column is there twice: {', '.join(names)}")
    return tuple(names)


def _simple(kind: DataType) -> str:
    return str(kind.simpleString()).replace(", ", ",")


def unwrapper(broker: str, *, lenient: bool) -> Callable[[Record], Sequence[Record]]:
    """Messages of a record that is packed or holds several.

    A body that cannot be unpacked is an error, or with `lenient` stays as it was stored.
    """

    def unwrap(record: Record) -> Sequence[Record]:
        try:
            if is_inner_batch(record.sys_flag):
                return inner_records(record)
            compression = compression_of(record.sys_flag)
            if compression is not None:
                record.body = unpack(record.body, compression)
        except CompressionError as error:
            if not lenient:
                raise ConnectorError(
                    f"the body at offset {record.queue_offset} of queue {record.queue_id} of topic "
                    f"{record.topic} on broker {broker} cannot be unpacked ({error}): read around "
                    "it with startingOffsets, or set failOnDataLoss=false to get it as it is stored"
                ) from error
        return [record]

    return unwrap


class Batches:
    """Rows on their way into record batches of one Arrow schema."""

    def __init__(
        self, names: Sequence[str], schema: pa.Schema, unwrap: Callable[[Record], Sequence[Record]]
    ) -> None:
        self._names = tuple(names)
        self._schema = schema
        self.collected = ArrowRows(self._names, unwrap)

    def take(self) -> pa.RecordBatch:
        """What was collected, as one batch; the buffers are passed on, not copied."""
        import pyarrow as pa  # noqa: PLC0415 - heavy

        rows = self.collected.rows
        arrays = [
            _array(pa, field.type, COLUMN_KINDS[name], rows, buffers)
            for field, name, buffers in zip(
                self._schema, self._names, self.collected.take(), strict=True
            )
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _array(pa: Any, kind: Any, layout: str, rows: int, buffers: Any) -> Any:  # noqa: ANN401
    """One column; `pa` is pyarrow, and nothing here has types of its own."""
    if layout == "map":
        offsets, name_offsets, names, value_offsets, values = map(pa.py_buffer, buffers)
        count = len(name_offsets) // 4 - 1
        text = pa.string()
        entries = pa.StructArray.from_buffers(
            pa.struct([kind.key_field, kind.item_field]),
            count,
            [None],
            children=[
                pa.Array.from_buffers(text, count, [None, name_offsets, names]),
                pa.Array.from_buffers(text, count, [None, value_offsets, values]),
            ],
        )
        return pa.Array.from_buffers(kind, rows, [None, offsets], children=[entries])
    if layout in {"text", "bytes"}:
        offsets, values, validity, nulls = buffers
        bitmap = None if validity is None else pa.py_buffer(validity)
        return pa.Array.from_buffers(
            kind, rows, [bitmap, pa.py_buffer(offsets), pa.py_buffer(values)], nulls
        )
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(buffers[0])], 0)
