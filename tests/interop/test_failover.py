"""Processes of a replicated broker die and stop under load: nothing acknowledged is lost."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import pytest

from firearrow.model.errors import ResponseCode
from firearrow.wire import headers
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import request

from .failover import ReplicaCluster, Sending, ask, read_topic
from .processes import Bench, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WRITABLE_WITHIN_S: Final = 10.0


@pytest.fixture(scope="module")
def replicas(bench: Bench) -> ReplicaCluster:
    return ReplicaCluster(bench)


@pytest.fixture
def sending(replicas: ReplicaCluster, unique: Callable[[str], str]) -> Iterator[Sending]:
    """Producers under way; afterwards every acknowledged message must be there, in its place."""
    started = Sending(replicas.address("names"), unique("failover"))
    started.start()
    try:
        started.wait_for_more(50)
        yield started
        started.wait_for_more(50)
    finally:
        started.stop()
    found = read_topic(replicas.address("names"), started.topic)
    for _, queue_id, offset, body in started.acknowledged:
        assert found.get((queue_id, offset)) == body, f"lost: {body!r} at {queue_id}/{offset}"
    places = [(queue_id, offset) for _, queue_id, offset, _ in started.acknowledged]
    assert len(set(places)) == len(places), "two messages were acknowledged at one place"
    for queue_id in {queue_id for queue_id, _ in found}:
        offsets = sorted(offset for of, offset in found if of == queue_id)
        assert offsets == list(range(len(offsets))), f"queue {queue_id} has gaps"


def test_killed_master_is_followed_and_comes_back_as_a_slave(
    replicas: ReplicaCluster, sending: Sending, record_property: Callable[[str, object], None]
) -> None:
    master = replicas.master()
    replicas.processes[master].kill()
    record_property("writable after a kill of the master, s", _writable(sending))
    assert replicas.master() != master
    replicas.start(master)
    replicas.wait_for_in_sync(3)


def test_stopped_master_is_followed_and_takes_nothing_when_it_goes_on(
    replicas: ReplicaCluster, sending: Sending, record_property: Callable[[str, object], None]
) -> None:
    master = replicas.master()
    process = replicas.processes[master]
    process.freeze()
    try:
        record_property("writable after a stop of the master, s", _writable(sending))
        assert replicas.master() != master
    finally:
        process.thaw()
    # The first thing that it does is to answer us, before it can have heard of anything.
    codes = [_send_to(replicas.address(master), sending.topic) for _ in range(5)]
    assert ResponseCode.SUCCESS not in codes
    replicas.wait_for_in_sync(3)


def test_killed_slave_does_not_stop_producers_for_long(
    replicas: ReplicaCluster, sending: Sending, record_property: Callable[[str, object], None]
) -> None:
    master, slave = replicas.master(), replicas.slave()
    replicas.processes[slave].kill()
    record_property("writable after a kill of a slave, s", _writable(sending))
    assert replicas.master() == master
    replicas.start(slave)
    replicas.wait_for_in_sync(3)


def test_producers_do_not_notice_that_the_controller_is_killed(
    replicas: ReplicaCluster, sending: Sending, record_property: Callable[[str, object], None]
) -> None:
    master = replicas.master()
    replicas.processes["controller"].kill()
    record_property("writable after a kill of the controller, s", _writable(sending))
    replicas.start("controller")
    wait_until(
        lambda: (
            (info := replicas.info()) is not None
            and all(one.alive for one in info.in_sync_replicas)
        ),
        timeout_s=30,
        what="the controller knows everybody again",
    )
    assert replicas.master() == master
    replicas.wait_for_in_sync(3)


def test_master_and_controller_that_die_together_lose_nothing(
    replicas: ReplicaCluster, sending: Sending, record_property: Callable[[str, object], None]
) -> None:
    """apache/rocketmq#7689: both killed, both started again, and producers never stop."""
    master = replicas.master()
    replicas.processes[master].kill()
    replicas.processes["controller"].kill()
    replicas.start("controller")
    replicas.start(master)
    record_property("writable after master and controller died, s", _writable(sending))
    replicas.wait_for_in_sync(3)


def _writable(sending: Sending) -> float:
    """How long it takes until messages are acknowledged again; two, for one may be under way."""
    started = time.monotonic()
    sending.wait_for_more(2)
    took_s = round(time.monotonic() - started, 2)
    print(f"writable after {took_s} s")
    assert took_s < WRITABLE_WITHIN_S
    return took_s


def _send_to(address: str, topic: str) -> int:
    header = headers.SendMessageRequestV2(
        producer_group="stubborn",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=0,
        flag=0,
    )
    return ask(address, request(RequestCode.SEND_MESSAGE_V2, header, b"too late")).code
