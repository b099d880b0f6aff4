"""Settings of a broker: RocketMQ's keys and defaults, those of its store included."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path  # noqa: TC003 - settings are read by their annotations

from firearrow.base.config import setting
from firearrow.net.tls import TlsMode
from firearrow.store.config import StoreConfig


class BrokerRole(StrEnum):
    ASYNC_MASTER = "async_master"
    SYNC_MASTER = "sync_master"
    SLAVE = "slave"


@dataclass(frozen=True, slots=True)
class BrokerConfig(StoreConfig):
    broker_cluster_name: str = setting("DefaultCluster")
    broker_name: str = setting("broker-a")
    broker_id: int = setting(0, least=0)
    broker_role: BrokerRole = setting(BrokerRole.ASYNC_MASTER)
    broker_permission: int = setting(6, least=0, most=7, remote=True)
    namesrv_addr: str = setting("")  # host:port, several separated by semicolons
    listen_port: int = setting(10911, least=0, most=65535)
    bind_address: str = setting("127.0.0.1")  # Apache: all interfaces
    broker_ip1: str | None = setting(None, key="brokerIP1")  # what clients are told; else the bind
    ha_listen_port: int = setting(0, least=0, most=65535)  # 0: the port above the broker's
    broker_config_path: Path | None = setting(None)
    region_id: str = setting("DefaultRegion")
    trace_on: bool = setting(default=True)

    auto_create_topic_enable: bool = setting(default=True, remote=True)
    default_topic_queue_nums: int = setting(8, least=1, remote=True)
    auto_create_subscription_group: bool = setting(default=True, remote=True)
    cluster_topic_enable: bool = setting(default=True)
    broker_topic_enable: bool = setting(default=True)
    trace_topic_enable: bool = setting(default=False)
    msg_trace_topic_name: str = setting("RMQ_SYS_TRACE_TOPIC")
    store_reply_message_enable: bool = setting(default=True, remote=True)
    reject_transaction_message: bool = setting(default=False, remote=True)
    recall_message_enable: bool = setting(default=False, remote=True)
    enable_property_filter: bool = setting(default=False, remote=True)
    filter_support_retry: bool = setting(default=False, remote=True)
    filter_data_clean_time_span: int = setting(24 * 3_600_000, least=1, remote=True)
    max_error_rate_of_bloom_filter: int = setting(20, least=1, most=99)
    expect_consumer_num_use_filter: int = setting(32, least=1, most=1_000_000)

    filter_server_nums: int = setting(0, least=0, most=64)  # processes for filters in Python
    filter_installers: str = setting("")  # ours: addresses that may install such filters
    filter_memory_bytes: int = setting(256 << 20, least=64 << 20)  # of each of those processes
    filter_batch_millis: int = setting(1_000, least=1, most=10_000)  # for a batch of messages

    transaction_time_out: int = setting(6_000, least=0, remote=True)
    transaction_check_max: int = setting(15, least=1, remote=True)
    transaction_check_interval: int = setting(30_000, least=10, remote=True)
    transaction_op_msg_max_size: int = setting(4_096, least=1, remote=True)
    transaction_op_batch_interval: int = setting(3_000, least=1, remote=True)
    open_transactions_max: int = setting(200_000, least=1, remote=True)  # ours
    # Ours: how many messages of producers that number them are known again, 0 for none.
    deduplication_window: int = setting(1_024, least=1)  # of one producer in one topic
    deduplication_entries_max: int = setting(200_000, least=0)  # of all

    long_polling_enable: bool = setting(default=True, remote=True)
    short_polling_time_mills: int = setting(1_000, least=1, remote=True)
    lite_pull_message_enable: bool = setting(default=True, remote=True)
    slave_read_enable: bool = setting(default=False, remote=True)
    sync_flush_timeout: int = setting(5_000, least=1, remote=True)
    held_pulls_max: int = setting(100_000, least=1)  # ours; Apache has no limit
    held_pulls_of_connection_max: int = setting(20_000, least=1)  # ours: one per queue is usual
    # A sync that takes so long: further sends are told to go elsewhere. Apache measures how long
    # its put lock is held (1 s); a sync may take as long as a send may wait for it.
    os_page_cache_busy_time_out_mills: int = setting(5_000, least=1, remote=True)
    # How many requests of a family may wait.
    send_thread_pool_queue_capacity: int = setting(10_000, least=1)
    pull_thread_pool_queue_capacity: int = setting(100_000, least=1)
    lite_pull_thread_pool_queue_capacity: int = setting(100_000, least=1)
    ack_thread_pool_queue_capacity: int = setting(100_000, least=1)
    query_thread_pool_queue_capacity: int = setting(20_000, least=1)
    heartbeat_thread_pool_queue_capacity: int = setting(50_000, least=1)
    client_manager_thread_pool_queue_capacity: int = setting(1_000_000, least=1)
    consumer_manager_thread_pool_queue_capacity: int = setting(1_000_000, least=1)
    end_transaction_pool_queue_capacity: int = setting(100_000, least=1)
    reply_thread_pool_queue_capacity: int = setting(10_000, least=1)
    admin_broker_thread_pool_queue_capacity: int = setting(10_000, least=1)

    flush_consumer_offset_interval: int = setting(5_000, least=10)
    flush_filter_data_interval: int = setting(10_000, least=10)  # ours; 10 s in Apache
    flush_delay_offset_interval: int = setting(10_000, least=10)
    register_name_server_period: int = setting(30_000, least=10_000, most=60_000)
    register_broker_timeout_mills: int = setting(24_000, least=1)
    use_server_side_reset_offset: bool = setting(default=True, remote=True)
    channel_expired_timeout: int = setting(120_000, least=1_000)

    connections_max: int = setting(16_384, least=1, most=1_000_000)
    tls_server_mode: TlsMode = setting(TlsMode.PERMISSIVE, key="tls.server.mode")
    tls_server_cert_path: Path | None = setting(None, key="tls.server.certPath")
    tls_server_key_path: Path | None = setting(None, key="tls.server.keyPath")
    tls_server_trust_cert_path: Path | None = setting(None, key="tls.server.trustCertPath")
    tls_test_mode_enable: bool = setting(default=True, key="tls.test.mode.enable")
