"""Clients come, stay and leave: heartbeats, group members, locks of queues."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from firearrow.broker.clients import ConsumerHeartbeat, Member
from firearrow.model.errors import ServerFailed
from firearrow.model.topic import retry_topic
from firearrow.wire import bodies, headers, java_json
from firearrow.wire.command import Command, reply_to

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from firearrow.broker.state import BrokerState
    from firearrow.model.group import SubscriptionData
    from firearrow.net.connection import Connection

log = logging.getLogger(__name__)


class MembershipProcessor:
    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._divergent: set[str] = set()  # groups that were complained about

    def handle_heartbeat(
        self, command: Command, connection: Connection
    ) -> Command | Awaitable[Command | None]:
        """Note who is here and what they want; groups that changed share their queues anew."""
        said = java_json.decode(command.body, bodies.HeartbeatData)
        long_ones = self._state.filters.long_ones(
            subscription
            for consumer in said.consumer_data_set
            for subscription in consumer.subscription_data_set
        )
        if long_ones:
            return self._heartbeat_later(command, connection, said, long_ones)
        return self._heartbeat(command, connection, said)

    async def _heartbeat_later(
        self,
        command: Command,
        connection: Connection,
        said: bodies.HeartbeatData,
        long_ones: list[SubscriptionData],
    ) -> Command | None:
        await self._state.filters.compile_aside(long_ones)
        if connection.closed.done():
            return None  # who is gone meanwhile must not be noted as here
        return self._heartbeat(command, connection, said)

    def _heartbeat(
        self, command: Command, connection: Connection, said: bodies.HeartbeatData
    ) -> Command:
        state = self._state
        now_ms = state.clock.elapsed_ms()

        def member() -> Member:
            return Member(connection, said.client_id, command.language, command.version, now_ms)

        for producer in said.producer_data_set:
            state.clients.producer_heartbeat(producer.group_name, member())
        for consumer in said.consumer_data_set:
            group = state.groups.find(consumer.group_name)
            if group is None:
                continue  # unknown, and not made on first use: its pulls will be told so
            state.topics.ensure(retry_topic(group.group_name), max(1, group.retry_queue_nums))
            changed = state.clients.consumer_heartbeat(
                ConsumerHeartbeat(
                    consumer.group_name,
                    consumer.consume_type,
                    consumer.message_model,
                    consumer.consume_from_where,
                    consumer.subscription_data_set,
                    without_subscriptions=said.without_sub,
                    fingerprint=said.heartbeat_fingerprint,
                ),
                member(),
            )
            if not said.without_sub:
                state.filters.register(consumer.group_name, consumer.subscription_data_set)
            if changed:
                state.notify_group(consumer.group_name)
            self._watch(consumer.group_name)
        # Full heartbeats every time: the two fields that would ask for less are left out.
        return reply_to(command, header=headers.HeartbeatReply())

    def _watch(self, name: str) -> None:
        """Say it once when members of a group disagree on what they subscribe to."""
        group = self._state.clients.group(name)
        divergences = group.divergences() if group is not None else {}
        if not divergences:
            self._divergent.discard(name)
        elif name not in self._divergent:
            self._divergent.add(name)
            self._state.statistics.add("SUBSCRIPTION_DIVERGENCES", name)
            topic, wishes = next(iter(divergences.items()))
            log.warning(
                "members of group %s subscribe to different things, so messages will be lost to "
                "the group: topic %s is wanted as %s",
                name,
                topic,
                ", ".join(f"{wish!r} by {client}" for client, wish in sorted(wishes.items())),
            )

    def handle_unregister(self, command: Command, connection: Connection) -> Command:
        asked = headers.UnregisterClientRequest.from_ext(command.ext)
        for name in self._state.clients.leave(
            connection, producer_group=asked.producer_group, consumer_group=asked.consumer_group
        ):
            if self._state.clients.group(name) is None:
                self._state.filters.unregister(name)
            self._state.notify_group(name)
        return reply_to(command)

    def handle_check_client(self, command: Command, _: Connection) -> Command | Awaitable[Command]:
        """A consumer asks whether the broker can filter as it wishes."""
        said = java_json.decode(command.body, bodies.CheckClientRequestBody)
        long_ones = self._state.filters.long_ones([said.subscription_data])
        if long_ones:
            return self._check_later(command, said.subscription_data)
        self._state.filtering.check(said.subscription_data)
        return reply_to(command)

    async def _check_later(self, command: Command, subscription: SubscriptionData) -> Command:
        await self._state.filters.compile_aside([subscription])
        self._state.filtering.check(subscription)
        return reply_to(command)

    def handle_consumer_list(self, command: Command, _: Connection) -> Command:
        asked = headers.GetConsumerListByGroupRequest.from_ext(command.ext)
        group = self._state.clients.group(asked.consumer_group)
        if group is None or not group.members:
            raise ServerFailed(f"no member of group {asked.consumer_group} is connected")
        body = bodies.ConsumerList(consumer_id_list=group.client_ids)
        return reply_to(command, body=java_json.encode(body))

    # --- locks ------------------------------------------------------------------------------

    def handle_lock(self, command: Command, _: Connection) -> Command:
        said = java_json.decode(command.body, bodies.LockBatchRequestBody)
        taken = self._state.locks.lock(said.consumer_group, said.client_id, said.mq_set)
        return reply_to(
            command, body=java_json.encode(bodies.LockBatchResponseBody(lock_ok_mq_set=taken))
        )

    def handle_unlock(self, command: Command, _: Connection) -> Command:
        said = java_json.decode(command.body, bodies.LockBatchRequestBody)
        self._state.locks.unlock(said.consumer_group, said.client_id, said.mq_set)
        return reply_to(command)
