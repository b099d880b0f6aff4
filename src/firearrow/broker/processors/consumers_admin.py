"""What concerns live consumers: moving them, asking one about itself, sharing queues among them."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from firearrow.broker.assignment import share
from firearrow.broker.processors.common import (
    json_reply,
    known_group,
    known_topic,
    message_queue,
    queue_ids,
    raw_message,
)
from firearrow.hot import parse_offset_message_id
from firearrow.model.errors import (
    ConsumeMessageTimeout,
    ConsumerNotOnline,
    InvalidParameter,
    NoPermission,
    ServerFailed,
)
from firearrow.model.group import MessageModel, MessageRequestMode
from firearrow.model.topic import MessageQueue, Perm, is_retry_topic
from firearrow.net.connection import Connection
from firearrow.net.errors import NetworkError, RequestTimeout
from firearrow.wire import bodies, headers, java_json
from firearrow.wire.codes import LanguageCode, RequestCode
from firearrow.wire.command import Command, reply_to, request
from firearrow.wire.java_json import ObjectMap

if TYPE_CHECKING:
    from collections.abc import Iterable

    from firearrow.broker.clients import Member
    from firearrow.broker.state import BrokerState

log = logging.getLogger(__name__)

RELAY_TIMEOUT_MS: Final = 10_000
STATUS_TIMEOUT_MS: Final = 5_000

Offsets = ObjectMap[MessageQueue, int]


class ConsumerAdmin:
    def __init__(self, state: BrokerState) -> None:
        self._state = state
        # How groups get messages, by topic and group. Pulling is all we do, so it is not saved.

    # --- moving a group ---------------------------------------------------------------------

    def handle_reset(self, command: Command, connection: Connection) -> Command:
        """Have a group go on elsewhere: by the next pull, or in the old way by telling members."""
        asked = headers.ResetOffsetRequest.from_ext(command.ext)
        known_topic(self._state, asked.topic)
        if self._state.config.use_server_side_reset_offset:
            known_group(self._state, asked.group)
            table = self._reset(asked)
        else:
            table = self._push_reset(asked)
        log.info("%s reset group %s on topic %s", connection.peer, asked.group, asked.topic)
        return json_reply(command, bodies.ResetOffsetBody(offset_table=table))

    def _reset(self, asked: headers.ResetOffsetRequest) -> Offsets:
        state = self._state
        topic = known_topic(state, asked.topic)
        chosen: Iterable[int] = queue_ids(topic)
        if asked.queue_id >= 0:
            if asked.queue_id not in queue_ids(topic):
                raise InvalidParameter(f"topic {asked.topic} has no queue {asked.queue_id}")
            chosen = (asked.queue_id,)
        table: Offsets = ObjectMap()
        for queue_id in chosen:
            offset = self._target(asked, queue_id)
            table[message_queue(state, asked.topic, queue_id)] = offset
        for queue, offset in table.items():
            state.offsets.reset(asked.topic, asked.group, queue.queue_id, offset)
            state.held.release(asked.topic, queue.queue_id)
        return table

    def _target(self, asked: headers.ResetOffsetRequest, queue_id: int) -> int:
        lookup = self._state.store.lookup
        if asked.queue_id >= 0 and asked.offset >= 0:
            least, most = (
                lookup.min_offset(asked.topic, queue_id),
                lookup.max_offset(asked.topic, queue_id),
            )
            if not least <= asked.offset <= most:
                raise ServerFailed(
                    f"offset {asked.offset} is not in queue {queue_id}: it has {least} to {most}"
                )
            return asked.offset
        if asked.timestamp < 0:
            return lookup.max_offset(asked.topic, queue_id)
        return lookup.offset_by_time(asked.topic, queue_id, asked.timestamp)

    def _push_reset(self, asked: headers.ResetOffsetRequest) -> Offsets:
        state = self._state
        table: Offsets = ObjectMap()
        for queue_id in queue_ids(known_topic(state, asked.topic)):
            consumed = state.offsets.committed(asked.topic, asked.group, queue_id)
            if consumed < 0:
                raise ServerFailed(
                    f"group {asked.group} has committed nothing in queue {queue_id} of topic "
                    f"{asked.topic} yet; let it consume first"
                )
            target = self._target(asked, queue_id)
            # Without force a group only ever goes back.
            offset = target if asked.is_force else min(target, consumed)
            table[message_queue(state, asked.topic, queue_id)] = offset
        group = state.clients.group(asked.group)
        if group is None:
            raise ConsumerNotOnline(
                f"no member of group {asked.group} is connected that could be told to move in "
                f"topic {asked.topic}"
            )
        header = headers.ResetOffsetRequest(
            group=asked.group,
            topic=asked.topic,
            timestamp=asked.timestamp,
            is_force=asked.is_force,
        )
        body = bodies.ResetOffsetBody(offset_table=table)
        for member in list(group.members.values()):
            text = bodies.encode_reset_offset(body, as_list=member.language == LanguageCode.CPP)
            _channel(member).invoke_oneway(
                request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, header, text, oneway=True)
            )
        return table

    # --- asking members ---------------------------------------------------------------------

    async def handle_status(self, command: Command, _: Connection) -> Command:
        """Where members say they are. Those that do not answer are left out."""
        asked = headers.GetConsumerStatusRequest.from_ext(command.ext)
        group = self._state.clients.group(asked.group)
        if group is None:
            raise ServerFailed(f"no member of group {asked.group} is connected")
        members = [
            member
            for member in group.members.values()
            if not asked.client_addr or member.client_id == asked.client_addr
        ]
        if not members:
            raise ConsumerNotOnline(
                f"client {asked.client_addr} of group {asked.group} is not connected"
            )
        header = headers.GetConsumerStatusRequest(topic=asked.topic, group=asked.group)
        answers = await asyncio.gather(*(self._status_of(member, header) for member in members))
        table = {
            member.client_id: offsets
            for member, offsets in zip(members, answers, strict=True)
            if offsets is not None
        }
        return json_reply(command, bodies.GetConsumerStatusBody(consumer_table=table))

    @staticmethod
    async def _status_of(
        member: Member, header: headers.GetConsumerStatusRequest
    ) -> Offsets | None:
        asking = request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, header)
        try:
            answer = await _channel(member).invoke(asking, STATUS_TIMEOUT_MS)
            if answer.code == 0:
                said = java_json.decode(answer.body, bodies.GetConsumerStatusBody)
                return said.message_queue_table
        except (NetworkError, java_json.JavaJsonError) as error:
            log.warning("client %s does not say where it is: %s", member.client_id, error)
        return None

    async def handle_running_info(self, command: Command, _: Connection) -> Command:
        asked = headers.GetConsumerRunningInfoRequest.from_ext(command.ext)
        member = self._member(asked.consumer_group, asked.client_id)
        asking = Command(RequestCode.GET_CONSUMER_RUNNING_INFO, dict(command.ext), command.body)
        return await self._relay(command, asked.consumer_group, member, asking)

    async def handle_consume_directly(self, command: Command, _: Connection) -> Command:
        """Give one message to one member, now, and tell what it made of it."""
        asked = headers.ConsumeMessageDirectlyRequest.from_ext(command.ext)
        state = self._state
        member = self._member(asked.consumer_group, asked.client_id)
        ext = {**command.ext, "brokerName": state.config.broker_name}
        group, topic = state.groups.get(asked.consumer_group), state.topics.get(asked.topic or "")
        if group is not None:
            ext["groupSysFlag"] = str(group.group_sys_flag)
        if topic is not None:
            ext["topicSysFlag"] = str(topic.topic_sys_flag)
        try:
            *_place, offset = parse_offset_message_id(asked.msg_id or "")
        except ValueError as error:
            raise ServerFailed(f"msgId: {error}") from None
        body = raw_message(state, offset)
        asking = Command(RequestCode.CONSUME_MESSAGE_DIRECTLY, ext, body)
        return await self._relay(command, asked.consumer_group, member, asking)

    def _member(self, group_name: str, client_id: str | None) -> Member:
        group = self._state.clients.group(group_name)
        for member in group.members.values() if group is not None else ():
            if member.client_id == client_id:
                return member
        raise ServerFailed(f"client {client_id} of group {group_name} is not connected")

    @staticmethod
    async def _relay(command: Command, group: str, member: Member, asking: Command) -> Command:
        """Pass a question on, and the answer back as it is."""
        try:
            answer = await _channel(member).invoke(asking, RELAY_TIMEOUT_MS)
        except RequestTimeout as error:
            raise ConsumeMessageTimeout(
                f"consumer <{group}> <{member.client_id}> Timeout: {error}"
            ) from error
        except NetworkError as error:
            raise ServerFailed(
                f"invoke consumer <{group}> <{member.client_id}> Exception: {error}"
            ) from error
        reply = reply_to(command, answer.code, body=answer.body, remark=answer.remark)
        reply.ext = dict(answer.ext)
        return reply

    # --- sharing queues ---------------------------------------------------------------------

    async def handle_assignment(self, command: Command, _: Connection) -> Command:
        """Which queues a member should read; no list if we cannot say, and it keeps its own."""
        said = java_json.decode(command.body, bodies.QueryAssignmentRequestBody)
        group = self._state.clients.group(said.consumer_group)
        queues = await self._queues_of(said.topic)
        if group is None or said.client_id not in group.client_ids or not queues:
            return json_reply(command, bodies.QueryAssignmentResponseBody())
        mine = queues
        if said.message_model is MessageModel.CLUSTERING:
            mine = share(said.strategy_name, queues, sorted(group.client_ids), said.client_id)
        assignments = tuple(bodies.MessageQueueAssignment(message_queue=queue) for queue in mine)
        body = bodies.QueryAssignmentResponseBody(message_queue_assignments=assignments)
        return json_reply(command, body)

    async def _queues_of(self, topic: str) -> list[MessageQueue]:
        """All queues of a topic that can be read, on all brokers; ours if nobody tells us more."""
        route = await self._state.registration.route(topic)
        if route is None:
            known = self._state.topics.get(topic)
            count = 0 if known is None else known.read_queue_nums
            return [message_queue(self._state, topic, queue_id) for queue_id in range(count)]
        return sorted(
            MessageQueue(topic=topic, broker_name=data.broker_name, queue_id=queue_id)
            for data in route.queue_datas
            if data.perm & Perm.READ
            for queue_id in range(data.read_queue_nums)
        )

    def handle_set_mode(self, command: Command, _: Connection) -> Command:
        said = java_json.decode(command.body, bodies.SetMessageRequestModeBody)
        if is_retry_topic(said.topic):
            raise NoPermission("retry topic is not allowed to set mode")
        known_topic(self._state, said.topic)
        known_group(self._state, said.consumer_group)
        if said.mode is not MessageRequestMode.PULL:
            raise ServerFailed(f"this broker does not do {said.mode.value}; PULL is possible")
        self._state.request_modes.put(said)
        return reply_to(command)

    def handle_modes(self, command: Command, _: Connection) -> Command:
        modes = self._state.request_modes.table
        return json_reply(command, bodies.MessageRequestModes(message_request_mode_map=modes))


def _channel(member: Member) -> Connection:
    assert isinstance(member.channel, Connection)
    return member.channel
