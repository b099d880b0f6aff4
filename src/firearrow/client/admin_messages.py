"""Messages, as Admin finds them: by id, by key, by place; their traces; dead letters."""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from firearrow.client.admin_cluster import any_of, together
from firearrow.client.admin_results import MessageTrace, assemble_trace
from firearrow.client.errors import InvalidRequest
from firearrow.client.message import Message, ReceivedMessage
from firearrow.client.pulling import messages_from
from firearrow.client.routes import subscribe_queues
from firearrow.client.trace_format import Pub, SubBefore, decode_trace
from firearrow.hot import decode_record, decode_records, parse_offset_message_id
from firearrow.model import message as names
from firearrow.model.errors import NoPermission, QueryNotFound, ResponseCode, ServerFailed
from firearrow.model.inner_batch import inner_records
from firearrow.model.topic import dlq_topic, group_of_retry_topic, is_dlq_topic, retry_topic
from firearrow.net.errors import NetworkError
from firearrow.wire.codes import RequestCode
from firearrow.wire.headers import (
    PullFlag,
    PullMessageRequest,
    QueryMessageRequest,
    ViewMessageRequest,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from firearrow.client.admin_cluster import Cluster
    from firearrow.client.trace_format import TraceRecord
    from firearrow.model.topic import BrokerData, MessageQueue

TOOLS_GROUP: Final = "TOOLS_CONSUMER"  # a group that every broker has
LONG_MAX: Final = (1 << 63) - 1
PAGE: Final = 32  # messages of one pull
UNIQUE_KEYS_MAX: Final = 32
TRACES_MAX: Final = 64  # what a broker gives at most for one key
QUERY_TIMEOUTS: Final = 3  # a search may read from disk: three times the usual patience
# What a resent message must not bring along: it belongs to the delivery that failed.
_OF_THE_FAILED_DELIVERY: Final = (
    names.DELAY,
    names.REAL_TOPIC,
    names.REAL_QUEUE_ID,
    names.RECONSUME_TIME,
    names.MAX_RECONSUME_TIMES,
    names.TRAN_MSG,
)


def place_of(msg_id: str) -> tuple[str, int] | None:
    """Address and log offset that a broker's id stands for; None for a producer's id.

    Both ids have the same length. Where a broker's id has four bytes of port, a producer's has
    its process number and a random one: taken for a port, they are far too large.

        | IP 4 or 16 | port 4                  | offset in the log 8 |
        | IP 4 or 16 | process 2 | constant 4  | milliseconds 4 | counter 2 |
    """
    try:
        ip, port, offset = parse_offset_message_id(msg_id)
    except ValueError:
        return None
    if not 0 < port < 65_536:
        return None
    family = socket.AF_INET if len(ip) == 4 else socket.AF_INET6
    host = socket.inet_ntop(family, ip)
    return (f"{host}:{port}" if len(ip) == 4 else f"[{host}]:{port}"), offset


def resend_copy(message: ReceivedMessage, topic: str | None) -> Message:
    """A dead letter as it is sent again: to its group alone, or to a topic."""
    if not is_dlq_topic(message.queue.topic):
        raise InvalidRequest(
            f"message {message.msg_id} is in topic {message.queue.topic}, which is not a "
            "dead-letter queue"
        )
    group = group_of_retry_topic(message.queue.topic)
    assert group is not None
    copy = Message(topic or retry_topic(group), message.body, flag=message.flag)
    copy.properties = dict(message.properties)
    for name in _OF_THE_FAILED_DELIVERY:
        copy.properties.pop(name, None)
    if topic is not None:
        copy.properties.pop(names.RETRY_TOPIC, None)
    return copy


def _from(message: ReceivedMessage, records: Iterable[TraceRecord]) -> list[TraceRecord]:
    """Trace records with the host that sent them: clients of 5.x leave it to the message."""
    host = message.born_host.rpartition(":")[0]
    return [
        replace(one, client_host=host)
        if isinstance(one, Pub | SubBefore) and one.client_host is None
        else one
        for one in records
    ]


class Messages:
    """Messages; topics and groups by their names on the wire."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def _shown(self, message: ReceivedMessage) -> ReceivedMessage:
        message.topic = self._cluster.session.unwrap(message.topic)
        return message

    # --- by id ------------------------------------------------------------------------------

    async def by_id(self, msg_id: str, topic: str | None) -> ReceivedMessage:
        place = place_of(msg_id)
        if place is not None:
            return await self._by_place(msg_id, *place)
        if topic is None:
            raise InvalidRequest(
                f"{msg_id} is not a broker's id; to find a message by its producer's id the topic "
                "is needed"
            )
        found = await self._query(topic, msg_id, 0, LONG_MAX, UNIQUE_KEYS_MAX, unique=True)
        for message in found:
            if message.properties.get(names.UNIQ_KEY) == msg_id:
                return message
        raise QueryNotFound(f"topic {topic} has no message {msg_id}; it may have expired")

    async def _by_place(self, msg_id: str, address: str, offset: int) -> ReceivedMessage:
        broker = await self._broker_at(address)
        try:
            answer = await self._cluster.session.call(
                address, RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequest(offset=offset)
            )
        except (ServerFailed, NetworkError) as error:
            raise QueryNotFound(f"broker {address} has no message {msg_id}: {error}") from error
        return self._shown(ReceivedMessage(decode_record(answer.body), broker))

    async def _broker_at(self, address: str) -> str:
        """The name of the broker with an address; empty for one that is not registered."""
        for broker in (await self._cluster.info()).broker_addr_table.values():
            if address in broker.broker_addrs.values():
                return broker.broker_name
        return ""

    # --- by key -----------------------------------------------------------------------------

    async def by_key(
        self, topic: str, key: str, begin_ms: int, end_ms: int | None, limit: int
    ) -> list[ReceivedMessage]:
        if not key.strip() or limit < 1:
            raise InvalidRequest(f"key {key!r}, limit {limit}: a key and at least 1 are needed")
        end_ms = LONG_MAX if end_ms is None else end_ms
        found = await self._query(topic, key, begin_ms, end_ms, limit)
        return [message for message in found if key in message.keys or message.msg_id == key][
            :limit
        ]

    async def _query(
        self,
        topic: str,
        key: str,
        begin_ms: int,
        end_ms: int,
        limit: int,
        *,
        unique: bool = False,
    ) -> list[ReceivedMessage]:
        """What the brokers of a topic find, oldest first; the index is by hash, so look twice."""
        header = QueryMessageRequest(
            topic=topic,
            key=key,
            max_num=limit,
            begin_timestamp=begin_ms,
            end_timestamp=end_ms,
            unique_key_query=unique,
        )
        route = await self._cluster.route(topic)
        lists = await together(self._query_at(one, header) for one in route.broker_datas)
        messages = [one for found in lists for one in found if one.queue.topic == topic]
        return sorted(map(self._shown, messages), key=lambda one: one.store_timestamp)

    async def _query_at(
        self, broker: BrokerData, header: QueryMessageRequest
    ) -> list[ReceivedMessage]:
        session = self._cluster.session
        try:
            answer = await session.call(
                any_of(broker),
                RequestCode.QUERY_MESSAGE,
                header,
                timeout_ms=QUERY_TIMEOUTS * session.options.call_timeout_ms,
            )
        except QueryNotFound:
            return []
        return [
            ReceivedMessage(one, broker.broker_name)
            for record in decode_records(answer.body)
            for one in inner_records(record)
        ]

    async def trace(
        self, msg_id: str, topic: str, begin_ms: int, end_ms: int | None
    ) -> MessageTrace:
        end_ms = LONG_MAX if end_ms is None else end_ms
        found = await self._query(topic, msg_id, begin_ms, end_ms, TRACES_MAX)
        records = [
            record
            for message in found
            for record in _from(message, decode_trace(message.body.decode("utf-8", "replace")))
        ]
        trace = assemble_trace(msg_id, records)
        if trace == MessageTrace(msg_id=msg_id):
            raise QueryNotFound(
                f"topic {topic} has no trace of message {msg_id}: was it sent with trace=True?"
            )
        return trace

    # --- by place ---------------------------------------------------------------------------

    async def at(self, queue: MessageQueue, offset: int) -> ReceivedMessage:
        messages, _, ends = await self._pull(queue, offset, 1)
        if messages and messages[0].queue_offset == offset:
            return messages[0]
        raise QueryNotFound(
            f"queue {queue.queue_id} of topic {queue.topic} on broker {queue.broker_name} has no "
            f"message at offset {offset}; it has {ends[0]} to {ends[1] - 1}"
            if ends[1] > ends[0]
            else f"queue {queue.queue_id} of topic {queue.topic} on broker {queue.broker_name} "
            "is empty"
        )

    async def _pull(
        self, queue: MessageQueue, offset: int, count: int
    ) -> tuple[list[ReceivedMessage], int | None, tuple[int, int]]:
        """Messages from an offset on, where to go on (None: the end), and the queue's ends."""
        header = PullMessageRequest(
            consumer_group=TOOLS_GROUP,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=count,
            sys_flag=int(PullFlag.SUBSCRIPTION),
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription="*",
            sub_version=0,
        )
        address = await self._cluster.master(queue.broker_name)
        timeout_ms = QUERY_TIMEOUTS * self._cluster.session.options.call_timeout_ms
        code, reply, body = await self._cluster.calls.pull(address, header, timeout_ms)
        ends = reply.min_offset, reply.max_offset
        if code == ResponseCode.SUCCESS:
            found = messages_from(
                body, queue.broker_name, offset, None, delta=reply.offset_delta or 0
            )
            return [self._shown(one) for one in found], reply.next_begin_offset, ends
        following = None if code == ResponseCode.PULL_NOT_FOUND else reply.next_begin_offset
        return [], following, ends

    async def browse(
        self, queues: Sequence[MessageQueue], limit: int | None
    ) -> AsyncIterator[ReceivedMessage]:
        """What is in some queues at this moment, queue by queue, oldest first."""
        given = 0
        for queue in queues:
            await self._cluster.master(queue.broker_name)
            offset: int | None = await self._cluster.calls.min_offset(queue)
            end = await self._cluster.calls.max_offset(queue)
            while offset is not None and offset < end and given != limit:
                messages, following, _ = await self._pull(queue, offset, PAGE)
                for message in messages:
                    if message.queue_offset < end and given != limit:
                        given += 1
                        yield message
                offset = following if following is not None and following > offset else None

    async def between(
        self, queue: MessageQueue, begin: int, end: int | None
    ) -> AsyncIterator[ReceivedMessage]:
        """What a queue has from one offset up to another, or to where it ends now."""
        least, most = (
            await self._cluster.calls.min_offset(queue),
            await self._cluster.calls.max_offset(queue),
        )
        stop = most if end is None else min(end, most)
        offset: int | None = max(begin, least)
        while offset is not None and offset < stop:
            messages, following, _ = await self._pull(queue, offset, min(PAGE, stop - offset))
            for message in messages:
                if message.queue_offset < stop:
                    yield message
            offset = following if following is not None and following > offset else None

    # --- dead letters -----------------------------------------------------------------------

    async def dead_letters(self, group: str, limit: int | None) -> AsyncIterator[ReceivedMessage]:
        if limit is not None and limit < 0:
            raise InvalidRequest(f"limit {limit}: how many messages at most, or None for all")
        topic = dlq_topic(group)
        route = await self._cluster.find_route(topic)
        if route is None:
            return  # the first dead letter makes the topic
        queues = sorted(subscribe_queues(topic, route))
        if not queues:  # so brokers of RocketMQ 4.x make it
            raise NoPermission(
                f"topic {topic} may not be read; allow it with update_topic({topic!r}, perm=6)"
            )
        async for message in self.browse(queues, limit):
            yield message
