"""Which messages a pull gets, when more than tags decides."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from firearrow.base.errors import RecordError
from firearrow.hot import property_values
from firearrow.model.errors import (
    FilterDataNotFound,
    FilterDataNotLatest,
    ServerFailed,
    SubscriptionParseFailed,
)
from firearrow.model.group import PYTHON, SubscriptionData, is_tag_type
from firearrow.model.topic import RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence

    from firearrow.broker.config import BrokerConfig
    from firearrow.broker.filter_table import FilterTable
    from firearrow.filters.server import Candidate, FilterServer
    from firearrow.filters.sql import SqlFilter
    from firearrow.wire.headers import PullMessageRequest

_RETRY_TOPIC: Final = (b"RETRY_TOPIC",)
PARTS_A_TURN: Final = 50_000  # of an expression, over all messages: about ten milliseconds


class Wanted(NamedTuple):
    """What a pull wants: tag hashes to compare with the queue, and a look at whole records."""

    codes: Collection[int] | None = None  # None: any
    record: Callable[[memoryview], bool] | None = None  # None: all
    judge: Callable[[Sequence[Candidate]], Awaitable[bytes]] | None = None  # elsewhere, later
    looks: int | None = None  # messages that one answer may cost; None: as many as any

    @property
    def by_tags_alone(self) -> bool:
        """Whether the queue's entries decide, and no record need be looked at."""
        return self.record is None and self.judge is None


def wanted_records(wanted: SqlFilter) -> Callable[[memoryview], bool]:
    """A filter as a question to records where they lie: just the properties it names are read."""
    names = tuple(name.encode() for name in wanted.names)
    evaluate = wanted.evaluate

    def matches(record: memoryview) -> bool:
        try:
            return evaluate(*property_values(record, names))
        except RecordError:
            return False  # nobody can read it

    return matches


class Filtering:
    """Answers what a subscription that is not of tags wants, if this broker lets it."""

    def __init__(
        self,
        table: FilterTable,
        server: FilterServer,
        config: Callable[[], BrokerConfig],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._table = table
        self._server = server
        self._config = config
        self.spawn = spawn

    def check(self, subscription: SubscriptionData) -> None:
        """Raise if a consumer that subscribes like this would not get what it wants."""
        if is_tag_type(subscription.expression_type):
            return
        self._refuse_if_off(subscription)
        if subscription.expression_type == PYTHON:
            self._server.find(subscription.sub_string)
        else:
            self._table.compiled(subscription)

    def _refuse_if_off(self, subscription: SubscriptionData) -> None:
        is_python = subscription.expression_type == PYTHON
        if not (self._server.is_on if is_python else self._config().enable_property_filter):
            # RocketMQ's own words: consumers log them, and people search for them.
            raise ServerFailed(
                "The broker does not support consumer to filter message by "
                f"{subscription.expression_type}"
            )

    def of_pull(self, asked: PullMessageRequest, subscription: SubscriptionData) -> Wanted:
        """What a pull with its own subscription wants."""
        if not asked.subscription:
            raise SubscriptionParseFailed(
                f"the {subscription.expression_type} expression of the pull is empty"
            )
        self._refuse_if_off(subscription)
        if subscription.expression_type == PYTHON:
            return self._judged(subscription)
        return self._wanted(asked, self._table.compiled(subscription))

    def of_group(self, asked: PullMessageRequest, subscription: SubscriptionData) -> Wanted:
        """What a pull wants whose subscription came with a heartbeat."""
        if subscription.expression_type == PYTHON:
            self._refuse_if_off(subscription)
            return self._judged(subscription)
        known = self._table.get(asked.topic, asked.consumer_group)
        if known is None:
            raise FilterDataNotFound(
                f"group {asked.consumer_group} has no filter for topic {asked.topic}: its "
                f"expression may be wrong: {subscription.sub_string!r}"
            )
        if known.version < asked.sub_version:
            raise FilterDataNotLatest(
                f"the filter of group {asked.consumer_group} for topic {asked.topic} is older "
                "than its subscription"
            )
        self._refuse_if_off(subscription)
        return self._wanted(asked, known.filter)

    def _judged(self, subscription: SubscriptionData) -> Wanted:
        name = subscription.sub_string
        self._server.find(name)
        return Wanted(judge=partial(self._server.judge, name))

    def _wanted(self, asked: PullMessageRequest, wanted: SqlFilter) -> Wanted:
        if asked.topic.startswith(RETRY_PREFIX) and self._config().filter_support_retry:
            return Wanted(record=self._of_origin(asked.consumer_group))
        looks = max(1, PARTS_A_TURN // wanted.parts)
        return Wanted(record=wanted_records(wanted), looks=looks)

    def _of_origin(self, group: str) -> Callable[[memoryview], bool]:
        """A message that comes again is wanted by the filter of the topic that it came from."""
        table = self._table

        def matches(record: memoryview) -> bool:
            (origin,) = property_values(record, _RETRY_TOPIC)
            known = None if origin is None else table.get(origin, group)
            return known is None or wanted_records(known.filter)(record)

        return matches
