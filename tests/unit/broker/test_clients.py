"""Who is connected, what they want, and when a group must share its queues anew."""

from __future__ import annotations

import pytest

from firearrow.broker.clients import Clients, ConsumerHeartbeat, Member
from firearrow.model.group import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData
from firearrow.testing import ManualClock


def member(channel: str, clock: ManualClock, client_id: str | None = None) -> Member:
    return Member(channel, client_id or f"client-{channel}", 0, 479, clock.elapsed_ms())


def wants(topic: str = "t", expression: str = "*", version: int = 1) -> SubscriptionData:
    return SubscriptionData.of(topic, expression, version=version)


def said(*subscriptions: SubscriptionData, without: bool = False) -> ConsumerHeartbeat:
    return ConsumerHeartbeat(
        "g",
        ConsumeType.CONSUME_PASSIVELY,
        MessageModel.CLUSTERING,
        ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        subscriptions,
        without_subscriptions=without,
    )


def test_group_shares_anew_for_new_members_and_topics_only() -> None:
    clock = ManualClock()
    clients = Clients(clock)
    assert clients.consumer_heartbeat(said(wants()), member("a", clock))
    assert not clients.consumer_heartbeat(said(wants()), member("a", clock))
    assert not clients.consumer_heartbeat(said(wants(version=2)), member("a", clock))
    assert clients.consumer_heartbeat(said(wants()), member("b", clock))
    assert clients.consumer_heartbeat(said(wants(), wants("u")), member("a", clock))
    assert clients.consumer_heartbeat(said(wants()), member("a", clock))
    assert not clients.consumer_heartbeat(said(without=True), member("a", clock))


def test_larger_version_replaces_and_a_smaller_one_does_not() -> None:
    clock = ManualClock()
    clients = Clients(clock)
    for expression, version in (("new", 5), ("old", 4), ("same", 5)):
        clients.consumer_heartbeat(said(wants("t", expression, version)), member("a", clock))
    group = clients.group("g")
    assert group is not None
    assert group.subscriptions["t"].sub_string == "new"


def test_channel_with_another_client_id_is_another_member() -> None:
    clock = ManualClock()
    clients = Clients(clock)
    clients.consumer_heartbeat(said(wants()), member("a", clock, "first"))
    assert clients.consumer_heartbeat(said(wants()), member("a", clock, "second"))
    group = clients.group("g")
    assert group is not None
    assert group.client_ids == ("second",)


def test_closed_channel_is_in_no_group_any_more() -> None:
    clock = ManualClock()
    clients = Clients(clock)
    clients.producer_heartbeat("p", member("a", clock))
    clients.consumer_heartbeat(said(wants()), member("a", clock))
    clients.consumer_heartbeat(said(wants()), member("b", clock))
    assert clients.channel_closed("a") == ["g"]
    assert clients.channel_closed("a") == []
    assert clients.producers == {}
    assert clients.channel_closed("b") == ["g"]
    assert clients.group("g") is None


def test_leaving_tells_only_the_group_that_was_left() -> None:
    clock = ManualClock()
    clients = Clients(clock)
    clients.producer_heartbeat("p", member("a", clock))
    clients.consumer_heartbeat(said(wants()), member("a", clock))
    assert clients.leave("stranger", producer_group="p", consumer_group="g") == []
    assert clients.leave("a", producer_group="p", consumer_group=None) == []
    assert clients.producers == {}
    assert clients.leave("a", producer_group=None, consumer_group="g") == ["g"]


async def test_channel_is_expired_when_one_of_its_heartbeats_is_too_old() -> None:
    clock = ManualClock()
    clients = Clients(clock)
    clients.consumer_heartbeat(said(wants()), member("old", clock))
    clients.producer_heartbeat("p", member("old", clock))
    await clock.advance(100)
    clients.consumer_heartbeat(said(wants()), member("young", clock))
    assert clients.expired(100) == []
    await clock.advance(1)
    assert clients.expired(100) == ["old"]
    clients.consumer_heartbeat(said(wants()), member("old", clock))
    clients.producer_heartbeat("p", member("old", clock))
    assert clients.expired(100) == []


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        ((wants(),), (wants(),), {}),
        ((wants(),), (wants("t", "A"),), {"t": {"client-a": "*", "client-b": "A"}}),
        ((wants(), wants("u")), (wants(),), {"u": {"client-a": "*", "client-b": ""}}),
        ((wants(),), (), {}),  # it has said nothing of its wishes yet
    ],
)
def test_members_that_want_different_things_are_found(
    first: tuple[SubscriptionData, ...],
    second: tuple[SubscriptionData, ...],
    found: dict[str, dict[str, str]],
) -> None:
    clock = ManualClock()
    clients = Clients(clock)
    clients.consumer_heartbeat(said(*first), member("a", clock))
    clients.consumer_heartbeat(said(*second, without=not second), member("b", clock))
    group = clients.group("g")
    assert group is not None
    assert group.divergences() == found


def test_producer_and_groups_of_a_topic_are_found() -> None:
    clock = ManualClock()
    clients = Clients(clock)
    clients.producer_heartbeat("p", member("a", clock))
    clients.consumer_heartbeat(said(wants()), member("b", clock))
    found = clients.producer("client-a")
    assert found is not None
    assert found.channel == "a"
    assert clients.producer("client-b") is None
    assert clients.groups_of_topic("t") == ["g"]
    assert clients.groups_of_topic("u") == []
