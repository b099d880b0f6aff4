from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from firearrow.client.errors import NoRoute
from firearrow.spark.directory import Bounds
from firearrow.spark.errors import DataLoss, OptionError
from firearrow.spark.heads import Heads
from firearrow.spark.offsets import QueueName
from firearrow.spark.options import EARLIEST, LATEST, Bound, ReadOptions
from firearrow.spark.positions import check_start, find_queues, resolve

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

A0, A1 = QueueName("orders", "a", 0), QueueName("orders", "a", 1)
B0 = QueueName("orders", "b", 0)


class Cluster:
    """Two brokers as far as positions know them."""

    def __init__(self, bounds: Mapping[QueueName, tuple[int, int]]) -> None:
        self.table = dict(bounds)
        self.questions = 0

    def topics(self, pattern: str) -> list[str]:
        return ["orders"] if pattern.startswith("o") else []

    def queues(self, topics: Iterable[str]) -> list[QueueName]:
        for topic in topics:
            if not any(queue.topic == topic for queue in self.table):
                raise NoRoute(topic)
        return sorted(queue for queue in self.table if queue.topic in set(topics))

    def bounds(self, queues: Iterable[QueueName]) -> dict[QueueName, Bounds]:
        self.questions += 1
        return {queue: Bounds(self.table[queue]) for queue in queues}

    def offsets_at(self, times: Mapping[QueueName, int]) -> dict[QueueName, int]:
        return {queue: ms // 10 for queue, ms in times.items()}


def cluster() -> Cluster:
    return Cluster({A0: (10, 20), A1: (0, 5), B0: (3, 3)})


def options(**given: str) -> ReadOptions:
    base = {"nameservers": "n:1"}
    if not {"subscribePattern", "assign"} & set(given):
        base["subscribe"] = "orders"
    return ReadOptions.parse(base | given, streaming=False)


def resolved(
    default: int = EARLIEST, strategy: str = "error", **given: str
) -> dict[QueueName, int]:
    places = cluster()
    return resolve(
        options(**given).starting,
        places.bounds(places.table),
        places,
        default=default,
        when_no_later_message=strategy,
    )


def test_queues_follow_from_topics_patterns_and_assignments() -> None:
    assert find_queues(options(), cluster()) == [A0, A1, B0]
    assert find_queues(options(subscribePattern="o.*"), cluster()) == [A0, A1, B0]
    assert find_queues(options(subscribePattern="x.*"), cluster()) == []
    assert find_queues(options(assign='{"orders": [0]}'), cluster()) == [A0, B0]
    assert find_queues(options(assign='{"orders": ["a:1"]}'), cluster()) == [A1]


def test_a_topic_that_does_not_exist_is_named() -> None:
    wanted = ReadOptions.parse({"nameservers": "n:1", "subscribe": "oders"}, streaming=False)
    with pytest.raises(OptionError, match=r"'oders' of option 'subscribe'.*n:1.*Create"):
        find_queues(wanted, cluster())
    with pytest.raises(OptionError, match=r"no queue 7.*it has orders@a@0"):
        find_queues(options(assign='{"orders": [7]}'), cluster())


def test_ends_by_name_and_by_number() -> None:
    assert resolved() == {A0: 10, A1: 0, B0: 3}
    assert resolved(startingOffsets="latest") == {A0: 20, A1: 5, B0: 3}
    json = '{"orders": {"0": 12, "a:1": -1, "b:0": -2}}'
    assert resolved(startingOffsets=json) == {A0: 12, A1: 5, B0: 3}
    assert resolved(LATEST, startingOffsets='{"orders": {"a:0": 12}}') == {A0: 12, A1: 5, B0: 3}


def test_a_queue_that_is_named_outranks_its_topic() -> None:
    assert resolved(startingOffsets='{"orders": -1}') == {A0: 20, A1: 5, B0: 3}
    mixed = '{"orders@a@0": 12, "orders": -1}'
    assert resolved(startingOffsets=mixed) == {A0: 12, A1: 5, B0: 3}
    assert resolved(startingTimestamp='{"orders": 30}', strategy="latest") == {
        A0: 10,
        A1: 3,
        B0: 3,
    }


def test_json_that_names_what_is_not_read_is_refused() -> None:
    with pytest.raises(OptionError, match=r"startingOffsets.*queue orders@a@9.*read are"):
        resolved(startingOffsets='{"orders": {"a:9": 1}}')
    with pytest.raises(OptionError, match=r"startingOffsets.*topic oders, which.*read are"):
        resolved(startingOffsets='{"oders": 1}')


def test_ends_by_time() -> None:
    assert resolved(startingTimestamp="30", strategy="latest") == {A0: 10, A1: 3, B0: 3}
    by_queue = '{"orders": {"a:0": 155, "a:1": 20}}'
    assert resolved(startingOffsetsByTimestamp=by_queue) == {A0: 15, A1: 2, B0: 3}
    with pytest.raises(OptionError, match=r"queue 1 of topic orders on broker a.*Strategy=latest"):
        resolved(startingTimestamp="60")


def test_loss_names_the_queue_the_range_and_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    bounds = cluster().bounds([A0, A1])
    with pytest.raises(DataLoss, match=r"queue 0 of topic orders on broker a: messages 4 to 9 are"):
        check_start({A0: 4, A1: 0}, bounds, fail=True)
    with pytest.raises(DataLoss, match="failOnDataLoss=false"):
        check_start({A0: 21}, bounds, fail=True)
    with caplog.at_level(logging.WARNING):
        assert check_start({A0: 4, A1: 9}, bounds, fail=False) == {A0: 10, A1: 9}
    assert "messages 4 to 9 are lost" in caplog.text
    assert check_start({A0: 10, A1: 5, B0: 1}, bounds, fail=True) == {A0: 10, A1: 5, B0: 1}


def test_a_bound_says_which_option_it_came_from() -> None:
    assert options(startingTimestamp="5").starting == Bound("startingTimestamp", "timestamp", (), 5)


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_brokers_are_asked_once_in_a_while_however_often_spark_asks() -> None:
    places, time = cluster(), Time()
    heads = Heads(options(), places, time)
    for _ in range(100):
        heads.bounds(age_ms=50)
        time.now += 1
    assert places.questions == 2
    assert heads.known()[A0] == (10, 20)
    assert places.questions == 2


def test_new_queues_are_noticed_and_lost_topics_hold_their_place() -> None:
    places, time = cluster(), Time()
    heads = Heads(options(), places, time)
    heads.bounds(age_ms=0)
    places.table[QueueName("orders", "c", 0)] = (5, 6)
    time.now += 1_000
    assert len(heads.bounds(age_ms=0)) == 3
    time.now += 5_000
    assert heads.bounds(age_ms=0)[QueueName("orders", "c", 0)] == (5, 6)

    def fail(_: Iterable[str]) -> list[QueueName]:
        raise NoRoute("orders")

    places.queues = fail  # type: ignore[method-assign, assignment]
    time.now += 5_000
    assert len(heads.bounds(age_ms=0)) == 4
