from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, cast

import pytest

from firearrow.base.runtime import Service
from firearrow.model.errors import ResponseCode, TopicNotFound
from firearrow.net.router import REPLY_BODY_BYTES_MAX, Lane, Router
from firearrow.testing import ManualClock
from firearrow.wire.codes import Flag
from firearrow.wire.command import Command, reply_to

if TYPE_CHECKING:
    from firearrow.net.connection import Connection


class Caller:
    """Stands where a connection would: keeps what is sent, counts what is in progress."""

    def __init__(self) -> None:
        self.replies: list[Command] = []
        self.in_progress = 0

    def send(self, command: Command) -> None:
        self.replies.append(command)

    def begin(self) -> None:
        self.in_progress += 1

    def finish(self) -> None:
        self.in_progress -= 1


def ask(handlers: dict[int, Any], command: Command, **options: Any) -> tuple[Caller, Service]:
    tasks = Service("test", ManualClock())
    caller = Caller()
    Router(handlers, tasks, **options).handle(cast("Connection", caller), command)
    return caller, tasks


def fail(error: Exception) -> Any:
    def handler(*_: object) -> None:
        raise error

    return handler


def test_unknown_request_gets_code_three_and_its_own_opaque() -> None:
    caller, _ = ask({}, Command(9999, opaque=-7))
    (reply,) = caller.replies
    assert (reply.code, reply.opaque, reply.flag) == (3, -7, Flag.RESPONSE)
    assert "9999" in (reply.remark or "")


@pytest.mark.parametrize("handlers", [{}, {10: fail(ValueError("x"))}, {10: fail(TopicNotFound())}])
def test_oneway_request_is_never_answered_whatever_happens(handlers: dict[int, Any]) -> None:
    caller, _ = ask(handlers, Command(10, flag=Flag.ONEWAY))
    assert caller.replies == []


def test_error_with_a_code_becomes_that_code_with_its_words() -> None:
    caller, _ = ask({105: fail(TopicNotFound("no route of orders"))}, Command(105))
    (reply,) = caller.replies
    assert (reply.code, reply.remark) == (ResponseCode.TOPIC_NOT_EXIST, "no route of orders")


def test_unexpected_failure_is_logged_and_answered_with_system_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR):
        caller, _ = ask({105: fail(KeyError("oops"))}, Command(105))
    (reply,) = caller.replies
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert "KeyError" in (reply.remark or "")
    assert "GET_ROUTEINFO_BY_TOPIC" in caplog.text


def test_reply_keeps_the_serialization_of_the_request() -> None:
    caller, _ = ask({105: lambda c, _: reply_to(c)}, Command(105, serializer=1))
    assert caller.replies[0].serializer == 1


def test_reply_that_fits_no_frame_is_refused_with_its_size() -> None:
    body = bytes(REPLY_BODY_BYTES_MAX + 1)
    caller, _ = ask({105: lambda c, _: reply_to(c, body=body)}, Command(105))
    (reply,) = caller.replies
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert str(len(body)) in (reply.remark or "")


async def test_handler_that_waits_is_answered_when_it_is_done() -> None:
    gate = asyncio.Event()

    async def handler(command: Command, _: object) -> Command:
        await gate.wait()
        return reply_to(command, body=b"late")

    caller, _ = ask({11: handler}, Command(11))
    await asyncio.sleep(0)
    assert (caller.replies, caller.in_progress) == ([], 1)
    gate.set()
    for _ in range(3):
        await asyncio.sleep(0)
    assert [reply.body for reply in caller.replies] == [b"late"]
    assert caller.in_progress == 0


async def test_handler_that_waits_and_fails_is_answered_too() -> None:
    async def handler(_: Command, __: object) -> Command:
        await asyncio.sleep(0)
        raise TopicNotFound("gone meanwhile")

    caller, _ = ask({11: handler}, Command(11))
    for _ in range(4):
        await asyncio.sleep(0)
    assert [reply.code for reply in caller.replies] == [ResponseCode.TOPIC_NOT_EXIST]


async def test_full_lane_answers_system_busy_and_other_lanes_go_on() -> None:
    async def handler(_: Command, __: object) -> Command:
        await asyncio.sleep(3600)
        raise AssertionError

    narrow = Lane("pull", requests_max=1)
    tasks = Service("test", ManualClock())
    caller = Caller()
    router = Router({11: handler, 12: handler}, tasks, lanes={11: narrow})
    for code in (11, 11, 12):
        router.handle(cast("Connection", caller), Command(code))
    (reply,) = caller.replies
    assert reply.code == ResponseCode.SYSTEM_BUSY
    assert (reply.remark or "").startswith("[OVERLOAD]")
    assert caller.in_progress == 2
    await tasks.stop_tasks()
    assert narrow.in_progress == 0
