"""The broker as a whole: what it is made of, how it starts, keeps house and stops."""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING

from firearrow.base.errors import ConfigError, PeerProtocolError
from firearrow.base.files import write_atomically
from firearrow.base.runtime import Service, SystemClock
from firearrow.broker.express import both_lanes
from firearrow.broker.parts import Changes, make_state
from firearrow.broker.processors.pull import PullProcessor
from firearrow.broker.processors.send import SendProcessor
from firearrow.broker.request_table import request_table
from firearrow.broker.statistics import SAMPLE_MS
from firearrow.broker.tables import Tables
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
    ) -> None:
        if not insecure:
            refuse_open_address(config.bind_address)
        self.config = config
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
            ),
            self._client,
        )
        self.tables = Tables(self.state, tasks, config.store_path_root_dir.expanduser() / FOLDER)

    @property
    def address(self) -> str:
        """Where clients find it, once started."""
        return self.state.registration.address

    # --- life -------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the store, listen, register. Nothing is served before everything is loaded."""
        await self.state.store.start()
        try:
            self.tables.load()
            await self._serve()
        except BaseException:
            await self._let_go()
            await self.state.timers.stop()
            await self.state.store.stop()
            raise
        log.info("broker %s listens on %s", self.config.broker_name, self.address)

    async def _serve(self) -> None:
        state, config = self.state, self.config
        server = await self._listen()
        host, port = config.broker_ip1 or server.host, server.port
        # Port 0 was a wish; listings show what became of it.
        self._heed(dataclasses.replace(config, listen_port=port))
        state.store_host = host_bytes(host, port)
        state.store.set_store_host(state.store_host)
        state.store.listen(state.held.wake)
        state.delays.start()
        state.transactions.start(self._tasks)
        state.timers.start()
        ha_port = config.ha_listen_port or port + 1
        await state.registration.start(_address(host, port), _address(host, ha_port))
        self.tables.save_soon()
        self._keep_house()

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

    async def stop(self) -> None:
        """Leave the name servers, answer what waits, write everything down."""
        state = self.state
        await state.registration.unregister()
        state.delays.stop()
        state.held.wake_all()
        await self._let_go()
        state.transactions.finish()
        await state.timers.stop()
        await state.store.stop()
        self.tables.save_now()
        log.info("broker %s stopped", self.config.broker_name)

    async def _let_go(self) -> None:
        """Serve nobody any more, and leave no task behind."""
        while self._servers:
            await self._servers.pop().stop()
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
        self.config = self.state.config = config
        self.state.store.reconfigure(config)
        self.state.registration.reconfigure(config)
        self.state.transactions.reconfigure(config)
        self.state.disk_waits.reconfigure(
            timeout_ms=config.sync_flush_timeout,
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
