"""Clients come, stay silent, leave or break off, and the others of their group hear of it."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.broker_requests import GROUP, TOPIC, heartbeat, pull, send, sent, subscription, texts
from tests.support import PATIENCE_S, ServedBroker, running_broker, until

from firearrow.base.runtime import Service, SystemClock
from firearrow.model.errors import ResponseCode
from firearrow.model.group import MessageModel, SubscriptionData, SubscriptionGroupConfig
from firearrow.model.topic import MessageQueue
from firearrow.net.router import Router
from firearrow.testing import ManualClock
from firearrow.wire import bodies, headers, java_json
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import Command, request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from firearrow.net.client import RemotingClient
    from firearrow.net.connection import Connection


class Consumer:
    """A member of a group that counts the notices it gets."""

    def __init__(self, served: ServedBroker, client_id: str) -> None:
        self._served = served
        self.client_id = client_id
        self.notices: list[str] = []
        self.tasks = Service(client_id, SystemClock())
        self.router = Router({RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._noticed}, self.tasks)
        self.client: RemotingClient

    def _noticed(self, command: Command, _: Connection) -> None:
        self.notices.append(command.ext["consumerGroup"])

    async def ask(self, command: Command) -> Command:
        return await self.client.invoke(self._served.broker.address, command, PATIENCE_S * 1_000)

    async def beat(self, *subscriptions: SubscriptionData, **fields: Any) -> None:
        reply = await self.ask(heartbeat(self.client_id, *subscriptions, **fields))
        assert reply.code == 0, reply.remark

    async def leave(self) -> None:
        header = headers.UnregisterClientRequest(client_id=self.client_id, consumer_group=GROUP)
        assert (await self.ask(request(RequestCode.UNREGISTER_CLIENT, header))).code == 0


@asynccontextmanager
async def consumers(served: ServedBroker, *names: str) -> AsyncIterator[list[Consumer]]:
    async with AsyncExitStack() as stack:
        found = [Consumer(served, name) for name in names]
        for one in found:
            one.client = await stack.enter_async_context(served.another_client(one.router))
        yield found


async def members(served: ServedBroker, group: str = GROUP) -> list[str] | None:
    header = headers.GetConsumerListByGroupRequest(consumer_group=group)
    reply = await served.ask(request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header))
    if reply.code:
        assert reply.code == ResponseCode.SYSTEM_ERROR
        return None
    return list(java_json.decode(reply.body, bodies.ConsumerList).consumer_id_list)


# --- coming and leaving ---------------------------------------------------------------------


async def test_member_is_listed_as_soon_as_its_heartbeat_is_answered(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served, consumers(served, "a", "b") as (first, second):
        assert await members(served) is None
        await first.beat()
        assert await members(served) == ["a"]
        await second.beat()
        assert await members(served) == ["a", "b"]


async def test_group_is_told_when_a_member_joins_leaves_or_breaks_off(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        async with consumers(served, "a", "b") as (first, second):
            await first.beat()
            assert first.notices == [GROUP]
            await first.beat()
            await second.beat()
            await until(lambda: first.notices == [GROUP] * 2, "the notice of the join")
            await second.leave()
            await until(lambda: first.notices == [GROUP] * 3, "the notice of the leave")
            assert await members(served) == ["a"]
            await second.beat()
            await until(lambda: first.notices == [GROUP] * 4, "the notice of the return")
            await second.client.close()
            await until(lambda: first.notices == [GROUP] * 5, "the notice of the break")
            assert await members(served) == ["a"]
        await until(lambda: not served.broker.state.clients.consumers, "all are gone")
        assert await members(served) is None


async def test_group_is_told_when_its_topics_change_but_not_when_only_a_filter_does(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path) as served, consumers(served, "a") as (one,):
        await one.beat(subscription())
        await one.beat(subscription(expression="A", version=2))
        assert one.notices == [GROUP]
        await one.beat(subscription(expression="A", version=2), subscription("more"))
        assert one.notices == [GROUP] * 2
        await one.beat(subscription("more"))
        assert one.notices == [GROUP] * 3
        group = served.broker.state.clients.group(GROUP)
        assert group is not None
        assert list(group.subscriptions) == ["more"]


@pytest.mark.parametrize("quiet", ["broadcasting", "switched off"])
async def test_group_that_shares_nothing_or_wants_no_notices_gets_none(
    tmp_path: Path, quiet: str
) -> None:
    async with running_broker(tmp_path) as served, consumers(served, "a", "b") as (first, second):
        model = MessageModel.CLUSTERING
        if quiet == "broadcasting":
            model = MessageModel.BROADCASTING
        else:
            served.broker.state.groups.put(
                SubscriptionGroupConfig(group_name=GROUP, notify_consumer_ids_changed_enable=False)
            )
        await first.beat(model=model)
        await second.beat(model=model)
        await second.leave()
        assert await members(served) == ["a"]
        assert first.notices == second.notices == []


async def test_silent_member_is_dropped_and_its_connection_closed(tmp_path: Path) -> None:
    clock = ManualClock()
    async with (
        running_broker(tmp_path, clock, channel_expired_timeout=50_000) as served,
        consumers(served, "a", "b") as (lively, silent),
    ):
        await lively.beat()
        await silent.beat(producer="shop")
        await clock.advance(30_000)
        await lively.beat()
        assert await members(served) == ["a", "b"]
        lively.notices.clear()
        await clock.advance(40_000)
        await until(lambda: lively.notices == [GROUP], "the notice of the expiry")
        assert await members(served) == ["a"]
        assert served.broker.state.clients.producers == {}


async def test_client_that_returns_on_a_new_connection_is_listed_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served, consumers(served, "a", "a") as (old, new):
        await old.beat()
        await new.beat()
        assert await members(served) == ["a"]
        await old.client.close()
        await until(lambda: new.notices == [GROUP] * 2, "the old connection is gone")
        assert await members(served) == ["a"]


async def test_leaving_for_somebody_else_changes_nothing(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served, consumers(served, "a", "b") as (first, other):
        await first.beat()
        other.client_id = "a"  # says it is the first, on a connection of its own
        await other.leave()
        assert await members(served) == ["a"]


# --- subscriptions --------------------------------------------------------------------------


async def test_older_subscription_does_not_replace_a_newer_one(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served, consumers(served, "a", "b") as (first, second):
        for tag in ("A", "B"):
            sent(await served.ask(send(tag.encode(), properties={"TAGS": tag})))
        await first.beat(subscription(expression="A", version=2))
        await second.beat(subscription(expression="B", version=1))
        assert texts(await served.ask(pull(expression=None))) == [b"A"]
        await second.beat(subscription(expression="B", version=3))
        assert texts(await served.ask(pull(expression=None))) == [b"B"]


async def test_members_that_want_different_things_are_complained_about_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def complaints() -> int:
        return caplog.text.count("subscribe to different things")

    async with running_broker(tmp_path) as served, consumers(served, "a", "b") as (first, second):
        await first.beat(subscription(expression="A"))
        assert complaints() == 0
        for _ in range(3):
            await second.beat(subscription(expression="B"))
        assert complaints() == 1
        assert "'A' by a, 'B' by b" in caplog.text
        await second.beat(subscription(expression="A", version=2))
        await second.beat(subscription(expression="C", version=3))
        assert complaints() == 2


async def test_heartbeat_without_subscriptions_leaves_them_alone(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served, consumers(served, "a") as (one,):
        await one.beat(subscription(expression="A"))
        data = bodies.HeartbeatData(
            client_id="a",
            consumer_data_set=(bodies.ConsumerData(group_name=GROUP),),
            without_sub=True,
            heartbeat_fingerprint=17,
        )
        reply = await one.ask(request(RequestCode.HEART_BEAT, body=java_json.encode(data)))
        assert reply.code == 0
        group = served.broker.state.clients.group(GROUP)
        assert group is not None
        assert group.subscriptions[TOPIC].sub_string == "A"
        assert one.notices == [GROUP]


async def test_heartbeat_of_cpp_is_understood(tmp_path: Path) -> None:
    """Ordinals instead of names, versions as text, sets left out, wrong hashes."""
    body = (
        b'{"clientID":"cpp","consumerDataSet":[{"consumeFromWhere":0,"consumeType":1,'
        b'"groupName":"billing","messageModel":1,"subscriptionDataSet":[{"codeSet":["99"],'
        b'"subString":"A","subVersion":"7","tagsSet":["A"],"topic":"orders"}]}]}'
    )
    async with running_broker(tmp_path) as served:
        for tag in ("A", "B"):
            sent(await served.ask(send(tag.encode(), properties={"TAGS": tag})))
        reply = await served.ask(request(RequestCode.HEART_BEAT, body=body))
        assert reply.code == 0, reply.remark
        assert await members(served) == ["cpp"]
        assert texts(await served.ask(pull(expression=None, sub_version=7))) == [b"A"]


async def test_heartbeat_makes_the_retry_topic_and_the_name_server_hears_of_it(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path) as served:
        served.broker.state.groups.put(
            SubscriptionGroupConfig(group_name=GROUP, retry_queue_nums=3)
        )
        await served.ask(heartbeat())
        topic = served.broker.state.topics.get(f"%RETRY%{GROUP}")
        assert topic is not None
        assert (topic.read_queue_nums, topic.perm) == (3, 6)
        route = headers.GetRouteInfoRequest(topic=f"%RETRY%{GROUP}")
        code = -1
        while code != 0:
            command = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, route)
            code = (await served.ask_nameserver(command)).code


async def test_heartbeat_of_a_group_that_must_not_come_into_being_is_passed_over(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path, auto_create_subscription_group=False) as served:
        assert (await served.ask(heartbeat(producer="shop"))).code == 0
        assert await members(served) is None
        assert list(served.broker.state.clients.producers) == ["shop"]
        assert served.broker.state.topics.get(f"%RETRY%{GROUP}") is None


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"clientID":[]}', b"\xff"])
@pytest.mark.parametrize(
    "code", [RequestCode.HEART_BEAT, RequestCode.LOCK_BATCH_MQ, RequestCode.CHECK_CLIENT_CONFIG]
)
async def test_body_that_cannot_be_read_is_refused_and_the_connection_lives(
    tmp_path: Path, code: RequestCode, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_broker(tmp_path) as served:
        reply = await served.ask(request(code, body=body))
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert reply.remark
        assert (await served.ask(heartbeat())).code == 0
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(("kind", "code"), [("TAG", 0), (None, 0), ("SQL92", 1)])
async def test_consumer_learns_whether_the_broker_can_filter_as_it_wishes(
    tmp_path: Path, kind: str | None, code: int
) -> None:
    wanted = {"topic": TOPIC, "subString": "a", "subVersion": 1}
    if kind is not None:
        wanted["expressionType"] = kind
    said = {"clientId": "a", "group": GROUP, "subscriptionData": wanted}
    async with running_broker(tmp_path) as served:
        command = request(RequestCode.CHECK_CLIENT_CONFIG, body=java_json.encode(said))
        assert (await served.ask(command)).code == code


# --- locks ----------------------------------------------------------------------------------


def lock(client: str, *queues: int, unlock: bool = False) -> Command:
    body = bodies.LockBatchRequestBody(
        client_id=client,
        consumer_group=GROUP,
        mq_set=tuple(MessageQueue(topic=TOPIC, broker_name="b", queue_id=one) for one in queues),
    )
    code = RequestCode.UNLOCK_BATCH_MQ if unlock else RequestCode.LOCK_BATCH_MQ
    return request(code, body=java_json.encode(body))


def locked(reply: Command) -> list[int]:
    assert reply.code == 0
    body = java_json.decode(reply.body, bodies.LockBatchResponseBody)
    return [queue.queue_id for queue in body.lock_ok_mq_set]


async def test_queue_belongs_to_whoever_locked_it_until_it_is_given_back(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        assert locked(await served.ask(lock("a", 0, 1))) == [0, 1]
        assert locked(await served.ask(lock("b", 0, 1, 2))) == [2]
        assert locked(await served.ask(lock("a", 0))) == [0]
        await served.ask(lock("b", 0, unlock=True))
        empty = await served.ask(lock("b", 0))
        assert empty.body == b'{"lockOKMQSet":[]}'
        await served.ask(lock("a", 0, unlock=True))
        assert locked(await served.ask(lock("b", 0))) == [0]


async def test_lock_that_is_not_renewed_is_free_after_a_minute(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as served:
        assert locked(await served.ask(lock("a", 0, 1))) == [0, 1]
        await clock.advance(40_000)
        assert locked(await served.ask(lock("a", 0))) == [0]
        await clock.advance(30_000)
        assert locked(await served.ask(lock("b", 0, 1))) == [1]


async def test_retry_of_a_group_that_consumes_in_order_goes_to_the_dead_letters(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path) as served:
        await served.ask(lock("a", 0))
        sent(await served.ask(send(b"x", topic=f"%RETRY%{GROUP}")))
        assert texts(await served.ask(pull(topic=f"%DLQ%{GROUP}"))) == [b"x"]
        await served.ask(lock("a", 0, unlock=True))
        sent(await served.ask(send(b"y", topic=f"%RETRY%{GROUP}")))
        assert texts(await served.ask(pull(topic=f"%RETRY%{GROUP}"))) == [b"y"]
