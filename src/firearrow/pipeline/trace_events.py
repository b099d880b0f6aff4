"""Trace messages as rows: one row for each thing that a client told about a message.

The bodies of the trace topic are text in RocketMQ's format, of any version; a body that makes no
sense becomes one row that says so, and the rest is read.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from firearrow.client.trace_format import (
    EndTransaction,
    Pub,
    Recall,
    SubAfter,
    SubBefore,
    TraceFormatError,
    decode_trace,
)
from firearrow.client.tracing import CONTEXT_CODES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from firearrow.client.trace_format import TraceRecord

BROKEN: Final = "Broken"
# `at` comes first: events of a message are sorted by it.
EVENT_SCHEMA: Final = (
    "at timestamp, kind string, msgId string, topic string, group string, tags string, "
    "keys string, storeHost string, clientHost string, bodyBytes int, costMs bigint, "
    "messageType string, offsetMsgId string, success boolean, requestId string, retryTimes int, "
    "status string, transactionId string, state string, fromCheck boolean, problem string"
)
_COLUMNS: Final = tuple((part.split()[0], part.split()[1]) for part in EVENT_SCHEMA.split(", "))
_STATUS: Final = {code: name for name, code in CONTEXT_CODES.items()}


def events_of(traces: DataFrame) -> DataFrame:
    """The events of trace messages: columns `body` and `storeTimestamp` in, `EVENT_SCHEMA` out."""
    return traces.select("body", "storeTimestamp").mapInArrow(_decode_batches, EVENT_SCHEMA)


def _decode_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa  # noqa: PLC0415 - only where there is work

    kinds = {
        "timestamp": pa.timestamp("us", tz="UTC"),
        "string": pa.string(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "boolean": pa.bool_(),
    }
    schema = pa.schema([(name, kinds[kind]) for name, kind in _COLUMNS])
    for batch in batches:
        bodies, times = batch.column(0).to_pylist(), batch.column(1).cast("int64").to_pylist()
        rows = [
            row
            for body, stored_us in zip(bodies, times, strict=True)
            for row in rows_of(body or b"", stored_us // 1000)
        ]
        columns = {name: [row.get(name) for row in rows] for name, _ in _COLUMNS}
        yield pa.RecordBatch.from_pydict(columns, schema=schema)


def rows_of(body: bytes, stored_ms: int) -> list[dict[str, Any]]:
    """One trace message; events without a time of their own get that of the message."""
    try:
        records = decode_trace(body.decode("utf-8", "replace"))
    except TraceFormatError as error:
        return [{"at": stored_ms * 1000, "kind": BROKEN, "msgId": "", "problem": str(error)}]
    return [row_of(record, stored_ms) for record in records]


def row_of(record: TraceRecord, stored_ms: int) -> dict[str, Any]:
    """One thing that was told, with times in microseconds as Arrow wants them."""
    told = asdict(record)
    row = {
        "kind": type(record).__name__,
        "at": (told["timestamp_ms"] or stored_ms) * 1000,
        "msgId": record.message_id,
        "topic": told.get("topic"),
        "group": told.get("group"),
        "tags": told.get("tags"),
        "keys": told.get("keys"),
    }
    match record:
        case Pub():
            row |= {
                "storeHost": record.store_host,
                "clientHost": record.client_host,
                "bodyBytes": min(record.body_bytes, (1 << 31) - 1),
                "costMs": record.cost_ms,
                "messageType": record.message_type.name,
                "offsetMsgId": record.offset_message_id,
                "success": record.success,
            }
        case SubBefore():
            row |= {
                "requestId": record.request_id,
                "retryTimes": min(record.retry_times, (1 << 31) - 1),
                "clientHost": record.client_host,
            }
        case SubAfter():
            row |= {
                "requestId": record.request_id,
                "costMs": record.cost_ms,
                "success": record.success,
                "status": _STATUS.get(record.context_code, str(record.context_code)),
            }
        case EndTransaction():
            row |= {
                "storeHost": record.store_host,
                "messageType": record.message_type.name,
                "transactionId": record.transaction_id,
                "state": record.state.value,
                "fromCheck": record.from_check,
            }
        case Recall():
            row |= {"success": record.success}
    return row
