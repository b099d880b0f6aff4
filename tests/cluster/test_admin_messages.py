"""Admin and messages: by id, key and place; traces; direct consumption; dead letters."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from tests.support import PATIENCE_S, running_broker, until

from firearrow.client.admin import Admin
from firearrow.client.errors import InvalidRequest, NoRoute
from firearrow.client.handlers import DeadLetter, Retry
from firearrow.client.message import Message, ReceivedMessage
from firearrow.client.options import ClientOptions
from firearrow.client.producer import Producer
from firearrow.client.push_consumer import PushConsumer
from firearrow.model.errors import NoPermission, QueryNotFound, ServerFailed
from firearrow.wire.bodies import ConsumeResult

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from firearrow.client.sending import SendReceipt

GROUP, TOPIC = "billing", "orders"


class Scene:
    """A topic, and somebody who sends to it."""

    def __init__(
        self, admin: Admin, producer: Producer, nameservers: str, options: ClientOptions
    ) -> None:
        self.admin = admin
        self.producer = producer
        self.nameservers = nameservers
        self.options = options

    async def send(self, text: str, keys: str | None = None) -> SendReceipt:
        return await self.producer.send(Message(TOPIC, text, keys=keys))

    def consumer(self, *, trace: bool = False) -> PushConsumer:
        return PushConsumer(GROUP, nameservers=self.nameservers, trace=trace, client=self.options)

    async def dead_letters(self, count: int, limit: int | None = None) -> list[ReceivedMessage]:
        """The dead letters, once there are so many."""
        deadline = asyncio.get_running_loop().time() + PATIENCE_S
        while True:
            found = [one async for one in self.admin.dlq_messages(GROUP, limit)]
            if len(found) >= count:
                return found
            assert asyncio.get_running_loop().time() < deadline, f"{len(found)} dead letters"
            await asyncio.sleep(0.01)


@asynccontextmanager
async def scene(
    tmp_path: Path, *, namespace: str = "", trace: bool = False, queues: int = 1
) -> AsyncIterator[Scene]:
    options = ClientOptions(namespace=namespace)
    async with running_broker(tmp_path, trace_topic_enable=trace) as served:
        names = served.nameserver.address
        async with (
            Admin(nameservers=names, client=options) as admin,
            Producer("sender", nameservers=names, client=options, trace=trace) as producer,
        ):
            await admin.create_topic(TOPIC, queues=queues)
            yield Scene(admin, producer, names, options)


# --- finding ----------------------------------------------------------------------------------


async def test_a_message_is_found_by_either_of_its_ids(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        receipt = await at.send("x" * 10_000)  # compressed on its way
        by_place = await at.admin.message_by_id(receipt.offset_msg_id)
        by_key = await at.admin.message_by_id(receipt.msg_id, TOPIC)
        for found in (by_place, by_key):
            assert (found.topic, found.text) == (TOPIC, "x" * 10_000)
            assert (found.msg_id, found.offset_msg_id) == (receipt.msg_id, receipt.offset_msg_id)
            assert found.queue == receipt.queue


async def test_an_id_that_leads_nowhere_gets_a_clear_error(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        receipt = await at.send("a")
        nowhere = receipt.offset_msg_id[:-8] + "00FFFFFF"
        with pytest.raises(QueryNotFound, match=nowhere):
            await at.admin.message_by_id(nowhere)
        with pytest.raises(InvalidRequest, match="topic is needed"):
            await at.admin.message_by_id(receipt.msg_id)
        with pytest.raises(QueryNotFound, match="has no message"):
            await at.admin.message_by_id(receipt.msg_id[:-4] + "FFFF", TOPIC)
        with pytest.raises(NoRoute, match="nothing"):
            await at.admin.message_by_id(receipt.msg_id, "nothing")


async def test_messages_are_found_by_key_and_time_oldest_first(tmp_path: Path) -> None:
    async with scene(tmp_path, queues=4) as at:
        for number in range(6):
            await at.send(f"n{number}", keys="even all" if number % 2 == 0 else "odd all")
        found = await at.admin.messages_by_key(TOPIC, "even")
        assert [one.text for one in found] == ["n0", "n2", "n4"]
        assert all("even" in one.keys for one in found)
        assert len(await at.admin.messages_by_key(TOPIC, "all", limit=4)) == 4
        last_ms = found[-1].store_timestamp
        late = await at.admin.messages_by_key(TOPIC, "all", begin_ms=last_ms + 3_600_000)
        assert late == []
        early = await at.admin.messages_by_key(TOPIC, "all", end_ms=found[0].store_timestamp - 9)
        assert early == []
        assert await at.admin.messages_by_key(TOPIC, "none") == []
        with pytest.raises(InvalidRequest, match="at least 1"):
            await at.admin.messages_by_key(TOPIC, "all", limit=0)


async def test_a_message_is_found_by_its_place_in_a_queue(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        (queue,) = await at.admin.queues(TOPIC)
        with pytest.raises(QueryNotFound, match="is empty"):
            await at.admin.message_at(queue, 0)
        await at.send("a")
        await at.send("b")
        assert (await at.admin.message_at(queue, 1)).text == "b"
        assert (await at.admin.min_offset(queue), await at.admin.max_offset(queue)) == (0, 2)
        with pytest.raises(QueryNotFound, match="it has 0 to 1"):
            await at.admin.message_at(queue, 2)


# --- traces -----------------------------------------------------------------------------------


async def test_the_trace_of_a_message_tells_who_sent_and_who_consumed_it(tmp_path: Path) -> None:
    async with scene(tmp_path, trace=True) as at:
        tries: list[str] = []
        consumer = at.consumer(trace=True)

        @consumer.subscribe(TOPIC)
        async def consume(message: ReceivedMessage) -> None:
            tries.append(message.msg_id)
            if len(tries) == 1:
                raise Retry(delay_level=1)

        async with consumer:
            receipt = await at.send("a", keys="k")
            await at.send("b")
            await until(lambda: len(tries) == 3)
        await at.producer.close()  # what is left of the trace is written
        trace = await at.admin.message_trace(receipt.msg_id)
        (sent,) = trace.published
        assert (sent.group, sent.topic, sent.keys, sent.success) == ("sender", TOPIC, "k", True)
        assert sent.offset_message_id == receipt.offset_msg_id
        assert [(one.group, one.success) for one in trace.deliveries] == [
            (GROUP, False),
            (GROUP, True),
        ]
        assert [one.before.retry_times for one in trace.deliveries if one.before] == [0, 1]
        with pytest.raises(QueryNotFound, match="trace=True"):
            await at.admin.message_trace("0" * 32)
        with pytest.raises(NoRoute, match="elsewhere"):
            await at.admin.message_trace(receipt.msg_id, trace_topic="elsewhere")


# --- consuming directly -----------------------------------------------------------------------


async def test_a_member_consumes_a_message_on_request_and_says_how_it_went(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        heard: list[str] = []
        consumer = at.consumer()

        @consumer.subscribe(TOPIC)
        async def consume(message: ReceivedMessage) -> None:
            heard.append(message.text)
            if heard.count("bad") > 1:
                raise ValueError("not again")

        async with consumer:
            good, bad = await at.send("good"), await at.send("bad")
            await until(lambda: len(heard) == 2)
            message = await at.admin.message_by_id(good.offset_msg_id)
            result = await at.admin.consume_directly(GROUP, consumer.client_id, message)
            assert result.consume_result is ConsumeResult.CR_SUCCESS
            message = await at.admin.message_by_id(bad.msg_id, TOPIC)
            result = await at.admin.consume_directly(GROUP, consumer.client_id, message)
            assert result.consume_result is ConsumeResult.CR_THROW_EXCEPTION
            assert "not again" in (result.remark or "")
            assert heard == ["good", "bad", "good", "bad"]
            with pytest.raises(ServerFailed, match="nobody"):
                await at.admin.consume_directly(GROUP, "nobody", message)


# --- dead letters -----------------------------------------------------------------------------


@pytest.mark.parametrize("namespace", ["", "shop"])
async def test_dead_letters_are_listed_and_sent_to_their_group_again(
    tmp_path: Path, namespace: str
) -> None:
    async with scene(tmp_path, namespace=namespace) as at:
        assert [one async for one in at.admin.dlq_messages(GROUP)] == []
        heard: list[tuple[str, str, str, int]] = []
        healthy = False
        consumer = at.consumer()

        @consumer.subscribe(TOPIC)
        async def consume(message: ReceivedMessage) -> None:
            if not healthy:
                raise DeadLetter
            heard.append((message.topic, message.text, message.msg_id, message.reconsume_times))

        async with consumer:
            receipts = [await at.send(f"n{number}", keys="k") for number in range(3)]
            letters = await at.dead_letters(3)
            assert [one.text for one in letters] == ["n0", "n1", "n2"]
            assert {one.topic for one in letters} == {f"%DLQ%{GROUP}"}
            assert len(await at.dead_letters(2, limit=2)) == 2
            healthy = True
            await at.admin.resend_dlq(letters[1])
            await until(lambda: heard, "the message again")
            assert heard == [(TOPIC, "n1", receipts[1].msg_id, 0)]
            assert len(await at.dead_letters(3)) == 3  # they stay
            again = await at.admin.resend_dlq(letters[0], topic=TOPIC)
            assert again.queue.topic == TOPIC
            await until(lambda: len(heard) == 2)
            assert heard[1][:2] == (TOPIC, "n0")


async def test_many_dead_letters_are_read_page_by_page(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        consumer = at.consumer()

        @consumer.subscribe(TOPIC)
        async def consume(_: ReceivedMessage) -> None:
            raise DeadLetter

        async with consumer:
            await asyncio.gather(*(at.send(f"n{number}") for number in range(100)))
            letters = await at.dead_letters(100)
        assert {one.text for one in letters} == {f"n{number}" for number in range(100)}
        assert [one.queue_offset for one in letters] == list(range(100))
        assert len(await at.dead_letters(40, limit=40)) == 40
        assert await at.dead_letters(0, limit=0) == []


async def test_what_is_no_dead_letter_or_may_not_be_read_is_refused(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        receipt = await at.send("a")
        message = await at.admin.message_by_id(receipt.offset_msg_id)
        with pytest.raises(InvalidRequest, match="not a dead-letter queue"):
            await at.admin.resend_dlq(message)
        with pytest.raises(InvalidRequest, match="limit -1"):
            await at.dead_letters(0, limit=-1)
        await at.admin.create_topic(f"%DLQ%{GROUP}", queues=1, perm=2)  # as RocketMQ 4 has them
        with pytest.raises(NoPermission, match="perm=6"):
            await at.dead_letters(0)
