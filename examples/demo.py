"""The main job end to end: start, send, consume, crash, look again. `make demo` runs it.

It grows with the product. Today: a name server and a broker in one process, a producer and a
consumer that speak RocketMQ's protocol, and a look into the files with the tools.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import track
from rich.table import Table

from firearrow.base.runtime import SystemClock
from firearrow.broker.config import BrokerConfig
from firearrow.cli.running import loop_factory
from firearrow.cli.standalone import Standalone
from firearrow.hot import KIND, Record, decode_record
from firearrow.model.errors import ResponseCode
from firearrow.nameserver.config import NameServerConfig
from firearrow.net.client import RemotingClient
from firearrow.offline.check import check
from firearrow.offline.directory import StoreDirectory
from firearrow.wire import bodies, headers, java_json
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import request
from firearrow.wire.headers import PullFlag

if TYPE_CHECKING:
    from firearrow.wire.command import Command
    from firearrow.wire.header import Header

TIMEOUT_MS = 5_000
MESSAGES = 2_000
QUEUES = 4
say = Console(highlight=False).print


class Peer:
    """A program that talks to the servers, as a RocketMQ client would."""

    def __init__(self, nameserver: str) -> None:
        self._nameserver = nameserver
        self._remoting = RemotingClient(SystemClock())

    async def ask(self, address: str, code: int, header: Header, body: bytes = b"") -> Command:
        return await self._remoting.invoke(address, request(code, header, body), TIMEOUT_MS)

    async def broker_of(self, topic: str) -> str:
        """Where a topic lives, according to the name server."""
        header = headers.GetRouteInfoRequest(topic=topic)
        reply = await self.ask(self._nameserver, RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        assert reply.code == ResponseCode.SUCCESS, reply.remark
        route = java_json.decode(reply.body, bodies.TopicRouteData)
        address = route.broker_datas[0].master_addr
        assert address is not None
        return address

    async def send(self, broker: str, number: int) -> Command:
        tag = "paid" if number % 3 else "refunded"
        header = headers.SendMessageRequestV2(
            producer_group="demo",
            topic="orders",
            default_topic="TBW102",
            default_topic_queue_nums=QUEUES,
            queue_id=number % QUEUES,
            sys_flag=0,
            born_timestamp=SystemClock().now_ms(),
            flag=0,
            properties=f"TAGS\x01{tag}\x02KEYS\x01order-{number}\x02UNIQ_KEY\x01{number:032X}\x02",
        )
        body = f"order {number}".encode()
        reply = await self.ask(broker, RequestCode.SEND_MESSAGE_V2, header, body)
        assert reply.code == ResponseCode.SUCCESS, reply.remark
        return reply

    async def pull_all(self, broker: str, expression: str) -> list[Record]:
        """Read every queue to its end, filtered by the broker."""
        found: list[Record] = []
        for queue_id in range(QUEUES):
            offset = 0
            while True:
                header = headers.PullMessageRequest(
                    consumer_group="demo-consumer",
                    topic="orders",
                    queue_id=queue_id,
                    queue_offset=offset,
                    max_msg_nums=32,
                    sys_flag=int(PullFlag.SUBSCRIPTION),
                    commit_offset=0,
                    suspend_timeout_millis=0,
                    subscription=expression,
                    sub_version=0,
                )
                reply = await self.ask(broker, RequestCode.PULL_MESSAGE, header)
                if reply.code == ResponseCode.PULL_NOT_FOUND:
                    break
                answer = headers.PullMessageReply.from_ext(reply.ext)
                offset = answer.next_begin_offset
                at = 0
                while at < len(reply.body):
                    record = decode_record(reply.body, at)
                    at += record.size
                    found.append(record)
        return found

    async def close(self) -> None:
        await self._remoting.close()


def standalone(folder: Path) -> Standalone:
    names = NameServerConfig(
        listen_port=0,
        kv_config_path=folder / "kvConfig.json",
        config_store_path=folder / "namesrv.properties",
    )
    return Standalone(names, BrokerConfig(listen_port=0, store_path_root_dir=folder / "store"))


async def produce(servers: Standalone) -> None:
    peer = Peer(servers.nameserver.address)
    try:
        broker = await peer.broker_of("TBW102")
        started = time.perf_counter()
        await peer.send(broker, 0)
        window = 200  # in flight at once, as a producer that does not wait would have them
        for first in track(range(1, MESSAGES, window), description="2. Sending"):
            last = min(first + window, MESSAGES)
            await asyncio.gather(*(peer.send(broker, number) for number in range(first, last)))
        rate = MESSAGES / (time.perf_counter() - started)
        say(f"   {MESSAGES} orders acknowledged, which means on disk; {rate:,.0f} a second")
    finally:
        await peer.close()


async def consume(servers: Standalone) -> None:
    peer = Peer(servers.nameserver.address)
    try:
        broker = await peer.broker_of("orders")
        table = Table("filter", "messages", "first", "last", title="3. Consuming")
        for expression in ("*", "paid", "paid || refunded"):
            records = await peer.pull_all(broker, expression)
            wanted = MESSAGES if expression != "paid" else sum(1 for n in range(MESSAGES) if n % 3)
            assert len(records) == wanted, (expression, len(records))
            table.add_row(
                expression, str(len(records)), records[0].body.decode(), records[-1].body.decode()
            )
        say(table)
    finally:
        await peer.close()


async def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        started = time.perf_counter()
        servers = standalone(folder)
        await servers.start()
        took_ms = (time.perf_counter() - started) * 1000
        say(
            f"1. Name server {servers.nameserver.address} and broker {servers.broker.address}, "
            f"ready in {took_ms:.0f} ms (hot code: {KIND})"
        )
        await produce(servers)
        await consume(servers)
        await servers.stop()
        say("4. Stopped. The files are RocketMQ's own; the checker looks at every one of them:")
        report = check(StoreDirectory(folder / "store"), now_ms=SystemClock().now_ms())
        assert not report.findings, report.findings
        say("   nothing is wrong with them")
        again = standalone(folder)
        await again.start()
        say("5. Started again, on the same directory:")
        await consume(again)
        await again.stop()
    say("[green]Done: everything went over the wire, as RocketMQ clients do it.[/]")


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(main())
    sys.exit(0)
