"""`firearrow explain`: what a code or an error means, why it happens, what to do about it."""

from __future__ import annotations

import difflib
import importlib
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from firearrow.base.errors import ConfigError, FirearrowError
from firearrow.cli import exits
from firearrow.cli.explain_texts import CONTROLLER, NOT_BUILT, RESPONSES
from firearrow.cli.output import OutputFormat, Table, print_shown, text, to_json
from firearrow.cli.verbs import EPILOG, Output
from firearrow.model.errors import BrokerError, ResponseCode
from firearrow.wire.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Iterable

app = typer.Typer(name="explain", rich_markup_mode="rich")

# Where errors are defined; each names what happened, why, and what to do.
_HOMES: Final = (
    "firearrow.base.errors",
    "firearrow.model.errors",
    "firearrow.net.errors",
    "firearrow.store.errors",
    "firearrow.client.errors",
)


@app.command("explain", epilog=EPILOG)
def explain(
    *,
    code: Annotated[
        str | None, typer.Argument(metavar="[CODE]", help="A number, a name, or an error's name.")
    ] = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Say what a response code, a request code or an error means, and what to do about it.

    Without a code, list them all.

    [bold]Examples[/bold]

      firearrow explain 17

      firearrow explain SYSTEM_BUSY

      firearrow explain NoRoute

      firearrow explain --output csv
    """
    with exits.one_line("explain"):
        if code is None:
            print_shown(everything(), output)
            return
        found = explanations(code)
        if not found:
            raise ConfigError(f"{code!r} is no code and no error; {_nearest(code)}")
        if output is OutputFormat.JSON:
            typer.echo(to_json(found), nl=False)
            return
        if output is OutputFormat.CSV:
            rows = [list(one.values()) for one in found]
            print_shown(Table(text(*found[0]), rows), output)
            return
        typer.echo("\n\n".join(_told(one) for one in found))


def _told(one: dict[str, Any]) -> str:
    number = "" if one["code"] is None else f" {one['code']}"
    return f"{one['name']} ({one['kind']}{number})\n  what  {one['what']}\n  do    {one['do']}"


def _nearest(name: str) -> str:
    near = difflib.get_close_matches(name.upper(), [*_all_names()], n=3)
    near += difflib.get_close_matches(name, [*errors()], n=3)
    return f"did you mean {', '.join(near)}?" if near else "firearrow explain lists them all"


def _all_names() -> Iterable[str]:
    return [*ResponseCode.__members__, *RequestCode.__members__]


def errors() -> dict[str, type[FirearrowError]]:
    """Every error of ours by its name."""
    for home in _HOMES:
        importlib.import_module(home)
    found: dict[str, type[FirearrowError]] = {}
    left = [FirearrowError]
    while left:
        kind = left.pop()
        found[kind.__name__] = kind
        left += kind.__subclasses__()
    return dict(sorted(found.items()))


def explanations(code: str) -> list[dict[str, Any]]:
    """All meanings of a number or a name: a response and a request may share a number."""
    found: list[dict[str, Any]] = []
    wanted = code.strip()
    number = int(wanted) if wanted.lstrip("-").isdecimal() else None
    found += [_response(one) for one in ResponseCode if number == one or wanted.upper() == one.name]
    found += [_request(one) for one in RequestCode if number == one or wanted.upper() == one.name]
    found += [
        _error(name, kind)
        for name, kind in errors().items()
        if wanted.lower() == name.lower()
        or (number is not None and number > 9_999 and kind.code == number)
    ]
    return found


def _response(code: ResponseCode) -> dict[str, Any]:
    kind = BrokerError.by_code.get(int(code))
    if code.name in RESPONSES:
        what, do = RESPONSES[code.name]
    elif kind is not None:
        what, do = _line(kind), kind.remedy
    else:
        what, do = CONTROLLER
    return {"code": int(code), "name": code.name, "kind": "response", "what": what, "do": do}


def _error(name: str, kind: type[FirearrowError]) -> dict[str, Any]:
    number = kind.code if kind.code > 0 else None
    return {
        "code": number,
        "name": name,
        "kind": "error",
        "what": _line(kind),
        "do": kind.remedy + (" Trying again may help." if kind.retriable else ""),
    }


def _line(kind: type[FirearrowError]) -> str:
    return " ".join((kind.__doc__ or "").split("\n\n")[0].split())


def _request(code: RequestCode) -> dict[str, Any]:
    words = code.name.lower().replace("_", " ")
    if code.name in NOT_BUILT:
        who = f"FireArrow answers it with code 3: {NOT_BUILT[code.name]} is not built."
    else:
        who = "An answer of code 3 means that this server does not know it: ask another role."
    return {
        "code": int(code),
        "name": code.name,
        "kind": "request",
        "what": f"A request: {words}.",
        "do": who,
    }


def everything() -> Table:
    each = [_response(code) for code in ResponseCode]
    each += [_error(name, kind) for name, kind in errors().items()]
    each += [_request(code) for code in RequestCode]
    return Table(text("code", "name", "kind", "what", "do"), [list(one.values()) for one in each])
