"""Producers that number their messages: a resend after a lost answer makes no second message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.admin_requests import create
from tests.broker_requests import TOPIC, batch_body, pull, send, send_batch, sent, texts
from tests.support import ServedBroker, crash, running_broker
from tests.transactions import end, half, place_of

from firearrow.model.errors import ResponseCode
from firearrow.testing.faults import ManualClock
from firearrow.wire import headers
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import request

if TYPE_CHECKING:
    from pathlib import Path

    from firearrow.wire.command import Command


def numbered(number: int, body: bytes = b"hello", producer: str = "p-1", **fields: Any) -> Command:
    own = {"FA_PRODUCER": producer, "FA_SEQ": str(number), "UNIQ_KEY": f"K{number}"}
    return send(body, properties=own | fields.pop("properties", {}), **fields)


def place(reply: Command) -> tuple[str, int, int]:
    stored = sent(reply)
    return stored.msg_id, stored.queue_id, stored.queue_offset


async def everything(served: ServedBroker, queues: int = 4) -> list[bytes]:
    store = served.broker.state.store
    await store.wait_flushed(store.statistics().end_offset)
    await store.wait_visible(store.statistics().end_offset)
    found: list[bytes] = []
    for queue_id in range(queues):
        reply = await served.ask(pull(queue_id=queue_id))
        found += texts(reply) if reply.code == 0 else []
    return found


async def test_resend_is_answered_with_the_place_of_the_first_message(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        first = await served.ask(numbered(1))
        again = await served.ask(numbered(1))
        assert place(again) == place(first)
        assert sent(again).transaction_id == "K1"
        assert again.ext["FA_DUPLICATE"] == "true"
        assert "FA_DUPLICATE" not in first.ext
        assert place(await served.ask(numbered(2)))[2] == 1
        assert await everything(served) == [b"hello", b"hello"]


async def test_resend_to_another_queue_is_caught(tmp_path: Path) -> None:
    """Clients try another queue when one does not answer."""
    async with running_broker(tmp_path) as served:
        await served.ask(create(queues=4))
        first = await served.ask(numbered(1, queue_id=1))
        again = await served.ask(numbered(1, queue_id=3))
        assert place(again) == place(first)
        assert len(await everything(served)) == 1


async def test_numbers_belong_to_their_producer_and_topic(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        for command in (numbered(1), numbered(1, producer="p-2"), numbered(1, topic="other")):
            assert "FA_DUPLICATE" not in (await served.ask(command)).ext


async def test_message_that_was_refused_is_not_taken_for_stored(tmp_path: Path) -> None:
    async with running_broker(tmp_path, max_message_size=10) as served:
        assert (await served.ask(numbered(1, b"x" * 11))).code == ResponseCode.MESSAGE_ILLEGAL
        reply = await served.ask(numbered(1, b"short"))
        assert "FA_DUPLICATE" not in reply.ext
        assert await everything(served) == [b"short"]


async def test_ordinary_messages_still_take_the_express_lane_and_numbered_ones_do_not(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path) as served:
        for number in range(3):
            await served.ask(send(b"plain", properties={"UNIQ_KEY": f"{number}"}))
            await served.ask(numbered(number))
            await served.ask(numbered(number))
        assert len(await everything(served)) == 6


async def test_batch_is_known_as_a_whole(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        body = batch_body([(b"one", {}), (b"two", {}), (b"three", {})])
        outer = {"FA_PRODUCER": "p-1", "FA_SEQ": "1"}
        first = await served.ask(send_batch(body, properties=outer))
        again = await served.ask(send_batch(body, properties=outer))
        assert place(again) == place(first)
        assert len(sent(again).msg_id.split(",")) == 3
        assert await everything(served) == [b"one", b"two", b"three"]


async def test_one_way_resend_is_dropped(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        await served.ask(numbered(1))
        await served.client.invoke_oneway(served.broker.address, numbered(1, oneway=True))
        await served.ask(numbered(2))
        assert len(await everything(served)) == 2


async def test_resent_half_message_is_the_same_transaction(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        own = {"FA_PRODUCER": "p-1", "FA_SEQ": "1"}
        first = await served.ask(half(properties=own, born_timestamp=1))
        again = await served.ask(half(properties=own, born_timestamp=2))
        assert place(again) == place(first)
        assert (await served.ask(end(place_of(again)))).code == 0
        assert len(served.broker.state.transactions.halves) == 0
        assert await everything(served) == [b"hello"]


async def test_delayed_message_is_delivered_once_however_often_it_is_sent(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as served:
        for _ in range(3):
            reply = await served.ask(numbered(1, properties={"DELAY": "1"}, queue_id=1))
            assert sent(reply).queue_id == 1
        await clock.advance(5_000)
        assert await everything(served) == [b"hello"]


async def test_number_that_is_too_old_to_tell_is_refused(tmp_path: Path) -> None:
    async with running_broker(tmp_path, deduplication_window=2) as served:
        for number in (1, 2, 3):
            sent(await served.ask(numbered(number)))
        reply = await served.ask(numbered(1))
        assert reply.code == ResponseCode.MESSAGE_ILLEGAL
        assert "deduplicationWindow" in (reply.remark or "")


@pytest.mark.parametrize("properties", [{}, {"FA_SEQ": "x"}, {"FA_SEQ": "-1"}])
async def test_producer_without_a_number_is_told(
    tmp_path: Path, properties: dict[str, str]
) -> None:
    async with running_broker(tmp_path) as served:
        reply = await served.ask(send(properties={"FA_PRODUCER": "p", **properties}))
        assert reply.code == ResponseCode.MESSAGE_ILLEGAL


async def test_it_can_be_turned_off(tmp_path: Path) -> None:
    async with running_broker(tmp_path, deduplication_entries_max=0) as served:
        for _ in range(2):
            sent(await served.ask(numbered(1)))
        assert len(await everything(served)) == 2


async def test_consumed_message_that_comes_back_is_no_resend(tmp_path: Path) -> None:
    """It has the properties of the message that it was; each attempt is a message of its own."""
    async with running_broker(tmp_path) as served:
        sent(await served.ask(numbered(1)))
        for attempt in range(1, 3):
            back = numbered(
                1, topic="%RETRY%billing", reconsume_times=attempt, properties={"DELAY": "1"}
            )
            assert "FA_DUPLICATE" not in (await served.ask(back)).ext


# --- lasting ----------------------------------------------------------------------------------


async def test_resend_after_a_restart_is_caught(tmp_path: Path) -> None:
    async with running_broker(tmp_path, listen_port=0) as served:
        first = place(await served.ask(numbered(1)))
    assert (tmp_path / "config" / "firearrowProducers.json").exists()
    async with running_broker(tmp_path) as served:
        again = place(await served.ask(numbered(1)))
        assert (again[0][16:], again[1:]) == (first[0][16:], first[1:])  # the port has changed
        assert await everything(served) == [b"hello"]


@pytest.mark.parametrize("saved_after", [None, 2])
async def test_resend_after_a_crash_is_caught(tmp_path: Path, saved_after: int | None) -> None:
    clock = ManualClock()
    alive, crashed = tmp_path / "alive", tmp_path / "crashed"
    async with running_broker(alive, clock) as served:
        firsts = []
        for number in range(6):
            own = {"DELAY": "1"} if number == 4 else {}
            firsts.append(place(await served.ask(numbered(number, properties=own))))
            if number == saved_after:
                await clock.advance(10_000)
        body = batch_body([(b"one", {}), (b"two", {})])
        outer = {"FA_PRODUCER": "p-1", "FA_SEQ": "6"}
        firsts.append(place(await served.ask(send_batch(body, properties=outer))))
        crash(alive, crashed)
    async with running_broker(crashed, clock) as served:
        agains = [await served.ask(numbered(number, queue_id=0)) for number in range(6)]
        agains.append(await served.ask(send_batch(body, properties=outer)))
        for first, again in zip(firsts, agains, strict=True):
            assert again.ext["FA_DUPLICATE"] == "true"
            assert place(again)[1:] == first[1:]
            offsets = [one[16:] for one in place(again)[0].split(",")]
            assert offsets == [one[16:] for one in first[0].split(",")]


async def test_topic_that_is_made_anew_knows_nothing_of_the_old_one(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        sent(await served.ask(numbered(1)))
        header = headers.DeleteTopicRequest(topic=TOPIC)
        gone = await served.ask(request(RequestCode.DELETE_TOPIC_IN_BROKER, header))
        assert gone.code == 0
        reply = await served.ask(numbered(1))
        assert "FA_DUPLICATE" not in reply.ext
        assert await everything(served) == [b"hello"]
