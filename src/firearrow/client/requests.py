"""Request and reply over topics: a question carries who asks, and the reply finds its way back.

The broker pushes the reply to the client that asked, over the connection that its heartbeats use.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from firearrow.base.runtime import time_limit
from firearrow.client.errors import ClientClosed, ReplyImpossible, ReplyTimeout
from firearrow.client.message import Message, ReceivedMessage
from firearrow.hot import Record, decode_properties, encode_properties
from firearrow.model import message as names
from firearrow.model.message import split_host
from firearrow.model.topic import reply_topic
from firearrow.wire.command import Command, reply_to
from firearrow.wire.headers import PushReplyMessageRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from firearrow.client.session import Session
    from firearrow.net.connection import Connection

log = logging.getLogger(__name__)

REPLY_TYPE: Final = "reply"


def add_reply_properties(message: Message, client_id: str, timeout_ms: int) -> str:
    """Make a message a question; returns what its reply will be known by."""
    correlation_id = str(uuid.uuid4())
    message.properties[names.CORRELATION_ID] = correlation_id
    message.properties[names.REPLY_TO_CLIENT] = client_id
    message.properties[names.TTL] = str(timeout_ms)
    return correlation_id


def reply_message(question: ReceivedMessage, body: bytes | str) -> Message:
    """The answer to a question, ready to be sent."""
    properties = question.properties
    cluster = properties.get(names.CLUSTER)
    if not cluster or names.CORRELATION_ID not in properties:
        raise ReplyImpossible(
            f"message {question.msg_id} asks for no reply: it was not sent with request()"
        )
    reply = Message(reply_topic(cluster), body)
    reply.properties[names.MESSAGE_TYPE] = REPLY_TYPE
    for name in (names.CORRELATION_ID, names.REPLY_TO_CLIENT, names.TTL):
        if name in properties:
            reply.properties[name] = properties[name]
    return reply


class PendingReplies:
    """Questions that wait for their reply, by correlation id."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._waiting: dict[str, asyncio.Future[ReceivedMessage]] = {}

    @contextmanager
    def expect(self, correlation_id: str) -> Iterator[asyncio.Future[ReceivedMessage]]:
        """A future for the reply; whoever leaves the block does not want it any more."""
        reply: asyncio.Future[ReceivedMessage] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = reply
        try:
            yield reply
        finally:
            self._waiting.pop(correlation_id, None)
            reply.cancel()

    async def wait(
        self, reply: asyncio.Future[ReceivedMessage], timeout_ms: int
    ) -> ReceivedMessage:
        """The reply, or ReplyTimeout."""
        try:
            async with time_limit(self._session.clock, timeout_ms):
                return await reply
        except TimeoutError:
            raise ReplyTimeout("the request was sent, but no reply came in time") from None

    def close(self) -> None:
        for reply in self._waiting.values():
            if not reply.done():
                reply.set_exception(ClientClosed("the producer is closed"))

    def handle_push_reply(self, command: Command, _: Connection) -> Command:
        """A broker brings a reply."""
        header = PushReplyMessageRequest.from_ext(command.ext)
        properties = decode_properties(header.properties or "")
        properties[names.ARRIVE_TIME] = str(self._session.clock.now_ms())
        born_ip, born_port = split_host(header.born_host)
        store_ip, store_port = split_host(header.store_host)
        record = Record(
            header.topic,
            command.body,
            encode_properties(properties),
            queue_id=header.queue_id,
            flag=header.flag,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            born_ip=born_ip,
            born_port=born_port,
            store_timestamp=header.store_timestamp,
            store_ip=store_ip,
            store_port=store_port,
            reconsume_times=header.reconsume_times or 0,
        )
        reply = self._waiting.get(properties.get(names.CORRELATION_ID, ""))
        if reply is None or reply.done():
            log.warning("a reply came that nobody waits for: %s", properties)
        else:
            reply.set_result(ReceivedMessage(record, ""))
        return reply_to(command)
