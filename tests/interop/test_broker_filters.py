"""SQL92 subscriptions of unmodified Java consumers, of two releases, on our broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import pytest

from .apache import RELEASE_4, RELEASE_5
from .firearrow import FireArrowCluster
from .rounds import Outcome, start_java_round

if TYPE_CHECKING:
    from .processes import Bench

Unique = Callable[[str], str]

COUNT: Final = 24
SCENARIOS: Final = ("sql-send", "sql-push", "sql-lite-pull", "sql-pull", "sql-wrong")


@pytest.fixture(scope="module")
def outcomes(bench: Bench, unique: Unique) -> dict[str, Outcome]:
    ours = FireArrowCluster(bench, {"enablePropertyFilter": "true"})
    off = FireArrowCluster(bench)
    running = {
        release: start_java_round(
            bench, ours.nameserver, unique("sql"), SCENARIOS, release=release, count=COUNT
        )
        for release in (RELEASE_5, RELEASE_4)
    }
    running["off"] = start_java_round(
        bench, off.nameserver, unique("sql"), ("sql-send", "sql-refused"), count=COUNT
    )
    return {name: one.finish() for name, one in running.items()}


@pytest.mark.parametrize("release", [RELEASE_5, RELEASE_4])
def test_java_consumers_get_what_their_expression_says(
    outcomes: dict[str, Outcome], release: str
) -> None:
    outcome = outcomes[release]
    assert outcome.failures() == {}
    for scenario in ("sql-push", "sql-lite-pull", "sql-pull"):
        assert outcome[scenario]["expected"] == outcome[scenario]["received"] == 5


@pytest.mark.parametrize("release", [RELEASE_5, RELEASE_4])
def test_wrong_expression_stops_a_java_consumer_with_our_words(
    outcomes: dict[str, Outcome], release: str
) -> None:
    refusal = outcomes[release]["sql-wrong"]["refusal"]
    assert refusal.startswith("23 ")
    assert "character 4" in refusal


def test_broker_that_does_not_filter_stops_a_java_consumer_with_apaches_words(
    outcomes: dict[str, Outcome],
) -> None:
    assert outcomes["off"].failures() == {}
    assert outcomes["off"]["sql-refused"]["refusal"].endswith(
        "The broker does not support consumer to filter message by SQL92"
    )
