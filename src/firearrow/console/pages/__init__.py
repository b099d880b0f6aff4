"""The pages, one file each. `PageEntry` is a line of the table in `page_table.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from firearrow.console.users import Role

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from firearrow.console.view import View


@dataclass(frozen=True, slots=True)
class PageEntry:
    """`key` names its texts; `under` is the page in whose place in the menu it stands."""

    path: str
    key: str
    icon: str
    build: Callable[[View], Awaitable[None]]
    role: Role = Role.VIEWER
    under: str = ""

    @property
    def in_menu(self) -> bool:
        return not self.under

    @property
    def menu_path(self) -> str:
        return self.under or self.path
