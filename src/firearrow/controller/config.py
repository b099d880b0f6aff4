"""Settings of a controller: RocketMQ's keys, and a few of our own."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from firearrow.base.config import setting
from firearrow.base.errors import ConfigError
from firearrow.net.client import split_address
from firearrow.net.http_client import Site
from firearrow.net.tls import TlsMode, client_context

HOME: Final = Path("~/controller")


class ControllerType(StrEnum):
    """What Apache's files may say. Whether a file or etcd keeps decisions, the endpoints decide."""

    FILE = "file"
    DLEDGER = "dledger"
    JRAFT = "jraft"


@dataclass(frozen=True, slots=True)
class ControllerConfig:
    listen_port: int = setting(9878, least=0, most=65535)
    bind_address: str = setting("127.0.0.1")  # Apache: all interfaces
    config_store_path: Path = setting(HOME / "controller.properties")
    controller_type: ControllerType = setting(ControllerType.FILE)
    controller_store_path: Path = setting(HOME / "data")
    # n0-127.0.0.1:9878;n1-… as Apache has them; the entry of our own id says where to listen.
    controller_d_leger_group: str = setting("group1", key="controllerDLegerGroup")
    controller_d_leger_peers: str = setting("", key="controllerDLegerPeers")
    controller_d_leger_self_id: str = setting("n0", key="controllerDLegerSelfId")
    scan_not_active_broker_interval: int = setting(1_000, least=10)  # Apache: 5 s
    scan_inactive_master_interval: int = setting(1_000, least=10)  # Apache: 5 s
    enable_elect_unclean_master: bool = setting(default=False, remote=True)
    notify_broker_role_changed: bool = setting(default=True, remote=True)

    # Ours: etcd keeps the decisions of several controllers, and says which of them leads.
    controller_etcd_endpoints: str = setting("")  # 127.0.0.1:2379;https://…, all of one etcd
    controller_etcd_prefix: str = setting("/firearrow/controller")
    controller_etcd_lease_seconds: int = setting(3, least=2, most=60)
    controller_etcd_ca_path: Path | None = setting(None)
    controller_etcd_cert_path: Path | None = setting(None)
    controller_etcd_key_path: Path | None = setting(None)

    # Ours.
    broker_not_alive_millis: int = setting(5_000, least=10, remote=True)  # if a broker names none
    connections_max: int = setting(4_096, least=1, most=1_000_000)

    # TLS, by the names that RocketMQ uses as system properties.
    tls_server_mode: TlsMode = setting(TlsMode.PERMISSIVE, key="tls.server.mode")
    tls_server_cert_path: Path | None = setting(None, key="tls.server.certPath")
    tls_server_key_path: Path | None = setting(None, key="tls.server.keyPath")
    tls_server_trust_cert_path: Path | None = setting(None, key="tls.server.trustCertPath")
    tls_test_mode_enable: bool = setting(default=True, key="tls.test.mode.enable")


def peers_of(config: ControllerConfig) -> dict[str, str]:
    """Address by id, as controllerDLegerPeers names them; ConfigError if it cannot be read."""
    peers: dict[str, str] = {}
    for part in config.controller_d_leger_peers.split(";"):
        if not part.strip():
            continue
        name, dash, address = part.strip().partition("-")
        try:
            split_address(address)
        except ValueError as error:
            raise ConfigError(
                f"controllerDLegerPeers: {part!r}: id-host:port expected: {error}"
            ) from None
        assert dash
        peers[name] = address
    return peers


def check(config: ControllerConfig) -> None:
    """ConfigError for what cannot work, with what to do about it."""
    peers = peers_of(config)
    if peers and config.controller_d_leger_self_id not in peers:
        raise ConfigError(
            f"controllerDLegerSelfId={config.controller_d_leger_self_id} is not among "
            f"controllerDLegerPeers ({', '.join(peers)})"
        )
    if config.controller_etcd_endpoints:
        if not config.controller_etcd_prefix.startswith("/"):
            raise ConfigError(
                f"controllerEtcdPrefix={config.controller_etcd_prefix}: it must begin with a slash"
            )
        if not peers and config.bind_address in {"0.0.0.0", "::"}:
            raise ConfigError(
                f"bindAddress={config.bind_address} tells nobody where this controller is: name "
                "it in controllerDLegerPeers, as n0-10.0.0.1:9878;n1-10.0.0.2:9878"
            )
        etcd_sites(config)
    elif len(peers) > 1:
        raise ConfigError(
            f"controllerDLegerPeers names {len(peers)} controllers: they need an etcd to agree "
            "(controllerEtcdEndpoints=HOST:2379); without one, name this controller alone"
        )


def etcd_sites(config: ControllerConfig) -> list[Site]:
    """The members of etcd that controllerEtcdEndpoints names; none if there is no etcd."""
    sites, tls = [], None
    for part in config.controller_etcd_endpoints.replace(",", ";").split(";"):
        if not part.strip():
            continue
        scheme, _, rest = part.strip().rpartition("://")
        try:
            host, port = split_address(rest.rstrip("/"))
        except ValueError as error:
            raise ConfigError(f"controllerEtcdEndpoints: {part!r}: {error}") from None
        if scheme not in {"", "http", "https"}:
            raise ConfigError(f"controllerEtcdEndpoints: {part!r}: http or https expected")
        if scheme == "https" and tls is None:
            tls = client_context(
                ca=config.controller_etcd_ca_path,
                certificate=config.controller_etcd_cert_path,
                key=config.controller_etcd_key_path,
                keys="controllerEtcdCaPath, controllerEtcdCertPath, controllerEtcdKeyPath",
            )
        sites.append(Site(host, port, tls if scheme == "https" else None))
    return sites


# Keys of Apache's controller that have no effect here: Raft's own, threads, metrics.
IGNORED_KEYS: Final = frozenset(
    {
        "configBlackList",  # we have an allow-list instead
        "controllerRequestThreadPoolQueueCapacity",
        "controllerThreadPoolNums",
        "electMasterMaxRetryCount",  # the scan tries again until it works
        "isProcessReadEvent",
        "jRaftElectionTimeoutMs",
        "jRaftGroupId",
        "jRaftInitConf",
        "jRaftControllerRPCAddr",
        "jRaftScanWaitTimeoutMs",
        "jRaftServerId",
        "jRaftSnapshotIntervalSecs",
        "mappedFileSize",
        "metricGrpcExporterIntervalInMills",
        "metricGrpcExporterTimeOutInMills",
        "metricLoggingExporterIntervalInMills",
        "metricsExporterType",
        "metricsGrpcExporterHeader",
        "metricsGrpcExporterTarget",
        "metricsInDelta",
        "metricsLabel",
        "metricsPromExporterHost",
        "metricsPromExporterPort",
        "rocketmqHome",
    }
)
