"""Transactional producers and requests of the Java client against our broker, and back."""

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

QUICK: Final = {
    "transactionCheckInterval": 400,
    "transactionTimeOut": 300,
    "transactionCheckMax": 6,
    "transactionOpBatchInterval": 200,
}
SCENARIOS: Final = {
    RELEASE_5: ["transactions", "request-by-callback"],
    RELEASE_4: ["transactions", "request-by-callback", "request-and-wait"],
}
ROUNDS: Final = [(release, kind) for release in SCENARIOS for kind in ("JSON", "ROCKETMQ")]


@pytest.fixture(scope="module")
def outcomes(bench: Bench, unique: Unique) -> dict[tuple[str, str], Outcome]:
    """All rounds at once: most of their time they wait."""
    ours = FireArrowCluster(bench, QUICK)
    running = {
        (release, header_type): start_java_round(
            bench,
            ours.nameserver,
            unique("java-tx"),
            SCENARIOS[release],
            release=release,
            properties={"rocketmq.serialize.type": header_type},
            count=8,
        )
        for release, header_type in ROUNDS
    }
    return {name: one.finish() for name, one in running.items()}


@pytest.mark.parametrize(("release", "header_type"), ROUNDS)
def test_transactions_and_requests_of_the_java_client_work_as_with_apache(
    outcomes: dict[tuple[str, str], Outcome], release: str, header_type: str
) -> None:
    outcome = outcomes[release, header_type]

    assert outcome.failures() == {}
    assert list(outcome.scenarios) == SCENARIOS[release]
    found = outcome["transactions"]
    assert found["received"] == 4  # commit, later-commit, grace, and the one behind them
    checks = {name.split("/")[0]: count for name, count in found["checks"].items()}
    assert checks.pop("never") >= 2
    assert found["lastCheck"] == QUICK["transactionCheckMax"]
    assert checks == {"later-commit": 2, "later-rollback": 2, "grace": 2}
    assert outcome["request-by-callback"]["answers"] == 8
