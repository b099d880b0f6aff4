"""Transactions: half messages, their ends, checks with producers, and what is left of them."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.admin_requests import told
from tests.broker_requests import (
    TOPIC,
    properties_of,
    pull,
    query_offset,
    records,
    send,
    send_batch,
    sent,
)
from tests.support import ServedBroker, crash, running_broker, settle, until
from tests.transactions import PRODUCERS, end, half, place_of, producing

from firearrow.hot import decode_properties
from firearrow.model.errors import ResponseCode
from firearrow.model.topic import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_HALF_TOPIC
from firearrow.offline.check import check
from firearrow.offline.directory import StoreDirectory
from firearrow.testing.faults import ManualClock
from firearrow.wire import bodies, headers, java_json
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import request
from firearrow.wire.headers import TRANSACTION_ROLLBACK, TRANSACTION_UNKNOWN

if TYPE_CHECKING:
    from firearrow.hot import Record

APACHE_STORE = Path(__file__).parents[1] / "conformance/data/store-5.3.3-clean.tar.gz"
ROUND_MS = 30_000


async def visible(served: ServedBroker) -> None:
    store = served.broker.state.store
    await store.wait_flushed(store.statistics().end_offset)
    await store.wait_visible(store.statistics().end_offset)


async def stored(served: ServedBroker, topic: str) -> list[Record]:
    await visible(served)
    lookup = served.broker.state.store.lookup
    found = [lookup.by_queue_offset(topic, 0, n) for n in range(lookup.max_offset(topic, 0))]
    return [record for record in found if record is not None]


async def bodies_in(served: ServedBroker, topic: str = TOPIC) -> list[bytes]:
    return [record.body for record in await stored(served, topic)]


async def rounds(served: ServedBroker, clock: ManualClock, count: int = 1) -> None:
    """Let so many rounds of checks pass, and all that follows from them."""
    for _ in range(count):
        await clock.advance(ROUND_MS)
        await visible(served)


async def begun(
    served: ServedBroker, clock: ManualClock, body: bytes = b"hello"
) -> tuple[int, int]:
    return place_of(await served.ask(half(body, born_timestamp=clock.now_ms())))


# --- ending -----------------------------------------------------------------------------------


async def test_committed_message_is_delivered_and_was_not_before(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        reply = await served.ask(half(b"paid", queue_id=0, properties={"TAGS": "a", "KEYS": "42"}))
        place = place_of(reply)
        assert (sent(reply).queue_id, sent(reply).transaction_id) == (0, "KEY-paid")
        assert await bodies_in(served) == []
        (waiting,) = await stored(served, HALF_TOPIC)
        assert waiting.sys_flag & 0xC == 0
        assert properties_of(waiting) | {"REAL_TOPIC": TOPIC, "REAL_QID": "0"} == (
            properties_of(waiting)
        )
        assert properties_of(waiting)["__transactionId__"] == "KEY-paid"
        assert (await served.ask(end(place))).code == 0
        await visible(served)
        (record,) = records(await served.ask(pull()))
        assert (record.body, record.sys_flag & 0xC, record.prepared_offset) == (
            b"paid",
            8,
            place[1],
        )
        assert record.born_timestamp == waiting.born_timestamp
        assert properties_of(record) == properties_of(waiting)
        lookup = served.broker.state.store.lookup
        found = lookup.by_key(TOPIC, "42", limit=9, begin_ms=0, end_ms=1 << 60)
        assert [one.physical_offset for one in found] == [record.physical_offset]


async def test_message_that_is_rolled_back_is_never_delivered(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as served, producing(served) as producer:
        place = await begun(served, clock)
        assert (await served.ask(end(place, TRANSACTION_ROLLBACK))).code == 0
        assert [record.body for record in await stored(served, OP_HALF_TOPIC)] == [b"0,"]
        await rounds(served, clock, 20)
        assert producer.checks == []
        assert await bodies_in(served) == []
        assert await bodies_in(served, CHECK_MAX_TIME_TOPIC) == []
        late = await served.ask(end(place))
        assert late.code == ResponseCode.SYSTEM_ERROR
        assert "rolled back" in (late.remark or "")
        assert await bodies_in(served) == []


async def test_end_that_is_said_twice_counts_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        place = place_of(await served.ask(half()))
        for _ in range(3):
            assert (await served.ask(end(place))).code == 0
        assert await bodies_in(served) == [b"hello"]
        turned = await served.ask(end(place, TRANSACTION_ROLLBACK))
        assert turned.code == ResponseCode.SYSTEM_ERROR


async def test_one_way_ends_are_collected_into_one_op_message(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as served:
        places = [await begun(served, clock, b"%d" % number) for number in range(3)]
        for number in (1, 0, 2):
            outcome = TRANSACTION_ROLLBACK if number == 1 else 8
            await served.client.invoke_oneway(
                served.broker.address, end(places[number], outcome, oneway=True)
            )
        transactions = served.broker.state.transactions
        await until(lambda: len(transactions.halves) == 0, "all have ended")
        assert await bodies_in(served, OP_HALF_TOPIC) == []
        await clock.advance(3_000)
        (op,) = await stored(served, OP_HALF_TOPIC)
        assert op.body == b"1,0,2,"
        assert properties_of(op)["TAGS"] == "d"


async def test_op_message_is_written_when_it_is_long_enough(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock, transaction_op_msg_max_size=3) as served:
        for number in range(3):
            place = await begun(served, clock, b"%d" % number)
            await served.ask(end(place))
        assert await bodies_in(served, OP_HALF_TOPIC) == [b"0,1,"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"group": "others"}, "producer group others"),
        ({"place": (5, None)}, "at 0 of its queue, not at 5"),
        ({"place": (None, 7)}, "no half message at offset 7"),
        ({"place": (None, 1 << 40)}, "no half message at offset"),
    ],
)
async def test_end_that_does_not_fit_its_half_message_is_refused(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    async with running_broker(tmp_path) as served:
        place = place_of(await served.ask(half()))
        queue_offset, physical = change.pop("place", (None, None))
        wrong = (
            place[0] if queue_offset is None else queue_offset,
            place[1] if physical is None else physical,
        )
        reply = await served.ask(end(wrong, **change))
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert words in (reply.remark or "")
        assert await bodies_in(served) == []
        assert (await served.ask(end(place))).code == 0


async def test_message_that_is_no_half_message_cannot_be_committed(tmp_path: Path) -> None:
    """RocketMQ takes the word of whoever asks, and stores it wherever its properties say."""
    async with running_broker(tmp_path) as served:
        forged = {"PGROUP": PRODUCERS, "REAL_TOPIC": HALF_TOPIC, "REAL_QID": "0"}
        place = place_of(await served.ask(send(b"x", properties=forged)))
        reply = await served.ask(end(place))
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert await bodies_in(served, HALF_TOPIC) == []


async def test_producer_that_does_not_know_is_asked_later(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as served, producing(served) as producer:
        place = await begun(served, clock)
        assert (await served.ask(end(place, TRANSACTION_UNKNOWN))).code == 0
        for outcome in (4, -1, 99):
            reply = await served.ask(end(place, outcome))
            assert reply.code == ResponseCode.INVALID_PARAMETER
            assert "commitOrRollback" in (reply.remark or "")
        await rounds(served, clock)
        await until(lambda: producer.checks, "the producer is asked")


async def test_producer_with_a_time_of_grace_of_its_own_must_answer_within_it(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as served:
        wish = {"CHECK_IMMUNITY_TIME_IN_SECONDS": "10"}
        place = place_of(await served.ask(half(properties=wish, born_timestamp=clock.now_ms())))
        await clock.advance(10_001)
        reply = await served.ask(end(place))
        assert reply.code == ResponseCode.ILLEGAL_OPERATION
        assert (await served.ask(end(place, from_check=True))).code == 0
        assert await bodies_in(served) == [b"hello"]


# --- beginning --------------------------------------------------------------------------------


async def test_broker_that_rejects_transactions_says_so(tmp_path: Path) -> None:
    async with running_broker(tmp_path, reject_transaction_message=True) as served:
        reply = await served.ask(half())
        assert reply.code == ResponseCode.NO_PERMISSION
        assert "rejectTransactionMessage" in (reply.remark or "")


async def test_delay_of_a_half_message_is_dropped_as_producers_do(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as served:
        place = place_of(await served.ask(half(properties={"DELAY": "3"})))
        (waiting,) = await stored(served, HALF_TOPIC)
        assert "DELAY" not in properties_of(waiting)
        assert (await served.ask(end(place))).code == 0
        assert await bodies_in(served) == [b"hello"]


async def test_half_message_that_nobody_can_be_asked_about_is_illegal(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        reply = await served.ask(half(properties={"PGROUP": ""}))
        assert reply.code == ResponseCode.MESSAGE_ILLEGAL


async def test_half_message_with_a_delivery_time_waits_for_it_after_its_commit(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as served:
        asked = half(properties={"TIMER_DELAY_SEC": "30"})
        place = place_of(await served.ask(asked))
        assert (await served.ask(end(place))).code == 0
        timers, lookup = served.broker.state.timers, served.broker.state.store.lookup
        await settle(clock, lambda: timers.queue_offset == 1, "the message is in the wheel")
        await clock.advance(20_000)
        assert await bodies_in(served) == []
        await clock.advance(15_000)
        await settle(clock, lambda: lookup.max_offset(TOPIC, 0) == 1, "the message is delivered")
        assert await bodies_in(served) == [b"hello"]


async def test_batch_cannot_be_a_transaction(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        reply = await served.ask(send_batch(b"x", properties={"TRAN_MSG": "true"}))
        assert reply.code == ResponseCode.MESSAGE_ILLEGAL


async def test_consumed_message_of_a_transaction_comes_back_as_an_ordinary_one(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path) as served:
        properties = {"TRAN_MSG": "true", "PGROUP": PRODUCERS, "DELAY": "1"}
        reply = await served.ask(
            send(b"again", topic="%RETRY%billing", properties=properties, reconsume_times=1)
        )
        assert reply.code == 0, reply.remark
        assert len(served.broker.state.transactions.halves) == 0


async def test_transactions_that_nobody_ends_are_refused_at_a_limit(tmp_path: Path) -> None:
    async with running_broker(tmp_path, open_transactions_max=2) as served:
        places = [place_of(await served.ask(half(b"%d" % n))) for n in range(2)]
        reply = await served.ask(half(b"2"))
        assert reply.code == ResponseCode.SYSTEM_BUSY
        assert "openTransactionsMax" in (reply.remark or "")
        await served.ask(end(places[0]))
        assert (await served.ask(half(b"2"))).code == 0


async def test_half_message_between_ordinary_ones_takes_the_long_way(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        for number in range(3):
            sent(await served.ask(send(b"%d" % number, properties={"UNIQ_KEY": f"{number}"})))
            place_of(await served.ask(half(b"half-%d" % number)))
        assert await bodies_in(served) == [b"0", b"1", b"2"]
        assert len(served.broker.state.transactions.halves) == 3


# --- checking ---------------------------------------------------------------------------------


async def test_producer_is_asked_about_a_copy_and_its_answer_counts(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as served, producing(served) as producer:
        place = await begun(served, clock, b"maybe")
        await rounds(served, clock)
        await until(lambda: producer.checks, "the producer is asked")
        ((header, shown),) = producer.checks
        assert header.topic == HALF_TOPIC
        assert header.msg_id == header.transaction_id == "KEY-maybe"
        assert header.broker_name == served.broker.config.broker_name
        assert producer.place() != place
        assert header.offset_msg_id is not None
        assert header.offset_msg_id.endswith(f"{header.commit_log_offset:016X}")
        assert (shown.topic, shown.queue_id, shown.body) == (TOPIC, 0, b"maybe")
        assert properties_of(shown)["TRANSACTION_CHECK_TIMES"] == "1"
        assert properties_of(shown)["PGROUP"] == PRODUCERS
        assert (await producer.ask(end(producer.place(), from_check=True))).code == 0
        assert await bodies_in(served) == [b"maybe"]
        await rounds(served, clock, 3)
        assert len(producer.checks) == 1


async def test_young_half_message_is_not_asked_about(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as served, producing(served) as producer:
        await clock.advance(ROUND_MS - 6_000)
        await begun(served, clock)
        await clock.advance(6_000)
        await visible(served)
        assert await bodies_in(served, HALF_TOPIC) == [b"hello"]
        await rounds(served, clock)
        await until(lambda: producer.checks, "the producer is asked in the next round")


async def test_half_message_that_nobody_ends_is_parked_where_it_can_be_seen(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    settings: dict[str, Any] = {"transaction_check_max": 3}
    async with running_broker(tmp_path, clock, **settings) as served, producing(served) as producer:
        await begun(served, clock, b"lost")
        await rounds(served, clock, 5)
        await until(lambda: len(producer.checks) == 3, "it is asked about three times")
        counters = [properties_of(one)["TRANSACTION_CHECK_TIMES"] for _, one in producer.checks]
        assert counters == ["1", "2", "3"]
        (parked,) = await stored(served, CHECK_MAX_TIME_TOPIC)
        assert (parked.body, properties_of(parked)["REAL_TOPIC"]) == (b"lost", TOPIC)
        assert len(served.broker.state.transactions.halves) == 0
        assert (await served.ask(pull(topic=CHECK_MAX_TIME_TOPIC))).code == 0
        assert await bodies_in(served) == []


async def test_parked_half_message_can_be_asked_about_again(tmp_path: Path) -> None:
    clock = ManualClock()
    settings: dict[str, Any] = {"transaction_check_max": 1}
    async with running_broker(tmp_path, clock, **settings) as served, producing(served) as producer:
        await begun(served, clock, b"lost")
        await rounds(served, clock, 3)
        (parked,) = await stored(served, CHECK_MAX_TIME_TOPIC)
        message_id = f"7F00000100000000{parked.physical_offset:016X}"
        header = headers.ResumeCheckHalfMessageRequest(topic=TOPIC, msg_id=message_id)
        await told(served, RequestCode.RESUME_CHECK_HALF_MESSAGE, header)
        await rounds(served, clock)
        await until(lambda: len(producer.checks) == 2, "it is asked about again")
        assert (await producer.ask(end(producer.place(), from_check=True))).code == 0
        assert await bodies_in(served) == [b"lost"]
        reply = await served.ask(request(RequestCode.RESUME_CHECK_HALF_MESSAGE, header))
        assert reply.code == ResponseCode.SYSTEM_ERROR
        for nonsense in ("", "zz", f"7F00000100000000{1 << 40:016X}"):
            header = headers.ResumeCheckHalfMessageRequest(topic=TOPIC, msg_id=nonsense)
            reply = await served.ask(request(RequestCode.RESUME_CHECK_HALF_MESSAGE, header))
            assert reply.code == ResponseCode.SYSTEM_ERROR


async def test_commit_that_comes_late_for_the_first_copy_ends_all_of_them(tmp_path: Path) -> None:
    """Apache asks about the second copy again, and a second commit is a second message."""
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as served, producing(served) as producer:
        place = await begun(served, clock)
        await rounds(served, clock, 2)
        await until(lambda: len(producer.checks) == 2, "it is asked about twice")
        assert (await served.ask(end(place))).code == 0
        for number in range(2):
            reply = await producer.ask(end(producer.place(number), from_check=True))
            assert reply.code == 0
        await rounds(served, clock, 3)
        assert len(producer.checks) == 2
        assert await bodies_in(served) == [b"hello"]


async def test_time_of_grace_is_kept_and_others_are_asked_meanwhile(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as served, producing(served) as producer:
        wish = {"CHECK_IMMUNITY_TIME_IN_SECONDS": "80"}
        first = place_of(
            await served.ask(half(b"slow", properties=wish, born_timestamp=clock.now_ms()))
        )
        await begun(served, clock, b"quick")
        await rounds(served, clock)
        await until(lambda: producer.checks, "the other one is asked about")
        assert producer.checks[0][1].body == b"quick"
        await producer.ask(end(producer.place(), TRANSACTION_ROLLBACK, from_check=True))
        await rounds(served, clock)
        copies = [one for one in await stored(served, HALF_TOPIC) if one.body == b"slow"]
        assert [properties_of(one).get("TRAN_PREPARED_QUEUE_OFFSET") for one in copies] == [
            None,
            str(first[0]),
            str(first[0]),
        ]
        assert all("TRANSACTION_CHECK_TIMES" not in properties_of(one) for one in copies)
        await rounds(served, clock)
        await until(lambda: len(producer.checks) == 2, "its time of grace is over")
        assert producer.checks[1][1].body == b"slow"


async def test_check_without_a_producer_counts_and_the_next_one_is_heard(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as served:
        await begun(served, clock)
        await rounds(served, clock, 2)
        async with producing(served) as producer:
            await rounds(served, clock)
            await until(lambda: producer.checks, "the producer that came back is asked")
            assert properties_of(producer.checks[0][1])["TRANSACTION_CHECK_TIMES"] == "3"


async def test_half_message_without_room_for_its_counter_is_parked_and_holds_up_nobody(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as served, producing(served) as producer:
        fits = 32_767 - len((await stored_properties(served, clock)).encode())
        wide = {"padding": "x" * (fits - len("padding\x01\x02"))}
        command = half(b"wide!", properties=wide, born_timestamp=clock.now_ms())
        sent(await served.ask(command))
        await begun(served, clock, b"other")
        await rounds(served, clock)
        await until(lambda: producer.checks, "the other one is asked about")
        assert [one.body for _, one in producer.checks] == [b"other"]
        assert await bodies_in(served, CHECK_MAX_TIME_TOPIC) == [b"wide!"]


async def stored_properties(served: ServedBroker, clock: ManualClock) -> str:
    """What becomes of the properties of a half message; it is rolled back again."""
    place = await begun(served, clock, b"probe")
    record = served.broker.state.store.lookup.record_at(place[1])
    assert record is not None
    await served.ask(end(place, TRANSACTION_ROLLBACK))
    return record.properties


async def test_half_message_that_became_too_large_holds_up_nobody(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as served, producing(served) as producer:
        await begun(served, clock, b"x" * 500)
        change = request(RequestCode.UPDATE_BROKER_CONFIG, body=b"maxMessageSize=100")
        assert (await served.ask(change)).code == 0
        await begun(served, clock, b"other")
        await rounds(served, clock)
        await until(lambda: producer.checks, "the other one is asked about")
        assert [one.body for _, one in producer.checks] == [b"other"]
        change = request(RequestCode.UPDATE_BROKER_CONFIG, body=b"maxMessageSize=1000")
        assert (await served.ask(change)).code == 0
        await rounds(served, clock)
        await until(lambda: len(producer.checks) == 3, "both are asked about")


async def test_many_half_messages_are_all_asked_about(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as served, producing(served) as producer:
        for number in range(200):
            await begun(served, clock, b"%d" % number)
        await rounds(served, clock)
        await until(lambda: len(producer.checks) == 200, "all are asked about")
        assert {one.body for _, one in producer.checks} == {b"%d" % n for n in range(200)}


# --- looking ----------------------------------------------------------------------------------


async def open_ones(served: ServedBroker, **fields: Any) -> bodies.OpenTransactions:
    header = headers.GetOpenTransactionsRequest(**fields)
    reply = await told(served, RequestCode.FIREARROW_GET_OPEN_TRANSACTIONS, header)
    return java_json.decode(reply.body, bodies.OpenTransactions)


async def test_open_transactions_are_listed_with_their_age_and_checks(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as served:
        await begun(served, clock, b"one")
        await rounds(served, clock)
        await begun(served, clock, b"two")
        sent(await served.ask(half(b"other", topic="other", born_timestamp=clock.now_ms())))
        await clock.advance(500)
        listed = await open_ones(served)
        assert [
            (one.transaction_id, one.topic, one.age, one.checks) for one in listed.transactions
        ] == [
            ("KEY-one", TOPIC, ROUND_MS + 500, 1),
            ("KEY-two", TOPIC, 500, 0),
            ("KEY-other", "other", 500, 0),
        ]
        assert listed.total == 3
        assert {one.producer_group for one in listed.transactions} == {PRODUCERS}
        page = await open_ones(served, topic=TOPIC, max_num=1)
        assert (page.total, [one.queue_offset for one in page.transactions]) == (2, [1])
        rest = await open_ones(served, topic=TOPIC, from_offset=2)
        assert [one.transaction_id for one in rest.transactions] == ["KEY-two"]
        reply = await told(served, RequestCode.GET_BROKER_RUNTIME_INFO)
        table = json.loads(reply.body)["table"]
        assert table["openTransactions"] == "3"
        assert table["openTransactionAgeMax"] == str(ROUND_MS + 500)
        assert table[f"openTransactions_{TOPIC}"] == "2"


# --- lasting ----------------------------------------------------------------------------------


async def test_what_is_open_is_open_after_a_restart(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as served:
        places = [await begun(served, clock, b"%d" % number) for number in range(4)]
        await served.ask(end(places[0]))
        await served.ask(end(places[2], TRANSACTION_ROLLBACK))
    saved = (tmp_path / "config" / "consumerOffset.json").read_text()
    table = java_json.decode(saved.encode(), bodies.ConsumerOffsetWrapper).offset_table
    assert table[f"{HALF_TOPIC}@CID_RMQ_SYS_TRANS"] == {0: 1}
    assert table[f"{OP_HALF_TOPIC}@CID_RMQ_SYS_TRANS"] == {0: 0}
    async with running_broker(tmp_path, clock) as served, producing(served) as producer:
        halves = served.broker.state.transactions.halves
        assert [one.offset for one in halves] == [1, 3]
        assert (await served.ask(end(places[1]))).code == 0
        await rounds(served, clock)
        await until(lambda: producer.checks, "the last one is asked about")
        await producer.ask(end(producer.place(), TRANSACTION_ROLLBACK, from_check=True))
        assert await bodies_in(served) == [b"0", b"1"]
        for place in places[2:]:
            assert (await served.ask(end(place))).code == ResponseCode.SYSTEM_ERROR
        reply = await served.ask(query_offset(topic=HALF_TOPIC, group="CID_RMQ_SYS_TRANS"))
        assert reply.ext == {"offset": "5"}


async def test_crash_that_loses_an_op_message_repeats_no_committed_message(tmp_path: Path) -> None:
    clock = ManualClock()
    alive, crashed = tmp_path / "alive", tmp_path / "crashed"
    async with running_broker(alive, clock) as served:
        place = await begun(served, clock)
        open_one = await begun(served, clock, b"open")
        assert (await served.ask(end(place))).code == 0
        assert await bodies_in(served, OP_HALF_TOPIC) == []
        crash(alive, crashed)
    async with running_broker(crashed, clock) as served, producing(served) as producer:
        assert [one.offset for one in served.broker.state.transactions.halves] == [open_one[0]]
        assert (await served.ask(end(place))).code == 0  # it is, already
        await rounds(served, clock)
        await until(lambda: producer.checks, "the open one is asked about")
        assert [one.body for _, one in producer.checks] == [b"open"]
        assert await bodies_in(served) == [b"hello"]
        assert (await bodies_in(served, OP_HALF_TOPIC))[0] == b"0,"


async def test_rollback_that_was_answered_survives_a_crash(tmp_path: Path) -> None:
    clock = ManualClock()
    alive, crashed = tmp_path / "alive", tmp_path / "crashed"
    async with running_broker(alive, clock) as served:
        place = await begun(served, clock)
        assert (await served.ask(end(place, TRANSACTION_ROLLBACK))).code == 0
        crash(alive, crashed)
    async with running_broker(crashed, clock) as served:
        assert len(served.broker.state.transactions.halves) == 0
        assert (await served.ask(end(place))).code == ResponseCode.SYSTEM_ERROR
        assert await bodies_in(served) == []


async def test_crash_between_checks_leaves_one_transaction_of_all_copies(tmp_path: Path) -> None:
    clock = ManualClock()
    alive, crashed = tmp_path / "alive", tmp_path / "crashed"
    async with running_broker(alive, clock) as served:
        place = await begun(served, clock)
        await rounds(served, clock, 2)
        crash(alive, crashed)
    async with running_broker(crashed, clock) as served:
        (one,) = served.broker.state.transactions.halves
        assert (one.offset, one.checks) == (2, 2)
        assert (await served.ask(end(place))).code == 0
        assert await bodies_in(served) == [b"hello"]
        assert len(served.broker.state.transactions.halves) == 0


async def test_offsets_that_ran_ahead_of_a_lost_log_hide_no_half_message(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as served:
        offsets = served.broker.state.offsets
        offsets.commit(HALF_TOPIC, "CID_RMQ_SYS_TRANS", 0, 900)
        offsets.commit(OP_HALF_TOPIC, "CID_RMQ_SYS_TRANS", 0, 900)
    async with running_broker(tmp_path, clock) as served:
        place = await begun(served, clock)
        await served.ask(end(place, TRANSACTION_ROLLBACK))
        await begun(served, clock, b"open")
    async with running_broker(tmp_path, clock) as served:
        assert [one.offset for one in served.broker.state.transactions.halves] == [1]


async def test_offsets_of_a_master_that_was_ahead_hide_nothing_that_this_log_has(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as served:
        await begun(served, clock, b"open")
        await served.ask(end(await begun(served, clock, b"paid")))
        await served.ask(end(await begun(served, clock, b"not"), TRANSACTION_ROLLBACK))
    async with running_broker(tmp_path, clock) as served:
        # A copy of the open one lay at 3, on the master only.
        offsets = served.broker.state.offsets
        offsets.commit(HALF_TOPIC, "CID_RMQ_SYS_TRANS", 0, 3 + 1)
        offsets.commit(OP_HALF_TOPIC, "CID_RMQ_SYS_TRANS", 0, 2)
    async with running_broker(tmp_path, clock) as served:
        assert [one.offset for one in served.broker.state.transactions.halves] == [0]
        await rounds(served, clock, 2)
        assert await bodies_in(served) == [b"paid"]


async def test_disk_that_is_full_leaves_a_transaction_open(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as served:
        place = await begun(served, clock)
        store = served.broker.state.store
        store.refusal = "the disk is full"
        assert (await served.ask(end(place))).code == ResponseCode.SERVICE_NOT_AVAILABLE
        await clock.advance(ROUND_MS)
        assert len(served.broker.state.transactions.halves) == 1
        store.refusal = ""
        assert (await served.ask(end(place))).code == 0
        assert await bodies_in(served) == [b"hello"]


async def test_directory_with_transactions_of_every_kind_is_sound(tmp_path: Path) -> None:
    clock = ManualClock()
    settings: dict[str, Any] = {"transaction_check_max": 2}
    async with running_broker(tmp_path, clock, **settings) as served:
        places = [await begun(served, clock, b"%d" % number) for number in range(6)]
        await served.ask(end(places[0]))
        await served.ask(end(places[1], TRANSACTION_ROLLBACK))
        await rounds(served, clock, 1)
        await served.ask(end(places[2]))
        await rounds(served, clock, 2)
        await begun(served, clock, b"open")
    report = check(StoreDirectory(tmp_path), now_ms=clock.now_ms())
    assert (report.findings, report.notes) == ([], [])
    assert report.records > 12


async def test_open_transactions_of_an_apache_broker_are_taken_up(tmp_path: Path) -> None:
    with tarfile.open(APACHE_STORE) as archive:
        archive.extractall(tmp_path, filter="data")
    settings: dict[str, Any] = {
        "mapped_file_size_commit_log": 1 << 20,
        "mapped_file_size_consume_queue": 1_000,
        "max_hash_slot_num": 500,
        "max_index_num": 400,
        "file_reserved_time": 10_000_000,
    }
    async with running_broker(tmp_path / "store", **settings) as served:
        halves = list(served.broker.state.transactions.halves)
        assert [one.offset for one in halves] == [3, 4]
        lookup = served.broker.state.store.lookup
        found = [lookup.record_at(one.physical_offset) for one in halves]
        assert [one.body for one in found if one is not None] == [b"tx UNKNOW3", b"tx UNKNOW4"]
        group = decode_properties(found[0].properties)["PGROUP"] if found[0] else ""
        place = (halves[0].offset, halves[0].physical_offset)
        assert (await served.ask(end(place, group=group))).code == 0
        await visible(served)
        last = lookup.by_queue_offset("GcTx", 1, lookup.max_offset("GcTx", 1) - 1)
        assert last is not None
        assert last.body == b"tx UNKNOW3"
    said = json.loads((tmp_path / "store/config/transactionMetrics").read_text())
    assert {topic: one["count"] for topic, one in said["transactionCount"].items()} == {"GcTx": 1}


async def test_how_many_are_open_is_written_down_for_apache(tmp_path: Path) -> None:
    path, clock = tmp_path / "config/transactionMetrics", ManualClock()

    def written() -> dict[str, int]:
        text = path.read_text() if path.exists() else '{"transactionCount":{}}'
        return {topic: one["count"] for topic, one in json.loads(text)["transactionCount"].items()}

    async with running_broker(tmp_path, clock) as served:
        first = await begun(served, clock, b"one")
        await begun(served, clock, b"two")
        await clock.advance(10_000)
        await until(lambda: written() == {TOPIC: 2}, "the file")
        assert (await served.ask(end(first))).code == 0
    assert written() == {TOPIC: 1}
