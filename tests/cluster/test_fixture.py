"""The fixture that applications test with, and a service tested with it."""

from __future__ import annotations

import queue
from typing import TYPE_CHECKING

import pytest
from tests.support import PATIENCE_S

from firearrow import Message, Producer, PushConsumer, aio

if TYPE_CHECKING:
    from firearrow import ReceivedMessage
    from firearrow.testing import LocalCluster

HALF_AN_HOUR = 16  # delay level
SOONER_THAN_A_REBALANCE_S = 12  # which comes every 20 s


def test_fixture_is_a_real_broker(rocketmq: LocalCluster) -> None:
    got: queue.Queue[ReceivedMessage] = queue.Queue()
    with (
        Producer("tests", nameservers=rocketmq.nameservers) as producer,
        PushConsumer("service", nameservers=rocketmq.nameservers) as consumer,
    ):
        consumer.subscribe("orders", "*", got.put)
        receipt = producer.send(Message("orders", "order 42", tags="paid"))
        message = got.get(timeout=PATIENCE_S)
    assert message.text == "order 42"
    assert message.msg_id == receipt.msg_id


def test_delayed_messages_come_when_the_clock_jumps(rocketmq: LocalCluster) -> None:
    got: queue.Queue[ReceivedMessage] = queue.Queue()
    with (
        Producer("tests", nameservers=rocketmq.nameservers) as producer,
        PushConsumer("service", nameservers=rocketmq.nameservers) as consumer,
    ):
        consumer.subscribe("orders", "*", got.put)
        producer.send(Message("orders", "later", delay_level=HALF_AN_HOUR))
        producer.send(Message("orders", "now"))
        assert got.get(timeout=PATIENCE_S).text == "now"
        assert got.empty()
        rocketmq.advance(minutes=30)
        assert got.get(timeout=PATIENCE_S).text == "later"


def test_retries_come_when_the_clock_jumps(rocketmq: LocalCluster) -> None:
    seen: queue.Queue[int] = queue.Queue()

    def fails_twice(message: ReceivedMessage) -> None:
        seen.put(message.reconsume_times)
        if message.reconsume_times < 2:
            raise RuntimeError("not yet")

    with (
        Producer("tests", nameservers=rocketmq.nameservers) as producer,
        PushConsumer("service", nameservers=rocketmq.nameservers) as consumer,
    ):
        consumer.subscribe("orders", "*", fails_twice)
        producer.send(Message("orders", "hard"))
        for times in range(3):
            while True:
                try:
                    assert seen.get(timeout=0.2) == times
                    break
                except queue.Empty:
                    rocketmq.advance(minutes=1)  # the message may not have been sent back yet
        assert seen.empty()


def test_clients_find_a_broker_that_came_back(rocketmq: LocalCluster) -> None:
    got: queue.Queue[ReceivedMessage] = queue.Queue()
    with (
        Producer("tests", nameservers=rocketmq.nameservers, timeout_ms=20_000) as producer,
        PushConsumer("service", nameservers=rocketmq.nameservers) as consumer,
    ):
        consumer.subscribe("orders", "*", got.put)
        producer.send(Message("orders", "before"))
        assert got.get(timeout=PATIENCE_S).text == "before"
        rocketmq.stop_broker()
        rocketmq.restart_broker()
        producer.send(Message("orders", "after"))
        assert got.get(timeout=PATIENCE_S).text == "after"


async def test_asyncio_clients_use_the_fixture_too(rocketmq: LocalCluster) -> None:
    async with (
        aio.Producer("tests", nameservers=rocketmq.nameservers) as producer,
        aio.PullConsumer(
            "reader",
            nameservers=rocketmq.nameservers,
            consume_from_where=aio.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        ) as reader,
    ):
        await producer.send(aio.Message("orders", "one"))
        reader.subscribe("orders")
        async for message in reader:
            assert message.text == "one"
            break


def test_a_topic_that_is_made_after_the_consumer_started_is_found_and_missed_once(
    rocketmq: LocalCluster, caplog: pytest.LogCaptureFixture
) -> None:
    got: queue.Queue[ReceivedMessage] = queue.Queue()
    consumer = PushConsumer("service", nameservers=rocketmq.nameservers)
    consumer.subscribe("orders", "*", got.put)  # known before the first look at the topic
    with consumer, Producer("tests", nameservers=rocketmq.nameservers) as producer:
        with pytest.raises(queue.Empty):
            got.get(timeout=2.5)  # long enough for a second look
        producer.send(Message("orders", "first"))
        assert got.get(timeout=SOONER_THAN_A_REBALANCE_S).text == "first"
    missed = [record for record in caplog.records if "has no route yet" in record.getMessage()]
    assert len(missed) == 1
