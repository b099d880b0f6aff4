"""The sink on an unmodified Apache RocketMQ broker, where to commit twice makes two messages."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest
from tests.spark_driver import Driver, bodies_in

from firearrow import Admin
from firearrow.client.portal import portal
from firearrow.spark.decisions import decision_of, unpack_places

from .apache import start_broker, start_name_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .processes import Bench


@pytest.fixture(scope="module")
def nameservers(bench: Bench) -> str:
    names = start_name_server(bench)
    broker = start_broker(bench, names, name="sink-peer", cluster="sink-peers")
    broker.wait_until_started()
    names.wait_for_broker(broker)
    return names.address


@pytest.fixture
def topic(nameservers: str, unique: Callable[[str], str]) -> str:
    name = unique("sink")
    with Admin(nameservers=nameservers) as admin:
        admin.create_topic(name, queues=2)
    return name


@pytest.fixture
def drivers(nameservers: str, topic: str) -> Iterator[tuple[Driver, Driver]]:
    """One, and another or the same after a crash."""
    made = Driver(nameservers, topic), Driver(nameservers, topic)
    yield made
    for driver in made:
        driver.close()


@pytest.fixture
def query() -> str:
    return uuid.uuid4().hex


def test_rows_are_delivered_with_the_commit_and_in_order(
    nameservers: str, topic: str, drivers: tuple[Driver, Driver], query: str
) -> None:
    driver, _ = drivers
    bodies = [b"%d" % number for number in range(50)]
    attempt = driver.write(*bodies, scope=query)
    assert [one.staged for one in attempt.written] == [False]
    assert bodies_in(nameservers, topic) == []
    driver.commit(attempt, scope=query)
    assert bodies_in(nameservers, topic) == bodies


def test_batch_that_is_run_again_after_its_commit_is_delivered_once(
    nameservers: str, topic: str, drivers: tuple[Driver, Driver], query: str
) -> None:
    first, second = drivers
    bodies = [b"%d" % number for number in range(20)]
    before = first.commit(first.write(*bodies, scope=query), scope=query)
    assert second.commit(second.write(*bodies, scope=query), scope=query) == before
    assert bodies_in(nameservers, topic) == bodies


def test_commit_that_was_cut_short_is_finished_once(
    nameservers: str, topic: str, drivers: tuple[Driver, Driver], query: str
) -> None:
    first, second = drivers
    bodies = [b"%d" % number for number in range(20)]
    attempt = first.write(*bodies, scope=query)
    made = decision_of(query, 0, "dead", group=first.options.group, attempts=[attempt], heads={})
    portal.call(first.log.decide, made)
    (group,) = made.groups

    async def end_some() -> None:
        await first.cluster.end_singles(
            group.target,
            unpack_places(group.places)[:7],
            group=made.group,
            timeout_ms=10_000,
            from_offset=0,
            is_first=True,
        )

    portal.call(end_some)
    assert second.commit(second.write(*bodies, scope=query), scope=query) == made
    assert bodies_in(nameservers, topic) == bodies
