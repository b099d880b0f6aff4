"""Filters other than tags that groups have registered, by topic and group; pure state.

Heartbeats bring them, pulls use them, and `config/consumerFilter.json` keeps them, as in RocketMQ:

1. A larger version of a subscription replaces a smaller one; the same version revives a dead one.
2. A filter dies when its group has no member left, or does not list the topic any more.
3. A dead filter is kept for a day, so that a group that comes back finds it as it was.
4. An expression that cannot be compiled is not registered; pulls are told that it is missing.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from firearrow.filters.expression import filter_for
from firearrow.model.errors import BrokerError
from firearrow.model.group import PYTHON, SQL92, SubscriptionData, is_tag_type
from firearrow.model.topic import Int32, Int64

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from firearrow.base.runtime import Clock
    from firearrow.broker.filter_marks import MarkSizes
    from firearrow.filters.sql import SqlFilter

log = logging.getLogger(__name__)

COMPILED_MAX: Final = 1_000  # expressions that are remembered
PARTS_MAX: Final = 50_000  # of all of them; a kilobyte each, or less
SHORT_CHARS: Final = 200  # expressions up to this long are compiled in a few milliseconds
DEAD_SINCE_AT_LEAST_MS: Final = 30_000  # what is loaded died with the last broker, or before


# --- config/consumerFilter.json -------------------------------------------------------------


class BloomFilterData(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    bit_num: Int32 = 0
    bit_pos: tuple[Int32, ...] | None = None


class SavedFilter(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    bloom_filter_data: BloomFilterData | None = None
    born_time: Int64 = 0
    client_version: Int64 = 0
    consumer_group: str
    dead: bool = False
    dead_time: Int64 = 0
    expression: str
    expression_type: str
    topic: str


class SavedTopic(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    group_filter_data: dict[str, SavedFilter] = {}
    topic: str = ""


class SavedFilters(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    filter_data_by_topic: dict[str, SavedTopic] = {}


# --- the table ------------------------------------------------------------------------------


@dataclass(slots=True)
class Registered:
    """The filter of one group for one topic."""

    expression: str
    expression_type: str
    version: int
    born_ms: int
    filter: SqlFilter
    dead_ms: int = 0  # 0: it lives


class FilterTable:
    def __init__(self, clock: Clock, marks: MarkSizes, *, keep_dead_ms: Callable[[], int]) -> None:
        self._clock = clock
        self._marks = marks
        self._keep_dead_ms = keep_dead_ms
        self._filters: dict[tuple[str, str], Registered] = {}
        self._compiled: dict[tuple[str, str], SqlFilter | BrokerError] = {}
        self._parts = 0  # of all expressions that are remembered
        self._compiling = asyncio.Lock()
        self.changed = False  # since somebody last took it off

    # --- compiling --------------------------------------------------------------------------

    def compiled(self, subscription: SubscriptionData) -> SqlFilter:
        """The filter of a subscription, made once: heartbeats and pulls repeat it for ever."""
        key = (subscription.expression_type, subscription.sub_string)
        found = self._compiled.get(key)
        if found is None:
            found = _compile(subscription)
            self._remember(key, found)
        if isinstance(found, BrokerError):
            raise type(found)(str(found))
        return found

    def _remember(self, key: tuple[str, str], found: SqlFilter | BrokerError) -> None:
        parts = 0 if isinstance(found, BrokerError) else found.parts
        if len(self._compiled) >= COMPILED_MAX or self._parts + parts > PARTS_MAX:
            self._compiled.clear()
            self._parts = 0
        self._compiled[key] = found
        self._parts += parts

    def long_ones(self, subscriptions: Iterable[SubscriptionData]) -> list[SubscriptionData]:
        """Those that would hold up everybody while they are compiled: `compile_aside` first."""
        return [
            one
            for one in subscriptions
            if one.expression_type == SQL92
            and len(one.sub_string) > SHORT_CHARS
            and (one.expression_type, one.sub_string) not in self._compiled
        ]

    async def compile_aside(self, subscriptions: Iterable[SubscriptionData]) -> None:
        """Compile in a thread, one after the other; `compiled` finds them."""
        for subscription in subscriptions:
            key = (subscription.expression_type, subscription.sub_string)
            async with self._compiling:
                if key not in self._compiled:
                    self._remember(key, await asyncio.to_thread(_compile, subscription))

    # --- registering ------------------------------------------------------------------------

    def register(self, group: str, subscriptions: Iterable[SubscriptionData]) -> None:
        """What a heartbeat says of a group."""
        listed = set()
        for subscription in subscriptions:
            listed.add(subscription.topic)
            kind = subscription.expression_type
            if not is_tag_type(kind) and kind != PYTHON and subscription.sub_string:
                self._register(group, subscription)
        for (topic, name), known in self._filters.items():
            if name == group and topic not in listed and not known.dead_ms:
                known.dead_ms = self._clock.now_ms()
                self.changed = True

    def _register(self, group: str, wanted: SubscriptionData) -> None:
        key = (wanted.topic, group)
        known = self._filters.get(key)
        if known is not None and wanted.sub_version <= known.version:
            if wanted.sub_version == known.version and known.dead_ms:
                known.dead_ms = 0
                self.changed = True
            return
        self.changed = True
        same = known is not None and (known.expression, known.expression_type) == (
            wanted.sub_string,
            wanted.expression_type,
        )
        if known is not None and same:
            known.version, known.dead_ms = wanted.sub_version, 0
            return
        try:
            compiled = self.compiled(wanted)
        except BrokerError as error:
            log.warning("group %s, topic %s: %s", group, wanted.topic, error)
            self._filters.pop(key, None)
            return
        self._filters[key] = Registered(
            wanted.sub_string,
            wanted.expression_type,
            wanted.sub_version,
            self._clock.now_ms(),
            compiled,
        )

    def unregister(self, group: str) -> None:
        """A group has no member left."""
        for (_, name), known in self._filters.items():
            if name == group and not known.dead_ms:
                known.dead_ms = self._clock.now_ms()
                self.changed = True

    def get(self, topic: str, group: str) -> Registered | None:
        return self._filters.get((topic, group))

    # --- keeping ----------------------------------------------------------------------------

    def load(self, saved: SavedFilters) -> None:
        """Filters of the last broker; nobody is connected yet, so all of them are dead."""
        now_ms = self._clock.now_ms()
        for one in _all_of(saved):
            wanted = SubscriptionData.of(
                one.topic,
                one.expression,
                version=one.client_version,
                expression_type=one.expression_type,
            )
            try:
                compiled = self.compiled(wanted)
            except BrokerError as error:
                log.warning("consumerFilter.json, group %s: %s", one.consumer_group, error)
                continue
            self._filters[one.topic, one.consumer_group] = Registered(
                one.expression,
                one.expression_type,
                one.client_version,
                one.born_time,
                compiled,
                one.dead_time or max(one.born_time, now_ms - DEAD_SINCE_AT_LEAST_MS),
            )

    def forget_old(self) -> None:
        """Drop what has been dead for too long."""
        oldest_ms = self._clock.now_ms() - self._keep_dead_ms()
        for key, known in list(self._filters.items()):
            if known.dead_ms and known.dead_ms <= oldest_ms:
                del self._filters[key]
                self.changed = True

    def snapshot(self) -> SavedFilters:
        by_topic: dict[str, dict[str, SavedFilter]] = {}
        for (topic, group), known in self._filters.items():
            by_topic.setdefault(topic, {})[group] = SavedFilter(
                bloom_filter_data=BloomFilterData(
                    bit_num=self._marks.bits, bit_pos=self._marks.of_group(group, topic)
                ),
                born_time=known.born_ms,
                client_version=known.version,
                consumer_group=group,
                dead=known.dead_ms > 0,
                dead_time=known.dead_ms,
                expression=known.expression,
                expression_type=known.expression_type,
                topic=topic,
            )
        return SavedFilters(
            filter_data_by_topic={
                topic: SavedTopic(group_filter_data=groups, topic=topic)
                for topic, groups in by_topic.items()
            }
        )


def _compile(subscription: SubscriptionData) -> SqlFilter | BrokerError:
    try:
        return filter_for(subscription)  # type: ignore[return-value]
    except BrokerError as error:
        return error


def _all_of(saved: SavedFilters) -> Iterator[SavedFilter]:
    for topic in saved.filter_data_by_topic.values():
        yield from topic.group_filter_data.values()
