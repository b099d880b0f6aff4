"""Our Admin administers unmodified Apache brokers, with our producer and consumer beside it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from firearrow.client.admin import Admin
from firearrow.client.consumer_state import ConsumerSettings
from firearrow.client.errors import AlreadyExists, NoRoute
from firearrow.client.handlers import DeadLetter
from firearrow.client.message import Message, ReceivedMessage
from firearrow.client.producer import Producer
from firearrow.client.push_consumer import PushConsumer
from firearrow.model.errors import ConsumerNotOnline, QueryNotFound, SubscriptionGroupNotFound
from firearrow.model.group import ConsumeFromWhere
from firearrow.wire.bodies import ConsumeResult

from .apache import REGISTER_TIMEOUT_S, Cluster

Unique = Callable[[str], str]

# A new group begins at the end: a message that arrives while it looks for the end is not its own.
FROM_THE_BEGINNING = ConsumerSettings(
    consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, persist_offsets_ms=100
)


async def soon(true: Callable[[], object], what: str) -> None:
    deadline = asyncio.get_running_loop().time() + REGISTER_TIMEOUT_S
    while not true():
        assert asyncio.get_running_loop().time() < deadline, f"{what} did not come true"
        await asyncio.sleep(0.02)


async def until_found(
    look: Callable[[], Awaitable[list[ReceivedMessage]]],
) -> list[ReceivedMessage]:
    """What a broker finds, once its index and its name server have heard of it."""
    deadline = asyncio.get_running_loop().time() + REGISTER_TIMEOUT_S
    while not (found := await look()):
        assert asyncio.get_running_loop().time() < deadline, "nothing was found"
        await asyncio.sleep(0.05)
    return found


async def listed(messages: AsyncIterator[ReceivedMessage]) -> list[ReceivedMessage]:
    return [message async for message in messages]


async def until_committed(admin: Admin, group: str, topic: str, wanted: list[int | None]) -> None:
    deadline = asyncio.get_running_loop().time() + REGISTER_TIMEOUT_S
    while list((await admin.committed_offsets(group, topic)).values()) != wanted:
        assert asyncio.get_running_loop().time() < deadline, f"{wanted} was not committed"
        await asyncio.sleep(0.05)


@asynccontextmanager
async def administered(cluster: Cluster) -> AsyncIterator[Admin]:
    async with Admin(nameservers=cluster.nameserver.address) as admin:
        yield admin


async def test_brokers_and_their_settings_are_seen(cluster: Cluster) -> None:
    async with administered(cluster) as admin:
        brokers = await admin.brokers()
        deadline = time.monotonic() + 30  # Apache's fails before it has counted for a second
        while any(one.error for one in brokers) and time.monotonic() < deadline:
            await asyncio.sleep(0.2)
            brokers = await admin.brokers()
        assert sorted(one.name for one in brokers) == cluster.broker_names()
        assert {(one.version, one.error) for one in brokers} == {("V5_3_3", None)}
        name = brokers[0].name
        assert (await admin.broker_config(name))["brokerName"] == name
        await admin.update_broker_config({"longPollingEnable": "false"}, broker=name)
        assert (await admin.broker_config(name))["longPollingEnable"] == "false"
        await admin.update_broker_config({"longPollingEnable": "true"}, broker=name)


async def test_topics_and_groups_are_created_changed_and_deleted(
    cluster: Cluster, unique: Unique
) -> None:
    topic, group = unique("topic"), unique("group")
    async with administered(cluster) as admin:
        await admin.create_topic(topic, queues=3, attributes={"message.type": "FIFO"})
        await admin.create_topic(topic, queues=3, attributes={"message.type": "FIFO"})
        with pytest.raises(AlreadyExists):
            await admin.create_topic(topic, queues=4)
        assert topic in await admin.topics()
        assert len(await admin.queues(topic)) == 6
        configs = await admin.topic_config(topic)
        assert sorted(configs) == cluster.broker_names()
        assert {one.attributes["message.type"] for one in configs.values()} == {"FIFO"}
        await admin.update_topic(topic, queues=5, attributes={"message.type": None})
        configs = await admin.topic_config(topic)
        assert {(one.read_queue_nums, len(one.attributes)) for one in configs.values()} == {(5, 0)}
        await admin.delete_topic(topic)
        with pytest.raises(NoRoute):
            await admin.topic_route(topic)

        await admin.create_group(group, retry_max_times=2)
        await admin.create_group(group, retry_max_times=2)
        assert group in await admin.groups()
        await admin.update_group(group, consume_enable=False)
        settings = await admin.group_config(group)
        assert sorted(settings) == cluster.broker_names()
        assert {(one.retry_max_times, one.consume_enable) for one in settings.values()} == {
            (2, False)
        }
        await admin.delete_group(group)
        with pytest.raises(SubscriptionGroupNotFound):
            await admin.group_config(group)


@pytest.mark.parametrize("server_side", ["true", "false"])
async def test_a_group_is_watched_and_moved_while_it_runs_and_when_it_is_stopped(
    cluster: Cluster, unique: Unique, server_side: str
) -> None:
    topic, group = unique("topic"), unique("group")
    names = cluster.nameserver.address
    heard: list[str] = []

    async def hear(message: ReceivedMessage) -> None:
        heard.append(message.text)

    def consumer() -> PushConsumer:
        made = PushConsumer(group, nameservers=names, settings=FROM_THE_BEGINNING)
        made.subscribe(topic, "*", hear)
        return made

    async with administered(cluster) as admin, Producer("sender", nameservers=names) as producer:
        setting = {"useServerSideResetOffset": server_side}
        await admin.update_broker_config(setting, cluster=cluster.name)
        await admin.create_topic(topic, queues=1)
        zero, one = await admin.queues(topic)
        for number in range(6):
            await producer.send(Message(topic, f"n{number}"), queue=(zero, one)[number % 2])
        async with consumer() as running:
            await soon(lambda: len(heard) >= 6, "the first delivery")
            await until_committed(admin, group, topic, [3, 3])
            found = await admin.consumer_connections(group)
            assert [member.client_id for member in found.connection_set] == [running.client_id]
            info = await admin.running_info(group, running.client_id)
            assert zero in info.mq_table
            assert (await admin.group_lag(group)).total == 0
            heard.clear()
            done = await admin.reset_offset(group, topic, "earliest")
            assert done.again == 6
            everything = {f"n{number}" for number in range(6)}
            await soon(lambda: set(heard) == everything, "again")  # a held pull ends first
        with pytest.raises(ConsumerNotOnline):
            await admin.consumer_connections(group)
        preview = await admin.reset_offset(group, topic, {zero: 1}, dry_run=True)
        assert (preview.again, preview.skipped) == (2, 0)
        await admin.reset_offset(group, topic, {zero: 1})
        assert await admin.committed_offsets(group, topic) == {zero: 1, one: 3}
        assert (await admin.group_lag(group, topic)).total == 2
        copy = unique("copy")
        await admin.create_group(copy)
        cloned = await admin.clone_offsets(group, copy, topic)
        assert cloned == {zero: 1, one: 3}
        heard.clear()
        async with consumer():
            await soon(lambda: sorted(heard) == ["n2", "n4"], "what was put back")
        await admin.update_broker_config({"useServerSideResetOffset": "true"}, cluster=cluster.name)


async def test_messages_are_found_consumed_directly_and_sent_again(
    cluster: Cluster, unique: Unique
) -> None:
    topic, group = unique("topic"), unique("group")
    names = cluster.nameserver.address
    heard: list[str] = []
    healthy = False

    async def hear(message: ReceivedMessage) -> None:
        if not healthy:
            raise DeadLetter
        heard.append(message.text)

    async with administered(cluster) as admin, Producer("sender", nameservers=names) as producer:
        await admin.create_topic(topic, queues=2)
        consumer = PushConsumer(group, nameservers=names, settings=FROM_THE_BEGINNING)
        consumer.subscribe(topic, "*", hear)
        async with consumer:
            receipt = await producer.send(Message(topic, "hello", keys="a b"))
            by_id = await admin.message_by_id(receipt.offset_msg_id)
            assert (by_id.text, by_id.broker_name) == ("hello", receipt.queue.broker_name)
            assert (await admin.message_at(receipt.queue, 0)).msg_id == receipt.msg_id
            found = await until_found(lambda: admin.messages_by_key(topic, "b"))
            assert [message.msg_id for message in found] == [receipt.msg_id]
            assert (await admin.message_by_id(receipt.msg_id, topic)).text == "hello"
            with pytest.raises(QueryNotFound):
                await admin.message_at(receipt.queue, 5)

            letters = await until_found(lambda: listed(admin.dlq_messages(group)))
            assert [letter.text for letter in letters] == ["hello"]
            healthy = True
            result = await admin.consume_directly(group, consumer.client_id, by_id)
            assert result.consume_result is ConsumeResult.CR_SUCCESS
            assert heard == ["hello"]
            await admin.resend_dlq(letters[0])
            await soon(lambda: heard == ["hello", "hello"], "the dead letter again")


async def test_name_servers_keep_key_value_settings(cluster: Cluster, unique: Unique) -> None:
    async with administered(cluster) as admin:
        key = unique("key")
        await admin.put_kv("interop", key, "value")
        assert await admin.get_kv("interop", key) == "value"
        assert (await admin.list_kv("interop"))[key] == "value"
        await admin.delete_kv("interop", key)
        with pytest.raises(QueryNotFound):
            await admin.get_kv("interop", key)
        await admin.nameserver_config()
