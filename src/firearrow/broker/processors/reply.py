"""Replies to requests: pushed to the client that asked, and kept in the reply topic.

Whoever asks sends an ordinary message with REPLY_TO_CLIENT, its client id, and CORRELATION_ID.
Whoever answers sends a message to ``<cluster>_REPLY_TOPIC`` with both, and the broker hands it on:

    requester --- request message ---> topic ---> responder
    requester <-- PUSH_REPLY_MESSAGE_TO_CLIENT --- broker <--- SEND_REPLY_MESSAGE --- responder
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from firearrow.base.telemetry import RateLimitedLog
from firearrow.hot import offset_message_id
from firearrow.model.errors import BrokerError, ServerFailed
from firearrow.model.message import UNIQ_KEY, properties_bytes
from firearrow.net.connection import Connection
from firearrow.net.errors import NetworkError
from firearrow.wire import headers
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import Command, reply_to, request

if TYPE_CHECKING:
    from firearrow.broker.processors.send import SendProcessor, Sent
    from firearrow.broker.state import BrokerState

log = logging.getLogger(__name__)

REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
PUSH_TIMEOUT_MS: Final = 10_000


class ReplyProcessor:
    """Answers SEND_REPLY_MESSAGE in both forms."""

    def __init__(self, state: BrokerState, send: SendProcessor) -> None:
        self._state = state
        self._send = send
        self._complaints = RateLimitedLog(log)

    async def handle_reply(self, command: Command, connection: Connection) -> Command:
        try:
            # It may be empty: so are all replies that the Go client makes. They are not kept.
            sent, _ = self._send.accept(command, connection)
        except BrokerError as error:
            return self._send.refused(command, error)
        sent.properties.update(self._send.reply_extra)
        reply = reply_to(command)
        reply.ext = {**self._send.reply_extra}
        problem = await self._push(sent)
        if problem:
            now_ms = self._state.clock.elapsed_ms()
            self._complaints.warning(now_ms, "a reply is not delivered: %s", problem)
            reply.code, reply.remark = int(ServerFailed.code), problem
        else:  # a client takes apart what it gets, stored or not
            reply.ext |= {"msgId": "0", "queueId": str(sent.queue_id), "queueOffset": "0"}
        if self._state.config.store_reply_message_enable and command.body:
            await self._store(sent, reply)
        return reply

    async def _push(self, sent: Sent) -> str:
        """Hand the reply to the client that waits for it; returns what went wrong."""
        state, asked = self._state, sent.asked
        client_id = sent.properties.get(REPLY_TO_CLIENT)
        if not client_id:
            return f"the reply does not say to whom ({REPLY_TO_CLIENT})"
        member = state.clients.producer(client_id)
        if member is None or not isinstance(member.channel, Connection):
            return f"client {client_id} is not connected as a producer"
        now_ms = state.clock.now_ms()
        properties = {**sent.properties, PUSH_REPLY_TIME: str(now_ms)}
        header = headers.PushReplyMessageRequest(
            producer_group=asked.producer_group,
            topic=asked.topic,
            default_topic=asked.default_topic,
            default_topic_queue_nums=asked.default_topic_queue_nums,
            queue_id=asked.queue_id,
            sys_flag=asked.sys_flag,
            born_timestamp=asked.born_timestamp,
            flag=asked.flag,
            properties=properties_bytes(properties).decode(),
            reconsume_times=asked.reconsume_times,
            unit_mode=asked.unit_mode,
            born_host=sent.connection.peer,
            store_host=state.registration.address,
            store_timestamp=now_ms,
        )
        push = request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, header, sent.command.body)
        try:
            answer = await member.channel.invoke(push, PUSH_TIMEOUT_MS)
        except NetworkError as error:
            return f"client {client_id} does not take the reply: {error}"
        if answer.code != 0:
            return f"client {client_id} does not take the reply: {answer.remark or answer.code}"
        return ""

    async def _store(self, sent: Sent, reply: Command) -> None:
        """Keep the reply, delivered or not. If that fails, the answer stays what it was."""
        state = self._state
        message = sent.message(
            sent.asked.topic,
            sent.queue_id,
            sent.command.body,
            properties_bytes(sent.properties),
            sent.asked.flag,
        )
        try:
            end = state.store.put(message)
            if state.disk_waits.waits:
                await state.disk_waits.stored(end)
        except BrokerError as error:
            log.warning("reply %s is not kept: %s", sent.properties.get(UNIQ_KEY), error)
            return
        self._send.count(sent.asked.topic, [message])
        host = state.store_host
        ip, port = host[:-4], int.from_bytes(host[-4:], "big")
        reply.ext |= {
            "msgId": offset_message_id(ip, port, message.physical_offset),
            "queueId": str(sent.queue_id),
            "queueOffset": str(message.queue_offset),
        }
