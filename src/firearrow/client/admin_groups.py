"""Groups, as Admin sees them: settings, who is connected, and what a member is doing."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

import msgspec

from firearrow.client.admin_cluster import master_of, together
from firearrow.client.admin_results import refuse_other
from firearrow.client.errors import InvalidName, InvalidRequest
from firearrow.model.errors import (
    ConsumerNotOnline,
    ServerFailed,
    SubscriptionGroupNotFound,
)
from firearrow.model.group import (
    GroupRetryPolicy,
    SimpleSubscriptionData,
    SubscriptionGroupConfig,
    check_group_name,
    is_system_group,
)
from firearrow.model.topic import dlq_topic, retry_topic
from firearrow.wire import java_json
from firearrow.wire.bodies import (
    ConsumeMessageDirectlyResult,
    ConsumerConnection,
    ConsumerRunningInfo,
    ProducerConnection,
    ProducerTableInfo,
    SubscriptionGroupWrapper,
)
from firearrow.wire.codes import RequestCode
from firearrow.wire.headers import (
    ConsumeMessageDirectlyRequest,
    DeleteSubscriptionGroupRequest,
    DeleteTopicInNameserverRequest,
    DeleteTopicRequest,
    GetConsumerConnectionListRequest,
    GetConsumerRunningInfoRequest,
    GetProducerConnectionListRequest,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from firearrow.client.admin_cluster import Cluster
    from firearrow.model.topic import BrokerData
    from firearrow.wire.bodies import Connection, ProducerInfo

RELAY_TIMEOUTS = 3  # a broker waits ten seconds for a client: three times our own patience


class GroupSettings(TypedDict, total=False):
    """What can be set for a group; what is left out keeps its value, or RocketMQ's default."""

    consume_enable: bool
    consume_from_min_enable: bool
    consume_broadcast_enable: bool
    consume_message_orderly: bool
    retry_queue_nums: int
    retry_max_times: int
    group_retry_policy: GroupRetryPolicy
    broker_id: int
    which_broker_when_consume_slowly: int
    notify_consumer_ids_changed_enable: bool
    group_sys_flag: int
    consume_timeout_minute: int
    subscription_data_set: tuple[SimpleSubscriptionData, ...] | None
    attributes: dict[str, str]


class Groups:
    """Groups by their names on the wire."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    # --- settings ---------------------------------------------------------------------------

    async def names(self, *, include_system: bool) -> list[str]:
        tables = await together(map(self._table, await self._cluster.all_brokers()))
        names = {name for table in tables for name in table}
        return sorted(name for name in names if include_system or not is_system_group(name))

    async def create(
        self, wanted: SubscriptionGroupConfig, cluster: str | None, broker: str | None
    ) -> None:
        """Create a group; to do so again is no mistake, to ask for something else is."""
        check_settings(wanted)
        brokers = await self._cluster.chosen(cluster, broker)
        tables = await together(map(self._table, brokers))
        for one, table in zip(brokers, tables, strict=True):
            known = table.get(wanted.group_name)
            if known is not None:
                refuse_other(f"group {wanted.group_name}", one.broker_name, known, wanted)
        await self._put((one, wanted) for one in brokers)

    async def update(
        self, group: str, changes: GroupSettings, cluster: str | None, broker: str | None
    ) -> None:
        if not changes:
            raise InvalidRequest("no setting is given that should be changed")
        brokers = await self._chosen_or_all(cluster, broker)
        tables = await together(map(self._table, brokers))
        wanted = [
            (one, msgspec.structs.replace(table[group], **changes))
            for one, table in zip(brokers, tables, strict=True)
            if group in table
        ]
        if not wanted:
            raise SubscriptionGroupNotFound(f"group {group} does not exist; create it")
        for _, config in wanted:
            check_settings(config)
        await self._put(wanted)

    async def _chosen_or_all(self, cluster: str | None, broker: str | None) -> list[BrokerData]:
        if cluster is None and broker is None:
            return await self._cluster.all_brokers()
        return await self._cluster.chosen(cluster, broker)

    async def _put(self, groups: Iterable[tuple[BrokerData, SubscriptionGroupConfig]]) -> None:
        await together(
            self._cluster.session.call(
                master_of(broker),
                RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
                body=java_json.encode(group),
            )
            for broker, group in groups
        )

    async def all_configs(self) -> dict[str, dict[str, SubscriptionGroupConfig]]:
        """Settings of every group, by group and broker name: one question to each broker."""
        brokers = await self._cluster.all_brokers()
        tables = await together(map(self._table, brokers))
        found: dict[str, dict[str, SubscriptionGroupConfig]] = {}
        for one, table in zip(brokers, tables, strict=True):
            for name, config in table.items():
                found.setdefault(name, {})[one.broker_name] = config
        return found

    async def configs(self, group: str) -> dict[str, SubscriptionGroupConfig]:
        """Settings by broker name."""
        brokers = await self._cluster.all_brokers()
        tables = await together(map(self._table, brokers))
        found = {
            one.broker_name: table[group]
            for one, table in zip(brokers, tables, strict=True)
            if group in table
        }
        if not found:
            raise SubscriptionGroupNotFound(f"group {group} does not exist on any broker")
        return found

    async def _table(self, broker: BrokerData) -> dict[str, SubscriptionGroupConfig]:
        """All groups of a broker: to ask for one that does not exist may create it."""
        said = await self._cluster.ask(
            master_of(broker),
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            SubscriptionGroupWrapper,
        )
        return said.subscription_group_table

    async def delete(
        self, group: str, cluster: str | None, *, remove_offsets: bool, remove_topics: bool
    ) -> None:
        brokers = await self._chosen_or_all(cluster, None)
        session = self._cluster.session
        tables = await together(map(self._table, brokers))
        if not any(group in table for table in tables):
            raise SubscriptionGroupNotFound(f"group {group} does not exist on any broker")
        header = DeleteSubscriptionGroupRequest(group_name=group, clean_offset=remove_offsets)
        await together(
            session.call(master_of(one), RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
            for one in brokers
        )
        if remove_topics:
            for topic in (retry_topic(group), dlq_topic(group)):
                await self._delete_topic(topic, cluster, brokers)

    async def _delete_topic(
        self, topic: str, cluster: str | None, brokers: Iterable[BrokerData]
    ) -> None:
        session = self._cluster.session
        await together(
            session.call(
                master_of(one), RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequest(topic=topic)
            )
            for one in brokers
        )
        header = DeleteTopicInNameserverRequest(topic=topic, cluster_name=cluster)
        await together(
            session.call(address, RequestCode.DELETE_TOPIC_IN_NAMESRV, header)
            for address in session.names.addresses
        )

    # --- where a group is -------------------------------------------------------------------

    async def masters(self, group: str, topic: str | None = None) -> list[str]:
        """Brokers that know the group: they have its retry topic, or the topic in question."""
        routes = [await self._cluster.find_route(retry_topic(group))]
        if topic is not None:
            routes.append(await self._cluster.route(topic))
        found = {
            one.master_addr
            for route in routes
            if route is not None
            for one in route.broker_datas
            if one.master_addr is not None
        }
        return sorted(found) or [master_of(one) for one in await self._cluster.all_brokers()]

    # --- who is connected -------------------------------------------------------------------

    async def consumers(self, group: str) -> ConsumerConnection:
        """Members of a group; each is connected to several brokers and listed once."""
        header = GetConsumerConnectionListRequest(consumer_group=group)
        found = [
            said
            for said in await together(
                self._consumers_at(address, header) for address in await self.masters(group)
            )
            if said is not None
        ]
        if not found:
            raise ConsumerNotOnline(f"no member of group {group} is connected")
        unwrap = self._cluster.session.unwrap
        return msgspec.structs.replace(
            found[0],
            connection_set=_each_once(one for said in found for one in said.connection_set),
            subscription_table={
                unwrap(topic): msgspec.structs.replace(subscription, topic=unwrap(topic))
                for topic, subscription in found[0].subscription_table.items()
            },
        )

    async def _consumers_at(
        self, address: str, header: GetConsumerConnectionListRequest
    ) -> ConsumerConnection | None:
        try:
            return await self._cluster.ask(
                address, RequestCode.GET_CONSUMER_CONNECTION_LIST, ConsumerConnection, header
            )
        except ConsumerNotOnline:
            return None

    async def is_running(self, group: str) -> bool:
        try:
            await self.consumers(group)
        except ConsumerNotOnline:
            return False
        return True

    async def producers(self, group: str, topic: str | None) -> ProducerConnection:
        if topic is None:
            brokers = await self._cluster.all_brokers()
        else:
            route = await self._cluster.route(topic)
            brokers = [one for one in route.broker_datas if one.master_addr]
        header = GetProducerConnectionListRequest(producer_group=group)
        found = [
            said
            for said in await together(self._producers_at(one, header) for one in brokers)
            if said is not None
        ]
        if not found:
            raise ServerFailed(f"no producer of group {group} is connected")
        return ProducerConnection(
            connection_set=_each_once(one for said in found for one in said.connection_set)
        )

    async def all_producers(self) -> dict[str, tuple[ProducerInfo, ...]]:
        """Every producer that is connected, by group; each once."""
        tables = await together(
            self._cluster.ask(master_of(one), RequestCode.GET_ALL_PRODUCER_INFO, ProducerTableInfo)
            for one in await self._cluster.all_brokers()
        )
        found: dict[str, dict[str, ProducerInfo]] = {}
        for table in tables:
            for group, members in table.data.items():
                for member in members:
                    found.setdefault(group, {}).setdefault(member.client_id, member)
        return {
            group: tuple(members[client] for client in sorted(members))
            for group, members in sorted(found.items())
        }

    async def _producers_at(
        self, broker: BrokerData, header: GetProducerConnectionListRequest
    ) -> ProducerConnection | None:
        try:
            return await self._cluster.ask(
                master_of(broker),
                RequestCode.GET_PRODUCER_CONNECTION_LIST,
                ProducerConnection,
                header,
            )
        except ServerFailed:  # its way to say that there is none
            return None

    # --- asking one member ------------------------------------------------------------------

    async def running_info(
        self, group: str, client_id: str, *, stacks: bool
    ) -> ConsumerRunningInfo:
        """Ask a member through any broker that it is connected to."""
        header = GetConsumerRunningInfoRequest(
            consumer_group=group, client_id=client_id, jstack_enable=stacks
        )
        failure: ServerFailed | None = None
        for address in await self.masters(group):
            try:
                return await self._cluster.ask(
                    address,
                    RequestCode.GET_CONSUMER_RUNNING_INFO,
                    ConsumerRunningInfo,
                    header,
                    timeout_ms=self._relay_timeout_ms,
                )
            except ServerFailed as error:
                failure = error
        raise failure or ConsumerNotOnline(f"client {client_id} of group {group} is not connected")

    async def consume_directly(
        self, group: str, client_id: str, topic: str, offset_msg_id: str, address: str
    ) -> ConsumeMessageDirectlyResult:
        header = ConsumeMessageDirectlyRequest(
            consumer_group=group, client_id=client_id, msg_id=offset_msg_id, topic=topic
        )
        return await self._cluster.ask(
            address,
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            ConsumeMessageDirectlyResult,
            header,
            timeout_ms=self._relay_timeout_ms,
        )

    @property
    def _relay_timeout_ms(self) -> int:
        return RELAY_TIMEOUTS * self._cluster.session.options.call_timeout_ms


def _each_once(connections: Iterable[Connection]) -> tuple[Connection, ...]:
    found: dict[str, Connection] = {}
    for connection in connections:
        found.setdefault(connection.client_id, connection)
    return tuple(found[client_id] for client_id in sorted(found))


def check_settings(group: SubscriptionGroupConfig) -> None:
    """InvalidName or InvalidRequest unless a broker would take it."""
    problem = check_group_name(group.group_name)
    if problem is not None:
        raise InvalidName(problem)
    if group.retry_queue_nums < 0 or group.retry_max_times < -1:
        raise InvalidRequest(
            f"group {group.group_name}: {group.retry_queue_nums} retry queues, "
            f"{group.retry_max_times} retries; neither can be negative (-1 retries: the default)"
        )
