"""Handlers: what an application does with its messages, and what their outcome means.

A handler that returns has consumed its messages; one that raises wants them again. That is the
whole contract. The rest is for those who want more: `Retry` chooses when, `DeadLetter` says never,
and a batch handler may return how many of the first messages it has done.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from firearrow.base.errors import FirearrowError
from firearrow.client.errors import ConsumerMisuse
from firearrow.client.hooks import ConsumeContext, call_each

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from firearrow.base.runtime import Clock
    from firearrow.client.hooks import ConsumeHook
    from firearrow.client.message import ReceivedMessage
    from firearrow.client.window import Window

    MessageHandler = Callable[[ReceivedMessage], Any | Awaitable[Any]]
    BatchHandler = Callable[[list[ReceivedMessage]], Any | Awaitable[Any]]

log = logging.getLogger(__name__)

DEAD_LETTER_LEVEL: Final = -1


class ConsumeStatus(StrEnum):
    """What a handler may return if it does not like to raise."""

    SUCCESS = "SUCCESS"
    RETRY = "RETRY"


class Retry(FirearrowError):
    """Raised by a handler: bring the message again, at a delay level of its choice.

    In ordered groups `after_ms` says how long the queue is to pause.
    """

    def __init__(
        self, reason: str = "again later", *, delay_level: int = 0, after_ms: int | None = None
    ) -> None:
        super().__init__(reason)
        self.delay_level = delay_level
        self.after_ms = after_ms


class DeadLetter(FirearrowError):
    """Raised by a handler: never again; the message goes to the group's dead-letter queue."""


class Outcome(NamedTuple):
    """What a call of a handler came to."""

    done: int  # so many of the first messages are consumed
    kind: str  # RocketMQ's words: SUCCESS, FAILED, EXCEPTION, TIME_OUT
    delay_level: int = 0
    after_ms: int | None = None
    error: BaseException | None = None


_SUCCESS: Final = Outcome(1, "SUCCESS")  # of a call with one message: nearly all are


@dataclass(frozen=True, slots=True)
class Handler:
    """A function of the application, and how it wants to be called."""

    function: Callable[..., Any]
    is_async: bool
    batch_max: int = 1
    is_batch: bool = False

    @classmethod
    def of(cls, function: Callable[..., Any], batch_max: int | None) -> Handler:
        """Wrap a function; a batch size makes it one that takes lists."""
        if not callable(function):
            raise ConsumerMisuse(f"a handler must be callable, not {function!r}")
        if batch_max is not None and not 1 <= batch_max <= 1024:
            raise ConsumerMisuse(f"a batch has 1 to 1024 messages, not {batch_max}")
        plain: Any = function
        while isinstance(plain, functools.partial):
            plain = plain.func
        is_async = inspect.iscoroutinefunction(plain) or inspect.iscoroutinefunction(
            getattr(plain, "__call__", None)  # noqa: B004 - an object with an async __call__
        )
        return cls(function, is_async, batch_max or 1, batch_max is not None)

    @property
    def name(self) -> str:
        return getattr(self.function, "__qualname__", None) or repr(self.function)

    def call(self, messages: list[ReceivedMessage]) -> Any:  # noqa: ANN401 - the user's own
        """Call it; an async one returns what is to be awaited."""
        return self.function(messages if self.is_batch else messages[0])


def _nobody(message: ReceivedMessage) -> None:
    raise Retry(f"topic {message.topic} has no handler")


NOBODY: Final = Handler(_nobody, is_async=False)  # for messages that nobody wants any more


class Work(NamedTuple):
    """One call of a handler to be made."""

    window: Window
    messages: list[ReceivedMessage]
    handler: Handler

    def describe(self) -> str:
        first = self.messages[0]
        return f"handler {self.handler.name} with message {first.msg_id} of topic {first.topic}"


def outcome_of(result: object, count: int, *, is_batch: bool = False) -> Outcome:
    """What a handler's return value, or the exception it raised, means.

    A number counts only from a batch handler, there even for a batch of one.
    """
    if result is None:
        return _SUCCESS if count == 1 else Outcome(count, "SUCCESS")
    if isinstance(result, BaseException):
        if isinstance(result, Retry):
            return Outcome(0, "FAILED", result.delay_level, result.after_ms, result)
        if isinstance(result, DeadLetter):
            return Outcome(0, "FAILED", DEAD_LETTER_LEVEL, None, result)
        return Outcome(0, "EXCEPTION", error=result)
    done = count
    if result is False or (isinstance(result, str) and result == ConsumeStatus.RETRY):
        done = 0
    elif is_batch and isinstance(result, int) and result is not True:
        done = min(max(result, 0), count)
    return Outcome(done, "SUCCESS" if done == count else "FAILED")


class Caller:
    """Calls handlers, with hooks around them, in a thread or on the loop."""

    def __init__(self, group: str, clock: Clock, hooks: Sequence[ConsumeHook]) -> None:
        self._group = group
        self._clock = clock
        self._hooks = list(hooks)

    def run(self, work: Work) -> Outcome:
        """Call a plain function."""
        context = self._before(work)
        try:
            result: object = work.handler.call(work.messages)
        except BaseException as error:
            result = error
        return self._after(work, context, result)

    async def run_async(self, work: Work) -> Outcome:
        """Call a coroutine function."""
        context = self._before(work)
        try:
            result: object = await work.handler.call(work.messages)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise  # we are to end; else something that the handler waited for was cancelled
            result = error
        except Exception as error:
            result = error
        return self._after(work, context, result)

    def _before(self, work: Work) -> ConsumeContext | None:
        now_ms = self._clock.now_ms()
        for message in work.messages:
            message.consume_started_ms = now_ms
        if not self._hooks:
            return None
        context = ConsumeContext(
            group=self._group,
            messages=work.messages,
            queue=work.window.queue,
            started_ms=now_ms,
        )
        call_each((hook.before_consume for hook in self._hooks), context)
        return context

    def _after(self, work: Work, context: ConsumeContext | None, result: object) -> Outcome:
        outcome = outcome_of(result, len(work.messages), is_batch=work.handler.is_batch)
        if outcome.kind == "EXCEPTION":
            log.warning("%s raised", work.describe(), exc_info=outcome.error)
        if context is not None:
            context.success = outcome.kind == "SUCCESS"
            context.outcome = outcome.kind
            context.took_ms = self._clock.now_ms() - context.started_ms
            call_each((hook.after_consume for hook in self._hooks), context)
        return outcome
