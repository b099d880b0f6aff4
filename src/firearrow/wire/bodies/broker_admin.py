"""What a broker reports about itself: statistics, replication, timers."""

import struct
from typing import Final, NamedTuple

import msgspec

from firearrow.base.errors import PeerProtocolError
from firearrow.model.topic import DataVersion
from firearrow.wire.header import Int32, Int64


class BrokerStatsItem(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    sum: Int64 = 0
    tps: float = 0.0
    avgpt: float = 0.0  # average per time


class BrokerStatsData(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    stats_minute: BrokerStatsItem = BrokerStatsItem()
    stats_hour: BrokerStatsItem = BrokerStatsItem()
    stats_day: BrokerStatsItem = BrokerStatsItem()


class HAConnectionRuntimeInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One slave, as its master sees it."""

    addr: str | None = None
    slave_ack_offset: Int64 = 0
    diff: Int64 = 0
    in_sync: bool = False
    transferred_byte_in_second: Int64 = 0
    transfer_from_where: Int64 = 0


class HAClientRuntimeInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A slave's own view of its link."""

    master_addr: str | None = None
    transferred_byte_in_second: Int64 = 0
    max_offset: Int64 = 0
    last_read_timestamp: Int64 = 0
    last_write_timestamp: Int64 = 0
    master_flush_offset: Int64 = 0


class HARuntimeInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    master: bool = False
    master_commit_log_max_offset: Int64 = 0
    in_sync_slave_nums: Int32 = 0
    ha_connection_info: tuple[HAConnectionRuntimeInfo, ...] = ()
    ha_client_runtime_info: HAClientRuntimeInfo = HAClientRuntimeInfo()


class TimerMetric(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    count: Int64 = 0
    time_stamp: Int64 = 0


class TimerMetrics(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many messages of each topic wait in the timer wheel."""

    data_version: DataVersion = DataVersion()
    timing_count: dict[str, TimerMetric] = {}


class TransactionMetrics(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many transactions of each topic are open."""

    data_version: DataVersion = DataVersion()
    transaction_count: dict[str, TimerMetric] = {}


class OpenTransaction(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Ours: a half message that waits for its end."""

    topic: str  # where it will go
    producer_group: str
    transaction_id: str  # its unique key
    offset_msg_id: str  # of its newest copy
    queue_offset: int  # the same, in the half queue
    born_timestamp: int
    store_timestamp: int
    age: int  # ms since it was born
    checks: int  # how often its producers were asked


class OpenTransactions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    total: int = 0  # that there are, listed or not
    transactions: tuple[OpenTransaction, ...] = ()


class WaitingTimer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One message in the timer."""

    topic: str
    queue_id: Int32
    due_time: Int64
    unique_key: str
    recall_handle: str
    physical_offset: Int64  # of the record that waits
    store_timestamp: Int64
    size: Int32
    tags: str | None = None
    keys: str | None = None


class TimerList(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A page of what waits; there is more while there is a cursor, even if the page is empty."""

    timers: tuple[WaitingTimer, ...] = ()
    cursor: str | None = None


class TimerCheckpoint(NamedTuple):
    """Where the timer stands, for a slave: seven 8-byte integers, not JSON."""

    last_read_time_ms: int
    last_timer_log_flush_pos: int
    last_timer_queue_offset: int
    master_timer_queue_offset: int
    data_version: DataVersion


_TIMER_CHECKPOINT: Final = struct.Struct(">7q")


def decode_timer_checkpoint(body: bytes) -> TimerCheckpoint:
    if len(body) != _TIMER_CHECKPOINT.size:
        raise PeerProtocolError(f"timer checkpoint of {len(body)} bytes; 56 expected")
    read_ms, flushed, queue, master_queue, state_version, timestamp, counter = (
        _TIMER_CHECKPOINT.unpack(body)
    )
    version = DataVersion(state_version=state_version, timestamp=timestamp, counter=counter)
    return TimerCheckpoint(read_ms, flushed, queue, master_queue, version)


def encode_timer_checkpoint(checkpoint: TimerCheckpoint) -> bytes:
    version = checkpoint.data_version
    return _TIMER_CHECKPOINT.pack(
        checkpoint.last_read_time_ms,
        checkpoint.last_timer_log_flush_pos,
        checkpoint.last_timer_queue_offset,
        checkpoint.master_timer_queue_offset,
        version.state_version,
        version.timestamp,
        version.counter,
    )


class FilterInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A filter written in Python, and how it is doing. Ours."""

    name: str
    installed_time: Int64 = 0
    installed_by: str = ""
    judged: Int64 = 0  # messages
    stopped: Int64 = 0  # times
    last_error: str = ""
    source: str | None = None  # for whoever may install filters, and asks for it


class FilterList(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    filters: tuple[FilterInfo, ...] = ()
