"""Sends whose answers are lost: a producer that numbers its messages stores each of them once."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from tests.broker_requests import TOPIC, pull, texts
from tests.scripted import Peer, route_to, running
from tests.support import running_broker

from firearrow import IdempotentProducer, aio
from firearrow.base.errors import FirearrowError
from firearrow.testing import LocalCluster
from firearrow.wire.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support import ServedBroker

    from firearrow.net.connection import Connection
    from firearrow.wire.command import Command

PATIENCE_MS = 60_000


class Lossy:
    """Stands before a broker; of some sends it loses the answers, and the connection with them."""

    def __init__(self, served: ServedBroker, front: Peer) -> None:
        self.front = front
        self.losses = 0
        self.forwarded = 0
        self._served = served
        front.handlers[RequestCode.SEND_MESSAGE_V2] = self._forward

    async def _forward(self, command: Command, connection: Connection) -> Command | None:
        opaque = command.opaque
        reply = await self._served.ask(command)
        reply.opaque = opaque
        self.forwarded += 1
        if self.losses:
            self.losses -= 1
            connection.abort("the test has lost it")
            return None
        return reply


@asynccontextmanager
async def lossy(tmp_path: Path) -> AsyncIterator[tuple[Lossy, ServedBroker, str]]:
    async with running_broker(tmp_path) as served, running(lambda _: None, lambda _: None) as peers:
        names, front = peers
        names.answer = route_to({"broker-a": front.address})
        yield Lossy(served, front), served, names.address


async def stored(served: ServedBroker) -> list[bytes]:
    replies = [await served.ask(pull(0, queue_id=queue_id)) for queue_id in (0, 1)]
    return sorted(text for reply in replies if reply.code == 0 for text in texts(reply))


async def test_lost_answers_make_a_second_message_of_an_ordinary_send_and_none_of_a_numbered_one(
    tmp_path: Path,
) -> None:
    async with lossy(tmp_path) as (before, served, names):
        async with aio.Producer("p", nameservers=names, timeout_ms=PATIENCE_MS) as ordinary:
            before.losses = 1
            await ordinary.send(aio.Message(TOPIC, "ordinary"))
        async with aio.IdempotentProducer("p", nameservers=names, timeout_ms=PATIENCE_MS) as one:
            before.losses = 2
            first = await one.send(aio.Message(TOPIC, "numbered"))
            second = await one.send(aio.Message(TOPIC, "next"))
        assert (first.queue.queue_id, second.queue.queue_id) == (0, 1)
        assert await stored(served) == [b"next", b"numbered", b"ordinary", b"ordinary"]
        assert before.forwarded == 2 + 3 + 1


async def test_message_that_failed_can_be_sent_again_and_is_stored_once(tmp_path: Path) -> None:
    async with (
        lossy(tmp_path) as (before, served, names),
        aio.IdempotentProducer("p", nameservers=names, timeout_ms=PATIENCE_MS, retries=0) as one,
    ):
        message = aio.Message(TOPIC, "once", sharding_key="k")
        before.losses = 1
        with pytest.raises(FirearrowError):
            await one.send(message)
        receipt = await one.send(message)
        assert receipt.ok
        assert await stored(served) == [b"once"]


def test_blocking_producer_numbers_what_it_sends_soon_as_well() -> None:
    with (
        LocalCluster() as cluster,
        IdempotentProducer("p", nameservers=cluster.nameservers) as producer,
    ):
        messages = [aio.Message(TOPIC, f"{number}") for number in range(3)]
        producer.send(messages[0])
        for future in [producer.send_soon(message) for message in messages[1:]]:
            assert future.result().ok
        assert [message.properties["FA_SEQ"] for message in messages] == ["0", "1", "2"]
        assert len({message.properties["FA_PRODUCER"] for message in messages}) == 1
