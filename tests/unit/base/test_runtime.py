from __future__ import annotations

import asyncio
import contextlib
import logging

import pytest

from firearrow.base.runtime import Clock, Service, SystemClock, time_limit
from firearrow.testing import ManualClock

# --- services -------------------------------------------------------------------------------


async def test_repeated_work_runs_once_per_interval_and_first_after_one() -> None:
    clock = ManualClock()
    service = Service("broker", clock)
    rounds: list[int] = []
    service.every(100, lambda: rounds.append(clock.elapsed_ms()), name="flush")
    await clock.advance(99)
    assert rounds == []
    await clock.advance(1)
    assert rounds == [100]
    await clock.advance(250)
    assert rounds == [100, 200, 300]
    await service.stop_tasks()
    await clock.advance(1_000)
    assert rounds == [100, 200, 300]


async def test_failing_round_is_logged_and_the_next_one_comes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    service = Service("broker", clock)
    rounds: list[int] = []

    def work() -> None:
        rounds.append(clock.elapsed_ms())
        if len(rounds) < 3:
            raise OSError(f"disk full, round {len(rounds)}")

    service.every(100, work, name="flush")
    await clock.advance(400)
    assert rounds == [100, 200, 300, 400]
    assert caplog.messages == ["broker: flush failed; it runs again in 100 ms"] * 2
    for number, record in enumerate(caplog.records, 1):
        assert record.exc_info is not None
        assert str(record.exc_info[1]) == f"disk full, round {number}"
    await service.stop_tasks()


async def test_failing_task_is_logged_by_its_name_with_what_happened(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work() -> None:
        await asyncio.sleep(0)
        raise ValueError("bad offset")

    service = Service("broker", ManualClock())
    task = service.spawn(work(), name="replicate")
    with contextlib.suppress(ValueError):
        await task
    await service.stop_tasks()
    (record,) = caplog.records
    assert (record.levelno, record.getMessage()) == (logging.ERROR, "broker.replicate failed")
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "bad offset"


async def test_stop_ends_every_task_and_waits_for_the_last_word_of_each(
    caplog: pytest.LogCaptureFixture,
) -> None:
    service = Service("broker", ManualClock())
    ended: list[int] = []

    async def work(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # cleaning up may wait, too
            ended.append(number)

    tasks = [service.spawn(work(number), name=f"work-{number}") for number in range(5)]
    await asyncio.sleep(0)
    await service.stop_tasks()
    assert sorted(ended) == list(range(5))
    assert all(task.done() for task in tasks)
    assert caplog.records == [], "being stopped is no failure"


async def test_stop_also_ends_tasks_that_are_started_while_it_waits() -> None:
    service = Service("broker", ManualClock())
    late: list[asyncio.Task[None]] = []

    async def forever() -> None:
        await asyncio.Event().wait()

    async def work() -> None:
        try:
            await forever()
        finally:
            late.append(service.spawn(forever(), name="late"))

    service.spawn(work(), name="work")
    await asyncio.sleep(0)
    await service.stop_tasks()
    assert [task.cancelled() for task in late] == [True]


async def test_task_that_fails_while_it_is_stopped_is_logged_and_the_others_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    service = Service("broker", ManualClock())

    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise OSError("cannot close the file")

    async def forever() -> None:
        await asyncio.Event().wait()

    service.spawn(stubborn(), name="stubborn")
    other = service.spawn(forever(), name="other")
    await asyncio.sleep(0)
    await service.stop_tasks()
    assert other.cancelled()
    assert caplog.messages == ["broker.stubborn failed"]


async def test_task_may_stop_the_service_it_belongs_to() -> None:
    service = Service("broker", ManualClock())

    async def forever() -> None:
        await asyncio.Event().wait()

    other = service.spawn(forever(), name="other")
    stopper = service.spawn(service.stop_tasks(), name="stopper")
    await stopper
    assert other.cancelled()


# --- clocks ---------------------------------------------------------------------------------


async def test_timers_fire_in_the_order_of_their_time_and_then_of_their_making() -> None:
    clock = ManualClock(now_ms=1_000_000)
    fired: list[tuple[str, int, int]] = []

    def note(name: str) -> None:
        fired.append((name, clock.elapsed_ms(), clock.now_ms()))

    for name, delay_ms in (("c", 30), ("a", 10), ("b1", 20), ("b2", 20), ("late", 31), ("now", -5)):
        clock.call_later(delay_ms, lambda name=name: note(name))  # type: ignore[misc]
    assert fired == []
    await clock.advance(30)
    assert fired == [
        ("now", 0, 1_000_000),
        ("a", 10, 1_000_010),
        ("b1", 20, 1_000_020),
        ("b2", 20, 1_000_020),
        ("c", 30, 1_000_030),
    ]
    assert (clock.elapsed_ms(), clock.now_ms()) == (30, 1_000_030)


async def test_timer_that_is_set_by_a_timer_fires_within_the_same_advance() -> None:
    clock = ManualClock()
    fired: list[int] = []

    def again() -> None:
        fired.append(clock.elapsed_ms())
        clock.call_later(40, again)

    clock.call_later(40, again)
    await clock.advance(100)
    assert fired == [40, 80]
    assert clock.elapsed_ms() == 100


async def test_cancelled_timer_does_not_fire_and_may_be_cancelled_again() -> None:
    clock = ManualClock()
    fired: list[str] = []
    kept = clock.call_later(10, lambda: fired.append("kept"))
    dropped = clock.call_later(10, lambda: fired.append("dropped"))
    dropped.cancel()
    dropped.cancel()
    await clock.advance(10)
    kept.cancel()
    await clock.advance(10)
    assert fired == ["kept"]


async def test_sleeper_wakes_when_its_time_has_come_and_before_later_timers() -> None:
    clock = ManualClock()
    steps: list[str] = []

    async def sleeper() -> None:
        await clock.sleep(10)
        steps.append(f"woken at {clock.elapsed_ms()}")
        await clock.sleep(10)
        steps.append(f"woken at {clock.elapsed_ms()}")

    task = asyncio.create_task(sleeper())
    await clock.advance(9)
    assert steps == []
    clock.call_later(2, lambda: steps.append("timer at 11"))
    await clock.advance(50)
    assert steps == ["woken at 10", "timer at 11", "woken at 20"]
    await task


async def test_sleep_for_no_time_only_lets_the_others_run() -> None:
    clock = ManualClock()
    for delay_ms in (0, -1):
        ran: list[bool] = []
        asyncio.get_running_loop().call_soon(ran.append, True)
        await clock.sleep(delay_ms)
        assert ran == [True]


async def test_cancelled_sleeper_is_gone_and_its_time_passes_unnoticed() -> None:
    clock = ManualClock()
    task = asyncio.create_task(clock.sleep(10))
    await clock.advance(5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await clock.advance(10)
    assert clock.elapsed_ms() == 15


async def test_system_clock_never_goes_back_and_keeps_its_promises() -> None:
    clock: Clock = SystemClock()
    done = asyncio.Event()
    fired: list[str] = []
    before_ms = clock.elapsed_ms()
    clock.call_later(1, lambda: fired.append("dropped")).cancel()
    clock.call_later(1, lambda: fired.append("kept"))
    clock.call_later(3, done.set)
    await done.wait()
    await clock.sleep(1)
    assert fired == ["kept"]
    assert clock.elapsed_ms() >= before_ms
    assert clock.now_ms() > 1_700_000_000_000, "milliseconds since 1970, not seconds"


async def test_block_that_outlasts_its_limit_is_ended_at_that_moment() -> None:
    clock = ManualClock()

    async def work() -> None:
        async with time_limit(clock, 100):
            await clock.sleep(1_000)

    working = asyncio.create_task(work())
    await clock.advance(99)
    assert not working.done()
    await clock.advance(1)
    with pytest.raises(TimeoutError):
        await working


async def test_limit_does_not_reach_beyond_its_block() -> None:
    clock = ManualClock()

    async def work() -> str:
        async with time_limit(clock, 100):
            await clock.sleep(50)
        await clock.sleep(1_000)
        return "done"

    working = asyncio.create_task(work())
    await clock.advance(1_050)
    assert await working == "done"
