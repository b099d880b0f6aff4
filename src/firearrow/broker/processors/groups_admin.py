"""Groups, as administrators see them: settings, and who is connected."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from firearrow.broker.processors.common import connection_list, json_reply, language_name
from firearrow.model.errors import (
    ConsumerNotOnline,
    InvalidParameter,
    ServerFailed,
    SubscriptionGroupNotFound,
)
from firearrow.model.group import SubscriptionGroupConfig, check_group_name
from firearrow.model.topic import retry_topic
from firearrow.wire import bodies, headers, java_json
from firearrow.wire.command import Command, reply_to

if TYPE_CHECKING:
    from collections.abc import Iterable

    from firearrow.broker.clients import ConsumerGroup
    from firearrow.broker.state import BrokerState
    from firearrow.net.connection import Connection

log = logging.getLogger(__name__)


class GroupAdmin:
    def __init__(self, state: BrokerState) -> None:
        self._state = state

    # --- settings ---------------------------------------------------------------------------

    def handle_put(self, command: Command, connection: Connection) -> Command:
        self._put([java_json.decode(command.body, SubscriptionGroupConfig)], connection)
        return reply_to(command)

    def handle_put_list(self, command: Command, connection: Connection) -> Command:
        """All of them, or none if one is wrong."""
        said = java_json.decode(command.body, bodies.SubscriptionGroupList)
        if not said.group_config_list:
            raise InvalidParameter("the list of groups is empty")
        self._put(said.group_config_list, connection)
        return reply_to(command)

    def _put(self, groups: Iterable[SubscriptionGroupConfig], connection: Connection) -> None:
        for group in groups:
            if (reason := check_group_name(group.group_name)) is not None:
                raise InvalidParameter(reason)
        for group in groups:
            self._state.groups.put(group)
            # Tools look for a group by the route of its retry topic, also before it consumes.
            self._state.topics.ensure(retry_topic(group.group_name), max(1, group.retry_queue_nums))
            log.info("%s set %s", connection.peer, group)

    def handle_delete(self, command: Command, connection: Connection) -> Command:
        asked = headers.DeleteSubscriptionGroupRequest.from_ext(command.ext)
        if self._state.groups.delete(asked.group_name):
            log.info("%s deleted group %s", connection.peer, asked.group_name)
        if asked.clean_offset:
            self._state.offsets.remove_group(asked.group_name)
            self._state.statistics.forget(asked.group_name)
        return reply_to(command)

    def handle_get(self, command: Command, _: Connection) -> Command:
        """The settings of a group; one that may come into being by use does so by this, too."""
        asked = headers.GetSubscriptionGroupConfigRequest.from_ext(command.ext)
        group = self._state.groups.find(asked.group)
        if group is None:
            raise SubscriptionGroupNotFound(f"group {asked.group} does not exist here; create it")
        return json_reply(command, group)

    def handle_all(self, command: Command, _: Connection) -> Command:
        asked = headers.GetAllSubscriptionGroupRequest.from_ext(command.ext)
        groups = self._state.groups
        total = None if asked.group_seq is None else len(groups.all())
        return json_reply(
            command,
            bodies.SubscriptionGroupWrapper(
                data_version=groups.version,
                subscription_group_table=dict(groups.all()),
                forbidden_table=groups.forbidden,
            ),
            headers.GetAllSubscriptionGroupReply(total_group_num=total),
        )

    def handle_forbidden(self, command: Command, connection: Connection) -> Command:
        """Whether a group may read a topic; changed first, if the request says how."""
        asked = headers.UpdateGroupForbiddenRequest.from_ext(command.ext)
        groups = self._state.groups
        if asked.readable is not None:
            groups.forbid_reading(asked.group, asked.topic, forbidden=not asked.readable)
            log.info(
                "%s: group %s %s read topic %s",
                connection.peer,
                asked.group,
                "may" if asked.readable else "must not",
                asked.topic,
            )
        return json_reply(
            command,
            bodies.GroupForbiddenBody(
                group=asked.group,
                topic=asked.topic,
                readable=groups.may_read(asked.group, asked.topic),
            ),
        )

    # --- who is connected -------------------------------------------------------------------

    def handle_consumers(self, command: Command, _: Connection) -> Command:
        """Members of a group and what it subscribes to; also what they disagree on, if they do."""
        asked = headers.GetConsumerConnectionListRequest.from_ext(command.ext)
        group = self._online(asked.consumer_group)
        if group is None:
            raise ConsumerNotOnline(f"no member of group {asked.consumer_group} is connected")
        return json_reply(
            command,
            bodies.ConsumerConnection(
                connection_set=connection_list(group.members.values()),
                subscription_table=group.subscriptions,
                consume_type=group.consume_type,
                message_model=group.message_model,
                consume_from_where=group.consume_from_where,
                divergent_subscriptions=group.divergences() or None,
            ),
        )

    def _online(self, name: str) -> ConsumerGroup | None:
        group = self._state.clients.group(name)
        return group if group is not None and group.members else None

    def handle_subscription(self, command: Command, _: Connection) -> Command:
        asked = headers.QuerySubscriptionByConsumerRequest.from_ext(command.ext)
        group = self._online(asked.group)
        return json_reply(
            command,
            bodies.QuerySubscriptionBody(
                group=asked.group,
                topic=asked.topic,
                subscription_data=(
                    None if group is None else group.subscriptions.get(asked.topic or "")
                ),
            ),
        )

    def handle_producers(self, command: Command, _: Connection) -> Command:
        asked = headers.GetProducerConnectionListRequest.from_ext(command.ext)
        members = self._state.clients.producers.get(asked.producer_group)
        if not members:
            raise ServerFailed(f"no producer of group {asked.producer_group} is connected")
        body = bodies.ProducerConnection(connection_set=connection_list(members.values()))
        return json_reply(command, body)

    def handle_all_producers(self, command: Command, _: Connection) -> Command:
        clock = self._state.clock
        booted_ms = clock.now_ms() - clock.elapsed_ms()
        data = {
            group: tuple(
                bodies.ProducerInfo(
                    client_id=member.client_id,
                    remote_ip=f"/{member.address}",
                    language=language_name(member.language),
                    version=member.version,
                    last_update_timestamp=booted_ms + member.last_ms,
                )
                for member in members.values()
            )
            for group, members in self._state.clients.producers.items()
        }
        return json_reply(command, bodies.ProducerTableInfo(data=data))
