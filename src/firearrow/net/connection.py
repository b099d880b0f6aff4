"""One connection: bytes to commands, replies to their requests, and limits on both.

    data_received -> FrameDecoder -> request  -> owner.handle(connection, command) -> send
                                  -> response -> the future that invoke() returned

Cost per read, not per command: one clock reading, one decode, one write for all replies.
Memory per connection is bounded: an unfinished frame by `frame_bytes_max`; replies by
`write_bytes_high` plus one reply, because a peer that does not read is not served; requests in
progress by `requests_max`. Commands that were decoded while the connection is blocked, or that
are more than one turn's worth, wait in `_waiting`, and nothing more is read until they are served.
What all peers together tie up is the owner's affair: it hears of every change in `held_bytes`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from firearrow.net.errors import ConnectionLost, RequestTimeout
from firearrow.wire.codes import Flag
from firearrow.wire.command import (
    FRAME_BYTES_MAX,
    HEADER_BYTES_MAX,
    Command,
    FrameDecoder,
    encode_frame,
    encode_head,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from firearrow.base.runtime import Clock, Timer

    # Takes whole frames from the front of what was read and serves them at once; how many bytes.
    Express = Callable[["Connection", bytes], int]

log = logging.getLogger(__name__)

WRITE_CORK_BYTES: Final = 64 * 1024  # replies of one read leave together, up to this much
JOIN_BYTES_MAX: Final = 128 * 1024  # joining less costs less than handing over the pieces,
PIECE_BYTES_MIN: Final = 16 * 1024  # unless they are so large
# One read may hold 26,000 requests; after so many the other connections have their turn.
TURN_COMMANDS_MAX: Final = 128
# As plain integers: an enum's `&` takes as long as decoding a reply.
_RESPONSE: Final = int(Flag.RESPONSE)
_ONEWAY: Final = int(Flag.ONEWAY)
CLOSE_GRACE_MS: Final = 5_000  # how long a closing connection may take to flush


@dataclass(frozen=True, slots=True)
class Limits:
    """What one peer, or all of them together, may cost. docs/guides/limits.md explains each."""

    frame_bytes_max: int = FRAME_BYTES_MAX
    header_bytes_max: int = HEADER_BYTES_MAX
    connections_max: int = 16_384
    held_bytes_max: int = 256 * 1024 * 1024  # half frames and unread replies, of all peers
    write_bytes_high: int = 1024 * 1024
    write_stall_ms: int = 30_000
    requests_max: int = 1_024  # in progress, per connection
    idle_ms: int = 120_000  # the Java server's limit; clients heartbeat every 30 s
    handshake_ms: int = 10_000
    drain_ms: int = 5_000


class Waiter(Protocol):
    """Whoever waits for an answer; a future does."""

    def done(self) -> bool:
        """True when it does not wait any more."""
        ...

    def set_result(self, result: Any, /) -> None: ...  # noqa: ANN401 - as a future's

    def set_exception(self, exception: Any, /) -> None: ...  # noqa: ANN401


class Owner(Protocol):
    """Whoever opened the connection: a server or a client."""

    def handle(self, connection: Connection, command: Command) -> None:
        """A request came in. Answer with `connection.send`, now or later."""
        ...

    def connected(self, connection: Connection) -> None: ...

    def disconnected(self, connection: Connection) -> None: ...

    def held(self, change: int) -> None:
        """Some connection ties up so many bytes more, or less, than before."""
        ...


class Connection(asyncio.Protocol):
    """A live peer. All methods belong to the event loop's thread."""

    def __init__(
        self, owner: Owner, clock: Clock, limits: Limits, express: Express | None = None
    ) -> None:
        self._owner = owner
        self._express = express
        self.abort_when_silent = False  # a whole request's time without a word: the line is dead
        self.note: object = None  # whatever its owner wants to remember about this peer
        self._clock = clock
        self._limits = limits
        self._decoder = FrameDecoder(limits.frame_bytes_max, limits.header_bytes_max)
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[Command] = deque()
        self._outgoing: list[bytes | memoryview] = []
        self._flush_comes = False
        self._outgoing_bytes = 0
        self._corked = False
        self._turn_comes = False
        self._stalled_since_ms: int | None = None
        # By opaque: who waits, when it is overdue, its time limit, and whatever the asker added.
        self.pending: dict[int, tuple[Waiter, int, int, object]] = {}
        self._deadline_timer: Timer | None = None
        self._deadline_ms = 0  # when the timer fires
        self._next_opaque = 0
        self._close_timer: Timer | None = None
        self._draining = False
        self._released = False
        self.held_bytes = 0
        self.in_progress = 0
        self.peer = "?"
        self.closed = asyncio.get_running_loop().create_future()
        self.close_reason = ""
        self.last_active_ms = self.last_heard_ms = clock.elapsed_ms()

    def __repr__(self) -> str:
        state = "closed" if self.closed.done() else "open"
        return f"<Connection {self.peer} {state}, {self.in_progress} in progress>"

    def fileno(self) -> int:
        """The number of its socket; -1 when it has none."""
        socket = None if self._transport is None else self._transport.get_extra_info("socket")
        return -1 if socket is None else int(socket.fileno())

    # --- events of the transport ------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods of asyncio.Transport, not its type.
        self._transport = transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(high=self._limits.write_bytes_high)
        self.peer = format_address(transport.get_extra_info("peername"))
        self._owner.connected(self)

    def data_received(self, data: bytes) -> None:
        self.last_active_ms = self.last_heard_ms = self._clock.elapsed_ms()
        if (
            self._express is not None
            and not self._waiting
            and not self.blocked
            and (not self._decoder.pending or self._decoder.completes(data))
        ):
            data = self._serve_express(self._express, data)
            if not data and not self.held_bytes:
                return
        commands = self._decoder.feed(data)
        if self._decoder.pending or self.held_bytes:
            self._account()
            if self._released:
                return
        if commands:
            self._waiting.extend(commands)
            # What precedes a broken frame is served before the connection goes.
            last_turn = self._decoder.failure is not None
            self._serve(len(self._waiting) if last_turn else TURN_COMMANDS_MAX)
        if self._decoder.failure is not None:
            self.abort(f"broken stream: {self._decoder.failure}")

    def _serve_express(self, express: Express, data: bytes) -> bytes:
        """Let the express lane take whole frames from the front; returns what it leaves."""
        if self._decoder.pending:
            data = self._decoder.take_pending(data)
        self._corked = True
        try:
            used = express(self, data)
        finally:
            self._corked = False
            if self._outgoing:
                self._flush()
        return data[used:] if used else data

    def pause_writing(self) -> None:
        self._stalled_since_ms = self._clock.elapsed_ms()
        self._adjust_reading()

    def resume_writing(self) -> None:
        self._stalled_since_ms = None
        self._serve()

    def eof_received(self) -> bool:
        return False  # the peer said all it had to say; nobody reads half-open remoting streams

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.close_reason:
            self.close_reason = f"lost: {exc}" if exc else "closed by the peer"
        if self._close_timer is not None:
            self._close_timer.cancel()
        self._release()
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
        pending, self.pending = self.pending, {}
        for answer, _, _, _ in pending.values():
            if not answer.done():
                answer.set_exception(ConnectionLost(f"{self.peer}: {self.close_reason}"))
        if not self.closed.done():
            self.closed.set_result(None)
        self._owner.disconnected(self)

    # --- serving ----------------------------------------------------------------------------

    @property
    def blocked(self) -> bool:
        """True while the peer must wait: it does not read, or too much of its work is going on."""
        return self._stalled_since_ms is not None or self.in_progress >= self._limits.requests_max

    @property
    def busy(self) -> bool:
        """True while something that was read is still to be answered, and can be."""
        return self.in_progress > 0 or (bool(self._waiting) and not self.blocked)

    def _serve(self, turn: int = TURN_COMMANDS_MAX) -> None:
        """Hand waiting commands on, in order, until none is left or the connection blocks.

        After `turn` of them the others come first.
        """
        if self._corked:
            return  # called from a handler further up the stack, which goes on by itself
        self._corked = True
        try:
            while self._waiting and not self.blocked and not self.closed.done():
                if turn == 0:
                    self._serve_next_turn()
                    break
                turn -= 1
                command = self._waiting.popleft()
                if command.flag & _RESPONSE:
                    self._answered(command)
                else:
                    self._owner.handle(self, command)
                if self._outgoing_bytes >= WRITE_CORK_BYTES:
                    self._flush()
        finally:
            self._corked = False
            self._flush()
        self._adjust_reading()

    def _serve_next_turn(self) -> None:
        if not self._turn_comes:
            self._turn_comes = True
            asyncio.get_running_loop().call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._turn_comes = False
        self._serve()

    def begin(self) -> None:
        """A request will be answered later."""
        self.in_progress += 1

    def finish(self) -> None:
        """A request that was begun is done with; whoever waited for room goes on."""
        self.in_progress -= 1
        assert self.in_progress >= 0
        self._serve()

    def _adjust_reading(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self.blocked or self._waiting or self._draining:
            if transport.is_reading():
                transport.pause_reading()
        elif not transport.is_reading():
            transport.resume_reading()

    # --- sending ----------------------------------------------------------------------------

    def send(self, command: Command) -> None:
        """Write a command. Replies made while a read is being served leave in one write."""
        self._outgoing.append(encode_frame(command))
        self._outgoing_bytes += len(self._outgoing[-1])
        if not self._corked:
            self._flush()

    def send_soon(self, command: Command) -> None:
        """Write a command at the end of this turn of the loop, with all others of the turn.

        For those who answer many requests at once that were put off together.
        """
        self.send_raw(encode_frame(command))

    def send_raw(self, frames: bytes) -> None:
        """Write frames that are bytes already, with all others of this turn of the loop."""
        self._outgoing.append(frames)
        self._outgoing_bytes += len(frames)
        if not self._corked and not self._flush_comes:
            self._flush_comes = True
            asyncio.get_running_loop().call_soon(self._flush)

    def send_slices(self, command: Command, slices: Sequence[memoryview]) -> None:
        """Write a command whose body is in pieces, none of which is copied if the peer reads."""
        size = sum(map(len, slices))
        head = encode_head(command, size)
        self._outgoing.append(head)
        self._outgoing.extend(slices)
        self._outgoing_bytes += len(head) + size
        if not self._corked:
            self._flush()

    def _flush(self) -> None:
        self._flush_comes = False
        if not self._outgoing:
            return
        outgoing, size = self._outgoing, self._outgoing_bytes
        self._outgoing, self._outgoing_bytes = [], 0
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self.last_active_ms = self._clock.elapsed_ms()
        if len(outgoing) == 1:
            transport.write(outgoing[0])
        elif size >= JOIN_BYTES_MAX or size >= len(outgoing) * PIECE_BYTES_MIN:
            transport.writelines(outgoing)
        else:
            transport.write(b"".join(outgoing))
        self._account()

    def invoke(self, command: Command, timeout_ms: int) -> asyncio.Future[Command]:
        """Send a request; the future gets the response, ConnectionLost or RequestTimeout.

        Requests of one turn of the loop leave together. One timer per connection watches all of
        them: a timer each would cost as much as the encoding.
        """
        answer: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        if self.closed.done() or self._transport is None or self._transport.is_closing():
            answer.set_exception(ConnectionLost(f"{self.peer}: {self.close_reason or 'closed'}"))
            return answer
        command.opaque = self.take_opaque()
        self.expect(command.opaque, answer, timeout_ms)
        self.send_raw(encode_frame(command))
        return answer

    def expect(self, opaque: int, answer: Waiter, timeout_ms: int, added: object = None) -> int:
        """A request with this number leaves in this turn; returns when it will be overdue."""
        deadline_ms = self._clock.elapsed_ms() + timeout_ms
        self.pending[opaque] = (answer, deadline_ms, timeout_ms, added)
        if self._deadline_timer is None or deadline_ms < self._deadline_ms:
            self._watch_deadlines(deadline_ms)
        return deadline_ms

    def invoke_oneway(self, command: Command) -> None:
        """Send a request that nobody answers."""
        assert command.flag & _ONEWAY
        command.opaque = self.take_opaque()
        self.send(command)

    def take_opaque(self) -> int:
        """The number of the next request."""
        opaque = self._next_opaque
        self._next_opaque = (opaque + 1) & 0x7FFFFFFF
        return opaque

    def _answered(self, response: Command) -> None:
        entry = self.pending.pop(response.opaque, None)
        if entry is None:
            log.debug("%s: answer %d came too late", self.peer, response.opaque)
            return
        if not entry[0].done():  # the caller may have given up
            entry[0].set_result(response)

    def _watch_deadlines(self, deadline_ms: int) -> None:
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
        self._deadline_ms = deadline_ms
        delay_ms = max(0, deadline_ms - self._clock.elapsed_ms())
        self._deadline_timer = self._clock.call_later(delay_ms, self._time_out)

    def _time_out(self) -> None:
        """Fail what is overdue; look again when the next request would be."""
        self._deadline_timer = None
        now_ms = self._clock.elapsed_ms()
        overdue = [opaque for opaque, entry in self.pending.items() if entry[1] <= now_ms]
        silent = False
        for opaque in overdue:
            answer, deadline_ms, timeout_ms, _ = self.pending.pop(opaque)
            silent |= self.last_heard_ms < deadline_ms - timeout_ms
            if not answer.done():
                answer.set_exception(
                    RequestTimeout(f"{self.peer} did not answer within {timeout_ms} ms")
                )
        if silent and self.abort_when_silent:
            self.abort("silent for too long")
        elif self.pending:
            self._watch_deadlines(min(entry[1] for entry in self.pending.values()))

    # --- memory -----------------------------------------------------------------------------

    def measure(self) -> int:
        """How much this peer ties up now: half a frame, and replies that it has not read."""
        held = 0
        if self._transport is not None and not self._released:
            held = len(self._decoder.pending) + self._transport.get_write_buffer_size()
        self.held_bytes = held
        return held

    def _account(self) -> None:
        before = self.held_bytes
        if (now := self.measure()) != before:
            self._owner.held(now - before)

    def _release(self) -> None:
        """Nothing that came or was to leave is needed any more."""
        self._released = True
        self._waiting.clear()
        self._outgoing.clear()
        self._decoder = FrameDecoder()
        self._account()

    # --- ending -----------------------------------------------------------------------------

    def overdue(self, elapsed_ms: int) -> str:
        """Why this connection should be closed now; empty when it should not."""
        stalled = self._stalled_since_ms
        if stalled is not None and elapsed_ms - stalled >= self._limits.write_stall_ms:
            return f"it did not read its replies for {elapsed_ms - stalled} ms"
        idle_ms = elapsed_ms - self.last_active_ms
        if idle_ms >= self._limits.idle_ms and not self.in_progress and not self.pending:
            return f"idle for {idle_ms} ms"
        return ""

    def drain(self) -> None:
        """Serve what has been read, read no more."""
        self._draining = True
        self._adjust_reading()

    def close(self, reason: str) -> None:
        """Send what is written, then hang up; a peer that does not read is cut off."""
        if self._transport is None or self._transport.is_closing():
            return
        self.close_reason = self.close_reason or reason
        self._flush()
        self._transport.close()
        self._close_timer = self._clock.call_later(CLOSE_GRACE_MS, self._transport.abort)

    def abort(self, reason: str) -> None:
        """Hang up at once."""
        if self._transport is None:
            return
        self.close_reason = self.close_reason or reason
        self._release()
        self._transport.abort()


def format_address(address: object) -> str:
    """``host:port`` of a socket address; IPv4 in IPv6 clothes is shown as IPv4."""
    if isinstance(address, tuple) and len(address) >= 2:
        host = str(address[0]).removeprefix("::ffff:")
        return f"[{host}]:{address[1]}" if ":" in host else f"{host}:{address[1]}"
    return str(address) if address else "?"
