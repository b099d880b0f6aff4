"""Processes of a replicated broker die and stop under load: nothing acknowledged is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from firearrow.model.errors import ResponseCode

from .failover import ReplicaCluster, Sending, check_acknowledged, send_to, writable
from .processes import Bench, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


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
    check_acknowledged(replicas.address("names"), started)


def test_killed_master_is_followed_and_comes_back_as_a_slave(
    replicas: ReplicaCluster, sending: Sending, record_property: Callable[[str, object], None]
) -> None:
    master = replicas.master()
    replicas.processes[master].kill()
    record_property("writable after a kill of the master, s", writable(sending))
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
        record_property("writable after a stop of the master, s", writable(sending))
        assert replicas.master() != master
    finally:
        process.thaw()
    # The first thing that it does is to answer us, before it can have heard of anything.
    codes = [send_to(replicas.address(master), sending.topic) for _ in range(5)]
    assert ResponseCode.SUCCESS not in codes
    replicas.wait_for_in_sync(3)


def test_killed_slave_does_not_stop_producers_for_long(
    replicas: ReplicaCluster, sending: Sending, record_property: Callable[[str, object], None]
) -> None:
    master, slave = replicas.master(), replicas.slave()
    replicas.processes[slave].kill()
    record_property("writable after a kill of a slave, s", writable(sending))
    assert replicas.master() == master
    replicas.start(slave)
    replicas.wait_for_in_sync(3)


def test_producers_do_not_notice_that_the_controller_is_killed(
    replicas: ReplicaCluster, sending: Sending, record_property: Callable[[str, object], None]
) -> None:
    master = replicas.master()
    replicas.processes["controller"].kill()
    record_property("writable after a kill of the controller, s", writable(sending))
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
    record_property("writable after master and controller died, s", writable(sending))
    replicas.wait_for_in_sync(3)
