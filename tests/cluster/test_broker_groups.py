"""What administrators ask about groups: settings, members, progress, and moving them."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.admin_requests import body_of, create, put, route, told
from tests.broker_requests import (
    GROUP,
    TOPIC,
    commit,
    heartbeat,
    pull,
    pulled,
    query_offset,
    subscription,
    texts,
)
from tests.support import ServedBroker, running_broker, until

from firearrow.base.runtime import Service, SystemClock
from firearrow.broker.processors import consumers_admin
from firearrow.model.errors import ResponseCode
from firearrow.model.group import SubscriptionGroupConfig
from firearrow.net.client import RemotingClient
from firearrow.net.router import Router
from firearrow.wire import bodies, headers, java_json
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import Command, reply_to, request
from firearrow.wire.headers import PullFlag

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from firearrow.net.connection import Connection


class Consumer:
    """A client whose answers to the broker's questions a test chooses."""

    def __init__(self, served: ServedBroker, client_id: str) -> None:
        self.heard: list[Command] = []
        self.answers: dict[int, Callable[[Command], Command | None]] = {}
        self.client_id = client_id
        self._served = served
        codes = (40, 220, 221, 307, 309)
        tasks = Service("consumer", SystemClock())
        router = Router(dict.fromkeys(codes, self._answer), tasks)
        self.client = RemotingClient(SystemClock(), router=router)

    def _answer(self, command: Command, _: Connection) -> Command | None:
        self.heard.append(command)
        return self.answers.get(command.code, reply_to)(command)

    async def ask(self, command: Command) -> Command:
        return await self.client.invoke(self._served.broker.address, command, 20_000)

    def told(self, code: int) -> list[Command]:
        return [command for command in self.heard if command.code == code]


@asynccontextmanager
async def consumer(
    served: ServedBroker, client_id: str = "client-1", **fields: Any
) -> AsyncIterator[Consumer]:
    """A member of a group, until the block ends."""
    one = Consumer(served, client_id)
    try:
        subscriptions = fields.pop("subscriptions", ())
        reply = await one.ask(heartbeat(client_id, *subscriptions, **fields))
        assert reply.code == 0
        yield one
    finally:
        await one.client.close()


# --- settings -------------------------------------------------------------------------------


def put_group(**fields: Any) -> Command:
    body = java_json.encode(SubscriptionGroupConfig(**({"group_name": GROUP} | fields)))
    return request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)


async def test_created_group_is_read_back_and_its_retry_topic_is_routed(tmp_path: Path) -> None:
    async with running_broker(tmp_path, auto_create_subscription_group=False) as served:
        assert (await served.ask(put_group(retry_max_times=3, retry_queue_nums=2))).code == 0
        asked = headers.GetSubscriptionGroupConfigRequest(group=GROUP)
        found = await body_of(served, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, asked)
        assert (found.retry_max_times, found.retry_queue_nums) == (3, 2)
        table = await body_of(served, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        assert table.subscription_group_table[GROUP] == found
        await served.broker.state.registration.registered()
        retry = java_json.decode(
            (await route(served, f"%RETRY%{GROUP}")).body, bodies.TopicRouteData
        )
        assert retry.queue_datas[0].read_queue_nums == 2


@pytest.mark.parametrize("name", ["", "bad group", "g" * 121])
async def test_impossible_group_is_refused_with_code_29(tmp_path: Path, name: str) -> None:
    async with running_broker(tmp_path) as served:
        reply = await served.ask(put_group(group_name=name))
        assert reply.code == ResponseCode.INVALID_PARAMETER
        groups = (
            SubscriptionGroupConfig(group_name="good"),
            SubscriptionGroupConfig(group_name=name),
        )
        body = java_json.encode(bodies.SubscriptionGroupList(group_config_list=groups))
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
        reply = await served.ask(request(code, body=body))
        assert reply.code == ResponseCode.INVALID_PARAMETER
        assert served.broker.state.groups.get("good") is None


async def test_deleted_group_keeps_its_offsets_unless_they_are_to_go_too(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        await put(served, b"one")
        for clean, left in ((False, "1"), (True, None)):
            await served.ask(put_group())
            await served.ask(commit(1))
            asked = headers.DeleteSubscriptionGroupRequest(group_name=GROUP, clean_offset=clean)
            await told(served, RequestCode.DELETE_SUBSCRIPTIONGROUP, asked)
            assert served.broker.state.groups.get(GROUP) is None
            assert (await served.ask(query_offset())).ext.get("offset") == left


async def test_unknown_group_is_made_by_asking_only_where_that_is_allowed(tmp_path: Path) -> None:
    asked = request(
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
        headers.GetSubscriptionGroupConfigRequest(group=GROUP),
    )
    async with running_broker(tmp_path / "a", auto_create_subscription_group=False) as served:
        assert (await served.ask(asked)).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    async with running_broker(tmp_path / "b") as served:
        assert (await served.ask(asked)).code == 0


async def test_group_that_is_forbidden_a_topic_cannot_read_it(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served, consumer(served):
        await put(served, b"one")
        for readable in (False, True):
            asked = headers.UpdateGroupForbiddenRequest(group=GROUP, topic=TOPIC, readable=readable)
            found = await body_of(served, RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, asked)
            assert found.readable is readable
            reply = await served.ask(pull(expression=None))
            assert reply.code == (0 if readable else ResponseCode.NO_PERMISSION)


# --- members --------------------------------------------------------------------------------


def members_of(group: str = GROUP) -> Command:
    header = headers.GetConsumerConnectionListRequest(consumer_group=group)
    return request(RequestCode.GET_CONSUMER_CONNECTION_LIST, header)


async def test_members_of_a_group_are_listed_while_they_are_connected(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        offline = await served.ask(members_of())
        assert offline.code == ResponseCode.CONSUMER_NOT_ONLINE
        assert offline.remark == f"no member of group {GROUP} is connected"
        async with consumer(served, producer="shop") as one:
            reply = await served.ask(members_of())
            found = java_json.decode(reply.body, bodies.ConsumerConnection)
            (member,) = found.connection_set
            assert (member.client_id, member.version) == ("client-1", 479)
            mine = await one.client.connection(served.broker.address)
            assert member.client_addr == address_of(mine)
            assert set(found.subscription_table) == {TOPIC}
            assert b"divergentSubscriptions" not in reply.body
            producers = headers.GetProducerConnectionListRequest(producer_group="shop")
            listed = await body_of(served, RequestCode.GET_PRODUCER_CONNECTION_LIST, producers)
            assert listed.connection_set == found.connection_set
            everybody = await body_of(served, RequestCode.GET_ALL_PRODUCER_INFO)
            (info,) = everybody.data["shop"]
            assert info.remote_ip == f"/{member.client_addr}"
            assert abs(info.last_update_timestamp - SystemClock().now_ms()) < 60_000
        await until(lambda: served.broker.state.clients.group(GROUP) is None, "the member is gone")
        gone = request(RequestCode.GET_PRODUCER_CONNECTION_LIST, producers)
        assert (await served.ask(gone)).code == ResponseCode.SYSTEM_ERROR


def address_of(connection: Connection) -> str:
    """Our end of a connection."""
    transport = connection._transport  # noqa: SLF001 - nothing but a test asks for this
    assert transport is not None
    host, port = transport.get_extra_info("sockname")
    return f"{host}:{port}"


async def test_subscription_of_a_group_is_shown(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        async with consumer(served, subscriptions=(subscription(TOPIC, "red || blue"),)):
            asked = headers.QuerySubscriptionByConsumerRequest(group=GROUP, topic=TOPIC)
            found = await body_of(served, RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, asked)
            assert found.subscription_data.sub_string == "red || blue"
        asked = headers.QuerySubscriptionByConsumerRequest(group="nobody", topic=TOPIC)
        found = await body_of(served, RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, asked)
        assert found.subscription_data is None


async def test_members_that_want_different_things_are_shown_and_counted(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path) as served,
        consumer(served, "first", subscriptions=(subscription(TOPIC, "red"),)),
        consumer(served, "second", subscriptions=(subscription(TOPIC, "blue"),)),
    ):
        found = java_json.decode((await served.ask(members_of())).body, bodies.ConsumerConnection)
        assert found.divergent_subscriptions == {TOPIC: {"first": "red", "second": "blue"}}
        info = await body_of(served, RequestCode.GET_BROKER_RUNTIME_INFO)
        assert info.table["divergentSubscriptionGroups"] == GROUP
        asked = headers.ViewBrokerStatsDataRequest(
            stats_name="SUBSCRIPTION_DIVERGENCES", stats_key=GROUP
        )
        counted = await body_of(served, RequestCode.VIEW_BROKER_STATS_DATA, asked)
        assert counted.stats_day.sum == 1


# --- progress -------------------------------------------------------------------------------


def progress_of(group: str = GROUP, **fields: Any) -> headers.GetConsumeStatsRequest:
    return headers.GetConsumeStatsRequest(consumer_group=group, **fields)


async def test_progress_shows_where_a_group_is_in_every_read_queue(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        await served.ask(create(queues=2))
        await put(served, b"one", b"two", b"three")
        await served.ask(pull())
        await served.ask(commit(2))
        found = await body_of(served, RequestCode.GET_CONSUME_STATS, progress_of())
        places = {queue.queue_id: place for queue, place in found.offset_table.items()}
        assert set(places) == {0, 1}
        first = places[0]
        assert (first.broker_offset, first.consumer_offset, first.pull_offset) == (3, 2, 3)
        stored = served.broker.state.store.lookup.store_time(TOPIC, 0, 1)
        assert first.last_timestamp == stored
        assert found.consume_tps > 0
        listed = await body_of(
            served, RequestCode.GET_CONSUME_STATS, progress_of(topic_list="orders;nowhere;")
        )
        assert listed.offset_table == found.offset_table
        nobody = await body_of(served, RequestCode.GET_CONSUME_STATS, progress_of("nobody"))
        assert nobody.offset_table == {}


async def test_progress_leaves_out_topics_that_a_live_group_gave_up(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        await put(served, b"one")
        await put(served, b"one", topic="old")
        await served.ask(commit(1))
        await served.ask(commit(1, topic="old"))
        async with consumer(served):
            found = await body_of(served, RequestCode.GET_CONSUME_STATS, progress_of())
            assert {queue.topic for queue in found.offset_table} == {TOPIC}


async def test_progress_of_all_groups_sums_up_what_is_behind(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        await put(served, b"one", b"two", b"three")
        for group, offset in ((GROUP, 1), ("audit", 3)):
            await served.ask(commit(offset, group=group))
        asked = headers.GetBrokerConsumeStatsRequest(is_order=False)
        found = await body_of(served, RequestCode.GET_BROKER_CONSUME_STATS, asked)
        groups = {
            name: stats for entry in found.consume_stats_list for name, stats in entry.items()
        }
        assert len(groups[GROUP]) == len(groups["audit"]) == 1
        assert found.total_diff == 2
        assert found.broker_addr == served.broker.address
        ordered = headers.GetBrokerConsumeStatsRequest(is_order=True)
        found = await body_of(served, RequestCode.GET_BROKER_CONSUME_STATS, ordered)
        assert found.total_diff == 0


async def test_time_span_says_how_long_the_next_message_has_waited(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        await served.ask(create(queues=1))
        await put(served, b"one", b"two")
        await served.ask(commit(1))
        lookup = served.broker.state.store.lookup
        asked = headers.QueryConsumeTimeSpanRequest(topic=TOPIC, group=GROUP)
        (span,) = (
            await body_of(served, RequestCode.QUERY_CONSUME_TIME_SPAN, asked)
        ).consume_time_span_set
        first, second = lookup.store_time(TOPIC, 0, 0), lookup.store_time(TOPIC, 0, 1)
        assert (span.min_time_stamp, span.max_time_stamp) == (first, second)
        assert span.consume_time_stamp == first
        assert 0 <= span.delay_time <= SystemClock().now_ms() - second
        await served.ask(commit(2))
        (span,) = (
            await body_of(served, RequestCode.QUERY_CONSUME_TIME_SPAN, asked)
        ).consume_time_span_set
        assert span.delay_time == 0


async def test_correction_names_the_slowest_of_the_other_groups(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        await put(served, *(b"%d" % number for number in range(9)))
        for group, offset in (("fast", 8), ("middle", 5), ("slow", 3)):
            await served.ask(commit(offset, group=group))

        async def correction(compared: str, left_out: str) -> dict[int, int]:
            asked = headers.QueryCorrectionOffsetRequest(
                topic=TOPIC, compare_group=compared, filter_groups=left_out
            )
            found = await body_of(served, RequestCode.QUERY_CORRECTION_OFFSET, asked)
            assert isinstance(found, bodies.QueryCorrectionOffsetBody)
            return found.correction_offsets

        assert await correction("fast", "fast") == {0: 3}
        assert await correction("middle", "slow") == {0: 5}
        assert await correction("slow", "slow") == {0: (1 << 63) - 1}


async def test_group_takes_over_the_offsets_of_another(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        await put(served, b"one", b"two")
        await served.ask(commit(2))
        asked = headers.CloneGroupOffsetRequest(
            src_group=GROUP, dest_group="heir", topic=TOPIC, offline=True
        )
        await told(served, RequestCode.CLONE_GROUP_OFFSET, asked)
        assert (await served.ask(query_offset(group="heir"))).ext["offset"] == "2"


# --- moving ---------------------------------------------------------------------------------


def reset(timestamp: int = 0, **fields: Any) -> Command:
    given: dict[str, Any] = {"group": GROUP, "topic": TOPIC, "is_force": True}
    header = headers.ResetOffsetRequest(timestamp=timestamp, **(given | fields))
    return request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)


def offsets_of(reply: Command) -> dict[int, int]:
    assert reply.code == 0, reply.remark
    table = bodies.decode_reset_offset(reply.body).offset_table
    return {queue.queue_id: offset for queue, offset in table.items()}


@asynccontextmanager
async def consumed(folder: Path, **settings: Any) -> AsyncIterator[ServedBroker]:
    """A broker with four messages in one of two queues, three of them consumed."""
    async with running_broker(folder, **settings) as served:
        await served.ask(create(queues=2))
        await put(served, b"one", b"two", b"three", b"four")
        await served.ask(commit(3))
        await served.ask(commit(0, queue_id=1))
        yield served


async def test_reset_moves_the_next_pull_once_and_commits_before_it_are_ignored(
    tmp_path: Path,
) -> None:
    async with consumed(tmp_path) as served:
        assert offsets_of(await served.ask(reset())) == {0: 0, 1: 0}
        late = await served.ask(commit(4))
        assert late.code == 0
        assert "reset" in (late.remark or "")
        assert (await served.ask(query_offset())).ext["offset"] == "0"
        moved = await served.ask(pull(3))
        assert moved.code == ResponseCode.PULL_OFFSET_MOVED
        assert pulled(moved).next_begin_offset == 0
        assert texts(await served.ask(pull(0))) == [b"one", b"two", b"three", b"four"]
        assert (await served.ask(commit(4))).remark is None


async def test_reset_to_the_end_by_time_and_by_offset(tmp_path: Path) -> None:
    async with consumed(tmp_path) as served:
        assert offsets_of(await served.ask(reset(-1))) == {0: 4, 1: 0}
        second_ms = served.broker.state.store.lookup.store_time(TOPIC, 0, 1)
        by_time = served.broker.state.store.lookup.offset_by_time(TOPIC, 0, second_ms)
        assert offsets_of(await served.ask(reset(second_ms)))[0] == by_time <= 1
        assert offsets_of(await served.ask(reset(queue_id=0, offset=2))) == {0: 2}
        for wrong, code in (
            ({"queue_id": 0, "offset": 5}, ResponseCode.SYSTEM_ERROR),
            ({"queue_id": 9}, ResponseCode.INVALID_PARAMETER),
            ({"topic": "nowhere"}, ResponseCode.TOPIC_NOT_EXIST),
            ({"group": "nobody"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ):
            assert (await served.ask(reset(**wrong))).code == code
        assert (await served.ask(query_offset())).ext["offset"] == "2"


async def test_pull_that_is_held_hears_of_a_reset_at_once(tmp_path: Path) -> None:
    async with consumed(tmp_path) as served, served.another_client() as waiting:
        held = asyncio.create_task(
            waiting.invoke(served.broker.address, pull(4, flags=PullFlag.SUSPEND), 20_000)
        )
        await until(lambda: served.broker.state.held.statistics().waiting == 1, "the pull is held")
        await served.ask(reset())
        moved = await held
        assert moved.code == ResponseCode.PULL_OFFSET_MOVED
        assert pulled(moved).next_begin_offset == 0


async def test_old_way_of_resetting_tells_the_members(tmp_path: Path) -> None:
    async with consumed(tmp_path, use_server_side_reset_offset=False) as served:
        assert (await served.ask(reset())).code == ResponseCode.CONSUMER_NOT_ONLINE
        unknown = await served.ask(reset(group="nobody"))
        assert unknown.code == ResponseCode.SYSTEM_ERROR
        async with consumer(served) as one:
            assert offsets_of(await served.ask(reset())) == {0: 0, 1: 0}
            await until(lambda: one.told(220), "the member hears of it")
            (notice,) = one.told(220)
            table = bodies.decode_reset_offset(notice.body).offset_table
            assert sorted(table.values()) == [0, 0]
            assert notice.ext["queueId"] == "-1"
            # Without force a group only goes back.
            assert offsets_of(await served.ask(reset(-1, is_force=False)))[0] == 3


# --- asking members -------------------------------------------------------------------------


def running_info(client_id: str = "client-1") -> Command:
    header = headers.GetConsumerRunningInfoRequest(
        consumer_group=GROUP, client_id=client_id, jstack_enable=False
    )
    return request(RequestCode.GET_CONSUMER_RUNNING_INFO, header)


async def test_question_about_a_member_is_passed_on_and_its_answer_back(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        absent = await served.ask(running_info())
        assert absent.code == ResponseCode.SYSTEM_ERROR
        assert absent.remark == f"client client-1 of group {GROUP} is not connected"
        async with consumer(served) as one:
            odd = b'{"mqTable":{{"queueId":0}:1}}'
            one.answers[307] = lambda asked: reply_to(asked, body=odd)
            assert (await served.ask(running_info())).body == odd
            (asked,) = one.told(307)
            assert asked.ext["clientId"] == "client-1"
            assert asked.ext["jstackEnable"] == "false"
            one.answers[307] = lambda asked: reply_to(asked, 1, remark="no idea")
            reply = await served.ask(running_info())
            assert (reply.code, reply.remark) == (1, "no idea")


async def test_member_that_does_not_answer_is_given_up_with_code_207(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers_admin, "RELAY_TIMEOUT_MS", 50)
    async with running_broker(tmp_path) as served, consumer(served) as one:
        one.answers[307] = lambda _: None
        reply = await served.ask(running_info())
        assert reply.code == ResponseCode.CONSUME_MSG_TIMEOUT
        assert "client-1" in (reply.remark or "")


async def test_member_that_leaves_while_it_is_asked_fails_the_question(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served, consumer(served) as one:
        one.answers[307] = lambda _: None
        question = asyncio.create_task(served.ask(running_info()))
        await until(lambda: one.told(307), "the member hears the question")
        await one.client.close()
        assert (await question).code == ResponseCode.SYSTEM_ERROR


async def test_message_is_given_to_a_member_that_an_administrator_names(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served, consumer(served) as one:
        (stored,) = await put(served, b"try me")
        one.answers[309] = lambda asked: reply_to(asked, body=b'{"consumeResult":"CR_SUCCESS"}')

        def directly(msg_id: str) -> Command:
            header = headers.ConsumeMessageDirectlyRequest(
                consumer_group=GROUP, client_id="client-1", msg_id=msg_id, topic=TOPIC
            )
            return request(RequestCode.CONSUME_MESSAGE_DIRECTLY, header)

        reply = await served.ask(directly(stored.msg_id))
        assert reply.body == b'{"consumeResult":"CR_SUCCESS"}'
        (asked,) = one.told(309)
        assert texts(asked) == [b"try me"]
        assert asked.ext["brokerName"] == "broker-a"
        assert asked.ext["topicSysFlag"] == asked.ext["groupSysFlag"] == "0"
        for wrong in ("nonsense", stored.msg_id[:-2] + "FF"):
            assert (await served.ask(directly(wrong))).code == ResponseCode.SYSTEM_ERROR


async def test_members_say_where_they_are(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served, consumer(served) as one:
        one.answers[221] = lambda asked: reply_to(
            asked,
            body=b'{"messageQueueTable":{{"brokerName":"broker-a","queueId":0,"topic":"orders"}:7}}',
        )

        def status(**fields: Any) -> Command:
            header = headers.GetConsumerStatusRequest(**({"topic": TOPIC, "group": GROUP} | fields))
            return request(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header)

        reply = await served.ask(status())
        found = java_json.decode(reply.body, bodies.GetConsumerStatusBody)
        assert list(found.consumer_table["client-1"].values()) == [7]
        nobody = await served.ask(status(group="nobody"))
        assert nobody.code == ResponseCode.SYSTEM_ERROR
        absent = await served.ask(status(client_addr="elsewhere"))
        assert absent.code == ResponseCode.CONSUMER_NOT_ONLINE


# --- sharing --------------------------------------------------------------------------------


async def test_broker_shares_the_queues_of_a_topic_among_the_members(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        await served.ask(create(queues=5))
        async with consumer(served, "first"), consumer(served, "second"):
            shares = {}
            for strategy in ("AVG", "AVG_BY_CIRCLE"):
                for client_id in ("first", "second"):
                    said = bodies.QueryAssignmentRequestBody(
                        topic=TOPIC,
                        consumer_group=GROUP,
                        client_id=client_id,
                        strategy_name=strategy,
                    )
                    body = java_json.encode(said)
                    found = await body_of(served, RequestCode.QUERY_ASSIGNMENT, body=body)
                    shares[strategy, client_id] = [
                        one.message_queue.queue_id for one in found.message_queue_assignments
                    ]
            assert shares == {
                ("AVG", "first"): [0, 1, 2],
                ("AVG", "second"): [3, 4],
                ("AVG_BY_CIRCLE", "first"): [0, 2, 4],
                ("AVG_BY_CIRCLE", "second"): [1, 3],
            }
            takers = []
            for client_id in ("first", "second"):
                said = bodies.QueryAssignmentRequestBody(
                    topic=f"%RETRY%{GROUP}", consumer_group=GROUP, client_id=client_id
                )
                body = java_json.encode(said)
                found = await body_of(served, RequestCode.QUERY_ASSIGNMENT, body=body)
                takers.append(len(found.message_queue_assignments))
            assert takers == [1, 0], "nobody gets a retried message twice"
            stranger = java_json.encode(
                bodies.QueryAssignmentRequestBody(
                    topic=TOPIC, consumer_group=GROUP, client_id="stranger"
                )
            )
            asked = request(RequestCode.QUERY_ASSIGNMENT, body=stranger)
            assert (await served.ask(asked)).body == b"{}"


async def test_way_of_getting_messages_is_set_and_listed(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        await served.ask(create())
        await served.ask(put_group())

        async def set_mode(**fields: Any) -> int:
            given = {"topic": TOPIC, "consumerGroup": GROUP, "mode": "PULL"} | fields
            asked = request(RequestCode.SET_MESSAGE_REQUEST_MODE, body=java_json.encode(given))
            return (await served.ask(asked)).code

        assert await set_mode() == 0
        assert await set_mode(topic=f"%RETRY%{GROUP}") == ResponseCode.NO_PERMISSION
        assert await set_mode(topic="nowhere") == ResponseCode.TOPIC_NOT_EXIST
        assert await set_mode(consumerGroup="nobody") == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert await set_mode(mode="POP") == ResponseCode.SYSTEM_ERROR
        found = await body_of(served, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        assert set(found.message_request_mode_map) == {TOPIC}
    saved = json.loads((tmp_path / "config" / "messageRequestMode.json").read_bytes())
    mode = {"consumerGroup": GROUP, "mode": "PULL", "popShareQueueNum": 0, "topic": TOPIC}
    assert saved == {"messageRequestModeMap": {TOPIC: {GROUP: mode}}}
    async with running_broker(tmp_path) as served:
        again = await body_of(served, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        assert again == found
