"""The controller as a whole: what it is made of, how it starts, watches and stops."""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING

from firearrow.base.config import to_properties
from firearrow.base.errors import ConfigError
from firearrow.base.files import write_atomically
from firearrow.base.runtime import Service, SystemClock
from firearrow.controller.config import check, etcd_sites, peers_of
from firearrow.controller.etcd import Etcd
from firearrow.controller.etcd_metadata import EtcdMetadata
from firearrow.controller.handlers import Handlers
from firearrow.controller.metadata import MetadataFile
from firearrow.controller.registry import Registry
from firearrow.net.access import refuse_open_address
from firearrow.net.client import RemotingClient, split_address
from firearrow.net.connection import Limits
from firearrow.net.errors import NetworkError
from firearrow.net.router import Router
from firearrow.net.server import Server
from firearrow.net.tls import TlsPolicy
from firearrow.wire import java_json
from firearrow.wire.bodies.controller import SyncStateSet
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import request
from firearrow.wire.headers.controller import NotifyBrokerRoleChangedRequest
from firearrow.wire.properties_text import format_properties

if TYPE_CHECKING:
    from firearrow.base.runtime import Clock
    from firearrow.controller.config import ControllerConfig
    from firearrow.controller.metadata import Metadata
    from firearrow.controller.replicas import ReplicaSet
    from firearrow.net.connection import Connection

log = logging.getLogger(__name__)

FILE_NAME = "replicas.json"


class Controller:
    """A controller: the only one of its cluster, or one of several of which one leads."""

    def __init__(
        self,
        config: ControllerConfig,
        clock: Clock | None = None,
        *,
        insecure: bool = False,
        metadata: Metadata | None = None,
    ) -> None:
        check(config)
        config = _listening(config)
        if not insecure:
            refuse_open_address(config.bind_address)
        self._clock = clock or SystemClock()
        self._tasks = Service("controller", self._clock)
        self._client = RemotingClient(self._clock)
        self._stopping = False
        self._metadata = metadata or make_metadata(config, self._clock)
        self._registry = Registry(
            self._metadata,
            self._clock,
            is_unclean_allowed=lambda: self._handlers.config.enable_elect_unclean_master,
            on_elected=self._elected,
        )
        self._handlers = Handlers(
            config, self._registry, self._metadata, save_config=self._save_config
        )
        self._server = Server(
            Router(self._handlers.request_table(), self._tasks),
            self._clock,
            host=config.bind_address,
            port=config.listen_port,
            limits=Limits(connections_max=config.connections_max),
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
        """Where brokers and tools find it, once started."""
        host = self._server.host
        return f"[{host}]:{self._server.port}" if ":" in host else f"{host}:{self._server.port}"

    @property
    def leads(self) -> bool:
        """Whether this controller decides at the moment."""
        leader = self._metadata.leader
        return leader is not None and leader.is_me

    # --- life -------------------------------------------------------------------------------

    async def start(self) -> None:
        await self._server.start()
        config = dataclasses.replace(self._handlers.config, listen_port=self._server.port)
        self._handlers.config = config
        try:
            await self._metadata.start(self.address, self._lead)
        except BaseException:
            await self.stop()
            raise
        self._tasks.every(
            config.scan_not_active_broker_interval, self._registry.expire, name="expire"
        )
        self._tasks.every(config.scan_inactive_master_interval, self._scan, name="scan")
        log.info("controller listens on %s", self.address)

    async def stop(self) -> None:
        self._stopping = True  # brokers that we hang up on are not dead
        await self._server.stop()
        await self._tasks.stop_tasks()
        await self._metadata.stop()
        await self._client.close()
        log.info("controller stopped")

    def _lead(self) -> None:
        self._registry.unlearn()
        self._tasks.spawn(self._registry.lead(), name="lead")

    # --- masters that are gone --------------------------------------------------------------

    def _scan(self) -> None:
        patience_ms = self._handlers.config.broker_not_alive_millis
        for name in self._registry.without_master(patience_ms=patience_ms):
            self._tasks.spawn(self._registry.replace_master(name), name="elect")

    def _channel_closed(self, connection: Connection) -> None:
        if not self._stopping and self._registry.channel_closed(connection):
            self._scan()  # a process that died leaves its connections at once

    def _elected(self, known: ReplicaSet) -> None:
        if self._handlers.config.notify_broker_role_changed:
            for broker_id in self._registry.alive(known.broker_name):
                address = known.replicas[broker_id].address
                self._tasks.spawn(self._tell(address, known), name="notify")

    async def _tell(self, address: str, known: ReplicaSet) -> None:
        header = NotifyBrokerRoleChangedRequest(
            master_address=known.master_address,
            master_epoch=known.master_epoch,
            sync_state_set_epoch=known.sync_state_set_epoch,
            master_broker_id=known.master_broker_id,
        )
        body = SyncStateSet(
            sync_state_set=tuple(sorted(known.sync_state_set)),
            sync_state_set_epoch=known.sync_state_set_epoch,
        )
        notice = request(
            RequestCode.NOTIFY_BROKER_ROLE_CHANGED, header, java_json.encode(body), oneway=True
        )
        try:
            await self._client.invoke_oneway(address, notice)
        except (NetworkError, ValueError) as error:
            log.info("broker %s will ask who is master: it cannot be told: %s", address, error)

    def _save_config(self, config: ControllerConfig) -> None:
        path = config.config_store_path.expanduser()
        try:
            write_atomically(path, format_properties(to_properties(config)))
        except OSError as error:
            raise ConfigError(f"nothing is changed: configStorePath: {error}") from error


def make_metadata(config: ControllerConfig, clock: Clock) -> Metadata:
    """The place where decisions are kept, as configured."""
    name, lease_seconds = config.controller_d_leger_self_id, config.controller_etcd_lease_seconds
    if sites := etcd_sites(config):
        # A lease outlives two members that do not answer.
        etcd = Etcd(sites, clock, timeout_ms=lease_seconds * 1_000 // 3)
        prefix = config.controller_etcd_prefix
        return EtcdMetadata(etcd, name, prefix=prefix, lease_seconds=lease_seconds, clock=clock)
    return MetadataFile(config.controller_store_path.expanduser() / FILE_NAME, name)


def _listening(config: ControllerConfig) -> ControllerConfig:
    """Where to listen: as our own entry among the peers says, if there is one."""
    address = peers_of(config).get(config.controller_d_leger_self_id)
    if address is None:
        return config
    host, port = split_address(address)
    return dataclasses.replace(config, bind_address=host, listen_port=port)
