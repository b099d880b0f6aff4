"""Filters written in Python on a whole broker: granted, judged elsewhere, never in its way."""

from __future__ import annotations

import asyncio
import re
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest
from tests.broker_requests import (
    GROUP,
    TOPIC,
    heartbeat,
    pull,
    pulled,
    send,
    sent,
    texts,
)
from tests.support import ServedBroker, running_broker, until

from firearrow.base.errors import ConfigError
from firearrow.broker.judging import BATCH_MESSAGES
from firearrow.model.errors import ResponseCode
from firearrow.model.group import SubscriptionData
from firearrow.wire import bodies, headers, java_json
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import Command, request
from firearrow.wire.headers import PullFlag

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="filters need Linux's seccomp"
)

ON: Final[dict[str, Any]] = {
    "filter_server_nums": 2,
    "filter_installers": "127.0.0.1",
    "filter_batch_millis": 10_000,
}
LARGE: Final = "def matches(properties, body):\n    return int(body) > 5\n"
LOOP: Final = "def matches(properties, body):\n    while True: pass\n"


def install(name: str, source: str) -> Command:
    header = headers.InstallFilterRequest(name=name)
    return request(RequestCode.INSTALL_FILTER, header, source.encode())


def python(name: str, version: int = 1) -> SubscriptionData:
    return SubscriptionData.of(TOPIC, name, version=version, expression_type="PYTHON")


def python_pull(name: str, offset: int = 0, **fields: Any) -> Command:
    return pull(offset, expression=name, expression_type="PYTHON", **fields)


def check(wanted: SubscriptionData) -> Command:
    body = bodies.CheckClientRequestBody(client_id="c", group=GROUP, subscription_data=wanted)
    return request(RequestCode.CHECK_CLIENT_CONFIG, body=java_json.encode(body))


async def fill(served: ServedBroker, *values: int) -> None:
    for value in values:
        sent(await served.ask(send(str(value).encode())))


async def listed(served: ServedBroker) -> tuple[bodies.FilterInfo, ...]:
    reply = await served.ask(request(RequestCode.LIST_FILTERS))
    return java_json.decode(reply.body, bodies.FilterList).filters


async def test_nobody_installs_filters_unless_the_operator_says_so(tmp_path: Path) -> None:
    brokers: list[tuple[dict[str, Any], str]] = [
        ({}, "filterServerNums is 0"),
        ({"filter_server_nums": 1}, "filterInstallers"),
        ({"filter_server_nums": 1, "filter_installers": "10.0.0.0/8, ::1"}, "filterInstallers"),
    ]
    for number, (settings, why) in enumerate(brokers):
        async with running_broker(tmp_path / str(number), **settings) as served:
            remove = request(RequestCode.REMOVE_FILTER, headers.RemoveFilterRequest(name="large"))
            for asked in (install("large", LARGE), remove):
                reply = await served.ask(asked)
                assert reply.code == ResponseCode.NO_PERMISSION
                assert why in (reply.remark or "")
            assert await listed(served) == ()


async def test_grant_that_cannot_be_read_stops_the_broker_from_starting(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"filterInstallers.*'everybody'"):
        async with running_broker(tmp_path, filter_installers="127.0.0.1, everybody"):
            pass


async def test_subscription_that_names_an_installed_filter_gets_what_it_lets_through(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path, **ON) as served:
        await fill(served, 1, 7, 3, 9)
        refused = await served.ask(check(python("large")))
        assert refused.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert (await served.ask(python_pull("large"))).code == refused.code
        assert (await served.ask(install("large", LARGE))).code == 0
        assert (await served.ask(check(python("large")))).code == 0
        assert texts(await served.ask(python_pull("large"))) == [b"7", b"9"]
        await served.ask(heartbeat("c", python("large", 4)))
        reply = await served.ask(pull(expression=None, sub_version=4, count=1))
        assert texts(reply) == [b"7"]
        rest = await served.ask(pull(2, expression=None, sub_version=4))
        assert (texts(rest), pulled(rest).next_begin_offset) == ([b"9"], 4)
        (info,) = await listed(served)
        assert (info.name, info.judged > 0, info.stopped) == ("large", True, 0)


async def test_messages_beyond_a_batch_are_left_for_the_next_pull(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **ON) as served:
        await served.ask(install("large", LARGE))
        await fill(served, *[1] * (BATCH_MESSAGES + 3), 8)
        reply = await served.ask(python_pull("large"))
        assert reply.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert pulled(reply).next_begin_offset == BATCH_MESSAGES
        reply = await served.ask(python_pull("large", BATCH_MESSAGES))
        assert texts(reply) == [b"8"]


async def test_held_pull_is_judged_when_a_message_comes(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **ON) as served:
        await served.ask(install("large", LARGE))
        await fill(served, 1)
        async with served.another_client() as other:
            waiting = asyncio.create_task(
                other.invoke(
                    served.broker.address, python_pull("large", 1, flags=PullFlag.SUSPEND), 20_000
                )
            )
            held = served.broker.state.held
            await until(lambda: held.statistics().waiting == 1)
            await fill(served, 8)
            assert texts(await waiting) == [b"8"]


async def test_broker_serves_others_while_a_filter_loops_and_after_it_is_stopped(
    tmp_path: Path,
) -> None:
    settings = ON | {"filter_batch_millis": 1_000}
    async with running_broker(tmp_path, **settings) as served:
        await served.ask(install("loop", LOOP))
        await fill(served, 1)
        async with served.another_client() as other:
            looping = asyncio.create_task(
                other.invoke(served.broker.address, python_pull("loop"), 20_000)
            )
            served_meanwhile = 0
            while not looping.done():
                await fill(served, 2)
                assert texts(await served.ask(pull(0, count=1))) == [b"1"]
                served_meanwhile += not looping.done()
            reply = await looping
        assert served_meanwhile > 0
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert re.search(
            r"filter loop was stopped: \d+ messages took longer than 1000 ms", reply.remark or ""
        )
        (info,) = await listed(served)
        assert (info.stopped, "longer than" in info.last_error) == (1, True)
        assert texts(await served.ask(pull(0, count=1))) == [b"1"]


async def test_error_of_a_filter_is_the_answer_also_to_a_held_pull(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **ON) as served:
        await served.ask(install("large", LARGE))
        await fill(served, 1)
        async with served.another_client() as other:
            waiting = asyncio.create_task(
                other.invoke(
                    served.broker.address, python_pull("large", 1, flags=PullFlag.SUSPEND), 20_000
                )
            )
            held = served.broker.state.held
            await until(lambda: held.statistics().waiting == 1)
            sent(await served.ask(send(b"no number")))
            reply = await waiting
            assert reply.code == ResponseCode.SYSTEM_ERROR
            assert "filter large: ValueError" in (reply.remark or "")
            assert "(line 2)" in (reply.remark or "")


async def test_installed_filters_outlive_the_broker_and_removed_ones_do_not(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path, **ON) as served:
        await served.ask(install("large", LARGE))
        await served.ask(install("small", LARGE.replace(">", "<")))
        header = headers.RemoveFilterRequest(name="small")
        assert (await served.ask(request(RequestCode.REMOVE_FILTER, header))).code == 0
        await fill(served, 1, 7)
    async with running_broker(tmp_path, **ON) as served:
        assert [info.name for info in await listed(served)] == ["large"]
        assert texts(await served.ask(python_pull("large"))) == [b"7"]
    # Without processes they are there, and not used.
    async with running_broker(tmp_path) as served:
        assert [info.name for info in await listed(served)] == ["large"]
        reply = await served.ask(python_pull("large"))
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert "filter message by PYTHON" in (reply.remark or "")
