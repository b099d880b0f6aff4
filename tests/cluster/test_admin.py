"""Admin against real brokers and name servers: clusters, settings, topics, groups."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.support import SMALL_BROKER, ServedBroker, running_broker, until

from firearrow.broker.broker import Broker
from firearrow.broker.config import BrokerConfig
from firearrow.client.admin import Admin
from firearrow.client.errors import (
    AlreadyExists,
    BrokerNotFound,
    ClientClosed,
    InvalidName,
    InvalidRequest,
    NoNameServer,
    NoRoute,
)
from firearrow.client.message import Message
from firearrow.client.options import ClientOptions
from firearrow.client.producer import Producer
from firearrow.client.push_consumer import PushConsumer
from firearrow.model.errors import (
    ConsumerNotOnline,
    NoPermission,
    QueryNotFound,
    ServerFailed,
    SubscriptionGroupNotFound,
    TopicNotFound,
)
from firearrow.model.group import SubscriptionGroupConfig
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import request
from firearrow.wire.headers import RegisterBrokerRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@asynccontextmanager
async def administered(
    folder: Path, client: ClientOptions | None = None, **settings: Any
) -> AsyncIterator[tuple[ServedBroker, Admin]]:
    async with (
        running_broker(folder, **settings) as served,
        Admin(nameservers=served.nameserver.address, client=client) as admin,
    ):
        yield served, admin


@asynccontextmanager
async def another_broker(
    served: ServedBroker, folder: Path, name: str, **settings: Any
) -> AsyncIterator[Broker]:
    given = SMALL_BROKER | {
        "store_path_root_dir": folder,
        "namesrv_addr": served.nameserver.address,
        "broker_name": name,
    }
    broker = Broker(BrokerConfig(**(given | settings)))
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


def name_of(served: ServedBroker) -> str:
    return served.broker.config.broker_name


# --- cluster ----------------------------------------------------------------------------------


async def test_brokers_are_listed_with_what_they_say_about_themselves(tmp_path: Path) -> None:
    async with administered(tmp_path) as (served, admin):
        info = await admin.clusters()
        assert info.cluster_addr_table == {"DefaultCluster": (name_of(served),)}
        (broker,) = await admin.brokers()
        assert (broker.name, broker.cluster) == (name_of(served), "DefaultCluster")
        assert (broker.address, broker.is_master) == (served.broker.address, True)
        assert broker.version is not None
        assert broker.version.startswith("V5_")
        assert broker.error is None


async def test_a_broker_that_cannot_be_asked_is_listed_with_the_reason(tmp_path: Path) -> None:
    async with administered(tmp_path) as (served, admin):
        header = RegisterBrokerRequest(
            broker_name="gone",
            broker_addr="127.0.0.1:1",
            cluster_name="DefaultCluster",
            ha_server_addr="",
            broker_id=0,
        )
        answer = await served.ask_nameserver(request(RequestCode.REGISTER_BROKER, header))
        assert answer.code == 0
        gone, here = sorted(await admin.brokers(), key=lambda one: one.name != "gone")
        assert gone.error is not None
        assert "127.0.0.1:1" in gone.error
        assert gone.version is None
        assert here.error is None


async def test_settings_of_a_broker_are_read_and_changed_by_name_or_address(
    tmp_path: Path,
) -> None:
    async with administered(tmp_path) as (served, admin):
        name = name_of(served)
        assert (await admin.broker_config(name))["brokerName"] == name
        await admin.update_broker_config({"autoCreateTopicEnable": "false"}, broker=name)
        config = await admin.broker_config(served.broker.address)
        assert config["autoCreateTopicEnable"] == "false"
        await admin.update_broker_config(
            {"autoCreateTopicEnable": "true"}, cluster="DefaultCluster"
        )
        assert served.broker.config.auto_create_topic_enable


async def test_what_may_not_be_changed_or_is_not_there_gets_a_clear_error(tmp_path: Path) -> None:
    async with administered(tmp_path) as (served, admin):
        with pytest.raises(NoPermission, match="storePathRootDir"):
            await admin.update_broker_config(
                {"storePathRootDir": "elsewhere"}, broker=name_of(served)
            )
        with pytest.raises(InvalidRequest, match="no setting"):
            await admin.update_broker_config({}, broker=name_of(served))
        with pytest.raises(InvalidRequest, match="name the broker"):
            await admin.update_broker_config({"autoCreateTopicEnable": "true"})
        with pytest.raises(BrokerNotFound, match=f"no broker nobody, only {name_of(served)}"):
            await admin.broker_config("nobody")


async def test_settings_of_name_servers_are_read_and_changed(tmp_path: Path) -> None:
    async with administered(tmp_path) as (served, admin):
        address = served.nameserver.address
        config = await admin.nameserver_config()
        assert config[address]["orderMessageEnable"] == "false"
        await admin.update_nameserver_config({"orderMessageEnable": "true"})
        assert (await admin.nameserver_config())[address]["orderMessageEnable"] == "true"
        with pytest.raises(InvalidRequest, match="no setting"):
            await admin.update_nameserver_config({})


async def test_key_value_settings_are_put_read_and_deleted(tmp_path: Path) -> None:
    async with administered(tmp_path) as (_, admin):
        await admin.put_kv("mine", "colour", "blue")
        assert await admin.get_kv("mine", "colour") == "blue"
        assert await admin.list_kv("mine") == {"colour": "blue"}
        await admin.delete_kv("mine", "colour")
        with pytest.raises(QueryNotFound):
            await admin.get_kv("mine", "colour")


async def test_producers_can_be_sent_away_from_a_broker_and_called_back(tmp_path: Path) -> None:
    async with administered(tmp_path) as (served, admin):
        name, names = name_of(served), served.nameserver.address
        await admin.create_topic("orders", queues=2)
        assert (await admin.wipe_write_permission(name))[names] > 0
        assert (await admin.topic_route("orders")).queue_datas[0].perm == 4
        assert (await admin.add_write_permission(name))[names] > 0
        assert (await admin.topic_route("orders")).queue_datas[0].perm == 6
        with pytest.raises(BrokerNotFound, match="nobody"):
            await admin.wipe_write_permission("nobody")


async def test_an_admin_works_only_while_it_is_open(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        admin = Admin(nameservers=served.nameserver.address)
        with pytest.raises(ClientClosed):
            await admin.topics()
        async with admin:
            assert await admin.topics() == []
        with pytest.raises(ClientClosed):
            await admin.clusters()


def test_an_admin_needs_a_name_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(NoNameServer, match="NAMESRV_ADDR"):
        Admin()


# --- topics -----------------------------------------------------------------------------------


async def test_a_topic_is_created_seen_changed_and_deleted(tmp_path: Path) -> None:
    async with administered(tmp_path) as (served, admin):
        name = name_of(served)
        await admin.create_topic("orders", queues=3, attributes={"message.type": "FIFO"})
        assert await admin.topics() == ["orders"]
        config = (await admin.topic_config("orders"))[name]
        assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (3, 3, 6)
        assert config.attributes == {"message.type": "FIFO"}
        assert [queue.queue_id for queue in await admin.queues("orders")] == [0, 1, 2]

        await admin.update_topic("orders", write_queues=2, attributes={"message.type": None})
        config = (await admin.topic_config("orders"))[name]
        assert (config.read_queue_nums, config.write_queue_nums) == (3, 2)
        assert config.attributes == {}
        await admin.update_topic("orders", queues=5, perm=4)
        route = (await admin.topic_route("orders")).queue_datas[0]
        assert (route.read_queue_nums, route.write_queue_nums, route.perm) == (5, 5, 4)

        await admin.delete_topic("orders")
        assert await admin.topics() == []
        for ask in (admin.topic_route, admin.topic_config, admin.topic_stats, admin.delete_topic):
            with pytest.raises(NoRoute, match="orders"):
                await ask("orders")


async def test_creating_a_topic_twice_is_fine_unless_it_would_change(tmp_path: Path) -> None:
    async with administered(tmp_path) as (_, admin):
        await admin.create_topic("orders", queues=3)
        await admin.create_topic("orders", queues=3)
        with pytest.raises(AlreadyExists, match="orders exists on broker") as refused:
            await admin.create_topic("orders", queues=4)
        assert "update_topic" in refused.value.remedy
        assert len(await admin.queues("orders")) == 3


async def test_nonsense_about_topics_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    async with administered(tmp_path) as (_, admin):
        with pytest.raises(InvalidName, match="character"):
            await admin.create_topic("or ders")
        with pytest.raises(InvalidName, match="system topic"):
            await admin.create_topic("TBW102")
        with pytest.raises(InvalidRequest, match="at least one"):
            await admin.create_topic("orders", queues=0)
        with pytest.raises(InvalidRequest, match="permission 9"):
            await admin.create_topic("orders", perm=9)
        with pytest.raises(InvalidRequest, match="comma"):
            await admin.create_topic("orders", attributes={"message.type": "a,b"})
        with pytest.raises(InvalidRequest, match="no cluster elsewhere, only DefaultCluster"):
            await admin.create_topic("orders", cluster="elsewhere")
        with pytest.raises(NoRoute):
            await admin.update_topic("orders", queues=3)
        with pytest.raises(InvalidRequest, match="no setting"):
            await admin.update_topic("orders")
        assert await admin.topics() == []


async def test_topics_of_rocketmq_itself_are_listed_on_request(tmp_path: Path) -> None:
    async with administered(tmp_path) as (served, admin):
        await admin.create_topic("orders")
        await admin.create_group("billing")
        assert await admin.topics() == ["orders"]
        everything = await admin.topics(include_system=True)
        assert {"orders", "TBW102", name_of(served), "DefaultCluster"} <= set(everything)


async def test_ordered_topics_are_written_down_with_the_name_servers(tmp_path: Path) -> None:
    async with administered(tmp_path) as (served, admin):
        name = name_of(served)
        await admin.update_nameserver_config({"orderMessageEnable": "true"})
        await admin.create_topic("steps", queues=2, order=True)
        assert await admin.order_conf("steps") == {name: 2}
        assert (await admin.topic_route("steps")).order_topic_conf == f"{name}:2"
        await admin.update_topic("steps", queues=4)
        assert await admin.order_conf("steps") == {name: 4}
        await admin.set_order_conf("steps", {name: 1, "other": 2})
        assert await admin.order_conf("steps") == {name: 1, "other": 2}
        await admin.update_topic("steps", order=False)
        assert await admin.order_conf("steps") == {}
        with pytest.raises(InvalidRequest, match="at least 1"):
            await admin.set_order_conf("steps", {name: 0})


async def test_a_topic_spans_the_brokers_of_its_cluster(tmp_path: Path) -> None:
    async with (
        administered(tmp_path / "a") as (served, admin),
        another_broker(served, tmp_path / "b", "second"),
    ):
        await admin.create_topic("orders", queues=2)
        first = name_of(served)
        assert set(await admin.topic_config("orders")) == {first, "second"}
        assert len(await admin.queues("orders")) == 4
        await admin.update_topic("orders", queues=3, broker="second")
        found = await admin.topic_config("orders")
        assert [found[name].read_queue_nums for name in (first, "second")] == [2, 3]
        await admin.create_topic("local", queues=1, broker="second")
        assert set(await admin.topic_config("local")) == {"second"}
        with pytest.raises(TopicNotFound, match="local"):
            await admin.update_topic("local", queues=2, broker=first)


async def test_with_several_clusters_one_must_be_named(tmp_path: Path) -> None:
    async with (
        administered(tmp_path / "a") as (served, admin),
        another_broker(served, tmp_path / "b", "far", broker_cluster_name="Away"),
    ):
        with pytest.raises(InvalidRequest, match="Away, DefaultCluster"):
            await admin.create_topic("orders")
        await admin.create_topic("orders", cluster="Away")
        await admin.create_topic("orders", cluster="DefaultCluster")
        await admin.delete_topic("orders", cluster="Away")
        assert set(await admin.topic_config("orders")) == {name_of(served)}
        with pytest.raises(NoRoute, match="Away"):
            await admin.delete_topic("orders", cluster="Away")


async def test_statistics_of_a_topic_count_its_messages(tmp_path: Path) -> None:
    async with administered(tmp_path) as (served, admin):
        await admin.create_topic("orders", queues=2)
        async with Producer("sender", nameservers=served.nameserver.address) as producer:
            queue = (await admin.queues("orders"))[1]
            for text in ("one", "two", "three"):
                await producer.send(Message("orders", text), queue=queue)
        stats = await admin.topic_stats("orders")
        assert [one.messages for one in stats.queues] == [0, 3]
        assert stats.messages == 3
        assert stats.queues[0].last_stored_ms is None
        message = await admin.message_at(queue, 2)
        assert stats.queues[1].last_stored_ms == message.store_timestamp


# --- groups -----------------------------------------------------------------------------------


async def test_a_group_is_created_seen_changed_and_deleted(tmp_path: Path) -> None:
    async with administered(tmp_path) as (served, admin):
        name = name_of(served)
        await admin.create_group("billing", retry_max_times=3)
        assert await admin.groups() == ["billing"]
        assert "TOOLS_CONSUMER" in await admin.groups(include_system=True)
        config = (await admin.group_config("billing"))[name]
        assert (config.retry_max_times, config.consume_enable) == (3, True)
        await admin.update_group("billing", consume_enable=False, consume_timeout_minute=1)
        config = (await admin.group_config("billing"))[name]
        assert (config.retry_max_times, config.consume_enable) == (3, False)
        await admin.delete_group("billing")
        assert await admin.groups() == []
        assert "%RETRY%billing" not in await admin.topics(include_system=True)
        with pytest.raises(SubscriptionGroupNotFound, match="billing"):
            await admin.group_config("billing")
        assert await admin.groups() == []  # to ask for it has not created it
        with pytest.raises(SubscriptionGroupNotFound, match="billing"):
            await admin.delete_group("billing")


async def test_creating_a_group_twice_is_fine_unless_it_would_change(tmp_path: Path) -> None:
    async with administered(tmp_path) as (_, admin):
        await admin.create_group("billing", retry_max_times=3)
        await admin.create_group("billing", retry_max_times=3)
        with pytest.raises(AlreadyExists, match="billing"):
            await admin.create_group("billing")
        with pytest.raises(InvalidName):
            await admin.create_group("bil ling")
        with pytest.raises(InvalidRequest, match="negative"):
            await admin.update_group("billing", retry_queue_nums=-1)
        with pytest.raises(InvalidRequest, match="no setting"):
            await admin.update_group("billing")
        with pytest.raises(SubscriptionGroupNotFound, match="nobody"):
            await admin.update_group("nobody", consume_enable=False)


async def test_members_and_producers_are_listed_and_say_what_they_do(tmp_path: Path) -> None:
    async with administered(tmp_path) as (served, admin):
        names = served.nameserver.address
        await admin.create_topic("orders", queues=2)
        with pytest.raises(ConsumerNotOnline, match="billing"):
            await admin.consumer_connections("billing")
        with pytest.raises(ServerFailed, match="no producer of group sender"):
            await admin.producer_connections("sender", "orders")
        consumer = PushConsumer("billing", nameservers=names)
        consumer.subscribe("orders", "paid", lambda _: None)
        async with consumer, Producer("sender", nameservers=names) as producer:
            await producer.send(Message("orders", "one", tags="paid"))
            found = await admin.consumer_connections("billing")
            assert [one.client_id for one in found.connection_set] == [consumer.client_id]
            assert found.subscription_table["orders"].sub_string == "paid"
            for topic in ("orders", None):
                senders = await admin.producer_connections("sender", topic)
                assert [one.client_id for one in senders.connection_set] == [producer.client_id]
            await until(lambda: len(consumer.assignment) == 3)  # with the retry queue
            info = await admin.running_info("billing", consumer.client_id, stacks=True)
            assert {queue.topic for queue in info.mq_table} == {"orders", "%RETRY%billing"}
            assert info.jstack is not None
            assert await admin.topic_groups("orders") == ["billing"]
            with pytest.raises(ServerFailed, match="nobody"):
                await admin.running_info("billing", "nobody")


async def test_a_namespace_is_added_on_the_wire_and_hidden_from_the_application(
    tmp_path: Path,
) -> None:
    options = ClientOptions(namespace="shop")
    async with administered(tmp_path, options) as (served, admin):
        await admin.create_topic("orders", queues=1)
        await admin.create_group("billing")
        async with Admin(nameservers=served.nameserver.address) as outside:
            await outside.create_topic("orders", queues=2)
            assert await outside.topics() == ["orders", "shop%orders"]
            assert await outside.groups() == ["shop%billing"]
        assert await admin.topics() == ["orders"]
        assert await admin.groups() == ["billing"]
        (queue,) = await admin.queues("orders")
        assert queue.topic == "orders"
        (config,) = (await admin.topic_config("orders")).values()
        assert (config.topic_name, config.read_queue_nums) == ("orders", 1)
        (group,) = (await admin.group_config("billing")).values()
        assert group.group_name == "billing"
        async with Producer(
            "sender", nameservers=served.nameserver.address, client=options
        ) as producer:
            receipt = await producer.send(Message("orders", "one", keys="k"))
        assert await admin.max_offset(queue) == 1
        found = await admin.message_by_id(receipt.msg_id, "orders")
        assert (found.topic, found.body) == ("orders", b"one")
        assert (await admin.topic_stats("orders")).queues[0].queue == queue


async def test_all_topics_groups_and_lags_come_with_one_request_to_each_broker(
    tmp_path: Path,
) -> None:
    asked: list[int] = []

    class Watching:
        def before_request(self, address: str, command: Any) -> None:
            del address
            asked.append(command.code)

        def after_response(self, address: str, command: Any, response: Any) -> None: ...

    options = ClientOptions(hooks=(Watching(),))
    async with (
        administered(tmp_path / "a", options) as (served, admin),
        another_broker(served, tmp_path / "b", "broker-b"),
    ):
        for number in range(5):
            await admin.create_topic(f"topic-{number}", queues=2)
        await admin.create_topic("lonely", broker="broker-b")
        await admin.create_group("readers", retry_max_times=3)
        await admin.reset_offset("readers", "topic-1", "latest")
        asked.clear()
        topics, groups = await admin.topic_configs(), await admin.group_configs()
        lags = await admin.group_lags()
    assert set(topics["topic-1"]) == {"broker-a", "broker-b"}
    assert set(topics["lonely"]) == {"broker-b"}
    assert topics["topic-1"]["broker-b"].read_queue_nums == 2
    assert {one.retry_max_times for one in groups["readers"].values()} == {3}
    assert (lags["readers"].total, len(lags["readers"].queues)) == (0, 4)
    of_brokers = [code for code in asked if code != RequestCode.GET_BROKER_CLUSTER_INFO]
    assert len(of_brokers) == 6  # three questions to two brokers


async def test_lags_of_thousands_of_groups_are_read(tmp_path: Path) -> None:
    async with administered(tmp_path) as (served, admin):
        await admin.create_topic("orders", queues=4)
        state = served.broker.state
        for number in range(2_500):
            name = f"billing-of-customer-{number:06}"
            state.groups.put(SubscriptionGroupConfig(group_name=name))
            for queue_id in range(4):
                state.offsets.commit("orders", name, queue_id, 0)
        async with Producer("p", nameservers=served.nameserver.address) as producer:
            await producer.send(Message("orders", b"x"))
        lags = await admin.group_lags()
    mine = [lag for name, lag in lags.items() if name.startswith("billing")]
    assert len(mine) == 2_500
    assert {(lag.total, len(lag.queues)) for lag in mine} == {(1, 4)}


async def test_listings_show_what_belongs_to_the_namespace(tmp_path: Path) -> None:
    async with administered(tmp_path) as (served, admin):
        await admin.create_topic("outside")
        inside = ClientOptions(namespace="team")
        async with Admin(nameservers=served.nameserver.address, client=inside) as own:
            await own.create_topic("orders")
            await own.create_group("readers")
            assert set(await own.topic_configs()) == {"orders", "%RETRY%readers"}
            assert set(await own.group_configs()) == {"readers"}
        assert "team%orders" in await admin.topic_configs()


async def test_every_producer_is_listed_once(tmp_path: Path) -> None:
    async with (
        administered(tmp_path) as (served, admin),
        Producer("sender", nameservers=served.nameserver.address) as producer,
    ):
        await admin.create_topic("orders")
        await producer.send(Message("orders", b"x"))
        await until(lambda: "sender" in served.broker.state.clients.producers)
        (one,) = (await admin.producers())["sender"]
        assert one.client_id == producer.client_id


async def test_messages_between_two_offsets_are_given_and_any_request_can_be_made(
    tmp_path: Path,
) -> None:
    async with administered(tmp_path) as (served, admin):
        await admin.create_topic("orders", queues=1)
        async with Producer("p", nameservers=served.nameserver.address) as producer:
            for number in range(40):
                await producer.send(Message("orders", f"{number}"))
        (queue,) = await admin.queues("orders")
        texts = [one.text async for one in admin.messages_between(queue, 3, 37)]
        assert texts == [str(number) for number in range(3, 37)]
        assert [one.text async for one in admin.messages_between(queue, 38)] == ["38", "39"]
        assert [one async for one in admin.messages_between(queue, 40)] == []
        answer = await admin.request(served.broker.address, RequestCode.GET_BROKER_CONFIG)
        assert b"brokerName=broker-a" in answer.body
        with pytest.raises(ServerFailed):
            await admin.request(served.broker.address, RequestCode.DELETE_TOPIC_IN_BROKER)
