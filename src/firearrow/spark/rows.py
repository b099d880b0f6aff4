"""Rows of a table as messages: which columns there are, where each row goes, requests of many.

    column        type                  meaning
    body, value   binary or string      the message; one of the two is needed
    topic         string                where to, unless the option `topic` says so
    tags, keys    string
    properties    map<string,string>    names of the system in it are left out
    shardingKey   string                rows with one key go to one queue, in order
    queueId       integer               this queue

Columns that only the source can fill (offset, msgId, ...) are left alone, so that what was read can
be written again. Any other is a mistake and said so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from firearrow.hot import PairsColumn, TextColumn, encode_rows
from firearrow.model import message as names
from firearrow.spark.columns import COLUMNS
from firearrow.spark.errors import ConnectorError, SchemaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType

TEXT: Final = ("string",)
INTEGERS: Final = ("tinyint", "smallint", "int", "bigint")
WRITABLE: Final[dict[str, tuple[str, ...]]] = {
    "body": ("binary", "string"),
    "value": ("binary", "string"),
    "topic": TEXT,
    "tags": TEXT,
    "keys": TEXT,
    "properties": ("map<string,string>",),
    "shardingKey": TEXT,
    "queueId": INTEGERS,
}
_LOWER: Final = {name.lower(): name for name in WRITABLE}
_SOURCE_ONLY: Final = frozenset(name.lower() for name in (*COLUMNS, "propertiesRaw"))
# What a broker, a client or the store writes into a message: copies would lie.
SYSTEM_PROPERTIES: Final = (
    names.UNIQ_KEY,
    names.WAIT,
    names.DELAY,
    names.REAL_TOPIC,
    names.REAL_QUEUE_ID,
    names.INNER_NUM,
    names.RETRY_TOPIC,
    names.ORIGIN_MESSAGE_ID,
    names.RECONSUME_TIME,
    names.MAX_RECONSUME_TIMES,
    names.TRAN_MSG,
    names.PRODUCER_GROUP,
    names.TRANSACTION_ID,
    names.CHECK_TIMES,
    names.CHECK_IMMUNITY,
    names.PREPARED_QUEUE_OFFSET,
    names.PARTS,
    names.SCOPE,
    names.EPOCH,
    names.INSTANCE_ID,
    names.CLUSTER,
    names.MSG_REGION,
    names.TRACE_ON,
    names.CONSUME_START_TIME,
    names.MIN_OFFSET,
    names.MAX_OFFSET,
    names.TIMER_DELAY_SEC,
    names.TIMER_DELAY_MS,
    names.TIMER_DELIVER_MS,
    names.TIMER_OUT_MS,
    names.TIMER_ENQUEUE_MS,
    names.TIMER_DEQUEUE_MS,
    names.TIMER_ROLL_TIMES,
    names.TIMER_DEL_UNIQKEY,
    "FA_PRODUCER",
    "FA_SEQ",
    "POP_CK",
)


class Plan(NamedTuple):
    """Which column of the table is which, by place; -1 where there is none."""

    body: int
    topic: int
    tags: int
    keys: int
    properties: int
    sharding_key: int
    queue_id: int


def plan_of(schema: StructType, topic: str | None) -> Plan:
    """Check the columns of a table; SchemaError names the one that is wrong."""
    places: dict[str, int] = {}
    for place, field in enumerate(schema.fields):
        name = _LOWER.get(field.name.lower())
        if name is None:
            if field.name.lower() in _SOURCE_ONLY:
                continue
            raise SchemaError(
                f"column {field.name!r} is none that the sink 'rocketmq' can write: it takes "
                f"{', '.join(WRITABLE)}. Drop it, or make it part of the body, as in "
                "select(to_json(struct('*')).alias('body'))"
            )
        kind = str(field.dataType.simpleString()).replace(", ", ",")
        if kind not in WRITABLE[name]:
            wanted = " or ".join(WRITABLE[name][-1:] if name == "queueId" else WRITABLE[name])
            raise SchemaError(f"column {field.name!r} must be {wanted}, not {kind}: cast it")
        if (
            name in places
            or (name == "body" and "value" in places)
            or (name == "value" and "body" in places)
        ):
            raise SchemaError(f"column {field.name!r} comes twice (body and value are the same)")
        places[name] = place
    if "body" not in places and "value" not in places:
        raise SchemaError(
            "a column 'body' (or 'value') of binary or string is needed; there are "
            f"{', '.join(field.name for field in schema.fields) or 'none'}"
        )
    if topic is None and "topic" not in places:
        raise SchemaError("no topic: give the option 'topic', or a column 'topic' of strings")
    return Plan(
        places.get("body", places.get("value", -1)),
        -1 if topic is not None else places["topic"],
        places.get("tags", -1),
        places.get("keys", -1),
        places.get("properties", -1),
        places.get("shardingKey", -1),
        places.get("queueId", -1),
    )


class Placed(NamedTuple):
    """Rows of one batch that go to one topic, and to one queue if they say which."""

    topic: str
    sharding_key: str | None
    queue_id: int | None
    batch: pa.RecordBatch


def placed(batch: pa.RecordBatch, plan: Plan, topic: str | None) -> Iterator[Placed]:
    """Rows by destination, in their order; all at once if none of them asks for anything."""
    columns = [place for place in (plan.topic, plan.sharding_key, plan.queue_id) if place >= 0]
    if not columns:
        assert topic is not None
        yield Placed(topic, None, None, batch)
        return
    import pyarrow as pa  # noqa: PLC0415 - heavy
    import pyarrow.compute as pc  # noqa: PLC0415

    keys = [batch.column(place) for place in columns]
    # One number for each combination of values; nulls are a value of their own.
    code = None
    for key in keys:
        encoded = pc.dictionary_encode(key, null_encoding="encode")
        numbers = encoded.indices.cast(pa.int64())
        code = (
            numbers if code is None else pc.add(pc.multiply(code, len(encoded.dictionary)), numbers)
        )
    distinct = pc.unique(code)
    for number in distinct:
        rows = batch if len(distinct) == 1 else batch.filter(pc.equal(code, number))
        values = {place: rows.column(place)[0].as_py() for place in columns}
        own = topic if topic is not None else values.get(plan.topic)
        if not own:
            raise ConnectorError(
                "a row has no topic: its column 'topic' is null or empty, and the option 'topic' "
                "is not given"
            )
        yield Placed(own, values.get(plan.sharding_key) or None, values.get(plan.queue_id), rows)


class Encoder:
    """Makes requests of rows. `key_head` gives the first 28 digits of the next message ids."""

    def __init__(self, plan: Plan, request_bytes: int, key_head: Callable[[], str]) -> None:
        self._plan = plan
        self._request_bytes = request_bytes
        self._key_head = key_head

    def requests(self, batch: pa.RecordBatch, row_bytes_max: int) -> Iterator[tuple[bytes, int]]:
        """Bodies of batch requests, and how many rows each has."""
        plan = self._plan
        body = text_column(batch.column(plan.body))
        texts = [
            (name.encode(), text_column(batch.column(place)))
            for name, place in (
                (names.TAGS, plan.tags),
                (names.KEYS, plan.keys),
                (names.SHARDING_KEY, plan.sharding_key),
            )
            if place >= 0
        ]
        pairs = None
        if plan.properties >= 0:
            own = {name.decode() for name, _ in texts}
            pairs = pairs_column(batch.column(plan.properties), own)
        row, stop = 0, batch.num_rows
        while row < stop:
            try:
                request, behind = encode_rows(
                    body,
                    texts,
                    pairs,
                    start=row,
                    stop=stop,
                    bytes_max=self._request_bytes,
                    key_head=self._key_head().encode(),
                    counter=0,
                )
            except ValueError as error:
                raise ConnectorError(_bad_row(error, batch)) from None
            if len(request) > row_bytes_max:
                raise ConnectorError(
                    f"a row takes {len(request)} bytes as a message; brokers take {row_bytes_max} "
                    "at most (maxMessageSize): make its body smaller"
                )
            yield request, behind - row
            row = behind


def _bad_row(error: ValueError, batch: pa.RecordBatch) -> str:
    if len(error.args) != 2:
        return str(error)
    row, reason = error.args
    shown = {
        field.name: str(batch.column(place)[row].as_py())[:60]
        for place, field in enumerate(batch.schema)
    }
    return f"a row cannot be a message: {reason}. The row: {shown}"


def text_column(array: pa.Array) -> TextColumn:
    """A column of texts or bytes, as its buffers lie."""
    import pyarrow as pa  # noqa: PLC0415 - heavy

    if pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type):
        array = array.cast(pa.binary())
    valid, offsets, data = array.buffers()
    return TextColumn(valid, offsets or bytes(4), data or b"", array.offset)


def pairs_column(array: pa.MapArray, own: set[str]) -> PairsColumn:
    """A column of maps, without names that are the system's or have a column of their own."""
    import pyarrow as pa  # noqa: PLC0415 - heavy
    import pyarrow.compute as pc  # noqa: PLC0415

    name_array, value_array = array.keys, array.items
    valid, offsets = array.buffers()[:2]
    first = array.offset
    left_out = pc.is_in(name_array, pa.array(sorted({*SYSTEM_PROPERTIES, *own}), name_array.type))
    if pc.any(left_out).as_py():
        keep = pc.invert(left_out)
        before = pa.concat_arrays(
            [pa.array([0], pa.int32()), pc.cumulative_sum(keep.cast(pa.int32()))]
        )
        rows = pa.Array.from_buffers(pa.int32(), first + len(array) + 1, [None, offsets])
        offsets = before.take(rows).buffers()[1]
        name_array, value_array = name_array.filter(keep), value_array.filter(keep)
    return PairsColumn(valid, offsets, first, text_column(name_array), text_column(value_array))
