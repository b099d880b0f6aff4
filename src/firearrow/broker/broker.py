"""The broker as a whole: what it is made of, how it starts, keeps house and stops."""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING

from firearrow.base.errors import ConfigError, PeerProtocolError
from firearrow.base.files import write_atomically
from firearrow.base.runtime import Service, SystemClock
from firearrow.broker.config import BrokerRole
from firearrow.broker.express import both_lanes
from firearrow.broker.metric_families import broker_families, obstacles
from firearrow.broker.parts import Changes, make_state, sync_rules
from firearrow.broker.processors.pull import PullProcessor
from firearrow.broker.processors.send import SendProcessor
from firearrow.broker.replicas import Replicas
from firearrow.broker.request_table import request_table
from firearrow.broker.roles import Roles, check_role
from firearrow.broker.statistics import SAMPLE_MS
from firearrow.broker.tables import Tables
from firearrow.metrics.endpoint import Endpoint
from firearrow.metrics.settings import MetricsExporter
from firearrow.model.group import MessageModel
from firearrow.model.message import host_bytes
from firearrow.net.access import refuse_open_address
from firearrow.net.client import RemotingClient
from firearrow.net.connection import Connection, Limits
from firearrow.net.router import Router
from firearrow.net.server import Server
from firearrow.net.tls import TlsPolicy
from firearrow.store.config_files import FOLDER
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import request
from firearrow.wire.headers import NotifyConsumerIdsChangedRequest
from firearrow.wire.properties_text import format_properties, parse_properties

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from firearrow.base.runtime import Clock
    from firearrow.broker.config import BrokerConfig
    from firearrow.broker.express import ExpressLane
    from firearrow.broker.pull_lane import PullLane
    from firearrow.replication.replication import Replication
    from firearrow.store.disk import Disk

log = logging.getLogger(__name__)

HOUSEKEEPING_MS = 10_000
LATE_CHECK_MS = 100
LAG_CHECK_MS = 1_000
VIP_DISTANCE = 2


class Broker:
    """One broker: a store, the tables around it, and a server in front."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock | None = None,
        *,
        insecure: bool = False,
        disk: Disk | None = None,
        asks_controller: bool = True,  # else somebody else decides about its role
    ) -> None:
        if not insecure:
            refuse_open_address(config.bind_address)
            refuse_open_address(config.metrics_prom_exporter_host or config.bind_address)
        self.metrics: Endpoint | None = None
        config = check_role(config)
        self._clock = clock = clock or SystemClock()
        self._tasks = tasks = Service("broker", clock)
        self._client = RemotingClient(clock)
        self._servers: list[Server] = []
        self.express: ExpressLane | None = None
        self.pull_lane: PullLane | None = None
        self.state = make_state(
            config,
            clock,
            tasks,
            disk,
            Changes(
                topic=self._topic_changed,
                groups=self._groups_changed,
                request_modes=self._modes_changed,
                installed_filters=self._installed_filters_changed,
                notify_group=self._notify_group,
                reconfigure=self._reconfigure,
                election=self._election,
            ),
            self._client,
        )
        self.tables = Tables(self.state, tasks, config.store_path_root_dir.expanduser() / FOLDER)
        self.roles = Roles(self.state, self.tables, self._client, clock, self._heed)
        self.replicas: Replicas | None = None
        if config.enable_controller_mode and asks_controller:
            root = config.store_path_root_dir.expanduser()
            self.replicas = Replicas(self, self._client, clock, tasks, root)

    @property
    def config(self) -> BrokerConfig:
        """Settings as they are now; the role is one of them."""
        return self.state.config

    @property
    def replication(self) -> Replication:
        return self.state.replication

    async def become_master(self, epoch: int) -> None:
        """Take messages from now on, as the master of an epoch; returns when it does."""
        await self.roles.become_master(epoch)

    async def become_slave(self, master_address: str, master_ha_address: str, epoch: int) -> None:
        """Follow another broker: writes are refused at once, and what waits gets an error."""
        await self.roles.become_slave(master_address, master_ha_address, epoch)

    def take_replica_id(self, broker_id: int) -> None:
        self.roles.take_replica_id(broker_id)

    def _election(self) -> None:
        if self.replicas is not None:
            self.replicas.wake()

    @property
    def address(self) -> str:
        """Where clients find it, once started."""
        return self.state.registration.address

    # --- life -------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the store, listen, register. Nothing is served before everything is loaded."""
        self.roles.before_start()
        await self.state.store.start()
        try:
            self.tables.load()
            self.roles.load()
            await self._serve()
        except BaseException:
            await self._let_go()
            await self.state.timers.stop()
            await self.state.store.stop()
            raise
        registered = self.state.registration
        log.info(
            "broker %s listens on %s, for slaves on %s",
            self.config.broker_name,
            registered.address,
            registered.ha_address,
        )

    async def _serve(self) -> None:
        state, config = self.state, self.config
        server = await self._listen()
        host, port = config.broker_ip1 or server.host, server.port
        # Port 0 was a wish; listings show what became of it.
        self._heed(dataclasses.replace(config, listen_port=port))
        state.store_host = host_bytes(host, port)
        state.store.set_store_host(state.store_host)
        state.store.listen(state.held.wake)
        ha_port = await self._listen_for_slaves(config, server)
        await self._serve_metrics()
        await self.roles.begin()
        ha_host = config.broker_ip2 or host
        await state.registration.start(_address(host, port), _address(ha_host, ha_port))
        self.tables.save_soon()
        self._keep_house()
        if self.replicas is not None:
            self.replicas.start()

    async def _listen_for_slaves(self, config: BrokerConfig, server: Server) -> int:
        """Open the HA port; returns which it is. Without slaves a broker can do without it."""
        replication = self.state.replication
        if config.ha_listen_port or not config.listen_port:
            return await replication.listen(config.bind_address, config.ha_listen_port)
        try:
            return await replication.listen(config.bind_address, server.port + 1)
        except ConfigError as error:
            if config.broker_role is not BrokerRole.ASYNC_MASTER or config.enable_controller_mode:
                raise
            log.warning("slaves cannot follow this broker: %s", error)
            return server.port + 1

    async def _listen(self) -> Server:
        """Open the port, and two below it the one that old Java clients send to."""
        send = SendProcessor(self.state)
        self.express = send.express
        pull = PullProcessor(self.state)
        self.pull_lane = pull.lane
        lanes = self.state.lanes
        router = Router(
            request_table(self.state, send, pull),
            self._tasks,
            lanes=lanes.by_code(),
            default_lane=lanes.admin,
            observe=self.state.rpc_times.observe,
        )
        server = self._make_server(self.config.listen_port, router)
        await server.start()
        self._servers.append(server)
        if self.config.listen_port > VIP_DISTANCE:
            vip = self._make_server(server.port - VIP_DISTANCE, router)
            try:
                await vip.start()
            except ConfigError as error:
                log.warning("clients that use the VIP channel cannot send: %s", error)
            else:
                self._servers.append(vip)
        return server

    def _make_server(self, port: int, router: Router) -> Server:
        config = self.config
        assert self.express is not None
        assert self.pull_lane is not None
        return Server(
            router,
            self._clock,
            host=config.bind_address,
            port=port,
            limits=Limits(connections_max=config.connections_max),
            tls=TlsPolicy(
                mode=config.tls_server_mode,
                certificate=config.tls_server_cert_path,
                key=config.tls_server_key_path,
                client_ca=config.tls_server_trust_cert_path,
                self_signed=config.tls_test_mode_enable,
            ),
            on_close=self._channel_closed,
            express=both_lanes(self.express, self.pull_lane),
        )

    async def _serve_metrics(self) -> None:
        config = self.config
        if config.metrics_exporter_type is MetricsExporter.DISABLE:
            return
        endpoint = Endpoint(
            lambda: broker_families(
                self.state, lambda: [server.statistics() for server in self._servers]
            ),
            lambda: obstacles(self.state),
            {
                "cluster": config.broker_cluster_name,
                "node_type": "broker",
                "node_id": config.broker_name,
            },
            self._clock,
            host=config.metrics_prom_exporter_host or config.bind_address,
            port=config.metrics_prom_exporter_port,
        )
        await endpoint.start()
        self.metrics = endpoint
        self._heed(dataclasses.replace(self.config, metrics_prom_exporter_port=endpoint.port))

    async def stop(self) -> None:
        """Leave the name servers, answer what waits, write everything down."""
        state = self.state
        await state.registration.unregister()
        state.delays.stop()
        state.held.wake_all()
        await self._let_go()
        if not self.roles.is_slave:
            state.transactions.finish()
        await self.roles.stop_deliveries()
        await state.store.stop()
        self.tables.save_now()
        log.info("broker %s stopped", self.config.broker_name)

    async def _let_go(self) -> None:
        """Serve nobody any more, and leave no task behind."""
        while self._servers:
            await self._servers.pop().stop()
        if self.metrics is not None:
            await self.metrics.stop()
        await self.roles.stop()
        await self.tables.settle()
        await self._tasks.stop_tasks()
        await self.state.filter_server.stop()
        await self._client.close()

    # --- keeping house ----------------------------------------------------------------------

    def _keep_house(self) -> None:
        tasks, state = self._tasks, self.state
        tasks.every(LATE_CHECK_MS, state.held.expire, name="held-pulls")
        tasks.every(LATE_CHECK_MS, state.disk_waits.expire, name="disk-waits")
        tasks.every(LAG_CHECK_MS, self._measure_lag(), name="loop-lag")
        tasks.every(SAMPLE_MS, state.statistics.sample, name="statistics")
        tasks.every(HOUSEKEEPING_MS, self._drop_silent_clients, name="clients")
        tasks.every(HOUSEKEEPING_MS, state.locks.expire, name="locks")
        self.tables.keep()

    def _measure_lag(self) -> Callable[[], None]:
        """How late the loop is: so long does a request wait that has just come in."""
        due_ms = self._clock.elapsed_ms() + LAG_CHECK_MS

        def look() -> None:
            nonlocal due_ms
            now_ms = self._clock.elapsed_ms()
            self.state.statistics.lag_ms = max(0, now_ms - due_ms)
            due_ms = now_ms + LAG_CHECK_MS

        return look

    def _drop_silent_clients(self) -> None:
        for channel in self.state.clients.expired(self.config.channel_expired_timeout):
            assert isinstance(channel, Connection)
            channel.close("no heartbeat for too long")

    def _close_gates(self) -> None:
        """What the compiled lanes took for granted has changed."""
        if self.express is not None:
            self.express.close_gates()
        if self.pull_lane is not None:
            self.pull_lane.close_gates()

    def _topic_changed(self, topic: str) -> None:
        self._close_gates()
        if self.state.topics.get(topic) is None:
            self.state.sequences.forget_topic(topic)
        self.tables.topics.write()
        self.state.registration.register_soon(topic)

    def _installed_filters_changed(self) -> None:
        self.tables.python_filters.write()

    def _groups_changed(self) -> None:
        if self.pull_lane is not None:
            self.pull_lane.close_gates()
        self.tables.groups.write()

    def _modes_changed(self) -> None:
        self.tables.modes.write()

    # --- clients ----------------------------------------------------------------------------

    def _channel_closed(self, connection: Connection) -> None:
        self.state.held.channel_closed(connection)
        for group in self.state.clients.channel_closed(connection):
            if self.state.clients.group(group) is None:
                self.state.filters.unregister(group)
            self._notify_group(group)

    def _notify_group(self, name: str) -> None:
        """Tell the members of a group to share their queues anew."""
        group = self.state.clients.group(name)
        config = self.state.groups.get(name)
        if group is None or group.message_model is MessageModel.BROADCASTING:
            return
        if config is not None and not config.notify_consumer_ids_changed_enable:
            return
        header = NotifyConsumerIdsChangedRequest(consumer_group=name)
        for member in list(group.members.values()):
            assert isinstance(member.channel, Connection)
            member.channel.invoke_oneway(
                request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header, oneway=True)
            )

    # --- settings ---------------------------------------------------------------------------

    def _reconfigure(self, config: BrokerConfig, changes: Mapping[str, str]) -> None:
        """Settings were changed by request: write them down, then heed them."""
        if config.broker_config_path is not None:
            save_settings(config.broker_config_path, changes)
        before = self.config
        self._heed(config)
        if config.auto_create_topic_enable:
            self.state.topics.set_example(config.default_topic_queue_nums)
        if config.broker_permission != before.broker_permission:
            self.state.topics.touch()
            self.state.registration.register_anew()

    def _heed(self, config: BrokerConfig) -> None:
        self.state.config = config
        self.state.store.reconfigure(config)
        self.state.registration.reconfigure(config)
        self.state.transactions.reconfigure(config)
        if self.state.replication.is_master:
            self.state.replication.progress.rules = sync_rules(config)
        self.state.disk_waits.reconfigure(
            timeout_ms=config.sync_flush_timeout,
            slaves_timeout_ms=config.slave_timeout,
            busy_ms=config.os_page_cache_busy_time_out_mills,
        )
        self.state.groups.auto_create = config.auto_create_subscription_group
        self._close_gates()


def save_settings(path: Path, changes: Mapping[str, str]) -> None:
    """Put changed settings into the file that the broker was started with; ConfigError if not."""
    try:
        values = parse_properties(path.read_bytes()) if path.exists() else {}
        write_atomically(path, format_properties(values | dict(changes)))
    except (OSError, PeerProtocolError) as error:
        raise ConfigError(f"nothing is changed: {path} (brokerConfigPath): {error}") from error


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
