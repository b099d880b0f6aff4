"""Sending: checks in RocketMQ's order, then the store, then an answer when it is safe."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from firearrow.broker.express import ExpressLane, born_host_of
from firearrow.broker.priority import queue_by_priority
from firearrow.broker.processors.common import refuse_on_slave
from firearrow.broker.producer_sequences import PRODUCER, Stored
from firearrow.broker.timer_admission import park_in_timer
from firearrow.hot import (
    StoreMessage,
    count_parts,
    decode_properties,
    encode_unique_key,
    offset_message_id,
)
from firearrow.model.errors import (
    BrokerError,
    InvalidParameter,
    MessageIllegal,
    NoPermission,
    ServerFailed,
    SubscriptionGroupNotFound,
    TopicNotFound,
)
from firearrow.model.message import (
    DELAY,
    FLAG_TRANSACTION,
    PARTS,
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TIMER_DEL_UNIQKEY,
    TIMER_OUT_MS,
    TRAN_MSG,
    TRANSACTION_ID,
    UNIQ_KEY,
    WAIT,
    properties_bytes,
)
from firearrow.model.timer import TIMER_PROPERTIES, RecallHandle, is_timed
from firearrow.model.topic import (
    AUTO_CREATE_TOPIC,
    HALF_TOPIC,
    NO_SEND_TOPICS,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TOPIC_CHARS_MAX,
    Perm,
    TopicConfig,
    check_topic_name,
    dlq_topic,
    is_retry_topic,
)
from firearrow.wire import headers
from firearrow.wire.codes import Flag, RequestCode
from firearrow.wire.command import Command, reply_to

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from firearrow.broker.producer_sequences import SequenceKey
    from firearrow.broker.state import BrokerState
    from firearrow.net.connection import Connection

DUPLICATE: Final = "FA_DUPLICATE"  # in an answer: the message was there already
VERSION_3_4_9: Final = 121  # from here on a client's own retry limit counts
DLQ_QUEUES: Final = 1

# One message of a batch; the broker works out the CRC itself:
#
#   | size 4 | magic 4 | crc 4 | flag 4 | body length 4, body | properties length 2, properties |
_BATCH_HEAD: Final = struct.Struct(">iiiii")
_PROPERTIES_LENGTH: Final = struct.Struct(">h")
_BATCH_BYTES_MIN: Final = _BATCH_HEAD.size + _PROPERTIES_LENGTH.size
_V1_CODES: Final = frozenset({RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE})


@dataclass(slots=True)
class Sent:
    """One send request, taken apart."""

    command: Command
    connection: Connection
    asked: headers.SendMessageRequest
    queue_id: int
    properties: dict[str, str]
    is_first: bool  # it made its topic
    in_timer: bool = False  # it waits there, and can be taken back

    def message(
        self, topic: str, queue_id: int, body: bytes, properties: bytes, flag: int
    ) -> StoreMessage:
        return StoreMessage(
            topic,
            queue_id,
            body,
            properties,
            flag=flag,
            sys_flag=self.asked.sys_flag & ~FLAG_TRANSACTION,
            born_timestamp=self.asked.born_timestamp,
            born_host=born_host_of(self.connection),
            reconsume_times=self.asked.reconsume_times,
        )


class SendProcessor:
    """Answers SEND_MESSAGE in its three forms."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        config = state.config
        self.reply_extra = {
            "MSG_REGION": config.region_id,
            "TRACE_ON": "true" if config.trace_on else "false",
        }
        # What every message gets, for tools, traces and replies to requests.
        self._added = {**self.reply_extra, "CLUSTER": config.broker_cluster_name}
        self._counter = 0
        self.express = ExpressLane(
            state.store,
            state.statistics,
            state.disk_waits,
            added=self._added,
            reply=self.reply_extra,
        )

    def handle_send(
        self, command: Command, connection: Connection
    ) -> Command | Awaitable[Command | None] | None:
        """Store what a producer sent; the answer may come later, when it is on disk."""
        try:
            return self._send(command, connection)
        except BrokerError as error:
            return self.refused(command, error)

    def handle_stage(
        self, command: Command, connection: Connection
    ) -> Command | Awaitable[Command | None] | None:
        """Store a batch as one half message, which becomes many when it is committed."""
        try:
            sent, _ = self.accept(command, connection)
            sent.properties |= staged_properties(sent, self._added)
            message = self._single(sent)
            reply = self._store(sent, [message], None)
        except BrokerError as error:
            return self.refused(command, error)
        self._state.transactions.prepared(message, sent.properties)
        return reply

    def refused(self, command: Command, error: BrokerError) -> Command:
        self._state.statistics.put_failures += 1
        reply = reply_to(command, error.code, remark=str(error))
        reply.ext = dict(self.reply_extra)
        return reply

    def _send(
        self, command: Command, connection: Connection
    ) -> Command | Awaitable[Command | None] | None:
        sent, topic = self.accept(command, connection)
        key = None
        if PRODUCER in sent.properties:
            key = self._state.sequences.key_of(
                sent.asked.topic, sent.properties, sent.asked.reconsume_times
            )
            if key is not None and (known := self._state.sequences.find(key)) is not None:
                return self._stored_before(sent, known)
        messages = self._batch(sent) if sent.asked.batch else [self._single(sent)]
        reply = self._store(sent, messages, key)
        if messages[0].topic == HALF_TOPIC:
            self._state.transactions.prepared(messages[0], sent.properties)
        self.express.open_gate(topic, messages[0])
        return reply

    def accept(self, command: Command, connection: Connection) -> tuple[Sent, TopicConfig]:
        """Check where a message goes, before anybody looks at what it is."""
        asked = parse_send(command)
        refuse_on_slave(self._state)
        self._state.disk_waits.refuse_if_needed()
        known = self._state.topics.get(asked.topic)
        topic = self._topic_for(asked, connection, known)
        queue_id = asked.queue_id
        if queue_id >= max(topic.read_queue_nums, topic.write_queue_nums):
            raise InvalidParameter(
                f"queue {queue_id} of topic {asked.topic} does not exist: it has "
                f"{topic.write_queue_nums} write queues and {topic.read_queue_nums} read queues"
            )
        if queue_id < 0:
            queue_id = random.randrange(max(1, topic.write_queue_nums))
        properties = decode_properties(asked.properties or "")
        properties.pop("POP_CK", None)
        if not asked.batch:
            queue_id = queue_by_priority(properties, queue_id, topic.write_queue_nums)
        first = known is None
        return Sent(command, connection, asked, queue_id, properties, is_first=first), topic

    # --- the topic --------------------------------------------------------------------------

    def _topic_for(
        self,
        asked: headers.SendMessageRequest,
        connection: Connection,
        topic: TopicConfig | None,
    ) -> TopicConfig:
        state = self._state
        # Elsewhere the name servers say it: producers are told of no queue here.
        if not state.config.broker_permission & Perm.WRITE and topic is not None and topic.order:
            raise NoPermission(f"broker {state.config.broker_name} does not take messages")
        if topic is None and (reason := check_topic_name(asked.topic)) is not None:
            raise InvalidParameter(reason)
        if asked.topic in NO_SEND_TOPICS:
            raise NoPermission(f"sending to topic {asked.topic} is forbidden: it is the broker's")
        # The switch is for the usual example; another topic that lets others inherit always counts.
        if topic is None and (
            state.config.auto_create_topic_enable or asked.default_topic != AUTO_CREATE_TOPIC
        ):
            topic = state.topics.create_on_send(
                asked.topic, asked.default_topic, asked.default_topic_queue_nums
            )
        if topic is None and is_retry_topic(asked.topic):
            topic = state.topics.ensure(asked.topic, 1)
        if topic is None:
            raise TopicNotFound(
                f"topic {asked.topic} does not exist on broker {state.config.broker_name}: create "
                f"it, or set autoCreateTopicEnable (asked by {connection.peer})"
            )
        return topic

    # --- messages ---------------------------------------------------------------------------

    def _single(self, sent: Sent) -> StoreMessage:
        properties, topic, queue_id = sent.properties, sent.asked.topic, sent.queue_id
        if not sent.command.body:
            raise MessageIllegal("the message has no body")
        if not properties.get(UNIQ_KEY):
            properties[UNIQ_KEY] = self._unique_key()
        properties.update(self._added)
        if is_retry_topic(topic):
            topic, queue_id = self._retried(sent)
        if is_half(properties, sent.asked.reconsume_times):
            topic, queue_id = self._prepare(topic, queue_id, properties)
        else:
            topic, queue_id = park_if_delayed(self._state, topic, queue_id, properties)
            sent.in_timer = topic == TIMER_TOPIC
        stored = properties_bytes(properties)
        return sent.message(topic, queue_id, sent.command.body, stored, sent.asked.flag)

    def _prepare(self, topic: str, queue_id: int, properties: dict[str, str]) -> tuple[str, int]:
        """Where a half message waits for its end; its own place goes into its properties."""
        config = self._state.config
        if config.reject_transaction_message:
            raise NoPermission(
                f"broker {config.broker_name} does not take transactional messages "
                "(rejectTransactionMessage)"
            )
        if not properties.get(PRODUCER_GROUP):
            raise MessageIllegal("a transactional message without PGROUP: nobody could be asked")
        self._state.transactions.refuse_if_full()
        properties.pop(DELAY, None)  # as RocketMQ's own producers do
        properties[TRANSACTION_ID] = properties[UNIQ_KEY]
        properties[REAL_TOPIC] = topic
        properties[REAL_QUEUE_ID] = str(queue_id)
        return HALF_TOPIC, 0

    def _retried(self, sent: Sent) -> tuple[str, int]:
        """A consumer sent a message back as an ordinary one: retry it once more, or give it up."""
        asked = sent.asked
        group_name = asked.topic.removeprefix(RETRY_PREFIX)
        group = self._state.groups.find(group_name)
        if group is None:
            raise SubscriptionGroupNotFound(f"group {group_name} does not exist; create it")
        limit = group.retry_max_times
        if sent.command.version >= VERSION_3_4_9 and asked.max_reconsume_times is not None:
            limit = asked.max_reconsume_times
        if asked.reconsume_times > limit or self._state.locks.has_locks(group_name):
            sent.properties.pop(DELAY, None)
            return self._state.topics.ensure(dlq_topic(group_name), DLQ_QUEUES).topic_name, 0
        return asked.topic, sent.queue_id

    def _batch(self, sent: Sent) -> list[StoreMessage]:
        topic, body = sent.asked.topic, sent.command.body
        if len(topic) > TOPIC_CHARS_MAX:
            raise MessageIllegal(f"a batch to a topic of {len(topic)} characters; 127 at most")
        if is_retry_topic(topic):
            raise MessageIllegal("a batch cannot go to a retry topic")
        if len(body) > self._state.config.max_message_size:
            raise ServerFailed(
                f"batch of {len(body)} bytes; the limit is "
                f"{self._state.config.max_message_size} (maxMessageSize)"
            )
        if DELAY in sent.properties or TRAN_MSG in sent.properties or is_timed(sent.properties):
            raise MessageIllegal("a batch cannot be delayed or part of a transaction")
        # The last of two properties with one name counts. Each message keeps what is its own, above
        # all its id: 5.3.3 writes that of the request over it, so that no message of a batch can be
        # found by the id its producer was told.
        first, last = properties_bytes(sent.properties), properties_bytes(self._added)
        messages = [
            sent.message(topic, sent.queue_id, content, first + with_end(own) + last, flag)
            for flag, content, own in split_batch(body)
        ]
        if not messages:
            raise MessageIllegal("the batch is empty")
        return messages

    def _unique_key(self) -> str:
        """An id for a producer that gave none: place and moment, and a counter."""
        self._counter += 1
        host = self._state.store_host
        now_ms = self._state.clock.now_ms()
        return encode_unique_key(host[:-4], 0, 0x46415252, now_ms & 0x7FFFFFFF, self._counter)

    # --- storing and answering --------------------------------------------------------------

    def _stored_before(self, sent: Sent, known: Stored) -> Command | None:
        """A producer sends again what it had no answer to: the answer of the first time."""
        self._state.statistics.add("DUPLICATE_PUT_NUMS", sent.asked.topic)
        if sent.command.flag & Flag.ONEWAY:
            return None
        offsets = list(self._state.store.lookup.run_of(known.physical_offset, known.messages))
        reply = self._stored(sent, offsets or [known.physical_offset], known.queue_offset)
        reply.ext |= {"queueId": str(known.queue_id), DUPLICATE: "true"}
        return self._when_on_disk(sent, reply, known.end_offset)

    def _store(
        self, sent: Sent, messages: list[StoreMessage], key: SequenceKey | None
    ) -> Command | Awaitable[Command | None] | None:
        store = self._state.store
        end = store.put(messages[0]) if len(messages) == 1 else store.put_batch(messages)
        self.count(sent.asked.topic, messages)
        if messages[0].topic == TIMER_TOPIC and TIMER_DEL_UNIQKEY in sent.properties:
            unique_key = sent.properties[TIMER_DEL_UNIQKEY]
            self._state.timers.recalls.note(unique_key, messages[0].queue_offset)
        if key is not None:
            first = messages[0]
            stored = Stored(
                first.physical_offset, end, sent.queue_id, first.queue_offset, len(messages)
            )
            self._state.sequences.remember(key, stored)
        if sent.command.flag & Flag.ONEWAY:
            return None
        offsets = [message.physical_offset for message in messages]
        reply = self._stored(sent, offsets, messages[0].queue_offset)
        if sent.is_first:
            return self._after_registration(reply, end if self._waits(sent) else 0)
        return self._when_on_disk(sent, reply, end)

    def _waits(self, sent: Sent) -> bool:
        """Whether a producer hears of its message only when it is on disk."""
        return self._state.disk_waits.waits and sent.properties.get(WAIT, "").lower() != "false"

    def _when_on_disk(self, sent: Sent, reply: Command, end: int) -> Command | None:
        connection = sent.connection
        if not self._waits(sent):
            return reply
        connection.begin()

        def tell(code: int) -> None:
            reply.code = code
            connection.send_soon(reply)
            connection.finish()

        self._state.disk_waits.answer_when_stored(end, tell)
        return None

    async def _after_registration(self, reply: Command, end: int) -> Command:
        """Name servers hear of a topic before its first producer does, who asks them next."""
        await self._state.registration.registered()
        if end:
            reply.code = await self._state.disk_waits.stored(end)
        return reply

    def _stored(self, sent: Sent, offsets: list[int], queue_offset: int) -> Command:
        host = self._state.store_host
        ip, port = host[:-4], int.from_bytes(host[-4:], "big")
        reply = reply_to(sent.command)
        reply.ext = {
            **self.reply_extra,
            "msgId": ",".join(offset_message_id(ip, port, offset) for offset in offsets),
            "queueId": str(sent.queue_id),
            "queueOffset": str(queue_offset),
        }
        if sent.properties.get(UNIQ_KEY):
            reply.ext["transactionId"] = sent.properties[UNIQ_KEY]
        if sent.in_timer and not is_retry_topic(sent.asked.topic):
            reply.ext["recallHandle"] = self._recall_handle(sent.properties)
        return reply

    def _recall_handle(self, properties: dict[str, str]) -> str:
        """What takes a message in the timer back, until its slot begins."""
        return RecallHandle(
            properties[REAL_TOPIC],
            self._state.config.broker_name,
            int(properties[TIMER_OUT_MS]) + 1,
            properties[UNIQ_KEY],
        ).encode()

    def count(self, topic: str, messages: list[StoreMessage]) -> None:
        statistics = self._state.statistics
        statistics.puts.count += len(messages)
        size = sum(message.size for message in messages)
        statistics.put_bytes += size
        statistics.add("TOPIC_PUT_NUMS", topic, len(messages))
        statistics.add("TOPIC_PUT_SIZE", topic, size)


def staged_properties(sent: Sent, added: Mapping[str, str]) -> dict[str, str]:
    """What makes a half message of a batch; MessageIllegal if it could not be delivered later."""
    if is_retry_topic(sent.asked.topic):
        raise MessageIllegal("a batch cannot go to a retry topic")
    if DELAY in sent.properties or is_timed(sent.properties):
        raise MessageIllegal("a batch cannot be delayed")
    parts = count_parts(sent.command.body, len(properties_bytes(added)))
    if not parts:
        raise MessageIllegal(
            "this is no batch, or one of its messages has no body, or properties that are too "
            "long or have a zero byte or no separator at their end"
        )
    return {TRAN_MSG: "true", PARTS: str(parts)}


def parse_send(command: Command) -> headers.SendMessageRequest:
    """Both forms of the header: long names from Go, letters from Java and Node."""
    if command.code in _V1_CODES and "b" not in command.ext:
        return headers.SendMessageRequest.from_ext(command.ext)
    return headers.SendMessageRequestV2.from_ext(command.ext)


def park_if_delayed(
    state: BrokerState, topic: str, queue_id: int, properties: dict[str, str]
) -> tuple[str, int]:
    """Where a message with a delay level or a delivery time waits; a level wins.

    Its own place goes into its properties.
    """
    level = _number(properties.get(DELAY, ""))
    if level <= 0:
        if is_timed(properties):
            return park_in_timer(state, topic, queue_id, properties)
        return topic, queue_id
    level = min(level, len(state.delays.levels_ms))
    properties[DELAY] = str(level)
    properties[REAL_TOPIC] = topic
    properties[REAL_QUEUE_ID] = str(queue_id)
    for name in TIMER_PROPERTIES:
        properties.pop(name, None)
    return SCHEDULE_TOPIC, level - 1


def is_half(properties: Mapping[str, str], reconsume_times: int) -> bool:
    """Whether a message begins a transaction: one that was consumed and comes back does not."""
    if properties.get(TRAN_MSG, "").lower() != "true":
        return False
    return reconsume_times <= 0 or _number(properties.get(DELAY, "")) <= 0


def _number(text: str) -> int:
    """A small number that a client wrote; 0 if it is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def with_end(properties: bytes) -> bytes:
    """A property string that others can follow: older clients leave out the last separator."""
    return properties if not properties or properties.endswith(b"\x02") else properties + b"\x02"


def split_batch(body: bytes) -> list[tuple[int, bytes, bytes]]:
    """Flag, body and properties of each message of a batch."""
    found = []
    at = 0
    while at < len(body):
        if len(body) - at < _BATCH_BYTES_MIN:
            raise MessageIllegal(f"the batch ends in the middle of a message, at byte {at}")
        size, _, _, flag, body_bytes = _BATCH_HEAD.unpack_from(body, at)
        properties_at = at + _BATCH_HEAD.size + body_bytes
        if not _BATCH_BYTES_MIN <= size <= len(body) - at or not (
            0 <= body_bytes <= size - _BATCH_BYTES_MIN
        ):
            raise MessageIllegal(f"the batch is broken at byte {at}: message of {size} bytes")
        (size_of_properties,) = _PROPERTIES_LENGTH.unpack_from(body, properties_at)
        properties_at += _PROPERTIES_LENGTH.size
        if size_of_properties < 0 or properties_at + size_of_properties != at + size:
            raise MessageIllegal(f"the batch is broken at byte {at}: lengths do not add up")
        own = body[properties_at : properties_at + size_of_properties]
        found.append((flag, body[at + _BATCH_HEAD.size : properties_at - 2], own))
        at += size
    return found
