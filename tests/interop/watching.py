"""A relay before a broker that reads every frame, and lets a test act at one of them.

    client ──▶ 127.0.0.1:port ──▶ 127.0.0.2:port ──▶ broker       the broker says 127.0.0.1

A trap waits for a request of some kind. It springs when the request comes (the broker never sees
it) or when its answer comes (the client never sees that): what happened, and who knows of it, is
certain.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

from firearrow.wire.command import Command, FrameDecoder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

BROKER_HOST: Final = "127.0.0.2"
CLIENT_HOST: Final = "127.0.0.1"
CHUNK_BYTES: Final = 1 << 20


@dataclass
class Trap:
    """Acts once.

    Attributes:
        name: For messages.
        wants: Which request it waits for.
        number: The how manieth of them.
        at_answer: Whether it waits for the answer as well.
        action: Called with the port that the client's end of the connection has.
        passes_on: Whether the frame goes on its way afterwards.
    """

    name: str
    wants: Callable[[Command], bool]
    action: Callable[[int], None]
    number: int = 1
    at_answer: bool = False
    passes_on: bool = False
    sprung: threading.Event = field(default_factory=threading.Event)
    seen: int = 0

    def is_for(self, command: Command) -> bool:
        if self.sprung.is_set() or not self.wants(command):
            return False
        self.seen += 1
        return self.seen == self.number

    def spring(self, port: int) -> None:
        self.sprung.set()
        self.action(port)


class Watch:
    """The relay, in a thread of its own."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.traps: list[Trap] = []
        self.failures: list[BaseException] = []
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch")

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connected, CLIENT_HOST, self.port)
        self._ready.set()
        async with server:
            await self._stop.wait()

    async def _connected(
        self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter
    ) -> None:
        to_server: asyncio.StreamWriter | None = None
        waiting: dict[int, Trap] = {}
        port = to_client.get_extra_info("peername")[1]
        try:
            server, to_server = await asyncio.open_connection(BROKER_HOST, self.port)
            there = asyncio.create_task(self._requests(client, to_server, waiting, port))
            back = asyncio.create_task(self._answers(server, to_client, waiting, port))
            await asyncio.wait({there, back}, return_when=asyncio.FIRST_COMPLETED)
            for one in (there, back):
                one.cancel()
            await asyncio.gather(there, back, return_exceptions=True)
        except OSError:
            pass  # the broker is away
        finally:
            for writer in (to_client, to_server):
                if writer is not None:
                    writer.close()

    async def _requests(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        waiting: dict[int, Trap],
        port: int,
    ) -> None:
        async for frame, command in _frames(source):
            trap = next((trap for trap in self.traps if trap.is_for(command)), None)
            if trap is not None and trap.at_answer:
                waiting[command.opaque] = trap
            elif trap is not None and not self._spring(trap, port):
                return
            target.write(frame)
            await target.drain()

    async def _answers(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        waiting: dict[int, Trap],
        port: int,
    ) -> None:
        async for frame, command in _frames(source):
            trap = waiting.pop(command.opaque, None)
            if trap is not None and not self._spring(trap, port):
                return
            target.write(frame)
            await target.drain()

    def _spring(self, trap: Trap, port: int) -> bool:
        """Whether the frame goes on."""
        try:
            trap.spring(port)
        except BaseException as error:
            self.failures.append(error)
            raise
        return trap.passes_on


async def _frames(source: asyncio.StreamReader) -> AsyncIterator[tuple[bytes, Command]]:
    """Whole frames, as they came and as commands."""
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        while True:
            length = await source.readexactly(4)
            frame = length + await source.readexactly(int.from_bytes(length, "big"))
            (command,) = FrameDecoder().feed(frame)
            yield frame, command
