"""The console as a web application, and running it."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import uvicorn
from fastapi import FastAPI, Request
from nicegui import app as nicegui_app
from nicegui import ui

from firearrow.base.errors import FirearrowError
from firearrow.console.actions import Actions, explain
from firearrow.console.frame import frame
from firearrow.console.login import COOKIE, add_login, missing_page, texts_of, to_login
from firearrow.console.page_table import PAGES
from firearrow.console.state import ConsoleState
from firearrow.console.view import View
from firearrow.console.widgets import problem

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Awaitable, Callable

    from starlette.responses import Response

    from firearrow.console.pages import PageEntry
    from firearrow.console.settings import ConsoleSettings
    from firearrow.console.texts import Texts

log = logging.getLogger(__name__)

PAGE_TIMEOUT_S: Final = 20.0
CONNECTIONS_MAX: Final = 1_000
# NiceGUI needs scripts in the page; nobody may frame it, and nothing comes from elsewhere.
HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Content-Security-Policy": (
        "default-src 'self' data: blob: 'unsafe-inline' 'unsafe-eval'; frame-ancestors 'none'; "
        "object-src 'none'; base-uri 'self'; form-action 'self'"
    ),
}


def make_app(settings: ConsoleSettings) -> tuple[FastAPI, ConsoleState]:
    """One application in a process: NiceGUI keeps its own state beside it."""
    state = ConsoleState(settings)
    actions = Actions(state)
    ui.button.default_props("no-caps")

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        await state.start()
        try:
            yield
        finally:
            await state.stop()

    app = FastAPI(lifespan=life, docs_url=None, redoc_url=None, openapi_url=None)

    @app.middleware("http")
    async def add_headers(
        request: Request, go_on: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        answer = await go_on(request)
        for name, value in HEADERS.items():
            answer.headers.setdefault(name, value)
        return answer

    @nicegui_app.exception_handler(404)
    async def missing(request: Request, _: Exception) -> Response:
        return missing_page(texts_of(request))

    add_login(app, state)
    for page in PAGES:
        _serve(page, state, actions)
    ui.run_with(app, title="FireArrow", show_welcome_message=False, favicon="🏹")
    return app, state


def _serve(page: PageEntry, state: ConsoleState, actions: Actions) -> None:
    async def show(request: Request) -> Response | None:
        who = state.sessions.find(request.cookies.get(COOKIE))
        if who is None:
            return to_login(request)
        t = texts_of(request)
        _speak(t)
        view = View(state, actions, who, t, dict(request.query_params))
        ui.page_title(f"{t(f'page.{page.key}')} · FireArrow")
        query = f"?{request.url.query}" if request.url.query else ""
        with frame(view, PAGES, page, request.url.path + query):
            try:
                state.sessions.need(who, page.role)
                await page.build(view)
            except FirearrowError as error:
                problem(explain(error))
        return None

    ui.page(page.path, response_timeout=PAGE_TIMEOUT_S)(show)


def _speak(t: Texts) -> None:
    """What Quasar itself says, in the visitor's language; a page is declared with only one."""
    client = ui.context.client
    client.page = copy.copy(client.page)
    client.page.language = "zh-CN" if t.language == "zh" else "en-US"


# --- running ----------------------------------------------------------------------------------


def run(settings: ConsoleSettings, sock: socket.socket, *, watch_stdin: bool) -> None:
    """Serve until SIGTERM or Ctrl-C; with `watch_stdin` also until whoever holds it is gone."""
    app, state = make_app(settings)
    first = state.users.create_first()
    if first is not None:
        print(  # noqa: T201 - the only time that it is told
            f"console: first start. User {first[0]}, password {first[1]} (it is not shown again)",
            file=sys.stderr,
            flush=True,
        )
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        limit_concurrency=CONNECTIONS_MAX,
        timeout_graceful_shutdown=2,
        ws_max_size=1 << 20,
    )
    server = uvicorn.Server(config)

    async def serve() -> None:
        watching = None
        if watch_stdin:
            watching = asyncio.create_task(_until_alone(server))
        try:
            await server.serve(sockets=[sock])
        finally:
            if watching is not None:
                watching.cancel()

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve())


async def _until_alone(server: uvicorn.Server) -> None:
    """The other end of our input closes when our owner ends, however it ends."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.read(1024):
        pass
    server.should_exit = True
