"""Every recorded SQL92 expression matches what it matched in Apache RocketMQ."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from firearrow.filters.sql import compile_sql
from firearrow.model.errors import SubscriptionParseFailed

RECORDED: Final[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "data" / "sql92.json").read_text("utf-8")
)
# Apache stops reading where an expression is complete and ignores the rest, silently. We refuse.
WITH_TEXT_BEHIND: Final = {
    "a = 1 garbage",
    "a = 1 'x'",
    "a = 1 NULL",
    "(a = 1) (a = 2)",
    "a = 0x10",
    "a-b = 1",
    "WHERE a = 1",
    "a = 1.2.3",
    "a = 007",
}
CASES: Final = [
    (expression, None if expression in WITH_TEXT_BEHIND else matching)
    for group in RECORDED["groups"].values()
    for expression, _, matching in group
]


GROWN: Final[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "data" / "sql92-grown.json").read_text("utf-8")
)


def properties_of(message: dict[str, Any]) -> dict[str, str]:
    properties: dict[str, str] = {"WAIT": "true", "TRACE_ON": "true"} | message["props"]
    for name in ("tags", "keys"):
        if name in message:
            properties[name.upper()] = message[name]
    return properties


MESSAGES: Final = [properties_of(message) for message in RECORDED["messages"]]


@pytest.mark.parametrize(("expression", "matching"), CASES, ids=[case[0] for case in CASES])
def test_recorded_expression_matches_what_it_matched_in_apache(
    expression: str, matching: list[int] | None
) -> None:
    if matching is None:
        with pytest.raises(SubscriptionParseFailed, match="character"):
            compile_sql(expression)
        return
    wanted = compile_sql(expression)
    assert [number for number, each in enumerate(MESSAGES) if wanted.matches(each)] == matching


def test_table_is_the_recorded_one() -> None:
    assert len(CASES) == 193
    refused = {e for group in RECORDED["groups"].values() for e, code, _ in group if code}
    assert not WITH_TEXT_BEHIND & refused


@pytest.mark.parametrize(
    ("expression", "matching"),
    [(expression, matching) for expression, _, matching in GROWN["groups"]["accepted"]],
)
def test_grown_expression_matches_what_it_matches_in_apache(
    expression: str, matching: list[int]
) -> None:
    wanted = compile_sql(expression)
    found = [number for number, each in enumerate(GROWN["messages"]) if wanted.matches(each)]
    assert found == matching


@pytest.mark.parametrize(
    "expression",
    [row[0] for kind in ("refused", "text behind") for row in GROWN["groups"][kind]],
)
def test_expression_that_apache_refuses_or_reads_in_part_is_refused(expression: str) -> None:
    with pytest.raises(SubscriptionParseFailed, match="character"):
        compile_sql(expression)
