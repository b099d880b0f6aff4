"""Transactions and resends, seen on the wire: a broker in this process, and a producer by hand.

python examples/transactions_by_hand.py
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path

from firearrow.base.runtime import SystemClock
from firearrow.broker.broker import Broker
from firearrow.broker.config import BrokerConfig
from firearrow.hot import encode_properties, parse_offset_message_id
from firearrow.net.client import RemotingClient
from firearrow.wire import headers
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import Command, request

GROUP = "shop"


class Producer:
    """Just enough of one."""

    def __init__(self, broker: str) -> None:
        self._broker = broker
        self._client = RemotingClient(SystemClock())

    async def ask(self, command: Command) -> Command:
        reply = await self._client.invoke(self._broker, command, 3_000)
        if reply.code:
            raise RuntimeError(f"code {reply.code}: {reply.remark}")
        return reply

    async def send(self, body: bytes, **properties: str) -> headers.SendMessageReply:
        header = headers.SendMessageRequestV2(
            producer_group=GROUP,
            topic="orders",
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=0,
            sys_flag=0,
            born_timestamp=SystemClock().now_ms(),
            flag=0,
            properties=encode_properties(properties),
        )
        reply = await self.ask(request(RequestCode.SEND_MESSAGE_V2, header, body))
        return headers.SendMessageReply.from_ext(reply.ext)

    async def begin(self, body: bytes, transaction_id: str) -> headers.SendMessageReply:
        return await self.send(body, TRAN_MSG="true", PGROUP=GROUP, UNIQ_KEY=transaction_id)

    async def end(self, half: headers.SendMessageReply, outcome: int) -> None:
        *_host, offset = parse_offset_message_id(half.msg_id)
        header = headers.EndTransactionRequest(
            producer_group=GROUP,
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=offset,
            commit_or_rollback=outcome,
            msg_id=half.transaction_id or "",
        )
        await self.ask(request(RequestCode.END_TRANSACTION, header))

    async def open_ones(self) -> list[str]:
        reply = await self.ask(request(RequestCode.FIREARROW_GET_OPEN_TRANSACTIONS))
        listed = json.loads(reply.body)["transactions"]
        return [f"{one['transactionId']} ({one['checks']} checks)" for one in listed]

    async def stored(self) -> int:
        header = headers.GetMaxOffsetRequest(topic="orders", queue_id=0)
        reply = await self.ask(request(RequestCode.GET_MAX_OFFSET, header))
        return int(reply.ext["offset"])

    async def close(self) -> None:
        await self._client.close()


async def show(producer: Producer) -> None:
    paid = await producer.begin(b"order 1", "T-1")
    cancelled = await producer.begin(b"order 2", "T-2")
    await producer.begin(b"order 3", "T-3")
    print("begun: messages in the topic:", await producer.stored())
    await producer.end(paid, headers.TRANSACTION_COMMIT)
    await producer.end(paid, headers.TRANSACTION_COMMIT)
    await producer.end(cancelled, headers.TRANSACTION_ROLLBACK)
    print("one committed, twice: messages in the topic:", await producer.stored())
    print("still open:", ", ".join(await producer.open_ones()))

    first = await producer.send(b"order 4", FA_PRODUCER="shop-7f3a", FA_SEQ="1")
    again = await producer.send(b"order 4", FA_PRODUCER="shop-7f3a", FA_SEQ="1")
    print("sent again, same message:", first.msg_id == again.msg_id)
    print("messages in the topic:", await producer.stored())


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        broker = Broker(BrokerConfig(store_path_root_dir=Path(folder), listen_port=0))
        await broker.start()
        producer = Producer(broker.address)
        try:
            await show(producer)
        finally:
            await producer.close()
            await broker.stop()


if __name__ == "__main__":
    asyncio.run(main())
