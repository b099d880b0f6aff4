"""Consuming by asking: poll, seek, commit, assign."""

from __future__ import annotations

import asyncio

import pytest
from tests.scenarios.cluster import Cluster, numbered

from firearrow import aio
from firearrow.base.errors import FirearrowError


async def poll_texts(reader: aio.PullConsumer, count: int) -> list[str]:
    """The next texts, so many; each in the order of its queue."""
    found: list[str] = []
    while len(found) < count:
        messages = await reader.poll(20_000)
        assert messages, f"{len(found)} of {count} messages"
        found.extend(message.text for message in messages)
    return found


async def readers_share_a_topic_and_commit(cluster: Cluster) -> None:
    topic, group = await cluster.topic(), cluster.unique("g")
    texts = numbered(20)
    await cluster.fill(topic, texts)
    reader = cluster.pull(group)
    reader.subscribe(topic)
    async with reader:
        assert sorted(await poll_texts(reader, 20)) == sorted(texts)
        assert len(reader.assignment) == 4
        assert await reader.poll(1) == []
    assert reader.assignment == []
    more = numbered(8, "more")
    await cluster.fill(topic, more)
    async with cluster.pull(group) as second:
        second.subscribe(topic)
        assert sorted(await poll_texts(second, 8)) == sorted(more)


async def assigned_queues_are_the_only_ones(cluster: Cluster) -> None:
    topic, group = await cluster.topic(), cluster.unique("g")
    receipts = await cluster.fill(topic, numbered(20))
    async with cluster.pull(group, auto_commit=False) as reader:
        queues = await reader.queues(topic)
        mine = queues[1]
        own = [f"m{n}" for n, receipt in enumerate(receipts) if receipt.queue == mine]
        await reader.assign([mine])
        reader.rebalance_soon()  # as a notice of the broker does
        assert await poll_texts(reader, len(own)) == own
        reader.rebalance_soon()
        assert await reader.poll(1_200) == []
        assert reader.assignment == [mine]
        with pytest.raises(FirearrowError, match="excludes"):
            reader.subscribe(topic)
        with pytest.raises(FirearrowError, match="not one of"):
            await reader.seek(queues[0], 0)
        await reader.assign(queues[2:])
        assert reader.assignment == queues[2:]
        assert await reader.committed(mine) is None or await reader.committed(mine) == 0


async def seeking_goes_anywhere(cluster: Cluster) -> None:
    topic = await cluster.topic(queues=1)
    texts = numbered(10)
    await cluster.fill(topic, texts)
    async with cluster.pull(pull_batch=3) as reader:
        (queue,) = await reader.queues(topic)
        await reader.assign([queue])
        assert await poll_texts(reader, 10) == texts
        assert reader.position(queue) == 10
        await reader.seek(queue, 4)
        assert reader.position(queue) == 4
        assert (await reader.poll(10_000))[0].text == "m4"
        await reader.seek_to_beginning(queue)
        first = (await reader.poll(10_000))[0]
        assert first.text == "m0"
        await reader.seek_to_time(queue, first.store_timestamp)
        assert (await reader.poll(10_000))[0].text == "m0"
        await reader.seek_to_end(queue)
        assert await reader.poll(100) == []
        assert reader.position(queue) == 10
        assert (await reader.min_offset(queue), await reader.max_offset(queue)) == (0, 10)
        for wrong in (-1, 11):
            with pytest.raises(FirearrowError, match="outside of 0 to 10"):
                await reader.seek(queue, wrong)
        await cluster.fill(topic, ["after"])
        assert await poll_texts(reader, 1) == ["after"]


async def commits_are_explicit_when_told(cluster: Cluster) -> None:
    topic, group = await cluster.topic(queues=1), cluster.unique("g")
    await cluster.fill(topic, numbered(6))
    async with cluster.pull(group, auto_commit=False) as reader:
        (queue,) = await reader.queues(topic)
        await reader.assign([queue])
        await poll_texts(reader, 6)
        assert not await reader.committed(queue)
        await reader.commit({queue: 2})
        assert await reader.committed(queue) == 2
    async with cluster.pull(group, auto_commit=False) as reader:
        await reader.assign([queue])
        assert await poll_texts(reader, 4) == ["m2", "m3", "m4", "m5"]
        await reader.commit()
        assert await reader.committed(queue) == 6


async def automatic_commits_lag_one_poll_behind(cluster: Cluster) -> None:
    topic = await cluster.topic(queues=1)
    await cluster.fill(topic, numbered(4))
    async with cluster.pull(auto_commit_ms=0, pull_batch=2) as reader:
        (queue,) = await reader.queues(topic)
        await reader.assign([queue])
        assert len(await reader.poll(10_000)) == 2
        assert not await reader.committed(queue)  # they may still be being worked on
        assert len(await reader.poll(10_000)) == 2
        assert await reader.committed(queue) == 2


async def paused_queues_hand_out_nothing(cluster: Cluster) -> None:
    topic = await cluster.topic(queues=2)
    async with cluster.pull() as reader:
        one, two = await reader.queues(topic)
        await reader.assign([one, two])
        reader.pause([one])
        async with cluster.producer() as producer:
            await producer.send(aio.Message(topic, "one"), queue=one)
            await producer.send(aio.Message(topic, "two"), queue=two)
        assert await poll_texts(reader, 1) == ["two"]
        assert await reader.poll(50) == []
        waiting = asyncio.create_task(poll_texts(reader, 1))
        await asyncio.sleep(0)
        reader.resume([one])
        assert await waiting == ["one"]


async def readers_filter_and_iterate(cluster: Cluster) -> None:
    topic = await cluster.topic(queues=1)
    for tag in ("Aa", "BB", "Aa"):
        await cluster.fill(topic, [f"text of {tag}"], tags=tag)
    async with cluster.pull() as reader:
        queues = await reader.queues(topic)
        await reader.assign(queues, "BB")
        async for message in reader:
            assert message.text == "text of BB"
            break
        await cluster.until(lambda: reader.position(queues[0]) == 3, "what nobody wanted")


SCENARIOS = (
    readers_share_a_topic_and_commit,
    assigned_queues_are_the_only_ones,
    seeking_goes_anywhere,
    commits_are_explicit_when_told,
    automatic_commits_lag_one_poll_behind,
    paused_queues_hand_out_nothing,
    readers_filter_and_iterate,
)
