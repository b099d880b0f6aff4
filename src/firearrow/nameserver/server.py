"""The name server as a whole: what it is made of, how it starts, watches and stops."""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING

from firearrow.base.config import to_properties
from firearrow.base.errors import ConfigError
from firearrow.base.files import write_atomically
from firearrow.base.runtime import Service, SystemClock
from firearrow.metrics.endpoint import Endpoint
from firearrow.metrics.settings import MetricsExporter
from firearrow.nameserver.handlers import Handlers
from firearrow.nameserver.kv_config import KVConfig
from firearrow.nameserver.metric_families import nameserver_families
from firearrow.nameserver.route_table import RouteTable
from firearrow.net.access import refuse_open_address
from firearrow.net.client import RemotingClient
from firearrow.net.connection import Connection, Limits
from firearrow.net.errors import NetworkError
from firearrow.net.router import Router
from firearrow.net.server import Server, ServerStatistics
from firearrow.net.tls import TlsPolicy
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import request
from firearrow.wire.headers import NotifyMinBrokerIdChangeRequest
from firearrow.wire.properties_text import format_properties

if TYPE_CHECKING:
    from firearrow.base.runtime import Clock
    from firearrow.nameserver.config import NameServerConfig
    from firearrow.nameserver.route_table import MinIdChange, RouteTableStatistics

log = logging.getLogger(__name__)


class NameServer:
    """One node. Nodes never talk to each other: brokers register with all of them."""

    def __init__(
        self, config: NameServerConfig, clock: Clock | None = None, *, insecure: bool = False
    ) -> None:
        if not insecure:
            refuse_open_address(config.bind_address)
            refuse_open_address(config.metrics_prom_exporter_host or config.bind_address)
        self.metrics: Endpoint | None = None
        self._clock = clock or SystemClock()
        self._tasks = Service("nameserver", self._clock)
        self._routes = RouteTable()
        self._kv = KVConfig(config.kv_config_path.expanduser())
        self._client = RemotingClient(self._clock)
        self._handlers = Handlers(
            config,
            self._routes,
            self._kv,
            self._clock,
            save_config=self._save_config,
            notify=self._notify,
        )
        self._server = Server(
            Router(self._handlers.request_table(), self._tasks),
            self._clock,
            host=config.bind_address,
            port=config.listen_port,
            limits=Limits(
                frame_bytes_max=config.frame_bytes_max,
                header_bytes_max=config.header_bytes_max,
                connections_max=config.connections_max,
                write_stall_ms=config.write_stall_millis,
                idle_ms=config.server_channel_max_idle_time_seconds * 1000,
            ),
            tls=TlsPolicy(
                mode=config.tls_server_mode,
                certificate=config.tls_server_cert_path,
                key=config.tls_server_key_path,
                client_ca=config.tls_server_trust_cert_path,
                self_signed=config.tls_test_mode_enable,
            ),
            on_close=self._channel_closed,
        )

    @property
    def address(self) -> str:
        """Where clients find it, once started."""
        host = self._server.host
        return f"[{host}]:{self._server.port}" if ":" in host else f"{host}:{self._server.port}"

    async def start(self) -> None:
        self._kv.load()
        await self._server.start()
        # Port 0 was a wish; listings show what became of it.
        config = dataclasses.replace(self._handlers.config, listen_port=self._server.port)
        self._handlers.config = config
        try:
            await self._serve_metrics(config)
        except BaseException:
            await self._server.stop()
            raise
        self._tasks.every(config.scan_not_active_broker_interval, self._scan, name="scan")
        self._tasks.every(config.kv_print_interval_millis, self._kv.log_all, name="print-kv")
        log.info("name server listens on %s", self.address)

    async def _serve_metrics(self, config: NameServerConfig) -> None:
        if config.metrics_exporter_type is MetricsExporter.DISABLE:
            return
        started_ms = self._clock.now_ms()
        endpoint = Endpoint(
            lambda: nameserver_families(*self.statistics(), started_ms),
            list,  # it serves as long as it lives
            {"node_type": "nameserver", "node_id": self.address},
            self._clock,
            host=config.metrics_prom_exporter_host or config.bind_address,
            port=config.metrics_prom_exporter_port,
        )
        await endpoint.start()
        self.metrics = endpoint
        self._handlers.config = dataclasses.replace(
            config, metrics_prom_exporter_port=endpoint.port
        )

    async def stop(self) -> None:
        if self.metrics is not None:
            await self.metrics.stop()
        await self._server.stop()
        await self._tasks.stop_tasks()
        await self._client.close()
        log.info("name server stopped")

    def statistics(self) -> tuple[ServerStatistics, RouteTableStatistics]:
        return self._server.statistics(), self._routes.statistics()

    # --- brokers that went without a word ---------------------------------------------------

    def _scan(self) -> None:
        for (cluster, address), live in self._routes.expired(self._clock.elapsed_ms()):
            why = f"nothing heard for {live.timeout_ms} ms"
            self._handlers.forget(cluster, live.broker_name, address, why)
            if isinstance(live.channel, Connection):
                live.channel.close(why)

    def _channel_closed(self, connection: Connection) -> None:
        for (cluster, address), live in self._routes.on_channel(connection):
            why = f"its connection ended ({connection.close_reason})"
            self._handlers.forget(cluster, live.broker_name, address, why)

    def _notify(self, change: MinIdChange) -> None:
        """Tell a broker group that its lowest id is another one now, if that is switched on."""
        if self._handlers.config.notify_min_broker_id_changed:
            self._tasks.spawn(self._send_notices(change), name="notify-min-broker-id")

    async def _send_notices(self, change: MinIdChange) -> None:
        header = NotifyMinBrokerIdChangeRequest(
            min_broker_id=change.min_broker_id,
            broker_name=change.broker_name,
            min_broker_addr=change.min_address,
            offline_broker_addr=change.offline_address,
            ha_broker_addr=change.ha_address,
        )
        for address in change.notify:
            notice = request(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, header, oneway=True)
            try:
                await self._client.invoke_oneway(address, notice)
            except (NetworkError, ValueError) as error:
                log.warning("broker %s does not hear of its new lowest id: %s", address, error)

    def _save_config(self, config: NameServerConfig) -> None:
        path = config.config_store_path.expanduser()
        try:
            write_atomically(path, format_properties(to_properties(config)))
        except OSError as error:
            raise ConfigError(f"nothing is changed: configStorePath: {error}") from error
