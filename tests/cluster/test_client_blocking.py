"""The blocking twins: the same clients, from any thread."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from tests.support import PATIENCE_S

from firearrow import (
    Admin,
    ConsumeFromWhere,
    ConsumerSettings,
    FirearrowError,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
)
from firearrow.client.sending import BatchPartlySent
from firearrow.testing import LocalCluster

if TYPE_CHECKING:
    from firearrow import SendContext

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


def test_messages_of_a_push_consumer_can_be_iterated_until_it_is_closed(
    rocketmq: LocalCluster,
) -> None:
    names = rocketmq.nameservers
    with Producer("p", nameservers=names, timeout_ms=20_000) as producer:
        producer.send_batch(Message("orders", str(number)) for number in range(4))
        consumer = PushConsumer("g", nameservers=names, consume_from_where=FIRST)
        consumer.add_subscription("orders")
        seen: list[str] = []
        with consumer:
            for message in consumer:
                seen.append(message.text)
                if len(seen) == 4:
                    break  # this one is not consumed: it comes again
            ended = threading.Event()

            def go_on() -> None:
                for _ in consumer:
                    pass
                ended.set()

            threading.Thread(target=go_on, daemon=True).start()
        assert ended.wait(PATIENCE_S)
    assert sorted(seen) == ["0", "1", "2", "3"]


def test_a_pull_consumer_says_how_it_is_doing(rocketmq: LocalCluster) -> None:
    names = rocketmq.nameservers
    with (
        Producer("p", nameservers=names, timeout_ms=20_000) as producer,
        PullConsumer("reader", nameservers=names, consume_from_where=FIRST) as reader,
        Admin(nameservers=names) as admin,
    ):
        producer.send(Message("orders", "1"))
        reader.subscribe("orders")
        while not reader.poll():
            pass
        (member,) = admin.consumer_connections("reader").connection_set
        info = admin.running_info("reader", member.client_id)
        assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"
        assert reader.running_info().properties == info.properties


class Watching:
    """A hook that keeps what it sees."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def before_send(self, context: SendContext) -> None:
        self.seen.append(("before", context.messages[0].text))

    def after_send(self, context: SendContext) -> None:
        assert context.error is None
        self.seen.append(("after", context.messages[0].text))


def test_hooks_see_one_way_sends(rocketmq: LocalCluster) -> None:
    watching = Watching()
    with Producer("p", nameservers=rocketmq.nameservers, hooks=[watching]) as producer:
        producer.send_oneway(Message("orders", "gone"))
    assert watching.seen == [("before", "gone"), ("after", "gone")]


def test_a_batch_that_fails_in_the_middle_says_what_is_stored() -> None:
    with (
        LocalCluster(max_message_size=1_000) as cluster,
        Producer("p", nameservers=cluster.nameservers, max_message_bytes=4_000) as producer,
    ):
        messages = [Message("orders", "small"), Message("orders", bytes(3_900))]
        with pytest.raises(BatchPartlySent, match="1 of 2 messages are stored") as caught:
            producer.send_batch(messages)
    assert [receipt.ok for receipt in caught.value.receipts] == [True]
    assert caught.value.rest == messages[1:]
    assert isinstance(caught.value.__cause__, FirearrowError)
    assert caught.value.retriable == caught.value.__cause__.retriable


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
