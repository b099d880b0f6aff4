"""One request over HTTP: what comes back, and whether the other side can have acted."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import pytest
import trustme
from tests.support import PATIENCE_S

from firearrow.base.errors import PeerProtocolError
from firearrow.base.runtime import SystemClock
from firearrow.net.errors import ConnectFailed, ConnectionLost, RequestTimeout
from firearrow.net.http_client import Site, post_json

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PATIENCE_MS: Final = PATIENCE_S * 1_000


@asynccontextmanager
async def answering(
    answer: bytes | None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[Site, list[bytes]]]:
    """A server that says the same to everybody and hangs up; None: it says nothing."""
    heard: list[bytes] = []
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"}"))
        if answer is None:
            await over.wait()
        else:
            writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield Site("127.0.0.1", server.sockets[0].getsockname()[1]), heard
    finally:
        over.set()
        server.close()


async def ask(site: Site, timeout_ms: int = PATIENCE_MS) -> tuple[int, bytes]:
    return await post_json(site, "/v3/x", b'{"a":1}', clock=SystemClock(), timeout_ms=timeout_ms)


async def test_answer_is_what_comes_until_the_end_of_the_connection() -> None:
    async with answering(b'HTTP/1.0 404 Not Found\r\nX: y\r\n\r\n{"b": 2}\n') as (site, heard):
        assert await ask(site) == (404, b'{"b": 2}\n')
    head, _, body = heard[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v3/x HTTP/1.0\r\n")
    assert b"Content-Length: 7" in head
    assert f"Host: 127.0.0.1:{site.port}".encode() in head
    assert body == b'{"a":1}'


async def test_nobody_there_means_that_nobody_has_heard_it() -> None:
    async with answering(b"") as (site, _):
        pass
    with pytest.raises(ConnectFailed):
        await ask(site)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.0 200 OK\r\nContent-Le",
        b"HTTP/1.0 200 OK\r\nContent-Length: 9\r\n\r\n12345678",
    ],
)
async def test_half_an_answer_is_none(answer: bytes) -> None:
    async with answering(answer) as (site, _):
        with pytest.raises(ConnectionLost, match="hung up"):
            await ask(site)


async def test_silence_has_an_end() -> None:
    async with answering(None) as (site, _):
        with pytest.raises(RequestTimeout, match="no answer within 50 ms"):
            await ask(site, timeout_ms=50)


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    ],
)
async def test_what_is_not_such_an_answer_is_refused(answer: bytes) -> None:
    async with answering(answer) as (site, _):
        with pytest.raises(PeerProtocolError):
            await ask(site)


async def test_tls_needs_a_server_that_can_prove_its_name() -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(serving)
    trusting, distrusting = ssl.create_default_context(), ssl.create_default_context()
    authority.configure_trust(trusting)
    stranger.configure_trust(distrusting)
    async with answering(b"HTTP/1.0 200 OK\r\n\r\n{}", serving) as (site, heard):
        assert await ask(Site(site.host, site.port, trusting)) == (200, b"{}")
        with pytest.raises(ConnectFailed, match="certificate"):
            await ask(Site(site.host, site.port, distrusting))
    assert len(heard) == 1
