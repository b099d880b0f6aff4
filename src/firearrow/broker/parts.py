"""What a broker is made of: every part, made once, with what it needs of the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from firearrow.broker.clients import Clients
from firearrow.broker.config import BrokerRole
from firearrow.broker.delays import DelayService
from firearrow.broker.disk_waits import DiskWaits
from firearrow.broker.filter_marks import MarkSizes
from firearrow.broker.filter_table import FilterTable
from firearrow.broker.filtering import Filtering
from firearrow.broker.group_table import GroupTable
from firearrow.broker.held_pulls import HeldPulls
from firearrow.broker.lanes import Lanes
from firearrow.broker.offset_table import OffsetTable
from firearrow.broker.producer_sequences import ProducerSequences
from firearrow.broker.queue_locks import QueueLocks
from firearrow.broker.registration import Registration
from firearrow.broker.request_modes import RequestModes
from firearrow.broker.rpc_times import RpcTimes
from firearrow.broker.state import BrokerState
from firearrow.broker.statistics import BrokerStatistics
from firearrow.broker.timers import TimerService
from firearrow.broker.topic_table import TopicTable
from firearrow.broker.transactions import TransactionService
from firearrow.filters.server import FilterLimits, FilterServer
from firearrow.replication.progress import SyncRules
from firearrow.replication.replication import Replication
from firearrow.replication.settings import HaSettings
from firearrow.store.store import MessageStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from firearrow.base.runtime import Clock, Service
    from firearrow.broker.config import BrokerConfig
    from firearrow.net.client import RemotingClient
    from firearrow.store.disk import Disk


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Whom the parts tell when something is new."""

    topic: Callable[[str], None]
    groups: Callable[[], None]
    request_modes: Callable[[], None]
    installed_filters: Callable[[], None]
    notify_group: Callable[[str], None]
    reconfigure: Callable[[BrokerConfig, Mapping[str, str]], None]
    election: Callable[[], None]


def make_state(  # noqa: PLR0917 - a broker has this one place to be put together
    config: BrokerConfig,
    clock: Clock,
    tasks: Service,
    disk: Disk | None,
    changes: Changes,
    client: RemotingClient,
) -> BrokerState:
    """Put a broker's parts together; nothing runs yet."""
    store = MessageStore(config, clock, disk=disk)
    root = config.store_path_root_dir.expanduser()
    replication = Replication(store, clock, ha_settings(config), root, config.broker_id)
    topics = TopicTable(clock, changes.topic)
    offsets, clients = OffsetTable(clock), Clients(clock)
    statistics = BrokerStatistics(clock, config.broker_cluster_name)
    lanes, rpc_times = Lanes(config), RpcTimes()
    marks, limits = filter_sizes(config)
    filters = FilterTable(
        clock, marks, keep_dead_ms=lambda: state.config.filter_data_clean_time_span
    )
    server = FilterServer(limits, clock, changes.installed_filters)
    state = BrokerState(
        config=config,
        clock=clock,
        store=store,
        topics=topics,
        groups=GroupTable(clock, changes.groups, auto_create=config.auto_create_subscription_group),
        offsets=offsets,
        clients=clients,
        locks=QueueLocks(clock),
        held=HeldPulls(
            clock,
            limit=config.held_pulls_max,
            limit_of_channel=config.held_pulls_of_connection_max,
            read=store.lookup.slice_at,
        ),
        lanes=lanes,
        request_modes=RequestModes(changes.request_modes),
        filters=filters,
        filtering=Filtering(
            filters, server, lambda: state.config, lambda work: tasks.spawn(work, name="judge")
        ),
        filter_server=server,
        delays=DelayService(config, store, topics, clock),
        timers=TimerService(config, store, topics, clock),
        transactions=TransactionService(
            config,
            store,
            clock,
            topics=topics,
            offsets=offsets,
            clients=clients,
            statistics=statistics,
        ),
        sequences=ProducerSequences(config.deduplication_window, config.deduplication_entries_max),
        replication=replication,
        on_election=changes.election,
        disk_waits=make_disk_waits(config, store, clock, lanes, replication, rpc_times),
        registration=Registration(config, topics, client, tasks, clock),
        statistics=statistics,
        rpc_times=rpc_times,
        notify_group=changes.notify_group,
        reconfigure=changes.reconfigure,
    )
    return state


def make_disk_waits(  # noqa: PLR0917 - what it waits for, and who hears of it
    config: BrokerConfig,
    store: MessageStore,
    clock: Clock,
    lanes: Lanes,
    replication: Replication,
    rpc_times: RpcTimes,
) -> DiskWaits:
    return DiskWaits(
        store,
        clock,
        lanes.send,
        replication.progress,
        timeout_ms=config.sync_flush_timeout,
        slaves_timeout_ms=config.slave_timeout,
        busy_ms=config.os_page_cache_busy_time_out_mills,
        observe=rpc_times.stored,
    )


def make_deliveries(state: BrokerState) -> None:
    """New ones, for a broker that becomes a master: nothing of an earlier life counts."""
    config, store, clock = state.config, state.store, state.clock
    state.delays = DelayService(config, store, state.topics, clock)
    state.timers = TimerService(config, store, state.topics, clock)
    state.sequences = ProducerSequences(
        config.deduplication_window, config.deduplication_entries_max
    )
    state.transactions = TransactionService(
        config,
        store,
        clock,
        topics=state.topics,
        offsets=state.offsets,
        clients=state.clients,
        statistics=state.statistics,
    )


def filter_sizes(config: BrokerConfig) -> tuple[MarkSizes, FilterLimits]:
    """What filters may take, in files and in processes."""
    marks = MarkSizes.of(
        config.max_error_rate_of_bloom_filter, config.expect_consumer_num_use_filter
    )
    limits = FilterLimits(
        config.filter_server_nums, config.filter_memory_bytes, config.filter_batch_millis
    )
    return marks, limits


def ha_settings(config: BrokerConfig) -> HaSettings:
    return HaSettings(
        transfer_bytes=config.ha_transfer_batch_size,
        heartbeat_ms=config.ha_send_heartbeat_interval,
        silence_ms=config.ha_housekeeping_interval,
        followers_max=config.ha_connections_max,
        with_epochs=config.enable_controller_mode,
        from_last_file=config.sync_from_last_file,
        is_learner=config.async_learner,
    )


def sync_rules(config: BrokerConfig) -> SyncRules:
    """By whom a message must be held, in the role that the broker has now."""
    with_set = config.enable_controller_mode and config.all_ack_in_sync_state_set
    is_sync = config.broker_role is BrokerRole.SYNC_MASTER
    by_rule_4 = config.in_sync_replicas == 0 and not config.enable_controller_mode
    return SyncRules(
        waits=is_sync and (with_set or by_rule_4 or config.in_sync_replicas > 1),
        replicas=config.in_sync_replicas,
        replicas_min=config.min_in_sync_replicas,
        is_auto=config.enable_auto_in_sync_replicas,
        whole_set=with_set,
        gap_max=config.ha_slave_fallbehind_max if by_rule_4 else config.ha_max_gap_not_in_sync,
        late_ms=config.ha_max_time_slave_not_catchup,
    )
