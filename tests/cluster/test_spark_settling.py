"""Exactly-once writes without Spark: tasks and drivers by hand, against a real broker.

What Spark does is known (a batch is run again, `commit` is called again); here every order of it is
played at once, and no JVM is started.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest
from tests.spark_driver import QUERY, Driver, bodies_in

from firearrow import Message, Producer
from firearrow.client.portal import portal
from firearrow.spark.decisions import (
    ABORT,
    COMMIT,
    DECISION,
    KIND,
    decision_of,
    encode,
    unpack_places,
)
from firearrow.spark.errors import ConnectorError
from firearrow.testing import LocalCluster
from firearrow.wire.codes import RequestCode
from firearrow.wire.headers import PutKVConfigRequest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from firearrow.spark.decisions import Decision
    from firearrow.spark.settling import Attempt


@pytest.fixture
def mq(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path) as cluster:
        yield cluster


@pytest.fixture
def driver(mq: LocalCluster) -> Iterator[Driver]:
    made = Driver(mq.nameservers)
    yield made
    made.close()


@pytest.fixture
def second(mq: LocalCluster) -> Iterator[Driver]:
    """Another driver, or the same after a crash."""
    made = Driver(mq.nameservers)
    yield made
    made.close()


def test_rows_are_delivered_with_the_commit_in_the_order_of_partitions(
    mq: LocalCluster, driver: Driver
) -> None:
    last = driver.write(b"4", b"5", partition=1)
    first = driver.write(b"1", b"2", b"3")
    assert bodies_in(mq.nameservers) == []
    driver.commit(last, first)
    assert bodies_in(mq.nameservers) == [b"1", b"2", b"3", b"4", b"5"]
    assert driver.open_halves() == 0


def test_batch_that_is_run_again_before_its_decision_leaves_nothing_behind(
    mq: LocalCluster, driver: Driver, second: Driver
) -> None:
    driver.write(b"1", b"2")
    assert second.open_halves() == 1
    second.commit(second.write(b"1", b"2"))
    assert bodies_in(mq.nameservers) == [b"1", b"2"]
    assert second.open_halves() == 0


def test_batch_that_is_run_again_after_its_decision_is_delivered_once(
    mq: LocalCluster, driver: Driver, second: Driver
) -> None:
    before = driver.commit(driver.write(b"1", b"2"))
    counts = second.commit(second.write(b"1", b"2"))
    assert counts == before
    assert bodies_in(mq.nameservers) == [b"1", b"2"]
    assert second.open_halves() == 0


def test_driver_that_died_on_its_decision_is_finished_by_the_next(
    mq: LocalCluster, driver: Driver, second: Driver
) -> None:
    attempt = driver.write(b"1", b"2")
    decided = portal.call(
        driver.log.decide,
        _decision(driver, attempt),
    )
    assert bodies_in(mq.nameservers) == []
    counts = second.commit(second.write(b"one", b"two"))
    assert counts == decided
    assert bodies_in(mq.nameservers) == [b"1", b"2"]
    assert second.open_halves() == 0


def _decision(driver: Driver, attempt: Attempt, epoch: int = 0) -> Decision:
    return decision_of(
        QUERY, epoch, "dead", group=driver.options.group, attempts=[attempt], heads={}
    )


def test_ends_that_were_said_in_part_are_said_to_the_end(
    mq: LocalCluster, driver: Driver, second: Driver
) -> None:
    attempts = [driver.write(b"%d" % number, partition=number) for number in range(4)]
    for attempt in attempts:
        driver.write(b"lost", partition=attempt.partition)
    made = decision_of(QUERY, 0, "dead", group=driver.options.group, attempts=attempts, heads={})
    portal.call(driver.log.decide, made)
    (group,) = made.groups
    some = unpack_places(group.places)[:2]

    async def end_some() -> None:
        done = await driver.cluster.end_many(
            group.broker, group.topic, some, group=made.group, timeout_ms=5_000
        )
        assert done

    portal.call(end_some)
    assert bodies_in(mq.nameservers) == [b"0", b"1"]
    second.commit(*[second.write(b"%d" % number, partition=number) for number in range(4)])
    assert bodies_in(mq.nameservers) == [b"0", b"1", b"2", b"3"]
    assert second.open_halves() == 0


def test_two_drivers_on_one_checkpoint_deliver_one_of_the_two(
    mq: LocalCluster, driver: Driver, second: Driver
) -> None:
    mine, theirs = driver.write(b"1"), second.write(b"1")

    async def both() -> tuple[Decision, Decision]:
        return await asyncio.gather(
            driver.settling.commit(QUERY, 0, [mine]), second.settling.commit(QUERY, 0, [theirs])
        )

    first, other = portal.call(both)
    assert first == other
    assert bodies_in(mq.nameservers) == [b"1"]
    assert driver.open_halves() == 0


def test_late_driver_cannot_take_back_what_was_decided(
    mq: LocalCluster, driver: Driver, second: Driver
) -> None:
    late = driver.write(b"1", epoch=0)
    for epoch in range(3):
        second.commit(second.write(b"%d" % (epoch + 1), epoch=epoch), epoch=epoch)
    driver.commit(late, epoch=0)
    assert bodies_in(mq.nameservers) == [b"1", b"2", b"3"]
    assert driver.open_halves() == 0


def test_queries_do_not_disturb_each_other(mq: LocalCluster, driver: Driver) -> None:
    other = driver.write(b"other", scope="query-2")
    driver.commit(driver.write(b"mine"))
    assert bodies_in(mq.nameservers) == [b"mine"]
    driver.commit(other, scope="query-2")
    assert sorted(bodies_in(mq.nameservers)) == [b"mine", b"other"]


def test_step_that_is_given_up_is_never_delivered(
    mq: LocalCluster, driver: Driver, second: Driver
) -> None:
    attempt = driver.write(b"1")
    verdict = portal.call(driver.settling.abort, QUERY, 0, [attempt])
    assert verdict.outcome == ABORT
    assert driver.open_halves() == 0
    assert second.commit(second.write(b"1")).outcome == ABORT
    assert bodies_in(mq.nameservers) == []


def test_half_messages_that_nobody_told_of_are_rolled_back_as_well(driver: Driver) -> None:
    driver.write(b"1")
    portal.call(driver.settling.abort, QUERY, 0, [])
    assert driver.open_halves() == 0


def test_step_that_was_decided_cannot_be_given_up(mq: LocalCluster, driver: Driver) -> None:
    attempt = driver.write(b"1")
    driver.commit(attempt)
    assert portal.call(driver.settling.abort, QUERY, 0, [attempt]).outcome == COMMIT
    assert bodies_in(mq.nameservers) == [b"1"]


def test_decision_of_many_half_messages_lies_in_pieces(
    mq: LocalCluster, driver: Driver, second: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("firearrow.spark.decisions.pieces_of.__defaults__", (50,))
    attempts = [driver.write(b"%d" % number, partition=number) for number in range(30)]
    made = driver.commit(*attempts)
    assert len(encode(made)) > 100
    counts = second.commit(second.write(b"again"))
    assert counts == made
    assert bodies_in(mq.nameservers) == [b"%d" % number for number in range(30)]


def test_write_goes_on_after_the_broker_comes_back(mq: LocalCluster, driver: Driver) -> None:
    attempt = driver.write(b"1")
    mq.stop_broker()
    back = threading.Thread(target=mq.restart_broker)
    back.start()
    more = driver.write(b"2", partition=1)
    back.join()
    driver.commit(attempt, more)
    assert bodies_in(mq.nameservers) == [b"1", b"2"]


def test_decisions_stay_with_their_broker(mq: LocalCluster, driver: Driver) -> None:
    """The topic is gone from the routes, as when its broker is down: nobody makes a new one."""

    async def forget() -> None:
        session = await driver.cluster.open()
        note = PutKVConfigRequest(
            namespace="FIREARROW", key="spark.decisions.elsewhere", value="broker-z"
        )
        for server in session.names.addresses:
            await session.call(server, RequestCode.PUT_KV_CONFIG, note)

    portal.call(forget)
    with pytest.raises(ConnectorError, match="broker broker-z keeps the decisions"):
        Driver(mq.nameservers, decisionTopic="elsewhere")


def test_foreign_record_in_the_decision_topic_is_named(mq: LocalCluster, driver: Driver) -> None:
    with Producer("p", nameservers=mq.nameservers) as producer:
        for queue in producer.queues(driver.options.decision_topic):
            message = Message(
                driver.options.decision_topic,
                b"hello",
                properties={"FA_SCOPE": QUERY, "FA_EPOCH": "0", KIND: DECISION},
            )
            producer.send(message, queue=queue)
    with pytest.raises(ConnectorError, match="decisionTopic"):
        driver.commit(driver.write(b"1"))


def test_topic_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with (
        LocalCluster(tmp_path, auto_create_topic_enable=False) as mq,
        pytest.raises(ConnectorError, match=r"topic orders \(option topic\) does not exist"),
    ):
        Driver(mq.nameservers)


def test_name_server_that_is_not_there_is_named() -> None:
    with pytest.raises(ConnectorError, match="option nameservers"):
        Driver("127.0.0.1:1")
