"""What a scenario knows of the cluster that it runs on: ours in this process, or Apache's."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tests.admin_requests import create

from firearrow import aio
from firearrow.base.runtime import SystemClock
from firearrow.net.client import RemotingClient
from firearrow.wire import bodies, java_json
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import Command, request
from firearrow.wire.headers import GetRouteInfoRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from pathlib import Path

    from firearrow.wire.header import Header

PATIENCE_S: Final = 40  # Apache's brokers take their time on a busy machine
ASK_MS: Final = 10_000
FROM_FIRST: Final = aio.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


@dataclass
class Cluster:
    """A name server with one broker.

    Attributes:
        nameservers: What clients are given.
        broker_address: Where administrators' questions go.
        hurry: Lets delayed messages come sooner, where time can be moved.
        folder: For files of clients.
        client: For what clients do not ask themselves.
    """

    nameservers: str
    broker_address: str
    hurry: Callable[[], None]
    folder: Path
    client: RemotingClient = field(default_factory=lambda: RemotingClient(SystemClock()))
    _run: str = field(default_factory=lambda: secrets.token_hex(3))
    _numbers: Any = field(default_factory=itertools.count)

    def unique(self, stem: str) -> str:
        """A name that nobody has used."""
        return f"{stem}-{self._run}-{next(self._numbers)}"

    async def topic(self, stem: str = "topic", queues: int = 4) -> str:
        """A new topic that clients find."""
        name = self.unique(stem)
        await self.create_topic(name, queues)
        return name

    async def create_topic(self, name: str, queues: int = 4) -> None:
        answer = await self.ask(create(name, queues))
        assert answer.code == 0, answer.remark
        await self.until_known(name)

    async def until_known(self, topic: str) -> None:
        """Wait until the name server has heard of a topic."""
        question = GetRouteInfoRequest(topic=topic, accept_standard_json_only=True)

        async def known() -> bool:
            command = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, question)
            return (await self.client.invoke(self.nameservers, command, ASK_MS)).code == 0

        await self.until_async(known, f"a route of {topic}")

    async def ask(self, command: Command) -> Command:
        """Ask the broker."""
        return await self.client.invoke(self.broker_address, command, ASK_MS)

    async def document(
        self, code: RequestCode, header: Header | None = None, body: bytes = b""
    ) -> Any:
        """The document that answers a question to the broker."""
        answer = await self.ask(request(code, header, body))
        assert answer.code == 0, answer.remark
        return java_json.decode(answer.body, bodies.RESPONSE_BODIES[code])

    # --- patience ---------------------------------------------------------------------------

    async def until(
        self, true: Callable[[], object], what: str = "the condition", *, hurry: bool = False
    ) -> None:
        """Wait for something that happens by itself; no scenario sleeps for a fixed time."""

        async def ask() -> object:
            return true()

        await self.until_async(ask, what, hurry=hurry)

    async def until_async(
        self, true: Callable[[], Awaitable[object]], what: str, *, hurry: bool = False
    ) -> None:
        deadline = asyncio.get_running_loop().time() + PATIENCE_S
        while not await true():
            assert asyncio.get_running_loop().time() < deadline, f"{what} did not come true"
            if hurry:
                self.hurry()
            await asyncio.sleep(0.01)

    # --- clients ----------------------------------------------------------------------------

    def producer(self, group: str = "", **options: Any) -> aio.Producer:
        options.setdefault("timeout_ms", 10_000)
        return aio.Producer(group or self.unique("p"), nameservers=self.nameservers, **options)

    def push(self, group: str = "", **options: Any) -> aio.PushConsumer:
        options.setdefault("consume_from_where", FROM_FIRST)
        return aio.PushConsumer(group or self.unique("g"), nameservers=self.nameservers, **options)

    def pull(self, group: str = "", **options: Any) -> aio.PullConsumer:
        options.setdefault("consume_from_where", FROM_FIRST)
        return aio.PullConsumer(group or self.unique("g"), nameservers=self.nameservers, **options)

    async def fill(self, topic: str, texts: Iterable[str], **more: Any) -> list[aio.SendReceipt]:
        """Send some texts, one after the other."""
        async with self.producer() as producer:
            return [await producer.send(aio.Message(topic, text, **more)) for text in texts]

    async def close(self) -> None:
        await self.client.close()


class Inbox:
    """A handler that keeps what it gets, and fails while it is told to."""

    def __init__(self) -> None:
        self.messages: list[aio.ReceivedMessage] = []

    async def __call__(self, message: aio.ReceivedMessage) -> None:
        self.messages.append(message)

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.messages]

    def counts(self) -> Counter[str]:
        return Counter(self.texts)

    def grew(self, count: int) -> bool:
        return len(self.messages) >= count

    def has(self, texts: Iterable[str]) -> bool:
        return set(texts) <= set(self.texts)


def numbered(count: int, stem: str = "m") -> list[str]:
    return [f"{stem}{number}" for number in range(count)]
