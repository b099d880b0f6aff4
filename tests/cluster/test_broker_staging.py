"""Staged batches: many messages that are delivered together, and ends for many at once."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest
from tests.broker_requests import TOPIC, batch_body, properties_of, send
from tests.support import ServedBroker, crash, running_broker
from tests.transactions import PRODUCERS, end, half, place_of

from firearrow.model.errors import ResponseCode
from firearrow.model.topic import CHECK_MAX_TIME_TOPIC
from firearrow.testing.faults import ManualClock
from firearrow.wire import headers
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import Command, request
from firearrow.wire.headers import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from firearrow.hot import Record

Place = tuple[int, int]
HOUR_MS = 3_600_000


def stage(*bodies: bytes, scope: str = "query-1", epoch: int = 0, **fields: Any) -> Command:
    """Some messages as one half message."""
    key = "KEY-" + "-".join(body.decode() for body in bodies)
    properties = {
        "UNIQ_KEY": key,
        "PGROUP": PRODUCERS,
        "FA_SCOPE": scope,
        "FA_EPOCH": str(epoch),
    }
    body = batch_body([(one, {"TAGS": "t", "UNIQ_KEY": f"U{one.decode()}"}) for one in bodies])
    usual: dict[str, Any] = {"producer_group": PRODUCERS, "batch": True, "properties": properties}
    return send(body, code=RequestCode.STAGE_BATCH, **(usual | fields))


def end_many(places: Sequence[Place], outcome: int = TRANSACTION_COMMIT, **fields: Any) -> Command:
    given: dict[str, Any] = {"producer_group": PRODUCERS, "commit_or_rollback": outcome}
    header = headers.EndTransactionsRequest(**(given | fields))
    body = b"".join(struct.pack(">qq", *place) for place in places)
    return request(RequestCode.END_TRANSACTIONS, header, body)


async def ended(served: ServedBroker, command: Command) -> tuple[int, int, int]:
    reply = await served.ask(command)
    assert reply.code == 0, reply.remark
    told = headers.EndTransactionsReply.from_ext(reply.ext)
    return told.ended, told.ended_before, told.swept


async def stored(served: ServedBroker, topic: str = TOPIC, queue_id: int = 0) -> list[Record]:
    store = served.broker.state.store
    await store.wait_flushed(store.statistics().end_offset)
    await store.wait_visible(store.statistics().end_offset)
    count = store.lookup.max_offset(topic, queue_id)
    found = [store.lookup.by_queue_offset(topic, queue_id, offset) for offset in range(count)]
    return [record for record in found if record is not None]


async def bodies_in(served: ServedBroker, topic: str = TOPIC) -> list[bytes]:
    return [record.body for record in await stored(served, topic)]


def open_ones(served: ServedBroker) -> int:
    return len(served.broker.state.transactions.halves)


async def test_staged_batch_is_delivered_whole_when_it_is_committed(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        place = place_of(await served.ask(stage(b"a", b"b", b"c", flag=0)))
        assert await bodies_in(served) == []
        assert open_ones(served) == 1
        assert await ended(served, end_many([place])) == (1, 0, 0)
        records = await stored(served)
        assert [record.body for record in records] == [b"a", b"b", b"c"]
        assert [record.queue_offset for record in records] == [0, 1, 2]
        assert {record.prepared_offset for record in records} == {place[1]}
        assert {record.sys_flag & 0xC for record in records} == {8}
        told = properties_of(records[1])
        assert told["UNIQ_KEY"] == "Ub"
        assert told["TAGS"] == "t"
        assert "CLUSTER" in told
        assert not {"TRAN_MSG", "FA_PARTS", "FA_SCOPE", "REAL_TOPIC"} & told.keys()


async def test_messages_of_a_staged_batch_look_like_those_of_a_batch(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        place = place_of(await served.ask(stage(b"a", b"b")))
        await ended(served, end_many([place]))
        body = batch_body([(b"a", {"TAGS": "t", "UNIQ_KEY": "Ua"})])
        await served.ask(send(body, code=RequestCode.SEND_BATCH_MESSAGE, batch=True))
        staged, _, sent = await stored(served)
        assert properties_of(staged) == properties_of(sent)
        assert (staged.body, staged.flag, staged.topic) == (sent.body, sent.flag, sent.topic)


async def test_list_of_ends_is_worked_off_in_its_order(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        places = [place_of(await served.ask(stage(b"%d" % n, b"%d!" % n))) for n in range(4)]
        single = place_of(await served.ask(half(b"single")))
        assert await ended(served, end_many([places[2], places[0], single])) == (3, 0, 0)
        assert await bodies_in(served) == [b"2", b"2!", b"0", b"0!", b"single"]
        assert open_ones(served) == 2


async def test_ends_that_are_said_again_count_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        places = [place_of(await served.ask(stage(b"%d" % n))) for n in range(2)]
        assert await ended(served, end_many(places[:1])) == (1, 0, 0)
        assert await ended(served, end_many(places)) == (1, 1, 0)
        assert await ended(served, end_many(places)) == (0, 2, 0)
        assert await bodies_in(served) == [b"0", b"1"]


async def test_what_the_list_does_not_have_is_swept_away_with_its_epoch(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        lost = place_of(await served.ask(stage(b"lost", epoch=6)))
        kept = place_of(await served.ask(stage(b"kept", epoch=7)))
        await served.ask(stage(b"loser", epoch=7))
        later = place_of(await served.ask(stage(b"later", epoch=8)))
        other = place_of(await served.ask(stage(b"other", epoch=1, scope="query-2")))
        listed = end_many([kept], scope="query-1", epoch=7)
        assert await ended(served, listed) == (1, 0, 2)
        assert await ended(served, listed) == (0, 1, 0)
        refused = await served.ask(end(lost))
        assert "rolled back" in (refused.remark or "")
        assert await ended(served, end_many([later, other])) == (2, 0, 0)
        assert await bodies_in(served) == [b"kept", b"later", b"other"]


async def test_staged_batch_that_is_rolled_back_is_never_delivered(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "store") as served:
        place = place_of(await served.ask(stage(b"a", b"b")))
        assert await ended(served, end_many([place], TRANSACTION_ROLLBACK)) == (1, 0, 0)
        crash(tmp_path / "store", tmp_path / "crashed")
        assert (await served.ask(end_many([place]))).code == ResponseCode.SYSTEM_ERROR
        assert await bodies_in(served) == []
    async with running_broker(tmp_path / "crashed") as served:
        assert open_ones(served) == 0
        assert await bodies_in(served) == []


async def test_open_and_ended_ones_are_known_after_a_crash(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "store") as served:
        places = [place_of(await served.ask(stage(b"%d" % n, b"%d!" % n))) for n in range(3)]
        await ended(served, end_many([places[1]]))
        crash(tmp_path / "store", tmp_path / "crashed")
    async with running_broker(tmp_path / "crashed") as served:
        assert open_ones(served) == 2
        assert await ended(served, end_many(places)) == (2, 1, 0)
        assert await bodies_in(served) == [b"1", b"1!", b"0", b"0!", b"2", b"2!"]


@pytest.mark.parametrize("whole", [0, 1, 2])
async def test_batch_on_which_the_broker_died_is_delivered_once(tmp_path: Path, whole: int) -> None:
    async with running_broker(tmp_path / "store") as served:
        place = place_of(await served.ask(stage(b"a", b"b", b"c")))
        await ended(served, end_many([place]))
        torn = (await stored(served))[whole].physical_offset
        crash(tmp_path / "store", tmp_path / "crashed")
    (log,) = (tmp_path / "crashed" / "commitlog").iterdir()
    with log.open("r+b") as file:
        size = file.seek(0, 2)
        file.seek(torn + 10)  # the record began to be written
        file.write(bytes(size - torn - 10))
    async with running_broker(tmp_path / "crashed") as served:
        assert await bodies_in(served) == [b"a", b"b", b"c"][:whole]
        assert open_ones(served) == 1
        if whole:
            refused = await served.ask(end_many([place], TRANSACTION_ROLLBACK))
            assert "delivered in part" in (refused.remark or "")
            swept = end_many([], scope="query-1", epoch=9)
            assert await ended(served, swept) == (0, 0, 0)
        assert await ended(served, end_many([place])) == (1, 0, 0)
        assert await bodies_in(served) == [b"a", b"b", b"c"]
        assert await ended(served, end_many([place])) == (0, 1, 0)


async def test_nobody_is_asked_about_a_staged_batch_and_it_is_not_given_up(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as served:
        command = stage(b"a", b"b", born_timestamp=clock.now_ms())
        place = place_of(await served.ask(command))
        transactions = served.broker.state.transactions
        await clock.advance(2 * HOUR_MS)
        await transactions.check()
        assert transactions.asked == 0
        (copy,) = transactions.halves
        assert copy.physical_offset > place[1], "it is renewed, so that a start need not look far"
        assert await ended(served, end_many([place])) == (1, 0, 0)
        assert await bodies_in(served) == [b"a", b"b"]


async def test_staged_batch_that_outlives_the_log_is_dropped(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as served:
        await served.ask(stage(b"a", born_timestamp=clock.now_ms() - 73 * HOUR_MS))
        await served.broker.state.transactions.check()
        assert open_ones(served) == 0
        assert await bodies_in(served, CHECK_MAX_TIME_TOPIC) == []


async def test_one_end_can_also_be_said_alone(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        place = place_of(await served.ask(stage(b"a", b"b")))
        assert (await served.ask(end(place))).code == 0
        assert await bodies_in(served) == [b"a", b"b"]


@pytest.mark.parametrize(
    ("body", "because"),
    [
        (b"no batch at all", "this is no batch"),
        (b"", "this is no batch"),
        (batch_body([(b"", {})]), "has no body"),
        (batch_body([(b"x", {"name": "zero\0"})]), "zero byte"),
        (batch_body([(b"x", {})])[:-3], "this is no batch"),
    ],
)
async def test_what_could_not_be_delivered_is_not_staged(
    tmp_path: Path, body: bytes, because: str
) -> None:
    async with running_broker(tmp_path) as served:
        properties = {"UNIQ_KEY": "k", "PGROUP": PRODUCERS}
        reply = await served.ask(
            send(body, code=RequestCode.STAGE_BATCH, batch=True, properties=properties)
        )
        assert reply.code == ResponseCode.MESSAGE_ILLEGAL
        assert because in (reply.remark or "")
        assert open_ones(served) == 0


async def test_batch_of_nobody_is_not_staged(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        reply = await served.ask(stage(b"a", properties={"UNIQ_KEY": "k"}))
        assert reply.code == ResponseCode.MESSAGE_ILLEGAL


async def test_odd_lists_of_ends_are_refused(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        place = place_of(await served.ask(stage(b"a")))
        for command, because in (
            (end_many([place], 0), "commitOrRollback"),
            (end_many([place], scope="query-1"), "belong together"),
            (end_many([(place[0] + 1, place[1])]), "of its queue"),
            (end_many([(0, 7)]), "no half message"),
            (end_many([place], producer_group="others"), "not of producer group"),
        ):
            reply = await served.ask(command)
            assert reply.code != 0
            assert because in (reply.remark or "")
        command = end_many([place])
        command.body = command.body[:-1]
        assert "16 for each" in ((await served.ask(command)).remark or "")
        assert await bodies_in(served) == []
