"""Request and reply: the broker hands an answer to the client that asked."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.broker_requests import heartbeat, properties_of, pull, records, send, sent
from tests.support import ServedBroker, running_broker

from firearrow.base.runtime import Service, SystemClock
from firearrow.hot import decode_properties
from firearrow.model.errors import ResponseCode
from firearrow.net.client import RemotingClient
from firearrow.net.router import Router
from firearrow.testing.faults import ManualClock
from firearrow.wire import headers
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import Command, reply_to

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from firearrow.net.connection import Connection

REPLIES = "DefaultCluster_REPLY_TOPIC"
REQUESTER = "127.0.0.1@asker"


class Requester:
    """A client that waits for a reply."""

    def __init__(self, code: int) -> None:
        self.heard: list[Command] = []
        self._code = code
        tasks = Service("requester", SystemClock())
        router = Router({RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self._heard}, tasks)
        self.client = RemotingClient(SystemClock(), router=router)

    def _heard(self, command: Command, _: Connection) -> Command:
        self.heard.append(command)
        return reply_to(command, self._code, remark="no thanks" if self._code else None)


@asynccontextmanager
async def requesting(served: ServedBroker, code: int = 0) -> AsyncIterator[Requester]:
    requester = Requester(code)
    beat = heartbeat(REQUESTER, group=None, producer="askers")
    assert (await requester.client.invoke(served.broker.address, beat, 20_000)).code == 0
    try:
        yield requester
    finally:
        await requester.client.close()


def answer(
    body: bytes = b"42",
    *,
    code: RequestCode = RequestCode.SEND_REPLY_MESSAGE_V2,
    to: str = REQUESTER,
    **fields: Any,
) -> Command:
    properties = {"MSG_TYPE": "reply", "CORRELATION_ID": "c-1", "TTL": "3000", "UNIQ_KEY": "K"}
    if to:
        properties["REPLY_TO_CLIENT"] = to
    form = RequestCode.SEND_MESSAGE if code == RequestCode.SEND_REPLY_MESSAGE else code
    command = send(body, topic=REPLIES, properties=properties, code=form, **fields)
    command.code = code
    return command


@pytest.mark.parametrize(
    "code", [RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2]
)
async def test_reply_reaches_the_client_that_asked_and_is_kept(
    tmp_path: Path, code: RequestCode
) -> None:
    async with running_broker(tmp_path) as served, requesting(served) as requester:
        reply = await served.ask(answer(code=code))
        stored = sent(reply)
        assert (stored.queue_id, stored.queue_offset) == (0, 0)
        assert stored.transaction_id is None
        (push,) = requester.heard
        header = headers.PushReplyMessageRequest.from_ext(push.ext)
        assert push.body == b"42"
        assert (header.topic, header.producer_group) == (REPLIES, "shop")
        assert header.store_host == served.broker.address
        assert header.born_host.startswith("127.0.0.1:")
        properties = decode_properties(header.properties or "")
        assert properties["CORRELATION_ID"] == "c-1"
        assert properties["PUSH_REPLY_TIME"].isdecimal()
        (kept,) = records(await served.ask(pull(topic=REPLIES)))
        assert kept.body == b"42"
        assert "PUSH_REPLY_TIME" not in properties_of(kept)


async def test_reply_without_a_body_is_passed_on_and_not_kept(tmp_path: Path) -> None:
    """So are all replies that the Go client makes; what they say is in their properties."""
    async with running_broker(tmp_path) as served, requesting(served) as requester:
        assert sent(await served.ask(answer(b""))).msg_id == "0"
        (push,) = requester.heard
        assert not push.body
        assert records(await served.ask(pull(topic=REPLIES, sys_flag=0))) == []


async def test_request_carries_the_cluster_so_that_it_can_be_answered(tmp_path: Path) -> None:
    async with running_broker(tmp_path, broker_cluster_name="here") as served:
        asking = {"CORRELATION_ID": "c-1", "REPLY_TO_CLIENT": REQUESTER, "TTL": "3000"}
        sent(await served.ask(send(b"?", properties=asking)))
        (record,) = records(await served.ask(pull()))
        assert properties_of(record)["CLUSTER"] == "here"
        assert served.broker.state.topics.get("here_REPLY_TOPIC") is not None


async def test_reply_need_not_be_kept(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"store_reply_message_enable": False}
    async with running_broker(tmp_path, **settings) as served, requesting(served) as requester:
        stored = sent(await served.ask(answer()))
        assert (stored.msg_id, stored.queue_id, stored.queue_offset) == ("0", 0, 0)
        assert len(requester.heard) == 1
        assert served.broker.state.store.lookup.max_offset(REPLIES, 0) == 0


@pytest.mark.parametrize("to", ["", "nobody"])
async def test_reply_that_nobody_waits_for_is_kept_and_its_sender_told(
    tmp_path: Path, to: str
) -> None:
    async with running_broker(tmp_path) as served:
        reply = await served.ask(answer(to=to))
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert (to or "REPLY_TO_CLIENT") in (reply.remark or "")
        assert reply.ext["queueOffset"] == "0"
        assert len(reply.ext["msgId"]) == 32
        (kept,) = records(await served.ask(pull(topic=REPLIES)))
        assert kept.body == b"42"


async def test_client_that_refuses_a_reply_is_named(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served, requesting(served, 1):
        reply = await served.ask(answer())
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert REQUESTER in (reply.remark or "")
        assert "no thanks" in (reply.remark or "")


async def test_client_that_has_left_gets_no_reply(tmp_path: Path) -> None:
    async with running_broker(tmp_path, ManualClock()) as served:
        async with requesting(served):
            pass
        reply = await served.ask(answer())
        assert reply.code == ResponseCode.SYSTEM_ERROR


async def test_reply_passes_the_checks_of_every_message(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as served, requesting(served) as requester:
        reply = await served.ask(answer(queue_id=7))
        assert reply.code == ResponseCode.INVALID_PARAMETER
        assert reply.ext["MSG_REGION"] == "DefaultRegion"
        assert requester.heard == []
