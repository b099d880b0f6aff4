"""Brokers that die, freeze or leave disappear from our name server when RocketMQ's would drop them.

Each test spoils a broker of its own; all of them start together, once.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest

from .apache import (
    Broker,
    Mqadmin,
    NameServer,
    nameserver_is_apache,
    start_broker,
    start_name_server,
)
from .processes import Bench, wait_until
from .rawclient import SUCCESS, TOPIC_NOT_EXIST
from .relay import Relay

if TYPE_CHECKING:
    from collections.abc import Iterator

CLUSTER: Final = "mortal-cluster"
SCAN_MS: Final = 500

# What the broker that gets frozen asks for: with an acting master it sends a heartbeat at this
# interval and tells the name server after which silence it counts as dead.
HEARTBEAT_MS: Final = 500
SILENCE_MS: Final = 4000

# Less than the ten seconds between two registrations, the shortest a broker can be set to.
EXPIRED_MS: Final = 3000
REGISTER_PERIOD_MS: Final = 10_000

# More than that, so that only a broker which is really gone is dropped.
GONE_MS: Final = 12_000

# For what the name server notices without a timer: a closed connection, or a goodbye.
AT_ONCE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Mortals:
    """Two name servers with short timers, and the brokers to be spoiled, by their fate."""

    nameserver: NameServer
    impatient: NameServer
    brokers: dict[str, Broker]


@pytest.fixture(scope="module")
def mortals(bench: Bench) -> Iterator[Mortals]:
    """Start everything at once, and end it with this module to free the memory."""
    nameserver = start_name_server(bench, scan_ms=SCAN_MS)
    impatient = start_name_server(bench, scan_ms=SCAN_MS, expired_ms=EXPIRED_MS)
    heartbeats: dict[str, object] = {
        "enableSlaveActingMaster": "true",
        "brokerHeartbeatInterval": HEARTBEAT_MS,
        "brokerNotActiveTimeoutMillis": SILENCE_MS,
    }
    period: dict[str, object] = {"registerNameServerPeriod": REGISTER_PERIOD_MS}
    brokers = {
        "killed": start_broker(bench, nameserver, name="killed", cluster=CLUSTER),
        "stopped": start_broker(bench, nameserver, name="stopped", cluster=CLUSTER),
        "frozen": start_broker(
            bench, nameserver, name="frozen", cluster=CLUSTER, extra=heartbeats | period
        ),
        "silent": start_broker(
            bench, nameserver, impatient, name="silent", cluster=CLUSTER, extra=period
        ),
    }
    for broker in brokers.values():
        broker.wait_until_started()
    for broker in brokers.values():
        nameserver.wait_for_broker(broker)
    yield Mortals(nameserver, impatient, brokers)
    for broker in brokers.values():
        broker.process.kill()


@pytest.fixture(scope="module")
def mortal_admin(bench: Bench, mortals: Mortals) -> Mqadmin:
    """mqadmin for this module's name server."""
    return Mqadmin(bench, mortals.nameserver)


def listed(admin: Mqadmin) -> set[str]:
    """The brokers that mqadmin shows."""
    return {row[1] for row in admin.run("clusterList").rows()}


def test_broker_that_is_killed_disappears_at_once_with_its_topics(
    mortals: Mortals, mortal_admin: Mqadmin
) -> None:
    nameserver, broker = mortals.nameserver, mortals.brokers["killed"]
    # A broker registers a topic named after itself.
    assert nameserver.client().route(broker.name).code == SUCCESS
    assert broker.name in listed(mortal_admin)

    broker.process.kill()
    nameserver.wait_for_no_broker(broker, timeout_s=AT_ONCE_S)

    assert broker.name not in listed(mortal_admin)
    assert nameserver.client().route(broker.name).code == TOPIC_NOT_EXIST


def test_broker_that_is_shut_down_disappears_before_its_process_ends(
    mortals: Mortals, mortal_admin: Mqadmin
) -> None:
    nameserver, broker = mortals.nameserver, mortals.brokers["stopped"]
    assert broker.name in listed(mortal_admin)

    broker.process.terminate()
    still_ran = wait_until(
        lambda: broker.name not in nameserver.brokers() and [broker.process.exit_code is None],
        timeout_s=10,
        what="the broker to unregister",
    )

    assert still_ran == [True]
    assert broker.name not in listed(mortal_admin)
    assert nameserver.client().route(broker.name).code == TOPIC_NOT_EXIST


def test_broker_that_freezes_disappears_after_the_silence_it_asked_for_and_returns(
    mortals: Mortals,
) -> None:
    nameserver, broker = mortals.nameserver, mortals.brokers["frozen"]
    frozen_at = time.monotonic()
    broker.process.freeze()
    nameserver.wait_for_no_broker(broker, timeout_s=SILENCE_MS / 1000 + AT_ONCE_S)
    silence_s = time.monotonic() - frozen_at

    # Not at once, as for a closed connection. It is less than the whole silence, because the last
    # heartbeat came before the freeze; how much before depends on how busy the machine is.
    assert silence_s >= SILENCE_MS / 1000 / 2
    assert nameserver.client().route(broker.name).code == TOPIC_NOT_EXIST

    broker.process.thaw()
    nameserver.wait_for_broker(broker)
    assert nameserver.client().route(broker.name).code == SUCCESS


def test_broker_registers_with_every_name_server_it_is_given(mortals: Mortals) -> None:
    broker = mortals.brokers["silent"]
    mortals.impatient.wait_for_broker(broker)

    assert mortals.nameserver.brokers()[broker.name] == {0: broker.address}


def test_broker_that_asked_for_no_limit_is_dropped_after_the_configured_silence(
    mortals: Mortals,
) -> None:
    if nameserver_is_apache():
        pytest.skip("Apache's name server has two minutes in its code, and no setting for it")
    broker = mortals.brokers["silent"]
    mortals.impatient.wait_for_broker(broker)
    mortals.impatient.wait_for_no_broker(broker, timeout_s=EXPIRED_MS / 1000 + AT_ONCE_S)

    # The other name server, with the usual limit, heard from it as seldom and still lists it.
    assert broker.name in mortals.nameserver.brokers()
    mortals.impatient.wait_for_broker(broker)


def test_broker_killed_behind_a_dead_line_is_dropped_after_the_timeout_and_its_socket_closed(
    bench: Bench,
) -> None:
    """Nothing tells the name server: the line to the broker stays open, as with a power cut."""
    if nameserver_is_apache():
        pytest.skip("Apache's name server has two minutes in its code, and no setting for it")
    nameserver = start_name_server(bench, scan_ms=SCAN_MS, expired_ms=GONE_MS)
    with Relay(nameserver.port, hides_the_end=True) as relay:
        broker = start_broker(
            bench,
            nameserver,
            name="unplugged",
            cluster=CLUSTER,
            extra={"namesrvAddr": relay.address, "registerNameServerPeriod": REGISTER_PERIOD_MS},
        )
        broker.wait_until_started()
        nameserver.wait_for_broker(broker)
        ended_before = relay.ended_by_server

        broker.process.kill()
        assert broker.name in nameserver.brokers(), "nobody knows yet"
        nameserver.wait_for_no_broker(broker, timeout_s=GONE_MS / 1000 + AT_ONCE_S)

        assert nameserver.client().route(broker.name).code == TOPIC_NOT_EXIST
        wait_until(
            lambda: relay.ended_by_server > ended_before,
            timeout_s=AT_ONCE_S,
            what="the name server to close the broker's socket",
        )
