"""Topics for tests of the connector, and ways to lose what is in them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from firearrow import Admin, Message, Producer
from firearrow.client.options import ClientOptions
from firearrow.client.portal import portal
from firearrow.client.session import Session
from firearrow.model.topic import MessageQueue
from firearrow.spark.directory import Directory
from firearrow.spark.options import ReadOptions
from firearrow.wire.codes import RequestCode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from firearrow.testing.cluster import LocalCluster

BROKER = "broker-a"
NUMBERS = "cast(cast(body as string) as int)"
PATIENCE_S = 60


class Topic:
    """A topic of its own for each test."""

    def __init__(self, cluster: LocalCluster, name: str, queues: int) -> None:
        self.cluster = cluster
        self.name = name
        self.queues = queues
        self.nameservers = cluster.nameservers
        with Admin(nameservers=self.nameservers) as admin:
            admin.create_topic(name, queues=queues)

    def send(self, *bodies: bytes | str, **given: Any) -> None:
        with Producer("tests", nameservers=self.nameservers) as producer:
            for body in bodies:
                assert producer.send(Message(self.name, body, **given)).ok

    def send_many(self, count: int, *, start: int = 0, size: int = 0) -> None:
        """Numbers as bodies, those of each queue in order: number n goes to queue n % queues."""
        with Producer("tests", nameservers=self.nameservers) as producer:
            for queue in range(self.queues):
                messages = [
                    Message(
                        self.name,
                        f"{number}".ljust(size),
                        tags="odd" if number % 2 else "even",
                        keys=f"k{number}",
                        properties={"n": str(number)},
                    )
                    for number in range(start, start + count)
                    if number % self.queues == queue
                ]
                place = MessageQueue(topic=self.name, broker_name=BROKER, queue_id=queue)
                few = max(1, 8_000 // (size + 300))  # a batch must fit a file of the log
                for at in range(0, len(messages), few):
                    receipts = producer.send_batch(messages[at : at + few], queue=place)
                    assert all(one.ok for one in receipts)

    @property
    def options(self) -> dict[str, str]:
        return {"nameservers": self.nameservers, "subscribe": self.name}

    def table(self, spark: SparkSession, schema: str | None = None, **options: str) -> DataFrame:
        reader = spark.read.format("rocketmq").options(**(self.options | options))
        return (reader.schema(schema) if schema else reader).load()

    def stream(self, spark: SparkSession, schema: str | None = None, **options: str) -> DataFrame:
        given = {"startingOffsets": "earliest"} | self.options | options
        reader = spark.readStream.format("rocketmq").options(**given)
        return (reader.schema(schema) if schema else reader).load()


def numbers(frame: DataFrame) -> list[int]:
    """The numbers that `send_many` put into bodies."""
    return sorted(int(row[0]) for row in frame.selectExpr(f"{NUMBERS} as n").collect())


def forget(topic: Topic) -> dict[str, tuple[int, int]]:
    """Have the broker of `forgetful` remove old files; where queues begin and end then."""

    async def ask() -> None:
        session = Session([topic.nameservers], ClientOptions())
        await session.start()
        try:
            for code in (
                RequestCode.DELETE_EXPIRED_COMMITLOG,
                RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
            ):
                await session.call(topic.cluster.broker_address, code)
        finally:
            await session.stop()

    options = ReadOptions.parse(topic.options, streaming=False)
    directory = Directory(options.connection)
    deadline = time.monotonic() + PATIENCE_S
    try:
        while True:
            portal.call(ask)
            bounds = directory.bounds(directory.queues([topic.name]))
            if all(place.least > 0 for place in bounds.values()):
                return {queue.key: (place.least, place.behind) for queue, place in bounds.items()}
            assert time.monotonic() < deadline, f"nothing was removed: {bounds}"
    finally:
        directory.close()
