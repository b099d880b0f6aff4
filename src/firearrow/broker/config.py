"""Settings of a broker: RocketMQ's keys and defaults, those of its store included."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path  # noqa: TC003 - settings are read by their annotations

from firearrow.base.config import setting
from firearrow.metrics.settings import MetricsExporter
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
    broker_ip2: str | None = setting(None, key="brokerIP2")  # what slaves are told; else brokerIP1
    ha_listen_port: int = setting(0, least=0, most=65535)  # 0: the port above the broker's
    broker_config_path: Path | None = setting(None)
    # Apache: 256 KiB and 32 messages, from disk 64 KiB and 8. No pull gets more than it asks for,
    # and ordinary consumers ask for 32; bulk readers ask for more, and a pull costs us little.
    max_transfer_bytes_on_message_in_memory: int = setting(1_048_576, least=1, remote=True)
    max_transfer_count_on_message_in_memory: int = setting(1_024, least=1, remote=True)
    max_transfer_bytes_on_message_in_disk: int = setting(262_144, least=1, remote=True)
    max_transfer_count_on_message_in_disk: int = setting(256, least=1, remote=True)
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
    # Apache: false, so that nobody can read what only a slave has left.
    slave_read_enable: bool = setting(default=True, remote=True)
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

    ha_master_address: str = setting("")  # else name servers say where it is
    ha_transfer_batch_size: int = setting(32 * 1024, least=1024, most=64 << 20)
    ha_send_heartbeat_interval: int = setting(5_000, least=100)
    ha_housekeeping_interval: int = setting(20_000, least=1_000)
    ha_connections_max: int = setting(64, least=1)  # ours: slaves of a master
    # Apache: 1, which waits for no slave. Here 0 means what SYNC_MASTER meant in RocketMQ 4: one
    # slave must have a message, too, and without any the answer is SLAVE_NOT_AVAILABLE.
    in_sync_replicas: int = setting(0, least=0, most=64, remote=True)
    min_in_sync_replicas: int = setting(1, least=1, most=64, remote=True)
    enable_auto_in_sync_replicas: bool = setting(default=False, remote=True)
    slave_timeout: int = setting(3_000, least=1, remote=True)
    ha_slave_fallbehind_max: int = setting(256 << 20, least=1, remote=True)
    ha_max_gap_not_in_sync: int = setting(256 << 20, least=1, remote=True)
    ha_max_time_slave_not_catchup: int = setting(5_000, least=100, remote=True)  # Apache: 15 s
    # Apache: false, so that a fail-over may lose what producers were told is stored.
    all_ack_in_sync_state_set: bool = setting(default=True, remote=True)
    enable_controller_mode: bool = setting(default=False)
    controller_addr: str = setting("")  # host:port, several separated by semicolons
    broker_heartbeat_interval: int = setting(1_000, least=10)
    controller_heart_beat_timeout_mills: int = setting(4_000, least=100)  # Apache: 10 s
    broker_election_priority: int = setting((1 << 31) - 1, least=0)  # the lower the better
    sync_from_last_file: bool = setting(default=False)
    async_learner: bool = setting(default=False)
    offset_check_in_slave: bool = setting(default=False, remote=True)
    slave_sync_interval: int = setting(3_000, least=100)  # ours; tables of the master
    sync_broker_metadata_period: int = setting(10_000, least=100)  # those that are large

    flush_consumer_offset_interval: int = setting(5_000, least=10)
    flush_filter_data_interval: int = setting(10_000, least=10)  # ours; 10 s in Apache
    flush_delay_offset_interval: int = setting(10_000, least=10)
    transaction_metric_flush_interval: int = setting(10_000, least=10)
    register_name_server_period: int = setting(30_000, least=10_000, most=60_000)
    register_broker_timeout_mills: int = setting(24_000, least=1)
    use_server_side_reset_offset: bool = setting(default=True, remote=True)
    channel_expired_timeout: int = setting(120_000, least=1_000)

    metrics_exporter_type: MetricsExporter = setting(MetricsExporter.DISABLE)
    metrics_prom_exporter_port: int = setting(5557, least=0, most=65535)  # 0 takes a free one
    metrics_prom_exporter_host: str | None = setting(None)  # else the bind address

    connections_max: int = setting(16_384, least=1, most=1_000_000)
    tls_server_mode: TlsMode = setting(TlsMode.PERMISSIVE, key="tls.server.mode")
    tls_server_cert_path: Path | None = setting(None, key="tls.server.certPath")
    tls_server_key_path: Path | None = setting(None, key="tls.server.keyPath")
    tls_server_trust_cert_path: Path | None = setting(None, key="tls.server.trustCertPath")
    tls_test_mode_enable: bool = setting(default=True, key="tls.test.mode.enable")
