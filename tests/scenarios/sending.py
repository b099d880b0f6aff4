"""Sending in every way, and what comes out at the other end."""

from __future__ import annotations

import asyncio
import os
import zlib
from typing import TYPE_CHECKING

import pytest
from tests.scenarios.cluster import Cluster, Inbox, numbered

from firearrow import aio
from firearrow.base.errors import FirearrowError
from firearrow.hot import java_hash
from firearrow.wire.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from firearrow.wire.command import Command


async def sends_are_received_as_they_were_sent(cluster: Cluster) -> None:
    topic = await cluster.topic()
    inbox = Inbox()
    async with cluster.producer() as producer, cluster.push() as consumer:
        consumer.subscribe(topic, "*", inbox)
        message = aio.Message(
            topic,
            "Grüße".encode(),
            tags="paid",
            keys=["order-1", "order-2"],
            properties={"amount": "42", "empty is not allowed": "x"},
            flag=7,
        )
        receipt = await producer.send(message)
        await cluster.until(lambda: inbox.messages, "delivery")
    got = inbox.messages[0]
    assert receipt.ok
    assert receipt.status is aio.SendStatus.SEND_OK
    assert got.msg_id == receipt.msg_id == message.msg_id
    assert got.offset_msg_id == receipt.offset_msg_id
    assert got.queue == receipt.queue
    assert got.queue_offset == receipt.queue_offset
    assert (got.text, got.tags, got.keys) == ("Grüße", "paid", ("order-1", "order-2"))
    assert got.properties["amount"] == "42"
    assert (got.flag, got.reconsume_times) == (7, 0)
    assert got.store_timestamp >= got.born_timestamp - 5_000


async def many_sends_at_once_all_arrive(cluster: Cluster) -> None:
    topic = await cluster.topic()
    texts = numbered(300)
    inbox = Inbox()
    async with cluster.producer(in_flight_max=32) as producer, cluster.push() as consumer:
        consumer.subscribe(topic, "*", inbox)
        receipts = await asyncio.gather(
            *(producer.send(aio.Message(topic, text)) for text in texts)
        )
        await cluster.until(lambda: inbox.has(texts), "delivery of all")
    assert all(receipt.ok for receipt in receipts)
    assert len({receipt.msg_id for receipt in receipts}) == len(texts)
    assert len({receipt.queue for receipt in receipts}) == 4
    assert inbox.counts().total() == len(texts)


async def one_way_messages_arrive(cluster: Cluster) -> None:
    topic = await cluster.topic()
    inbox = Inbox()
    texts = numbered(20)
    async with cluster.producer() as producer, cluster.push() as consumer:
        consumer.subscribe(topic, "*", inbox)
        for text in texts:
            await producer.send_oneway(aio.Message(topic, text), key="same")
        await cluster.until(lambda: inbox.has(texts), "delivery")
    assert inbox.counts().total() == len(texts)
    assert len({message.queue for message in inbox.messages}) == 1


async def batches_are_split_when_they_are_too_large(cluster: Cluster) -> None:
    topic = await cluster.topic()
    inbox = Inbox()
    messages = [
        aio.Message(topic, f"{number:03}" + "x" * 997, tags="t", properties={"n": str(number)})
        for number in range(30)
    ]
    async with (
        cluster.producer(max_message_bytes=8_192) as producer,
        cluster.push() as consumer,
    ):
        consumer.subscribe(topic, "*", inbox)
        receipts = await producer.send_batch(iter(messages))
        await cluster.until(lambda: len(inbox.messages) >= 30, "the batch")
        with pytest.raises(FirearrowError, match="limit is 8192"):
            await producer.send_batch(messages, split=False)
    assert 4 <= len(receipts) <= 8
    ids = [one for receipt in receipts for one in receipt.msg_id.split(",")]
    assert ids == [message.msg_id for message in messages]
    assert sorted(got.msg_id for got in inbox.messages) == sorted(ids)
    assert {got.properties["n"] for got in inbox.messages} == {str(n) for n in range(30)}
    assert all(got.tags == "t" for got in inbox.messages)


async def keys_and_selectors_choose_the_queue(cluster: Cluster) -> None:
    topic = await cluster.topic(queues=5)

    def last(queues: Sequence[aio.MessageQueue], _: aio.Message) -> aio.MessageQueue:
        return queues[-1]

    async with cluster.producer() as producer:
        queues = await producer.queues(topic)
        assert [queue.queue_id for queue in queues] == [0, 1, 2, 3, 4]
        for key in ("a", "order-1", "polygenelubricants", "中文"):
            by_argument = await producer.send(aio.Message(topic, "x"), key=key)
            by_message = await producer.send(aio.Message(topic, "x", sharding_key=key))
            assert by_argument.queue.queue_id == abs(java_hash(key)) % 5
            assert by_message.queue == by_argument.queue
        assert (await producer.send(aio.Message(topic, "x"), key=12)).queue.queue_id == 2
        chosen = await producer.send(aio.Message(topic, "x"), selector=last)
        assert chosen.queue.queue_id == 4
        fixed = await producer.send(aio.Message(topic, "x"), queue=queues[3])
        assert fixed.queue == queues[3]


async def compressed_bodies_come_back_whole(cluster: Cluster) -> None:
    topic = await cluster.topic()
    body = b"all work and no play " * 600
    inbox = Inbox()
    async with cluster.push() as consumer:
        consumer.subscribe(topic, "*", inbox)
        for compression in aio.Compression:
            async with cluster.producer(compression=compression) as producer:
                await producer.send(aio.Message(topic, body, tags=compression.name))
        await cluster.until(lambda: len(inbox.messages) == len(aio.Compression), "delivery")
    for message in inbox.messages:
        assert message.body == body
        assert message.stored_bytes < len(body) // 2
    assert {message.tags for message in inbox.messages} == {one.name for one in aio.Compression}
    assert len({message.sys_flag for message in inbox.messages}) == len(aio.Compression)
    assert zlib.crc32(inbox.messages[0].body) == zlib.crc32(body)


async def topics_are_created_by_the_first_send(cluster: Cluster) -> None:
    topic = cluster.unique("fresh")
    inbox = Inbox()
    async with cluster.producer(creation_queue_nums=2) as producer, cluster.push() as consumer:
        consumer.subscribe(topic, "*", inbox)
        for text in numbered(4):
            assert (await producer.send(aio.Message(topic, text))).queue.queue_id in {0, 1}
        await cluster.until(lambda: inbox.has(numbered(4)), "delivery from a new topic")


async def errors_say_what_to_do(cluster: Cluster) -> None:
    topic = await cluster.topic()
    async with cluster.producer(max_message_bytes=64 * 1024 * 1024) as producer:
        for message in (
            aio.Message(topic, b""),
            aio.Message("no spaces", b"x"),
            aio.Message("SCHEDULE_TOPIC_XXXX", b"x"),
            aio.Message(topic, b"x", properties={"bad": "\x01"}),
            aio.Message(topic, b"x", properties={"long": "x" * 40_000}),
        ):
            with pytest.raises(FirearrowError) as caught:
                await producer.send(message)
            assert (caught.value.code, caught.value.retriable) == (13, False)
            assert caught.value.remedy.startswith("Correct the message")
        with pytest.raises(aio.BrokerError) as refused:
            await producer.send(aio.Message(topic, os.urandom(5 << 20)), timeout_ms=20_000)
        assert refused.value.code == 13
        assert not refused.value.retriable
    with pytest.raises(FirearrowError) as closed:
        await producer.send(aio.Message(topic, b"x"))
    assert "with" in closed.value.remedy


async def delayed_messages_come_later(cluster: Cluster) -> None:
    topic = await cluster.topic()
    inbox = Inbox()
    async with cluster.producer() as producer, cluster.push() as consumer:
        consumer.subscribe(topic, "*", inbox)
        await producer.send(aio.Message(topic, "later", delay_level=2))
        await producer.send(aio.Message(topic, "now"))
        await cluster.until(lambda: inbox.messages, "the message without delay")
        assert inbox.texts == ["now"]
        await cluster.until(lambda: inbox.has(["later"]), "the delayed one", hurry=True)
    assert inbox.counts() == {"now": 1, "later": 1}


class Notes:
    """Hooks of every kind, which only look."""

    def __init__(self) -> None:
        self.sends: list[aio.SendContext] = []
        self.deliveries: list[aio.ConsumeContext] = []
        self.requests: list[int] = []
        self.answers: list[int] = []

    def before_send(self, context: aio.SendContext) -> None:
        context.notes["seen"] = True

    def after_send(self, context: aio.SendContext) -> None:
        assert context.notes["seen"]
        self.sends.append(context)

    def before_consume(self, _: aio.ConsumeContext) -> None:
        raise RuntimeError("a hook that fails does no harm")

    def after_consume(self, context: aio.ConsumeContext) -> None:
        self.deliveries.append(context)

    def before_request(self, _: str, command: Command) -> None:
        self.requests.append(command.code)

    def after_response(self, _: str, __: Command, response: Command) -> None:
        self.answers.append(response.code)


async def hooks_see_everything(cluster: Cluster) -> None:
    topic = await cluster.topic()
    notes, inbox = Notes(), Inbox()
    client = aio.ClientOptions(hooks=(notes,))
    async with (
        cluster.producer(hooks=[notes], client=client) as producer,
        cluster.push(hooks=[notes], client=client) as consumer,
    ):
        consumer.subscribe(topic, "*", inbox)
        receipt = await producer.send(aio.Message(topic, "x"))
        await cluster.until(lambda: notes.deliveries, "a delivery")
    assert [context.receipt for context in notes.sends] == [receipt]
    assert notes.sends[0].error is None
    assert notes.deliveries[0].success
    assert notes.deliveries[0].messages == inbox.messages
    assert {RequestCode.SEND_MESSAGE_V2, RequestCode.HEART_BEAT} <= set(notes.requests)
    assert 0 in notes.answers


async def namespaces_stay_out_of_sight(cluster: Cluster) -> None:
    space, group = cluster.unique("ns"), cluster.unique("g")
    client = aio.ClientOptions(namespace=space)
    await cluster.create_topic(f"{space}%orders")
    seen: list[str] = []

    async def fails_once(message: aio.ReceivedMessage) -> None:
        seen.append(f"{message.topic} {message.text} {message.reconsume_times}")
        if message.reconsume_times == 0:
            raise aio.Retry("once", delay_level=1)

    async with cluster.producer(client=client) as producer:
        receipt = await producer.send(aio.Message("orders", "inside"))
        assert receipt.queue.topic == "orders"
        assert {queue.topic for queue in await producer.queues("orders")} == {"orders"}
    async with cluster.push(group, client=client) as consumer:
        consumer.subscribe("orders", "*", fails_once)
        await cluster.until(lambda: len(seen) >= 2, "the second try", hurry=True)
    assert seen == ["orders inside 0", "orders inside 1"]
    async with cluster.pull(group, client=client) as reader:
        queues = await reader.queues("orders")
        await reader.assign(queues)
        assert {queue.topic for queue in reader.assignment} == {"orders"}
        await reader.seek_to_beginning(receipt.queue)
        assert (await reader.poll())[0].topic == "orders"


SCENARIOS = (
    sends_are_received_as_they_were_sent,
    many_sends_at_once_all_arrive,
    one_way_messages_arrive,
    batches_are_split_when_they_are_too_large,
    keys_and_selectors_choose_the_queue,
    compressed_bodies_come_back_whole,
    topics_are_created_by_the_first_send,
    errors_say_what_to_do,
    delayed_messages_come_later,
    hooks_see_everything,
    namespaces_stay_out_of_sight,
)
