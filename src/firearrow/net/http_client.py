"""One HTTP request, one connection, one answer: what asking an engine like etcd takes.

HTTP/1.0 on purpose: the answer then comes in one piece and ends with the connection, so that
nothing is left of a request that went wrong. The errors tell whether the other side may have
acted: `ConnectFailed` says that it has not heard a byte.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from firearrow.base.errors import PeerProtocolError
from firearrow.base.runtime import time_limit
from firearrow.net.errors import ConnectFailed, ConnectionLost, RequestTimeout

if TYPE_CHECKING:
    import ssl

    from firearrow.base.runtime import Clock

ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
READ_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Site:
    """Where an HTTP server is, and how it is spoken to."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None

    def __str__(self) -> str:
        """As people write it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.tls is None else 'https'}://{host}:{self.port}"


async def post_json(
    site: Site, path: str, body: bytes, *, clock: Clock, timeout_ms: int
) -> tuple[int, bytes]:
    """Status and body of the answer. `timeout_ms` is for connecting, and again for the answer."""
    try:
        async with time_limit(clock, timeout_ms):
            reader, writer = await asyncio.open_connection(
                site.host,
                site.port,
                ssl=site.tls,
                server_hostname=None if site.tls is None else site.host,
            )
    except (OSError, TimeoutError) as error:
        reason = str(error) or f"no connection within {timeout_ms} ms"
        raise ConnectFailed(f"{site}: {reason}") from error
    try:
        async with time_limit(clock, timeout_ms):
            writer.write(_head(site, path, len(body)) + body)
            answer = await _read_all(reader, site)
    except TimeoutError:
        raise RequestTimeout(f"{site}{path}: no answer within {timeout_ms} ms") from None
    except OSError as error:
        raise ConnectionLost(f"{site}{path}: {error}") from error
    finally:
        writer.transport.abort()
    return _parse(answer, site)


def _head(site: Site, path: str, size: int) -> bytes:
    lines = [f"POST {path} HTTP/1.0", f"Host: {str(site).partition('//')[2]}"]
    lines += ["Content-Type: application/json", f"Content-Length: {size}"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")


async def _read_all(reader: asyncio.StreamReader, site: Site) -> bytes:
    pieces, size = [], 0
    while piece := await reader.read(READ_BYTES):
        size += len(piece)
        if size > ANSWER_BYTES_MAX:
            raise PeerProtocolError(f"{site}: an answer of more than {ANSWER_BYTES_MAX} bytes")
        pieces.append(piece)
    return b"".join(pieces)


def _parse(answer: bytes, site: Site) -> tuple[int, bytes]:
    head, separator, body = answer.partition(b"\r\n\r\n")
    if not separator:
        raise ConnectionLost(f"{site}: it hung up after {len(answer)} bytes of an answer")
    first, *fields = head.decode("latin-1").split("\r\n")
    words = first.split(" ", 2)
    if not words[0].startswith("HTTP/1.") or len(words) < 2 or not words[1].isdigit():
        raise PeerProtocolError(f"{site}: {first[:80]!r} is not the beginning of an HTTP answer")
    named = {name.strip().lower(): value.strip() for name, _, value in map(_split, fields)}
    if "chunked" in named.get("transfer-encoding", ""):
        raise PeerProtocolError(f"{site}: a chunked answer to an HTTP/1.0 request")
    expected = named.get("content-length", "")
    if expected.isdigit() and len(body) != int(expected):
        raise ConnectionLost(f"{site}: it hung up after {len(body)} of {expected} bytes")
    return int(words[1]), body


def _split(field: str) -> tuple[str, str, str]:
    return field.partition(":")
