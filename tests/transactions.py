"""Transactions as producers begin and end them, and a producer that answers checks."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from tests.broker_requests import TOPIC, heartbeat, send, sent

from firearrow.base.runtime import Service, SystemClock
from firearrow.hot import Record, decode_record, parse_offset_message_id
from firearrow.net.client import RemotingClient
from firearrow.net.router import Router
from firearrow.wire import headers
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import Command, request
from firearrow.wire.headers import TRANSACTION_COMMIT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from tests.support import ServedBroker

    from firearrow.net.connection import Connection

PRODUCERS = "shop-tx"


def half(
    body: bytes = b"hello", *, properties: Mapping[str, str] | None = None, **fields: Any
) -> Command:
    """A half message from a producer."""
    own = {"TRAN_MSG": "true", "PGROUP": PRODUCERS, "UNIQ_KEY": f"KEY-{body.decode()}"}
    usual: dict[str, Any] = {"producer_group": PRODUCERS, "sys_flag": 4}
    return send(body, properties=own | dict(properties or {}), **(usual | fields))


def place_of(reply: Command) -> tuple[int, int]:
    """Where a half message lies: in its queue and in the log."""
    stored = sent(reply)
    *_host, physical = parse_offset_message_id(stored.msg_id)
    return stored.queue_offset, physical


def end(
    place: tuple[int, int],
    outcome: int = TRANSACTION_COMMIT,
    *,
    group: str = PRODUCERS,
    from_check: bool = False,
    oneway: bool = False,
) -> Command:
    header = headers.EndTransactionRequest(
        topic=TOPIC,
        producer_group=group,
        tran_state_table_offset=place[0],
        commit_log_offset=place[1],
        commit_or_rollback=outcome,
        from_transaction_check=from_check,
        msg_id="KEY",
    )
    return request(RequestCode.END_TRANSACTION, header, oneway=oneway)


class Producer:
    """A live producer that notes what it is asked."""

    def __init__(self, served: ServedBroker) -> None:
        self.checks: list[tuple[headers.CheckTransactionStateRequest, Record]] = []
        self._served = served
        router = Router(
            {RequestCode.CHECK_TRANSACTION_STATE: self._asked}, Service("tx", SystemClock())
        )
        self.client = RemotingClient(SystemClock(), router=router)

    def _asked(self, command: Command, _: Connection) -> None:
        header = headers.CheckTransactionStateRequest.from_ext(command.ext)
        self.checks.append((header, decode_record(command.body, 0)))

    async def ask(self, command: Command) -> Command:
        return await self.client.invoke(self._served.broker.address, command, 20_000)

    def place(self, number: int = -1) -> tuple[int, int]:
        """Where the copy lies that it was asked about."""
        header = self.checks[number][0]
        return header.tran_state_table_offset, header.commit_log_offset


@asynccontextmanager
async def producing(served: ServedBroker) -> AsyncIterator[Producer]:
    producer = Producer(served)
    reply = await producer.ask(heartbeat("producer-1", group=None, producer=PRODUCERS))
    assert reply.code == 0
    try:
        yield producer
    finally:
        await producer.client.close()
