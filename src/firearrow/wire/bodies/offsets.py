"""Committed offsets: the tables that slaves copy, and the results of moving a group."""

import msgspec

from firearrow.model.topic import DataVersion, MessageQueue
from firearrow.wire import java_json
from firearrow.wire.header import Int32, Int64
from firearrow.wire.java_json import ObjectMap


class ConsumerOffsetWrapper(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """By ``topic@group`` and queue. Split the key at its first ``@``: groups may end in another."""

    data_version: DataVersion | None = None
    offset_table: dict[str, dict[Int32, Int64]] = {}
    group_topic_map: dict[str, tuple[str, ...]] | None = None


class DelayOffsetWrapper(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """By delay level."""

    data_version: DataVersion | None = None
    offset_table: dict[Int32, Int64] = {}


class ResetOffsetBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    offset_table: ObjectMap[MessageQueue, Int64] = msgspec.field(default_factory=ObjectMap)


class _QueueOffset(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    broker_name: str
    topic: str
    queue_id: Int32
    offset: Int64


class _ResetOffsetList(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    offset_table: tuple[_QueueOffset, ...] = ()


def decode_reset_offset(body: bytes) -> ResetOffsetBody:
    """Read either form: the map with objects as keys, or the list that C++ clients understand."""
    value = java_json.parse(body)
    if not isinstance(value, dict) or not isinstance(value.get("offsetTable"), list):
        return java_json.convert(value, ResetOffsetBody)
    table: ObjectMap[MessageQueue, int] = ObjectMap()
    for entry in java_json.convert(value, _ResetOffsetList).offset_table:
        queue = MessageQueue(
            topic=entry.topic, broker_name=entry.broker_name, queue_id=entry.queue_id
        )
        table[queue] = entry.offset
    return ResetOffsetBody(offset_table=table)


def encode_reset_offset(body: ResetOffsetBody, *, as_list: bool = False) -> bytes:
    """Write the map, or the list for a client whose language is CPP."""
    if not as_list:
        return java_json.encode(body)
    entries = tuple(
        _QueueOffset(
            broker_name=queue.broker_name, topic=queue.topic, queue_id=queue.queue_id, offset=offset
        )
        for queue, offset in body.offset_table.items()
    )
    return java_json.encode(_ResetOffsetList(offset_table=entries))


class GetConsumerStatusBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A client fills the second table, a broker the first, by client id."""

    consumer_table: dict[str, ObjectMap[MessageQueue, Int64]] = {}
    message_queue_table: ObjectMap[MessageQueue, Int64] = msgspec.field(default_factory=ObjectMap)


class QueryCorrectionOffsetBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    correction_offsets: dict[Int32, Int64] = {}


class QueueTimeSpan(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Java adds the three times once more as text, in its own time zone."""

    message_queue: MessageQueue
    min_time_stamp: Int64 = 0
    max_time_stamp: Int64 = 0
    consume_time_stamp: Int64 = 0
    delay_time: Int64 = 0
    min_time_stamp_str: str | None = None
    max_time_stamp_str: str | None = None
    consume_time_stamp_str: str | None = None


class QueryConsumeTimeSpanBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    consume_time_span_set: tuple[QueueTimeSpan, ...] = ()
