"""Real clients find their route through our name server and make a round with Apache's brokers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .apache import RELEASE_4, RELEASE_5, Cluster
from .rawclient import NameServerClient
from .relay import TLS_HANDSHAKE, Relay
from .rounds import (
    EVERY_SCENARIO,
    RunningRound,
    start_go_round,
    start_java_round,
    start_node_round,
)

Unique = Callable[[str], str]

COUNT = 16
SENT = 4 * COUNT  # four of the scenarios send


@pytest.mark.parametrize("header_type", ["JSON", "ROCKETMQ"])
@pytest.mark.parametrize("release", [RELEASE_5, RELEASE_4])
def test_java_client_gets_back_all_it_sent(
    cluster: Cluster, unique: Unique, release: str, header_type: str
) -> None:
    topic = unique(f"java-{release.replace('.', '_')}-{header_type}")
    cluster.create_topic(topic, *cluster.brokers)
    outcome = start_java_round(
        cluster.bench,
        cluster.nameserver,
        topic,
        release=release,
        properties={"rocketmq.serialize.type": header_type},
        count=COUNT,
    ).finish()

    assert outcome.failures() == {}
    assert tuple(outcome.scenarios) == EVERY_SCENARIO
    assert outcome["sync-send"]["brokers"] == cluster.broker_names()
    assert outcome["query-by-key"]["found"] == ["key-sync-send-0"]
    for scenario in ("push-consume", "lite-pull", "pull"):
        assert outcome[scenario]["received"] == SENT
    assert outcome["tag-filter"]["received"] == SENT // 2
    # The consumer committed its offsets when it stopped; this also needs the retry topic's route.
    progress = cluster.admin.run("consumerProgress", "-g", f"{topic}-group-push")
    assert "Consume Diff Total: 0" in progress.out


def test_java_client_gets_back_all_it_sent_to_a_topic_nobody_created(
    cluster: Cluster, unique: Unique
) -> None:
    """The producer takes the route of TBW102; the broker creates the topic on the first send."""
    topic = unique("automatic")
    scenarios = ["sync-send", "push-consume"]
    outcome = start_java_round(cluster.bench, cluster.nameserver, topic, scenarios).finish()

    assert outcome.failures() == {}
    # One of the brokers or both: as soon as the first has registered the topic, the producer may
    # refresh its route and go on with that one alone.
    assert set(outcome["sync-send"]["brokers"]) == set(cluster.queues(topic))


@pytest.mark.parametrize(
    "start", [pytest.param(start_go_round, id="go"), pytest.param(start_node_round, id="node")]
)
def test_other_client_gets_back_all_it_sent(
    cluster: Cluster, unique: Unique, start: Callable[..., RunningRound]
) -> None:
    topic = unique("other")
    # On this broker alone: both clients can only read answers with JSON headers.
    cluster.create_topic(topic, cluster.json_broker)
    outcome = start(cluster.bench, cluster.nameserver, topic, count=COUNT).finish()

    assert outcome.failures() == {}
    assert outcome["sync-send"]["brokers"] == [cluster.json_broker.name]
    assert outcome["push-consume"]["received"] == COUNT


def test_java_client_with_tls_gets_topics_and_routes_and_sends(
    cluster: Cluster, unique: Unique
) -> None:
    topic = unique("tls")
    cluster.create_topic(topic, cluster.json_broker, options=("-r", "3", "-w", "3"))
    scenarios = ["topic-list", "route", "sync-send"]
    with Relay(cluster.nameserver.port) as relay:
        outcome = start_java_round(
            cluster.bench, relay.address, topic, scenarios, properties={"tls.enable": "true"}
        ).finish()

    assert outcome.failures() == {}
    assert topic in outcome["topic-list"]["topics"]
    assert outcome["route"]["queues"] == {cluster.json_broker.name: 3}
    # Without this a client that silently fell back to plain text would pass.
    assert set(relay.first_bytes) == {TLS_HANDSHAKE}


def test_port_answers_the_same_with_and_without_tls(cluster: Cluster) -> None:
    encrypted = NameServerClient(cluster.nameserver.port, tls=True)

    assert encrypted.brokers() == cluster.nameserver.brokers()
    assert sorted(encrypted.brokers()) == cluster.broker_names()
