"""Messages that could not be consumed: they come again later, and end as dead letters."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from firearrow.broker.processors.common import refuse_on_slave
from firearrow.broker.processors.send import (
    DLQ_QUEUES,
    VERSION_3_4_9,
    park_if_delayed,
)
from firearrow.hot import StoreMessage, decode_properties, offset_message_id
from firearrow.model.errors import (
    NoPermission,
    ResponseCode,
    ServerFailed,
    SubscriptionGroupNotFound,
)
from firearrow.model.message import DELAY, properties_bytes
from firearrow.model.topic import Perm, dlq_topic, retry_topic
from firearrow.wire import headers
from firearrow.wire.codes import Flag
from firearrow.wire.command import Command, reply_to

if TYPE_CHECKING:
    from firearrow.broker.state import BrokerState
    from firearrow.hot import Record
    from firearrow.model.group import SubscriptionGroupConfig
    from firearrow.model.topic import TopicConfig
    from firearrow.net.connection import Connection

FIRST_RETRY_LEVEL: Final = 3  # 10 s
RETRY_TOPIC: Final = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"


class RetryProcessor:
    """Answers CONSUMER_SEND_MSG_BACK."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    def handle_send_back(self, command: Command, connection: Connection) -> Command | None:
        asked = headers.ConsumerSendMsgBackRequest.from_ext(command.ext)
        state = self._state
        group = state.groups.find(asked.group)
        if group is None:
            raise SubscriptionGroupNotFound(f"group {asked.group} does not exist; create it")
        refuse_on_slave(state)
        if not state.config.broker_permission & Perm.WRITE:
            raise NoPermission(f"broker {state.config.broker_name} does not take messages")
        if group.retry_queue_nums <= 0:
            return reply_to(command)  # the group wants no retries: dropped, as it asked for
        topic = state.topics.ensure(retry_topic(group.group_name), group.retry_queue_nums)
        if not topic.perm & Perm.WRITE:
            raise NoPermission(f"topic {topic.topic_name} does not take messages")
        record = state.store.lookup.record_at(asked.offset)
        if record is None:
            raise ServerFailed(f"there is no message at offset {asked.offset} of the log")
        limit = group.retry_max_times
        if command.version >= VERSION_3_4_9 and asked.max_reconsume_times is not None:
            limit = asked.max_reconsume_times
        end = state.store.put(self._again(record, asked, group, topic, limit))
        if not state.disk_waits.waits or command.flag & Flag.ONEWAY:
            return reply_to(command)
        connection.begin()

        def tell(code: int) -> None:
            remark = ResponseCode(code).name if code else None
            answer = ResponseCode.SYSTEM_ERROR if code else ResponseCode.SUCCESS
            connection.send_soon(reply_to(command, answer, remark=remark))
            connection.finish()

        state.disk_waits.answer_when_stored(end, tell)
        return None

    def _again(
        self,
        record: Record,
        asked: headers.ConsumerSendMsgBackRequest,
        group: SubscriptionGroupConfig,
        retry: TopicConfig,
        limit: int,
    ) -> StoreMessage:
        """The message as it will come again, or as a dead letter."""
        state = self._state
        properties = decode_properties(record.properties)
        properties.setdefault(RETRY_TOPIC, record.topic)
        properties.setdefault(
            ORIGIN_MESSAGE_ID,
            offset_message_id(record.store_ip, record.store_port, record.physical_offset),
        )
        # Not by what the request says: a client could fill the memory with names of its own.
        origin = properties[RETRY_TOPIC]
        key = f"{origin if state.topics.get(origin) else record.topic}@{group.group_name}"
        state.statistics.add("SNDBCK_PUT_NUMS", key)
        if record.reconsume_times >= limit or asked.delay_level < 0:
            topic = state.topics.ensure(dlq_topic(group.group_name), DLQ_QUEUES).topic_name
            queue_id = 0
            properties.pop(DELAY, None)
            state.statistics.add("DLQ_PUT_NUMS", key)
        else:
            topic = retry.topic_name
            # The group's setting may have grown since its topic was made.
            queues = min(group.retry_queue_nums, retry.read_queue_nums)
            queue_id = random.randrange(max(1, queues))
            level = asked.delay_level or FIRST_RETRY_LEVEL + record.reconsume_times
            properties[DELAY] = str(level)
        topic, queue_id = park_if_delayed(state, topic, queue_id, properties)
        return StoreMessage(
            topic,
            queue_id,
            record.body,
            properties_bytes(properties),
            flag=record.flag,
            sys_flag=record.sys_flag,
            born_timestamp=record.born_timestamp,
            born_host=record.born_ip + record.born_port.to_bytes(4, "big"),
            reconsume_times=record.reconsume_times + 1,
        )
