"""Admin and the progress of groups: lag, resets of running and stopped groups, cloning."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.support import PATIENCE_S, SMALL_BROKER, running_broker, until

from firearrow.broker.broker import Broker
from firearrow.broker.config import BrokerConfig
from firearrow.client.admin import Admin
from firearrow.client.consumer_state import ConsumerSettings
from firearrow.client.errors import BrokerNotFound, InvalidRequest, NoRoute, ResetImpossible
from firearrow.client.message import Message
from firearrow.client.options import ClientOptions
from firearrow.client.producer import Producer
from firearrow.client.push_consumer import PushConsumer
from firearrow.model.errors import QueryNotFound, SubscriptionGroupNotFound
from firearrow.model.topic import MessageQueue

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

GROUP, TOPIC = "billing", "orders"
QUICK = ConsumerSettings(persist_offsets_ms=20)


class Scene:
    """A topic of two queues, somebody who sends to it, and a group that may consume it."""

    def __init__(
        self, admin: Admin, producer: Producer, nameservers: str, options: ClientOptions
    ) -> None:
        self.admin = admin
        self.producer = producer
        self.nameservers = nameservers
        self.options = options
        self.heard: list[str] = []

    async def send(self, *texts: str, queue: int = 0) -> None:
        for text in texts:
            await self.producer.send(Message(TOPIC, text), queue=await self.queue(queue))

    async def queue(self, number: int) -> MessageQueue:
        return (await self.admin.queues(TOPIC))[number]

    @asynccontextmanager
    async def consuming(self, group: str = GROUP) -> AsyncIterator[PushConsumer]:
        consumer = PushConsumer(
            group, nameservers=self.nameservers, settings=QUICK, client=self.options
        )

        async def hear(message: Any) -> None:
            self.heard.append(message.text)

        consumer.subscribe(TOPIC, "*", hear)
        async with consumer:
            yield consumer

    async def consume(self, count: int) -> None:
        """Let the group consume, until it has so many messages, and stop again."""
        self.heard.clear()
        async with self.consuming():
            await until(lambda: len(self.heard) >= count, f"{count} messages")

    async def committed(self, group: str = GROUP) -> list[int | None]:
        return list((await self.admin.committed_offsets(group, TOPIC)).values())

    async def until_committed(self, wanted: list[int | None]) -> None:
        deadline = asyncio.get_running_loop().time() + PATIENCE_S
        while (found := await self.committed()) != wanted:
            assert asyncio.get_running_loop().time() < deadline, f"committed {found}"
            await asyncio.sleep(0.005)


@asynccontextmanager
async def scene(
    tmp_path: Path, namespace: str = "", *, queues: int = 2, brokers: int = 1, **settings: Any
) -> AsyncIterator[Scene]:
    options = ClientOptions(namespace=namespace)
    async with AsyncExitStack() as stack:
        served = await stack.enter_async_context(running_broker(tmp_path / "0", **settings))
        names = served.nameserver.address
        for number in range(1, brokers):
            given = SMALL_BROKER | {
                "store_path_root_dir": tmp_path / str(number),
                "namesrv_addr": names,
                "broker_name": f"another-{number}",
            }
            broker = Broker(BrokerConfig(**(given | settings)))
            await broker.start()
            stack.push_async_callback(broker.stop)
        async with (
            Admin(nameservers=names, client=options) as admin,
            Producer("sender", nameservers=names, client=options) as producer,
        ):
            await admin.create_topic(TOPIC, queues=queues)
            yield Scene(admin, producer, names, options)


async def test_the_lag_of_a_group_is_told_queue_by_queue(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        await at.send("a", "b", "c")
        await at.consume(3)
        await at.send("d", "e")
        await at.send("f", queue=1)
        lag = await at.admin.group_lag(GROUP, TOPIC)
        assert [(one.broker_offset, one.committed_offset) for one in lag.queues] == [(5, 3), (1, 0)]
        assert [one.lag for one in lag.queues] == [2, 1]
        assert lag.total == 3
        last = await at.admin.message_at(await at.queue(0), 2)
        assert lag.queues[0].last_timestamp_ms == last.store_timestamp
        assert lag.queues[1].last_timestamp_ms is None
        everything = await at.admin.group_lag(GROUP)
        assert everything.by_topic[TOPIC] == 3
        assert everything.total == 3


async def test_a_group_without_progress_and_one_that_does_not_exist_are_told_apart(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path) as at:
        await at.admin.create_group("idle")
        assert (await at.admin.group_lag("idle")).queues == ()
        assert await at.committed("idle") == [None, None]
        with pytest.raises(SubscriptionGroupNotFound, match="nobody"):
            await at.admin.group_lag("nobody")
        with pytest.raises(NoRoute, match="nothing"):
            await at.admin.group_lag("idle", "nothing")


async def test_a_dry_run_tells_what_a_reset_would_do_and_does_nothing(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        await at.send("a", "b", "c")
        await at.consume(3)
        await at.send("d", "e", queue=1)
        back = await at.admin.reset_offset(GROUP, TOPIC, "earliest", dry_run=True)
        assert [(one.again, one.skipped) for one in back.queues] == [(3, 0), (0, 0)]
        assert (back.again, back.skipped, back.dry_run) == (3, 0, True)
        ahead = await at.admin.reset_offset(GROUP, TOPIC, "latest", dry_run=True)
        assert (ahead.again, ahead.skipped) == (0, 2)
        assert [one.target for one in ahead.queues] == [3, 2]
        assert (await at.committed())[0] == 3


@pytest.mark.parametrize("server_side", [True, False])
async def test_a_stopped_group_goes_on_where_it_was_put(tmp_path: Path, server_side: bool) -> None:
    async with scene(tmp_path, use_server_side_reset_offset=server_side) as at:
        await at.send("a", "b", "c")
        await at.send("d", queue=1)
        await at.consume(4)
        done = await at.admin.reset_offset(GROUP, TOPIC, "earliest")
        assert (done.again, done.dry_run) == (4, False)
        assert await at.committed() == [0, 0]
        assert (await at.admin.group_lag(GROUP, TOPIC)).total == 4
        await at.consume(4)
        assert sorted(at.heard) == ["a", "b", "c", "d"]
        await at.admin.reset_offset(GROUP, TOPIC, {await at.queue(0): 2})
        assert await at.committed() == [2, 1]
        await at.consume(1)
        assert at.heard == ["c"]


@pytest.mark.parametrize("brokers", [1, 2])
@pytest.mark.parametrize("server_side", [True, False])
async def test_a_running_group_gets_its_messages_again(
    tmp_path: Path, server_side: bool, brokers: int
) -> None:
    async with scene(
        tmp_path,
        queues=2 // brokers,
        brokers=brokers,
        use_server_side_reset_offset=server_side,
    ) as at:
        await at.send("a", "b")
        await at.send("c", queue=1)
        async with at.consuming():
            await until(lambda: len(at.heard) == 3)
            await at.until_committed([2, 1])
            at.heard.clear()
            done = await at.admin.reset_offset(GROUP, TOPIC, "earliest")
            assert done.again == 3
            await until(lambda: len(at.heard) >= 3, "the messages again")
            assert set(at.heard) == {"a", "b", "c"}


async def test_a_group_goes_to_the_first_message_of_a_time(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        await at.send("a", "b", "c", "d")
        queue = await at.queue(0)
        await at.consume(4)
        stored = [(await at.admin.message_at(queue, n)).store_timestamp for n in range(4)]
        wanted = stored.index(stored[2])  # the clock may not have moved between two messages
        assert await at.admin.offset_at(queue, stored[2]) == wanted
        done = await at.admin.reset_offset(GROUP, TOPIC, stored[2])
        assert done.again == 4 - wanted
        assert (await at.committed())[0] == wanted
        assert await at.admin.earliest_store_time(queue) == stored[0]
        assert await at.admin.earliest_store_time(await at.queue(1)) is None


async def test_without_force_a_group_only_goes_back(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        await at.send("a", "b", "c")
        await at.send("d", "e", queue=1)
        await at.consume(5)
        await at.admin.reset_offset(GROUP, TOPIC, {await at.queue(0): 1})
        zero, one = await at.queue(0), await at.queue(1)
        done = await at.admin.reset_offset(GROUP, TOPIC, {zero: 2, one: 1}, force=False)
        assert [queue.kept for queue in done.queues] == [True, False]
        assert (done.again, done.skipped) == (1, 0)
        assert await at.committed() == [1, 1]


async def test_a_reset_to_nowhere_is_refused(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        await at.send("a")
        await at.admin.create_group(GROUP)
        queue = await at.queue(0)
        with pytest.raises(InvalidRequest, match="0 to 1"):
            await at.admin.reset_offset(GROUP, TOPIC, {queue: 2})
        stranger = MessageQueue(topic=TOPIC, broker_name=queue.broker_name, queue_id=7)
        with pytest.raises(InvalidRequest, match="it has 2 queues"):
            await at.admin.reset_offset(GROUP, TOPIC, {stranger: 0})
        with pytest.raises(NoRoute, match="nothing"):
            await at.admin.reset_offset(GROUP, "nothing", "earliest")
        with pytest.raises(SubscriptionGroupNotFound, match="nobody"):
            await at.admin.reset_offset("nobody", TOPIC, "earliest")
        with pytest.raises(BrokerNotFound, match="elsewhere"):
            await at.admin.max_offset(
                MessageQueue(topic=TOPIC, broker_name="elsewhere", queue_id=0)
            )


async def test_an_old_broker_cannot_move_single_queues_of_a_running_group(tmp_path: Path) -> None:
    async with scene(tmp_path, use_server_side_reset_offset=False) as at:
        await at.send("a", "b")
        async with at.consuming():
            await until(lambda: len(at.heard) == 2)
            with pytest.raises(ResetImpossible, match="is running"):
                await at.admin.reset_offset(GROUP, TOPIC, {await at.queue(0): 0})


async def test_a_group_is_put_where_another_one_is(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        await at.send("a", "b", "c")
        await at.consume(3)
        await at.admin.create_group("copy")
        queue = await at.queue(0)
        found = await at.admin.clone_offsets(GROUP, "copy", TOPIC)
        assert found[queue] == 3
        assert (await at.committed("copy"))[0] == 3
        await at.admin.reset_offset(GROUP, TOPIC, {queue: 1})
        with pytest.raises(SubscriptionGroupNotFound, match="another"):
            await at.admin.clone_offsets(GROUP, "another")
        await at.admin.create_group("another")
        assert (await at.admin.clone_offsets(GROUP, "another"))[queue] == 1
        assert (await at.committed("another"))[0] == 1
        with pytest.raises(QueryNotFound, match="nobody has committed nothing in topic orders"):
            await at.admin.clone_offsets("nobody", "copy", TOPIC)


async def test_progress_is_told_under_the_names_of_a_namespace(tmp_path: Path) -> None:
    async with scene(tmp_path, namespace="shop") as at:
        await at.send("a", "b")
        await at.consume(2)
        queue = await at.queue(0)
        assert queue.topic == TOPIC
        lag = await at.admin.group_lag(GROUP, TOPIC)
        assert (lag.group, lag.queues[0].queue, lag.queues[0].committed_offset) == (GROUP, queue, 2)
        done = await at.admin.reset_offset(GROUP, TOPIC, {queue: 1})
        assert (done.group, done.topic, done.queues[0].queue) == (GROUP, TOPIC, queue)
        await at.consume(1)
        assert at.heard == ["b"]
        await at.admin.create_group("copy")
        assert (await at.admin.clone_offsets(GROUP, "copy", TOPIC))[queue] == 2
        async with at.consuming():
            found = await at.admin.consumer_connections(GROUP)
            assert set(found.subscription_table) == {TOPIC, f"%RETRY%{GROUP}"}
