"""What a broker says about its run: the table that `mqadmin brokerStatus` and dashboards read.

All values are text. Every key of Apache's table is here; those about machinery that we do not have
(timer wheel, transient pool, thread pools) say what holds for us.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from firearrow.broker.config import BrokerRole
from firearrow.model.topic import SCHEDULE_TOPIC, TIMER_TOPIC
from firearrow.wire import bodies
from firearrow.wire.codes import VERSION_OURS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from firearrow.broker.state import BrokerState

VERSION_TEXT: Final = "V5_3_3"  # what our version number means in RocketMQ's table
INT_MAX: Final = (1 << 31) - 1
UNITS: Final = "KMGTPE"
TIME_RANGES: Final = {  # upper ends in ms, as RocketMQ divides them
    0: "<=0ms",
    10: "0~10ms",
    50: "10~50ms",
    100: "50~100ms",
    200: "100~200ms",
    500: "200~500ms",
    1_000: "500ms~1s",
    2_000: "1~2s",
    3_000: "2~3s",
    4_000: "3~4s",
    5_000: "4~5s",
    10_000: "5~10s",
}


def runtime_info(state: BrokerState) -> dict[str, str]:
    state.statistics.collect()
    table: dict[str, str] = {}
    parts = (_identity, _store, _traffic, _put_times, _lanes, _delays, _open, _divergent)
    for part in (*parts, _replication):
        table |= part(state)
    return table


def _identity(state: BrokerState) -> dict[str, str]:
    up_s = (state.clock.now_ms() - state.statistics.started_ms) // 1000
    return {
        "brokerVersionDesc": VERSION_TEXT,
        "brokerVersion": str(VERSION_OURS),
        "brokerActive": "true",
        "bootTimestamp": str(state.statistics.started_ms),
        "runtime": (
            f"[ {up_s // 86_400} days, {up_s // 3600 % 24} hours, "
            f"{up_s // 60 % 60} minutes, {up_s % 60} seconds ]"
        ),
        "startAcceptSendRequestTimeStamp": "0",
    }


def _store(state: BrokerState) -> dict[str, str]:
    store = state.store.statistics()
    used, free = state.store.disk_usage()
    ratio = f"{used / (used + free):.4f}" if used + free else "0.0"
    oldest = state.store.lookup.record_at(store.min_offset)
    return {
        "commitLogMinOffset": str(store.min_offset),
        "commitLogMaxOffset": str(store.end_offset),
        "dispatchBehindBytes": str(store.end_offset - store.dispatched_offset),
        "dispatchMaxBuffer": "0",
        "remainHowManyDataToFlush": human_size(store.end_offset - store.flushed_offset),
        "remainHowManyDataToCommit": human_size(0),
        "remainTransientStoreBufferNumbs": str(INT_MAX),
        "commitLogDiskRatio": ratio,
        f"commitLogDiskRatio_{state.store.log_folder}": ratio,
        "consumeQueueDiskRatio": ratio,
        "commitLogDirCapacity": f"Total : {human_size(used + free)}, Free : {human_size(free)}.",
        "earliestMessageTimeStamp": "-1" if oldest is None else str(oldest.store_timestamp),
        "pageCacheLockTimeMills": str(state.store.syncing_ms()),
    }


def _traffic(state: BrokerState) -> dict[str, str]:
    statistics = state.statistics
    rates = statistics.rates()
    totals = statistics.totals
    puts = statistics.puts.count
    found, missed = rates["found"], rates["missed"]
    return {
        "putTps": rate_text(rates["puts"]),
        "getFoundTps": rate_text(found),
        "getMissTps": rate_text(missed),
        "getTotalTps": rate_text(a + b for a, b in zip(found, missed, strict=True)),
        "getTransferredTps": rate_text(rates["transferred"]),
        "msgPutTotalYesterdayMorning": str(statistics.yesterday_morning.puts),
        "msgPutTotalTodayMorning": str(statistics.today_morning.puts),
        "msgPutTotalTodayNow": str(totals.puts),
        "msgGetTotalYesterdayMorning": str(statistics.yesterday_morning.gets),
        "msgGetTotalTodayMorning": str(statistics.today_morning.gets),
        "msgGetTotalTodayNow": str(totals.gets),
        "putMessageTimesTotal": str(puts),
        "putMessageFailedTimes": str(statistics.put_failures),
        "putMessageSizeTotal": str(statistics.put_bytes),
        "putMessageAverageSize": str(statistics.put_bytes / puts if puts else 0.0),
        # A get is an append to a socket's buffer; what may keep it waiting is a late loop.
        "getMessageEntireTimeMax": str(statistics.lag_ms),
    }


def _put_times(state: BrokerState) -> dict[str, str]:
    """A put takes microseconds, and then as long as the sync that its sender waits for, if any."""
    times = sorted(state.store.statistics().sync_times_ms) if state.store.waits_for_disk else []
    return {
        "putMessageEntireTimeMax": str(times[-1] if times else 0),
        "putMessageDistributeTime": distribution(times),
        "putLatency99": f"{percentile(times, 0.99):.2f}",
        "putLatency999": f"{percentile(times, 0.999):.2f}",
    }


def _lanes(state: BrokerState) -> dict[str, str]:
    """Requests are served as they are read, so none waits but for a late loop, or for the disk."""
    table = {}
    lanes = state.lanes
    for name, lane in (
        ("send", lanes.send),
        ("pull", lanes.pull),
        ("litePull", lanes.lite_pull),
        ("query", lanes.query),
        ("ack", lanes.ack),
    ):
        wait_ms = state.statistics.lag_ms
        if lane is lanes.send and lane.in_progress:
            wait_ms = max(wait_ms, state.store.syncing_ms())
        table[f"{name}ThreadPoolQueueSize"] = str(lane.in_progress)
        table[f"{name}ThreadPoolQueueCapacity"] = str(lane.requests_max)
        table[f"{name}ThreadPoolQueueHeadWaitTimeMills"] = str(wait_ms)
    table["EndTransactionQueueSize"] = str(lanes.end_transaction.in_progress)
    table["EndTransactionThreadPoolQueueCapacity"] = str(lanes.end_transaction.requests_max)
    return table


def _delays(state: BrokerState) -> dict[str, str]:
    timers = state.timers
    most = state.store.lookup.max_offset(TIMER_TOPIC, 0)
    table = {
        "timerReadBehind": str(timers.behind_ms // 1_000),
        "timerOffsetBehind": str(max(0, most - timers.queue_offset) if timers.is_enabled else 0),
        "timerCongestNum": str(timers.counts.total),
        "timerEnqueueTps": f"{timers.counts.enqueue_rate:.1f}",
        "timerDequeueTps": f"{timers.counts.dequeue_rate:.1f}",
    }
    for level in range(1, len(state.delays.levels_ms) + 1):
        most = state.store.lookup.max_offset(SCHEDULE_TOPIC, level - 1)
        if most > 0:
            table[f"scheduleMessageOffset_{level}"] = f"{state.delays.offset(level)},{most}"
    return table


def _open(state: BrokerState) -> dict[str, str]:
    """Ours: half messages that wait for their end, and how long the oldest has been waiting."""
    halves = list(state.transactions.halves)
    born_ms = min((half.born_ms for half in halves), default=state.clock.now_ms())
    table = {
        "openTransactions": str(len(halves)),
        "openTransactionAgeMax": str(max(0, state.clock.now_ms() - born_ms)),
        "transactionChecks": str(state.transactions.asked),
        "parkedTransactions": str(state.transactions.parked),
    }
    for topic, count in sorted(state.transactions.halves.by_topic.items()):
        table[f"openTransactions_{topic}"] = str(count)
    return table


def _divergent(state: BrokerState) -> dict[str, str]:
    """Ours: groups whose members subscribe to different things, and so lose messages."""
    names = (name for name, group in state.clients.consumers.items() if group.divergences())
    return {"divergentSubscriptionGroups": ",".join(sorted(names))}


def rate_text(rates: Iterable[float]) -> str:
    """Three numbers as tools split them: over 10 s, 60 s and 600 s."""
    return " ".join(f"{rate:.4f}" for rate in rates)


def percentile(times: Sequence[int], share: float) -> int:
    """The time within which such a share of them was done; they are sorted."""
    return times[min(len(times) - 1, int(len(times) * share))] if times else 0


def distribution(times: Iterable[int]) -> str:
    """How many took how long: ``[<=0ms]:3 [0~10ms]:1 …``."""
    ends = list(TIME_RANGES)
    counts = [0] * (len(ends) + 1)
    for took_ms in times:
        counts[bisect_left(ends, took_ms)] += 1
    names = [*TIME_RANGES.values(), "10s~"]
    return " ".join(f"[{name}]:{count}" for name, count in zip(names, counts, strict=True))


def human_size(size: int) -> str:
    """``1.5 KiB``, as RocketMQ writes sizes."""
    if size < 1024:
        return f"{size} B"
    power = min(len(UNITS), (size.bit_length() - 1) // 10)
    return f"{size / (1 << 10 * power):.1f} {UNITS[power - 1]}iB"


def ha_status(state: BrokerState) -> bodies.HARuntimeInfo:
    """Replication as `mqadmin haStatus` reads it: a master's slaves, or a slave's link."""
    replication = state.replication
    end = replication.max_offset
    if state.config.broker_role is BrokerRole.SLAVE:
        link = replication.follower.state
        return bodies.HARuntimeInfo(
            master=False,
            ha_client_runtime_info=bodies.HAClientRuntimeInfo(
                master_addr=replication.follower.master_address or None,
                transferred_byte_in_second=link.bytes_per_second,
                max_offset=end,
                last_read_timestamp=link.read_ms,
                last_write_timestamp=link.written_ms,
            ),
        )
    in_sync = replication.progress.in_sync()
    return bodies.HARuntimeInfo(
        master=True,
        master_commit_log_max_offset=end,
        in_sync_slave_nums=len(in_sync),
        ha_connection_info=tuple(
            bodies.HAConnectionRuntimeInfo(
                addr=follower.address,
                slave_ack_offset=follower.acked,
                diff=end - follower.acked,
                in_sync=follower in in_sync,
                transferred_byte_in_second=follower.bytes_per_second,
                transfer_from_where=follower.sent,
            )
            for follower in replication.followers()
        ),
    )


def _replication(state: BrokerState) -> dict[str, str]:
    """Ours: role and lag, for those who look at one broker only."""
    replication = state.replication
    table = {
        "brokerRole": state.config.broker_role.value.upper(),
        "masterEpoch": str(replication.epochs.last_epoch),
        "confirmOffset": str(replication.confirm_offset),
    }
    if state.config.broker_role is BrokerRole.SLAVE:
        table["masterHaAddress"] = replication.follower.master_address
        table["masterIsConnected"] = str(replication.follower.state.is_connected).lower()
        return table
    end = replication.max_offset
    slaves = replication.followers()
    table["slaves"] = str(len(slaves))
    table["slaveLagBytesMax"] = str(max((end - one.acked for one in slaves), default=0))
    return table
