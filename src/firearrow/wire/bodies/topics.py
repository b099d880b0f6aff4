"""Topic lists and statistics, and what lies in a consume queue."""

import msgspec

from firearrow.model.group import SubscriptionData
from firearrow.model.topic import MessageQueue, TopicConfig
from firearrow.wire.header import Int32, Int64
from firearrow.wire.java_json import ObjectMap


class TopicConfigList(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    topic_config_list: tuple[TopicConfig, ...] = ()


class TopicOffset(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    min_offset: Int64 = 0
    max_offset: Int64 = 0
    last_update_timestamp: Int64 = 0  # of the last message; 0 in an empty queue


class TopicStatsTable(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    offset_table: ObjectMap[MessageQueue, TopicOffset] = msgspec.field(default_factory=ObjectMap)
    topic_put_tps: float | None = None  # absent from 4.x


class GroupList(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    group_list: tuple[str, ...] = ()


class ConsumeQueueData(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    physic_offset: Int64 = 0
    physic_size: Int32 = 0
    tags_code: Int64 = 0
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False  # whether the group's filter lets the message through
    msg: str | None = None


class QueryConsumeQueueBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None
    queue_data: tuple[ConsumeQueueData, ...] = ()
    max_queue_index: Int64 = 0
    min_queue_index: Int64 = 0
