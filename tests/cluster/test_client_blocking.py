"""The blocking twins: the same clients, from any thread."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from tests.support import PATIENCE_S

from firearrow import (
    ConsumeFromWhere,
    ConsumerSettings,
    FirearrowError,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
)

if TYPE_CHECKING:
    from firearrow.testing import LocalCluster

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


def test_many_threads_share_one_producer(rocketmq: LocalCluster) -> None:
    got: queue.Queue[str] = queue.Queue()
    with (
        Producer("p", nameservers=rocketmq.nameservers, timeout_ms=20_000) as producer,
        PushConsumer("g", nameservers=rocketmq.nameservers, consume_from_where=FIRST) as consumer,
        ThreadPoolExecutor(8) as threads,
    ):
        consumer.subscribe("orders")(lambda message: got.put(message.text))
        receipts = list(threads.map(lambda n: producer.send(Message("orders", str(n))), range(200)))
        texts = {got.get(timeout=PATIENCE_S) for _ in range(200)}
        producer.send_oneway(Message("orders", "one way"))
        assert got.get(timeout=PATIENCE_S) == "one way"
        (batch,) = producer.send_batch(Message("orders", text) for text in "ab")
        assert {got.get(timeout=PATIENCE_S) for _ in "ab"} == {"a", "b"}
        assert batch.ok
        assert consumer.running_info().properties["consumerGroup"] == "g"
        assert "orders" in {one.topic for one in consumer.assignment}
    assert len({receipt.msg_id for receipt in receipts}) == 200
    assert texts == {str(number) for number in range(200)}


def test_blocking_handlers_may_use_blocking_clients(rocketmq: LocalCluster) -> None:
    got: queue.Queue[str] = queue.Queue()
    settings = ConsumerSettings(consume_from_where=FIRST)
    with (
        Producer("p", nameservers=rocketmq.nameservers, timeout_ms=20_000) as producer,
        PushConsumer("g", nameservers=rocketmq.nameservers, settings=settings) as consumer,
    ):

        def pass_on(message: ReceivedMessage) -> None:
            producer.send(Message("second", message.text + "!"))

        consumer.subscribe("first", "*", pass_on)
        consumer.subscribe("second", "*", lambda message: got.put(message.text))
        producer.send(Message("first", "hello"))
        assert got.get(timeout=PATIENCE_S) == "hello!"


def test_iteration_ends_when_the_consumer_is_closed(rocketmq: LocalCluster) -> None:
    got: queue.Queue[str] = queue.Queue()
    reader = PullConsumer("g", nameservers=rocketmq.nameservers, consume_from_where=FIRST)
    reader.subscribe("orders")
    reader.start()

    def read() -> None:
        for message in reader:
            got.put(message.text)

    thread = threading.Thread(target=read)
    thread.start()
    with Producer("p", nameservers=rocketmq.nameservers, timeout_ms=20_000) as producer:
        producer.send(Message("orders", "x"))
        assert got.get(timeout=PATIENCE_S) == "x"
    reader.close()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    with pytest.raises(FirearrowError):
        reader.poll()


def test_run_ends_with_close(rocketmq: LocalCluster) -> None:
    consumer = PushConsumer("g", nameservers=rocketmq.nameservers)
    consumer.subscribe("orders", "*", print)
    thread = threading.Thread(target=consumer.run)
    thread.start()
    consumer.close()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_mistakes_are_told_before_anything_starts() -> None:
    for wrong in ("", "a b", "DEFAULT_PRODUCER", "x" * 121):
        with pytest.raises(FirearrowError) as caught:
            Producer(wrong, nameservers="127.0.0.1:1")
        assert caught.value.remedy
    with pytest.raises(FirearrowError, match="DEFAULT_CONSUMER"):
        PushConsumer("DEFAULT_CONSUMER", nameservers="127.0.0.1:1")
