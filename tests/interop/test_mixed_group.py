"""Java and Python members in one consumer group on our broker: they share queues and agree.

Python members come and go while messages flow; two Java members stay, and one of them leaves.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections import Counter, defaultdict
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pytest
from tests.scenarios.cluster import Cluster

from firearrow import aio

from .apache import START_TIMEOUT_S, java_command
from .firearrow import FireArrowCluster

if TYPE_CHECKING:
    from pathlib import Path

    from .processes import Bench, PeerProcess

QUEUES: Final = 8
KEYS: Final = 16
ROUND: Final = 400  # messages while members come and go
DUPLICATES_MAX: Final = 0.25  # of all; what was being worked on when a queue changed hands


@dataclass
class Delivery:
    member: str
    queue: int
    offset: int
    body: str
    at_ms: int


@dataclass
class Group:
    """Members of both kinds, and what they got."""

    cluster: Cluster
    topic: str
    name: str
    ordered: bool
    java: PeerProcess
    python: list[Delivery] = field(default_factory=list)
    sent: int = 0

    def deliveries(self) -> list[Delivery]:
        lines = [line for line in self.java.output().splitlines() if line.startswith('{"body"')]
        found = [
            Delivery(one["member"], one["queue"], one["offset"], one["body"], one["at"])
            for one in map(json.loads, lines)
        ]
        return found + self.python

    def bodies(self) -> Counter[str]:
        return Counter(delivery.body for delivery in self.deliveries())

    def member(self, name: str) -> aio.PushConsumer:
        """A Python member, not started yet."""
        settings = aio.ConsumerSettings(rebalance_ms=1_000)
        consumer = self.cluster.push(self.name, ordered=self.ordered, settings=settings)

        async def handle(message: aio.ReceivedMessage) -> None:
            at_ms = time.time_ns() // 1_000_000
            self.python.append(
                Delivery(name, message.queue_id, message.queue_offset, message.text, at_ms)
            )

        consumer.subscribe(self.topic, "*", handle)
        return consumer

    async def send(self, count: int) -> set[str]:
        """More messages, in order within each key; bodies are packed in each way in turn."""
        texts = [str(number) for number in range(self.sent, self.sent + count)]
        self.sent += count
        ways: list[dict[str, Any]] = [{"compression": way} for way in ("zlib", "lz4", "zstd")]
        async with AsyncExitStack() as stack:
            producers = [
                await stack.enter_async_context(self.cluster.producer(**way))
                for way in [{}, *(way | {"compress_over_bytes": 1} for way in ways)]
            ]
            for text, producer in zip(texts, itertools.cycle(producers), strict=False):
                await producer.send(aio.Message(self.topic, text), key=int(text) % KEYS)
        return set(texts)

    async def until_received(self, texts: set[str]) -> None:
        await self.cluster.until(
            lambda: texts <= set(self.bodies()), f"{len(texts)} messages at members"
        )

    async def until_shared(self, python: dict[str, aio.PushConsumer], java: int) -> None:
        """Wait until every member has its part."""
        share = QUEUES // (len(python) + java)

        def settled() -> bool:
            counts = [
                sum(queue.topic == self.topic for queue in consumer.assignment)
                for consumer in python.values()
            ]
            return all(share <= count <= share + 1 for count in counts)

        await self.cluster.until(settled, "an even share")

    async def shared_without_overlap(self) -> None:
        """With steady members everything comes once, and each queue to one member."""
        for _ in range(20):
            before = len(self.deliveries())
            texts = await self.send(ROUND // 4)
            await self.until_received(texts)
            new = self.deliveries()
            owners = defaultdict(set)
            counts = Counter(one.body for one in new if one.body in texts)
            for one in new:
                if one.body in texts:
                    owners[one.queue].add(one.member)
            if set(counts.values()) == {1} and all(len(names) == 1 for names in owners.values()):
                assert len({name for names in owners.values() for name in names}) > 1
                return
            assert before <= len(new)
        pytest.fail("members did not come to an agreement")


async def start_group(bench: Bench, ours: FireArrowCluster, folder: Path, **wanted: Any) -> Group:
    ordered: bool = wanted["ordered"]
    cluster = Cluster(
        ours.nameserver.address, f"127.0.0.1:{ours.broker_port}", lambda: None, folder
    )
    topic, group = await cluster.topic("mixed", queues=QUEUES), cluster.unique("mixed-group")
    work_dir = bench.new_folder("members")
    command = java_command(
        "firearrow.interop.Members",
        work_dir=work_dir,
        arguments=[
            f"nameserver={cluster.nameservers}",
            f"topic={topic}",
            f"group={group}",
            "count=2",
            f"ordered={str(ordered).lower()}",
        ],
    )
    java = bench.start("members", command, work_dir=work_dir)
    return Group(cluster, topic, group, ordered, java)


def assert_in_order(deliveries: list[Delivery]) -> None:
    """Whoever had a queue, its messages were begun in order; those at a change may come again."""
    by_queue = defaultdict(list)
    for delivery in deliveries:
        by_queue[delivery.queue].append(delivery)
    for queue, found in by_queue.items():
        by_member = defaultdict(list)
        for one in found:
            by_member[one.member].append(one.offset)
        seen: set[int] = set()
        found.sort(key=lambda one: (one.at_ms, one.offset))
        fresh = []
        for one in found:
            if one.offset not in seen:
                fresh.append(one.offset)
                seen.add(one.offset)
        assert fresh == sorted(fresh), f"queue {queue} was consumed out of order"


@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
async def test_java_and_python_share_a_group(bench: Bench, tmp_path: Path, ordered: bool) -> None:
    ours = FireArrowCluster(bench)
    group = await start_group(bench, ours, tmp_path, ordered=ordered)
    try:
        await asyncio.to_thread(
            group.java.wait_for_line, "members ready", timeout_s=START_TIMEOUT_S
        )
        texts = await group.send(ROUND)
        python = {name: group.member(name) for name in ("python-0", "python-1")}
        async with python["python-0"]:
            texts |= await group.send(ROUND)
            async with python["python-1"]:
                texts |= await group.send(ROUND)
                await group.until_shared(python, java=2)
                await group.shared_without_overlap()
                group.java.send_line("")  # a Java member leaves
                texts |= await group.send(ROUND)
                await group.until_received(texts)
                await group.shared_without_overlap()
            texts |= await group.send(ROUND)
            await group.until_received(texts)
        await group.until_received(texts | await group.send(ROUND))
        counts = group.bodies()
        assert set(counts) == {str(number) for number in range(group.sent)}
        extra = counts.total() - len(counts)
        assert extra <= DUPLICATES_MAX * group.sent, f"{extra} duplicates"
        members = {delivery.member for delivery in group.deliveries()}
        assert members == {"java-0", "java-1", "python-0", "python-1"}
        if ordered:
            assert_in_order(group.deliveries())
        print(f"{group.sent} messages, {extra} came twice")
    finally:
        await group.cluster.close()
