"""A relay on loopback that notes the first byte of each connection and passes everything on."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from types import TracebackType

# The first byte of a TLS connection (a handshake record); a plain remoting frame starts with 0.
TLS_HANDSHAKE: Final = 0x16
CHUNK_BYTES: Final = 1 << 16


class Relay:
    """Stands between a client and a server to see how they open and close their connections.

    Attributes:
        port: Where clients connect.
        first_bytes: The first byte of each connection, in order of arrival.
        ended_by_server: How many connections the server has closed.
    """

    def __init__(self, target_port: int, *, hides_the_end: bool = False) -> None:
        """Prepare to pass everything on to a port of this machine.

        Args:
            target_port: Where the server listens.
            hides_the_end: A client that goes away is not reported to the server, as when its
                machine loses power: only silence tells.
        """
        self.port = 0
        self.first_bytes: list[int] = []
        self.ended_by_server = 0
        self._target_port = target_port
        self._hides_the_end = hides_the_end
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._open = asyncio.Event()
        self._open.set()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="relay")

    @property
    def address(self) -> str:
        """What clients are given."""
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        """Listen."""
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close everything."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def cut(self) -> None:
        """Pass nothing on any more, in either direction; connections seem to be there still."""
        self._loop.call_soon_threadsafe(self._open.clear)

    def heal(self) -> None:
        """Pass on again what was held back, and what comes."""
        self._loop.call_soon_threadsafe(self._open.set)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._pass_on, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        async with server:
            await self._stop.wait()

    async def _pass_on(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        await self._open.wait()
        try:
            server, to_server = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            to_client.close()
            return
        first = await client.read(CHUNK_BYTES)
        self.first_bytes.extend(first[:1])
        to_server.write(first)
        try:
            with contextlib.suppress(asyncio.CancelledError):
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._copy_requests(client, to_server))
                    tasks.create_task(self._copy_replies(server, to_client))
        finally:
            to_client.close()
            to_server.close()

    async def _copy_requests(
        self, client: asyncio.StreamReader, to_server: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(OSError):
            await copy(client, to_server, self._open)
        if not self._hides_the_end:
            to_server.close()

    async def _copy_replies(
        self, server: asyncio.StreamReader, to_client: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(OSError):
            await copy(server, to_client, self._open)
        self.ended_by_server += 1
        to_client.close()


async def copy(
    source: asyncio.StreamReader, target: asyncio.StreamWriter, is_open: asyncio.Event
) -> None:
    """Pass on what arrives until the end, while the way is open."""
    while chunk := await source.read(CHUNK_BYTES):
        await is_open.wait()
        target.write(chunk)
        await target.drain()
