"""Unmodified clients of RocketMQ against our broker: Java of two releases, Go, C++ and Node."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import pytest

from .apache import RELEASE_4, RELEASE_5
from .firearrow import FireArrowCluster
from .rounds import (
    EVERY_SCENARIO,
    Outcome,
    start_cpp_round,
    start_go_round,
    start_java_round,
    start_node_round,
)

if TYPE_CHECKING:
    from .processes import Bench

Unique = Callable[[str], str]

COUNT: Final = 16
SENT: Final = 4 * COUNT  # four of the scenarios send
SCENARIOS: Final = (
    *EVERY_SCENARIO,
    "orderly",
    "broadcasting",
    "delay-level",
    "retry-to-dead-letter",
    "namespace",
    "from-where",
    "pull-offsets",
    "lite-assign",
)
GO_SCENARIOS: Final = (
    "sync-send",
    "async-send",
    "oneway-send",
    "batch-send",
    "push-consume",
    "tag-filter",
    "sql-filter",
    "orderly",
    "broadcasting",
    "delay-level",
    "retry",
    "dead-letter",
    "transaction",
    "pull",
    "request-reply",
    "trace",
    "administration",
)
# No batches: this client says "1" where RocketMQ reads only "true", and so stores one message.
CPP_SCENARIOS: Final = (
    "sync-send",
    "async-send",
    "oneway-send",
    "push-consume",
    "tag-filter",
    "orderly",
    "broadcasting",
    "delay-level",
    "pull",
)
SETTINGS: Final = {
    "enablePropertyFilter": "true",
    "traceTopicEnable": "true",
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "2000",
}
JAVA_ROUNDS: Final = [
    (release, header_type)
    for release in (RELEASE_5, RELEASE_4)
    for header_type in ("JSON", "ROCKETMQ")
]


@pytest.fixture(scope="module")
def ours(bench: Bench) -> FireArrowCluster:
    return FireArrowCluster(bench, SETTINGS)


@pytest.fixture(scope="module")
def outcomes(ours: FireArrowCluster, unique: Unique) -> dict[str, Outcome]:
    """All rounds at once: most of their time they wait."""
    bench, nameserver = ours.bench, ours.nameserver
    running = {
        f"java {release} {header_type}": start_java_round(
            bench,
            nameserver,
            unique("java"),
            SCENARIOS,
            release=release,
            properties={"rocketmq.serialize.type": header_type},
            count=COUNT,
        )
        for release, header_type in JAVA_ROUNDS
    }
    broker = f"127.0.0.1:{ours.broker_port}"
    running["go"] = start_go_round(
        bench, nameserver, unique("go"), GO_SCENARIOS, broker=broker, count=COUNT
    )
    running["cpp"] = start_cpp_round(bench, nameserver, unique("cpp"), CPP_SCENARIOS, count=COUNT)
    return {name: one.finish() for name, one in running.items()}


@pytest.mark.parametrize(("release", "header_type"), JAVA_ROUNDS)
def test_java_client_works_as_with_apache(
    outcomes: dict[str, Outcome], release: str, header_type: str
) -> None:
    outcome = outcomes[f"java {release} {header_type}"]

    assert outcome.failures() == {}
    assert tuple(outcome.scenarios) == SCENARIOS
    assert outcome["sync-send"]["brokers"] == ["broker-a"]
    for scenario in ("push-consume", "lite-pull", "pull"):
        assert outcome[scenario]["received"] == SENT
        assert not outcome[scenario]["repeated"]
    assert outcome["tag-filter"]["received"] == SENT // 2
    assert outcome["query-by-key"]["found"] == ["key-sync-send-0"]
    assert set(outcome["retry-to-dead-letter"]["dead"].values()) == {1}


def test_go_client_works_as_with_apache(outcomes: dict[str, Outcome]) -> None:
    assert outcomes["go"].failures() == {}
    assert tuple(outcomes["go"].scenarios) == GO_SCENARIOS
    assert outcomes["go"]["push-consume"]["received"] == SENT


def test_cpp_client_gets_back_all_it_sent(outcomes: dict[str, Outcome]) -> None:
    assert outcomes["cpp"].failures() == {}
    assert tuple(outcomes["cpp"].scenarios) == CPP_SCENARIOS
    assert outcomes["cpp"]["push-consume"]["received"] == 3 * COUNT


def test_node_client_gets_back_all_it_sent_to_a_topic_that_exists(
    ours: FireArrowCluster, outcomes: dict[str, Outcome], unique: Unique
) -> None:
    """The client finds no route for a topic that nobody made: Java's producer makes it."""
    assert outcomes
    topic = unique("node")
    first = start_java_round(ours.bench, ours.nameserver, topic, ["sync-send"], count=COUNT)
    assert first.finish().failures() == {}
    outcome = start_node_round(ours.bench, ours.nameserver, topic, count=COUNT).finish()

    assert outcome.failures() == {}
    assert outcome["push-consume"]["received"] == COUNT
