"""The other end: one connection per address, made when first needed, made anew when lost."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import ssl
import weakref
from typing import TYPE_CHECKING, Final

from firearrow.base.runtime import time_limit
from firearrow.net.connection import CLOSE_GRACE_MS, Connection, Limits
from firearrow.net.errors import ConnectFailed, RequestTimeout
from firearrow.wire.command import Command, reply_to

if TYPE_CHECKING:
    from collections.abc import Callable

    from firearrow.base.runtime import Clock
    from firearrow.net.connection import Express
    from firearrow.net.router import Router

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_MS = 3_000  # the Java client's


class RemotingClient:
    """Asks servers, and answers what they ask back over the same connections."""

    def __init__(
        self,
        clock: Clock,
        *,
        router: Router | None = None,
        limits: Limits | None = None,
        tls: ssl.SSLContext | None = None,
        on_connect: Callable[[str], None] | None = None,
        express: Express | None = None,
    ) -> None:
        self._clock = clock
        self._express = express
        self._on_connect = on_connect
        self._router = router
        self._limits = limits or Limits()
        self._tls = tls
        self._connections: dict[str, Connection] = {}
        self._connecting: dict[str, asyncio.Task[Connection]] = {}
        self._closed = False
        _clients.add(self)

    def answer_with(self, router: Router) -> None:
        """Who answers what servers ask, from now on."""
        self._router = router

    async def invoke(self, address: str, command: Command, timeout_ms: int) -> Command:
        """Send a request and wait for its response; connecting counts against the time limit."""
        connection = self.live(address)
        if connection is None:
            started_ms = self._clock.elapsed_ms()
            try:
                async with time_limit(self._clock, timeout_ms):
                    connection = await self.connection(address)
            except TimeoutError:
                raise RequestTimeout(
                    f"connecting to {address} took all of {timeout_ms} ms"
                ) from None
            timeout_ms -= self._clock.elapsed_ms() - started_ms
        return await connection.invoke(command, timeout_ms)

    async def invoke_oneway(self, address: str, command: Command) -> None:
        """Send a request that nobody answers; returns when it is on its way."""
        (await self.connection(address)).invoke_oneway(command)

    async def connection(self, address: str) -> Connection:
        """The live connection to `address`; callers that come together share one attempt."""
        if (connection := self.live(address)) is not None:
            return connection
        if self._closed:
            raise ConnectFailed(f"{address}: this client is closed")
        attempt = self._connecting.get(address)
        if attempt is None:
            attempt = asyncio.create_task(self._connect(address), name=f"connect-{address}")
            self._connecting[address] = attempt
            attempt.add_done_callback(lambda done: self._connected_or_not(address, done))
        try:
            return await asyncio.shield(attempt)
        except asyncio.CancelledError:
            if self._closed and attempt.cancelled():  # close() ended the attempt, not the caller
                raise ConnectFailed(f"{address}: this client is closed") from None
            raise

    def _connected_or_not(self, address: str, attempt: asyncio.Task[Connection]) -> None:
        self._connecting.pop(address, None)
        if not attempt.cancelled():
            attempt.exception()  # heard, also when every caller has given up by now

    async def _connect(self, address: str) -> Connection:
        host, port = split_address(address)
        loop = asyncio.get_running_loop()
        try:
            async with time_limit(self._clock, CONNECT_TIMEOUT_MS):
                _, connection = await loop.create_connection(
                    lambda: Connection(self, self._clock, self._limits, self._express),
                    host,
                    port,
                    ssl=self._tls,
                    server_hostname=host if self._tls is not None else None,
                )
        except (OSError, TimeoutError, ssl.SSLError) as error:
            reason = str(error) or f"no answer within {CONNECT_TIMEOUT_MS} ms"
            raise ConnectFailed(
                f"cannot connect to {address}: {reason}. Is the server running there?"
            ) from error
        connection.abort_when_silent = True  # nobody may ever tell us that the line is dead
        self._connections[address] = connection
        if self._on_connect is not None:
            self._on_connect(address)
        return connection

    def live(self, address: str) -> Connection | None:
        """The connection to `address` if there is one; nothing is attempted."""
        connection = self._connections.get(address)
        return None if connection is None or connection.closed.done() else connection

    def hang_up(self, address: str, reason: str) -> None:
        """End the connection to `address`, if there is one; the next request makes a new one."""
        if (connection := self.live(address)) is not None:
            connection.close(reason)

    async def close(self) -> None:
        """Hang up everywhere and wait until it is done."""
        self._closed = True
        for attempt in list(self._connecting.values()):
            attempt.cancel()
        await asyncio.gather(*self._connecting.values(), return_exceptions=True)
        connections = list(self._connections.values())
        for connection in connections:
            connection.close("this client is closed")
        if connections:
            ended = [connection.closed for connection in connections]
            await asyncio.wait(ended, timeout=2 * CLOSE_GRACE_MS / 1000)

    def detach(self) -> None:
        """In a child after a fork: let go of the parent's connections without ending them.

        While a child holds a copy of a socket, the server does not learn that the parent hung up.
        The number stays taken, so that nothing else of the child is closed by mistake later.
        """
        nothing = os.open(os.devnull, os.O_RDWR)
        try:
            for connection in self._connections.values():
                with contextlib.suppress(OSError):
                    os.dup2(nothing, connection.fileno(), inheritable=False)
        finally:
            os.close(nothing)

    # --- owning connections (net.connection.Owner) ------------------------------------------

    def handle(self, connection: Connection, command: Command) -> None:
        if self._router is not None:
            self._router.handle(connection, command)
        elif not command.flag & 2:
            connection.send(reply_to(command, 3, remark="this client answers no requests"))

    def connected(self, connection: Connection) -> None:
        pass

    def disconnected(self, connection: Connection) -> None:
        for address, known in list(self._connections.items()):
            if known is connection:
                del self._connections[address]

    def held(self, change: int) -> None:
        pass  # servers of our choice; each frame is bounded by its own limit


_clients: Final[weakref.WeakSet[RemotingClient]] = weakref.WeakSet()


def _detach_all() -> None:
    for client in list(_clients):
        client.detach()


os.register_at_fork(after_in_child=_detach_all)


def split_address(address: str) -> tuple[str, int]:
    """``host:port`` or ``[v6]:port`` taken apart; ValueError says what is wrong."""
    host, colon, port = address.strip().rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{address!r} is not an address: host:port expected, as 127.0.0.1:9876")
    return host.removeprefix("[").removesuffix("]"), int(port)
