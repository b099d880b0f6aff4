"""Logging in and out: plain forms, and a cookie that scripts cannot read nor other sites send."""

from __future__ import annotations

import asyncio
import html
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, quote

from starlette.responses import HTMLResponse, RedirectResponse

from firearrow.console.texts import LANGUAGES, Texts, language_of

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.requests import Request
    from starlette.responses import Response

    from firearrow.console.state import ConsoleState

COOKIE: Final = "firearrow_console"
LANGUAGE_COOKIE: Final = "firearrow_language"
FORM_BYTES_MAX: Final = 8 * 1024
YEAR_S: Final = 365 * 86_400

_PAGE: Final = """<!doctype html>
<html lang="{language}"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>FireArrow</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px system-ui, sans-serif; display: grid; place-items: center; min-height: 100vh;
  margin: 0; background: light-dark(#f3f4f6, #14171c); color: light-dark(#1f2937, #e5e7eb); }}
form {{ background: light-dark(#fff, #1f242c); padding: 2rem; border-radius: 12px; width: 20rem;
  box-shadow: 0 4px 24px #0002; display: grid; gap: .75rem; }}
h1 {{ font-size: 1.4rem; margin: 0 0 .5rem; }} h1 span {{ color: #c2410c; }}
input {{ font: inherit; padding: .6rem; border: 1px solid #9ca3af; border-radius: 6px; }}
button {{ font: inherit; padding: .6rem; border: 0; border-radius: 6px; background: #c2410c;
  color: #fff; cursor: pointer; }}
.wrong {{ color: #b91c1c; margin: 0; }} nav {{ font-size: .85rem; text-align: center; }}
a {{ color: #0072b2; }}
</style></head><body>
<form method="post" action="/login">
<h1><span>火箭</span> FireArrow</h1>
{content}
</form></body></html>
"""
_FIELDS: Final = """{complaint}
<label for="name">{name}</label><input id="name" name="name" autocomplete="username" autofocus>
<label for="password">{password}</label>
<input id="password" name="password" type="password" autocomplete="current-password">
<input type="hidden" name="next" value="{onward}">
<button>{submit}</button>
<nav>{languages}</nav>"""


def peer_of(request: Request) -> str:
    return request.client.host if request.client is not None else "?"


def texts_of(request: Request) -> Texts:
    accepted = request.headers.get("accept-language")
    return Texts(language_of(request.cookies.get(LANGUAGE_COOKIE), accepted))


def onward_of(target: str | None) -> str:
    """Where to go after the login: a page of ours, and nothing else."""
    if target and target.startswith("/") and not target.startswith(("//", "/\\")):
        return target
    return "/"


def login_page(t: Texts, onward: str, complaint: str = "", status: int = 200) -> HTMLResponse:
    links = " · ".join(
        f'<a href="/language/{code}?next=/login">{html.escape(name)}</a>'
        for code, name in LANGUAGES.items()
    )
    said = f'<p class="wrong" role="alert">{html.escape(complaint)}</p>' if complaint else ""
    fields = _FIELDS.format(
        complaint=said,
        name=html.escape(t("login.name")),
        password=html.escape(t("login.password")),
        submit=html.escape(t("login.submit")),
        onward=html.escape(onward, quote=True),
        languages=links,
    )
    page = _PAGE.format(language=t.language, content=fields)
    return HTMLResponse(page, status_code=status)


def missing_page(t: Texts) -> HTMLResponse:
    """For an address where nothing is."""
    said, back = html.escape(t("page.missing")), html.escape(t("page.overview"))
    content = f'<p role="alert">{said}</p><nav><a href="/">{back}</a></nav>'
    return HTMLResponse(_PAGE.format(language=t.language, content=content), status_code=404)


async def read_form(request: Request) -> dict[str, str]:
    """Fields of a small form; ValueError for anything else."""
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        raise ValueError("a form was expected")
    raw = b""
    async for piece in request.stream():
        raw += piece
        if len(raw) > FORM_BYTES_MAX:
            raise ValueError("the form is too large")
    fields = parse_qs(raw.decode("utf-8"), keep_blank_values=True, max_num_fields=10)
    return {name: values[-1] for name, values in fields.items()}


def add_login(app: FastAPI, state: ConsoleState) -> None:
    """The routes of the door."""

    async def show(request: Request) -> Response:
        return login_page(texts_of(request), onward_of(request.query_params.get("next")))

    async def enter(request: Request) -> Response:
        t, peer = texts_of(request), peer_of(request)
        try:
            form = await read_form(request)
        except ValueError:
            return login_page(t, "/", t("login.wrong"), 400)
        onward = onward_of(form.get("next"))
        wait_ms = state.limiter.wait_ms(peer)
        if wait_ms:
            answer = login_page(t, onward, t("login.wait", seconds=wait_ms // 1_000 + 1), 429)
            answer.headers["Retry-After"] = str(wait_ms // 1_000 + 1)
            return answer
        state.limiter.failed(peer)  # until it is right: tries that come together count, too
        name = form.get("name", "")
        user = await asyncio.to_thread(state.users.check, name, form.get("password", ""))
        outcome = "refused" if user is None else "done"
        state.audit.add(
            user=name[:64], address=peer, action="login", target="", details="", outcome=outcome
        )
        if user is None:
            return login_page(t, onward, t("login.wrong"), 401)
        state.limiter.succeeded(peer)
        visitor = state.sessions.open(user.name, peer)
        went = RedirectResponse(onward, 303)
        went.set_cookie(COOKIE, visitor.token, httponly=True, samesite="strict", path="/")
        return went

    async def leave(request: Request) -> Response:
        state.sessions.close(request.cookies.get(COOKIE))
        went = RedirectResponse("/login", 303)
        went.delete_cookie(COOKIE, path="/")
        return went

    async def speak(request: Request) -> Response:
        code = request.path_params["code"]
        went = RedirectResponse(onward_of(request.query_params.get("next")), 303)
        if code in LANGUAGES:
            went.set_cookie(LANGUAGE_COOKIE, code, max_age=YEAR_S, samesite="lax", path="/")
        return went

    app.add_route("/login", show, methods=["GET"])
    app.add_route("/login", enter, methods=["POST"])
    app.add_route("/logout", leave, methods=["POST"])
    app.add_route("/language/{code}", speak, methods=["GET"])


def to_login(request: Request) -> RedirectResponse:
    """For a page that needs a login: back to it afterwards."""
    query = f"?{request.url.query}" if request.url.query else ""
    return RedirectResponse(f"/login?next={quote(request.url.path + query, safe='')}", 303)
