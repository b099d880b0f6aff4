"""What hostile, broken and merely unlucky peers do to a server, over real sockets: nothing much."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import socket
import ssl
import struct
from typing import TYPE_CHECKING, Any

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import PATIENCE_S, running_nameserver, until

from firearrow.base.runtime import Clock, Service, SystemClock
from firearrow.net.client import RemotingClient
from firearrow.net.connection import TURN_COMMANDS_MAX, WRITE_CORK_BYTES, Connection, Limits
from firearrow.net.router import Router
from firearrow.net.server import ACCEPT_PAUSE_MS, Server
from firearrow.net.tls import TlsMode, TlsPolicy
from firearrow.testing import ManualClock
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import Command, FrameDecoder, encode_frame, reply_to, request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

PATIENCE_MS = PATIENCE_S * 1_000
ECHO, BIG, WAIT, STOP = 1, 2, 3, 4
BIG_REPLY_BYTES = 100_000
HALF_A_HELLO = b"\x16\x03\x01\x02\x00\x01"  # a TLS record of 512 bytes starts here


class Site:
    """A server, and one well-behaved client that must never notice what the others do."""

    def __init__(
        self, clock: Clock | None = None, limits: Limits | None = None, tls: TlsPolicy | None = None
    ) -> None:
        self.clock = clock or ManualClock()
        self.tasks = Service("site", self.clock)
        self.gate = asyncio.Event()
        self.served: list[Connection] = []
        self.dialled: list[Dialled] = []
        self.stopping: asyncio.Task[None] | None = None
        handlers: dict[int, Any] = {
            ECHO: self.echo,
            BIG: self.big,
            WAIT: self.wait,
            STOP: self.stop,
        }
        router = Router(handlers, self.tasks)
        self.server = Server(router, self.clock, host="127.0.0.1", port=0, limits=limits, tls=tls)

    def echo(self, command: Command, connection: Connection) -> Command:
        self.served.append(connection)
        return reply_to(command, body=command.body)

    def big(self, command: Command, connection: Connection) -> Command:
        self.served.append(connection)
        return reply_to(command, body=bytes(BIG_REPLY_BYTES))

    async def wait(self, command: Command, connection: Connection) -> Command:
        self.served.append(connection)
        await self.gate.wait()
        return reply_to(command, body=command.body)

    def stop(self, command: Command, _: Connection) -> Command:
        if "really" not in command.ext:  # noise may have any code
            return reply_to(command)
        self.stopping = asyncio.create_task(self.server.stop())
        return reply_to(command)

    async def advance(self, ms: int) -> None:
        assert isinstance(self.clock, ManualClock)
        await self.clock.advance(ms)

    async def dial(self, **options: Any) -> Dialled:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port, **options)
        self.dialled.append(Dialled(reader, writer))
        return self.dialled[-1]


class Dialled:
    """A raw connection to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.name = "{}:{}".format(*writer.get_extra_info("sockname"))

    async def ask(self, command: Command) -> Command:
        self.writer.write(encode_frame(command))
        return await self.answer()

    async def answer(self) -> Command:
        head = await asyncio.wait_for(self.reader.readexactly(4), PATIENCE_S)
        rest = await self.reader.readexactly(struct.unpack(">i", head)[0])
        (command,) = FrameDecoder().feed(head + rest)
        return command

    async def cut_off(self) -> bytes:
        """Wait for the server to hang up; returns what it said before."""
        said = b""
        with contextlib.suppress(ConnectionError):
            while chunk := await asyncio.wait_for(self.reader.read(65_536), PATIENCE_S):
                said += chunk
        self.hang_up()
        return said

    def hang_up(self) -> None:
        self.writer.transport.abort()


@contextlib.asynccontextmanager
async def running_site(**options: Any) -> AsyncIterator[tuple[Site, Connection]]:
    """A server and the connection of its well-behaved client, which must survive."""
    site = Site(**options)
    await site.server.start()
    client = RemotingClient(
        SystemClock(), tls=accept_anything() if enforces_tls(options.get("tls")) else None
    )
    try:
        connection = await client.connection(f"127.0.0.1:{site.server.port}")
        await check(connection)
        yield site, connection
        await check(connection)
    finally:
        for peer in site.dialled:
            peer.hang_up()
        await client.close()
        await site.server.stop()
        await site.tasks.stop_tasks()


async def halfway_through_a_handshake(site: Site) -> Dialled:
    """A client that has said hello, has heard the server's hello, and says no more."""
    hello = ssl.MemoryBIO()
    client = accept_anything().wrap_bio(ssl.MemoryBIO(), hello)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    peer = await site.dial()
    peer.writer.write(hello.read())
    assert await asyncio.wait_for(peer.reader.readexactly(1), PATIENCE_S) == b"\x16"
    return peer


def enforces_tls(policy: TlsPolicy | None) -> bool:
    return policy is not None and policy.mode is TlsMode.ENFORCING


async def check(connection: Connection) -> None:
    """The connection is the same, and it is served."""
    assert (await connection.invoke(request(ECHO, body=b"well"), PATIENCE_MS)).body == b"well"


def accept_anything() -> ssl.SSLContext:
    """What RocketMQ clients in their test mode do."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


# --- TLS and plain text on one port ---------------------------------------------------------


async def test_tls_and_plain_clients_are_served_on_one_port() -> None:
    async with running_site() as (site, _):
        body = os.urandom(300_000)
        plain = await site.dial()
        secret = await site.dial(ssl=accept_anything())
        for peer in (secret, plain, secret):
            assert (await peer.ask(Command(ECHO, body=body))).body == body
        assert secret.writer.get_extra_info("cipher") is not None


async def test_many_tls_clients_are_served_at_once() -> None:
    async with running_site() as (site, _):
        context = accept_anything()
        peers = await asyncio.gather(*[site.dial(ssl=context) for _ in range(50)])
        replies = await asyncio.gather(
            *[peer.ask(Command(ECHO, body=b"%d" % n)) for n, peer in enumerate(peers)]
        )
        assert [reply.body for reply in replies] == [b"%d" % n for n in range(50)]


async def test_tls_client_is_closed_with_one_line_where_tls_is_disabled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running_site(tls=TlsPolicy(mode=TlsMode.DISABLED)) as (site, _):
        with pytest.raises((ConnectionError, ssl.SSLError)):
            await site.dial(ssl=accept_anything())
    (line,) = caplog.messages
    assert "closed: TLS is disabled here (tls.server.mode=disabled)" in line


async def test_plain_client_is_closed_with_one_line_where_tls_is_enforced(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running_site(tls=TlsPolicy(mode=TlsMode.ENFORCING)) as (site, _):
        plain = await site.dial()
        plain.writer.write(encode_frame(Command(ECHO)))
        assert await plain.cut_off() == b""
    assert caplog.messages == [
        f"{plain.name} closed: plain text is refused here (tls.server.mode=enforcing)"
    ]


async def test_tls_client_is_closed_with_the_remedy_where_there_is_no_certificate(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running_site(tls=TlsPolicy(self_signed=False)) as (site, _):
        with pytest.raises((ConnectionError, ssl.SSLError)):
            await site.dial(ssl=accept_anything())
        await until(lambda: site.server.statistics().greeting == 0)
    (line,) = caplog.messages
    assert "there is no certificate: set tls.server.certPath" in line


async def test_tls_handshake_that_does_not_finish_is_given_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running_site(limits=Limits(handshake_ms=50)) as (site, _):
        peer = await site.dial()
        peer.writer.write(HALF_A_HELLO)
        assert await peer.cut_off() == b""
        await until(lambda: site.server.statistics().greeting == 0)
        assert site.server.statistics().broken == 1
    (line,) = caplog.messages
    assert line.startswith(f"{peer.name} closed: SSL handshake is taking longer than")


@pytest.mark.parametrize(
    ("said", "reason"),
    [(b"", "ConnectionResetError"), (b"nonsense" * 200, "[SSL")],
    ids=["hangs-up", "talks-nonsense"],
)
async def test_broken_tls_handshake_is_logged_with_a_reason(
    said: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_site() as (site, _):
        peer = await site.dial()
        peer.writer.write(HALF_A_HELLO + said)
        if not said:
            await until(lambda: site.server.statistics().greeting == 1)
            peer.writer.write_eof()
        await peer.cut_off()
        await until(lambda: site.server.statistics().broken == 1)
    (line,) = caplog.messages
    assert line.startswith(f"{peer.name} closed: {reason}")


async def test_sweep_leaves_a_handshake_in_progress_to_its_own_limit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running_site(limits=Limits(idle_ms=1_000)) as (site, healthy):
        silent, halfway = await site.dial(), await halfway_through_a_handshake(site)
        await until(lambda: site.server.statistics().greeting == 2)
        for _ in range(4):
            await site.advance(250)
            await check(healthy)
        assert await silent.cut_off() == b""
        assert site.server.statistics().greeting == 1
        halfway.hang_up()
        await until(lambda: site.server.statistics().greeting == 0)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_stop_ends_silent_peers_and_handshakes_in_progress() -> None:
    site = Site()
    await site.server.start()
    silent, halfway = await site.dial(), await halfway_through_a_handshake(site)
    await until(lambda: site.server.statistics().greeting == 2)
    await site.server.stop()
    assert await silent.cut_off() == b""
    await halfway.cut_off()
    assert site.server.statistics().greeting == 0


# --- how many -------------------------------------------------------------------------------


async def test_newcomer_over_the_limit_is_turned_away_and_a_free_place_is_given_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running_site(limits=Limits(connections_max=3)) as (site, _):
        silent, busy = await site.dial(), await site.dial()
        assert (await busy.ask(Command(ECHO, body=b"in"))).body == b"in"
        newcomers = [await site.dial() for _ in range(3)]
        for newcomer in newcomers:
            assert await newcomer.cut_off() == b""
        assert site.server.statistics().rejected == 3
        assert caplog.messages == [
            f"{newcomers[0].name} turned away: 3 connections are open, the limit (connectionsMax)"
        ], "one line a second"
        for leaver in (silent, busy):
            leaver.hang_up()
            await until(lambda: open_count(site.server) == 2)
            successor = await site.dial()
            assert (await successor.ask(Command(ECHO, body=b"next"))).body == b"next"
        assert site.server.statistics().rejected == 3


async def test_all_places_can_be_taken_at_the_same_time() -> None:
    async with running_site(limits=Limits(connections_max=41)) as (site, _):

        async def visit(turns: int) -> None:
            for _ in range(turns):
                await asyncio.sleep(0)
            peer = await site.dial()
            assert (await peer.ask(Command(ECHO, body=b"in"))).body == b"in"

        await asyncio.gather(*[visit(turns) for turns in range(40)])
        assert site.server.statistics().connections == 41
        assert site.server.statistics().rejected == 0


def open_count(server: Server) -> int:
    statistics = server.statistics()
    return statistics.connections + statistics.greeting


async def test_server_without_descriptors_serves_those_it_has_and_accepts_again_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with running_site() as (site, healthy):
        peers = [socket.socket() for _ in range(3)]
        next_descriptor = os.dup(0)
        os.close(next_descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (next_descriptor, hard))
        try:
            for peer in peers:
                peer.connect(("127.0.0.1", site.server.port))  # the backlog takes it
            await until(lambda: caplog.messages, "the complaint")
            await check(healthy)
            assert site.server.statistics().accepted == 1
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        await site.advance(ACCEPT_PAUSE_MS)
        await until(lambda: site.server.statistics().accepted == 4)
        for peer in peers:
            peer.close()
    (line,) = caplog.messages
    assert line.endswith("raise the limit: ulimit -n")


# --- how long -------------------------------------------------------------------------------


async def test_idle_connection_is_closed_whether_it_ever_spoke_or_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running_site(limits=Limits(idle_ms=1_000)) as (site, healthy):
        silent, talked, working = [await site.dial() for _ in range(3)]
        await talked.ask(Command(ECHO))
        working.writer.write(encode_frame(Command(WAIT, body=b"done")))
        await until(lambda: len(site.served) == 3)
        await site.advance(500)
        await check(healthy)
        await site.advance(499)
        assert site.server.statistics().connections == 3
        assert site.server.statistics().greeting == 1
        await site.advance(126)  # the next sweep
        assert await silent.cut_off() == b""
        assert await talked.cut_off() == b""
        assert site.server.statistics().connections == 2
        site.gate.set()
        assert (await working.answer()).body == b"done", "who waits for an answer is not idle"
    assert caplog.messages == [], "it is nobody's fault"


# --- every field of the frame ---------------------------------------------------------------

FRAME_MAX, HEADER_MAX = 4_096, 256


def word(serializer: int, header_bytes: int) -> bytes:
    return struct.pack(">I", serializer << 24 | header_bytes)


def framed(length: int, *rest: bytes) -> bytes:
    return struct.pack(">i", length) + b"".join(rest)


BROKEN = {
    "length-zero": (framed(0), "frame length 0 is too small to hold a header"),
    "length-three": (framed(3), "frame length 3 is too small to hold a header"),
    "length-minus-one": (framed(-1), "frame length -1 is too small to hold a header"),
    "length-least": (framed(-(1 << 31)), "frame length -2147483648 is too small to hold a header"),
    "length-most": (framed((1 << 31) - 1), "frame of 2147483651 bytes; the limit is 4096"),
    "length-over-the-limit": (framed(FRAME_MAX - 3), "frame of 4097 bytes; the limit is 4096"),
    "header-empty-json": (framed(4, word(0, 0)), "JSON header is malformed"),
    "header-empty-binary": (framed(4, word(1, 0)), "binary header of 0 bytes; 21 is the least"),
    "header-over-the-frame": (framed(4, word(0, 1)), "header of 1 bytes in a frame of 8"),
    "header-most": (framed(100, word(0, 0xFFFFFF)), "header of 16777215 bytes in a frame of 104"),
    "header-over-the-limit": (
        framed(1_000, word(0, HEADER_MAX + 1)),
        "header of 257 bytes; the limit is 256",
    ),
    "serializer-two": (framed(100, word(2, 10)), "unknown header serializer 2"),
    "serializer-most": (framed(100, word(255, 10)), "unknown header serializer 255"),
    "header-no-json": (framed(6, word(0, 2), b"]["), "JSON header is malformed"),
    "header-no-object": (framed(6, word(0, 2), b"[]"), "JSON header is not an object"),
}


@pytest.mark.parametrize(("said", "reason"), BROKEN.values(), ids=BROKEN)
async def test_broken_frame_closes_its_connection_with_one_line_and_no_other(
    said: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing behind the header word is sent: a bad announcement is enough."""
    limits = Limits(frame_bytes_max=FRAME_MAX, header_bytes_max=HEADER_MAX)
    async with running_site(limits=limits) as (site, _):
        peer = await site.dial()
        assert (await peer.ask(Command(ECHO, body=b"good"))).body == b"good"
        peer.writer.write(said)
        assert await peer.cut_off() == b""
        await until(lambda: site.server.statistics().connections == 1)
        assert site.server.statistics().broken == 1
        assert site.server.statistics().held_bytes == 0
    (line,) = caplog.messages
    assert line.startswith(f"{peer.name} closed: broken stream: {reason}")


async def test_everything_in_front_of_a_broken_frame_is_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running_site() as (site, _):
        peer = await site.dial()
        good = encode_frame(Command(ECHO, serializer=1))
        peer.writer.write(good * (2 * TURN_COMMANDS_MAX) + framed(-1) + good)
        assert len(FrameDecoder().feed(await peer.cut_off())) == 2 * TURN_COMMANDS_MAX
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("serializer", [0, 1])
async def test_frame_and_header_at_their_limits_are_served(
    serializer: int, caplog: pytest.LogCaptureFixture
) -> None:
    limits = Limits(frame_bytes_max=FRAME_MAX, header_bytes_max=HEADER_MAX)
    async with running_site(limits=limits) as (site, _):
        peer = await site.dial()
        fits = Command(ECHO, {"x": ""}, serializer=serializer)
        fits.ext["x"] = "x" * (HEADER_MAX - (len(encode_frame(fits)) - 8))
        assert len(encode_frame(fits)) == 8 + HEADER_MAX
        fits.body = bytes(FRAME_MAX - len(encode_frame(fits)))
        assert len(encode_frame(fits)) == FRAME_MAX
        assert (await peer.ask(fits)).body == fits.body
        fits.body += b"!"
        peer.writer.write(encode_frame(fits))
        await peer.cut_off()
    (line,) = caplog.messages
    assert line.endswith("frame of 4097 bytes; the limit is 4096")


async def test_smallest_frame_is_served() -> None:
    async with running_site() as (site, _):
        peer = await site.dial()
        peer.writer.write(framed(6, word(0, 2), b"{}"))
        assert (await peer.answer()).code == 3, "request code 0 is nobody's"


# --- noise ----------------------------------------------------------------------------------


@contextlib.contextmanager
def errors_logged() -> Iterator[list[logging.LogRecord]]:
    """Everything that is logged as our own failure; Hypothesis and caplog do not mix."""
    records: list[logging.LogRecord] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = records.append  # type: ignore[method-assign,assignment]
    logging.getLogger().addHandler(handler)
    try:
        yield records
    finally:
        logging.getLogger().removeHandler(handler)


FRAMES = st.builds(
    lambda code, ext, body, serializer: encode_frame(
        Command(code, ext, body, serializer=serializer)
    ),
    st.integers(-32_768, 32_767),
    st.dictionaries(st.text(min_size=1, max_size=5), st.text(max_size=5), max_size=3),
    st.binary(max_size=200),
    st.integers(0, 1),
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A frame with an end missing, or with some bytes that are others."""
    frame = bytearray(draw(FRAMES))
    for _ in range(draw(st.integers(0, 3))):
        frame[draw(st.integers(0, len(frame) - 1))] = draw(st.integers(0, 255))
    return bytes(frame[: draw(st.integers(0, len(frame)))])


NOISE = st.lists(st.binary(max_size=300) | FRAMES | damaged(), min_size=1, max_size=4)


@settings(max_examples=60)
@given(noises=st.lists(NOISE, min_size=1, max_size=5))
def test_noise_on_other_connections_never_disturbs_a_healthy_client(
    noises: list[list[bytes]],
) -> None:
    async def scenario() -> None:
        async with running_site() as (site, healthy):
            peers = [await site.dial() for _ in noises]
            for peer, chunks in zip(peers, noises, strict=True):
                for chunk in chunks:
                    peer.writer.write(chunk)
                    await asyncio.sleep(0)
            await check(healthy)
            for peer in peers:
                with contextlib.suppress(OSError, RuntimeError):  # it may be cut off already
                    peer.writer.write_eof()
                await peer.cut_off()
            await until(lambda: open_count(site.server) == 1)
            assert site.server.statistics().held_bytes == 0

    with errors_logged() as errors, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())
    assert errors == []


# Names of fields and the kinds of values that the name server's requests have.
TEXTS = ["topic", "namespace", "key", "value", "cluster", "clusterName", "brokerName", "zoneName"]
OTHERS = ["brokerAddr", "brokerId", "haServerAddr", "compressed", "bodyCrc32", "zoneMode"]
VALUES = st.sampled_from(["", "a", "0", "-1", "true", "9" * 30, "\0", "火"]) | st.text(max_size=8)
EXTS = st.builds(
    lambda fields, missing: {name: fields[name] for name in fields if name not in missing},
    st.fixed_dictionaries(dict.fromkeys(TEXTS + OTHERS, VALUES)),
    st.sets(st.sampled_from(TEXTS + OTHERS), max_size=2),
)
BODIES = st.sampled_from(
    [b"", b"{}", b"[]", b"null", b'{"table":[]}', b'{"topicConfigSerializeWrapper":{}}', b"a=b\\"]
) | st.binary(max_size=40)
REQUESTS = st.builds(
    lambda code, ext, body, serializer, version: Command(
        code, ext, body, serializer=serializer, version=version
    ),
    st.sampled_from(RequestCode).filter(lambda code: code <= 32_767),
    EXTS,
    BODIES,
    st.integers(0, 1),
    st.sampled_from([0, 232, 479]),
)


@settings(max_examples=40)
@given(commands=st.lists(REQUESTS, min_size=1, max_size=20))
def test_name_server_answers_every_request_whatever_its_fields_hold(
    commands: list[Command],
) -> None:
    async def scenario() -> None:
        async with running_nameserver() as served:
            for command in commands:
                answer = await served.ask(command)
                assert "internal error" not in (answer.remark or ""), command

    with errors_logged() as errors, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())
    assert errors == []


# --- how much -------------------------------------------------------------------------------


@pytest.mark.parametrize("use_tls", [False, True], ids=["plain", "tls"])
async def test_peer_that_never_reads_is_held_within_bounds_and_then_cut_off(
    use_tls: bool, caplog: pytest.LogCaptureFixture
) -> None:
    limits = Limits(write_bytes_high=256 * 1024, write_stall_ms=5_000)
    async with running_site(limits=limits) as (site, healthy):
        # A reader with a limit of one byte stops reading after the first piece.
        peer = await site.dial(limit=1, ssl=accept_anything() if use_tls else None)
        tiny = encode_frame(Command(BIG, serializer=1))
        site.served.clear()
        for _ in range(100):  # answers of 500 MB, if they were all made
            peer.writer.write(tiny * 50)
        await until(lambda: site.served and site.served[0].blocked, "a stalled connection")
        connection = site.served[0]
        held = connection._transport.get_write_buffer_size()  # type: ignore[union-attr] # noqa: SLF001
        assert held <= limits.write_bytes_high + WRITE_CORK_BYTES + BIG_REPLY_BYTES + 1_000
        await site.advance(4_999)
        await check(healthy)
        assert caplog.messages == []
        await site.advance(10_000)
        await asyncio.wait_for(connection.closed, PATIENCE_S)
        assert site.server.statistics().broken == 1
        # The rest of what was served filled the buffers of the kernel and of the peer.
        assert site.served.count(connection) < 400
    (line,) = caplog.messages
    assert line.startswith(f"{peer.name} closed: it did not read its replies for ")


async def test_flood_of_requests_lets_the_other_connections_have_their_turn() -> None:
    """All of it is in the server's socket buffers before the server looks for the first time."""
    async with running_site() as (site, _):
        peers = [await site.dial() for _ in range(2)]
        for peer in peers:
            await peer.ask(Command(ECHO))
        one, two = site.served[-2:]
        site.served.clear()
        for peer in peers:
            peer.writer.write(encode_frame(Command(ECHO, serializer=1)) * 2_000)
        await until(lambda: len(site.served) == 4_000, "every answer")
        later = max(site.served.index(one), site.served.index(two))
        assert later <= TURN_COMMANDS_MAX, "the second is served after one turn of the first"


async def test_slow_reader_gets_every_answer_in_order() -> None:
    limits = Limits(write_bytes_high=64 * 1024)
    async with running_site(limits=limits) as (site, _):
        peer = await site.dial(limit=1_000)
        for opaque in range(100):
            peer.writer.write(encode_frame(Command(BIG, opaque=opaque)))
        await until(lambda: site.served[-1].blocked, "a stalled connection")
        answers = [await peer.answer() for _ in range(100)]
        assert [answer.opaque for answer in answers] == list(range(100))
        assert all(len(answer.body) == BIG_REPLY_BYTES for answer in answers)


async def test_whoever_holds_most_of_too_many_unfinished_bytes_is_cut_off(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running_site(limits=Limits(held_bytes_max=100_000)) as (site, _):
        whole = encode_frame(Command(ECHO, body=os.urandom(50_000)))
        greedy, *modest = [await site.dial() for _ in range(4)]
        greedy.writer.write(whole[:40_000])
        await until(lambda: site.server.statistics().held_bytes == 40_000)
        for peer in modest:
            peer.writer.write(whole[:25_000])
        assert await greedy.cut_off() == b""
        await until(lambda: site.server.statistics().held_bytes == 75_000)
        # The others may finish: a frame that is done with makes room for the next.
        for peer in modest:
            for byte_range in (slice(25_000, 25_001), slice(25_001, None)):
                peer.writer.write(whole[byte_range])
            assert (await peer.answer()).body == whole[-50_000:]
        await until(lambda: site.server.statistics().held_bytes == 0)
    (line,) = caplog.messages
    assert line == (
        f"{greedy.name} closed: too many bytes are held for all peers together, for this one 40000"
    )


async def test_unread_replies_of_all_peers_are_held_within_a_common_limit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """None of the peers exceeds its own limit, and none stops asking."""
    limits = Limits(held_bytes_max=8 * BIG_REPLY_BYTES, write_bytes_high=4 * BIG_REPLY_BYTES)
    async with running_site(limits=limits) as (site, healthy):
        peers = [await site.dial(limit=1) for _ in range(12)]
        tiny = encode_frame(Command(BIG, serializer=1))
        deadline = asyncio.get_running_loop().time() + PATIENCE_S
        while site.server.statistics().broken < 5:
            assert asyncio.get_running_loop().time() < deadline, "nobody is cut off"
            for peer in peers:
                peer.writer.write(tiny)
            await check(healthy)
            assert site.server.statistics().held_bytes <= limits.held_bytes_max
    assert "too many bytes are held for all peers together" in caplog.messages[0]


async def test_unfinished_frame_of_a_peer_that_leaves_is_forgotten() -> None:
    async with running_site() as (site, _):
        peer = await site.dial()
        peer.writer.write(encode_frame(Command(ECHO, body=bytes(50_000)))[:30_000])
        await until(lambda: site.server.statistics().held_bytes == 30_000)
        peer.hang_up()
        await until(lambda: site.server.statistics().connections == 1)
        assert site.server.statistics().held_bytes == 0


# --- stopping -------------------------------------------------------------------------------


async def test_request_in_progress_is_answered_before_a_stopping_server_hangs_up() -> None:
    site = Site(SystemClock(), Limits(requests_max=1))
    await site.server.start()
    peer, idle = await site.dial(), await site.dial()
    await idle.ask(Command(ECHO))
    site.served.clear()
    # The second one is read with the first and waits for it.
    for opaque in (1, 2):
        peer.writer.write(encode_frame(Command(WAIT, opaque=opaque)))
    await until(lambda: site.served)
    stopping = asyncio.create_task(site.server.stop())
    await asyncio.sleep(0)
    with pytest.raises(ConnectionRefusedError):
        await site.dial()
    assert not stopping.done()
    site.gate.set()
    answers = FrameDecoder().feed(await peer.cut_off())
    assert [answer.opaque for answer in answers] == [1, 2]
    assert await idle.cut_off() == b""
    await stopping
    assert open_count(site.server) == 0
    await site.tasks.stop_tasks()


async def test_requests_that_wait_for_their_turn_are_answered_before_a_stop() -> None:
    site = Site(SystemClock())
    await site.server.start()
    peer = await site.dial()
    requests = [Command(STOP, {"really": "yes"})] + [Command(ECHO)] * 1_000
    peer.writer.write(b"".join(map(encode_frame, requests)))
    answers = FrameDecoder().feed(await peer.cut_off())
    assert len(answers) == len(requests)
    assert site.stopping is not None
    await site.stopping


async def test_request_that_never_ends_delays_a_stop_no_longer_than_the_limit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    site = Site(clock, Limits(drain_ms=300))
    await site.server.start()
    peer = await site.dial()
    peer.writer.write(encode_frame(Command(WAIT)))
    await until(lambda: site.served)
    stopping = asyncio.create_task(site.server.stop())
    await clock.advance(299)
    assert not stopping.done()
    await clock.advance(11)
    assert await peer.cut_off() == b""
    await stopping
    assert caplog.messages == ["requests are still in progress after 300 ms"]
    await site.tasks.stop_tasks()
