"""Which topics and groups there are, kept for a while: lists never ask one question per line."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from firearrow.base.errors import FirearrowError
from firearrow.console.data.paging import Page, Query, page_of
from firearrow.model.group import is_system_group
from firearrow.model.topic import (
    group_of_retry_topic,
    is_dlq_topic,
    is_retry_topic,
    is_system_topic,
    reply_topic,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from firearrow.base.runtime import Clock
    from firearrow.client.admin import Admin
    from firearrow.client.admin_results import BrokerInfo, GroupLag
    from firearrow.model.group import SubscriptionGroupConfig
    from firearrow.model.topic import TopicConfig

T = TypeVar("T")

log = logging.getLogger(__name__)

FRESH_MS: Final = 5_000  # how old an answer may be
REST: Final = 10  # a look that took a second is not repeated for ten
TOPIC_KINDS: Final = ("normal", "fifo", "delay", "transaction", "retry", "dlq", "system")


class Kept(Generic[T]):
    """A value that is fetched when it is wanted and too old; callers that come together share it.

    While a newer one is fetched, the last one is handed out, unless `fresh` is asked for.
    """

    def __init__(self, fetch: Callable[[], Awaitable[T]], clock: Clock) -> None:
        self._fetch = fetch
        self._clock = clock
        self._value: T | None = None
        self._due_ms = 0
        self._task: asyncio.Task[T] | None = None
        self.fetches = 0

    async def get(self, *, fresh: bool = False) -> T:
        if self._value is not None and not fresh:
            if self._clock.elapsed_ms() >= self._due_ms:
                self._begin().add_done_callback(_seen)
            return self._value
        return await asyncio.shield(self._begin())

    def forget(self) -> None:
        """Something was changed: the next look is a new one."""
        self._value = None

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _begin(self) -> asyncio.Task[T]:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())
        return self._task

    async def _run(self) -> T:
        began_ms = self._clock.elapsed_ms()
        self.fetches += 1
        value = await self._fetch()
        took_ms = self._clock.elapsed_ms() - began_ms
        self._value = value
        self._due_ms = self._clock.elapsed_ms() + max(FRESH_MS, REST * took_ms)
        return value


def _seen(task: asyncio.Task[T]) -> None:
    """A failure in the background shows at the next look; nobody waits for this one."""
    if not task.cancelled():
        task.exception()


@dataclass(frozen=True, slots=True)
class TopicRow:
    name: str
    kind: str
    brokers: tuple[str, ...]
    read_queues: int  # on all brokers
    write_queues: int
    perm: int
    order: bool


@dataclass(frozen=True, slots=True)
class GroupRow:
    name: str
    brokers: tuple[str, ...]
    enabled: bool
    orderly: bool
    retry_max: int
    system: bool
    lag: int = 0
    in_flight: int = 0
    tps: float = 0.0
    topics: tuple[str, ...] = ()
    divergent: bool = False


@dataclass(frozen=True, slots=True)
class Topics:
    rows: list[TopicRow] = field(default_factory=list)
    by_name: dict[str, TopicRow] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Groups:
    rows: list[GroupRow] = field(default_factory=list)
    by_name: dict[str, GroupRow] = field(default_factory=dict)


def topic_kind(name: str, configs: Mapping[str, TopicConfig], own: frozenset[str]) -> str:
    if is_dlq_topic(name):
        return "dlq"
    if is_retry_topic(name):
        return "retry"
    if is_system_topic(name) or name in own:
        return "system"
    for config in configs.values():
        kind = config.attributes.get("message.type", "").lower()
        if kind in TOPIC_KINDS:
            return kind
    return "normal"


def topic_rows(
    table: Mapping[str, Mapping[str, TopicConfig]], own: frozenset[str]
) -> list[TopicRow]:
    """`own` are topics that are named after clusters and brokers."""
    return [
        TopicRow(
            name=name,
            kind=topic_kind(name, configs, own),
            brokers=tuple(sorted(configs)),
            read_queues=sum(one.read_queue_nums for one in configs.values()),
            write_queues=sum(one.write_queue_nums for one in configs.values()),
            perm=max(one.perm for one in configs.values()),
            order=any(one.order for one in configs.values()),
        )
        for name, configs in sorted(table.items())
        if configs
    ]


def divergent_groups(brokers: Iterable[BrokerInfo]) -> frozenset[str]:
    """Groups whose members want different things, as brokers tell."""
    return frozenset(
        name
        for broker in brokers
        for name in broker.runtime.get("divergentSubscriptionGroups", "").split(",")
        if name
    )


def group_rows(
    table: Mapping[str, Mapping[str, SubscriptionGroupConfig]],
    lags: Mapping[str, GroupLag],
    divergent: frozenset[str],
) -> list[GroupRow]:
    rows = []
    for name, configs in sorted(table.items()):
        lag = lags.get(name)
        topics = () if lag is None else tuple(sorted(lag.by_topic))
        rows.append(
            GroupRow(
                name=name,
                brokers=tuple(sorted(configs)),
                enabled=all(one.consume_enable for one in configs.values()),
                orderly=any(one.consume_message_orderly for one in configs.values()),
                retry_max=max((one.retry_max_times for one in configs.values()), default=0),
                system=is_system_group(name),
                lag=0 if lag is None else lag.total,
                in_flight=0 if lag is None else sum(one.in_flight for one in lag.queues),
                tps=0.0 if lag is None else lag.consume_tps,
                topics=tuple(one for one in topics if not is_retry_topic(one)),
                divergent=name in divergent,
            )
        )
    return rows


class Catalog:
    """Topics and groups of a cluster, a request to each broker for all of them."""

    def __init__(self, admin: Admin, clock: Clock) -> None:
        self._admin = admin
        self._topics: Kept[Topics] = Kept(self._fetch_topics, clock)
        self._groups: Kept[Groups] = Kept(self._fetch_groups, clock)

    async def topics(self, *, fresh: bool = False) -> Topics:
        return await self._topics.get(fresh=fresh)

    async def groups(self, *, fresh: bool = False) -> Groups:
        return await self._groups.get(fresh=fresh)

    async def topic_page(self, query: Query, *, system: bool = False) -> Page[TopicRow]:
        """`system` shows RocketMQ's own as well, unless a kind is asked for."""
        rows = (await self.topics()).rows
        if not system and not query.kind:
            rows = [row for row in rows if row.kind not in {"system", "retry", "dlq"}]
        return page_of(
            rows,
            query,
            text=lambda row: row.name,
            kind=lambda row: row.kind,
            keys={
                "kind": lambda row: row.kind,
                "queues": lambda row: row.write_queues,
                "perm": lambda row: row.perm,
            },
        )

    async def group_page(self, query: Query, *, system: bool = False) -> Page[GroupRow]:
        rows = (await self.groups()).rows
        if not system:
            rows = [row for row in rows if not row.system]
        return page_of(
            rows,
            query,
            text=lambda row: row.name,
            kind=lambda row: "divergent" if row.divergent else "behind" if row.lag else "",
            keys={
                "lag": lambda row: row.lag,
                "tps": lambda row: row.tps,
                "topics": lambda row: len(row.topics),
            },
        )

    async def dlq_groups(self) -> list[str]:
        """Groups that have a dead-letter queue."""
        rows = (await self.topics()).rows
        found = (group_of_retry_topic(row.name) for row in rows if row.kind == "dlq")
        return sorted(group for group in found if group)

    def changed(self) -> None:
        """Somebody has written something: look again."""
        self._topics.forget()
        self._groups.forget()

    async def close(self) -> None:
        await self._topics.close()
        await self._groups.close()

    async def _fetch_topics(self) -> Topics:
        table = await self._admin.topic_configs()
        info = await self._admin.clusters()
        own = frozenset({*info.cluster_addr_table, *info.broker_addr_table})
        own |= {reply_topic(cluster) for cluster in info.cluster_addr_table}
        rows = topic_rows(table, own)
        return Topics(rows, {row.name: row for row in rows})

    async def _lags(self) -> dict[str, GroupLag]:
        """Lags of all groups; without them where the answer is too large to be read."""
        try:
            return await self._admin.group_lags()
        except FirearrowError as error:
            log.warning("groups are listed without their lag: %s", error)
            return {}

    async def _fetch_groups(self) -> Groups:
        table, lags, brokers = await asyncio.gather(
            self._admin.group_configs(), self._lags(), self._admin.brokers()
        )
        rows = group_rows(table, lags, divergent_groups(brokers))
        return Groups(rows, {row.name: row for row in rows})
