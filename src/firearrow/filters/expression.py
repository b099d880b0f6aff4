"""Subscriptions as filters: the one door from what a consumer says to what it wants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from firearrow.filters.sql import SqlFilter, compile_sql
from firearrow.model.errors import SubscriptionParseFailed
from firearrow.model.group import SQL92, SUBSCRIBE_ALL, TAG, is_tag_type
from firearrow.model.message import TAGS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from firearrow.model.group import SubscriptionData


class Filter(Protocol):
    """Something that knows which messages are wanted."""

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Whether a message with these properties is wanted."""
        ...


class TagFilter:
    """Messages with one of some tags.

    A broker compares hashes (`codes`) with those that lie in the consume queue and never looks at
    a message; a consumer compares the tags themselves, since hashes collide.
    """

    __slots__ = ("codes", "tags")

    def __init__(self, subscription: SubscriptionData) -> None:
        tags = subscription.tags
        self.tags = None if tags is None else frozenset(tags)  # None: every message
        self.codes = subscription.tag_codes

    def __repr__(self) -> str:
        return f"TagFilter({SUBSCRIBE_ALL if self.tags is None else sorted(self.tags)})"

    def matches(self, properties: Mapping[str, str]) -> bool:
        return self.tags is None or properties.get(TAGS) in self.tags


def filter_for(subscription: SubscriptionData) -> TagFilter | SqlFilter:
    """The filter of a subscription; SubscriptionParseFailed says what is wrong with it."""
    if is_tag_type(subscription.expression_type):
        return TagFilter(subscription)
    if subscription.expression_type == SQL92:
        return compile_sql(subscription.sub_string)
    raise SubscriptionParseFailed(
        f"expressions of type {subscription.expression_type!r} are not known: {TAG} and {SQL92} are"
    )
