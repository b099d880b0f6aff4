"""Priorities from a producer to a consumer that takes the highest first."""

from __future__ import annotations

import threading
import time

import pytest
from tests.support import PATIENCE_S

from firearrow import (
    Admin,
    ConsumeFromWhere,
    ConsumerSettings,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
)
from firearrow.client.errors import InvalidMessage
from firearrow.testing import LocalCluster

LEVELS = 4


def test_highest_priority_is_consumed_first_and_its_lag_is_that_of_its_queue() -> None:
    got: list[str] = []
    began, pulled, complete = threading.Event(), threading.Event(), threading.Event()

    def take(message: ReceivedMessage) -> None:
        if message.text == "first":
            began.set()
            assert pulled.wait(PATIENCE_S)  # everything else, and it waits for this only worker
        got.append(message.text)
        if len(got) == 1 + 2 * LEVELS:
            complete.set()

    settings = ConsumerSettings(
        by_priority=True,
        workers_max=1,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )
    with LocalCluster() as cluster, Admin(nameservers=cluster.nameservers) as admin:
        admin.create_topic("jobs", queues=LEVELS)
        with (
            Producer("p", nameservers=cluster.nameservers) as producer,
            PushConsumer("g", nameservers=cluster.nameservers, settings=settings) as consumer,
        ):
            producer.send(Message("jobs", "first", priority=0))
            consumer.subscribe("jobs", "*", take)
            assert began.wait(PATIENCE_S)
            for number in range(2):
                for level in range(LEVELS):
                    receipt = producer.send(Message("jobs", f"{level}-{number}", priority=level))
                    assert receipt.queue.queue_id == level
            stats = admin.topic_stats("jobs")
            assert [queue.messages for queue in stats.queues] == [3, 2, 2, 2]
            deadline = time.monotonic() + PATIENCE_S
            while cached(consumer) < stats.messages:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            pulled.set()
            assert complete.wait(PATIENCE_S)
    assert got == ["first", *(f"{level}-{n}" for level in (3, 2, 1, 0) for n in (0, 1))]


def cached(consumer: PushConsumer) -> int:
    table = consumer.running_info().mq_table
    return sum(info.cached_msg_count for queue, info in table.items() if queue.topic == "jobs")


def test_priorities_below_zero_do_not_exist() -> None:
    with pytest.raises(InvalidMessage, match="begin at 0"):
        Message("jobs", "x", priority=-1)
