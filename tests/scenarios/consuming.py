"""Consuming by handler: outcomes, order, retries, filters, and what changes while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest
from tests.scenarios.cluster import Cluster, Inbox, numbered

from firearrow import aio
from firearrow.base.errors import FirearrowError
from firearrow.net.errors import ConnectionLost
from firearrow.testing.cluster import JumpingClock
from firearrow.wire.codes import RequestCode

if TYPE_CHECKING:
    from firearrow.wire.command import Command

FAST = aio.ConsumerSettings(suspend_ms=10)


def dead_letters(group: str) -> str:
    return f"%DLQ%{group}"


async def read_all(cluster: Cluster, topic: str, count: int) -> list[aio.ReceivedMessage]:
    """The first messages of a topic, whoever else has read them."""
    await cluster.until_known(topic)
    found: list[aio.ReceivedMessage] = []
    async with cluster.pull() as reader:
        await reader.assign(await reader.queues(topic))
        while len(found) < count:
            messages = await reader.poll(20_000)
            assert messages, f"{len(found)} of {count} messages in {topic}"
            found.extend(messages)
    return found


# --- outcomes -----------------------------------------------------------------------------------


async def plain_functions_run_in_threads(cluster: Cluster) -> None:
    topic = await cluster.topic()
    texts = numbered(50)
    got: list[str] = []
    threads: set[str] = set()

    def handle(message: aio.ReceivedMessage) -> None:
        threads.add(threading.current_thread().name)
        got.append(message.text)

    await cluster.fill(topic, texts)
    async with cluster.push() as consumer:
        consumer.subscribe(topic, "*", handle)
        await cluster.until(lambda: set(texts) <= set(got), "all messages")
    assert sorted(got) == sorted(texts)
    assert all(name.startswith("consume-") for name in threads)


async def batch_handlers_get_lists_and_may_do_a_part(cluster: Cluster) -> None:
    topic = await cluster.topic(queues=1)
    texts = numbered(12)
    await cluster.fill(topic, texts)
    batches: list[list[tuple[str, int]]] = []

    async def half(messages: list[aio.ReceivedMessage]) -> int:
        batches.append([(message.text, message.reconsume_times) for message in messages])
        if messages[0].reconsume_times:
            return len(messages)
        return len(messages) // 2  # of a single message: none

    def seen(*, again: bool) -> list[str]:
        return [text for batch in batches for text, times in batch if bool(times) is again]

    def failed() -> set[str]:
        first = [[text for text, times in batch if not times] for batch in batches]
        return {text for batch in first for text in batch[len(batch) // 2 :]}

    async with cluster.push() as consumer:
        consumer.subscribe(topic, "*", half, batch=6)
        await cluster.until(lambda: set(seen(again=False)) == set(texts), "all messages")
        await cluster.until(
            lambda: set(seen(again=True)) >= failed(), "second tries of the rest", hurry=True
        )
    again = seen(again=True)
    assert sorted(again) == sorted(failed())
    assert max(map(len, batches)) <= 6
    assert any(len(batch) > 1 for batch in batches)


async def failures_climb_the_ladder_to_the_dead_letters(cluster: Cluster) -> None:
    topic, group = await cluster.topic(), cluster.unique("g")
    seen: list[tuple[str, str, int, str]] = []

    async def fail(message: aio.ReceivedMessage) -> None:
        seen.append((message.topic, message.text, message.reconsume_times, message.msg_id))
        raise RuntimeError("never works")

    (receipt,) = await cluster.fill(topic, ["hard"])
    async with cluster.push(group, max_reconsume_times=2) as consumer:
        consumer.subscribe(topic, "*", fail)
        await cluster.until(lambda: len(seen) >= 3, "three tries", hurry=True)
        (dead,) = await read_all(cluster, dead_letters(group), 1)
    assert seen == [(topic, "hard", times, receipt.msg_id) for times in range(3)]
    assert dead.text == "hard"
    assert dead.msg_id == receipt.msg_id


async def handlers_choose_when_or_never(cluster: Cluster) -> None:
    topic, group = await cluster.topic(), cluster.unique("g")
    seen: list[tuple[str, int]] = []

    async def handle(message: aio.ReceivedMessage) -> aio.ConsumeStatus | None:
        seen.append((message.text, message.reconsume_times))
        if message.text == "poison":
            raise aio.DeadLetter("never")
        if message.text == "soon" and not message.reconsume_times:
            raise aio.Retry("in a second", delay_level=1)
        if message.text == "status" and not message.reconsume_times:
            return aio.ConsumeStatus.RETRY
        return None

    await cluster.fill(topic, ["poison", "soon", "status"])
    async with cluster.push(group) as consumer:
        consumer.subscribe(topic, "*", handle)
        await cluster.until(
            lambda: {("soon", 1), ("status", 1)} <= set(seen), "second tries", hurry=True
        )
        (dead,) = await read_all(cluster, dead_letters(group), 1)
    assert dead.text == "poison"
    assert seen.count(("poison", 0)) == 1


class Refuses:
    """Requests of some kinds do not get through."""

    def __init__(self, *codes: int) -> None:
        self.codes = codes
        self.refused = 0

    def before_request(self, _: str, command: Command) -> None:
        if command.code in self.codes:
            self.refused += 1
            raise ConnectionLost("the test has cut the line")

    def after_response(self, _: str, command: Command, response: Command) -> None: ...


async def what_is_not_taken_back_is_sent_anew(cluster: Cluster) -> None:
    topic, group = await cluster.topic(), cluster.unique("g")
    refuses = Refuses(RequestCode.CONSUMER_SEND_MSG_BACK)
    seen: list[tuple[str, str, int, str]] = []

    async def handle(message: aio.ReceivedMessage) -> None:
        seen.append((message.topic, message.text, message.reconsume_times, message.msg_id))
        if message.text == "poison":
            raise aio.DeadLetter("never")
        if not message.reconsume_times:
            raise aio.Retry("again", delay_level=1)

    receipt, _ = await cluster.fill(topic, ["good", "poison"], tags="t")
    async with cluster.push(group, client=aio.ClientOptions(hooks=(refuses,))) as consumer:
        consumer.subscribe(topic, "t", handle)
        await cluster.until(
            lambda: (topic, "good", 1, receipt.msg_id) in seen, "the copy", hurry=True
        )
        (dead,) = await read_all(cluster, dead_letters(group), 1)
    assert refuses.refused == 2
    assert len(seen) == 3
    assert dead.text == "poison"


async def what_nobody_takes_is_tried_here_again(cluster: Cluster) -> None:
    topic = await cluster.topic()
    refuses = Refuses(RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.SEND_MESSAGE_V2)
    seen: list[int] = []

    async def handle(message: aio.ReceivedMessage) -> None:
        seen.append(message.reconsume_times)
        if len(seen) == 1:
            raise RuntimeError("first time")

    await cluster.fill(topic, ["x"])
    clock = JumpingClock()
    client = aio.ClientOptions(hooks=(refuses,), clock=clock)
    async with cluster.push(client=client) as consumer:
        consumer.subscribe(topic, "*", handle)
        await cluster.until(lambda: refuses.refused >= 2, "both refusals")

        def later() -> bool:
            clock.jump(6_000)
            return len(seen) == 2

        await cluster.until(later, "the try after a while")
    assert seen == [0, 1]
    assert refuses.refused >= 2


async def broadcasting_gives_everyone_everything(cluster: Cluster) -> None:
    topic, group = await cluster.topic(), cluster.unique("g")
    inboxes = [Inbox(), Inbox()]

    def member(number: int) -> aio.PushConsumer:
        consumer = cluster.push(
            group,
            message_model=aio.MessageModel.BROADCASTING,
            offset_folder=cluster.folder / "offsets",
            client=aio.ClientOptions(instance_name=f"member-{number}"),
        )
        consumer.subscribe(topic, "*", inboxes[number])
        return consumer

    before, after = numbered(10, "before"), numbered(10, "after")
    await cluster.fill(topic, before)
    async with member(0), member(1):
        await cluster.until(lambda: all(inbox.has(before) for inbox in inboxes), "both")
    assert [inbox.counts().total() for inbox in inboxes] == [10, 10]
    files = sorted(cluster.folder.glob(f"offsets/*/{group}/offsets.json"))
    assert len(files) == 2, list(cluster.folder.rglob("*"))
    await cluster.fill(topic, after)
    async with member(0):
        await cluster.until(lambda: inboxes[0].has(after), "what came meanwhile")
    assert inboxes[0].counts().total() == 20


# --- order --------------------------------------------------------------------------------------


async def ordered_groups_keep_the_order_of_each_key(cluster: Cluster) -> None:
    topic = await cluster.topic()
    by_key: dict[str, list[int]] = defaultdict(list)
    running: set[int] = set()
    overlaps: list[int] = []

    async def handle(message: aio.ReceivedMessage) -> None:
        if message.queue_id in running:
            overlaps.append(message.queue_id)
        running.add(message.queue_id)
        await asyncio.sleep(0)
        key, number = message.text.split()
        by_key[key].append(int(number))
        running.discard(message.queue_id)

    async with cluster.producer() as producer:
        for number in range(40):
            for key in ("a", "b", "c"):
                await producer.send(aio.Message(topic, f"{key} {number}"), key=key)
    async with cluster.push(ordered=True) as consumer:
        consumer.subscribe(topic, "*", handle)
        await cluster.until(lambda: sum(map(len, by_key.values())) >= 120, "all messages")
    assert dict(by_key) == {key: list(range(40)) for key in ("a", "b", "c")}
    assert overlaps == []


async def a_failure_holds_an_ordered_queue_up(cluster: Cluster) -> None:
    topic, group = await cluster.topic(queues=1), cluster.unique("g")
    seen: list[str] = []

    async def handle(messages: list[aio.ReceivedMessage]) -> int | None:
        seen.extend(message.text for message in messages[:1])
        first = messages[0]
        if first.text == "m1" and seen.count("m1") < 3:
            raise aio.Retry("not yet", after_ms=10)
        if first.text == "m2":
            raise aio.DeadLetter("never")
        return 1  # one by one, though more were given

    await cluster.fill(topic, numbered(5))
    async with cluster.push(group, ordered=True, settings=FAST) as consumer:
        consumer.subscribe(topic, "*", handle, batch=2)
        await cluster.until(lambda: "m4" in seen, "the end of the queue")
        dead = await read_all(cluster, dead_letters(group), 1)
    assert seen[:4] == ["m0", "m1", "m1", "m1"]
    assert seen[4:] in (["m2", "m3", "m4"], ["m2", "m4"])
    assert dead[0].text == "m2"


async def ordered_messages_that_fail_too_often_become_dead_letters(cluster: Cluster) -> None:
    topic, group = await cluster.topic(queues=1), cluster.unique("g")
    seen: list[str] = []

    def handle(message: aio.ReceivedMessage) -> bool:
        seen.append(f"{message.text} {message.reconsume_times}")
        return message.text != "m1"

    await cluster.fill(topic, numbered(3))
    async with cluster.push(group, ordered=True, max_reconsume_times=2, settings=FAST) as consumer:
        consumer.subscribe(topic, "*", handle)
        await cluster.until(lambda: "m2 0" in seen, "the end of the queue")
        (dead,) = await read_all(cluster, dead_letters(group), 1)
    assert seen == ["m0 0", "m1 0", "m1 1", "m1 2", "m2 0"]
    assert dead.text == "m1"


# --- filters ------------------------------------------------------------------------------------


async def tags_are_compared_exactly(cluster: Cluster) -> None:
    """The broker compares hashes, and those of "Aa" and "BB" are equal."""
    topic, group = await cluster.topic(queues=1), cluster.unique("g")
    inbox = Inbox()
    for tag in ("Aa", "BB", "C", "D"):
        await cluster.fill(topic, [f"text of {tag}"], tags=tag)
    await cluster.fill(topic, ["text without a tag"])
    async with cluster.push(group) as consumer:
        consumer.subscribe(topic, "Aa || C", inbox)
        await cluster.until(lambda: inbox.has(["text of C"]), "the last that is wanted")
    assert sorted(inbox.texts) == ["text of Aa", "text of C"]
    async with cluster.pull(group) as reader:
        (queue,) = await reader.queues(topic)
        assert (await reader.committed(queue) or 0) >= 3


async def sql_selects_by_properties(cluster: Cluster) -> None:
    topic = await cluster.topic()
    inbox = Inbox()
    for number in range(6):
        await cluster.fill(topic, [f"m{number}"], properties={"a": str(number)}, tags="t")
    consumer = cluster.push()
    consumer.subscribe(topic, handler=inbox, sql="a BETWEEN 2 AND 4 AND TAGS = 't'")
    try:
        await consumer.start()
    except aio.BrokerError as error:
        if "enablePropertyFilter" not in str(error):
            raise
        pytest.skip(f"this broker does not filter by SQL: {error}")
    try:
        await cluster.until(lambda: inbox.has(["m2", "m3", "m4"]), "what was selected")
        assert inbox.counts().total() == 3
    finally:
        await consumer.close()
    broken = cluster.push()
    broken.subscribe(topic, handler=inbox, sql="a BETWEEN")
    with pytest.raises(FirearrowError):
        await broken.start()


# --- where to begin -----------------------------------------------------------------------------


async def consumers_begin_where_they_are_told(cluster: Cluster) -> None:
    topic = await cluster.topic(queues=1)
    (old,) = await cluster.fill(topic, ["old"])
    inboxes = {where: Inbox() for where in ("first", "time", "committed")}
    committed = cluster.unique("g")
    async with cluster.pull(committed, auto_commit=False) as reader:
        await reader.assign([old.queue])
        await reader.commit({old.queue: 1})
    stored = (await read_all(cluster, topic, 1))[0].store_timestamp
    await cluster.until(lambda: cluster_ms() > stored + 1, "another millisecond")
    middle_ms = cluster_ms()
    await cluster.until(lambda: cluster_ms() > middle_ms + 1, "another millisecond")
    await cluster.fill(topic, ["new"])
    by_time = aio.ConsumerSettings(consume_timestamp_ms=middle_ms)
    where = aio.ConsumeFromWhere
    async with (
        cluster.push(consume_from_where=where.CONSUME_FROM_FIRST_OFFSET) as first,
        cluster.push(consume_from_where=where.CONSUME_FROM_TIMESTAMP, settings=by_time) as time,
        cluster.push(committed, consume_from_where=where.CONSUME_FROM_FIRST_OFFSET) as third,
    ):
        first.subscribe(topic, "*", inboxes["first"])
        time.subscribe(topic, "*", inboxes["time"])
        third.subscribe(topic, "*", inboxes["committed"])
        await cluster.until(
            lambda: all(inbox.has(["new"]) for inbox in inboxes.values()), "the new message"
        )
    assert inboxes["first"].texts == ["old", "new"]
    assert inboxes["committed"].texts == ["new"]
    assert inboxes["time"].texts == ["new"]


def cluster_ms() -> int:
    return aio.ClientOptions().clock.now_ms()


# --- while it runs ------------------------------------------------------------------------------


async def paused_consumers_pull_nothing(cluster: Cluster) -> None:
    topic = await cluster.topic()
    inbox = Inbox()
    consumer = cluster.push()
    consumer.subscribe(topic, "*", inbox)
    consumer.pause()
    async with consumer:
        await cluster.fill(topic, numbered(5))
        assert inbox.messages == []
        assert consumer.assignment == []
        consumer.resume()
        await cluster.until(lambda: inbox.has(numbered(5)), "what waited")
    assert inbox.counts().total() == 5


async def subscriptions_change_while_it_runs(cluster: Cluster) -> None:
    first, second = await cluster.topic(), await cluster.topic()
    one, two = Inbox(), Inbox()
    async with cluster.push() as consumer:
        consumer.subscribe(first, "*", one)
        await cluster.fill(first, ["a"])
        await cluster.until(lambda: one.messages, "the first topic")
        consumer.subscribe(second)(two)
        await cluster.fill(second, ["b"])
        await cluster.until(lambda: two.messages, "the second topic")
        consumer.unsubscribe(first)
        await cluster.until(
            lambda: first not in {queue.topic for queue in consumer.assignment}, "the end of one"
        )
        await cluster.fill(first, ["c"])
        await cluster.fill(second, ["d"])
        await cluster.until(lambda: two.has(["d"]), "the second topic again")
    assert (one.texts, two.texts) == (["a"], ["b", "d"])


async def closing_commits_so_that_nothing_comes_twice(cluster: Cluster) -> None:
    topic, group = await cluster.topic(), cluster.unique("g")
    texts = numbered(60)
    inbox = Inbox()

    async def slow(message: aio.ReceivedMessage) -> None:
        await asyncio.sleep(0.002)
        await inbox(message)

    await cluster.fill(topic, texts)
    while not inbox.has(texts):
        seen = len(inbox.messages)
        async with cluster.push(group, workers_max=2) as consumer:
            consumer.subscribe(topic, "*", slow)
            goal = min(seen + 10, len(texts))
            await cluster.until(functools.partial(inbox.grew, goal), "ten more, or the rest")
        left = [queue for queue in consumer.assignment if queue.topic == topic]
        assert left == []
        if len(inbox.messages) >= len(texts):
            break
    assert inbox.counts() == dict.fromkeys(texts, 1)


async def messages_can_be_iterated(cluster: Cluster) -> None:
    topic = await cluster.topic(queues=1)
    await cluster.fill(topic, numbered(4))
    got = []
    async with cluster.push(workers_max=1) as consumer:
        consumer.add_subscription(topic)
        await cluster.until(lambda: consumer.assignment, "queues")
        async with contextlib.aclosing(aiter(consumer)) as messages:
            async for message in messages:
                got.append((message.text, message.reconsume_times))
                if len(got) == 4:
                    break
        assert got == [(text, 0) for text in numbered(4)]
        async with contextlib.aclosing(aiter(consumer)) as messages:
            again = asyncio.ensure_future(anext(messages))
            await cluster.until(again.done, "the message that the loop was left with", hurry=True)
            assert ((await again).text, (await again).reconsume_times) == ("m3", 1)


async def members_share_the_queues(cluster: Cluster) -> None:
    topic, group = await cluster.topic(queues=4), cluster.unique("g")
    one, two = Inbox(), Inbox()
    heard: list[tuple[str, int]] = []
    first = cluster.push(group, on_assignment=lambda name, all_: heard.append((name, len(all_))))
    second = cluster.push(group)
    first.subscribe(topic, "*", one)
    second.subscribe(topic, "*", two)
    async with first:
        await cluster.until(lambda: of_topic(first, topic) == 4, "all queues")
        async with second:
            await cluster.until(
                lambda: of_topic(first, topic) == of_topic(second, topic) == 2, "two each"
            )
            texts = numbered(40)
            await cluster.fill(topic, texts)
            await cluster.until(lambda: {*one.texts, *two.texts} >= set(texts), "all messages")
            assert one.messages
            assert two.messages
            assert one.counts().total() + two.counts().total() == 40
        await cluster.until(lambda: of_topic(first, topic) == 4, "all queues again")
    assert [count for name, count in heard if name == topic] == [4, 2, 4]


def of_topic(consumer: aio.PushConsumer, topic: str) -> int:
    return sum(queue.topic == topic for queue in consumer.assignment)


SCENARIOS = (
    plain_functions_run_in_threads,
    batch_handlers_get_lists_and_may_do_a_part,
    failures_climb_the_ladder_to_the_dead_letters,
    handlers_choose_when_or_never,
    what_is_not_taken_back_is_sent_anew,
    what_nobody_takes_is_tried_here_again,
    broadcasting_gives_everyone_everything,
    ordered_groups_keep_the_order_of_each_key,
    a_failure_holds_an_ordered_queue_up,
    ordered_messages_that_fail_too_often_become_dead_letters,
    tags_are_compared_exactly,
    sql_selects_by_properties,
    consumers_begin_where_they_are_told,
    paused_consumers_pull_nothing,
    subscriptions_change_while_it_runs,
    closing_commits_so_that_nothing_comes_twice,
    messages_can_be_iterated,
    members_share_the_queues,
)
