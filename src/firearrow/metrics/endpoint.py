"""The port that Prometheus and orchestrators ask: `/metrics`, `/health`, `/ready`.

HTTP/1.1 on the server's own loop, as little of it as they need: GET and HEAD, one request per
connection, and a bound on everything that a peer can make us hold.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from typing import TYPE_CHECKING, Final

from firearrow.base.errors import ConfigError
from firearrow.base.runtime import time_limit
from firearrow.metrics.families import CONTENT_TYPE, pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from firearrow.base.runtime import Clock
    from firearrow.metrics.families import Family

log = logging.getLogger(__name__)

REQUEST_BYTES_MAX: Final = 8 * 1024
REQUEST_MS: Final = 5_000  # for a peer to say what it wants
ANSWER_MS: Final = 30_000  # for a peer to read the answer
CONNECTIONS_MAX: Final = 32
_JSON: Final = "application/json"
_REASONS: Final = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed"} | {
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


class Endpoint:
    """Serves what `families` and `obstacles` say at the moment of asking.

    Args:
        families: Every metric; read piece by piece, so they hold copies of what may change.
        obstacles: Reasons why the server cannot serve now; none means ready.
        labels: Labels of every series.
        clock: For time limits.
        host: Where to listen.
        port: 0 takes a free one.
    """

    def __init__(
        self,
        families: Callable[[], Iterable[Family]],
        obstacles: Callable[[], list[str]],
        labels: Mapping[str, str],
        clock: Clock,
        *,
        host: str,
        port: int,
    ) -> None:
        self._families = families
        self._obstacles = obstacles
        self._labels = dict(labels)
        self._clock = clock
        self.host = host
        self.port = port
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    async def start(self) -> None:
        try:
            self._server = await asyncio.start_server(
                self._accept, self.host, self.port, limit=REQUEST_BYTES_MAX
            )
        except OSError as error:
            raise ConfigError(
                f"metrics cannot be served at {self.host}:{self.port} "
                f"(metricsPromExporterHost, metricsPromExporterPort): {error.strerror or error}"
            ) from error
        self.port = self._server.sockets[0].getsockname()[1]
        log.info("metrics at %s/metrics", self.url)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._serving):
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        self._server = None

    # --- one connection ---------------------------------------------------------------------

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._serving) >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with time_limit(self._clock, REQUEST_MS):
                asked = await _read_request(reader)
            async with time_limit(self._clock, ANSWER_MS):
                await self._answer(writer, *asked)
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            writer.transport.abort()  # it said nothing, or does not listen
        except Exception:
            log.exception("metrics could not be told")
            writer.transport.abort()
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, writer: asyncio.StreamWriter, status: int, path: str, how: str) -> None:
        if status != 200:
            await _reply(writer, status, {"error": _REASONS[status]}, how)
        elif path == "/metrics":
            await self._tell_metrics(writer, how)
        elif path == "/health":
            await _reply(writer, 200, {"status": "alive"}, how)
        elif path == "/ready":
            reasons = self._obstacles()
            said = {"status": "not ready", "reasons": reasons} if reasons else {"status": "ready"}
            await _reply(writer, 503 if reasons else 200, said, how)
        else:
            places = "there are /metrics, /health and /ready"
            await _reply(writer, 404, {"error": places}, how)

    async def _tell_metrics(self, writer: asyncio.StreamWriter, how: str) -> None:
        writer.write(_head(200, CONTENT_TYPE, "Transfer-Encoding: chunked"))
        if how == "HEAD":
            return
        for piece in pieces(self._families(), self._labels):
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
            await asyncio.sleep(0)  # messages first
        writer.write(b"0\r\n\r\n")
        await writer.drain()


async def _read_request(reader: asyncio.StreamReader) -> tuple[int, str, str]:
    """Status so far, path and method of a request; its headers do not matter."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        return 431, "", "GET"
    words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return 400, "", "GET"
    method, target, _ = words
    if method not in {"GET", "HEAD"}:
        return 405, "", "GET"
    return 200, target.partition("?")[0], method


def _head(status: int, kind: str, *lines: str) -> bytes:
    common = [f"HTTP/1.1 {status} {_REASONS[status]}", f"Content-Type: {kind}"]
    common += ["Connection: close", "Cache-Control: no-store", *lines]
    return ("\r\n".join(common) + "\r\n\r\n").encode("latin-1")


async def _reply(writer: asyncio.StreamWriter, status: int, said: object, how: str) -> None:
    body = json.dumps(said).encode() + b"\n"
    writer.write(_head(status, _JSON, f"Content-Length: {len(body)}"))
    if how != "HEAD":
        writer.write(body)
    await writer.drain()
