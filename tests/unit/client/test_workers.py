"""Where handlers run: few workers, none lost, an end that waits and begins nothing."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import TYPE_CHECKING

from tests.support import until

from firearrow.base.runtime import Service, SystemClock
from firearrow.client import workers
from firearrow.client.workers import TURN_S, LoopWatch, TaskWorkers, ThreadWorkers

if TYPE_CHECKING:
    import pytest

MANY = 2_000


async def test_threads_do_all_work_once() -> None:
    done: list[tuple[int, int]] = []
    pool: ThreadWorkers[int] = ThreadWorkers(
        "t", SystemClock(), lambda n: n * 2, done.extend,
        workers_max=4,
    )  # fmt: skip
    for number in range(MANY):
        pool.submit(number)
        if number % 100 == 0:
            await asyncio.sleep(0)
    await until(lambda: len(done) == MANY, "all results")
    assert sorted(done) == [(number, number * 2) for number in range(MANY)]
    await pool.stop(1_000)
    assert pool.running() == []


async def test_more_threads_start_while_work_waits() -> None:
    gate = threading.Event()
    names: set[str] = set()
    done: list[int] = []

    def wait(_: int) -> None:
        names.add(threading.current_thread().name)
        gate.wait(20)

    pool: ThreadWorkers[int] = ThreadWorkers(
        "t",
        SystemClock(),
        wait,
        lambda pairs: done.extend(number for number, _ in pairs),
        workers_max=3,
    )
    for number in range(10):
        pool.submit(number)
    await until(lambda: len(pool.running()) == 3, "three threads")
    gate.set()
    await until(lambda: len(done) == 10, "the rest")
    assert len(names) == 3
    await pool.stop(1_000)


async def test_threads_take_the_highest_priority_first_and_keep_order_within_it() -> None:
    gate, began, order = threading.Event(), threading.Event(), []

    def work(number: int) -> None:
        began.set()
        gate.wait(20)
        order.append(number)

    pool: ThreadWorkers[int] = ThreadWorkers(
        "t", SystemClock(), work, lambda *_: None, workers_max=1, priority_of=lambda n: n // 10
    )
    pool.submit(0)
    await asyncio.to_thread(began.wait, 20)
    for number in (1, 21, 11, 22, 2, 12):
        pool.submit(number)
    gate.set()
    await until(lambda: len(order) == 7, "all work")
    assert order == [0, 21, 22, 11, 12, 1, 2]
    await pool.stop(1_000)


async def test_tasks_take_the_highest_priority_first() -> None:
    order: list[int] = []

    async def work(number: int) -> None:
        order.append(number)

    tasks = Service("t", SystemClock())
    pool: TaskWorkers[int] = TaskWorkers(
        "t", tasks, work, lambda *_: None, workers_max=1, priority_of=lambda n: n // 10
    )
    for number in (1, 21, 11, 22):
        pool.submit(number)
    await until(lambda: len(order) == 4, "all work")
    assert order == [21, 22, 11, 1]
    await pool.stop(1_000)
    await tasks.stop_tasks()


async def test_exceptions_come_back_as_results() -> None:
    done: list[object] = []

    def fail(_: int) -> None:
        raise KeyboardInterrupt

    pool: ThreadWorkers[int] = ThreadWorkers(
        "t",
        SystemClock(),
        fail,
        lambda pairs: done.extend(result for _, result in pairs),
        workers_max=1,
    )
    pool.submit(1)
    await until(lambda: done, "the failure")
    assert isinstance(done[0], KeyboardInterrupt)
    await pool.stop(1_000)


async def test_stopping_threads_waits_for_what_was_begun_and_begins_nothing() -> None:
    started, gate = threading.Event(), threading.Event()
    begun: list[int] = []
    done: list[int] = []

    def slow(number: int) -> None:
        begun.append(number)
        started.set()
        gate.wait(20)

    pool: ThreadWorkers[int] = ThreadWorkers(
        "t",
        SystemClock(),
        slow,
        lambda pairs: done.extend(number for number, _ in pairs),
        workers_max=1,
    )
    for number in range(5):
        pool.submit(number)
    await asyncio.to_thread(started.wait, 20)
    stopping = asyncio.create_task(pool.stop(20_000))
    await asyncio.sleep(0)
    pool.submit(99)  # a pull that came back too late
    gate.set()
    await stopping
    assert begun == done == [0]


async def test_a_thread_that_does_not_end_is_left_behind_after_the_grace() -> None:
    gate = threading.Event()
    pool: ThreadWorkers[int] = ThreadWorkers(
        "t", SystemClock(), lambda _: gate.wait(20), lambda *_: None, workers_max=1
    )
    pool.submit(1)
    await until(pool.running, "a start")
    await pool.stop(1)
    assert len(pool.running()) == 1
    gate.set()


async def test_tasks_do_all_work_once_and_share_the_loop() -> None:
    done: list[tuple[int, object]] = []
    service = Service("s", SystemClock())
    at_once = most = 0

    async def run(number: int) -> int:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        if number % 3 == 0:
            await asyncio.sleep(0)
        at_once -= 1
        if number == 7:
            raise ValueError
        return number

    pool: TaskWorkers[int] = TaskWorkers("t", service, run, done.extend, workers_max=4)
    for number in range(500):
        pool.submit(number)
    await until(lambda: len(done) == 500, "all results")
    results = dict(done)
    assert isinstance(results.pop(7), ValueError)
    assert all(number == result for number, result in results.items())
    assert 1 < most <= 4
    await pool.stop(0)


async def test_handlers_that_block_leave_turns_of_the_loop_between_them() -> None:
    done: list[tuple[int, None]] = []
    turns: list[int] = []
    service = Service("s", SystemClock())

    async def block(_: int) -> None:
        time.sleep(2 * TURN_S)  # noqa: ASYNC251 - what nobody should do

    async def heartbeat() -> None:
        while len(done) < 8:
            turns.append(len(done))
            await asyncio.sleep(0)

    pool: TaskWorkers[int] = TaskWorkers("t", service, block, done.extend, workers_max=1)
    for number in range(8):
        pool.submit(number)
    await heartbeat()
    assert len(set(turns)) >= 7, turns
    await pool.stop(0)


async def test_stopping_tasks_cancels_after_the_grace_and_begins_nothing() -> None:
    service = Service("s", SystemClock())
    begun: list[int] = []

    async def run(number: int) -> None:
        begun.append(number)
        await asyncio.sleep(60)

    pool: TaskWorkers[int] = TaskWorkers("t", service, run, lambda *_: None, workers_max=1)
    pool.submit(1)
    pool.submit(2)
    await until(lambda: begun, "a start")
    await pool.stop(1)
    pool.submit(3)
    await asyncio.sleep(0)
    assert (begun, pool.running()) == ([1], [])


async def test_a_loop_that_stands_still_is_noticed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(workers, "STUCK_S", 0.02)
    watch = LoopWatch("group g", lambda: "handler guilty with message 1")

    def warnings() -> list[str]:
        return [record.getMessage() for record in caplog.records]

    with caplog.at_level(logging.WARNING):
        deadline = time.monotonic() + 20
        while not any("stands still" in text for text in warnings()):
            assert time.monotonic() < deadline
            time.sleep(0.01)  # noqa: ASYNC251 - what the warning is about
        await until(lambda: any("turns again" in text for text in warnings()), "the end of it")
    watch.stop()
    assert any("handler guilty" in text for text in warnings())
