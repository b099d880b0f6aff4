"""What the name server answers, request by request. `request_table` at the end names them all."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from firearrow.base.config import NotRemote, to_properties, updated
from firearrow.base.errors import ConfigError, PeerProtocolError
from firearrow.hot import crc31
from firearrow.model.errors import NoPermission, QueryNotFound, ServerFailed, TopicNotFound
from firearrow.model.topic import DataVersion
from firearrow.nameserver.kv_config import ORDER_TOPIC_CONFIG
from firearrow.nameserver.route_table import Registration
from firearrow.wire import bodies, headers, java_json
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import reply_to
from firearrow.wire.properties_text import format_properties, parse_properties

if TYPE_CHECKING:
    from collections.abc import Callable

    from firearrow.base.runtime import Clock
    from firearrow.nameserver.config import NameServerConfig
    from firearrow.nameserver.kv_config import KVConfig
    from firearrow.nameserver.route_table import MinIdChange, RouteTable
    from firearrow.net.connection import Connection
    from firearrow.net.router import Handler
    from firearrow.wire.command import Command

log = logging.getLogger(__name__)

CONFIG_BYTES_MAX: Final = 64 * 1024  # all our settings together have a fiftieth of it


class Handlers:
    """Each method answers one kind of request. None of them waits."""

    def __init__(
        self,
        config: NameServerConfig,
        routes: RouteTable,
        kv: KVConfig,
        clock: Clock,
        *,
        save_config: Callable[[NameServerConfig], None],
        notify: Callable[[MinIdChange], None],
    ) -> None:
        self.config = config
        self._routes = routes
        self._kv = kv
        self._clock = clock
        self._started_ms = clock.elapsed_ms()
        self._save_config = save_config
        self._notify = notify

    # --- brokers ----------------------------------------------------------------------------

    def register_broker(self, command: Command, connection: Connection) -> Command:
        asked = headers.RegisterBrokerRequest.from_ext(command.ext)
        if asked.body_crc32 and crc31(command.body) != asked.body_crc32:
            raise ServerFailed("the CRC-32 of the registration body does not match bodyCrc32")
        body = bodies.decode_register_body(
            command.body, compressed=asked.compressed, version=command.version
        )
        wrapper = body.topic_config_serialize_wrapper
        registration = Registration(
            cluster=asked.cluster_name,
            broker_name=asked.broker_name,
            broker_id=asked.broker_id,
            address=asked.broker_addr,
            ha_address=asked.ha_server_addr,
            zone=asked.zone_name,
            timeout_ms=asked.heartbeat_timeout_millis,
            acting_master=asked.enable_acting_master,
            data_version=wrapper.data_version,
            topics=wrapper.topic_config_table,
            filter_servers=body.filter_server_list,
            channel=connection,
        )
        known = self._routes.data_version((asked.cluster_name, asked.broker_addr)) is not None
        registered = self._routes.register(
            registration,
            now_ms=self._clock.elapsed_ms(),
            timeout_ms=self.config.broker_expired_millis,
            delete_missing_topics=self.config.delete_topic_with_broker_registration,
        )
        if registered is None:
            raise ServerFailed(
                f"broker {asked.broker_name} id {asked.broker_id} is not registered yet and "
                "announces a single topic, as incremental updates do; send the full table first"
            )
        if not known:
            log.info(
                "broker %s id %d of cluster %s registered at %s with %d topics",
                asked.broker_name,
                asked.broker_id,
                asked.cluster_name,
                asked.broker_addr,
                len(registration.topics),
            )
        if registered.min_id_change is not None:
            self._notify(registered.min_id_change)
        return reply_to(
            command,
            header=headers.RegisterBrokerReply(
                ha_server_addr=registered.master_ha_address,
                master_addr=registered.master_address,
            ),
            body=self._order_table() if self.config.return_order_topic_config_to_broker else b"",
        )

    def _order_table(self) -> bytes:
        table = self._kv.namespace(ORDER_TOPIC_CONFIG)
        return b"" if table is None else java_json.encode(bodies.KVTable(table=table))

    def unregister_broker(self, command: Command, _: Connection) -> Command:
        asked = headers.UnregisterBrokerRequest.from_ext(command.ext)
        self.forget(asked.cluster_name, asked.broker_name, asked.broker_addr, "it unregistered")
        return reply_to(command)

    def forget(self, cluster: str, broker_name: str, address: str, why: str) -> None:
        """Take a broker out of the tables, for whatever reason."""
        if self._routes.data_version((cluster, address)) is not None:
            log.info("broker %s at %s is gone: %s", broker_name, address, why)
        change = self._routes.unregister(cluster, broker_name, address)
        if change is not None:
            self._notify(change)

    def query_data_version(self, command: Command, _: Connection) -> Command:
        asked = headers.QueryDataVersionRequest.from_ext(command.ext)
        key = (asked.cluster_name, asked.broker_addr)
        theirs = java_json.decode(command.body, DataVersion) if command.body else DataVersion()
        changed = self._routes.data_version_changed(key, theirs)
        self._routes.touch(key, self._clock.elapsed_ms())
        ours = self._routes.data_version(key)
        return reply_to(
            command,
            header=headers.QueryDataVersionReply(changed=changed),
            body=b"" if ours is None else java_json.encode(ours),
        )

    def broker_heartbeat(self, command: Command, _: Connection) -> Command:
        asked = headers.BrokerHeartbeatRequest.from_ext(command.ext)
        self._routes.touch((asked.cluster_name, asked.broker_addr), self._clock.elapsed_ms())
        return reply_to(command)

    def get_cluster_info(self, command: Command, _: Connection) -> Command:
        info = bodies.ClusterInfo(
            broker_addr_table=self._routes.brokers(), cluster_addr_table=self._routes.clusters()
        )
        return reply_to(command, body=java_json.encode(info))

    def get_broker_member_group(self, command: Command, _: Connection) -> Command:
        asked = headers.GetBrokerMemberGroupRequest.from_ext(command.ext)
        data = self._routes.broker(asked.broker_name)
        group = bodies.BrokerMemberGroup(
            cluster=asked.cluster_name,
            broker_name=asked.broker_name,
            broker_addrs={} if data is None else data.broker_addrs,
        )
        body = bodies.BrokerMemberGroupBody(broker_member_group=group)
        return reply_to(command, body=java_json.encode(body))

    def wipe_write_perm(self, command: Command, _: Connection) -> Command:
        asked = headers.WipeWritePermOfBrokerRequest.from_ext(command.ext)
        count = self._routes.wipe_write_perm(asked.broker_name)
        log.info("write permission of broker %s wiped on %d topics", asked.broker_name, count)
        return reply_to(command, header=headers.WipeWritePermOfBrokerReply(wipe_topic_count=count))

    def add_write_perm(self, command: Command, _: Connection) -> Command:
        asked = headers.AddWritePermOfBrokerRequest.from_ext(command.ext)
        count = self._routes.add_write_perm(asked.broker_name)
        log.info("write permission of broker %s added on %d topics", asked.broker_name, count)
        return reply_to(command, header=headers.AddWritePermOfBrokerReply(add_topic_count=count))

    # --- topics -----------------------------------------------------------------------------

    def get_route(self, command: Command, _: Connection) -> Command:
        config = self.config
        if config.need_wait_for_service:
            up_ms = self._clock.elapsed_ms() - self._started_ms
            if up_ms < config.wait_seconds_for_service * 1000:
                raise ServerFailed(
                    f"the name server started {up_ms // 1000} s ago and waits for brokers until "
                    f"{config.wait_seconds_for_service} s (waitSecondsForService)"
                )
        asked = headers.GetRouteInfoRequest.from_ext(command.ext)
        route = self._routes.route(
            asked.topic,
            acting_master=config.support_acting_master,
            zone=asked.zone_name if asked.zone_mode else None,
        )
        if route is None:
            raise TopicNotFound(self._no_route(asked.topic))
        order = None
        if config.order_message_enable or config.cluster_test:
            order = self._kv.get(ORDER_TOPIC_CONFIG, asked.topic)
        # Keys of brokerAddrs are quoted for everybody: Java before 4.9.4 reads that too, while
        # the bare form it writes breaks strict parsers.
        body = bodies.TopicRouteData(
            order_topic_conf=order,
            queue_datas=route.queues,
            broker_datas=route.brokers,
            filter_server_table=route.filter_servers,
        )
        return reply_to(command, body=java_json.encode(body))

    def _no_route(self, topic: str) -> str:
        """Why there is no route, and what to do: the question that users ask most."""
        statistics = self._routes.statistics()
        if not statistics.broker_names:
            return (
                f"No topic route info in name server for the topic: {topic}. No broker is "
                "registered here: is one running, with this name server among its namesrvAddr?"
            )
        return (
            f"No topic route info in name server for the topic: {topic}. None of the "
            f"{statistics.broker_names} brokers registered here serves it: create the topic, or "
            "send to it with autoCreateTopicEnable=true on a broker"
        )

    def register_topic(self, command: Command, _: Connection) -> Command:
        asked = headers.RegisterTopicRequest.from_ext(command.ext)
        if command.body:
            route = java_json.decode(command.body, bodies.TopicRouteData)
            self._routes.register_topic(asked.topic, route.queue_datas)
        return reply_to(command)

    def delete_topic(self, command: Command, _: Connection) -> Command:
        asked = headers.DeleteTopicInNameserverRequest.from_ext(command.ext)
        self._routes.delete_topic(asked.topic, asked.cluster_name)
        log.info("topic %s deleted (cluster %s)", asked.topic, asked.cluster_name or "any")
        return reply_to(command)

    def get_all_topics(self, command: Command, _: Connection) -> Command:
        if not self.config.enable_all_topic_list:
            raise ServerFailed("disable: enableAllTopicList=false")
        return _topics(command, self._routes.topics())

    def get_topics_by_cluster(self, command: Command, _: Connection) -> Command:
        self._require_topic_list()
        asked = headers.GetTopicsByClusterRequest.from_ext(command.ext)
        return _topics(command, self._routes.topics_of_cluster(asked.cluster))

    def get_system_topics(self, command: Command, _: Connection) -> Command:
        names, address = self._routes.system_topics()
        return _topics(command, names, address)

    def get_unit_topics(self, command: Command, _: Connection) -> Command:
        self._require_topic_list()
        return _topics(command, self._routes.unit_topics(unit=True, unit_sub=None))

    def get_unit_sub_topics(self, command: Command, _: Connection) -> Command:
        self._require_topic_list()
        return _topics(command, self._routes.unit_topics(unit=None, unit_sub=True))

    def get_unit_sub_not_unit_topics(self, command: Command, _: Connection) -> Command:
        self._require_topic_list()
        return _topics(command, self._routes.unit_topics(unit=False, unit_sub=True))

    def _require_topic_list(self) -> None:
        if not self.config.enable_topic_list:
            raise ServerFailed("disable: enableTopicList=false")

    # --- settings ---------------------------------------------------------------------------

    def put_kv(self, command: Command, _: Connection) -> Command:
        asked = headers.PutKVConfigRequest.from_ext(command.ext)
        self._kv.put(asked.namespace, asked.key, asked.value)
        return reply_to(command)

    def get_kv(self, command: Command, _: Connection) -> Command:
        asked = headers.GetKVConfigRequest.from_ext(command.ext)
        value = self._kv.get(asked.namespace, asked.key)
        if value is None:
            raise QueryNotFound(f"no config item, namespace: {asked.namespace} key: {asked.key}")
        return reply_to(command, header=headers.GetKVConfigReply(value=value))

    def delete_kv(self, command: Command, _: Connection) -> Command:
        asked = headers.DeleteKVConfigRequest.from_ext(command.ext)
        self._kv.delete(asked.namespace, asked.key)
        return reply_to(command)

    def get_kv_namespace(self, command: Command, _: Connection) -> Command:
        asked = headers.GetKVListByNamespaceRequest.from_ext(command.ext)
        table = self._kv.namespace(asked.namespace)
        if table is None:
            raise QueryNotFound(f"no config item, namespace: {asked.namespace}")
        return reply_to(command, body=java_json.encode(bodies.KVTable(table=table)))

    def get_config(self, command: Command, _: Connection) -> Command:
        return reply_to(command, body=format_properties(to_properties(self.config)))

    def update_config(self, command: Command, connection: Connection) -> Command:
        if len(command.body) > CONFIG_BYTES_MAX:
            raise ServerFailed(
                f"settings of {len(command.body)} bytes; the limit is {CONFIG_BYTES_MAX}"
            )
        try:
            changes = parse_properties(command.body)
            config = updated(self.config, changes, who="update request")
        except NotRemote as error:
            raise NoPermission(str(error)) from error
        except (ConfigError, PeerProtocolError) as error:
            raise ServerFailed(str(error)) from error
        if config != self.config:
            log.info("%s changed the configuration: %s", connection.peer, changes)
            self._save_config(config)
            self.config = config
        return reply_to(command)

    def request_table(self) -> dict[int, Handler]:
        """Every request this server answers; everything else gets code 3."""
        return {
            RequestCode.PUT_KV_CONFIG: self.put_kv,
            RequestCode.GET_KV_CONFIG: self.get_kv,
            RequestCode.DELETE_KV_CONFIG: self.delete_kv,
            RequestCode.REGISTER_BROKER: self.register_broker,
            RequestCode.UNREGISTER_BROKER: self.unregister_broker,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self.get_route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self.get_cluster_info,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self.wipe_write_perm,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.get_all_topics,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self.delete_topic,
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: self.register_topic,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self.get_kv_namespace,
            RequestCode.GET_TOPICS_BY_CLUSTER: self.get_topics_by_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self.get_system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: self.get_unit_topics,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self.get_unit_sub_topics,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self.get_unit_sub_not_unit_topics,
            RequestCode.UPDATE_NAMESRV_CONFIG: self.update_config,
            RequestCode.GET_NAMESRV_CONFIG: self.get_config,
            RequestCode.QUERY_DATA_VERSION: self.query_data_version,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self.add_write_perm,
            RequestCode.GET_BROKER_MEMBER_GROUP: self.get_broker_member_group,
            RequestCode.BROKER_HEARTBEAT: self.broker_heartbeat,
        }


def _topics(command: Command, topics: list[str], address: str | None = None) -> Command:
    body = bodies.TopicList(topic_list=tuple(topics), broker_addr=address)
    return reply_to(command, body=java_json.encode(body))
