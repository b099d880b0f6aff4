"""Names on the wire, filters as brokers hear them, queues that follow from routes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow.base.errors import FirearrowError
from firearrow.client.errors import NoNameServer
from firearrow.client.namespaces import unwrap, wrap
from firearrow.client.options import Credentials, parse_nameservers
from firearrow.client.routes import Brokers, TopicRoute, like_creation_topic
from firearrow.client.subscriptions import parse_subscription
from firearrow.model.topic import BrokerData, MessageQueue, QueueData
from firearrow.wire.bodies import TopicRouteData
from firearrow.wire.command import Command

# --- namespaces ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "wrapped"),
    [
        ("orders", "shop%orders"),
        ("%RETRY%billing", "%RETRY%shop%billing"),
        ("%DLQ%billing", "%DLQ%shop%billing"),
        ("shop%orders", "shop%orders"),
        ("%RETRY%shop%billing", "%RETRY%shop%billing"),
        ("TBW102", "TBW102"),
        ("RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_TRACE_TOPIC"),
        ("CID_RMQ_SYS_x", "CID_RMQ_SYS_x"),
        ("", ""),
    ],
)
def test_names_get_their_prefix_once(name: str, wrapped: str) -> None:
    assert wrap("shop", name) == wrapped
    assert wrap("shop", wrapped) == wrapped
    assert wrap("", name) == name


@given(st.sampled_from(["orders", "a", "%RETRY%g", "%DLQ%g", "x%y"]), st.sampled_from(["s", "t-1"]))
def test_the_application_sees_its_own_names(name: str, space: str) -> None:
    assert unwrap(space, wrap(space, name)) == name
    assert unwrap("", name) == name


# --- subscriptions ------------------------------------------------------------------------------


def test_tags_are_told_by_name_and_by_hash() -> None:
    data, tags = parse_subscription("t", "ns%t", "TagA || TagB||", None, 7)
    assert tags == frozenset({"TagA", "TagB"})
    assert set(data.tags_set) == {"TagA", "TagB"}
    assert set(data.code_set) == {2_598_919, 2_598_920}
    assert (data.topic, data.sub_version, data.expression_type) == ("ns%t", 7, "TAG")
    for everything in ("*", ""):
        data, tags = parse_subscription("t", "t", everything, None, 0)
        assert tags is None
        assert not data.code_set


def test_sql_is_passed_on_as_it_is() -> None:
    data, tags = parse_subscription("t", "t", "*", " a > 1 ", 0)
    assert (data.expression_type, tags) == ("SQL92", None)
    assert data.sub_string.strip() == "a > 1"


@pytest.mark.parametrize(
    ("topic", "expression", "sql"),
    [("a b", "*", None), ("", "*", None), ("t", "||", None), ("t", "a", "b"), ("t", "*", "  ")],
)
def test_subscriptions_that_make_no_sense_are_refused(
    topic: str, expression: str, sql: str | None
) -> None:
    with pytest.raises(FirearrowError) as caught:
        parse_subscription(topic, topic, expression, sql, 0)
    assert caught.value.remedy


# --- routes -------------------------------------------------------------------------------------


def broker(name: str, **addresses: str) -> BrokerData:
    members = {int(number.removeprefix("n")): address for number, address in addresses.items()}
    return BrokerData(cluster="c", broker_name=name, broker_addrs=members)


def queues(name: str, read: int = 2, write: int = 2, perm: int = 6) -> QueueData:
    return QueueData(broker_name=name, read_queue_nums=read, write_queue_nums=write, perm=perm)


def test_producers_need_a_master_and_consumers_do_not() -> None:
    data = TopicRouteData(
        queue_datas=(queues("b", read=3, write=1), queues("a"), queues("c", perm=4)),
        broker_datas=(broker("b", n0="x:1"), broker("a", n1="y:1"), broker("c", n0="z:1")),
    )
    route = TopicRoute.of("t", data)
    assert [(one.broker_name, one.queue_id) for one in route.publish] == [("b", 0)]
    assert [(one.broker_name, one.queue_id) for one in route.subscribe] == [
        ("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0), ("c", 1),
    ]  # fmt: skip


def test_an_order_configuration_replaces_the_queues_of_producers() -> None:
    data = TopicRouteData(
        order_topic_conf="b:1;a:2",
        queue_datas=(queues("a", write=8), queues("b", write=8)),
        broker_datas=(broker("a", n0="x:1"), broker("b", n0="y:1")),
    )
    route = TopicRoute.of("t", data)
    assert [(one.broker_name, one.queue_id) for one in route.publish] == [
        ("b", 0), ("a", 0), ("a", 1),
    ]  # fmt: skip


def test_two_routes_that_say_the_same_are_equal() -> None:
    one = TopicRouteData(
        queue_datas=(queues("a"), queues("b")), broker_datas=(broker("b"), broker("a"))
    )
    two = TopicRouteData(
        queue_datas=(queues("b"), queues("a")), broker_datas=(broker("a"), broker("b"))
    )
    assert TopicRoute.of("t", one) == TopicRoute.of("t", two)


def test_topics_to_be_created_borrow_no_more_queues_than_asked_for() -> None:
    data = TopicRouteData(
        order_topic_conf="a:9",
        queue_datas=(queues("a", read=8, write=8), queues("b", read=2, write=2)),
        broker_datas=(broker("a", n0="x:1"), broker("b", n0="y:1")),
    )
    route = TopicRoute.of("t", like_creation_topic(data, 4))
    assert [one.broker_name for one in route.publish] == ["a"] * 4 + ["b"] * 2


def test_replicas_are_found_as_java_finds_them() -> None:
    brokers = Brokers()
    brokers.update(TopicRouteData(broker_datas=(broker("a", n0="m:1", n2="s:2"),)))
    assert brokers.master("a") == "m:1"
    assert brokers.replica("a") == ("m:1", 0)
    assert brokers.replica("a", 2) == ("s:2", 2)
    assert brokers.replica("a", 1) == ("s:2", 2)  # the next one
    assert brokers.replica("a", 5) == ("m:1", 0)
    assert brokers.replica("b") is None
    queue = MessageQueue(topic="t", broker_name="a", queue_id=0)
    brokers.suggest(queue, 2)
    assert brokers.suggested(queue) == 2
    brokers.suggest(queue, 0)
    assert brokers.suggested(queue) == 0
    assert brokers.all() == [("a", 0, "m:1"), ("a", 2, "s:2")]
    brokers.keep_only([])
    assert brokers.all() == []


# --- options ------------------------------------------------------------------------------------


def test_name_servers_come_from_argument_or_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse_nameservers("a:1;b:2") == ("a:1", "b:2")
    assert parse_nameservers("a:1, b:2;a:1") == ("a:1", "b:2")
    assert parse_nameservers(["a:1", "http://b:2"]) == ("a:1", "b:2")
    monkeypatch.setenv("NAMESRV_ADDR", "c:3")
    assert parse_nameservers(None) == ("c:3",)
    monkeypatch.delenv("NAMESRV_ADDR")
    with pytest.raises(NoNameServer, match="NAMESRV_ADDR"):
        parse_nameservers(None)
    with pytest.raises(ValueError, match="host:port"):
        parse_nameservers("no port")


def test_requests_are_signed_over_sorted_fields_and_body() -> None:
    command = Command(10, {"b": "2", "a": "1"}, b"body")
    Credentials("key", "secret").sign(command)
    first = command.ext["Signature"]
    Credentials("key", "secret").sign(command)  # a retry signs again
    assert command.ext["Signature"] == first
    assert command.ext["AccessKey"] == "key"
    assert first == "RO+2E9a0n4A4OVx5POCCEy+V7cw="
    assert "secret" not in repr(Credentials("key", "secret"))
