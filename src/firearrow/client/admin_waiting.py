"""What waits on brokers, as consoles list it: timers, open transactions; and replication.

FireArrow's brokers answer all of it, others some.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from firearrow.client.admin_cluster import together
from firearrow.model.errors import RequestNotSupported, ServerFailed
from firearrow.wire import java_json
from firearrow.wire.bodies import HARuntimeInfo, OpenTransactions, TimerList, TimerMetrics
from firearrow.wire.codes import RequestCode
from firearrow.wire.headers import GetOpenTransactionsRequest, ListTimersRequest

if TYPE_CHECKING:
    from firearrow.wire.bodies import ClusterInfo, OpenTransaction, WaitingTimer
    from firearrow.wire.command import Command
    from firearrow.wire.header import Header

PAGES_MAX: Final = 64  # a page may be empty though there is more


class Asks(Protocol):
    """What an Admin is to these functions."""

    async def clusters(self) -> ClusterInfo: ...

    async def request(
        self, address: str, code: RequestCode, header: Header | None = None
    ) -> Command: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerTransactions:
    """Open transactions of one broker: how many, and the first of them."""

    broker: str
    total: int
    transactions: tuple[OpenTransaction, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerPage:
    """Messages that wait for their time, by broker; cursors lead on where there is more."""

    timers: tuple[tuple[str, WaitingTimer], ...]
    cursors: dict[str, str]


async def masters(admin: Asks) -> dict[str, str]:
    """Addresses of masters, by broker name."""
    table = (await admin.clusters()).broker_addr_table
    return {name: one.master_addr for name, one in sorted(table.items()) if one.master_addr}


async def open_transactions(admin: Asks, limit: int = 100) -> list[BrokerTransactions]:
    """Half messages that wait for their end; nothing of brokers that cannot say."""

    async def ask(name: str, address: str) -> BrokerTransactions | None:
        header = GetOpenTransactionsRequest(max_num=limit)
        try:
            answer = await admin.request(
                address, RequestCode.FIREARROW_GET_OPEN_TRANSACTIONS, header
            )
        except RequestNotSupported:
            return None
        said = java_json.decode(answer.body, OpenTransactions)
        return BrokerTransactions(broker=name, total=said.total, transactions=said.transactions)

    found = await together(ask(name, address) for name, address in (await masters(admin)).items())
    return [one for one in found if one is not None]


async def timer_counts(admin: Asks) -> dict[str, int]:
    """How many messages of each topic wait for their time, on all brokers."""

    async def ask(address: str) -> TimerMetrics:
        try:
            answer = await admin.request(address, RequestCode.GET_TIMER_METRICS)
        except (RequestNotSupported, ServerFailed):  # an old broker, or one without a timer
            return TimerMetrics()
        return java_json.decode(answer.body, TimerMetrics)

    counts: dict[str, int] = {}
    for said in await together(ask(address) for address in (await masters(admin)).values()):
        for topic, metric in said.timing_count.items():
            if metric.count > 0:
                counts[topic] = counts.get(topic, 0) + metric.count
    return counts


async def waiting_timers(
    admin: Asks,
    topic: str,
    *,
    begin_ms: int = 0,
    limit: int = 100,
    cursors: dict[str, str] | None = None,
) -> TimerPage:
    """Messages of a topic that wait for their time, soonest first; RequestNotSupported by Apache.

    With the cursors of an earlier page, what follows it. A broker is asked until it has told of
    `limit` messages, or of all, or often enough.
    """

    async def ask(name: str, address: str) -> tuple[str, TimerList]:
        cursor = (cursors or {}).get(name)
        if cursors is not None and cursor is None:
            return name, TimerList()  # it has told all
        found: list[WaitingTimer] = []
        for _ in range(PAGES_MAX):
            header = ListTimersRequest(
                topic=topic, begin_timestamp=begin_ms, cursor=cursor, max_count=limit - len(found)
            )
            answer = await admin.request(address, RequestCode.LIST_TIMERS, header)
            page = java_json.decode(answer.body, TimerList)
            found += page.timers
            cursor = page.cursor
            if cursor is None or len(found) >= limit:
                break
        return name, TimerList(timers=tuple(found), cursor=cursor)

    found = await together(ask(name, address) for name, address in (await masters(admin)).items())
    timers = [(name, timer) for name, page in found for timer in page.timers]
    return TimerPage(
        timers=tuple(sorted(timers, key=lambda one: one[1].due_time)),
        cursors={name: page.cursor for name, page in found if page.cursor},
    )


async def ha_status(admin: Asks, address: str) -> HARuntimeInfo:
    """Replication as a broker sees it: a master its slaves, a slave its master."""
    answer = await admin.request(address, RequestCode.GET_BROKER_HA_STATUS)
    return java_json.decode(answer.body, HARuntimeInfo)
