"""A listener: accepts, tells TLS from plain text, keeps the limits, drains on stop.

    accept -> greeting (no byte seen yet) -> peek at the first byte -> TLS or plain -> Connection

A peer that connects and says nothing costs a descriptor and a small entry, no buffers.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from firearrow.base.errors import ConfigError
from firearrow.base.runtime import Service
from firearrow.base.telemetry import RateLimitedLog
from firearrow.net.connection import Connection, Limits, format_address
from firearrow.net.tls import HANDSHAKE, TlsPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

    from firearrow.base.runtime import Clock
    from firearrow.net.connection import Express
    from firearrow.net.router import Router
    from firearrow.wire.command import Command

log = logging.getLogger(__name__)

ACCEPT_BATCH: Final = 256  # per turn of the loop, so that a flood of connects starves nobody
ACCEPT_PAUSE_MS: Final = 200  # after running out of descriptors
BACKLOG: Final = 4096
SWEEPS_PER_IDLE_LIMIT: Final = 8
OUT_OF_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


@dataclass(frozen=True, slots=True)
class ServerStatistics:
    """How a listener is doing. `rejected` counts peers over the connection limit.

    `held_bytes` is what peers tie up: frames that they have not finished, replies that they have
    not read.
    """

    connections: int
    greeting: int
    held_bytes: int
    accepted: int
    rejected: int
    broken: int


class MemoryPort(Protocol):
    """A port that no other process can reach."""

    port: int

    def close(self) -> None: ...


@runtime_checkable
class ServesInMemory(Protocol):
    """An event loop with a network of its own, as `firearrow.testing` has one."""

    def serve_in_memory(
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> MemoryPort: ...


class Server:
    """Serves one port with one router."""

    def __init__(
        self,
        router: Router,
        clock: Clock,
        *,
        host: str,
        port: int,
        limits: Limits | None = None,
        tls: TlsPolicy | None = None,
        on_close: Callable[[Connection], None] | None = None,
        express: Express | None = None,
    ) -> None:
        self._router = router
        self._express = express
        self._clock = clock
        self._limits = limits or Limits()
        self._tls = tls or TlsPolicy()
        self._on_close = on_close
        self._tasks = Service("server", clock)
        self._listener: socket.socket | None = None
        self._memory_port: MemoryPort | None = None
        self._connections: set[Connection] = set()
        self._greeting: dict[socket.socket, int] = {}  # accepted and silent -> since when
        self._adopting: dict[Connection, asyncio.Task[None]] = {}  # in the TLS handshake
        self._held_bytes = 0  # at most; replies leave without a word
        self._accepted = 0
        self._rejected = 0
        self._broken = 0
        self._complaints = RateLimitedLog(log)
        self.host = host
        self.port = port

    # --- life -------------------------------------------------------------------------------

    async def start(self) -> None:
        """Bind and listen; `port` then is the real one, also when 0 was asked for."""
        loop = asyncio.get_running_loop()
        if isinstance(loop, ServesInMemory):
            self._memory_port = loop.serve_in_memory(self._make, self.host, self.port)
            self.port = self._memory_port.port
        else:
            self._open_socket(loop)
        interval_ms = max(1, self._limits.idle_ms // SWEEPS_PER_IDLE_LIMIT)
        interval_ms = min(interval_ms, max(1, self._limits.write_stall_ms // 4))
        self._tasks.every(interval_ms, self._sweep, name="sweep")

    def _make(self) -> Connection:
        return Connection(self, self._clock, self._limits, self._express)

    def _open_socket(self, loop: asyncio.AbstractEventLoop) -> None:
        raise_descriptor_limit()
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setblocking(False)  # noqa: FBT003
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((self.host, self.port))
            listener.listen(BACKLOG)
        except OSError as error:
            listener.close()
            raise ConfigError(
                f"cannot listen on {self.host}:{self.port}: {error.strerror or error}; "
                "choose another port, or stop the program that has it"
            ) from error
        self._listener = listener
        self.port = listener.getsockname()[1]
        loop.add_reader(listener, self._accept)

    async def stop(self) -> None:
        """Accept no more, let requests in progress finish, then hang up."""
        self._stop_accepting()
        for sock in list(self._greeting):
            self._dismiss(sock)
        for task in self._adopting.values():
            task.cancel()
        for connection in self._connections:
            connection.drain()
        deadline_ms = self._clock.elapsed_ms() + self._limits.drain_ms
        while any(connection.busy for connection in self._connections):
            if self._clock.elapsed_ms() >= deadline_ms:
                log.warning("requests are still in progress after %d ms", self._limits.drain_ms)
                break
            await self._clock.sleep(10)
        waiting = [connection.closed for connection in self._connections]
        for connection in list(self._connections):
            connection.close("the server stops")
        if waiting:
            await asyncio.wait(waiting, timeout=self._limits.drain_ms / 1000)
        for connection in list(self._connections):
            connection.abort("the server stops")
        await self._tasks.stop_tasks()

    def statistics(self) -> ServerStatistics:
        return ServerStatistics(
            connections=len(self._connections),
            greeting=len(self._greeting) + len(self._adopting),
            held_bytes=self._measure(),
            accepted=self._accepted,
            rejected=self._rejected,
            broken=self._broken,
        )

    # --- accepting --------------------------------------------------------------------------

    def _accept(self) -> None:
        assert self._listener is not None
        for _ in range(ACCEPT_BATCH):
            try:
                sock, address = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:
                if error.errno not in OUT_OF_DESCRIPTORS:
                    raise
                self._pause_accepting(error)
                return
            self._accepted += 1
            if self._open_count() >= self._limits.connections_max:
                self._rejected += 1
                self._complain(
                    "%s turned away: %d connections are open, the limit (connectionsMax)",
                    format_address(address),
                    self._limits.connections_max,
                )
                sock.close()
                continue
            sock.setblocking(False)  # noqa: FBT003
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._greeting[sock] = self._clock.elapsed_ms()
            asyncio.get_running_loop().add_reader(sock, self._greet, sock)

    def _open_count(self) -> int:
        return len(self._connections) + len(self._greeting) + len(self._adopting)

    def _pause_accepting(self, error: OSError) -> None:
        """No descriptors left: those who are here go on, the rest waits in the backlog."""
        assert self._listener is not None
        asyncio.get_running_loop().remove_reader(self._listener)
        self._complain("cannot accept connections now (%s); raise the limit: ulimit -n", error)

        def resume() -> None:
            if self._listener is not None:
                asyncio.get_running_loop().add_reader(self._listener, self._accept)

        self._clock.call_later(ACCEPT_PAUSE_MS, resume)

    def _stop_accepting(self) -> None:
        if self._memory_port is not None:
            self._memory_port.close()
            self._memory_port = None
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    def _greet(self, sock: socket.socket) -> None:
        """The first byte is there: TLS or plain text?"""
        try:
            first = sock.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            first = b""
        if not first:
            self._dismiss(sock)
            return
        if refusal := self._tls.refusal(first[0]):
            self._complain("%s closed: %s", _peer_of(sock), refusal)
            self._dismiss(sock)
            return
        self._unwatch(sock)
        connection = self._make()
        task = self._tasks.spawn(
            self._adopt(connection, sock, use_tls=first[0] == HANDSHAKE), name="adopt"
        )
        self._adopting[connection] = task

        # Not in a `finally` of the task: one that is cancelled before its first step runs nothing.
        def done(_: object) -> None:
            if self._adopting.pop(connection, None) is not None:  # it never became a connection
                sock.close()

        task.add_done_callback(done)

    async def _adopt(self, connection: Connection, sock: socket.socket, *, use_tls: bool) -> None:
        """Make a connection of a socket; it counts as greeting until the handshake is done."""
        peer = _peer_of(sock)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                sock,
                ssl=self._tls.context() if use_tls else None,
                ssl_handshake_timeout=self._limits.handshake_ms / 1000 if use_tls else None,
            )
        except (OSError, ssl.SSLError, ConfigError) as error:
            self._broken += 1
            self._complain("%s closed: %s", peer, str(error) or type(error).__name__)

    def _dismiss(self, sock: socket.socket) -> None:
        self._unwatch(sock)
        sock.close()

    def _unwatch(self, sock: socket.socket) -> None:
        asyncio.get_running_loop().remove_reader(sock)
        del self._greeting[sock]

    # --- owning connections (net.connection.Owner) ------------------------------------------

    def handle(self, connection: Connection, command: Command) -> None:
        self._router.handle(connection, command)

    def connected(self, connection: Connection) -> None:
        self._adopting.pop(connection, None)
        self._connections.add(connection)

    def disconnected(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if connection.close_reason.startswith(("broken", "too many", "it did not read")):
            self._broken += 1
            self._complain("%s closed: %s", connection.peer, connection.close_reason)
        elif log.isEnabledFor(logging.DEBUG):
            log.debug("%s closed: %s", connection.peer, connection.close_reason)
        if self._on_close is not None:
            self._on_close(connection)

    def held(self, change: int) -> None:
        self._held_bytes += change
        if change > 0 and self._held_bytes > self._limits.held_bytes_max:
            self._make_room()

    def _measure(self) -> int:
        self._held_bytes = sum(connection.measure() for connection in self._connections)
        return self._held_bytes

    def _make_room(self) -> None:
        """Too much is held: whoever holds the most goes, since honest frames are soon whole."""
        self._measure()
        while self._held_bytes > self._limits.held_bytes_max:
            largest = max(self._connections, key=lambda connection: connection.held_bytes)
            largest.abort(
                f"too many bytes are held for all peers together, for this one {largest.held_bytes}"
            )

    # --- watching ---------------------------------------------------------------------------

    def _sweep(self) -> None:
        now_ms = self._clock.elapsed_ms()
        for sock, since_ms in list(self._greeting.items()):
            if now_ms - since_ms >= self._limits.idle_ms:
                self._dismiss(sock)
        for connection in list(self._connections):
            if reason := connection.overdue(now_ms):
                connection.abort(reason)

    def _complain(self, message: str, *args: object) -> None:
        self._complaints.warning(self._clock.elapsed_ms(), message, *args)


def _peer_of(sock: socket.socket) -> str:
    try:
        return format_address(sock.getpeername())
    except OSError:
        return "?"


def raise_descriptor_limit() -> int:
    """Use as many descriptors as the system allows this process; returns how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError):  # some systems announce more than they give
            pass
    return soft
