"""From threads to the loop: many callers, exceptions, interruptions."""

from __future__ import annotations

import asyncio
import signal
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.support import PATIENCE_S

from firearrow.client.errors import ClientClosed
from firearrow.client.portal import Call, Portal, portal

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


async def double(number: int) -> int:
    if number % 3 == 0:
        await asyncio.sleep(0)
    if number % 10 == 7:
        raise ValueError(number)
    return number * 2


def begin(work: Callable[[], Coroutine[Any, Any, int]]) -> Future[int]:
    future: Future[int] = Future()
    portal.begin(Call(work, future))
    return future


def test_many_threads_get_their_own_results() -> None:
    def call(number: int) -> int:
        try:
            return portal.call(double, number)
        except ValueError as error:
            return -int(error.args[0])

    with ThreadPoolExecutor(16) as threads:
        results = list(threads.map(call, range(1_000)))
    assert results == [-n if n % 10 == 7 else n * 2 for n in range(1_000)]


def test_futures_get_results_and_exceptions() -> None:
    futures = [begin(partial(double, number)) for number in range(100)]
    for number, future in enumerate(futures):
        if number % 10 == 7:
            assert isinstance(future.exception(PATIENCE_S), ValueError)
        else:
            assert future.result(PATIENCE_S) == number * 2


def test_a_future_that_was_cancelled_does_no_harm() -> None:
    gates: list[asyncio.Event] = []

    async def wait() -> int:
        gates.append(asyncio.Event())
        return int(await gates[0].wait())

    async def open_gate() -> None:
        gates[0].set()

    future = begin(wait)
    assert future.cancel()
    portal.call(open_gate)
    assert portal.call(double, 1) == 2


def test_the_loop_may_not_wait_for_itself() -> None:
    async def calls_itself() -> None:
        portal.call(double, 1)

    with pytest.raises(ClientClosed, match=r"firearrow\.aio"):
        portal.call(calls_itself)


def test_an_interrupted_call_is_cancelled_on_the_loop() -> None:
    """Ctrl-C while a call waits: the caller gets it at once, and the work ends."""
    main = threading.main_thread().ident
    assert main is not None
    cancelled = threading.Event()
    interrupts: list[int] = []

    async def for_ever() -> None:
        try:
            while True:  # a signal just before the caller begins to wait would not wake it
                signal.pthread_kill(main, signal.SIGINT)
                await asyncio.sleep(0.01)
        finally:
            cancelled.set()

    def interrupt_once(number: int, _: object) -> None:
        interrupts.append(number)
        if len(interrupts) == 1:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt_once)
    try:
        with pytest.raises(KeyboardInterrupt):
            portal.call(for_ever)
        assert cancelled.wait(PATIENCE_S)
        assert portal.call(double, 2) == 4
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_portal_that_was_forgotten_starts_anew() -> None:
    own = Portal()
    assert own.call(double, 1) == 2
    own.forget()
    assert own.call(double, 2) == 4
    assert own.generation == 1
