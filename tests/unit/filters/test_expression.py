from __future__ import annotations

import pytest

from firearrow.filters.expression import TagFilter, filter_for
from firearrow.filters.sql import SqlFilter
from firearrow.hot import java_hash
from firearrow.model.errors import SubscriptionParseFailed
from firearrow.model.group import SubscriptionData


def subscription(expression: str, kind: str = "TAG") -> SubscriptionData:
    return SubscriptionData.of("orders", expression, version=1, expression_type=kind)


def test_tags_are_compared_as_hashes_by_brokers_and_exactly_by_consumers() -> None:
    wanted = filter_for(subscription("Aa || new"))
    assert isinstance(wanted, TagFilter)
    assert wanted.codes == frozenset({java_hash("Aa"), java_hash("new")})
    assert java_hash("BB") in wanted.codes
    assert wanted.matches({"TAGS": "Aa"})
    assert not wanted.matches({"TAGS": "BB"})
    assert not wanted.matches({})


def test_star_wants_everything() -> None:
    wanted = filter_for(subscription("*"))
    assert isinstance(wanted, TagFilter)
    assert wanted.codes is None
    assert wanted.matches({})


def test_sql_is_compiled() -> None:
    wanted = filter_for(subscription("a > 1", "SQL92"))
    assert isinstance(wanted, SqlFilter)
    assert wanted.matches({"a": "2"})


def test_unknown_kind_of_expression_is_refused() -> None:
    with pytest.raises(SubscriptionParseFailed, match="'JAVASCRIPT'"):
        filter_for(subscription("a", "JAVASCRIPT"))
