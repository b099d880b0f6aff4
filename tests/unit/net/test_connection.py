from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, Any

import pytest

from firearrow.net.connection import CLOSE_GRACE_MS, Connection, Limits, format_address
from firearrow.net.errors import ConnectionLost, RequestTimeout
from firearrow.testing import ManualClock
from firearrow.wire.codes import Flag
from firearrow.wire.command import Command, FrameDecoder, encode_frame, reply_to, request

if TYPE_CHECKING:
    from collections.abc import Callable


class ListTransport(asyncio.Transport):
    """The peer as a list of bytes; full once more than `room` bytes wait to be read."""

    def __init__(self, protocol: Connection, room: int = 1 << 30) -> None:
        super().__init__({"peername": ("10.0.0.7", 4711)})
        self.protocol = protocol
        self.room = room
        self.writes: list[bytes] = []
        self.reading = True
        self.closing = False
        self.aborted = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        del high, low

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))
        if sum(map(len, self.writes)) > self.room:
            self.protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        return max(0, sum(map(len, self.writes)) - self.room)

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_reading(self) -> bool:
        return self.reading

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        if not self.aborted:
            self.closing = self.aborted = True
            self.protocol.connection_lost(None)


class EchoOwner:
    """Answers each request with its own body."""

    def __init__(self) -> None:
        self.handled: list[Command] = []
        self.gone: list[Connection] = []
        self.held_bytes = 0

    def handle(self, connection: Connection, command: Command) -> None:
        self.handled.append(command)
        connection.send(reply_to(command, body=command.body))

    def connected(self, connection: Connection) -> None:
        pass

    def disconnected(self, connection: Connection) -> None:
        self.gone.append(connection)

    def held(self, change: int) -> None:
        self.held_bytes += change


class Peer:
    """A connection with everything around it."""

    def __init__(
        self,
        *,
        room: int = 1 << 30,
        limits: Limits | None = None,
        express: Callable[[Connection, bytes], int] | None = None,
    ) -> None:
        self.clock = ManualClock()
        self.owner = EchoOwner()
        self.connection = Connection(self.owner, self.clock, limits or Limits(), express)
        self.transport = ListTransport(self.connection, room)
        self.connection.connection_made(self.transport)

    def received(self) -> list[Command]:
        return FrameDecoder().feed(b"".join(self.transport.writes))


def frames(*bodies: bytes) -> bytes:
    return b"".join(
        encode_frame(Command(10, {}, body, opaque=opaque)) for opaque, body in enumerate(bodies)
    )


async def test_large_frame_in_many_pieces_is_looked_at_once_it_is_whole() -> None:
    """Joining what is there with every piece would cost the square of its size."""
    offered: list[int] = []

    def express(_: Connection, data: bytes) -> int:
        offered.append(len(data))
        return 0

    peer = Peer(express=express)
    data = frames(b"x" * 100_000, b"y")
    for at in range(0, len(data), 1_000):
        peer.connection.data_received(data[at : at + 1_000])
    assert [len(reply.body) for reply in peer.received()] == [100_000, 1]
    # Its first piece, and the one that makes it whole.
    assert len(offered) <= 3


async def test_requests_of_one_read_are_answered_in_order_with_one_write() -> None:
    peer = Peer()
    peer.connection.data_received(frames(b"a", b"b", b"c"))
    assert len(peer.transport.writes) == 1
    assert [(reply.opaque, reply.body) for reply in peer.received()] == [
        (0, b"a"),
        (1, b"b"),
        (2, b"c"),
    ]


async def test_frames_are_understood_however_they_are_cut() -> None:
    peer = Peer()
    for byte in frames(b"first", b"second"):
        peer.connection.data_received(bytes([byte]))
    assert [reply.body for reply in peer.received()] == [b"first", b"second"]
    assert peer.owner.held_bytes == 0


async def test_response_reaches_the_request_with_its_opaque() -> None:
    peer = Peer()
    first = peer.connection.invoke(request(34), 1_000)
    second = peer.connection.invoke(request(35), 1_000)
    await asyncio.sleep(0)  # requests of a turn leave together
    sent = peer.received()
    assert sent[0].opaque != sent[1].opaque
    peer.connection.data_received(encode_frame(reply_to(sent[1], body=b"2")))
    peer.connection.data_received(encode_frame(reply_to(sent[0], body=b"1")))
    assert (await first).body == b"1"
    assert (await second).body == b"2"


async def test_request_without_answer_fails_when_its_time_is_up_and_not_before() -> None:
    peer = Peer()
    answer = peer.connection.invoke(request(34), 1_000)
    await peer.clock.advance(999)
    assert not answer.done()
    await peer.clock.advance(1)
    with pytest.raises(RequestTimeout, match=r"10\.0\.0\.7:4711 did not answer within 1000 ms"):
        await answer


async def test_each_request_has_its_own_time_whatever_the_others_have() -> None:
    peer = Peer()
    long, short = (peer.connection.invoke(request(34), ms) for ms in (1_000, 10))
    await peer.clock.advance(10)
    assert short.done()
    assert not long.done()
    middle = peer.connection.invoke(request(34), 500)
    await peer.clock.advance(500)
    assert middle.done()
    await peer.clock.advance(489)
    assert not long.done()
    await peer.clock.advance(1)
    for answer in (long, middle, short):
        assert isinstance(answer.exception(), RequestTimeout)


async def test_answer_that_comes_too_late_is_ignored() -> None:
    peer = Peer()
    answer = peer.connection.invoke(request(34), 10)
    await asyncio.sleep(0)  # requests of a turn leave together
    (sent,) = peer.received()
    await peer.clock.advance(10)
    peer.connection.data_received(encode_frame(reply_to(sent)))
    with pytest.raises(RequestTimeout):
        await answer
    assert not peer.transport.closing


async def test_lost_connection_fails_every_waiting_request() -> None:
    peer = Peer()
    answers = [peer.connection.invoke(request(34), 1_000) for _ in range(3)]
    peer.connection.connection_lost(OSError("reset by peer"))
    for answer in answers:
        with pytest.raises(ConnectionLost, match="reset by peer"):
            await answer
    with pytest.raises(ConnectionLost):
        await peer.connection.invoke(request(34), 1_000)
    assert peer.owner.gone == [peer.connection]


async def test_good_frames_before_a_broken_one_are_served_and_the_rest_is_not() -> None:
    peer = Peer()
    peer.connection.data_received(frames(b"good") + struct.pack(">i", -1) + frames(b"never"))
    assert [command.body for command in peer.owner.handled] == [b"good"]
    assert [reply.body for reply in peer.received()] == [b"good"]
    assert peer.transport.aborted
    assert "frame length -1" in peer.connection.close_reason


async def test_peer_that_does_not_read_is_not_served_until_it_does() -> None:
    peer = Peer(room=150_000)
    body = bytes(50_000)
    peer.connection.data_received(frames(*[body] * 10))
    assert len(peer.owner.handled) == 4, "two corks of two replies; then the peer is full"
    assert not peer.transport.reading
    peer.transport.writes.clear()
    peer.connection.resume_writing()
    assert len(peer.owner.handled) == 8
    peer.transport.writes.clear()
    peer.connection.resume_writing()
    assert [command.opaque for command in peer.owner.handled] == list(range(10))
    assert peer.transport.reading


async def test_peer_that_never_reads_becomes_overdue_after_the_stall_limit() -> None:
    peer = Peer(room=10, limits=Limits(write_stall_ms=5_000))
    peer.connection.data_received(frames(b"x" * 100))
    await peer.clock.advance(4_999)
    assert peer.connection.overdue(peer.clock.elapsed_ms()) == ""
    await peer.clock.advance(1)
    assert "did not read" in peer.connection.overdue(peer.clock.elapsed_ms())


async def test_silent_peer_becomes_overdue_after_the_idle_limit() -> None:
    peer = Peer(limits=Limits(idle_ms=120_000))
    await peer.clock.advance(100_000)
    peer.connection.data_received(frames(b"still here"))
    await peer.clock.advance(119_999)
    assert peer.connection.overdue(peer.clock.elapsed_ms()) == ""
    await peer.clock.advance(1)
    assert peer.connection.overdue(peer.clock.elapsed_ms()) == "idle for 120000 ms"


async def test_requests_in_progress_are_bounded_and_the_rest_waits_unread() -> None:
    peer = Peer(limits=Limits(requests_max=2))
    started: list[Command] = []

    def start(connection: Connection, command: Command) -> None:
        started.append(command)
        connection.begin()

    peer.owner.handle = start  # type: ignore[method-assign]
    peer.connection.data_received(frames(b"a", b"b", b"c"))
    assert len(started) == 2
    assert not peer.transport.reading
    peer.connection.finish()
    assert len(started) == 3
    peer.connection.finish()
    peer.connection.finish()
    assert peer.transport.reading


async def test_unfinished_frame_is_held_until_it_is_whole_or_its_peer_is_gone() -> None:
    peer = Peer()
    whole = frames(bytes(10_000))
    peer.connection.data_received(whole[:6_000])
    assert peer.owner.held_bytes == peer.connection.held_bytes == 6_000
    peer.connection.data_received(whole[6_000:])
    assert peer.owner.held_bytes == 0
    peer.connection.data_received(whole[:6_000])
    peer.connection.connection_lost(None)
    assert peer.owner.held_bytes == 0


async def test_replies_are_held_until_they_are_read_or_their_peer_is_cut_off() -> None:
    peer = Peer(room=1_000)
    peer.connection.data_received(frames(bytes(10_000)))
    (reply,) = peer.transport.writes
    assert peer.owner.held_bytes == len(reply) - 1_000
    peer.transport.writes.clear()
    assert peer.connection.measure() == 0
    peer.owner.held_bytes = 0
    peer.connection.resume_writing()
    peer.connection.data_received(frames(bytes(10_000)))
    assert peer.owner.held_bytes > 0
    peer.connection.abort("enough")
    assert peer.owner.held_bytes == 0


async def test_closing_connection_is_cut_off_when_its_peer_does_not_read() -> None:
    peer = Peer()
    peer.connection.close("done")
    assert peer.transport.closing
    await peer.clock.advance(CLOSE_GRACE_MS - 1)
    assert not peer.transport.aborted
    await peer.clock.advance(1)
    assert peer.transport.aborted


async def test_oneway_request_carries_the_flag_and_waits_for_nothing() -> None:
    peer = Peer()
    peer.connection.invoke_oneway(request(15, oneway=True))
    (sent,) = peer.received()
    assert sent.flag == Flag.ONEWAY


def test_addresses_are_shown_as_users_write_them() -> None:
    assert format_address(("127.0.0.1", 9876)) == "127.0.0.1:9876"
    assert format_address(("::1", 9876, 0, 0)) == "[::1]:9876"
    assert format_address(("::ffff:10.0.0.1", 1, 0, 0)) == "10.0.0.1:1"
    assert format_address(None) == "?"
