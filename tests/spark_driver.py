"""Tasks and drivers of an exactly-once write, played by hand: what Spark would call, without it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from firearrow import PullConsumer
from firearrow.client.portal import portal
from firearrow.spark.decision_log import DecisionLog
from firearrow.spark.rows import Plan
from firearrow.spark.settling import Attempt, Settling
from firearrow.spark.sink_cluster import SinkCluster
from firearrow.spark.task import Task
from firearrow.spark.write_options import WriteOptions
from firearrow.wire import java_json
from firearrow.wire.bodies import OpenTransactions
from firearrow.wire.codes import RequestCode

if TYPE_CHECKING:
    from firearrow.spark.decisions import Decision

PLAN = Plan(0, -1, -1, -1, -1, 1, -1)
QUERY = "query-1"


class Driver:
    """One driver process: its own connections, its own memory."""

    def __init__(self, nameservers: str, topic: str = "orders", **options: str) -> None:
        given = {"nameservers": nameservers, "topic": topic} | options
        self.options = WriteOptions.parse(given, streaming=False)
        self.cluster = SinkCluster(self.options.connection)
        self.log = DecisionLog(self.cluster, self.options)
        self.settling = Settling(self.cluster, self.log, self.options)
        portal.call(self.cluster.check_topic, topic)
        portal.call(self.log.ensure, topic)

    def write(
        self, *bodies: bytes, epoch: int = 0, partition: int = 0, scope: str = QUERY
    ) -> Attempt:
        """One attempt of one task."""
        own = {"FA_SCOPE": scope, "FA_EPOCH": str(epoch)}
        task = Task(self.cluster, self.options, PLAN, partition, own)
        return Attempt(partition, f"attempt-{id(task)}", task.write([rows(*bodies)]))

    def commit(self, *attempts: Attempt, epoch: int = 0, scope: str = QUERY) -> Decision:
        return portal.call(self.settling.commit, scope, epoch, attempts)

    def open_halves(self) -> int:
        return sum(1 for _ in opened(self))

    def close(self) -> None:
        portal.call(self.cluster.close)


def opened(driver: Driver) -> list[Any]:
    async def ask() -> list[Any]:
        session = await driver.cluster.open()
        address = await session.find_master("broker-a", "orders")
        answer = await session.call(address, RequestCode.FIREARROW_GET_OPEN_TRANSACTIONS)
        return list(java_json.decode(answer.body, OpenTransactions).transactions)

    return portal.call(ask)


def rows(*bodies: bytes) -> pa.RecordBatch:
    """All with one key, so that they are in one queue and their order shows."""
    return pa.record_batch({"body": [*bodies], "shardingKey": ["k"] * len(bodies)})


def bodies_in(nameservers: str, topic: str = "orders") -> list[bytes]:
    found: list[Any] = []
    with PullConsumer("reader", nameservers=nameservers) as consumer:
        queues = consumer.queues(topic)
        consumer.assign(queues)
        for queue in queues:
            consumer.seek_to_beginning(queue)
        count = sum(consumer.max_offset(queue) for queue in queues)
        while len(found) < count:
            found += consumer.poll(1_000)
    return [message.body for message in found]
