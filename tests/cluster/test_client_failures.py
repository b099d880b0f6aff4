"""What clients do when servers are dead, silent, busy, gone elsewhere, or half of the names."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections import Counter
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.scenarios.cluster import Cluster, Inbox, numbered
from tests.scripted import route_to, running, stored
from tests.support import running_broker, until

from firearrow import Producer, aio
from firearrow.base.errors import FirearrowError
from firearrow.base.runtime import SystemClock
from firearrow.client.errors import InvalidMessage
from firearrow.model.errors import MessageIllegal, ResponseCode, SystemBusy
from firearrow.net.client import RemotingClient
from firearrow.testing import ManualClock
from firearrow.wire import java_json
from firearrow.wire.bodies import ConsumerList
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import reply_to, request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.scripted import Answer, Peer

    from firearrow.net.connection import Connection
    from firearrow.wire.command import Command

FOR_EVER_MS = 600_000
MESSAGE = aio.Message("t", "x")


def says(code: int) -> Answer:
    return lambda command: reply_to(command, code, remark="as the test wants it")


def silent(_: Command) -> None:
    return None


def free_address() -> str:
    """Where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


@asynccontextmanager
async def producing(
    *answers: Answer, dead: int = 0, **options: Any
) -> AsyncIterator[tuple[aio.Producer, list[Peer]]]:
    """A producer whose brokers answer like this; some more are dead."""
    async with running(silent, *answers) as (names, *brokers):
        addresses = {f"broker-{number}": peer.address for number, peer in enumerate(brokers)}
        addresses |= {f"dead-{number}": free_address() for number in range(dead)}
        names.answer = route_to(addresses)
        options.setdefault("timeout_ms", FOR_EVER_MS)
        async with aio.Producer("p", nameservers=names.address, **options) as producer:
            yield producer, brokers


@pytest.mark.parametrize(
    "code",
    [
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    ],
)
async def test_less_safe_receipts_are_shown_or_tried_elsewhere(code: ResponseCode) -> None:
    less_safe: Answer = lambda command: stored(command, code)  # noqa: E731
    async with producing(less_safe) as (producer, _):
        receipt = await producer.send(MESSAGE)
        assert (receipt.status.name, receipt.ok) == (code.name, False)
    async with producing(less_safe, stored, retry_unless_ok=True) as (producer, brokers):
        for _ in range(4):
            assert (await producer.send(MESSAGE)).ok
        assert len(brokers[0].asked) <= 4
    async with producing(less_safe, less_safe, retry_unless_ok=True) as (producer, brokers):
        assert (await producer.send(MESSAGE)).status.name == code.name
        assert sum(len(broker.asked) for broker in brokers) == 3


async def test_busy_brokers_are_left_for_others() -> None:
    async with producing(says(ResponseCode.SYSTEM_BUSY), stored) as (producer, brokers):
        receipts = [await producer.send(MESSAGE) for _ in range(6)]
        assert {receipt.queue.broker_name for receipt in receipts} == {"broker-1"}
        assert brokers[0].asked
        queue = aio.MessageQueue(topic="t", broker_name="broker-0", queue_id=0)
        with pytest.raises(SystemBusy, match="as the test wants") as caught:
            await producer.send(MESSAGE, queue=queue)  # this one and no other
        assert caught.value.retriable


@asynccontextmanager
async def sending(names: Peer, brokers: list[Peer], *, blocking: bool) -> AsyncIterator[Any]:
    """`send` of one producer or the other, awaited either way."""
    names.answer = route_to({f"broker-{n}": peer.address for n, peer in enumerate(brokers)})
    if not blocking:
        async with aio.Producer("p", nameservers=names.address) as producer:
            yield producer.send
        return
    twin = await asyncio.to_thread(Producer, "p", nameservers=names.address)
    await asyncio.to_thread(twin.start)

    async def send(*given: Any, **options: Any) -> aio.SendReceipt:
        return await asyncio.to_thread(partial(twin.send, *given, **options))

    try:
        yield send
    finally:
        await asyncio.to_thread(twin.close)


@pytest.mark.parametrize("blocking", [False, True])
async def test_sends_that_begin_at_once_end_like_all_others(*, blocking: bool) -> None:
    """A producer that knows the way begins a send without asking anybody."""
    async with (
        running(silent, stored, stored) as (names, *brokers),
        sending(names, brokers, blocking=blocking) as send,
    ):
        fixed = aio.MessageQueue(topic="t", broker_name="broker-0", queue_id=1)
        for _ in range(4):  # the way to all queues is known now
            assert (await send(MESSAGE)).ok
        receipt = await send(MESSAGE, queue=fixed)
        assert (receipt.queue, receipt.queue_offset, receipt.ok) == (fixed, 7, True)

        other = aio.MessageQueue(topic="u", broker_name="broker-0", queue_id=1)
        with pytest.raises(InvalidMessage, match="cannot go to a queue of u"):
            await send(MESSAGE, queue=other)
        with pytest.raises(InvalidMessage, match="cannot go to a queue of u"):
            await send(MESSAGE, selector=lambda *_: other)

        brokers[0].answer = lambda command: stored(command, ResponseCode.SLAVE_NOT_AVAILABLE)
        assert (await send(MESSAGE, queue=fixed)).status.name == "SLAVE_NOT_AVAILABLE"

        brokers[0].answer = says(ResponseCode.SYSTEM_BUSY)
        before = len(brokers[0].asked)
        receipts = [await send(MESSAGE) for _ in range(4)]
        assert {receipt.queue.broker_name for receipt in receipts} == {"broker-1"}
        assert len(brokers[0].asked) > before  # and a second try went to the other one
        for chosen in ({"queue": fixed}, {"key": 0}):
            with pytest.raises(SystemBusy, match="as the test wants"):
                await send(MESSAGE, **chosen)

        brokers[0].answer = silent
        started = SystemClock().elapsed_ms()
        with pytest.raises(FirearrowError) as caught:
            await send(MESSAGE, queue=fixed, timeout_ms=50)
        assert caught.value.code == 10002
        assert SystemClock().elapsed_ms() - started >= 50

        await brokers[0].server.stop()
        assert {(await send(MESSAGE)).queue.broker_name for _ in range(4)} == {"broker-1"}


async def test_what_no_broker_would_take_is_tried_once() -> None:
    async with producing(*[says(ResponseCode.MESSAGE_ILLEGAL)] * 3) as (producer, brokers):
        with pytest.raises(MessageIllegal):
            await producer.send(MESSAGE)
        assert sum(len(broker.asked) for broker in brokers) == 1


async def test_dead_brokers_cost_a_try() -> None:
    async with producing(stored, dead=1) as (producer, brokers):
        receipts = [await producer.send(MESSAGE) for _ in range(8)]
        assert all(receipt.ok for receipt in receipts)
        assert len(brokers[0].asked) == 8
    async with producing(dead=2) as (producer, _):
        with pytest.raises(FirearrowError, match="cannot connect") as caught:
            await producer.send(MESSAGE)
        assert (caught.value.code, caught.value.retriable) == (10001, True)


async def test_avoided_brokers_get_nothing_for_a_while() -> None:
    async with producing(says(ResponseCode.SYSTEM_BUSY), stored, avoid_slow_brokers=True) as (
        producer,
        brokers,
    ):
        for _ in range(10):
            assert (await producer.send(MESSAGE)).ok
        assert len(brokers[0].asked) <= 1


async def test_silent_brokers_end_with_the_time_limit() -> None:
    async with producing(silent) as (producer, _):
        with pytest.raises(FirearrowError) as caught:
            await producer.send(MESSAGE, timeout_ms=50)
    assert (caught.value.code, caught.value.retriable) == (10002, True)
    assert "timeout_ms" in caught.value.remedy or "time" in caught.value.remedy


async def test_silent_name_servers_end_with_the_time_limit_too() -> None:
    client = aio.ClientOptions(call_timeout_ms=FOR_EVER_MS)
    async with (
        running(silent) as (names,),
        aio.Producer("p", nameservers=names.address, client=client) as producer,
    ):
        for send in (
            producer.send(MESSAGE, timeout_ms=50),
            producer.send_batch([MESSAGE], timeout_ms=50),
        ):
            with pytest.raises(FirearrowError, match="name server") as caught:
                await send
            assert (caught.value.code, caught.value.retriable) == (10002, True)


async def test_one_living_name_server_is_enough_for_all_who_ask_at_once() -> None:
    async with running(silent, stored) as (names, broker):
        names.answer = route_to({"b": broker.address})
        servers = [free_address(), names.address, free_address()]
        async with aio.Producer("p", nameservers=servers, timeout_ms=FOR_EVER_MS) as producer:
            receipts = await asyncio.gather(
                *(producer.send(aio.Message(f"t{number}", "x")) for number in range(20))
            )
    assert all(receipt.ok for receipt in receipts)


async def test_no_route_is_an_error_that_says_so() -> None:
    async with (
        running(says(ResponseCode.TOPIC_NOT_EXIST)) as (names,),
        aio.Producer("p", nameservers=names.address) as producer,
    ):
        with pytest.raises(FirearrowError, match="no broker serves topic t") as caught:
            await producer.send(MESSAGE)
        assert (caught.value.code, caught.value.retriable) == (10005, True)
        assert "Create the topic" in caught.value.remedy


async def test_a_moved_broker_is_found() -> None:
    async with running(silent, stored, stored) as (names, old, new):
        names.answer = route_to({"b": old.address})
        async with aio.Producer("p", nameservers=names.address) as producer:
            assert (await producer.send(MESSAGE)).ok
            await old.server.stop()
            names.answer = route_to({"b": new.address})
            assert (await producer.send(MESSAGE)).ok
        assert (len(old.asked), len(new.asked)) == (1, 1)


async def test_room_for_sends_is_given_to_who_still_wants_it() -> None:
    async with producing(silent, in_flight_max=1, retries=0) as (producer, (broker,)):
        first = asyncio.create_task(producer.send(aio.Message("t", "first")))
        await until(lambda: broker.asked, "the first send")
        broker.answer = stored
        second = asyncio.create_task(producer.send(aio.Message("t", "second")))
        third = asyncio.create_task(producer.send(aio.Message("t", "third")))
        with pytest.raises(FirearrowError, match="under way") as caught:
            await producer.send(MESSAGE, timeout_ms=20)
        assert caught.value.retriable
        first.cancel()
        await asyncio.wait([first])
        second.cancel()  # just when it is its turn
        assert (await third).ok
        await asyncio.wait([second])


async def test_consumers_go_on_after_lost_connections(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "store") as served:
        cluster = Cluster(served.nameserver.address, served.broker.address, lambda: None, tmp_path)
        topic, inbox = await cluster.topic(), Inbox()
        async with cluster.producer() as producer, cluster.push() as consumer:
            consumer.subscribe(topic, "*", inbox)
            for text in numbered(5):
                await producer.send(aio.Message(topic, text))
                await cluster.until(lambda text=text: inbox.has([text]), text)  # type: ignore[misc]
                for client in (consumer, producer):
                    client._session._net.hang_up(served.broker.address, "cut")  # noqa: SLF001
        assert inbox.counts() == Counter(numbered(5))
        await cluster.close()


class Versions:
    """The versions of subscriptions, as brokers hear of them and as pulls ask for them."""

    def __init__(self) -> None:
        self.told: set[str] = set()
        self.asked: set[str] = set()
        self.pulls = 0

    def before_request(self, _: str, command: Command) -> None:
        if command.code == RequestCode.HEART_BEAT:
            self.told.update(
                re.findall(r'"subVersion":(\d+),[^{}]*"topic":"t"', command.body.decode())
            )
        elif command.code == RequestCode.PULL_MESSAGE and command.ext["topic"] == "t":
            self.asked.add(command.ext["subVersion"])
            self.pulls += 1

    def after_response(self, *_: object) -> None:
        pass


async def test_pulls_do_not_run_ahead_of_the_heartbeat_after_a_rebalance(tmp_path: Path) -> None:
    seen = Versions()
    options = aio.ClientOptions(hooks=(seen,))
    async with running_broker(tmp_path) as served:
        names = served.nameserver.address
        consumer = aio.PushConsumer("g", nameservers=names, client=options)
        consumer.subscribe("t", handler=print)
        async with aio.Producer("p", nameservers=names) as producer:
            await producer.send(MESSAGE)
            async with consumer:
                await until(lambda: len(seen.told) > 1, "a rebalance")
                before = seen.pulls
                for queue in await producer.queues("t"):
                    await producer.send(MESSAGE, queue=queue)
                await until(lambda: seen.pulls > before, "more pulls")
    assert seen.asked == {min(seen.told)}


async def test_a_broker_that_does_not_know_a_member_hears_of_it_in_the_same_round() -> None:
    """A clock that stands still: whatever would wait for the next round waits for ever."""
    async with running(silent, silent) as (names, broker):
        names.answer = route_to({"b": broker.address}, queues=1)
        reader = aio.PullConsumer(
            "g",
            nameservers=names.address,
            consume_from_where=aio.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            client=aio.ClientOptions(clock=ManualClock()),
        )

        def answer(command: Command) -> Command | None:
            if command.code == RequestCode.GET_CONSUMER_LIST_BY_GROUP:
                if len(broker.asked) == 1:
                    return reply_to(command, ResponseCode.SYSTEM_ERROR, remark="nobody is here")
                body = ConsumerList(consumer_id_list=(reader.client_id,))
                return reply_to(command, body=java_json.encode(body))
            if command.code == RequestCode.QUERY_CONSUMER_OFFSET:
                return reply_to(command, ResponseCode.QUERY_NOT_FOUND)
            return None

        broker.answer = answer
        async with reader:
            reader.subscribe("t")
            await until(lambda: reader.assignment, "queues")


async def test_slow_handlers_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running_broker(tmp_path / "store") as served:
        cluster = Cluster(served.nameserver.address, served.broker.address, lambda: None, tmp_path)
        topic, gate = await cluster.topic(), asyncio.Event()

        async def takes_its_time(_: aio.ReceivedMessage) -> None:
            await gate.wait()

        settings = aio.ConsumerSettings(slow_handler_ms=1)
        with caplog.at_level(logging.WARNING):
            async with cluster.push(settings=settings) as consumer:
                consumer.subscribe(topic, "*", takes_its_time)
                (receipt,) = await cluster.fill(topic, ["x"])
                await until(lambda: "takes_its_time" in caplog.text, "a warning")
                gate.set()
        assert receipt.msg_id in caplog.text
        await cluster.close()


async def test_consumers_start_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "store") as served:
        cluster = Cluster(served.nameserver.address, served.broker.address, lambda: None, tmp_path)
        consumer = cluster.push()
        async with consumer:
            with pytest.raises(FirearrowError, match="starts once"):
                await consumer.start()
        with pytest.raises(FirearrowError, match="starts once"):
            await consumer.start()
        await cluster.close()


async def test_no_heartbeat_is_under_way_when_a_client_says_good_bye() -> None:
    """Brokers take requests out of turn: a late heartbeat would bring the client back for good."""
    seen: list[str] = []
    answered = asyncio.Event()

    async def slow_heartbeat(command: Command, _: Connection) -> Command:
        seen.append("heartbeat")
        await answered.wait()
        seen.append("heard")
        return reply_to(command)

    def good_bye(command: Command, _: Connection) -> Command:
        seen.append("good-bye")
        return reply_to(command)

    async with running(silent, stored) as (names, broker):
        names.answer = route_to({"b": broker.address})
        broker.handlers[RequestCode.HEART_BEAT] = slow_heartbeat
        broker.handlers[RequestCode.UNREGISTER_CLIENT] = good_bye
        producer = aio.Producer("p", nameservers=names.address)
        await producer.start()
        await producer.send(MESSAGE)  # the connection's first heartbeat follows
        await until(lambda: seen, "a heartbeat")
        closing = asyncio.create_task(producer.close())
        probe = RemotingClient(SystemClock())
        for _ in range(5):  # enough for a good-bye that does not wait to arrive
            command = request(RequestCode.SEND_MESSAGE_V2)
            command.ext["e"] = "0"
            assert (await probe.invoke(broker.address, command, FOR_EVER_MS)).code == 0
        await probe.close()
        answered.set()
        await closing
    assert seen == ["heartbeat", "heard", "good-bye"]
