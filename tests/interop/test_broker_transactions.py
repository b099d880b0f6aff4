"""Transactional producers and requests of the Java client against our broker, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import pytest

from .apache import RELEASE_4, RELEASE_5, NameServer, start_broker, start_name_server
from .firearrow import FireArrowCluster
from .rounds import Outcome, start_java_round

if TYPE_CHECKING:
    from pathlib import Path

    from .processes import Bench

Unique = Callable[[str], str]

STOP_TIMEOUT_S: Final = 60.0
QUICK: Final = {
    "transactionCheckInterval": 400,
    "transactionTimeOut": 2_000,  # a machine under load is late with what it has decided
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
    assert all(checks[name] >= 2 for name in ("later-commit", "later-rollback", "grace"))
    assert outcome["request-by-callback"]["answers"] == 8


# --- directories that change hands ------------------------------------------------------------

LOG_FILE: Final = {"mappedFileSizeCommitLog": 16 << 20}
STEADY: Final = QUICK | {"transactionCheckInterval": 2_000, "transactionCheckMax": 1_000}
PATIENT: Final = {"transactionCheckInterval": 600_000}


def round_on_ours(
    bench: Bench, store: Path, topic: str, scenario: str, settings: Mapping[str, int]
) -> Outcome:
    """Run a scenario on our broker, and stop it cleanly."""
    ours = FireArrowCluster(bench, {"storePathRootDir": store, **LOG_FILE, **settings})
    outcome = start_java_round(bench, ours.nameserver, topic, [scenario]).finish()
    ours.process.terminate()
    assert ours.process.wait_for_exit(timeout_s=STOP_TIMEOUT_S) == 0
    return outcome


def round_on_apache(
    bench: Bench, store: Path, topic: str, scenario: str, settings: Mapping[str, int]
) -> Outcome:
    """The same on an Apache broker."""
    names: NameServer = start_name_server(bench)
    paths = {"storePathRootDir": store, "storePathCommitLog": store / "commitlog"}
    extra = {**paths, **LOG_FILE, **settings}
    broker = start_broker(bench, names, name="broker-a", cluster="DefaultCluster", extra=extra)
    broker.wait_until_started()
    names.wait_for_broker(broker)
    outcome = start_java_round(bench, names, topic, [scenario]).finish()
    broker.process.stop(grace_s=STOP_TIMEOUT_S)
    names.process.stop(grace_s=STOP_TIMEOUT_S)
    return outcome


@pytest.mark.parametrize("first", ["ours", "apache"])
def test_open_transactions_move_with_their_directory(
    bench: Bench, unique: Unique, first: str
) -> None:
    """What one broker left open the other asks about, and what is settled stays so."""
    store, topic = bench.new_folder("moving") / "store", unique("moving")
    begin, finish = round_on_ours, round_on_apache
    if first == "apache":
        begin, finish = finish, begin
    begun = begin(bench, store, topic, "transactions-begin", PATIENT)
    assert begun.failures() == {}
    ended = finish(bench, store, topic, "transactions-end", STEADY)
    assert ended.failures() == {}
    found = ended["transactions-end"]
    received = dict(found["received"])
    # An Apache broker that is late to read the end of one copy asks about the next, and a second
    # commit is a second message to it.
    assert received.pop("later-commit") == 1 or first == "ours"
    assert received == {"commit": 1, "last": 1}
    # Apache forgets, when it stops, what it has not written yet of ends that it was told one way:
    # of a rollback nothing is left. Of a commit there is the message, and we look for it.
    assert set(found["asked"]) - {"rollback"} == {"later-commit", "later-rollback"}
    if first == "ours":
        assert "rollback" not in found["asked"]
