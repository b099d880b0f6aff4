"""Topics, as Admin sees them: create, change, delete, list, and how full they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from firearrow.client.admin_cluster import any_of, master_of, together
from firearrow.client.admin_results import QueueStats, TopicStats, refuse_other
from firearrow.client.errors import InvalidName, InvalidRequest, NoRoute
from firearrow.client.routes import subscribe_queues
from firearrow.model.errors import QueryNotFound, RequestNotSupported, TopicNotFound
from firearrow.model.topic import (
    AUTO_CREATE_TOPIC,
    TopicConfig,
    check_topic_name,
    format_order_conf,
    is_dlq_topic,
    is_retry_topic,
    is_system_topic,
    is_valid_perm,
    parse_order_conf,
    reply_topic,
)
from firearrow.wire.bodies import (
    GroupList,
    TopicConfigSerializeWrapper,
    TopicList,
    TopicStatsTable,
)
from firearrow.wire.codes import RequestCode
from firearrow.wire.headers import (
    CreateTopicRequest,
    DeleteTopicInNameserverRequest,
    DeleteTopicRequest,
    GetTopicConfigRequest,
    GetTopicStatsInfoRequest,
    QueryTopicConsumeByWhoRequest,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from firearrow.client.admin_cluster import Cluster
    from firearrow.model.topic import BrokerData, MessageQueue
    from firearrow.wire.bodies import TopicRouteData

ORDER_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"  # of the name servers' key-value settings
LIST_TIMEOUTS: Final = 6  # fifty thousand topics in one answer: six times the usual patience
ROUTE_PAUSE_MS: Final = 20  # between two looks whether a change has arrived


def attributes_text(attributes: Mapping[str, str | None] | None) -> str | None:
    """``+key=value,-key``: what to set, and (None) what to remove."""
    if not attributes:
        return None
    for key, value in attributes.items():
        if not key or set(key) & set(",=+") or (value is not None and set(value) & set(",=")):
            raise InvalidRequest(
                f"attribute {key!r}={value!r}: neither part may contain a comma or '='"
            )
    return ",".join(
        f"-{key}" if value is None else f"+{key}={value}" for key, value in attributes.items()
    )


class Topics:
    """Topics by their names on the wire."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    # --- changing ---------------------------------------------------------------------------

    async def create(
        self,
        wanted: TopicConfig,
        attributes: Mapping[str, str | None] | None,
        cluster: str | None,
        broker: str | None,
    ) -> None:
        """Create a topic; to do so again is no mistake, to ask for something else is."""
        check_config(wanted)
        brokers = await self._cluster.chosen(cluster, broker)
        known = await together(self._find(one, wanted.topic_name) for one in brokers)
        text = attributes_text(attributes)
        given = {key: value for key, value in (attributes or {}).items() if value is not None}
        for one, config in zip(brokers, known, strict=True):
            if config is not None:
                full = msgspec.structs.replace(wanted, attributes=config.attributes | given)
                refuse_other(f"topic {wanted.topic_name}", one.broker_name, config, full)
        await self._put([(one, wanted) for one in brokers], text)
        if wanted.order:
            await self._set_order(wanted, brokers)

    async def update(
        self,
        topic: str,
        changes: Mapping[str, object],
        attributes: Mapping[str, str | None] | None,
        cluster: str | None,
        broker: str | None,
    ) -> None:
        """Change some settings of a topic wherever it is, and leave the others as they are."""
        if not changes and not attributes:
            raise InvalidRequest("no setting is given that should be changed")
        brokers = await self._holders(topic, cluster, broker)
        known = await together(self._find(one, topic) for one in brokers)
        wanted = [
            (one, msgspec.structs.replace(config, **changes))
            for one, config in zip(brokers, known, strict=True)
            if config is not None
        ]
        if not wanted:
            raise TopicNotFound(f"topic {topic} does not exist on the brokers that were named")
        for _, config in wanted:
            check_config(config)
        await self._put(wanted, attributes_text(attributes))
        for one, config in wanted:
            if config.order:
                await self._set_order(config, [one])
        if changes.get("order") is False:
            await self._cluster.delete_kv(ORDER_NAMESPACE, topic)

    async def _holders(
        self, topic: str, cluster: str | None, broker: str | None
    ) -> list[BrokerData]:
        if broker is not None:
            return await self._cluster.chosen(None, broker)
        route = await self._cluster.route(topic)
        return [
            one
            for one in sorted(route.broker_datas, key=lambda one: one.broker_name)
            if cluster is None or one.cluster == cluster
        ]

    async def _put(
        self, topics: Sequence[tuple[BrokerData, TopicConfig]], attributes: str | None = None
    ) -> None:
        await together(
            self._cluster.session.call(
                master_of(broker),
                RequestCode.UPDATE_AND_CREATE_TOPIC,
                CreateTopicRequest(
                    topic=topic.topic_name,
                    default_topic=AUTO_CREATE_TOPIC,
                    read_queue_nums=topic.read_queue_nums,
                    write_queue_nums=topic.write_queue_nums,
                    perm=topic.perm,
                    topic_filter_type=topic.topic_filter_type,
                    topic_sys_flag=topic.topic_sys_flag,
                    order=topic.order,
                    attributes=attributes,
                ),
            )
            for broker, topic in topics
        )
        await self._until_routed(topics)

    async def _until_routed(self, topics: Sequence[tuple[BrokerData, TopicConfig]]) -> None:
        """Brokers tell name servers in their own time; who changes a topic wants to use it next."""
        session = self._cluster.session
        name = topics[0][1].topic_name
        missing = {
            (broker.broker_name, topic.read_queue_nums, topic.write_queue_nums)
            for broker, topic in topics
        }
        deadline_ms = session.clock.elapsed_ms() + session.options.call_timeout_ms
        while True:
            route = await self._cluster.find_route(name)
            if route is not None:
                missing -= {
                    (one.broker_name, one.read_queue_nums, one.write_queue_nums)
                    for one in route.queue_datas
                }
            if not missing:
                return
            if session.clock.elapsed_ms() >= deadline_ms:
                brokers = ", ".join(sorted(broker for broker, *_ in missing))
                raise NoRoute(
                    f"topic {name} is set on its brokers, but {session.names.addresses} have not "
                    f"heard of it from {brokers} yet"
                )
            await session.clock.sleep(ROUTE_PAUSE_MS)

    async def delete(self, topic: str, cluster: str | None) -> None:
        """From brokers first, then from name servers: in the other order brokers bring it back."""
        session = self._cluster.session
        route = await self._cluster.route(topic)
        brokers = [one for one in route.broker_datas if cluster in {None, one.cluster}]
        if not brokers:
            raise NoRoute(f"topic {topic} is not on any broker of cluster {cluster}")
        header = DeleteTopicRequest(topic=topic)
        await together(
            session.call(master_of(one), RequestCode.DELETE_TOPIC_IN_BROKER, header)
            for one in brokers
        )
        at_names = DeleteTopicInNameserverRequest(topic=topic, cluster_name=cluster)
        await together(
            session.call(address, RequestCode.DELETE_TOPIC_IN_NAMESRV, at_names)
            for address in session.names.addresses
        )
        if len(brokers) == len(route.broker_datas):
            await self._cluster.delete_kv(ORDER_NAMESPACE, topic)
        session.forget_route(topic)

    # --- ordered topics: how many queues each broker has, whether it is up or not -----------

    async def order_conf(self, topic: str) -> dict[str, int]:
        try:
            return parse_order_conf(await self._cluster.kv(ORDER_NAMESPACE, topic))
        except QueryNotFound:
            return {}

    async def set_order_conf(self, topic: str, queues: Mapping[str, int]) -> None:
        for broker, count in queues.items():
            if not broker or set(broker) & set(":;") or count < 1:
                raise InvalidRequest(f"{broker!r}: {count} queues; a broker's name and at least 1")
        if not queues:
            raise InvalidRequest("an order configuration names at least one broker")
        await self._cluster.put_kv(ORDER_NAMESPACE, topic, format_order_conf(queues))

    async def delete_order_conf(self, topic: str) -> None:
        await self._cluster.delete_kv(ORDER_NAMESPACE, topic)

    async def _set_order(self, topic: TopicConfig, brokers: Iterable[BrokerData]) -> None:
        queues = await self.order_conf(topic.topic_name)
        queues |= {one.broker_name: topic.write_queue_nums for one in brokers}
        await self.set_order_conf(topic.topic_name, dict(sorted(queues.items())))

    # --- looking ----------------------------------------------------------------------------

    async def names(self, *, include_system: bool) -> list[str]:
        found = await self._cluster.ask_names(
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, TopicList
        )
        if include_system:
            return sorted(found.topic_list)
        info = await self._cluster.info()
        own = {*info.cluster_addr_table, *info.broker_addr_table}  # topics of these names, too
        own |= {reply_topic(cluster) for cluster in info.cluster_addr_table}
        return sorted(
            name
            for name in found.topic_list
            if not (is_system_topic(name) or is_retry_topic(name) or is_dlq_topic(name))
            and name not in own
        )

    async def all_configs(self) -> dict[str, dict[str, TopicConfig]]:
        """Settings of every topic, by topic and broker name: one question to each broker."""
        brokers = await self._cluster.all_brokers()
        tables = await together(
            self._cluster.ask(
                master_of(one),
                RequestCode.GET_ALL_TOPIC_CONFIG,
                TopicConfigSerializeWrapper,
                timeout_ms=LIST_TIMEOUTS * self._cluster.session.options.call_timeout_ms,
            )
            for one in brokers
        )
        found: dict[str, dict[str, TopicConfig]] = {}
        for one, table in zip(brokers, tables, strict=True):
            for name, config in (table.topic_config_table or {}).items():
                found.setdefault(name, {})[one.broker_name] = config
        return found

    async def configs(self, topic: str) -> dict[str, TopicConfig]:
        """Settings by broker name: nothing keeps brokers from having different ones."""
        route = await self._cluster.route(topic)
        known = await together(self._find(one, topic) for one in route.broker_datas)
        return {
            one.broker_name: config
            for one, config in zip(route.broker_datas, known, strict=True)
            if config is not None
        }

    async def _find(self, broker: BrokerData, topic: str) -> TopicConfig | None:
        address = any_of(broker)
        ask = self._cluster.ask
        try:
            header = GetTopicConfigRequest(topic=topic)
            return await ask(address, RequestCode.GET_TOPIC_CONFIG, TopicConfig, header)
        except TopicNotFound:
            return None
        except RequestNotSupported:  # RocketMQ 4.x: it gives all or nothing
            table = await ask(
                address, RequestCode.GET_ALL_TOPIC_CONFIG, TopicConfigSerializeWrapper
            )
            return (table.topic_config_table or {}).get(topic)

    async def route(self, topic: str) -> TopicRouteData:
        return await self._cluster.route(topic)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues that can be read."""
        return sorted(subscribe_queues(topic, await self._cluster.route(topic)))

    async def stats(self, topic: str) -> TopicStats:
        route = await self._cluster.route(topic)
        header = GetTopicStatsInfoRequest(topic=topic)
        tables = await together(
            self._cluster.ask(
                any_of(one), RequestCode.GET_TOPIC_STATS_INFO, TopicStatsTable, header
            )
            for one in route.broker_datas
        )
        queues = [
            QueueStats(
                queue=self._cluster.shown(queue),
                min_offset=place.min_offset,
                max_offset=place.max_offset,
                last_stored_ms=place.last_update_timestamp or None,
            )
            for table in tables
            for queue, place in table.offset_table.items()
        ]
        return TopicStats(
            topic=self._cluster.session.unwrap(topic),
            queues=tuple(sorted(queues, key=lambda one: one.queue)),
            put_tps=sum(table.topic_put_tps or 0.0 for table in tables),
        )

    async def groups(self, topic: str) -> list[str]:
        """Who consumes it, or did."""
        route = await self._cluster.route(topic)
        header = QueryTopicConsumeByWhoRequest(topic=topic)
        found = await together(
            self._cluster.ask(
                any_of(one), RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, GroupList, header
            )
            for one in route.broker_datas
        )
        return sorted({group for one in found for group in one.group_list})


def check_config(topic: TopicConfig) -> None:
    """InvalidName or InvalidRequest unless a broker would take it."""
    problem = check_topic_name(topic.topic_name)
    if problem is None and is_system_topic(topic.topic_name):
        problem = f"{topic.topic_name} is a system topic: RocketMQ keeps it for itself"
    if problem is not None:
        raise InvalidName(problem)
    if min(topic.read_queue_nums, topic.write_queue_nums) < 1:
        raise InvalidRequest(
            f"topic {topic.topic_name}: {topic.read_queue_nums} queues to read and "
            f"{topic.write_queue_nums} to write; it needs at least one of each"
        )
    if not is_valid_perm(topic.perm):
        raise InvalidRequest(
            f"topic {topic.topic_name}: permission {topic.perm}; 2 to write, 4 to read, 6 for both"
        )
