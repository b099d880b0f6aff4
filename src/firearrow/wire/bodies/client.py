"""What clients and brokers tell each other about membership, locks and assignments."""

import msgspec

from firearrow.model.group import (
    ConsumeFromWhere,
    ConsumeType,
    MessageModel,
    MessageRequestMode,
    SubscriptionData,
)
from firearrow.model.topic import MessageQueue
from firearrow.wire.header import Int32


class ProducerData(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    group_name: str


class ConsumerData(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    group_name: str
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    subscription_data_set: tuple[SubscriptionData, ...] = ()
    unit_mode: bool = False


class HeartbeatData(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Who is here, and for which groups. Go and C++ leave out what they have nothing to say on."""

    client_id: str = msgspec.field(name="clientID")
    producer_data_set: tuple[ProducerData, ...] = ()
    consumer_data_set: tuple[ConsumerData, ...] = ()
    heartbeat_fingerprint: Int32 = 0  # other than 0 in heartbeats of version 2
    without_sub: bool = False  # the subscriptions are as they were, and not repeated


class CheckClientRequestBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    client_id: str
    group: str
    subscription_data: SubscriptionData
    namespace: str | None = None


class ConsumerList(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    consumer_id_list: tuple[str, ...] = ()


class LockBatchRequestBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """For both locking and unlocking."""

    client_id: str
    consumer_group: str
    mq_set: tuple[MessageQueue, ...] = ()
    only_this_broker: bool = False


class LockBatchResponseBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Must be sent even if nothing was locked."""

    lock_ok_mq_set: tuple[MessageQueue, ...] = msgspec.field(name="lockOKMQSet", default=())


class QueryAssignmentRequestBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    topic: str
    consumer_group: str
    client_id: str
    strategy_name: str | None = None
    message_model: MessageModel = MessageModel.CLUSTERING


class MessageQueueAssignment(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    message_queue: MessageQueue
    mode: MessageRequestMode = MessageRequestMode.PULL
    attachments: dict[str, str] | None = None


class QueryAssignmentResponseBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Without the list: could not say, keep what you have."""

    message_queue_assignments: tuple[MessageQueueAssignment, ...] | None = None


class SetMessageRequestModeBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    topic: str
    consumer_group: str
    mode: MessageRequestMode = MessageRequestMode.PULL
    pop_share_queue_num: Int32 = 0


class MessageRequestModes(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """By topic, then by group."""

    message_request_mode_map: dict[str, dict[str, SetMessageRequestModeBody]] = {}
