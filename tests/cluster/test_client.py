"""The client over real sockets: shared connections, losses, time limits, questions from servers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from typing import TYPE_CHECKING, Any

import pytest
import trustme
from tests.support import PATIENCE_S, until

from firearrow.base.runtime import Service, SystemClock
from firearrow.net.client import CONNECT_TIMEOUT_MS, RemotingClient, split_address
from firearrow.net.connection import Connection, Limits
from firearrow.net.errors import ConnectFailed, ConnectionLost, NetworkError, RequestTimeout
from firearrow.net.router import Router
from firearrow.net.server import Server
from firearrow.testing import ManualClock
from firearrow.wire.command import Command, reply_to, request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PATIENCE_MS = PATIENCE_S * 1_000
ECHO, NEVER, ASK_BACK, NOTE = 1, 2, 3, 4


class Peer:
    """A server that echoes, never answers, or asks its client something first."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.clock = SystemClock()
        self.tasks = Service("peer", self.clock)
        self.connections: list[Connection] = []
        self.noted: list[Command] = []
        handlers: dict[int, Any] = {
            ECHO: self.echo,
            NEVER: self.never,
            ASK_BACK: self.ask_back,
            NOTE: self.note,
        }
        self.server = Server(
            Router(handlers, self.tasks), self.clock, host="127.0.0.1", port=0, limits=limits
        )

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def echo(self, command: Command, connection: Connection) -> Command:
        self.connections.append(connection)
        return reply_to(command, body=command.body)

    def never(self, _: Command, connection: Connection) -> None:
        self.connections.append(connection)

    async def ask_back(self, command: Command, connection: Connection) -> Command:
        connection.invoke_oneway(request(40, oneway=True))
        answer = await connection.invoke(request(40, body=command.body), PATIENCE_MS)
        return reply_to(command, answer.code, body=answer.body, remark=answer.remark)

    def note(self, command: Command, _: Connection) -> None:
        self.noted.append(command)


@contextlib.asynccontextmanager
async def running_peer(limits: Limits | None = None) -> AsyncIterator[Peer]:
    peer = Peer(limits)
    await peer.server.start()
    try:
        yield peer
    finally:
        await peer.server.stop()
        await peer.tasks.stop_tasks()


@contextlib.asynccontextmanager
async def closing(client: RemotingClient) -> AsyncIterator[RemotingClient]:
    try:
        yield client
    finally:
        await client.close()


def new_client(**options: Any) -> contextlib.AbstractAsyncContextManager[RemotingClient]:
    return closing(RemotingClient(options.pop("clock", SystemClock()), **options))


# --- connections ----------------------------------------------------------------------------


async def test_callers_that_come_together_share_one_connection() -> None:
    async with running_peer() as peer, new_client() as client:
        answers = await asyncio.gather(
            *[
                client.invoke(peer.address, request(ECHO, body=b"%d" % number), PATIENCE_MS)
                for number in range(50)
            ]
        )
        assert [answer.body for answer in answers] == [b"%d" % number for number in range(50)]
        assert peer.server.statistics().accepted == 1


async def test_two_addresses_have_a_connection_each() -> None:
    async with running_peer() as one, running_peer() as two, new_client() as client:
        for peer in (one, two, one):
            await client.invoke(peer.address, request(ECHO), PATIENCE_MS)
        assert one.server.statistics().accepted == 1
        assert two.server.statistics().accepted == 1


async def test_lost_connection_fails_its_requests_and_the_next_one_connects_anew() -> None:
    async with running_peer() as peer, new_client() as client:
        waiting = asyncio.create_task(client.invoke(peer.address, request(NEVER), PATIENCE_MS))
        await until(lambda: peer.connections)
        peer.connections[0].abort("the test says so")
        with pytest.raises(ConnectionLost, match=peer.address):
            await waiting
        answer = await client.invoke(peer.address, request(ECHO, body=b"back"), PATIENCE_MS)
        assert answer.body == b"back"
        assert peer.server.statistics().accepted == 2


async def test_nobody_at_the_address_is_reported_with_a_remedy_and_tried_again() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))  # bound, not listening: nobody else gets the port
        address = f"127.0.0.1:{reserved.getsockname()[1]}"
        async with new_client() as client:
            with pytest.raises(ConnectFailed) as failed:
                await client.invoke(address, request(ECHO), PATIENCE_MS)
            assert str(failed.value).startswith(f"cannot connect to {address}: ")
            assert str(failed.value).endswith("Is the server running there?")
            assert failed.value.retriable
            reserved.listen()
            connection = await client.connection(address)
            assert not connection.closed.done()


async def test_server_that_turns_us_away_is_a_network_error() -> None:
    async with (
        running_peer(Limits(connections_max=1)) as peer,
        new_client() as first,
        new_client() as second,
    ):
        await first.invoke(peer.address, request(ECHO), PATIENCE_MS)
        with pytest.raises(NetworkError):
            await second.invoke(peer.address, request(ECHO), PATIENCE_MS)


async def test_closed_client_fails_what_waits_and_refuses_what_comes() -> None:
    async with running_peer() as peer:
        client = RemotingClient(SystemClock())
        waiting = asyncio.create_task(client.invoke(peer.address, request(NEVER), PATIENCE_MS))
        await until(lambda: peer.connections)
        await client.close()
        with pytest.raises(ConnectionLost, match="this client is closed"):
            await waiting
        with pytest.raises(ConnectFailed, match="this client is closed"):
            await client.invoke(peer.address, request(ECHO), PATIENCE_MS)
        await until(lambda: peer.server.statistics().connections == 0)


async def test_oneway_request_arrives_and_is_not_waited_for() -> None:
    async with running_peer() as peer, new_client() as client:
        await client.invoke_oneway(peer.address, request(NOTE, body=b"fyi", oneway=True))
        await until(lambda: peer.noted)
        assert [command.body for command in peer.noted] == [b"fyi"]


# --- addresses ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("127.0.0.1:9876", "127.0.0.1", 9876),
        (" mq.example:0 ", "mq.example", 0),
        ("[::1]:65535", "::1", 65535),
        ("::1:9876", "::1", 9876),
    ],
)
def test_address_is_taken_apart(address: str, host: str, port: int) -> None:
    assert split_address(address) == (host, port)


@pytest.mark.parametrize(
    "address",
    ["", "127.0.0.1", ":9876", "mq:", "mq:http", "mq:-1", "mq:65536", "mq:²"],
)
def test_what_is_no_address_is_refused_with_an_example(address: str) -> None:
    with pytest.raises(ValueError, match=r"host:port expected, as 127\.0\.0\.1:9876") as refused:
        split_address(address)
    assert repr(address) in str(refused.value)


async def test_request_to_what_is_no_address_says_so() -> None:
    async with new_client() as client:
        with pytest.raises(ValueError, match="host:port expected"):
            await client.invoke("nowhere", request(ECHO), PATIENCE_MS)


# --- questions from the server --------------------------------------------------------------


async def test_question_of_the_server_is_answered_by_the_router() -> None:
    tasks = Service("client", SystemClock())
    asked: list[Command] = []

    async def answer(command: Command, _: Connection) -> Command:
        asked.append(command)
        await asyncio.sleep(0)
        return reply_to(command, body=command.body.upper())

    router = Router({40: answer}, tasks)
    async with running_peer() as peer, new_client(router=router) as client:
        relayed = await client.invoke(peer.address, request(ASK_BACK, body=b"abc"), PATIENCE_MS)
        assert (relayed.code, relayed.body) == (0, b"ABC")
        assert [command.body for command in asked] == [b"", b"abc"], "the one-way one comes first"
    await tasks.stop_tasks()


async def test_question_to_a_client_without_router_gets_code_three_and_a_oneway_one_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "firearrow.net.connection")
    async with running_peer() as peer, new_client() as client:
        relayed = await client.invoke(peer.address, request(ASK_BACK), PATIENCE_MS)
    assert (relayed.code, relayed.remark) == (3, "this client answers no requests")
    assert "came too late" not in caplog.text, "an answer that nobody waits for"


# --- time -----------------------------------------------------------------------------------


class SlowGate:
    """A TLS server that lets a client finish connecting when the test says so."""

    def __init__(self) -> None:
        authority = trustme.CA()
        self.trust = ssl.create_default_context()
        authority.configure_trust(self.trust)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(self.context)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.received = bytearray()
        self.transports: list[asyncio.Transport] = []

    async def open(self) -> None:
        """Accept one client and shake hands with it."""
        loop = asyncio.get_running_loop()
        sock, _ = await loop.sock_accept(self.listener)
        gate = self

        class Sink(asyncio.Protocol):
            def data_received(self, data: bytes) -> None:
                gate.received += data

        transport, _ = await loop.connect_accepted_socket(Sink, sock, ssl=self.context)
        self.transports.append(transport)


@pytest.fixture
def gate() -> Any:
    gate = SlowGate()
    with gate.listener:
        yield gate


async def test_time_spent_on_connecting_is_taken_off_the_time_for_the_answer(
    gate: SlowGate,
) -> None:
    clock = ManualClock()
    async with new_client(clock=clock, tls=gate.trust) as client:
        asking = asyncio.create_task(client.invoke(gate.address, request(NEVER), 1_000))
        await clock.advance(400)
        await gate.open()
        await until(lambda: gate.received, "the request")
        await clock.advance(599)
        assert not asking.done()
        await clock.advance(1)
        with pytest.raises(RequestTimeout, match="within 600 ms"):
            await asking
        gate.transports[0].close()


async def test_request_fails_when_connecting_takes_all_its_time(gate: SlowGate) -> None:
    clock = ManualClock()
    async with new_client(clock=clock, tls=gate.trust) as client:
        asking = asyncio.create_task(client.invoke(gate.address, request(NEVER), 1_000))
        await clock.advance(999)
        assert not asking.done()
        await clock.advance(1)
        with pytest.raises(RequestTimeout, match="took all of 1000 ms"):
            await asking


async def test_connection_that_came_too_late_for_one_request_serves_the_next(
    gate: SlowGate,
) -> None:
    clock = ManualClock()
    async with new_client(clock=clock, tls=gate.trust) as client:
        asking = asyncio.create_task(client.invoke(gate.address, request(NEVER), 1_000))
        await clock.advance(1_000)
        with pytest.raises(RequestTimeout):
            await asking
        await gate.open()
        connection = await client.connection(gate.address)
        assert not gate.received
        assert await client.connection(gate.address) is connection
        gate.transports[0].close()


async def test_server_that_does_not_finish_connecting_is_given_up(gate: SlowGate) -> None:
    clock = ManualClock()
    async with new_client(clock=clock, tls=gate.trust) as client:
        asking = asyncio.create_task(client.invoke(gate.address, request(ECHO), PATIENCE_MS))
        await clock.advance(CONNECT_TIMEOUT_MS)
        with pytest.raises(ConnectFailed, match="no answer within 3000 ms"):
            await asking


async def test_caller_that_gives_up_does_not_spoil_the_attempt_it_shares(gate: SlowGate) -> None:
    async with new_client(tls=gate.trust) as client:
        impatient = asyncio.create_task(client.connection(gate.address))
        patient = asyncio.create_task(client.connection(gate.address))
        await asyncio.sleep(0)
        impatient.cancel()
        with pytest.raises(asyncio.CancelledError):
            await impatient
        await gate.open()
        connection = await patient
        assert await client.connection(gate.address) is connection
        gate.transports[0].close()


async def test_client_that_is_closed_while_it_connects_fails_its_callers_with_the_reason(
    gate: SlowGate,
) -> None:
    client = RemotingClient(SystemClock(), tls=gate.trust)
    asking = asyncio.create_task(client.invoke(gate.address, request(ECHO), PATIENCE_MS))
    await asyncio.sleep(0)
    await client.close()
    with pytest.raises(ConnectFailed, match="this client is closed"):
        await asking


async def test_certificate_that_the_client_does_not_trust_is_named_as_the_reason(
    gate: SlowGate,
) -> None:
    async with new_client(tls=ssl.create_default_context()) as client:
        asking = asyncio.create_task(client.invoke(gate.address, request(ECHO), PATIENCE_MS))
        with contextlib.suppress(OSError):
            await gate.open()
        with pytest.raises(ConnectFailed, match="certificate verify failed"):
            await asking
