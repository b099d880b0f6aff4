"""A whole name server on a free port, asked over the wire."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import TYPE_CHECKING, Any

import pytest
from tests.support import Served, running_nameserver, until

from firearrow.base.errors import ConfigError
from firearrow.hot import crc31
from firearrow.model.errors import ResponseCode
from firearrow.model.topic import DataVersion, QueueData, TopicConfig
from firearrow.nameserver.config import NameServerConfig
from firearrow.nameserver.server import NameServer
from firearrow.net.client import RemotingClient
from firearrow.net.errors import NetworkError
from firearrow.testing import ManualClock
from firearrow.wire import bodies, headers, java_json
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import Command, request
from firearrow.wire.properties_text import parse_properties

if TYPE_CHECKING:
    from pathlib import Path

    from firearrow.wire.header import Header

VERSION = DataVersion(timestamp=1_700_000_000_000, counter=3)
TOPICS = {
    name: TopicConfig(topic_name=name, read_queue_nums=4, write_queue_nums=4)
    for name in ("orders", "TBW102")
}


def registration(
    *, compressed: bool = False, topics: dict[str, TopicConfig] | None = None, **fields: Any
) -> Command:
    body = bodies.encode_register_body(
        bodies.RegisterBrokerBody(
            topic_config_serialize_wrapper=bodies.TopicConfigSerializeWrapper(
                data_version=VERSION, topic_config_table=TOPICS if topics is None else topics
            )
        ),
        compressed=compressed,
    )
    given: dict[str, Any] = {
        "broker_name": "broker-a",
        "broker_addr": "127.0.0.1:10911",
        "cluster_name": "DefaultCluster",
        "ha_server_addr": "127.0.0.1:10912",
        "broker_id": 0,
        "enable_acting_master": False,
        "compressed": compressed,
        "body_crc32": crc31(body),
    }
    header = headers.RegisterBrokerRequest(**(given | fields))
    return request(RequestCode.REGISTER_BROKER, header, body)


def ask(code: RequestCode, header: Header | None = None, body: bytes = b"") -> Command:
    return request(code, header, body)


def route_of(topic: str) -> Command:
    return ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, headers.GetRouteInfoRequest(topic=topic))


async def put_order_conf(served: Served, topic: str, value: str) -> None:
    header = headers.PutKVConfigRequest(namespace="ORDER_TOPIC_CONFIG", key=topic, value=value)
    assert (await served.ask(ask(RequestCode.PUT_KV_CONFIG, header))).code == 0


@pytest.mark.parametrize("compressed", [False, True])
async def test_registered_broker_is_found_by_topic_and_in_the_cluster(compressed: bool) -> None:
    async with running_nameserver() as served:
        assert (await served.ask(registration(compressed=compressed))).code == 0
        reply = await served.ask(route_of("orders"))
        assert reply.body == (
            b'{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:10911"},"brokerName":"broker-a",'
            b'"cluster":"DefaultCluster","enableActingMaster":false}],"filterServerTable":{},'
            b'"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":4,'
            b'"topicSysFlag":0,"writeQueueNums":4}]}'
        )
        info = java_json.decode(
            (await served.ask(ask(RequestCode.GET_BROKER_CLUSTER_INFO))).body, bodies.ClusterInfo
        )
        assert info.cluster_addr_table == {"DefaultCluster": ("broker-a",)}


async def test_registration_with_a_wrong_crc_is_refused() -> None:
    async with running_nameserver() as served:
        reply = await served.ask(registration(body_crc32=12345))
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert "CRC" in (reply.remark or "")
        assert (await served.ask(route_of("orders"))).code == ResponseCode.TOPIC_NOT_EXIST


async def test_registration_of_a_single_topic_by_a_stranger_is_refused() -> None:
    async with running_nameserver() as served:
        reply = await served.ask(registration(topics={"orders": TOPICS["orders"]}))
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert "full table" in (reply.remark or "")


async def test_slave_learns_its_master_from_the_registration() -> None:
    async with running_nameserver() as served:
        await served.ask(registration())
        reply = await served.ask(registration(broker_id=1, broker_addr="127.0.0.1:20911"))
        told = headers.RegisterBrokerReply.from_ext(reply.ext)
        assert told.master_addr == "127.0.0.1:10911"
        assert told.ha_server_addr == "127.0.0.1:10912"


async def test_missing_route_says_why_and_what_to_do() -> None:
    async with running_nameserver() as served:
        before = await served.ask(route_of("orders"))
        assert before.code == ResponseCode.TOPIC_NOT_EXIST
        assert "No broker is registered" in (before.remark or "")
        await served.ask(registration())
        after = await served.ask(route_of("unknown"))
        assert after.code == ResponseCode.TOPIC_NOT_EXIST
        assert "autoCreateTopicEnable" in (after.remark or "")


async def test_request_without_a_required_field_names_it() -> None:
    async with running_nameserver() as served:
        reply = await served.ask(Command(RequestCode.GET_ROUTEINFO_BY_TOPIC))
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert "'topic'" in (reply.remark or "")


async def test_binary_headers_are_answered_in_kind() -> None:
    async with running_nameserver() as served:
        command = route_of("orders")
        command.serializer = 1
        reply = await served.ask(command)
        assert (reply.serializer, reply.code) == (1, ResponseCode.TOPIC_NOT_EXIST)


async def test_unregistered_broker_disappears_at_once() -> None:
    async with running_nameserver() as served:
        await served.ask(registration())
        header = headers.UnregisterBrokerRequest(
            broker_name="broker-a",
            broker_addr="127.0.0.1:10911",
            cluster_name="DefaultCluster",
            broker_id=0,
        )
        assert (await served.ask(ask(RequestCode.UNREGISTER_BROKER, header))).code == 0
        assert (await served.ask(route_of("orders"))).code == ResponseCode.TOPIC_NOT_EXIST


async def test_broker_whose_connection_ends_disappears_at_once() -> None:
    async with running_nameserver() as served:
        broker = RemotingClient(served.client._clock)  # noqa: SLF001
        await broker.invoke(served.server.address, registration(), 5_000)
        assert (await served.ask(route_of("orders"))).code == 0
        await broker.close()
        await until(lambda: served.server.statistics()[1].brokers_live == 0)
        assert (await served.ask(route_of("orders"))).code == ResponseCode.TOPIC_NOT_EXIST


async def test_silent_broker_expires_after_its_timeout_and_its_socket_is_closed() -> None:
    clock = ManualClock()
    async with running_nameserver(clock, server_channel_max_idle_time_seconds=3600) as served:
        connection = await served.client.connection(served.server.address)
        await served.ask(registration())
        await clock.advance(120_000)
        assert served.server.statistics()[1].brokers_live == 1
        await clock.advance(10_000)
        assert served.server.statistics()[1].brokers_live == 0
        await asyncio.wait_for(connection.closed, 20)


@pytest.mark.parametrize("code", [RequestCode.BROKER_HEARTBEAT, RequestCode.QUERY_DATA_VERSION])
async def test_broker_that_gives_signs_of_life_does_not_expire(code: RequestCode) -> None:
    clock = ManualClock()
    async with running_nameserver(clock) as served:
        await served.ask(registration())
        sign: Header = headers.BrokerHeartbeatRequest(
            cluster_name="DefaultCluster", broker_addr="127.0.0.1:10911", broker_name="broker-a"
        )
        if code == RequestCode.QUERY_DATA_VERSION:
            sign = headers.QueryDataVersionRequest(
                broker_name="broker-a",
                broker_addr="127.0.0.1:10911",
                cluster_name="DefaultCluster",
                broker_id=0,
            )
        for _ in range(4):
            await clock.advance(100_000)
            assert (await served.ask(ask(code, sign))).code == 0
        assert served.server.statistics()[1].brokers_live == 1


async def test_data_version_query_tells_whether_a_registration_is_needed() -> None:
    async with running_nameserver() as served:
        header = headers.QueryDataVersionRequest(
            broker_name="broker-a",
            broker_addr="127.0.0.1:10911",
            cluster_name="DefaultCluster",
            broker_id=0,
        )
        question = ask(RequestCode.QUERY_DATA_VERSION, header, java_json.encode(VERSION))
        unknown = await served.ask(question)
        assert (unknown.ext, unknown.body) == ({"changed": "true"}, b"")
        await served.ask(registration())
        known = await served.ask(question)
        assert known.ext == {"changed": "false"}
        assert java_json.decode(known.body, DataVersion) == VERSION


async def test_kv_config_survives_a_restart(tmp_path: Path) -> None:
    put = headers.PutKVConfigRequest(namespace="ns", key="k", value="火箭")
    get = headers.GetKVConfigRequest(namespace="ns", key="k")
    delete = headers.DeleteKVConfigRequest(namespace="ns", key="k")
    listing = headers.GetKVListByNamespaceRequest(namespace="ns")
    async with running_nameserver(folder=tmp_path) as served:
        missing = await served.ask(ask(RequestCode.GET_KV_CONFIG, get))
        assert missing.code == ResponseCode.QUERY_NOT_FOUND
        no_list = await served.ask(ask(RequestCode.GET_KVLIST_BY_NAMESPACE, listing))
        assert no_list.code == ResponseCode.QUERY_NOT_FOUND
        assert (await served.ask(ask(RequestCode.PUT_KV_CONFIG, put))).code == 0
    async with running_nameserver(folder=tmp_path) as served:
        assert (await served.ask(ask(RequestCode.GET_KV_CONFIG, get))).ext == {"value": "火箭"}
        listed = await served.ask(ask(RequestCode.GET_KVLIST_BY_NAMESPACE, listing))
        assert listed.body == '{"table":{"k":"火箭"}}'.encode()
        for _ in range(2):
            assert (await served.ask(ask(RequestCode.DELETE_KV_CONFIG, delete))).code == 0
    async with running_nameserver(folder=tmp_path) as served:
        gone = await served.ask(ask(RequestCode.GET_KV_CONFIG, get))
        assert gone.code == ResponseCode.QUERY_NOT_FOUND


async def test_kv_config_is_logged_every_ten_minutes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = ManualClock()
    async with running_nameserver(clock) as served:
        await put_order_conf(served, "orders", "broker-a:4")
        caplog.clear()
        await clock.advance(599_999)
        assert "KV config" not in caplog.text
        await clock.advance(1)
        assert "KV config ORDER_TOPIC_CONFIG/orders is 'broker-a:4'" in caplog.messages
        caplog.clear()
        await clock.advance(600_000)
        assert "KV config ORDER_TOPIC_CONFIG/orders is 'broker-a:4'" in caplog.messages


async def test_producer_of_a_new_topic_finds_the_template_to_create_it_from() -> None:
    """A Java producer that gets code 17 asks for TBW102 next, and needs its INHERIT bit."""
    template = TopicConfig(topic_name="TBW102", read_queue_nums=8, write_queue_nums=8, perm=7)
    async with running_nameserver() as served:
        await served.ask(registration(topics=TOPICS | {"TBW102": template}))
        assert (await served.ask(route_of("new"))).code == ResponseCode.TOPIC_NOT_EXIST
        reply = await served.ask(route_of("TBW102"))
        assert reply.body == (
            b'{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:10911"},"brokerName":"broker-a",'
            b'"cluster":"DefaultCluster","enableActingMaster":false}],"filterServerTable":{},'
            b'"queueDatas":[{"brokerName":"broker-a","perm":7,"readQueueNums":8,"topicSysFlag":0,'
            b'"writeQueueNums":8}]}'
        )


async def test_order_configuration_reaches_brokers_and_routes_when_enabled() -> None:
    async with running_nameserver(order_message_enable=True) as served:
        first = await served.ask(registration())
        assert first.body == b"", "no namespace, no table"
        await put_order_conf(served, "orders", "broker-a:4")
        again = await served.ask(registration())
        assert again.body == b'{"table":{"orders":"broker-a:4"}}'
        route = java_json.decode((await served.ask(route_of("orders"))).body, bodies.TopicRouteData)
        assert route.order_topic_conf == "broker-a:4"


async def test_order_configuration_stays_out_of_routes_by_default() -> None:
    async with running_nameserver() as served:
        await served.ask(registration())
        await put_order_conf(served, "orders", "broker-a:4")
        assert b"orderTopicConf" not in (await served.ask(route_of("orders"))).body


async def test_write_permission_is_wiped_and_added() -> None:
    async with running_nameserver() as served:
        await served.ask(registration())
        wipe = headers.WipeWritePermOfBrokerRequest(broker_name="broker-a")
        wiped = await served.ask(ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, wipe))
        assert wiped.ext == {"wipeTopicCount": "2"}
        assert b'"perm":4' in (await served.ask(route_of("orders"))).body
        add = headers.AddWritePermOfBrokerRequest(broker_name="broker-a")
        added = await served.ask(ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, add))
        assert added.ext == {"addTopicCount": "2"}
        assert b'"perm":6' in (await served.ask(route_of("orders"))).body


async def test_topics_are_listed_deleted_and_announced_one_by_one() -> None:
    async with running_nameserver() as served:
        await served.ask(registration())
        everything = ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        assert (await served.ask(everything)).body == b'{"topicList":["orders","TBW102"]}'
        delete = headers.DeleteTopicInNameserverRequest(topic="orders")
        await served.ask(ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, delete))
        assert (await served.ask(everything)).body == b'{"topicList":["TBW102"]}'
        single = bodies.TopicRouteData(
            queue_datas=(QueueData(broker_name="broker-a", read_queue_nums=1, perm=6),)
        )
        await served.ask(
            ask(
                RequestCode.REGISTER_TOPIC_IN_NAMESRV,
                headers.RegisterTopicRequest(topic="late"),
                java_json.encode(single),
            )
        )
        cluster = headers.GetTopicsByClusterRequest(cluster="DefaultCluster")
        by_cluster = await served.ask(ask(RequestCode.GET_TOPICS_BY_CLUSTER, cluster))
        assert by_cluster.body == b'{"topicList":["TBW102","late"]}'
        system = await served.ask(ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS))
        assert system.body == (
            b'{"brokerAddr":"127.0.0.1:10911","topicList":["DefaultCluster","broker-a"]}'
        )
        for code in (
            RequestCode.GET_UNIT_TOPIC_LIST,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
        ):
            assert (await served.ask(ask(code))).body == b'{"topicList":[]}'


async def test_topic_list_can_be_switched_off() -> None:
    async with running_nameserver(enable_all_topic_list=False) as served:
        reply = await served.ask(ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert "disable" in (reply.remark or "")


async def test_member_group_lists_the_addresses_of_a_broker_name() -> None:
    async with running_nameserver() as served:
        await served.ask(registration())
        header = headers.GetBrokerMemberGroupRequest(
            cluster_name="DefaultCluster", broker_name="broker-a"
        )
        reply = await served.ask(ask(RequestCode.GET_BROKER_MEMBER_GROUP, header))
        assert reply.body == (
            b'{"brokerMemberGroup":{"brokerAddrs":{"0":"127.0.0.1:10911"},'
            b'"brokerName":"broker-a","cluster":"DefaultCluster"}}'
        )


async def test_configuration_is_shown_and_changed_by_key_and_kept(tmp_path: Path) -> None:
    async with running_nameserver(folder=tmp_path) as served:
        shown = parse_properties((await served.ask(ask(RequestCode.GET_NAMESRV_CONFIG))).body)
        assert shown["orderMessageEnable"] == "false"
        assert shown["brokerExpiredMillis"] == "120000"
        update = ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"orderMessageEnable=true\n")
        assert (await served.ask(update)).code == 0
        shown = parse_properties((await served.ask(ask(RequestCode.GET_NAMESRV_CONFIG))).body)
        assert shown["orderMessageEnable"] == "true"
    saved = parse_properties((tmp_path / "namesrv.properties").read_bytes())
    assert saved["orderMessageEnable"] == "true"


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        (b"kvConfigPath=/tmp/evil", ResponseCode.NO_PERMISSION, "kvConfigPath"),
        (b"configStorePath=/tmp/evil", ResponseCode.NO_PERMISSION, "configStorePath"),
        (b"tls.server.keyPath=/tmp/evil", ResponseCode.NO_PERMISSION, "tls.server.keyPath"),
        (b"orderMessageEnabled=true", ResponseCode.SYSTEM_ERROR, "did you mean"),
        (b"orderMessageEnable=maybe", ResponseCode.SYSTEM_ERROR, "true or false"),
        (b"brokerExpiredMillis=1", ResponseCode.SYSTEM_ERROR, "from 100 to"),
        (b"a=\\u12", ResponseCode.SYSTEM_ERROR, "escape"),
        (b"#" * 65_536, ResponseCode.SYSTEM_ERROR, "the limit is 65536"),
    ],
)
async def test_configuration_outside_the_allow_list_stays_as_it_is(
    body: bytes, code: ResponseCode, words: str
) -> None:
    async with running_nameserver() as served:
        before = await served.ask(ask(RequestCode.GET_NAMESRV_CONFIG))
        harmless = b"\nenableTopicList=false\n"
        reply = await served.ask(ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=body + harmless))
        assert reply.code == code
        assert words in (reply.remark or "")
        after = await served.ask(ask(RequestCode.GET_NAMESRV_CONFIG))
        assert after.body == before.body, "all changes of a request, or none"


async def test_name_server_that_waits_for_brokers_says_so() -> None:
    clock = ManualClock()
    async with running_nameserver(clock, need_wait_for_service=True) as served:
        await served.ask(registration())
        early = await served.ask(route_of("orders"))
        assert early.code == ResponseCode.SYSTEM_ERROR
        await clock.advance(45_000)
        assert (await served.ask(route_of("orders"))).code == 0


async def test_brokers_hear_of_a_new_lowest_id_where_that_is_enabled() -> None:
    heard: list[Command] = []
    async with (
        running_nameserver(notify_min_broker_id_changed=True) as served,
        running_nameserver() as stand_in,
    ):
        # A second listener stands where the slave's own port would be.
        server = stand_in.server._server  # noqa: SLF001
        server.handle = lambda _, command: heard.append(command)  # type: ignore[method-assign,assignment]
        slave = registration(
            broker_id=2, broker_addr=stand_in.server.address, enable_acting_master=True
        )
        await served.ask(slave)
        await served.ask(registration(enable_acting_master=True))
        await until(lambda: heard)
    notice = headers.NotifyMinBrokerIdChangeRequest.from_ext(heard[0].ext)
    assert (notice.min_broker_id, notice.min_broker_addr) == (0, "127.0.0.1:10911")
    assert heard[0].flag == 2


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.2", "::", "example"])
def test_address_that_others_can_reach_needs_a_decision(host: str) -> None:
    config = dataclasses.replace(NameServerConfig(), bind_address=host)
    with pytest.raises(ConfigError, match="--insecure"):
        NameServer(config)


async def test_taken_port_is_reported_with_a_remedy() -> None:
    async with running_nameserver() as served:
        port = int(served.server.address.rpartition(":")[2])
        with pytest.raises(ConfigError, match="choose another port"):
            async with running_nameserver(listen_port=port):
                pass


async def test_damaged_kv_file_stops_the_start_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "kvConfig.json").write_bytes(b'{"configTable":{"ns":')
    with pytest.raises(ConfigError, match=r"kvConfig\.json"):
        async with running_nameserver(folder=tmp_path):
            pass


async def test_stopped_server_is_gone_for_its_clients() -> None:
    async with running_nameserver() as served:
        address = served.server.address
        await served.ask(registration())
        await served.server.stop()
        with pytest.raises(NetworkError):
            await served.client.invoke(address, route_of("orders"), 1_000)
