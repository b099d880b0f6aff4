"""What administrators ask of live clients, traces, transactions, questions and replies."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.scenarios.cluster import Cluster, Inbox, numbered

from firearrow import aio
from firearrow.base.errors import FirearrowError
from firearrow.client.trace_format import Pub, SubAfter, SubBefore, decode_trace
from firearrow.wire import bodies, java_json
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import request
from firearrow.wire.headers import (
    ConsumeMessageDirectlyRequest,
    GetConsumerRunningInfoRequest,
    ResetOffsetRequest,
)

if TYPE_CHECKING:
    from firearrow.client.trace_format import TraceRecord


async def offsets_are_reset_under_a_running_consumer(cluster: Cluster) -> None:
    topic, group = await cluster.topic(), cluster.unique("g")
    texts = numbered(12)
    await cluster.fill(topic, texts)
    inbox = Inbox()
    async with cluster.push(group) as consumer:
        consumer.subscribe(topic, "*", inbox)
        await cluster.until(lambda: inbox.has(texts), "all messages")
        header = ResetOffsetRequest(topic=topic, group=group, timestamp=0, is_force=True)
        answer = await cluster.ask(request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header))
        assert answer.code == 0, answer.remark
        await cluster.until(lambda: len(inbox.messages) >= 24, "all messages again")
        await cluster.fill(topic, ["after"])
        await cluster.until(lambda: inbox.has(["after"]), "a message after the reset")
    assert inbox.counts() == dict.fromkeys(texts, 2) | {"after": 1}


async def consumers_tell_how_they_are(cluster: Cluster) -> None:
    topic, group = await cluster.topic(queues=2), cluster.unique("g")
    await cluster.fill(topic, numbered(6))
    inbox = Inbox()
    async with cluster.push(group, ordered=True) as consumer:
        consumer.subscribe(topic, "*", inbox)
        await cluster.until(lambda: inbox.has(numbered(6)), "all messages")
        header = GetConsumerRunningInfoRequest(
            consumer_group=group, client_id=consumer.client_id, jstack_enable=True
        )
        info = await cluster.document(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
    assert isinstance(info, bodies.ConsumerRunningInfo)
    assert info.properties["PROP_CONSUMEORDERLY"] == "true"
    assert info.properties["consumerGroup"] == group
    assert topic in {subscription.topic for subscription in info.subscription_set}
    queues = {queue: one for queue, one in info.mq_table.items() if queue.topic == topic}
    assert len(queues) == 2
    assert all(one.locked and not one.droped for one in queues.values())
    assert sum(one.commit_offset for one in queues.values()) == 6
    assert info.status_table[topic].consume_ok_tps > 0
    assert "test_" in (info.jstack or "") or "task" in (info.jstack or "")


async def one_message_is_consumed_on_demand(cluster: Cluster) -> None:
    topic, group = await cluster.topic(), cluster.unique("g")
    seen: list[str] = []

    async def handle(message: aio.ReceivedMessage) -> bool:
        seen.append(message.text)
        if seen.count(message.text) == 2:
            raise ValueError("not twice")
        return True

    receipt, _ = await cluster.fill(topic, ["this one", "other"])
    async with cluster.push(group) as consumer:
        consumer.subscribe(topic, "*", handle)
        await cluster.until(lambda: len(seen) == 2, "both messages")
        results = []
        for _ in range(2):
            header = ConsumeMessageDirectlyRequest(
                consumer_group=group,
                client_id=consumer.client_id,
                msg_id=receipt.offset_msg_id,
                topic=topic,
            )
            results.append(await cluster.document(RequestCode.CONSUME_MESSAGE_DIRECTLY, header))
    wanted = [bodies.ConsumeResult.CR_THROW_EXCEPTION, bodies.ConsumeResult.CR_SUCCESS]
    assert [one.consume_result for one in results] == wanted
    assert "not twice" in (results[0].remark or "")
    assert seen.count("this one") == 3


async def traces_are_written(cluster: Cluster) -> None:
    topic, traces = await cluster.topic(), await cluster.topic("traces", queues=1)
    group = cluster.unique("g")
    inbox = Inbox()
    async with cluster.producer(trace=True, trace_topic=traces) as producer:
        receipt = await producer.send(aio.Message(topic, "traced", tags="t", keys="k1"))
        async with cluster.push(group, trace=True, trace_topic=traces) as consumer:
            consumer.subscribe(topic, "*", inbox)
            await cluster.until(lambda: inbox.messages, "the message")
    records: list[TraceRecord] = []
    async with cluster.pull() as reader:
        await reader.assign(await reader.queues(traces))
        while len(records) < 3:
            for message in await reader.poll(20_000):
                assert receipt.msg_id in message.keys
                records += decode_trace(message.text)
    by_type = {type(record): record for record in records}
    sent, before, after = by_type[Pub], by_type[SubBefore], by_type[SubAfter]
    assert isinstance(sent, Pub)
    assert isinstance(before, SubBefore)
    assert isinstance(after, SubAfter)
    assert (sent.message_id, sent.topic, sent.tags) == (receipt.msg_id, topic, "t")
    assert sent.offset_message_id == receipt.offset_msg_id
    assert sent.success
    assert before.message_id == after.message_id == receipt.msg_id
    assert before.request_id == after.request_id
    assert (after.success, after.group) == (True, group)


async def transactions_decide_what_is_seen(cluster: Cluster) -> None:
    topic, group = await cluster.topic(), cluster.unique("p")
    asked: list[str] = []
    inbox = Inbox()

    async def check(message: aio.ReceivedMessage) -> aio.TransactionState:
        asked.append(message.text)
        return states[message.text] or aio.TransactionState.COMMIT

    producer = aio.TransactionProducer(
        group, check=check, nameservers=cluster.nameservers, timeout_ms=10_000
    )
    states = {
        "commit": aio.TransactionState.COMMIT,
        "rollback": aio.TransactionState.ROLLBACK,
        "unknown": None,
    }

    def local(message: aio.Message) -> aio.TransactionState | None:
        return states[message.text]

    async with producer, cluster.push() as consumer:
        consumer.subscribe(topic, "*", inbox)
        for text in ("rollback", "commit"):
            try:
                receipt = await producer.send_in_transaction(aio.Message(topic, text), local)
            except aio.BrokerError as error:
                pytest.skip(f"this broker has no transactions: {error}")
            assert receipt.state is states[text]
        await cluster.until(lambda: inbox.has(["commit"]), "what was committed")
        unknown = await producer.send_in_transaction(aio.Message(topic, "unknown"), local)
        assert unknown.state is aio.TransactionState.UNKNOWN
        await cluster.until(lambda: inbox.has(["unknown"]), "a check", hurry=True)
    # A broker that notes verdicts in batches may ask about one that it was told already.
    assert set(inbox.texts) == {"commit", "unknown"}
    assert "unknown" in asked


async def questions_are_answered(cluster: Cluster) -> None:
    topic = await cluster.topic()
    refused: list[aio.BrokerError] = []
    async with (
        cluster.producer() as asker,
        cluster.producer() as replier,
        cluster.push() as consumer,
    ):

        async def answer(message: aio.ReceivedMessage) -> None:
            try:
                if message.text != "silence":
                    await replier.reply(message, f"{message.text}? Yes.")
            except aio.BrokerError as error:
                refused.append(error)

        def ask(text: str, timeout_ms: int = 20_000) -> asyncio.Task[aio.ReceivedMessage]:
            return asyncio.create_task(
                asker.request(aio.Message(topic, text), timeout_ms=timeout_ms)
            )

        consumer.subscribe(topic, "*", answer)
        questions = [ask(text) for text in "abc"]
        await cluster.until(lambda: refused or all(one.done() for one in questions), "replies")
        if refused:
            for question in questions:
                question.cancel()
            await asyncio.wait(questions)
            pytest.skip(f"this broker passes no replies on: {refused[0]}")
        assert [(await one).text for one in questions] == ["a? Yes.", "b? Yes.", "c? Yes."]
        with pytest.raises(FirearrowError) as caught:
            await ask("silence", timeout_ms=300)
        assert (caught.value.code, caught.value.retriable) == (10006, True)


async def members_are_listed_and_leave(cluster: Cluster) -> None:
    topic, group = await cluster.topic(), cluster.unique("g")

    async def listed() -> set[str]:
        command = request(RequestCode.GET_CONSUMER_LIST_BY_GROUP)
        command.ext["consumerGroup"] = group
        answer = await cluster.ask(command)
        if answer.code:
            return set()
        return set(java_json.decode(answer.body, bodies.ConsumerList).consumer_id_list)

    async with cluster.push(group) as consumer:
        consumer.subscribe(topic, "*", Inbox())

        async def is_member() -> bool:
            return await listed() == {consumer.client_id}

        await cluster.until_async(is_member, "membership")

    async def is_gone() -> bool:
        return not await listed()

    await cluster.until_async(is_gone, "the end of the membership")


SCENARIOS = (
    offsets_are_reset_under_a_running_consumer,
    consumers_tell_how_they_are,
    one_message_is_consumed_on_demand,
    traces_are_written,
    transactions_decide_what_is_seen,
    questions_are_answered,
    members_are_listed_and_leave,
)
