"""Settings of the name server: RocketMQ's keys, and a few of our own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from firearrow.base.config import setting
from firearrow.metrics.settings import MetricsExporter
from firearrow.net.tls import TlsMode

HOME: Final = Path("~/namesrv")  # where Apache's name server keeps its two files


@dataclass(frozen=True, slots=True)
class NameServerConfig:
    listen_port: int = setting(9876, least=0, most=65535)
    bind_address: str = setting("127.0.0.1")  # Apache: all interfaces
    kv_config_path: Path = setting(HOME / "kvConfig.json")
    config_store_path: Path = setting(HOME / "namesrv.properties")
    product_env_name: str = setting("center")
    cluster_test: bool = setting(default=False)
    order_message_enable: bool = setting(default=False, remote=True)
    return_order_topic_config_to_broker: bool = setting(default=True, remote=True)
    support_acting_master: bool = setting(default=False, remote=True)
    enable_topic_list: bool = setting(default=True, remote=True)
    enable_all_topic_list: bool = setting(default=True, remote=True)
    notify_min_broker_id_changed: bool = setting(default=False, remote=True)
    delete_topic_with_broker_registration: bool = setting(default=False, remote=True)
    need_wait_for_service: bool = setting(default=False, remote=True)
    wait_seconds_for_service: int = setting(45, remote=True, least=0, most=3600)
    enable_controller_in_namesrv: bool = setting(default=False)  # heeded by the command line
    scan_not_active_broker_interval: int = setting(10_000, least=10, most=3_600_000)
    server_channel_max_idle_time_seconds: int = setting(120, least=1, most=86_400)

    # Ours. Apache has the first two as constants.
    broker_expired_millis: int = setting(120_000, remote=True, least=100, most=86_400_000)
    kv_print_interval_millis: int = setting(600_000, least=100, most=86_400_000)
    connections_max: int = setting(16_384, least=1, most=1_000_000)
    frame_bytes_max: int = setting(16 * 1024 * 1024, least=1024, most=128 * 1024 * 1024)
    header_bytes_max: int = setting(1024 * 1024, least=1024, most=16 * 1024 * 1024 - 1)
    write_stall_millis: int = setting(30_000, least=100, most=3_600_000)
    metrics_exporter_type: MetricsExporter = setting(MetricsExporter.DISABLE)
    metrics_prom_exporter_port: int = setting(5558, least=0, most=65535)  # 0 takes a free one
    metrics_prom_exporter_host: str | None = setting(None)  # else the bind address

    # TLS, by the names that RocketMQ uses as system properties.
    tls_server_mode: TlsMode = setting(TlsMode.PERMISSIVE, key="tls.server.mode")
    tls_server_cert_path: Path | None = setting(None, key="tls.server.certPath")
    tls_server_key_path: Path | None = setting(None, key="tls.server.keyPath")
    tls_server_trust_cert_path: Path | None = setting(None, key="tls.server.trustCertPath")
    tls_test_mode_enable: bool = setting(default=True, key="tls.test.mode.enable")


# Keys of Apache's name server that configure its threads and buffers; we have none of those.
IGNORED_KEYS: Final = frozenset(
    {
        "clientRequestThreadPoolNums",
        "clientRequestThreadPoolQueueCapacity",
        "configBlackList",  # we have an allow-list instead
        "defaultThreadPoolNums",
        "defaultThreadPoolQueueCapacity",
        "rocketmqHome",
        "serverAsyncSemaphoreValue",
        "serverCallbackExecutorThreads",
        "serverNettyWorkerGroupEnable",
        "serverOnewaySemaphoreValue",
        "serverPooledByteBufAllocatorEnable",
        "serverSelectorThreads",
        "serverSocketBacklog",
        "serverSocketRcvBufSize",
        "serverSocketSndBufSize",
        "serverWorkerThreads",
        "unRegisterBrokerQueueCapacity",
        "useEpollNativeSelector",
        "writeBufferHighWaterMark",
        "writeBufferLowWaterMark",
    }
)
