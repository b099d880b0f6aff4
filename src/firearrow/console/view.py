"""What a page gets: who looks, in which language, and everything that it may use."""

from __future__ import annotations

import datetime as dt
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from nicegui import ui

from firearrow.base.errors import FirearrowError
from firearrow.client.errors import InvalidRequest
from firearrow.console.actions import explain

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping
    from typing import TypeVar

    from firearrow.console.actions import Actions
    from firearrow.console.state import ConsoleState
    from firearrow.console.texts import Texts
    from firearrow.console.users import Visitor

    T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class View:
    """`asked` are the values behind the question mark of the address."""

    state: ConsoleState
    actions: Actions
    who: Visitor
    t: Texts
    asked: Mapping[str, str]

    def may(self, action: str) -> bool:
        return self.actions.may(self.who, action)

    @property
    def may_see_bodies(self) -> bool:
        return self.may("body.view")

    async def attempt(self, work: Awaitable[T]) -> T | None:
        """Do something; a failure is told to the visitor, and None comes back."""
        try:
            return await work
        except FirearrowError as error:
            ui.notify(explain(error), type="negative", multi_line=True, timeout=8_000)
            return None

    async def told(self, work: Awaitable[object]) -> bool:
        """The same for work that ends well with a word that it is done."""
        try:
            await work
        except FirearrowError as error:
            ui.notify(explain(error), type="negative", multi_line=True, timeout=8_000)
            return False
        ui.notify(self.t("done"), type="positive")
        return True


def address(path: str, **values: str) -> str:
    """A page's address with values; empty ones are left out."""
    given = {key: value for key, value in values.items() if value}
    return f"{path}?{urlencode(given)}" if given else path


def moment(at_ms: int | None) -> str:
    """A time as people read it, on the clock of this machine."""
    if not at_ms or at_ms < 0:
        return "—"
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_ms / 1_000)) + f".{at_ms % 1000:03}"


def when_ms(text: str) -> int:
    """The other way round; InvalidRequest if it is none."""
    try:
        at = dt.datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise InvalidRequest(f"{text!r} is not a time such as 2026-11-18 14:30:00") from error
    return int(at.astimezone().timestamp() * 1_000)


def duration(ms: float) -> str:
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if ms >= size:
            return f"{ms / size:.1f} {unit}"
    return f"{ms:.0f} ms"


def size_text(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError("unreachable")
