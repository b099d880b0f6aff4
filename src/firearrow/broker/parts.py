"""What a broker is made of: every part, made once, with what it needs of the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from firearrow.broker.clients import Clients
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
from firearrow.broker.state import BrokerState
from firearrow.broker.statistics import BrokerStatistics
from firearrow.broker.timers import TimerService
from firearrow.broker.topic_table import TopicTable
from firearrow.broker.transactions import TransactionService
from firearrow.filters.server import FilterLimits, FilterServer
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
    topics = TopicTable(clock, changes.topic)
    offsets, clients = OffsetTable(clock), Clients(clock)
    statistics = BrokerStatistics(clock, config.broker_cluster_name)
    lanes = Lanes(config)
    marks, limits = filter_sizes(config)
    filters = FilterTable(
        clock, marks, keep_dead_ms=lambda: state.config.filter_data_clean_time_span
    )
    server = FilterServer(limits, clock, changes.installed_filters)
    auto_create = config.auto_create_subscription_group
    state = BrokerState(
        config=config,
        clock=clock,
        store=store,
        topics=topics,
        groups=GroupTable(clock, changes.groups, auto_create=auto_create),
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
        disk_waits=DiskWaits(
            store,
            clock,
            lanes.send,
            timeout_ms=config.sync_flush_timeout,
            busy_ms=config.os_page_cache_busy_time_out_mills,
        ),
        registration=Registration(config, topics, client, tasks, clock),
        statistics=statistics,
        notify_group=changes.notify_group,
        reconfigure=changes.reconfigure,
    )
    return state


def filter_sizes(config: BrokerConfig) -> tuple[MarkSizes, FilterLimits]:
    """What filters may take, in files and in processes."""
    marks = MarkSizes.of(
        config.max_error_rate_of_bloom_filter, config.expect_consumer_num_use_filter
    )
    limits = FilterLimits(
        config.filter_server_nums, config.filter_memory_bytes, config.filter_batch_millis
    )
    return marks, limits
