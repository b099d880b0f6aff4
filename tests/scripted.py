"""A name server and brokers that say what a test tells them to."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from firearrow.base.runtime import Service, SystemClock
from firearrow.model.errors import ResponseCode
from firearrow.model.topic import BrokerData, QueueData
from firearrow.net.router import Router
from firearrow.net.server import Server
from firearrow.wire import java_json
from firearrow.wire.bodies import TopicRouteData
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import Command, reply_to

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from firearrow.net.connection import Connection
    from firearrow.net.router import Handler

    Answer = Callable[[Command], Command | None]


def stored(command: Command, code: int = ResponseCode.SUCCESS) -> Command:
    """The answer of a broker that has taken a message."""
    answer = reply_to(command, code)
    answer.ext = {"msgId": "0" * 32, "queueId": command.ext["e"], "queueOffset": "7"}
    return answer


class Peer:
    """One server; `answer` is asked for nearly everything, heartbeats are heard."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked: list[Command] = []
        self.tasks = Service("peer", SystemClock())
        codes = (
            RequestCode.SEND_MESSAGE_V2,
            RequestCode.SEND_BATCH_MESSAGE,
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP,
            RequestCode.QUERY_CONSUMER_OFFSET,
            RequestCode.LITE_PULL_MESSAGE,
        )
        self.handlers: dict[int, Handler] = {
            **dict.fromkeys(codes, self._asked),
            RequestCode.HEART_BEAT: lambda command, _: reply_to(command),
            RequestCode.UNREGISTER_CLIENT: lambda command, _: reply_to(command),
        }
        router = Router(dict.fromkeys(self.handlers, self._dispatch), self.tasks)
        self.server = Server(router, SystemClock(), host="127.0.0.1", port=0)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def _dispatch(
        self, command: Command, connection: Connection
    ) -> Command | Awaitable[Command | None] | None:
        return self.handlers[command.code](command, connection)

    def _asked(self, command: Command, _: Connection) -> Command | None:
        self.asked.append(command)
        return self.answer(command)


@asynccontextmanager
async def running(*answers: Answer) -> AsyncIterator[list[Peer]]:
    """Servers, one for each way of answering."""
    peers = [Peer(answer) for answer in answers]
    for peer in peers:
        await peer.server.start()
    try:
        yield peers
    finally:
        for peer in peers:
            await peer.server.stop()
            await peer.tasks.stop_tasks()


def route_to(addresses: dict[str, str], queues: int = 2) -> Answer:
    """What a name server says that knows these brokers."""

    def answer(command: Command) -> Command:
        data = TopicRouteData(
            queue_datas=tuple(
                QueueData(broker_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=6)
                for name in addresses
            ),
            broker_datas=tuple(
                BrokerData(cluster="c", broker_name=name, broker_addrs={0: address})
                for name, address in addresses.items()
            ),
        )
        return reply_to(command, body=java_json.encode(data))

    return answer
