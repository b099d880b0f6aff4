"""A network in memory that loses its way: slow, cut in one direction or both, and all from a seed.

It does what TCP does between machines that cannot trust their cables: bytes of one connection come
in order or not at all; what is sent into a cut waits until it is mended, and nobody is told; a
process that dies hangs up, a machine that loses its power says nothing.

    connect →  [ cut? ]  → listener        bytes → latency of this chunk → [ cut? ] → the other end
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import itertools
import os
from collections import deque
from typing import TYPE_CHECKING, Final, TypeVar

from firearrow.testing.virtual_loop import current_machine

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable

    from firearrow.testing.virtual_loop import Machine, VirtualLoop

_T = TypeVar("_T")

FIRST_FREE_PORT: Final = 20_000
FAST_MS: Final = (0.05, 2.0)
SLOW_MS: Final = (50.0, 800.0)


class MemoryListener:
    """A port that is open. Looks like an `asyncio.Server` to those who made it."""

    def __init__(
        self, network: MemoryNetwork, factory: Callable[[], asyncio.BaseProtocol], port: int
    ) -> None:
        self._network = network
        self.factory = factory
        self.machine = current_machine()
        self.host = "" if self.machine is None else self.machine.host
        self.port = port
        self.context = contextvars.copy_context()
        self.sockets = (self,)

    def getsockname(self) -> tuple[str, int]:
        return self.host, self.port

    def close(self) -> None:
        self._network.unlisten(self)

    def is_serving(self) -> bool:
        return self._network.listener(self.host, self.port) is self

    async def wait_closed(self) -> None:
        pass


class MemoryTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(
        self,
        network: MemoryNetwork,
        protocol: asyncio.BaseProtocol,
        machine: Machine | None,
        names: tuple[tuple[str, int], tuple[str, int]],
    ) -> None:
        super().__init__({"sockname": names[0], "peername": names[1]})
        self._network = network
        self._protocol = protocol
        self._closing = False
        self._is_lost = False
        self._reading = True
        self._unread: deque[bytes] = deque()
        self._in_flight = 0
        self._ended = False  # the other end sends no more
        self.machine = machine
        self.context = contextvars.copy_context()
        self.host = names[0][0]
        self.other: MemoryTransport | None = None
        self.arrives_s = 0.0  # when the last chunk to the other end is there
        self.under_way: deque[bytes | None] = deque()
        self.held_up = 0  # how many of them a cut has stopped

    # --- for protocols ----------------------------------------------------------------------

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        if self._unread or self._ended:
            self._network.loop.call_soon(self._read_on)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self._in_flight

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or not data:
            return
        chunk = bytes(data)
        self._in_flight += len(chunk)
        self._network.send(self, chunk)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._network.send(self, None)
            self._network.loop.call_soon(self.lose, None)

    def abort(self) -> None:
        self.close()

    # --- for the network --------------------------------------------------------------------

    def delivered(self, size: int) -> None:
        self._in_flight -= size

    def receive(self, chunk: bytes | None) -> None:
        """Bytes have arrived, or (None) the end of them."""
        if self._is_lost or self._closing:
            return
        if chunk is None:
            self._ended = True
        else:
            self._unread.append(chunk)
        self._read_on()

    def _read_on(self) -> None:
        while self._unread and self._reading and not self._closing:
            chunk = self._unread.popleft()
            assert isinstance(self._protocol, asyncio.Protocol)
            self._protocol.data_received(chunk)
        if self._ended and not self._unread and not self._closing:
            self._closing = True
            self.lose(None)

    def lose(self, error: Exception | None) -> None:
        """This end is over; the protocol hears it once."""
        if not self._is_lost:
            self._is_lost = self._closing = True
            self._network.forget(self)
            self._protocol.connection_lost(error)


class MemoryNetwork:
    """Every cable there is. `cut` and `mend` name machines by their hosts."""

    def __init__(self, loop: VirtualLoop, choose: random.Random) -> None:
        self.loop = loop
        self._choose = choose
        self._listeners: dict[tuple[str, int], MemoryListener] = {}
        self._ends: dict[MemoryTransport, None] = {}  # in the order in which they were made
        self._ports = itertools.count(FIRST_FREE_PORT)
        self._cuts: set[tuple[str, str]] = set()
        self._held_up: dict[MemoryTransport, None] = {}
        self._mended = asyncio.Event()
        self.slow: set[str] = set()  # hosts whose cables are bad
        loop.network = self

    # --- faults -----------------------------------------------------------------------------

    def cut(self, source: str, target: str) -> None:
        """Nothing more gets from one host to another; the other way is another cable."""
        self._cuts.add((source, target))
        self._mended.clear()

    def mend(self) -> None:
        """Everything is whole again; what waited goes on its way."""
        self._cuts.clear()
        self._mended.set()
        self.slow.clear()
        waiting, self._held_up = self._held_up, {}
        for end in waiting:
            count, end.held_up = end.held_up, 0
            for _ in range(count):
                self._set_out(end)

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cuts

    def hang_up(self, machine: Machine) -> None:
        """A process died: its listeners are gone, and the system ends its connections."""
        self._close_ports(machine)
        for end in [end for end in self._ends if end.machine is machine]:
            self.forget(end)
            self.send(end, None)

    def fall_silent(self, machine: Machine) -> None:
        """A machine lost its power: whoever talks to it hears nothing."""
        self._close_ports(machine)
        for end in [end for end in self._ends if end.machine is machine]:
            self.forget(end)

    def _close_ports(self, machine: Machine) -> None:
        for listener in list(self._listeners.values()):
            if listener.machine is machine:
                self.unlisten(listener)

    # --- listening and connecting -----------------------------------------------------------

    def listen(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> MemoryListener:
        port = port or next(self._ports)
        if (host, port) in self._listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        listener = MemoryListener(self, factory, port)
        listener.host = host
        self._listeners[host, port] = listener
        return listener

    def unlisten(self, listener: MemoryListener) -> None:
        if self.listener(listener.host, listener.port) is listener:
            del self._listeners[listener.host, listener.port]

    def listener(self, host: str, port: int) -> MemoryListener | None:
        return self._listeners.get((host, port))

    async def connect(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        machine = current_machine()
        source = "127.0.0.1" if machine is None else machine.host
        await asyncio.sleep(self._latency_s(source, host))
        while self.is_cut(source, host) or self.is_cut(host, source):
            await self._mended.wait()
            await asyncio.sleep(self._choose.uniform(0.0, 1.0))  # until TCP tries again
        listener = self.listener(host, port)
        if listener is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        near, far = (source, next(self._ports)), (host, port)
        protocol = factory()
        ours = MemoryTransport(self, protocol, machine, (near, far))
        self._ends[ours] = None
        listener.context.copy().run(self._accept, listener, ours, (far, near))
        protocol.connection_made(ours)
        return ours, protocol

    def _accept(
        self,
        listener: MemoryListener,
        theirs: MemoryTransport,
        names: tuple[tuple[str, int], tuple[str, int]],
    ) -> None:
        protocol = listener.factory()
        ours = MemoryTransport(self, protocol, listener.machine, names)
        ours.other, theirs.other = theirs, ours
        self._ends[ours] = None
        self.loop.call_soon(protocol.connection_made, ours)

    # --- moving bytes -----------------------------------------------------------------------

    def send(self, end: MemoryTransport, chunk: bytes | None) -> None:
        """Bytes, or the end of them, leave one end of a connection."""
        if end.other is not None:
            end.under_way.append(chunk)
            self._set_out(end)

    def _set_out(self, end: MemoryTransport) -> None:
        assert end.other is not None
        latency_s = self._latency_s(end.host, end.other.host)
        end.arrives_s = max(end.arrives_s, self.loop.time() + latency_s)
        self.loop.call_at(end.arrives_s, self._arrive, end, context=contextvars.Context())

    def _arrive(self, end: MemoryTransport) -> None:
        other = end.other
        assert other is not None
        if self.is_cut(end.host, other.host):
            end.held_up += 1
            self._held_up[end] = None
            return
        chunk = end.under_way.popleft()
        if chunk is not None:
            end.delivered(len(chunk))
        if other in self._ends:
            self._at(other, other.receive, chunk)
        elif chunk is not None and end in self._ends and self._is_up(other.host):
            # Nobody there knows this connection any more.
            self._at(end, end.lose, ConnectionResetError(errno.ECONNRESET, "reset"))

    def _is_up(self, host: str) -> bool:
        return any(of == host for of, _ in self._listeners)

    def _at(self, end: MemoryTransport, call: Callable[[_T], None], what: _T) -> None:
        """Call on the machine of that end, if it runs."""
        self.loop.call_soon(call, what, context=end.context.copy())

    def forget(self, end: MemoryTransport) -> None:
        self._ends.pop(end, None)

    def _latency_s(self, source: str, target: str) -> float:
        if source == target:
            return 0.00001
        span = SLOW_MS if self.slow & {source, target} else FAST_MS
        return self._choose.uniform(*span) / 1_000
