"""Which queue: in turn, away from slow brokers, by key as Java finds it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow.client.selection import BrokerFaults, QueueTurns, by_key, pause_for
from firearrow.model.topic import MessageQueue


def queues(*brokers: str, each: int = 2) -> list[MessageQueue]:
    return [
        MessageQueue(topic="t", broker_name=broker, queue_id=number)
        for broker in brokers
        for number in range(each)
    ]


@pytest.mark.parametrize(
    ("latency_ms", "pause_ms"),
    [
        (0, 0),
        (49, 0),
        (50, 0),
        (100, 0),
        (549, 0),
        (550, 2_000),
        (1_799, 2_000),
        (1_800, 5_000),
        (3_000, 6_000),
        (5_000, 10_000),
        (10_000, 10_000),  # what a failure counts as
        (14_999, 10_000),
        (15_000, 30_000),
        (10**9, 30_000),
    ],
)
def test_slow_brokers_are_left_alone_as_rocketmq_does(latency_ms: int, pause_ms: int) -> None:
    assert pause_for(latency_ms) == pause_ms


def test_turns_visit_every_queue_equally() -> None:
    turns, all_queues = QueueTurns(), queues("a", "b")
    chosen = [turns.choose(all_queues) for _ in range(12)]
    assert all(chosen.count(queue) == 3 for queue in all_queues)


@given(st.integers(1, 4), st.integers(1, 4))
def test_the_broker_that_failed_is_avoided_if_there_is_another(brokers: int, each: int) -> None:
    names = "abcd"[:brokers]
    queue = QueueTurns().choose(queues(*names, each=each), "a")
    assert (queue.broker_name == "a") == (brokers == 1)


def test_faults_steer_away_until_their_time_is_over() -> None:
    faults = BrokerFaults()
    turns, all_queues = QueueTurns(faults), queues("a", "b")
    faults.record("a", 5, 0, failed=True)
    assert {turns.choose(all_queues, now_ms=9_999).broker_name for _ in range(8)} == {"b"}
    assert {turns.choose(all_queues, now_ms=10_000).broker_name for _ in range(8)} == {"a", "b"}


def test_the_later_end_of_two_faults_counts() -> None:
    faults = BrokerFaults()
    faults.record("a", 15_000, 0, failed=False)
    faults.record("a", 10, 1_000, failed=False)
    assert not faults.available("a", 29_999)
    assert faults.available("a", 30_000)


def test_with_all_brokers_at_fault_the_reachable_come_first() -> None:
    faults = BrokerFaults()
    turns, all_queues = QueueTurns(faults), queues("a", "b", "c")
    for broker in "abc":
        faults.record(broker, 0, 0, failed=True, reachable=broker != "b")
    assert {turns.choose(all_queues, "a").broker_name for _ in range(8)} == {"c"}
    faults.record("c", 0, 0, failed=True, reachable=False)
    faults.record("a", 0, 0, failed=True, reachable=False)
    assert {turns.choose(all_queues).broker_name for _ in range(12)} == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        ("TagA", 2_598_919),
        ("TagB", 2_598_920),
        ("中文", 646_394),
        ("polygenelubricants", -(1 << 31)),  # the one whose absolute value Java cannot hold
        (5, 5),
        (-5, -5),
        (1 << 32, 1),
        (-(1 << 40), -256),
        ((1 << 31), -(1 << 31)),
    ],
)
@pytest.mark.parametrize("count", [1, 3, 4, 7])
def test_keys_find_the_queue_that_java_finds(key: str | int, hashed: int, count: int) -> None:
    found = by_key(queues("a", each=count), key)
    remainder = abs(hashed) % count  # Java: Math.abs(hash % count); the sign is the dividend's
    assert found.queue_id == remainder
