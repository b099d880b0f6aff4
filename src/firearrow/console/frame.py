"""What is around every page: head, menu, language, who is logged in."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from nicegui import ui

from firearrow.console.texts import LANGUAGES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from firearrow.console.pages import PageEntry
    from firearrow.console.view import View

_STYLE: Final = """
<style>
  .fa-link { color: #0072B2; text-decoration: none; } .fa-link:hover { text-decoration: underline; }
  .body--dark .fa-link { color: #56B4E9; }
  .fa-mono, .fa-mono * { font-family: ui-monospace, monospace; font-size: 12px; }
  .fa-quiet { color: #5f6672; } .body--dark .fa-quiet { color: #a8b0bd; }
  .fa-tile { flex: 1 1 7.5rem; max-width: 14rem; padding: 8px 14px; gap: 0; }
  .fa-plot { flex: 1 1 18rem; min-width: 0; gap: 0; }
  .fa-table th { font-weight: 600; }
  .fa-table.q-table--dense th, .fa-table.q-table--dense td { padding: 4px 12px; }
  .fa-problem { background: #fdecee; color: #8a0f1c; border: 1px solid #f3c2c7; }
  .body--dark .fa-problem { background: #2d1517; color: #ffb3b8; border-color: #5c2a2e; }
  .fa-fix { background: rgba(128, 128, 128, .18); padding: 2px 8px; border-radius: 4px; }
  .body--dark { --q-negative: #e5484d !important; }
  .q-btn--outline.fa-calm:before { border-color: rgba(128, 128, 128, .45); }
  .fa-pre { white-space: pre-wrap; overflow-wrap: anywhere; font-family: ui-monospace, monospace;
    font-size: 12px; max-height: 24rem; overflow: auto; width: 100%; }
  .fa-current { background: rgba(194, 65, 12, .12); color: #c2410c; }
  .body--dark .fa-current { color: #fb923c; }
  .q-drawer .q-item { min-height: 36px; }
</style>
"""


@contextmanager
def frame(view: View, pages: Sequence[PageEntry], current: PageEntry, here: str) -> Iterator[None]:
    """Everything around a page; its content goes inside."""
    t = view.t
    ui.add_head_html(_STYLE)
    ui.colors(primary="#c2410c", secondary="#1f2937", accent="#0072B2")
    ui.dark_mode(None)
    with ui.header().classes("items-center bg-secondary q-py-xs"):
        menu = ui.button(icon="menu").props(f'flat round color=white aria-label="{t("menu")}"')
        ui.label("火箭 FireArrow").classes("text-h6")
        ui.label(view.state.settings.nameservers).classes("text-caption text-grey-5 fa-mono gt-xs")
        ui.space()
        for code, name in LANGUAGES.items():
            if code != t.language:
                link = ui.link(name, f"/language/{code}?next={quote(here, safe='')}")
                link.classes("text-white q-mr-md").props("data-test=language")
        role = view.state.sessions.role(view.who)
        word = "" if role is None else t(f"role.{role.word}")
        ui.label(f"{view.who.name} · {word}").classes("text-caption gt-xs").props("data-test=who")
        with ui.element("form").props('method=post action="/logout"'):
            label = t("logout")
            button = ui.button(icon="logout").props("flat round color=white type=submit")
            button.props(f'aria-label="{label}" title="{label}" data-test=logout')
    with ui.left_drawer(bordered=True).props("width=210 breakpoint=800") as drawer:
        with ui.list().classes("w-full"):
            for page in pages:
                if page.in_menu and (role is not None and role >= page.role):
                    _menu_item(view, page, is_current=page.menu_path == current.menu_path)
        menu.on_click(drawer.toggle)
    with ui.column().classes("w-full q-pa-md gap-3"):
        yield


def _menu_item(view: View, page: PageEntry, *, is_current: bool) -> None:
    """A link, so that it opens at once, and in another tab if that is wanted."""
    item = ui.item().props(f"clickable tag=a href={page.path} data-test=menu-{page.key}")
    item.classes("rounded-borders")
    if is_current:
        item.classes("fa-current")
    with item:
        with ui.item_section().props("avatar").classes("min-w-0 q-pr-sm"):
            ui.icon(page.icon).classes("text-lg")
        with ui.item_section():
            ui.label(view.t(f"page.{page.key}"))
