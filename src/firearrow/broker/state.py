"""What the processors share: the broker's state, its store and its settings, in one place.

Plain attributes, assembled once by `broker.py`. Nothing here does anything by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from firearrow.base.runtime import Clock
    from firearrow.broker.clients import Clients
    from firearrow.broker.config import BrokerConfig
    from firearrow.broker.delays import DelayService
    from firearrow.broker.disk_waits import DiskWaits
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
    from firearrow.broker.statistics import BrokerStatistics
    from firearrow.broker.timers import TimerService
    from firearrow.broker.topic_table import TopicTable
    from firearrow.broker.transactions import TransactionService
    from firearrow.filters.server import FilterServer
    from firearrow.replication.replication import Replication
    from firearrow.store.store import MessageStore


@dataclass(slots=True)
class BrokerState:
    config: BrokerConfig
    clock: Clock
    store: MessageStore
    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    clients: Clients
    locks: QueueLocks
    held: HeldPulls
    filters: FilterTable
    filtering: Filtering
    filter_server: FilterServer
    request_modes: RequestModes
    lanes: Lanes
    delays: DelayService
    transactions: TransactionService
    sequences: ProducerSequences
    timers: TimerService
    replication: Replication
    on_election: Callable[[], None]  # the controller says that there was one
    disk_waits: DiskWaits
    registration: Registration
    statistics: BrokerStatistics
    rpc_times: RpcTimes
    notify_group: Callable[[str], None]  # members of a group must share their queues anew
    # New settings, and those of them that were asked for: kept, saved and heeded from now on.
    reconfigure: Callable[[BrokerConfig, Mapping[str, str]], None]
    store_host: bytes = b""  # what records say of where they lie
