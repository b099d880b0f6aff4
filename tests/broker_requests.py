"""Requests as clients send them to a broker, with everything that a test does not care about."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from firearrow.hot import Record, decode_properties, decode_record
from firearrow.model.group import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData
from firearrow.wire import bodies, headers, java_json
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import Command, request
from firearrow.wire.headers import PullFlag

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

TOPIC: Final = "orders"
GROUP: Final = "billing"
BORN_MS: Final = 1_700_000_000_123


def property_text(properties: Mapping[str, str]) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items())


def send(
    body: bytes = b"hello",
    *,
    topic: str = TOPIC,
    queue_id: int = 0,
    properties: Mapping[str, str] | None = None,
    code: RequestCode = RequestCode.SEND_MESSAGE_V2,
    oneway: bool = False,
    **fields: Any,
) -> Command:
    """A message from a producer; the form of the header follows the code."""
    given: dict[str, Any] = {
        "producer_group": "shop",
        "topic": topic,
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": queue_id,
        "sys_flag": 0,
        "born_timestamp": BORN_MS,
        "flag": 0,
        "properties": property_text(properties or {}),
    }
    kind = (
        headers.SendMessageRequest
        if code == RequestCode.SEND_MESSAGE
        else headers.SendMessageRequestV2
    )
    return request(code, kind(**(given | fields)), body, oneway=oneway)


def batch_body(messages: Iterable[tuple[bytes, Mapping[str, str]]], flag: int = 0) -> bytes:
    parts = []
    for body, properties in messages:
        text = property_text(properties).encode()
        size = 22 + len(body) + len(text)
        parts.append(struct.pack(">iiiii", size, 0, 0, flag, len(body)) + body)
        parts.append(struct.pack(">h", len(text)) + text)
    return b"".join(parts)


def send_batch(body: bytes, **fields: Any) -> Command:
    return send(body, code=RequestCode.SEND_BATCH_MESSAGE, batch=True, **fields)


def pull(
    offset: int = 0,
    *,
    topic: str = TOPIC,
    group: str = GROUP,
    queue_id: int = 0,
    count: int = 32,
    expression: str | None = "*",
    flags: int = 0,
    code: RequestCode = RequestCode.PULL_MESSAGE,
    oneway: bool = False,
    **fields: Any,
) -> Command:
    """A pull that carries its own filter, or relies on heartbeats if `expression` is None."""
    given: dict[str, Any] = {
        "consumer_group": group,
        "topic": topic,
        "queue_id": queue_id,
        "queue_offset": offset,
        "max_msg_nums": count,
        "sys_flag": flags | (0 if expression is None else PullFlag.SUBSCRIPTION),
        "commit_offset": 0,
        "suspend_timeout_millis": 15_000,
        "subscription": expression,
        "sub_version": 0,
    }
    return request(code, headers.PullMessageRequest(**(given | fields)), oneway=oneway)


def subscription(topic: str = TOPIC, expression: str = "*", version: int = 1) -> SubscriptionData:
    return SubscriptionData.of(topic, expression, version=version)


def heartbeat(
    client_id: str = "client-1",
    *subscriptions: SubscriptionData,
    group: str | None = GROUP,
    producer: str | None = None,
    model: MessageModel = MessageModel.CLUSTERING,
    **fields: Any,
) -> Command:
    consumers: tuple[bodies.ConsumerData, ...] = ()
    if group is not None:
        consumers = (
            bodies.ConsumerData(
                group_name=group,
                consume_type=ConsumeType.CONSUME_PASSIVELY,
                message_model=model,
                consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
                subscription_data_set=subscriptions or (subscription(),),
            ),
        )
    data = bodies.HeartbeatData(
        client_id=client_id,
        consumer_data_set=consumers,
        producer_data_set=(bodies.ProducerData(group_name=producer),) if producer else (),
        **fields,
    )
    return request(RequestCode.HEART_BEAT, body=java_json.encode(data))


def send_back(offset: int, *, group: str = GROUP, delay_level: int = 0, **fields: Any) -> Command:
    header = headers.ConsumerSendMsgBackRequest(
        offset=offset, group=group, delay_level=delay_level, **fields
    )
    return request(RequestCode.CONSUMER_SEND_MSG_BACK, header)


def query_offset(*, topic: str = TOPIC, group: str = GROUP, queue_id: int = 0) -> Command:
    header = headers.QueryConsumerOffsetRequest(
        consumer_group=group, topic=topic, queue_id=queue_id, set_zero_if_not_found=False
    )
    return request(RequestCode.QUERY_CONSUMER_OFFSET, header)


def commit(
    offset: int, *, topic: str = TOPIC, group: str = GROUP, queue_id: int = 0, oneway: bool = False
) -> Command:
    header = headers.UpdateConsumerOffsetRequest(
        consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=offset
    )
    return request(RequestCode.UPDATE_CONSUMER_OFFSET, header, oneway=oneway)


def max_offset_of(topic: str, queue_id: int = 0) -> Command:
    header = headers.GetMaxOffsetRequest(topic=topic, queue_id=queue_id)
    return request(RequestCode.GET_MAX_OFFSET, header)


def sent(reply: Command) -> headers.SendMessageReply:
    assert reply.code == 0, reply.remark
    return headers.SendMessageReply.from_ext(reply.ext)


def pulled(reply: Command) -> headers.PullMessageReply:
    return headers.PullMessageReply.from_ext(reply.ext)


def records(reply: Command) -> list[Record]:
    """The messages of a pull's answer."""
    found, at = [], 0
    while at < len(reply.body):
        found.append(decode_record(reply.body, at))
        at += found[-1].size
    return found


def texts(reply: Command) -> list[bytes]:
    return [record.body for record in records(reply)]


def properties_of(record: Record) -> dict[str, str]:
    return decode_properties(record.properties)
