"""Messages with a delivery time of their own, on a whole broker: sent, taken back, listed, kept."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.broker_requests import (
    TOPIC,
    batch_body,
    properties_of,
    pull,
    records,
    send,
    send_batch,
    texts,
)
from tests.support import crash, running_broker, settle

from firearrow.model.errors import ResponseCode
from firearrow.model.message import TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DELIVER_MS
from firearrow.model.timer import RecallHandle
from firearrow.model.topic import TIMER_TOPIC
from firearrow.store.timer_checkpoint import TimerCheckpoint
from firearrow.testing import ManualClock
from firearrow.wire import bodies, headers, java_json
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import Command, request

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support import ServedBroker

NOW_MS = 1_700_000_000_250


def timed(body: bytes, *, key: str = "", topic: str = TOPIC, **delay: Any) -> Command:
    names = {"ms": TIMER_DELAY_MS, "s": TIMER_DELAY_SEC, "at": TIMER_DELIVER_MS}
    properties = {names[name]: str(value) for name, value in delay.items()}
    if key:
        properties["UNIQ_KEY"] = key
    return send(body, topic=topic, properties=properties)


def recall(handle: str, topic: str = TOPIC) -> Command:
    header = headers.RecallMessageRequest(producer_group="shop", topic=topic, recall_handle=handle)
    return request(RequestCode.RECALL_MESSAGE, header)


def list_timers(topic: str = TOPIC, **fields: Any) -> Command:
    return request(RequestCode.LIST_TIMERS, headers.ListTimersRequest(topic=topic, **fields))


def page_of(reply: Command) -> bodies.TimerList:
    assert reply.code == 0, reply.remark
    return java_json.decode(reply.body, bodies.TimerList)


def in_wheel(served: ServedBroker) -> bool:
    """Whether the wheel has everything that was sent."""
    timers = served.broker.state.timers
    return timers.queue_offset == served.broker.state.store.lookup.max_offset(TIMER_TOPIC, 0)


async def arrived(served: ServedBroker, queue_id: int = 0) -> list[bytes]:
    reply = await served.ask(pull(0, queue_id=queue_id))
    return texts(reply) if reply.code == 0 else []


async def enqueued(served: ServedBroker, clock: ManualClock) -> None:
    await settle(clock, lambda: in_wheel(served), "everything in the wheel")


async def advance(served: ServedBroker, clock: ManualClock, ms: int) -> None:
    """Let time pass, and what is due then go to disk."""
    await enqueued(served, clock)
    timers, store = served.broker.state.timers, served.broker.state.store
    await clock.advance(ms)
    await settle(clock, lambda: timers.is_idle, "everything delivered")
    await store.wait_flushed(store.statistics().end_offset)
    await store.wait_visible(store.statistics().end_offset)


# --- delivering -----------------------------------------------------------------------------


async def test_each_message_comes_at_its_millisecond_and_not_before(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    async with running_broker(tmp_path, clock) as served:
        for command in (
            timed(b"third", s=2),
            timed(b"first", ms=40),
            timed(b"second", at=NOW_MS + 1_999),
        ):
            reply = await served.ask(command)
            assert reply.code == 0, reply.remark
        for pause_ms, expected in (
            (39, []),
            (1, [b"first"]),
            (1_958, [b"first"]),
            (1, [b"first", b"second"]),
            (1, [b"first", b"second", b"third"]),
        ):
            await advance(served, clock, pause_ms)
            assert await arrived(served) == expected, clock.now_ms() - NOW_MS


async def test_a_delivered_message_tells_its_story_as_rocketmq_does(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    async with running_broker(tmp_path, clock) as served:
        await served.ask(timed(b"hello", key="K1", ms=1_500))
        await advance(served, clock, 1_500)
        (record,) = records(await served.ask(pull(0)))
    properties = properties_of(record)
    assert properties["TIMER_OUT_MS"] == str(NOW_MS // 1_000 * 1_000 + 1_000)
    assert properties["TIMER_ENQUEUE_MS"] == str(NOW_MS // 1_000 * 1_000)
    assert properties["TIMER_DEQUEUE_MS"] == str(NOW_MS + 1_500)
    assert properties["REAL_TOPIC"] == TOPIC
    assert properties["REAL_QID"] == "0"
    assert properties["UNIQ_KEY"] == "K1"
    assert record.born_timestamp == 1_700_000_000_123


async def test_what_is_due_already_comes_at_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path, ManualClock(NOW_MS)) as served:
        reply = await served.ask(timed(b"late", at=NOW_MS - 5))
        assert reply.code == 0
        assert "recallHandle" not in reply.ext
        await served.ask(timed(b"now", ms=0))
        assert await arrived(served) == [b"late", b"now"]


async def test_a_delay_level_wins_over_a_time(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    async with running_broker(tmp_path, clock) as served:
        reply = await served.ask(
            send(b"x", properties={"DELAY": "1", TIMER_DELIVER_MS: str(NOW_MS + 60_000)})
        )
        assert reply.code == 0
        assert "recallHandle" not in reply.ext
        await advance(served, clock, 1_000)
        (record,) = records(await served.ask(pull(0)))
        assert TIMER_DELIVER_MS not in properties_of(record)


async def test_two_thousand_at_one_moment_leave_the_loop_to_others(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    count = 2_000  # of the same kind; the benchmark has more
    async with running_broker(tmp_path, clock, mapped_file_size_consume_queue=20 * 5_000) as served:
        state = served.broker.state
        for _ in range(count):
            await served.ask(timed(b"x", at=NOW_MS + 2_000))
        await enqueued(served, clock)
        turns = 0
        before = state.timers.counts.delivered

        def look() -> None:
            nonlocal turns
            turns += 1
            if state.timers.counts.delivered - before < count:
                clock.call_later(0, look)

        clock.call_later(2_000, look)
        await clock.advance(2_000)
        await settle(clock, lambda: state.timers.counts.delivered - before == count, "all of it")
        assert turns >= count // 100


# --- what is refused ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({TIMER_DELAY_MS: "soon"}, "TIMER_DELAY_MS is 'soon'"),
        ({TIMER_DELAY_SEC: "259201"}, "the limit is 259200000 ms"),
        ({TIMER_DELIVER_MS: "5", "TIMER_DEL_UNIQKEY": "orders+K"}, "is over"),
    ],
)
async def test_a_time_that_cannot_be_is_refused(
    tmp_path: Path, properties: dict[str, str], words: str
) -> None:
    async with running_broker(tmp_path, ManualClock(NOW_MS)) as served:
        reply = await served.ask(send(properties=properties))
        assert reply.code == ResponseCode.MESSAGE_ILLEGAL
        assert words in (reply.remark or "")


async def test_a_batch_cannot_wait(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        body = batch_body([(b"x", {})])
        reply = await served.ask(send_batch(body, properties={TIMER_DELAY_MS: "500"}))
        assert reply.code == ResponseCode.MESSAGE_ILLEGAL


async def test_without_a_wheel_nothing_waits(tmp_path: Path) -> None:
    async with running_broker(tmp_path, timer_wheel_enable=False) as served:
        reply = await served.ask(timed(b"x", ms=500))
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert "timerWheelEnable" in (reply.remark or "")
        reply = await served.ask(list_timers())
        assert reply.code == ResponseCode.SYSTEM_ERROR


async def test_a_crowded_moment_is_refused(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    async with running_broker(tmp_path, clock, timer_congest_num_each_slot=1) as served:
        for _ in range(2):
            assert (await served.ask(timed(b"x", ms=50_000))).code == 0
            await enqueued(served, clock)
        reply = await served.ask(timed(b"x", ms=50_000))
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert "timerCongestNumEachSlot" in (reply.remark or "")
        assert (await served.ask(timed(b"x", ms=55_000))).code == 0


# --- taking back ----------------------------------------------------------------------------


async def test_a_message_that_was_taken_back_never_comes(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    async with running_broker(tmp_path, clock, recall_message_enable=True) as served:
        first = await served.ask(timed(b"keep", key="K1", ms=3_000))
        second = await served.ask(timed(b"drop", key="K2", ms=3_000))
        handle = RecallHandle.decode(second.ext["recallHandle"])
        assert handle == RecallHandle(TOPIC, "broker-a", NOW_MS // 1_000 * 1_000 + 3_001, "K2")
        reply = await served.ask(recall(second.ext["recallHandle"]))
        assert reply.code == 0, reply.remark
        assert headers.RecallMessageReply.from_ext(reply.ext).msg_id == "K2"
        await advance(served, clock, 3_000)
        assert await arrived(served) == [b"keep"]
        assert served.broker.state.timers.counts.waiting(TOPIC) == 0
        late = await served.ask(recall(first.ext["recallHandle"]))
        assert late.code == ResponseCode.ILLEGAL_OPERATION
        assert "too late" in (late.remark or "")


async def test_a_delete_message_of_a_client_takes_back_too(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    async with running_broker(tmp_path, clock) as served:
        await served.ask(timed(b"drop", key="K2", at=NOW_MS + 400))
        await served.ask(
            send(
                b"0",
                properties={
                    TIMER_DELIVER_MS: str(NOW_MS + 400),
                    "TIMER_DEL_UNIQKEY": f"{TOPIC}+K2",
                },
            )
        )
        await advance(served, clock, 5_000)
        assert await arrived(served) == []


@pytest.mark.parametrize(
    ("handle", "code", "words"),
    [
        ("%%%", ResponseCode.ILLEGAL_OPERATION, "not Base64"),
        (RecallHandle("other", "broker-a", NOW_MS + 9_000, "K").encode(),
         ResponseCode.ILLEGAL_OPERATION, "for topic other"),
        (RecallHandle(TOPIC, "broker-b", NOW_MS + 9_000, "K").encode(),
         ResponseCode.ILLEGAL_OPERATION, "for broker broker-b"),
        (RecallHandle(TOPIC, "broker-a", NOW_MS, "K").encode(),
         ResponseCode.ILLEGAL_OPERATION, "too late"),
        (RecallHandle(TOPIC, "broker-a", NOW_MS + (259_200 << 10), "K").encode(),
         ResponseCode.ILLEGAL_OPERATION, "timerMaxDelaySec"),
    ],
)  # fmt: skip
async def test_a_handle_that_does_not_fit_is_refused(
    tmp_path: Path, handle: str, code: int, words: str
) -> None:
    async with running_broker(tmp_path, ManualClock(NOW_MS), recall_message_enable=True) as served:
        await served.ask(send())
        reply = await served.ask(recall(handle))
        assert reply.code == code
        assert words in (reply.remark or "")


async def test_recalls_are_off_unless_they_are_set_on(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        reply = await served.ask(recall("x"))
        assert reply.code == ResponseCode.NO_PERMISSION
        assert "recallMessageEnable" in (reply.remark or "")


async def test_a_recall_for_a_topic_that_is_not_there_is_refused(tmp_path: Path) -> None:
    async with running_broker(tmp_path, recall_message_enable=True) as served:
        assert (await served.ask(recall("x"))).code == ResponseCode.TOPIC_NOT_EXIST


# --- looking --------------------------------------------------------------------------------


async def test_what_waits_is_listed_page_by_page(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    async with running_broker(tmp_path, clock, recall_message_enable=True) as served:
        for number in range(25):
            await served.ask(timed(b"x", key=f"K{number:02}", ms=1_000 + number // 10 * 60_000))
            await served.ask(timed(b"x", topic="other", ms=1_000))
        gone = await served.ask(timed(b"x", key="gone", ms=1_000))
        await served.ask(recall(gone.ext["recallHandle"]))
        await enqueued(served, clock)
        found: list[bodies.WaitingTimer] = []
        cursor: str | None = None
        for _ in range(100):
            page = page_of(await served.ask(list_timers(max_count=4, cursor=cursor)))
            assert len(page.timers) <= 4
            found += page.timers
            cursor = page.cursor
            if cursor is None:
                break
        assert sorted(one.unique_key for one in found) == [f"K{n:02}" for n in range(25)]
        times = [one.due_time - NOW_MS for one in found]
        assert times == [1_000] * 10 + [61_000] * 10 + [121_000] * 5
        later = page_of(
            await served.ask(list_timers(begin_timestamp=NOW_MS + 90_000, max_count=100))
        )
        assert len(later.timers) == 5
        assert (await served.ask(recall(later.timers[0].recall_handle))).code == 0
        await enqueued(served, clock)
        metrics = java_json.decode(
            (await served.ask(request(RequestCode.GET_TIMER_METRICS))).body, bodies.TimerMetrics
        )
        assert {topic: one.count for topic, one in metrics.timing_count.items()} == {
            TOPIC: 24,
            "other": 25,
        }


async def test_a_page_without_room_or_with_a_made_up_cursor_is_refused(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        for fields in ({"max_count": 0}, {"cursor": "next"}):
            reply = await served.ask(list_timers(**fields))
            assert reply.code == ResponseCode.INVALID_PARAMETER


async def test_runtime_information_counts_what_waits(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    async with running_broker(tmp_path, clock) as served:
        for _ in range(3):
            await served.ask(timed(b"x", s=600))
        await enqueued(served, clock)
        reply = await served.ask(request(RequestCode.GET_BROKER_RUNTIME_INFO))
        table = java_json.decode(reply.body, bodies.KVTable).table
        assert table["timerCongestNum"] == "3"
        assert table["timerOffsetBehind"] == "0"
        assert table["timerReadBehind"] == "0"


# --- keeping --------------------------------------------------------------------------------


async def test_timers_outlive_a_clean_stop_and_a_crash(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    async with running_broker(tmp_path / "a", clock) as served:
        await served.ask(timed(b"one", ms=2_000))
    async with running_broker(tmp_path / "a", clock) as served:
        await served.ask(timed(b"two", ms=5_000))
        await enqueued(served, clock)
        assert served.broker.state.timers.counts.waiting(TOPIC) == 2
        await asyncio.to_thread(crash, tmp_path / "a", tmp_path / "b")
    await clock.advance(60_000)
    async with running_broker(tmp_path / "b", clock) as served:
        counts = served.broker.state.timers.counts
        await settle(clock, lambda: counts.delivered == 2, "both delivered")
        await advance(served, clock, 1_000)
        assert await arrived(served) == [b"one", b"two"]
    async with running_broker(tmp_path / "b", clock) as served:
        await advance(served, clock, 10_000)
        assert await arrived(served) == [b"one", b"two"]


async def test_files_that_are_lost_are_made_again_from_the_log(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    async with running_broker(tmp_path, clock) as served:
        await served.ask(timed(b"gone", ms=300))
        await advance(served, clock, 5_000)
        for number in range(3):
            await served.ask(timed(b"%d" % number, ms=10_000 + number))
    for path in (tmp_path / "timerlog").iterdir():
        path.unlink()
    async with running_broker(tmp_path, clock) as served:
        await advance(served, clock, 20_000)
        assert await arrived(served) == [b"gone", b"0", b"1", b"2"]
        assert served.broker.state.timers.counts.waiting(TOPIC) == 0


async def test_the_checkpoint_travels_as_rocketmqs_fifty_six_bytes(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    async with running_broker(tmp_path, clock) as served:
        await served.ask(timed(b"x", ms=90_000))
        await advance(served, clock, 1_100)
        files = served.broker.state.timers.files
        await settle(clock, lambda: files.checkpoint.log_end == 52, "the first save")
        reply = await served.ask(request(RequestCode.GET_TIMER_CHECK_POINT))
        checkpoint = bodies.decode_timer_checkpoint(reply.body)
        assert checkpoint.last_timer_queue_offset == 1
        assert checkpoint.last_timer_log_flush_pos == 52
    raw = (tmp_path / "config" / "timercheck").read_bytes()
    found = TimerCheckpoint.decode(raw)
    assert found is not None
    assert found.is_ours
    assert found.wheel_to == 52
