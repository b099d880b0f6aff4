"""Request code to handler, errors to replies, lanes so that no family starves the others.

A handler is a plain function that answers at once, or a coroutine function when it must wait.
"""

from __future__ import annotations

import inspect
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from firearrow.base.errors import FirearrowError
from firearrow.model.errors import BrokerError, ResponseCode
from firearrow.wire.codes import Flag, RequestCode
from firearrow.wire.command import FRAME_BYTES_MAX, HEADER_BYTES_MAX, Command, reply_to

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from firearrow.base.runtime import Service
    from firearrow.net.connection import Connection

    # A reply, nothing (the handler has answered, or will), or a wait for either.
    Answer = Command | None
    Handler = Callable[[Command, Connection], Answer | Awaitable[Answer]]
    # Hears of every answer given here: request code, response code, milliseconds.
    Observer = Callable[[int, int, int], None]

log = logging.getLogger(__name__)

_ONEWAY: Final = int(Flag.ONEWAY)  # an enum's `&` is slow, and this runs per request
LANE_REQUESTS_MAX: Final = 10_000  # the queue capacity of a Java broker's executors
REMARK_CHARS_MAX: Final = 1_000  # a reason repeats what the peer sent; not all of it
REPLY_BODY_BYTES_MAX: Final = FRAME_BYTES_MAX - HEADER_BYTES_MAX


@dataclass(slots=True)
class Lane:
    """A family of requests that share a bound on how many may wait at once."""

    name: str
    requests_max: int = LANE_REQUESTS_MAX
    in_progress: int = field(default=0, init=False)

    def refusal(self) -> str:
        """What the one is told who is too many, in the words that RocketMQ's tools look for."""
        return f"[OVERLOAD]{self.requests_max} {self.name} requests wait already; try later"


class Router:
    """Answers every request: by its handler, or with the reason why not."""

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        tasks: Service,
        *,
        lanes: Mapping[int, Lane] | None = None,
        default_lane: Lane | None = None,
        observe: Observer | None = None,
    ) -> None:
        self._handlers = dict(handlers)
        self._tasks = tasks
        self._lanes = dict(lanes or {})
        self._default_lane = default_lane or Lane("default")
        self._observe: Observer = observe or (lambda *_: None)
        self._elapsed_ms = tasks.clock.elapsed_ms

    def handle(self, connection: Connection, command: Command) -> None:
        """Answer one request, at once where possible."""
        handler = self._handlers.get(command.code)
        if handler is None:
            remark = f"request type {command.code} is not supported here"
            _send(connection, command, _refusal(command, 3, remark))
            return
        began_ms = self._elapsed_ms()
        try:
            answer = handler(command, connection)
        except Exception as error:
            answer = reply_for_error(command, error)
        if answer is None or isinstance(answer, Command):
            self._answer(connection, command, answer, began_ms)
        else:
            self._wait(connection, command, answer, began_ms)

    def _answer(
        self, connection: Connection, command: Command, reply: Command | None, began_ms: int
    ) -> None:
        if reply is not None:
            self._observe(command.code, reply.code, self._elapsed_ms() - began_ms)
        _send(connection, command, reply)

    def _wait(
        self, connection: Connection, command: Command, answer: Awaitable[Answer], began_ms: int
    ) -> None:
        lane = self._lanes.get(command.code, self._default_lane)
        if lane.in_progress >= lane.requests_max:
            if inspect.iscoroutine(answer):
                answer.close()
            refusal = _refusal(command, ResponseCode.SYSTEM_BUSY, lane.refusal())
            _send(connection, command, refusal)
            return
        lane.in_progress += 1
        connection.begin()
        task = self._tasks.spawn(
            self._answer_later(connection, command, answer, began_ms),
            name=f"request-{command.code}",
        )

        # Not in a `finally` of the task: one that is cancelled before its first step runs nothing.
        def done(_: object) -> None:
            if inspect.iscoroutine(answer):
                answer.close()
            lane.in_progress -= 1
            connection.finish()

        task.add_done_callback(done)

    async def _answer_later(
        self, connection: Connection, command: Command, answer: Awaitable[Answer], began_ms: int
    ) -> None:
        try:
            reply = await answer
        except Exception as error:
            reply = reply_for_error(command, error)
        self._answer(connection, command, reply, began_ms)


def _send(connection: Connection, asked: Command, reply: Command | None) -> None:
    # A one-way request is never answered, not even when it fails: its sender keeps no record of
    # it, and would take the answer for one to a later request with the same opaque.
    if reply is None or asked.flag & _ONEWAY:
        return
    if len(reply.body) > REPLY_BODY_BYTES_MAX:
        # A larger frame would make a Java client hang up, reconnect and ask again, for ever.
        remark = f"the answer has {len(reply.body)} bytes; a frame holds {REPLY_BODY_BYTES_MAX}"
        reply = _refusal(asked, ResponseCode.SYSTEM_ERROR, remark)
    connection.send(reply)


def _refusal(asked: Command, code: int, remark: str) -> Command:
    if len(remark) > REMARK_CHARS_MAX:
        half = REMARK_CHARS_MAX // 2
        remark = f"{remark[:half]} … {remark[-half:]}"
    return reply_to(asked, code, remark=remark)


def reply_for_error(asked: Command, error: Exception) -> Command:
    """What a peer is told about a failure: its code if it has one, else SYSTEM_ERROR."""
    if isinstance(error, BrokerError):
        reply = _refusal(asked, error.code, str(error))
        reply.ext = dict(error.fields)
        return reply
    if isinstance(error, FirearrowError):
        # A field or body that cannot be read. Java answers 1 as well, with a stack trace.
        return _refusal(asked, ResponseCode.SYSTEM_ERROR, str(error))
    log.error("request %s failed", _name_of(asked.code), exc_info=error)
    remark = f"internal error: {type(error).__name__}: {error}"
    return _refusal(asked, ResponseCode.SYSTEM_ERROR, remark)


def _name_of(code: int) -> str:
    try:
        return RequestCode(code).name
    except ValueError:
        return str(code)
