"""What the outcome of a handler means."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import pytest

from firearrow.base.errors import FirearrowError
from firearrow.base.runtime import SystemClock
from firearrow.client.handlers import (
    DEAD_LETTER_LEVEL,
    Caller,
    ConsumeStatus,
    DeadLetter,
    Handler,
    Retry,
    Work,
    outcome_of,
)
from firearrow.client.message import ReceivedMessage
from firearrow.client.window import Window
from firearrow.hot import Record
from firearrow.model.topic import MessageQueue

QUEUE = MessageQueue(topic="t", broker_name="b", queue_id=0)


class NeverEqual:
    def __eq__(self, _: object) -> bool:
        raise RuntimeError("compared")

    __hash__ = None  # type: ignore[assignment]


def work(function: Any, count: int = 1, batch: int | None = None) -> Work:
    messages = [
        ReceivedMessage(Record("t", b"x", "", queue_offset=number), "b") for number in range(count)
    ]
    return Work(Window(QUEUE, 0, 0), messages, Handler.of(function, batch))


@pytest.mark.parametrize(
    ("result", "count", "is_batch", "done", "kind"),
    [
        (None, 1, False, 1, "SUCCESS"),
        (True, 3, True, 3, "SUCCESS"),
        (False, 3, True, 0, "FAILED"),
        (ConsumeStatus.SUCCESS, 1, False, 1, "SUCCESS"),
        (ConsumeStatus.RETRY, 1, False, 0, "FAILED"),
        ("RETRY", 1, False, 0, "FAILED"),
        ("anything else", 1, False, 1, "SUCCESS"),
        (0, 1, False, 1, "SUCCESS"),  # a number means something to batch handlers only
        (0, 1, True, 0, "FAILED"),
        (1, 1, True, 1, "SUCCESS"),
        (2, 3, True, 2, "FAILED"),
        (9, 3, True, 3, "SUCCESS"),
        (-1, 3, True, 0, "FAILED"),
        (NeverEqual(), 1, False, 1, "SUCCESS"),
        (ValueError(), 2, True, 0, "EXCEPTION"),
        (Retry(), 1, False, 0, "FAILED"),
    ],
)
def test_results_mean(result: object, count: int, is_batch: bool, done: int, kind: str) -> None:
    outcome = outcome_of(result, count, is_batch=is_batch)
    assert (outcome.done, outcome.kind) == (done, kind)


def test_handlers_say_when_or_never() -> None:
    assert outcome_of(Retry(delay_level=5, after_ms=20), 1)[2:4] == (5, 20)
    assert outcome_of(DeadLetter("no"), 1).delay_level == DEAD_LETTER_LEVEL


def test_what_kind_of_function_a_handler_is() -> None:
    async def handle(_: object) -> None: ...

    class Callable:
        async def __call__(self, _: object) -> None: ...

    assert Handler.of(handle, None).is_async
    assert Handler.of(functools.partial(handle), None).is_async
    assert Handler.of(Callable(), None).is_async
    assert not Handler.of(lambda _: None, None).is_async
    assert "handle" in Handler.of(handle, None).name
    for wrong in (0, 1025):
        with pytest.raises(FirearrowError, match="1 to 1024"):
            Handler.of(handle, wrong)
    with pytest.raises(FirearrowError, match="callable"):
        Handler.of("no function", None)  # type: ignore[arg-type]


async def test_something_cancelled_inside_a_handler_fails_the_message_only() -> None:
    async def handle(_: object) -> None:
        inner = asyncio.ensure_future(asyncio.sleep(60))
        inner.cancel()
        await inner

    outcome = await Caller("g", SystemClock(), ()).run_async(work(handle))
    assert (outcome.done, outcome.kind) == (0, "EXCEPTION")


async def test_a_handler_that_is_to_end_ends() -> None:
    started = asyncio.Event()

    async def handle(_: object) -> None:
        started.set()
        await asyncio.sleep(60)

    task = asyncio.create_task(Caller("g", SystemClock(), ()).run_async(work(handle)))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_batch_handlers_get_lists_even_of_one() -> None:
    seen: list[object] = []
    caller = Caller("g", SystemClock(), ())
    assert caller.run(work(seen.append, 1, batch=1)).done == 1
    assert caller.run(work(seen.append, 1)).done == 1
    assert isinstance(seen[0], list)
    assert isinstance(seen[1], ReceivedMessage)


def test_plain_functions_that_exit_fail_their_message() -> None:
    def leave(_: object) -> None:
        raise SystemExit(3)

    outcome = Caller("g", SystemClock(), ()).run(work(leave))
    assert (outcome.done, outcome.kind) == (0, "EXCEPTION")
