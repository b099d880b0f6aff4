from __future__ import annotations

import json

import pytest

from firearrow.cli.output import (
    Column,
    Effect,
    Kind,
    OutputFormat,
    Record,
    Table,
    numbers,
    render,
    size_text,
    text,
)

TOPICS = Table(
    [*text("topic"), *numbers("queues"), Column("stored_ms", Kind.TIME), *text("ordered")],
    [["orders", 8, 0, True], ["订单", 12345, None, False]],
)


def test_table_is_aligned_also_with_wide_characters() -> None:
    assert render(TOPICS, OutputFormat.TABLE).splitlines() == [
        "topic   queues  stored  ordered",
        "orders       8  -       yes",
        "订单     12345  -       no",
    ]


def test_json_keeps_numbers_and_nothing() -> None:
    assert json.loads(render(TOPICS, OutputFormat.JSON))[1] == {
        "topic": "订单",
        "queues": 12345,
        "stored_ms": None,
        "ordered": False,
    }


def test_csv_has_names_and_plain_values() -> None:
    assert render(TOPICS, OutputFormat.CSV).splitlines() == [
        "topic,queues,stored_ms,ordered",
        "orders,8,0,true",
        "订单,12345,,false",
    ]


def test_table_without_rows_has_its_head() -> None:
    empty = Table(text("a", "b"), [])
    assert render(empty, OutputFormat.TABLE) == "a  b\n"
    assert json.loads(render(empty, OutputFormat.JSON)) == []


def test_text_of_a_message_cannot_talk_to_the_terminal() -> None:
    shown = render(Table(text("body"), [["\x1b[2Jgone\n"]]), OutputFormat.TABLE)
    assert "\x1b" not in shown
    assert r"\x1b[2Jgone\n" in shown


@pytest.mark.parametrize(("dry_run", "words"), [(True, "would remove 3"), (False, "removed 3")])
def test_effect_says_whether_it_happened(dry_run: bool, words: str) -> None:
    effect = Effect(would="remove 3 topics", did="removed 3 topics", numbers={"topics": 3})
    assert words in render(effect, OutputFormat.TABLE, dry_run=dry_run)
    found = json.loads(render(effect, OutputFormat.JSON, dry_run=dry_run))
    assert (found["dry_run"], found["topics"]) == (dry_run, 3)
    assert render(effect, OutputFormat.CSV, dry_run=dry_run).splitlines()[1].endswith(",3")


def test_record_has_its_parts_as_tables() -> None:
    record = Record({"topic": "orders", "groups": []}, {"queues": Table(text("id"), [["0"]])})
    assert render(record, OutputFormat.TABLE) == "topic   orders\ngroups  -\n\nqueues\nid\n0\n"
    assert json.loads(render(record, OutputFormat.JSON))["queues"] == [{"id": "0"}]
    assert render(record, OutputFormat.CSV) == "id\n0\n"


@pytest.mark.parametrize(
    ("count", "shown"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 40, "5.0 TiB")]
)
def test_sizes_are_readable(count: int, shown: str) -> None:
    assert size_text(count) == shown
