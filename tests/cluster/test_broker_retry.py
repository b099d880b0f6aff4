"""Messages that come later: sent back by consumers, delayed by producers; none lost, none twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.broker_requests import (
    BORN_MS,
    GROUP,
    TOPIC,
    max_offset_of,
    properties_of,
    pull,
    records,
    send,
    send_back,
    sent,
    texts,
)
from tests.support import ServedBroker, crash, running_broker, until

from firearrow.model.errors import ResponseCode
from firearrow.model.group import SubscriptionGroupConfig
from firearrow.model.topic import TopicConfig
from firearrow.testing import ManualClock

if TYPE_CHECKING:
    from pathlib import Path

    from firearrow.hot import Record

RETRY = f"%RETRY%{GROUP}"
DEAD = f"%DLQ%{GROUP}"
LADDER_MS = [10_000, 30_000, 60_000, 120_000]  # levels 3 and up


def end_of(served: ServedBroker, topic: str, queue_id: int = 0) -> int:
    return served.broker.state.store.lookup.max_offset(topic, queue_id)


async def sleep_until_stored(served: ServedBroker, topic: str, count: int) -> None:
    await until(lambda: end_of(served, topic) >= count, f"{count} messages in {topic}")


async def last_of(served: ServedBroker, topic: str) -> Record:
    start = end_of(served, topic) - 1
    (record,) = records(await served.ask(pull(start, topic=topic, group="TOOLS_CONSUMER")))
    return record


async def a_message(served: ServedBroker, **fields: Any) -> Record:
    sent(await served.ask(send(b"work", properties={"TAGS": "A", "UNIQ_KEY": "ID"}, **fields)))
    return await last_of(served, fields.get("topic", TOPIC))


# --- sent back ------------------------------------------------------------------------------


async def test_failed_message_climbs_the_ladder_and_ends_as_a_dead_letter(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as served:
        served.broker.state.groups.put(
            SubscriptionGroupConfig(group_name=GROUP, retry_max_times=len(LADDER_MS))
        )
        first = failed = await a_message(served, flag=3)
        for attempt, delay_ms in enumerate(LADDER_MS, start=1):
            assert (await served.ask(send_back(failed.physical_offset))).code == 0
            await sleep_until_stored_in_schedule(served, attempt)
            await clock.advance(delay_ms - 1)
            assert end_of(served, RETRY) == attempt - 1
            await clock.advance(1)
            await sleep_until_stored(served, RETRY, attempt)
            failed = await last_of(served, RETRY)
            assert failed.reconsume_times == attempt
        assert (await served.ask(send_back(failed.physical_offset))).code == 0
        await sleep_until_stored(served, DEAD, 1)
        dead = await last_of(served, DEAD)
        assert dead.reconsume_times == len(LADDER_MS) + 1
        for record in (failed, dead):
            properties = properties_of(record)
            assert (record.body, record.flag, record.born_timestamp) == (b"work", 3, BORN_MS)
            assert properties["RETRY_TOPIC"] == TOPIC
            assert properties["TAGS"] == "A"
            assert properties["UNIQ_KEY"] == "ID"
            assert int(properties["ORIGIN_MESSAGE_ID"][16:], 16) == first.physical_offset
        topic = served.broker.state.topics.get(DEAD)
        assert topic is not None
        assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (1, 1, 6)


async def sleep_until_stored_in_schedule(served: ServedBroker, attempt: int) -> None:
    level = attempt + 2
    await until(
        lambda: served.broker.state.store.lookup.max_offset("SCHEDULE_TOPIC_XXXX", level - 1) == 1,
        f"attempt {attempt} waits at level {level}",
    )


@pytest.mark.parametrize(
    ("fields", "group", "version", "destination"),
    [
        ({"delay_level": -1}, {}, 479, DEAD),
        ({"max_reconsume_times": 0}, {}, 479, DEAD),
        ({"max_reconsume_times": 0}, {}, 120, 3),  # before 3.4.9 the group's limit counts
        ({}, {"retry_max_times": 0}, 479, DEAD),
        ({"delay_level": 5}, {}, 479, 5),
        ({"delay_level": 99}, {}, 479, 18),
        ({}, {}, 479, 3),
    ],
)
async def test_message_sent_back_goes_where_level_and_limits_say(
    tmp_path: Path,
    fields: dict[str, Any],
    group: dict[str, Any],
    version: int,
    destination: str | int,
) -> None:
    async with running_broker(tmp_path) as served:
        served.broker.state.groups.put(SubscriptionGroupConfig(group_name=GROUP, **group))
        failed = await a_message(served)
        command = send_back(failed.physical_offset, **fields)
        command.version = version
        assert (await served.ask(command)).code == 0
        place = (destination, 0)
        if isinstance(destination, int):
            place = ("SCHEDULE_TOPIC_XXXX", destination - 1)
        await until(lambda: end_of(served, *place) == 1, f"a message in {place}")  # type: ignore[arg-type]


async def test_group_without_retry_queues_drops_what_is_sent_back(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        served.broker.state.groups.put(
            SubscriptionGroupConfig(group_name=GROUP, retry_queue_nums=0)
        )
        failed = await a_message(served)
        assert (await served.ask(send_back(failed.physical_offset))).code == 0
        assert served.broker.state.topics.get(RETRY) is None


@pytest.mark.parametrize(
    ("fields", "settings", "code"),
    [
        ({"offset": 10_000_000}, {}, ResponseCode.SYSTEM_ERROR),
        ({"offset": -1}, {}, ResponseCode.SYSTEM_ERROR),
        ({"offset": 7}, {}, ResponseCode.SYSTEM_ERROR),  # in the middle of a record
        ({}, {"auto_create_subscription_group": False}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"group": "not a name"}, {}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({}, {"broker_permission": 4}, ResponseCode.NO_PERMISSION),
    ],
)
async def test_message_that_cannot_be_taken_back_is_refused_with_its_code(
    tmp_path: Path, fields: dict[str, Any], settings: dict[str, Any], code: int
) -> None:
    async with running_broker(tmp_path, **settings) as served:
        failed = await a_message(served, topic="BenchmarkTest")
        given = {"offset": failed.physical_offset} | fields
        reply = await served.ask(send_back(**given))
        assert reply.code == code, reply.remark
        assert reply.remark


async def test_retry_topic_that_takes_nothing_refuses(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served:
        failed = await a_message(served)
        served.broker.state.topics.put(
            TopicConfig(topic_name=RETRY, read_queue_nums=1, write_queue_nums=1, perm=4)
        )
        reply = await served.ask(send_back(failed.physical_offset))
        assert reply.code == ResponseCode.NO_PERMISSION


async def test_retry_stays_within_the_queues_that_the_retry_topic_has(tmp_path: Path) -> None:
    """The group's setting may have grown since: in a queue that nobody reads it would be lost."""
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as served:
        state = served.broker.state
        state.topics.put(TopicConfig(topic_name=RETRY, read_queue_nums=1, write_queue_nums=1))
        state.groups.put(SubscriptionGroupConfig(group_name=GROUP, retry_queue_nums=8))
        failed = await a_message(served)
        for _ in range(20):
            assert (await served.ask(send_back(failed.physical_offset))).code == 0
        await clock.advance(10_000)
        await sleep_until_stored(served, RETRY, 20)


async def test_name_of_the_origin_in_a_request_costs_no_memory(tmp_path: Path) -> None:
    """It is whatever the client says; counters are kept by what the message itself says."""
    async with running_broker(tmp_path) as served:
        failed = await a_message(served)
        for number in range(20):
            await served.ask(send_back(failed.physical_offset, origin_topic=f"made-up-{number}"))
        statistics = served.broker.state.statistics
        counter = statistics.find("SNDBCK_PUT_NUMS", f"{TOPIC}@{GROUP}")
        assert counter is not None
        assert counter.count == 20


# --- delay levels ---------------------------------------------------------------------------


async def delayed(served: ServedBroker, body: bytes, level: int, **fields: Any) -> None:
    sent(await served.ask(send(body, properties={"DELAY": str(level)}, **fields)))


async def test_delayed_message_is_delivered_at_its_time_and_not_before(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as served:
        sent_ms = clock.now_ms()
        reply = await served.ask(
            send(b"later", queue_id=2, properties={"DELAY": "3", "UNIQ_KEY": "ID"})
        )
        assert (sent(reply).queue_id, sent(reply).queue_offset) == (2, 0)
        await clock.advance(9_999)
        assert end_of(served, TOPIC, 2) == 0
        await clock.advance(1)
        await until(lambda: end_of(served, TOPIC, 2) == 1, "the delivery")
        (record,) = records(await served.ask(pull(queue_id=2)))
        assert record.store_timestamp == sent_ms + 10_000
        assert (record.born_timestamp, record.reconsume_times) == (BORN_MS, 0)
        properties = properties_of(record)
        assert properties["UNIQ_KEY"] == "ID"
        assert (properties["DELAY"], properties["REAL_TOPIC"]) == ("3", TOPIC)
        assert properties["REAL_QID"] == "2"


async def test_delayed_messages_of_a_level_are_delivered_in_order(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as served:
        for number in range(600):
            await delayed(served, b"%d" % number, 1)
            if number % 100 == 0:
                await clock.advance(1)
        await clock.advance(1_000)
        await sleep_until_stored(served, TOPIC, 600)
        found: list[bytes] = []
        while len(found) < 600:
            found += texts(await served.ask(pull(len(found))))
        assert found == [b"%d" % number for number in range(600)]
        assert served.broker.state.delays.delivered == 600


async def test_level_beyond_the_last_is_the_last(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock, message_delay_level="1s 3s") as served:
        await delayed(served, b"x", 99)
        await clock.advance(2_999)
        assert end_of(served, TOPIC) == 0
        await clock.advance(1)
        await sleep_until_stored(served, TOPIC, 1)


async def test_delayed_messages_of_an_earlier_life_are_delivered_at_their_time(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as served:
        await delayed(served, b"soon", 1)
        await delayed(served, b"late", 3)
        await delayed(served, b"later", 3)
        await clock.advance(1_000)
        await sleep_until_stored(served, TOPIC, 1)
    assert not (tmp_path / "abort").exists()
    await clock.advance(5_000)
    async with running_broker(tmp_path, clock) as served:
        assert end_of(served, TOPIC) == 1
        await clock.advance(3_999)
        assert end_of(served, TOPIC) == 1
        await clock.advance(1)
        await sleep_until_stored(served, TOPIC, 3)
        await clock.advance(3_600_000)
        assert texts(await served.ask(pull())) == [b"soon", b"late", b"later"]


async def save_delays(served: ServedBroker) -> None:
    """What happens every ten seconds, now."""
    broker = served.broker
    broker.tables.save_delays_soon()
    end = broker.state.store.statistics().end_offset
    await until(lambda: saved_log_offset(served) == end, "the offsets are saved")


def saved_log_offset(served: ServedBroker) -> int | None:
    saved = served.broker.tables.delays.load()
    return None if saved is None else saved.log_offset


@pytest.mark.parametrize("saved_after", [0, 1, 3])
async def test_crash_neither_loses_nor_repeats_a_delayed_message(
    tmp_path: Path, saved_after: int
) -> None:
    """The offsets on disk are older than the last deliveries; the log knows of those."""
    clock = ManualClock()
    alive, crashed = tmp_path / "alive", tmp_path / "crashed"
    async with running_broker(alive, clock) as served:
        for number in range(6):
            await delayed(served, b"%d" % number, 1)
            await delayed(served, b"two-%d" % number, 2)
            await clock.advance(500)
            if number == saved_after:
                await save_delays(served)
        at_crash = end_of(served, TOPIC)
        assert 0 < at_crash < 12
        crash(alive, crashed)
    assert (crashed / "abort").exists()
    async with running_broker(crashed, clock) as served:
        await clock.advance(10_000)
        await sleep_until_stored(served, TOPIC, 12)
        await clock.advance(3_600_000)
        sent(await served.ask(send(b"last")))
        expected = [b"%d" % n for n in range(6)] + [b"two-%d" % n for n in range(6)] + [b"last"]
        assert sorted(texts(await served.ask(pull()))) == sorted(expected)


async def test_crash_before_anything_was_saved_repeats_no_delayed_message(tmp_path: Path) -> None:
    clock = ManualClock()
    alive, crashed = tmp_path / "alive", tmp_path / "crashed"
    async with running_broker(alive, clock, flush_delay_offset_interval=10_000_000) as served:
        for number in range(4):
            await delayed(served, b"%d" % number, 1)
        await clock.advance(1_000)
        await sleep_until_stored(served, TOPIC, 4)
        crash(alive, crashed)
    async with running_broker(crashed, clock) as served:
        await clock.advance(3_600_000)
        sent(await served.ask(send(b"last")))  # visible when all before it are
        assert (await served.ask(max_offset_of(TOPIC))).ext["offset"] == "5"


async def test_forged_properties_do_not_pass_for_a_delivery(tmp_path: Path) -> None:
    """A message that looks as if it had been delayed, without ever having been."""
    clock = ManualClock()
    alive, crashed = tmp_path / "alive", tmp_path / "crashed"
    async with running_broker(alive, clock) as served:
        await delayed(served, b"real", 2)
        await save_delays(served)
        forged = {"REAL_TOPIC": TOPIC, "REAL_QID": "0", "DELAY": "0"}
        sent(await served.ask(send(b"forged", topic="elsewhere", properties=forged)))
        crash(alive, crashed)
    async with running_broker(crashed, clock) as served:
        await clock.advance(5_000)
        await sleep_until_stored(served, TOPIC, 1)


async def test_clock_that_is_set_forward_delivers_what_is_due_by_it(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as served:
        await delayed(served, b"x", 18)
        await clock.advance(1_000)
        clock._started_ms += 7_200_000  # noqa: SLF001 - only the wall clock jumps
        await clock.advance(2_000)
        await sleep_until_stored(served, TOPIC, 1)


async def test_clock_that_is_set_back_makes_nobody_wait_longer_than_the_level(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as served:
        await delayed(served, b"x", 2)
        clock._started_ms -= 86_400_000  # noqa: SLF001
        await clock.advance(10_001)
        await sleep_until_stored(served, TOPIC, 1)


async def test_start_does_not_read_the_log_from_the_last_delayed_message_on(
    tmp_path: Path,
) -> None:
    """One delay long ago must not make every later start read all that came since."""
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as served:
        await delayed(served, b"once", 1)
        await clock.advance(20_000)
        await sleep_until_stored(served, TOPIC, 1)
        for _ in range(50):
            sent(await served.ask(send()))
    async with running_broker(tmp_path, clock) as served:
        end = served.broker.state.store.statistics().end_offset
        assert saved_log_offset(served) == end


async def test_message_that_the_store_refuses_does_not_block_its_level(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The limit was lowered while it waited; others of its level must not wait for ever."""
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as served:
        await delayed(served, b"x" * 5_000, 1)
        await delayed(served, b"small", 1)
    async with running_broker(tmp_path, clock, max_message_size=4_000) as served:
        await clock.advance(2_000)
        await until(lambda: end_of(served, TOPIC) >= 1, "the delivery")
        assert texts(await served.ask(pull())) == [b"small"]
    assert "is given up" in caplog.text
