"""Requests that make no sense, of every code: a broker refuses them clearly, and lives."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest
from tests.broker_requests import send, texts
from tests.support import ServedBroker, running_broker

from firearrow.broker.broker import Broker
from firearrow.broker.config import BrokerConfig
from firearrow.broker.processors.pull import PullProcessor
from firearrow.broker.processors.send import SendProcessor
from firearrow.broker.request_table import request_table
from firearrow.model.errors import ResponseCode
from firearrow.wire import bodies, headers
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import Command, request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

LONG_TEXT: Final = "x" * 40_000
BROKEN_BODIES: Final = [
    pytest.param(b"", id="none"),
    pytest.param(b"{", id="unfinished"),
    pytest.param(b"null", id="null"),
    pytest.param(b"[1,2,3]", id="list"),
    pytest.param(b'"text"', id="text"),
    pytest.param(b"\xff\xfe\x00\x01" * 20, id="bytes"),
    pytest.param(b"[" * 100_000, id="deep"),
    pytest.param(b'{"a":' * 50_000, id="deeper"),
]


def answered_codes() -> list[int]:
    state = Broker(BrokerConfig(store_path_root_dir=Path("never-made"))).state
    return sorted(request_table(state, SendProcessor(state), PullProcessor(state)))


CODES: Final = [RequestCode(code) for code in answered_codes()]
WITH_HEADER: Final = [code for code in CODES if code in headers.REQUEST_HEADERS]
WITH_BODY: Final = [code for code in CODES if code in bodies.REQUEST_BODIES]


def fields_of(code: RequestCode) -> Iterator[tuple[str, bool, Any]]:
    """Wire name, whether required, and type of every field of a request's header."""
    for field in msgspec.structs.fields(headers.REQUEST_HEADERS[code]):
        yield field.encode_name, field.required, field.type


def is_text(kind: Any) -> bool:
    return kind is str or kind == str | None


def is_number(kind: Any) -> bool:
    return "ge=" in str(kind)


def required_of(code: RequestCode) -> list[str]:
    return [name for name, required, _ in fields_of(code) if required]


def ext_of(code: RequestCode, **values: str) -> dict[str, str]:
    """Every field, with values that can be read."""
    ext = {}
    for name, _, kind in fields_of(code):
        if is_number(kind):
            ext[name] = "0"
        elif is_text(kind):
            ext[name] = "orders"
        elif "FilterType" in str(kind):
            ext[name] = "SINGLE_TAG"
        else:
            ext[name] = "false"
    return ext | values


def raw(code: RequestCode, ext: dict[str, str] | None = None, body: bytes = b"") -> Command:
    command = request(code, body=body)
    command.ext = ext or {}
    return command


@asynccontextmanager
async def still_serving(folder: Path) -> AsyncIterator[ServedBroker]:
    """A broker that must take and give messages over the same connection afterwards."""
    async with running_broker(folder) as served:
        yield served
        assert (await served.ask(send(b"after"))).code == 0
        info = await served.ask(request(RequestCode.GET_BROKER_RUNTIME_INFO))
        assert info.code == 0
        view = headers.ViewMessageRequest(offset=0)
        assert texts(await served.ask(request(RequestCode.VIEW_MESSAGE_BY_ID, view)))


def assert_clear(reply: Command, code: RequestCode) -> None:
    """Not a failure of ours, and if it is a refusal, one with a reason."""
    remark = reply.remark or ""
    assert reply.code in set(ResponseCode), code
    assert not remark.startswith("internal error"), f"{code.name}: {remark}"
    assert reply.code in {0, ResponseCode.PULL_NOT_FOUND} or remark, f"{code.name}: no reason"
    assert len(remark) < 2_000, f"{code.name}: {len(remark)} characters of reason"


def test_every_code_that_the_issue_names_is_answered() -> None:
    named = (
        "10 310 320 11 361 36 34 35 46 38 41 42 14 15 30 31 29 32 12 33 321 17 18 21 202 215 300 "
    )
    named += (
        "305 343 351 316 306 329 200 225 201 207 352 353 203 204 328 345 208 317 303 308 314 222 "
    )
    named += "223 307 309 43 45 400 401 402 25 26 28 315 907"
    assert {int(code) for code in named.split()} <= set(CODES)


async def test_missing_fields_are_refused_by_name(tmp_path: Path) -> None:
    async with still_serving(tmp_path) as served:
        for code in WITH_HEADER:
            for missing in required_of(code):
                ext = ext_of(code)
                del ext[missing]
                reply = await served.ask(raw(code, ext, b"{}"))
                assert reply.code == ResponseCode.SYSTEM_ERROR, (code.name, missing, reply.remark)
                assert missing in (reply.remark or ""), (code.name, missing, reply.remark)


async def test_numbers_that_are_none_are_refused_by_name(tmp_path: Path) -> None:
    async with still_serving(tmp_path) as served:
        for code in WITH_HEADER:
            for name, required, kind in fields_of(code):
                if not required or not is_number(kind):
                    continue
                for text in ("", "many", "1.0", " 1", "1" * 30, "9" * 19 + "9"):
                    reply = await served.ask(raw(code, ext_of(code, **{name: text}), b"{}"))
                    assert reply.code == ResponseCode.SYSTEM_ERROR, (code.name, name, text)
                    assert name in (reply.remark or ""), (code.name, name, reply.remark)


async def test_empty_requests_are_answered_clearly(tmp_path: Path) -> None:
    async with still_serving(tmp_path) as served:
        for code in CODES:
            assert_clear(await served.ask(raw(code)), code)


@pytest.mark.parametrize("body", BROKEN_BODIES)
async def test_broken_bodies_are_refused(tmp_path: Path, body: bytes) -> None:
    async with still_serving(tmp_path) as served:
        for code in WITH_BODY:
            reply = await served.ask(raw(code, body=body))
            assert reply.code in {ResponseCode.SYSTEM_ERROR, ResponseCode.INVALID_PARAMETER}, code
            assert_clear(reply, code)


@pytest.mark.parametrize("number", ["-1", "-2147483648", "2147483647", "-9223372036854775808"])
async def test_extreme_numbers_are_answered_clearly(tmp_path: Path, number: str) -> None:
    async with still_serving(tmp_path) as served:
        for code in WITH_HEADER:
            names = [name for name, _, kind in fields_of(code) if is_number(kind)]
            for name in names:
                if name == "sysFlag":
                    continue  # every bit of it has a meaning; holding a pull is one of them
                reply = await served.ask(raw(code, ext_of(code, **{name: number}), b"body"))
                assert_clear(reply, code)


async def test_oversized_texts_are_answered_clearly(tmp_path: Path) -> None:
    async with still_serving(tmp_path) as served:
        for code in WITH_HEADER:
            for name, _, kind in fields_of(code):
                if is_text(kind):
                    ext = ext_of(code, **{name: LONG_TEXT})
                    assert_clear(await served.ask(raw(code, ext, b"body")), code)


@pytest.mark.parametrize("text", ["", " ", "a b", "../../etc", "ünïcode", "\x00\x01\x02"])
async def test_odd_names_are_answered_clearly(tmp_path: Path, text: str) -> None:
    async with still_serving(tmp_path) as served:
        for code in WITH_HEADER:
            for name, _, kind in fields_of(code):
                if is_text(kind):
                    ext = ext_of(code, **{name: text})
                    assert_clear(await served.ask(raw(code, ext, b"body")), code)


async def test_deleting_a_topic_never_leads_out_of_the_store(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    async with still_serving(tmp_path) as served:
        for name in ("../precious", str(precious), "..", "."):
            header = headers.DeleteTopicRequest(topic=name)
            reply = await served.ask(request(RequestCode.DELETE_TOPIC_IN_BROKER, header))
            assert reply.code == ResponseCode.INVALID_PARAMETER
        served.broker.state.store.delete_topic("../precious")
    assert precious.exists()


async def test_one_way_requests_that_fail_are_not_answered(tmp_path: Path) -> None:
    """An answer would be taken for that to a later request with the same number."""
    async with still_serving(tmp_path) as served:
        connection = await served.client.connection(served.broker.address)
        for code in CODES:
            command = raw(code)
            command.flag = 2
            connection.invoke_oneway(command)
        reply = await served.ask(raw(RequestCode.GET_BROKER_HA_STATUS))
        assert b"masterCommitLogMaxOffset" in reply.body


async def test_unknown_code_is_refused_with_code_3(tmp_path: Path) -> None:
    async with still_serving(tmp_path) as served:
        reply = await served.ask(request(29_999))
        assert reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert "29999" in (reply.remark or "")
