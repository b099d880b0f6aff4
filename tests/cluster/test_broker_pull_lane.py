"""The express lane of pulling answers as the general handler does, and closes when it must."""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.broker_requests import (
    GROUP,
    TOPIC,
    heartbeat,
    pull,
    pulled,
    query_offset,
    records,
    send,
    sent,
    subscription,
    texts,
)
from tests.support import ServedBroker, running_broker, until

from firearrow import hot
from firearrow.model.errors import ResponseCode
from firearrow.model.group import MessageModel, SubscriptionGroupConfig
from firearrow.model.topic import Perm
from firearrow.testing import ManualClock
from firearrow.wire.codes import RequestCode
from firearrow.wire.headers import PullFlag

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from firearrow.broker.pull_lane import PullLane
    from firearrow.wire.command import Command

pytestmark = pytest.mark.skipif(hot.KIND != "native", reason="the express lane is compiled code")

TAGS = ("red", "blue", "")


@asynccontextmanager
async def filled_broker(folder: Path, count: int = 12, **about: Any) -> AsyncIterator[ServedBroker]:
    """Messages in two queues, and one member of a group that wants them all."""
    async with running_broker(folder, ManualClock(), **about) as served:
        for number in range(count):
            tag = TAGS[number % 3]
            properties = {"UNIQ_KEY": f"{number:04}"} | ({"TAGS": tag} if tag else {})
            for queue_id in (0, 1):
                body = f"{number}".encode() * 20
                sent(await served.ask(send(body, queue_id=queue_id, properties=properties)))
        store = served.broker.state.store
        await until(lambda: store.statistics().dispatched_offset == store.statistics().end_offset)
        await served.ask(heartbeat("c1", subscription(version=7)))
        yield served


def lane_of(served: ServedBroker) -> PullLane:
    lane = served.broker.pull_lane
    assert lane is not None
    return lane


async def passes(served: ServedBroker, command: Command) -> tuple[Command, bool]:
    """The answer, and whether it came from the lane."""
    before = lane_of(served).passed
    reply = await served.ask(command)
    return reply, lane_of(served).passed > before


def facts(reply: Command) -> Any:
    """All of an answer but the ports in its records, which differ from run to run."""
    found = [(r.queue_offset, r.physical_offset, r.body, r.properties) for r in records(reply)]
    return reply.code, reply.flag, reply.remark, list(reply.ext.items()), found


asks = st.fixed_dictionaries(
    {},
    optional={
        "offset": st.integers(-1, 14),
        "queue_id": st.integers(0, 3),
        "count": st.sampled_from([1, 3, 32, 0]),
        "expression": st.sampled_from([None, "*", "red", "red || blue", "green"]),
        "flags": st.sampled_from([0, 1, 16]),
        "commit_offset": st.sampled_from([0, 4, -1]),
        "sub_version": st.sampled_from([0, 7, 8]),
        "group": st.sampled_from([GROUP, "other"]),
        "topic": st.sampled_from([TOPIC, "nothing"]),
        "code": st.sampled_from([RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE]),
        "expression_type": st.sampled_from(["TAG", None]),
    },
)


@given(st.lists(asks, max_size=12))
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_with_and_without_the_lane_the_same_is_answered_and_remembered(
    tmp_path_factory: pytest.TempPathFactory, many: list[dict[str, Any]]
) -> None:
    async def run(folder: Path, *, express: bool) -> Any:
        async with filled_broker(folder) as served:
            if not express:
                lane_of(served).open_gate = lambda *_: None  # type: ignore[method-assign]
            answers = [facts(await served.ask(pull(**one))) for one in [*many, *many]]
            state = served.broker.state
            state.statistics.collect()
            counted = [
                (name, key, counter.count, counter.times)
                for (name, key), counter in sorted(state.statistics._counters.items())  # noqa: SLF001
                if "GET" in name
            ]
            return answers, state.offsets.snapshot(), counted, lane_of(served).passed

    folder = tmp_path_factory.mktemp("pulls")
    with_lane = asyncio.run(run(folder / "with", express=True))
    without = asyncio.run(run(folder / "without", express=False))
    assert without[3] == 0
    assert with_lane[:3] == without[:3]


async def test_the_second_pull_of_a_queue_goes_through_the_lane(tmp_path: Path) -> None:
    async with filled_broker(tmp_path) as served:
        first, express = await passes(served, pull(0, expression=None, count=5))
        assert not express
        second, express = await passes(served, pull(5, expression=None, count=5))
        assert express
        assert len(texts(first) + texts(second)) == 10
        assert pulled(second).next_begin_offset == 10
        _, express = await passes(served, pull(0, expression=None, queue_id=1))
        assert not express, "each queue begins with the general handler"


async def test_messages_that_come_later_are_found_by_the_lane(tmp_path: Path) -> None:
    async with filled_broker(tmp_path, count=3) as served:
        await served.ask(pull(0, expression=None))
        sent(await served.ask(send(b"new", properties={"UNIQ_KEY": "n"})))
        queue = served.broker.state.store.queue(TOPIC, 0)
        assert queue is not None
        await until(lambda: queue.max_offset == 4)
        reply, express = await passes(served, pull(3, expression=None))
        assert express
        assert texts(reply) == [b"new"]


async def test_entries_that_are_only_in_files_are_read_through_a_window(tmp_path: Path) -> None:
    async with filled_broker(tmp_path, count=300) as served:
        store = served.broker.state.store
        await store.checkpoint()
        queue = store.queue(TOPIC, 0)
        assert queue is not None
        assert queue.tail_first > 0
        await served.ask(pull(0, expression=None))
        bodies: list[bytes] = []
        offset = 0
        while offset < 300:
            reply, express = await passes(served, pull(offset, expression=None))
            assert express
            bodies += texts(reply)
            offset = pulled(reply).next_begin_offset
        assert bodies == [f"{number}".encode() * 20 for number in range(300)]


CHANGES = ["topic", "group", "settings", "subscription", "leave", "model", "reset", "forbid"]


@pytest.mark.parametrize("change", CHANGES)
async def test_a_gate_closes_when_something_changes_that_the_rules_look_at(
    tmp_path: Path, change: str
) -> None:
    async with filled_broker(tmp_path) as served:
        state = served.broker.state
        await served.ask(pull(0, expression=None))
        _, express = await passes(served, pull(0, expression=None))
        assert express
        told = ResponseCode.NO_PERMISSION
        if change == "topic":
            topic = state.topics.get(TOPIC)
            assert topic is not None
            state.topics.put(msgspec.structs.replace(topic, perm=int(Perm.WRITE)))
        elif change == "group":
            state.groups.put(SubscriptionGroupConfig(group_name=GROUP, consume_enable=False))
        elif change == "settings":
            config = dataclasses.replace(state.config, broker_permission=int(Perm.WRITE))
            state.reconfigure(config, {})
        elif change == "subscription":
            await served.ask(heartbeat("c1", subscription(expression="green", version=8)))
            told = ResponseCode.PULL_RETRY_IMMEDIATELY
        elif change == "leave":
            (channel,) = state.clients.consumers[GROUP].members
            assert state.clients.channel_closed(channel) == [GROUP]
            told = ResponseCode.SUBSCRIPTION_NOT_EXIST
        elif change == "model":
            state.groups.put(
                SubscriptionGroupConfig(group_name=GROUP, consume_broadcast_enable=False)
            )
            await served.ask(pull(0, expression=None))
            await served.ask(
                heartbeat("c1", subscription(version=7), model=MessageModel.BROADCASTING)
            )
        elif change == "reset":
            state.offsets.reset(TOPIC, GROUP, 0, 3)
            told = ResponseCode.PULL_OFFSET_MOVED
        else:
            state.groups.forbid_reading(GROUP, TOPIC, forbidden=True)
        reply, express = await passes(served, pull(0, expression=None))
        assert not express
        assert reply.code == told, reply.remark


async def test_a_commit_that_rides_on_a_pull_counts_in_the_lane_too(tmp_path: Path) -> None:
    async with filled_broker(tmp_path) as served:
        flags = int(PullFlag.COMMIT_OFFSET)
        await served.ask(pull(0, expression=None))
        assert (await served.ask(query_offset())).code == ResponseCode.QUERY_NOT_FOUND
        assert TOPIC not in served.broker.state.offsets.topics_of(GROUP)
        _, express = await passes(
            served, pull(2, expression=None, flags=flags, commit_offset=2, sub_version=7)
        )
        assert express
        assert (await served.ask(query_offset())).ext["offset"] == "2"
        assert served.broker.state.offsets.changed
