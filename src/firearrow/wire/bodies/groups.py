"""Groups: their settings, who is connected, how far they are, and what one member is doing."""

from enum import StrEnum

import msgspec

from firearrow.model.group import (
    ConsumeFromWhere,
    ConsumeType,
    MessageModel,
    SubscriptionData,
    SubscriptionGroupConfig,
)
from firearrow.model.topic import DataVersion, MessageQueue
from firearrow.wire.header import Int32, Int64
from firearrow.wire.java_json import ObjectMap


class SubscriptionGroupWrapper(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    data_version: DataVersion = DataVersion()
    subscription_group_table: dict[str, SubscriptionGroupConfig] = {}
    # By group, then by topic; bit 2 forbids reading. Absent from 4.x.
    forbidden_table: dict[str, dict[str, Int32]] | None = None


class SubscriptionGroupList(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    group_config_list: tuple[SubscriptionGroupConfig, ...] = ()


class GroupForbiddenBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    group: str
    topic: str
    readable: bool | None = None


class Connection(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    client_id: str
    client_addr: str
    language: str | None = None  # a name of `LanguageCode`
    version: Int32 = 0


class ConsumerConnection(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    connection_set: tuple[Connection, ...] = ()
    subscription_table: dict[str, SubscriptionData] = {}
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None
    # Ours, and absent while members agree: by topic and client, what each wants of it.
    divergent_subscriptions: dict[str, dict[str, str]] | None = None


class ProducerConnection(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    connection_set: tuple[Connection, ...] = ()


class ProducerInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    client_id: str
    remote_ip: str = msgspec.field(name="remoteIP")  # as Java prints it, with a slash in front
    language: str | None = None
    version: Int32 = 0
    last_update_timestamp: Int64 = 0


class ProducerTableInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    data: dict[str, tuple[ProducerInfo, ...]] = {}


class QuerySubscriptionBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    group: str
    topic: str | None = None
    subscription_data: SubscriptionData | None = None


class OffsetWrapper(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    broker_offset: Int64 = 0
    consumer_offset: Int64 = 0
    pull_offset: Int64 | None = None  # absent from 4.x
    last_timestamp: Int64 = 0


class ConsumeStats(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """With an empty table `mqadmin` takes the group for offline."""

    offset_table: ObjectMap[MessageQueue, OffsetWrapper] = msgspec.field(default_factory=ObjectMap)
    consume_tps: float = 0.0


class ConsumeStatsList(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    consume_stats_list: tuple[dict[str, tuple[ConsumeStats, ...]], ...] = ()
    broker_addr: str | None = None
    total_diff: Int64 = 0
    total_inflight_diff: Int64 | None = None  # absent from 4.x


class GroupProgress(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Ours, by group: `ConsumeStats` without objects as keys, which are slow to read.

    A queue is its topic, its number, its end, what is committed, what is pulled, and when the last
    consumed message was stored.
    """

    consume_tps: float = 0.0
    queues: tuple[tuple[str, Int32, Int64, Int64, Int64, Int64], ...] = ()


class ProcessQueueInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    commit_offset: Int64 = 0
    cached_msg_min_offset: Int64 = 0
    cached_msg_max_offset: Int64 = 0
    cached_msg_count: Int32 = 0
    cached_msg_size_in_mib: Int32 = msgspec.field(name="cachedMsgSizeInMiB", default=0)
    transaction_msg_min_offset: Int64 = 0
    transaction_msg_max_offset: Int64 = 0
    transaction_msg_count: Int32 = 0
    locked: bool = False
    try_unlock_times: Int64 = 0
    last_lock_timestamp: Int64 = 0
    droped: bool = False  # misspelt on the wire too
    last_pull_timestamp: Int64 = 0
    last_consume_timestamp: Int64 = 0


class PopProcessQueueInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    wait_ack_count: Int32 = 0
    droped: bool = False
    last_pop_timestamp: Int64 = 0


class ConsumeStatus(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename={
        "pull_rt": "pullRT",
        "pull_tps": "pullTPS",
        "consume_rt": "consumeRT",
        "consume_ok_tps": "consumeOKTPS",
        "consume_failed_tps": "consumeFailedTPS",
        "consume_failed_msgs": "consumeFailedMsgs",
    },
):
    """Times are in milliseconds, rates per second."""

    pull_rt: float = 0.0
    pull_tps: float = 0.0
    consume_rt: float = 0.0
    consume_ok_tps: float = 0.0
    consume_failed_tps: float = 0.0
    consume_failed_msgs: Int64 = 0


class ConsumerRunningInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A member's answer about itself; the broker relays the bytes without looking."""

    properties: dict[str, str] = {}
    subscription_set: tuple[SubscriptionData, ...] = ()
    mq_table: ObjectMap[MessageQueue, ProcessQueueInfo] = msgspec.field(default_factory=ObjectMap)
    mq_pop_table: ObjectMap[MessageQueue, PopProcessQueueInfo] | None = None  # absent from 4.x
    status_table: dict[str, ConsumeStatus] = {}
    user_consumer_info: dict[str, str] | None = None  # absent from 4.x
    jstack: str | None = None


class ConsumeResult(StrEnum):
    """Readers also take the ordinal: keep the order."""

    CR_SUCCESS = "CR_SUCCESS"
    CR_LATER = "CR_LATER"
    CR_ROLLBACK = "CR_ROLLBACK"
    CR_COMMIT = "CR_COMMIT"
    CR_THROW_EXCEPTION = "CR_THROW_EXCEPTION"
    CR_RETURN_NULL = "CR_RETURN_NULL"


class ConsumeMessageDirectlyResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    order: bool = False
    auto_commit: bool = True
    consume_result: ConsumeResult | None = None
    remark: str | None = None
    spent_time_mills: Int64 = 0
