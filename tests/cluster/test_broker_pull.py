"""Pulling from a whole broker over the wire: codes and offsets are exact, waiting is bounded."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.broker_requests import (
    GROUP,
    TOPIC,
    commit,
    heartbeat,
    max_offset_of,
    pull,
    pulled,
    query_offset,
    send,
    sent,
    subscription,
    texts,
)
from tests.support import ServedBroker, running_broker, until

from firearrow.hot import encode_frame
from firearrow.model.errors import ResponseCode
from firearrow.model.group import MessageModel, SubscriptionGroupConfig
from firearrow.model.topic import TopicConfig
from firearrow.net.errors import ConnectionLost
from firearrow.testing import ManualClock
from firearrow.wire.codes import RequestCode
from firearrow.wire.headers import PullFlag

if TYPE_CHECKING:
    from pathlib import Path

    from firearrow.wire.command import Command

NOT_FOUND = ResponseCode.PULL_NOT_FOUND
AGAIN = ResponseCode.PULL_RETRY_IMMEDIATELY
MOVED = ResponseCode.PULL_OFFSET_MOVED


async def fill(served: ServedBroker, count: int, *, tag: str = "", queue_id: int = 0) -> None:
    properties = {"TAGS": tag} if tag else {}
    for number in range(count):
        body = f"{tag}{number}".encode()
        sent(await served.ask(send(body, queue_id=queue_id, properties=properties)))


def offsets(reply: Command) -> tuple[int, int, int, int]:
    """Code, next, least and most."""
    told = pulled(reply)
    return reply.code, told.next_begin_offset, told.min_offset, told.max_offset


def waiting(served: ServedBroker) -> int:
    return served.broker.state.held.statistics().waiting


# --- codes and offsets ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "told", "remark"),
    [
        (0, (0, 5, 0, 5), "FOUND"),
        (4, (0, 5, 0, 5), "FOUND"),
        (5, (NOT_FOUND, 5, 0, 5), "OFFSET_OVERFLOW_ONE"),
        (6, (MOVED, 5, 0, 5), "OFFSET_OVERFLOW_BADLY"),
        (1 << 40, (MOVED, 5, 0, 5), "OFFSET_OVERFLOW_BADLY"),
        (-1, (MOVED, 0, 0, 5), "OFFSET_TOO_SMALL"),
    ],
)
async def test_offset_of_a_queue_with_five_messages_gets_its_exact_answer(
    tmp_path: Path, asked: int, told: tuple[int, int, int, int], remark: str
) -> None:
    async with running_broker(tmp_path) as served:
        await fill(served, 5)
        reply = await served.ask(pull(asked))
        assert offsets(reply) == told
        assert reply.remark == remark
        assert reply.ext["suggestWhichBrokerId"] == "0"


@pytest.mark.parametrize(
    ("asked", "told"), [(0, (NOT_FOUND, 0, 0, 0)), (1, (MOVED, 0, 0, 0)), (-1, (MOVED, 0, 0, 0))]
)
async def test_offset_of_an_empty_queue_gets_its_exact_answer(
    tmp_path: Path, asked: int, told: tuple[int, int, int, int]
) -> None:
    async with running_broker(tmp_path) as served:
        await fill(served, 1, queue_id=1)
        assert offsets(await served.ask(pull(asked))) == told


async def test_filter_skips_what_it_examined(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        await fill(served, 3, tag="A")
        await fill(served, 2, tag="B")
        await fill(served, 1)
        assert texts(await served.ask(pull(expression="B"))) == [b"B0", b"B1"]
        assert texts(await served.ask(pull(expression=" A || B "))) == [
            b"A0",
            b"A1",
            b"A2",
            b"B0",
            b"B1",
        ]
        assert offsets(await served.ask(pull(expression="C"))) == (AGAIN, 6, 0, 6)
        assert offsets(await served.ask(pull(5, expression="A"))) == (AGAIN, 6, 0, 6)
        # Words for everything; a message without a tag matches nothing else.
        for everything in ("*", ""):
            assert len(texts(await served.ask(pull(expression=everything)))) == 6


async def test_expression_of_separators_alone_cannot_be_understood(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        await fill(served, 1, tag="A")
        reply = await served.ask(pull(expression="||"))
        assert reply.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


@pytest.mark.parametrize(("count", "found"), [(1, 1), (3, 3), (0, 1), (-5, 1), (2**31 - 1, 32)])
async def test_pull_gets_as_many_as_it_asks_for_but_always_one_and_never_too_many(
    tmp_path: Path, count: int, found: int
) -> None:
    limits: dict[str, Any] = {"max_transfer_count_on_message_in_memory": 32}
    async with running_broker(tmp_path, **limits) as served:
        await fill(served, 40)
        reply = await served.ask(pull(count=count))
        assert len(texts(reply)) == found
        assert pulled(reply).next_begin_offset == found


async def test_first_message_is_returned_however_large_it_is(tmp_path: Path) -> None:
    limits: dict[str, Any] = {"max_transfer_bytes_on_message_in_memory": 262_144}
    async with running_broker(tmp_path, **limits) as served:
        body = b"x" * 400_000
        sent(await served.ask(send(body)))
        sent(await served.ask(send(b"small")))
        reply = await served.ask(pull())
        assert texts(reply) == [body]
        assert texts(await served.ask(pull(pulled(reply).next_begin_offset))) == [b"small"]


async def test_read_queues_that_were_taken_away_are_refused_and_come_back_with_their_messages(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path) as served:
        topics = served.broker.state.topics
        topics.put(TopicConfig(topic_name=TOPIC, read_queue_nums=4, write_queue_nums=4))
        await fill(served, 2, queue_id=3)
        topics.put(TopicConfig(topic_name=TOPIC, read_queue_nums=2, write_queue_nums=2))
        assert (await served.ask(pull(queue_id=3))).code == ResponseCode.INVALID_PARAMETER
        assert (await served.ask(send(queue_id=3))).code == ResponseCode.INVALID_PARAMETER
        topics.put(TopicConfig(topic_name=TOPIC, read_queue_nums=4, write_queue_nums=4))
        assert texts(await served.ask(pull(queue_id=3))) == [b"0", b"1"]


# --- who may pull ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "settings", "code", "forbidden"),
    [
        ({}, {"broker_permission": 2}, 16, "1"),
        ({"code": RequestCode.LITE_PULL_MESSAGE}, {"lite_pull_message_enable": False}, 16, None),
        ({"group": "new"}, {"auto_create_subscription_group": False}, 26, None),
        ({"group": "not a name"}, {}, 26, None),
        ({"group": "stopped"}, {}, 16, "2"),
        ({"topic": "nowhere"}, {}, 17, None),
        ({"topic": "write-only"}, {}, 16, "3"),
        ({"queue_id": 4}, {}, 29, None),
        ({"queue_id": -1}, {}, 29, None),
        ({"expression": None}, {}, 24, None),
        ({"expression_type": "SQL92", "expression": "a > 1"}, {}, 1, None),
        # In this order.
        ({"group": "stopped", "topic": "nowhere"}, {}, 16, "2"),
        ({"topic": "nowhere", "queue_id": 99}, {}, 17, None),
        ({"queue_id": 99, "expression": None}, {}, 29, None),
    ],
)
async def test_pull_that_breaks_a_rule_is_refused_with_its_code(
    tmp_path: Path,
    fields: dict[str, Any],
    settings: dict[str, Any],
    code: int,
    forbidden: str | None,
) -> None:
    async with running_broker(tmp_path, **settings) as served:
        state = served.broker.state
        state.topics.put(TopicConfig(topic_name=TOPIC, read_queue_nums=4, write_queue_nums=4))
        state.topics.put(
            TopicConfig(topic_name="write-only", read_queue_nums=4, write_queue_nums=4, perm=2)
        )
        state.groups.put(SubscriptionGroupConfig(group_name="stopped", consume_enable=False))
        state.groups.put(SubscriptionGroupConfig(group_name=GROUP))
        reply = await served.ask(pull(**fields))
        assert reply.code == code, reply.remark
        assert reply.remark
        assert reply.ext.get("forbiddenType") == forbidden


async def test_pull_without_a_filter_of_its_own_uses_what_the_heartbeat_said(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path) as served:
        await fill(served, 1, tag="A")
        await fill(served, 1, tag="B")
        await served.ask(heartbeat("c1", subscription(expression="B", version=5)))
        assert texts(await served.ask(pull(expression=None, sub_version=5))) == [b"B0"]
        newer = await served.ask(pull(expression=None, sub_version=6))
        assert newer.code == ResponseCode.SUBSCRIPTION_NOT_LATEST
        state = served.broker.state
        state.topics.put(TopicConfig(topic_name="other", read_queue_nums=1, write_queue_nums=1))
        other = await served.ask(pull(expression=None, topic="other"))
        assert other.code == ResponseCode.SUBSCRIPTION_NOT_EXIST


async def test_broadcasting_and_forbidden_groups_are_refused(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        await fill(served, 1)
        groups = served.broker.state.groups
        await served.ask(heartbeat("c1", model=MessageModel.BROADCASTING))
        assert (await served.ask(pull(expression=None))).code == 0
        groups.put(SubscriptionGroupConfig(group_name=GROUP, consume_broadcast_enable=False))
        reply = await served.ask(pull(expression=None))
        assert (reply.code, reply.ext["forbiddenType"]) == (ResponseCode.NO_PERMISSION, "4")
        groups.put(SubscriptionGroupConfig(group_name=GROUP))
        groups.forbid_reading(GROUP, TOPIC, forbidden=True)
        reply = await served.ask(pull(expression=None))
        assert (reply.code, reply.ext["forbiddenType"]) == (ResponseCode.NO_PERMISSION, "5")
        groups.forbid_reading(GROUP, TOPIC, forbidden=False)
        assert (await served.ask(pull(expression=None))).code == 0


# --- committing on the way ------------------------------------------------------------------


async def test_pull_commits_only_if_its_flag_says_so(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        await fill(served, 3)
        await served.ask(pull(commit_offset=2))
        assert (await served.ask(query_offset())).code == ResponseCode.QUERY_NOT_FOUND
        await served.ask(pull(flags=PullFlag.COMMIT_OFFSET, commit_offset=2))
        assert (await served.ask(query_offset())).ext == {"offset": "2"}


async def test_one_way_pull_is_not_answered_but_commits(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        await fill(served, 1)
        connection = await served.client.connection(served.broker.address)
        connection.invoke_oneway(pull(flags=PullFlag.COMMIT_OFFSET, commit_offset=1, oneway=True))
        connection.invoke_oneway(pull(1, flags=PullFlag.SUSPEND, oneway=True))
        # The next request gets the opaque of the first pull, and would take its answer.
        connection._next_opaque = 1  # noqa: SLF001 - as a client that starts counting anew
        reply = await served.ask(query_offset())
        assert reply.ext == {"offset": "1"}
        assert waiting(served) == 0


# --- waiting for messages -------------------------------------------------------------------

SUSPEND = PullFlag.SUSPEND


async def test_pull_that_finds_nothing_waits_until_something_matches(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        await fill(served, 1, tag="A")
        asked = asyncio.create_task(served.ask(pull(1, expression="B", flags=SUSPEND)))
        await until(lambda: waiting(served) == 1, "the pull is held")
        await fill(served, 2, tag="A")
        await until(lambda: served.broker.state.store.lookup.max_offset(TOPIC, 0) == 3)
        await fill(served, 1, queue_id=1, tag="B")
        assert not asked.done()
        await fill(served, 1, tag="B")
        reply = await asked
        assert texts(reply) == [b"B0"]
        assert pulled(reply).next_begin_offset == 4
        assert waiting(served) == 0


async def test_pull_of_a_queue_that_has_never_had_a_message_waits_for_the_first(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path) as served:
        served.broker.state.topics.put(
            TopicConfig(topic_name=TOPIC, read_queue_nums=4, write_queue_nums=4)
        )
        asked = asyncio.create_task(served.ask(pull(flags=SUSPEND)))
        await until(lambda: waiting(served) == 1, "the pull is held")
        await fill(served, 1)
        assert texts(await asked) == [b"0"]


async def test_pull_out_of_range_does_not_wait(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        await fill(served, 1)
        assert (await served.ask(pull(7, flags=SUSPEND))).code == MOVED
        assert (await served.ask(pull(0, expression="X", flags=SUSPEND))).code == AGAIN


async def test_pull_is_answered_with_nothing_when_its_time_is_up(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as served:
        await fill(served, 1)
        asked = asyncio.create_task(
            served.ask(pull(1, flags=SUSPEND, suspend_timeout_millis=15_000))
        )
        await until(lambda: waiting(served) == 1, "the pull is held")
        await clock.advance(14_900)
        assert waiting(served) == 1
        await clock.advance(200)
        assert offsets(await asked) == (NOT_FOUND, 1, 0, 1)


async def test_pull_waits_a_second_when_long_polling_is_off(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock, long_polling_enable=False) as served:
        await fill(served, 1)
        asked = asyncio.create_task(
            served.ask(pull(1, flags=SUSPEND, suspend_timeout_millis=15_000))
        )
        await until(lambda: waiting(served) == 1, "the pull is held")
        await clock.advance(1_100)
        assert (await asked).code == NOT_FOUND


async def test_commit_of_a_pull_that_waits_counts_once_and_at_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        await fill(served, 2)
        asked = asyncio.create_task(
            served.ask(pull(2, flags=SUSPEND | PullFlag.COMMIT_OFFSET, commit_offset=2))
        )
        await until(lambda: waiting(served) == 1, "the pull is held")
        assert (await served.ask(query_offset())).ext == {"offset": "2"}
        await served.ask(commit(1))
        await fill(served, 1)
        await asked
        assert (await served.ask(query_offset())).ext == {"offset": "1"}


async def test_pulls_of_a_connection_that_ends_are_forgotten(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        await fill(served, 1)
        async with served.another_client() as leaver:
            asked = asyncio.create_task(
                leaver.invoke(served.broker.address, pull(1, flags=SUSPEND), 60_000)
            )
            await until(lambda: waiting(served) == 1, "the pull is held")
        with pytest.raises(ConnectionLost):
            await asked
        await until(lambda: waiting(served) == 0, "the pull is forgotten")
        await fill(served, 1)


async def test_pulls_that_wait_are_answered_when_the_broker_stops(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        await fill(served, 1)
        asked = asyncio.create_task(served.ask(pull(1, flags=SUSPEND)))
        await until(lambda: waiting(served) == 1, "the pull is held")
        stopping = asyncio.create_task(served.broker.stop())
        assert offsets(await asked) == (NOT_FOUND, 1, 0, 1)
        await stopping


async def test_pull_beyond_the_limit_of_held_ones_is_answered_at_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path, held_pulls_max=2) as served:
        await fill(served, 1)
        held = [asyncio.create_task(served.ask(pull(1, flags=SUSPEND))) for _ in range(2)]
        await until(lambda: waiting(served) == 2, "two pulls are held")
        assert (await served.ask(pull(1, flags=SUSPEND))).code == NOT_FOUND
        await fill(served, 1)
        assert [texts(reply) for reply in await asyncio.gather(*held)] == [[b"0"], [b"0"]]


async def test_one_connection_cannot_take_the_place_of_others(tmp_path: Path) -> None:
    async with running_broker(tmp_path, held_pulls_of_connection_max=2) as served:
        await fill(served, 1)
        held = [asyncio.create_task(served.ask(pull(1, flags=SUSPEND))) for _ in range(2)]
        await until(lambda: waiting(served) == 2, "two pulls are held")
        assert (await served.ask(pull(1, flags=SUSPEND))).code == NOT_FOUND
        async with served.another_client() as other:
            asked = other.invoke(served.broker.address, pull(1, flags=SUSPEND), 10_000)
            held.append(asyncio.ensure_future(asked))
            await until(lambda: waiting(served) == 3, "another connection has room")
            await fill(served, 1)
            assert [texts(reply) for reply in await asyncio.gather(*held)] == [[b"0"]] * 3


async def test_many_waiting_pulls_are_all_woken_by_one_message(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        await fill(served, 1)
        asked = [
            asyncio.create_task(served.ask(pull(1, group=f"group-{i}", flags=SUSPEND)))
            for i in range(300)
        ]
        await until(lambda: waiting(served) == 300, "all pulls are held")
        await fill(served, 1)
        replies = await asyncio.gather(*asked)
        assert {offsets(reply) for reply in replies} == {(0, 2, 0, 2)}


async def test_message_that_comes_while_the_pull_is_on_its_way_is_not_missed(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path) as served:
        await fill(served, 1)
        async with served.another_client() as consumer:
            for number in range(1, 60):
                asked = asyncio.create_task(
                    consumer.invoke(served.broker.address, pull(number, flags=SUSPEND), 20_000)
                )
                sent(await served.ask(send(b"%d" % number)))
                assert texts(await asked) == [b"%d" % number]


async def test_reset_moves_the_next_pull_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        await fill(served, 4)
        await served.ask(commit(4))
        served.broker.state.offsets.reset(TOPIC, GROUP, 0, 1)
        ignored = await served.ask(commit(4))
        assert (ignored.code, bool(ignored.remark)) == (0, True)
        reply = await served.ask(pull(4))
        assert offsets(reply) == (MOVED, 1, 0, 4)
        assert reply.remark == "OFFSET_RESET"
        assert (await served.ask(query_offset())).ext == {"offset": "1"}
        assert texts(await served.ask(pull(1))) == [b"1", b"2", b"3"]
        assert (await served.ask(max_offset_of(TOPIC))).ext == {"offset": "4"}


async def test_consumer_that_asks_and_never_reads_ties_up_little(tmp_path: Path) -> None:
    """Two hundred answers of a quarter of a megabyte each, and nobody takes them."""
    async with running_broker(tmp_path, mapped_file_size_commit_log=4 << 20) as served:
        for _ in range(3):
            sent(await served.ask(send(b"x" * 250_000)))
        host, _, port = served.broker.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1)
        writer.write(encode_frame(pull(count=1)) * 200)
        await writer.drain()
        gets = served.broker.state.statistics.gets
        server = served.broker._servers[0]  # noqa: SLF001 - the memory is what this is about
        before = -1
        while before != gets.count:  # until the broker has had enough
            before = gets.count
            for _ in range(50):
                await asyncio.sleep(0)
            assert texts(await served.ask(pull(2))) != []
            gets.count -= 1
        assert before < 100
        assert server.statistics().held_bytes < 4 << 20
        reader.feed_eof()
        writer.close()


async def test_broker_on_an_ipv6_address_stores_and_returns_messages(tmp_path: Path) -> None:
    async with running_broker(tmp_path, bind_address="::1") as served:
        assert served.broker.address.startswith("[::1]:")
        for number in range(3):  # the later ones by the express lane
            reply = await served.ask(send(b"%d" % number, properties={"UNIQ_KEY": "A"}))
            assert len(sent(reply).msg_id) == 56
        assert texts(await served.ask(pull())) == [b"0", b"1", b"2"]
    async with running_broker(tmp_path) as served:
        sent(await served.ask(send(b"3")))
        assert texts(await served.ask(pull())) == [b"0", b"1", b"2", b"3"]


async def test_messages_far_behind_the_end_are_read_with_the_disks_limits(tmp_path: Path) -> None:
    """By a thread: eight at a time, as RocketMQ gives them when they are not in memory."""
    async with running_broker(
        tmp_path,
        access_message_in_memory_max_ratio=0,
        mapped_file_size_consume_queue=2_000,
        max_transfer_count_on_message_in_disk=8,
    ) as served:
        for number in range(20):
            sent(await served.ask(send(b"%d" % number)))
        reply = await served.ask(pull(max_msg_nums=32))
        assert reply.code == ResponseCode.SUCCESS
        assert texts(reply) == [b"%d" % number for number in range(8)]
        # What lies beside it was brought in with it, and is in memory now.
        reply = await served.ask(pull(queue_offset=8, max_msg_nums=32))
        assert texts(reply) == [b"%d" % number for number in range(8, 20)]
