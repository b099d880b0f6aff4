"""Registered filters: who replaces whom, what dies and what is kept, in RocketMQ's file."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Final

import pytest

from firearrow.broker.filter_marks import MarkSizes, murmur3_first_word
from firearrow.broker.filter_table import FilterTable, SavedFilters
from firearrow.model.errors import SubscriptionParseFailed
from firearrow.model.group import SubscriptionData
from firearrow.testing import ManualClock
from firearrow.wire import java_json

DATA: Final = Path(__file__).parents[2] / "conformance" / "data"
DAY_MS: Final = 24 * 3_600_000


def sql(expression: str, version: int = 1, topic: str = "orders") -> SubscriptionData:
    return SubscriptionData.of(topic, expression, version=version, expression_type="SQL92")


def make_table(clock: ManualClock | None = None) -> FilterTable:
    return FilterTable(clock or ManualClock(), MarkSizes.of(20, 32), keep_dead_ms=lambda: DAY_MS)


def expression_of(table: FilterTable, topic: str = "orders") -> str | None:
    known = table.get(topic, "billing")
    return None if known is None else known.expression


def test_larger_version_replaces_a_smaller_one_and_not_the_other_way_round() -> None:
    table = make_table()
    table.register("billing", [sql("a > 1", 5)])
    table.register("billing", [sql("a > 2", 5)])
    table.register("billing", [sql("a > 3", 4)])
    assert expression_of(table) == "a > 1"
    table.register("billing", [sql("a > 4", 6)])
    assert expression_of(table) == "a > 4"
    table.register("billing", [sql("a > 4", 9)])
    known = table.get("orders", "billing")
    assert known is not None
    assert known.version == 9
    assert known.filter.matches({"a": "5"})


def test_wrong_expression_takes_the_place_of_a_right_one_and_leaves_nothing() -> None:
    table = make_table()
    table.register("billing", [sql("a > 1", 1)])
    table.register("billing", [sql("a >", 2)])
    assert expression_of(table) is None


def test_tags_and_empty_expressions_are_not_registered() -> None:
    table = make_table()
    tags = SubscriptionData.of("orders", "A || B", version=1)
    table.register("billing", [tags, SubscriptionData(topic="other", expression_type="SQL92")])
    assert expression_of(table) is None
    assert expression_of(table, "other") is None
    assert not table.changed


async def test_filter_dies_with_its_group_or_its_topic_and_revives_with_a_heartbeat() -> None:
    clock = ManualClock()
    table = make_table(clock)
    table.register("billing", [sql("a > 1"), sql("b > 1", topic="returns")])
    table.register("billing", [sql("a > 1")])
    returns, orders = table.get("returns", "billing"), table.get("orders", "billing")
    assert returns is not None
    assert orders is not None
    assert (orders.dead_ms, returns.dead_ms) == (0, clock.now_ms())
    table.unregister("billing")
    assert orders.dead_ms == clock.now_ms()
    table.register("billing", [sql("a > 1")])
    assert orders.dead_ms == 0
    await clock.advance(DAY_MS - 1)
    table.forget_old()
    assert expression_of(table, "returns") == "b > 1"
    await clock.advance(1)
    table.forget_old()
    assert expression_of(table, "returns") is None
    assert expression_of(table) == "a > 1"


def test_wrong_expression_is_refused_again_from_memory() -> None:
    table = make_table()
    for _ in range(2):
        with pytest.raises(SubscriptionParseFailed, match="character 4"):
            table.compiled(sql("a ="))
    assert table.compiled(sql("a = 1")) is table.compiled(sql("a = 1", 7))


def test_apache_file_is_read_and_written_alike() -> None:
    with tarfile.open(DATA / "store-5.3.3-clean.tar.gz") as archive:
        (name,) = [each for each in archive.getnames() if each.endswith("consumerFilter.json")]
        file = archive.extractfile(name)
        assert file is not None
        saved = java_json.decode(file.read(), SavedFilters)
    table = make_table()
    table.load(saved)
    known = table.get("GcSql", "GcSqlCG")
    assert known is not None
    assert known.filter.matches({"a": "2"})
    assert known.dead_ms > 0
    assert table.snapshot() == saved  # the positions that Java computed included


def test_file_with_an_expression_that_we_refuse_loads_the_others() -> None:
    table = make_table()
    table.register("billing", [sql("a > 1")])
    text = java_json.encode(table.snapshot())
    table = make_table()
    table.load(java_json.decode(text.replace(b"a > 1", b"a > "), SavedFilters))
    assert expression_of(table) is None
    table.load(java_json.decode(text, SavedFilters))
    assert expression_of(table) == "a > 1"


@pytest.mark.parametrize(
    ("text", "word"),
    [("", 0), ("hello", 0xCBD8A7B341BD9B02), ("hello, world", 0x342FAC623A5EBC8E)],
)
def test_hash_is_murmur3(text: str, word: int) -> None:
    assert murmur3_first_word(text.encode()) == word
