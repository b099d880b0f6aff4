"""Rebalance under churn: members join, leave and die while messages flow.

Nothing may be lost, ordered groups keep the order of each queue, and what comes twice is what was
under way when a queue changed hands.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pytest
from tests.scenarios.cluster import Cluster
from tests.support import running_broker

from firearrow import aio
from firearrow.broker import queue_locks
from firearrow.client import rebalance

if TYPE_CHECKING:
    from pathlib import Path

QUEUES: Final = 6
STEPS: Final = 10
PER_STEP: Final = 60
MEMBERS_MAX: Final = 4
SETTINGS: Final = aio.ConsumerSettings(
    persist_offsets_ms=50, rebalance_ms=200, stop_grace_ms=2_000, suspend_ms=10, pull_batch=8
)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Minutes of waiting for each other, in seconds: the proportions stay."""
    monkeypatch.setattr(rebalance, "ROUND_MS_MIN", 20)
    monkeypatch.setattr(rebalance, "AGAIN_MS", 20)
    monkeypatch.setattr(rebalance, "HANDOVER_MS", 20)
    monkeypatch.setattr(rebalance, "LOCK_FAILED_MS", 10)
    monkeypatch.setattr(rebalance, "LOCK_RENEW_MS", 200)
    monkeypatch.setattr(queue_locks, "LOCK_MS", 1_000)


@dataclass
class Churn:
    """A group whose members change, and everything that they were given."""

    cluster: Cluster
    topic: str
    group: str
    ordered: bool
    chance: random.Random
    members: list[aio.PushConsumer] = field(default_factory=list)
    begun: list[tuple[int, int]] = field(default_factory=list)  # queue, offset
    texts: Counter[str] = field(default_factory=Counter)
    busy: set[int] = field(default_factory=set)
    overlaps: list[int] = field(default_factory=list)  # queues with two handlers at a time
    sent: int = 0
    changes: Counter[str] = field(default_factory=Counter)

    async def handle(self, message: aio.ReceivedMessage) -> None:
        queue = message.queue_id
        if queue in self.busy:
            self.overlaps.append(queue)
        self.busy.add(queue)
        self.begun.append((queue, message.queue_offset))
        try:
            await asyncio.sleep(self.chance.choice([0, 0, 0.001]))
            self.texts[message.text] += 1
        finally:
            self.busy.discard(queue)

    async def join(self) -> None:
        consumer = self.cluster.push(self.group, ordered=self.ordered, settings=SETTINGS)
        consumer.subscribe(self.topic, "*", self.handle)
        await consumer.start()
        self.members.append(consumer)

    async def leave(self) -> None:
        await self.members.pop(self.chance.randrange(len(self.members))).close()

    async def die(self) -> None:
        """No good-bye, nothing saved: as when the process is killed."""
        member = self.members.pop(self.chance.randrange(len(self.members)))
        for session in (member._session, member._inner._session):  # noqa: SLF001
            session.producers.clear()
            session.consumers.clear()
            await session.stop()

    async def step(self) -> None:
        choices = ["join"] * (len(self.members) < MEMBERS_MAX) * 2
        choices += ["leave", "die"] * (len(self.members) > 1)
        change = self.chance.choice(choices)
        self.changes[change] += 1
        await {"join": self.join, "leave": self.leave, "die": self.die}[change]()

    async def send(self, producer: aio.Producer, count: int) -> None:
        for _ in range(count):
            await producer.send(aio.Message(self.topic, str(self.sent)), key=self.sent % 24)
            self.sent += 1

    def report(self) -> str:
        extra = self.texts.total() - len(self.texts)
        return f"{self.sent} messages, {extra} came again, changes: {dict(self.changes)}"


def assert_in_order(begun: list[tuple[int, int]]) -> None:
    """The first time of each message is in the order of its queue."""
    by_queue: dict[int, list[int]] = defaultdict(list)
    for queue, offset in begun:
        if offset not in by_queue[queue]:
            by_queue[queue].append(offset)
    for queue, offsets in by_queue.items():
        assert offsets == sorted(offsets), f"queue {queue} went out of order"


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
async def test_nothing_is_lost_while_members_come_and_go(
    tmp_path: Path, ordered: bool, seed: int
) -> None:
    async with running_broker(tmp_path / "store") as served:
        cluster = Cluster(served.nameserver.address, served.broker.address, lambda: None, tmp_path)
        topic = await cluster.topic(queues=QUEUES)
        churn = Churn(cluster, topic, cluster.unique("g"), ordered, random.Random(seed))
        await churn.join()
        try:
            async with cluster.producer() as producer:
                for _ in range(STEPS):
                    flow = asyncio.create_task(churn.send(producer, PER_STEP))
                    await churn.step()
                    await flow
                    # Let some changes settle, and others fall over each other.
                    if churn.chance.random() < 0.5:
                        await cluster.until(
                            lambda: len(churn.texts) >= churn.sent - PER_STEP, "most messages"
                        )
                await cluster.until(lambda: len(churn.texts) == churn.sent, churn.report())
        finally:
            for member in churn.members:
                await member.close()
            await cluster.close()
    print(churn.report())
    assert set(churn.texts) == {str(number) for number in range(churn.sent)}
    extra = churn.texts.total() - len(churn.texts)
    changed = churn.changes.total()
    # A queue that changes hands brings again what was pulled of it, or not yet saved.
    assert extra <= changed * QUEUES * SETTINGS.pull_batch, churn.report()
    if ordered:
        assert_in_order(churn.begun)
        assert churn.overlaps == []
