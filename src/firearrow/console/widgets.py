"""Parts that pages are made of: tables that the server cuts, tiles, questions before a write."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from nicegui import ui

from firearrow.base.errors import FirearrowError
from firearrow.console.actions import explain
from firearrow.console.data.paging import SIZE, Page, Query

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from nicegui.events import GenericEventArguments, ValueChangeEventArguments

    from firearrow.console.view import View

T = TypeVar("T")

# A cell that leads on: the row has the address under "<column>_href".
_LINK: Final = """
<q-td :props="props">
  <a v-if="props.row[props.col.name + '_href']" :href="props.row[props.col.name + '_href']"
     class="fa-link">{{ props.value }}</a>
  <span v-else>{{ props.value }}</span>
</q-td>
"""
_BADGE: Final = """
<q-td :props="props">
  <q-badge v-if="props.value" :color="props.row[props.col.name + '_color'] || 'blue-grey'"
           outline>{{ props.value }}</q-badge>
</q-td>
"""


def column(
    name: str, label: str, *, number: bool = False, sortable: bool = False, mono: bool = False
) -> dict[str, Any]:
    """A column of a table, as Quasar wants it."""
    return {
        "name": name,
        "label": label,
        "field": name,
        "align": "right" if number else "left",
        "sortable": sortable,
        "classes": "fa-mono" if mono else "",
    }


def plain_table(
    columns: Sequence[dict[str, Any]],
    rows: Sequence[Mapping[str, Any]],
    *,
    key: str = "name",
    links: Sequence[str] = (),
    badges: Sequence[str] = (),
    rows_per_page: int = 0,
    marker: str = "",
) -> ui.table:
    """A short list, all of it here."""
    table = ui.table(
        columns=list(columns),
        rows=[dict(row) for row in rows],
        row_key=key,
        pagination={"rowsPerPage": rows_per_page},
    )
    table.classes("w-full fa-table").props("flat bordered dense")
    if not rows_per_page or len(rows) <= rows_per_page:
        table.props("hide-bottom" if rows else "")
    dress(table, links, badges)
    if marker:
        table.props(f"data-test={marker}")
    return table


def dress(table: ui.table, links: Sequence[str], badges: Sequence[str]) -> None:
    for name in links:
        table.add_slot(f"body-cell-{name}", _LINK)
    for name in badges:
        table.add_slot(f"body-cell-{name}", _BADGE)


class PagedTable(Generic[T]):
    """A long list: the server filters, sorts and cuts; the browser gets one page."""

    def __init__(
        self,
        view: View,
        columns: Sequence[dict[str, Any]],
        fetch: Callable[[Query], Awaitable[Page[T]]],
        row: Callable[[T], dict[str, Any]],
        *,
        key: str = "name",
        links: Sequence[str] = (),
        badges: Sequence[str] = (),
        kinds: Mapping[str, str] | None = None,
        query: Query | None = None,
        marker: str = "",
    ) -> None:
        self._view = view
        self._fetch = fetch
        self._row = row
        self.query = query or Query()
        with ui.row().classes("w-full items-center gap-3"):
            self._search = ui.input(
                placeholder=view.t("filter"), value=self.query.text, on_change=self._typed
            )
            self._search.props("dense outlined clearable debounce=300 data-test=filter")
            if kinds is not None:
                choice = ui.select(
                    {"": view.t("all"), **kinds}, value=self.query.kind, on_change=self._chosen
                )
                choice.props("dense outlined data-test=kind").classes("min-w-[9rem]")
            self.extra = ui.row().classes("items-center gap-3 ml-auto")
        self.table = ui.table(
            columns=list(columns), rows=[], row_key=key, pagination=self._pagination(0)
        )
        self.table.classes("w-full fa-table").props("flat bordered dense binary-state-sort")
        self.table.props(":rows-per-page-options=[25,50,100]")
        if marker:
            self.table.props(f"data-test={marker}")
        dress(self.table, links, badges)
        self.table.on("request", self._asked)

    def _pagination(self, total: int) -> dict[str, Any]:
        query = self.query
        return {
            "sortBy": query.sort or None,
            "descending": query.descending,
            "page": query.page,
            "rowsPerPage": query.size or SIZE,
            "rowsNumber": total,
        }

    async def refresh(self) -> None:
        """Fetch the page anew."""
        try:
            page = await self._fetch(self.query)
        except FirearrowError as error:
            ui.notify(explain(error), type="negative", multi_line=True)
            return
        self.query = replace(self.query, page=page.page)
        self.table.rows = [self._row(one) for one in page.rows]
        self.table.pagination = self._pagination(page.total)
        self.table.update()

    async def _asked(self, event: GenericEventArguments) -> None:
        said = event.args.get("pagination", {})
        self.query = replace(
            self.query,
            sort=str(said.get("sortBy") or ""),
            descending=bool(said.get("descending")),
            page=int(said.get("page") or 1),
            size=int(said.get("rowsPerPage") or SIZE),
        )
        await self.refresh()

    async def _typed(self, event: ValueChangeEventArguments[Any]) -> None:
        self.query = replace(self.query, text=str(event.value or ""), page=1)
        await self.refresh()

    async def _chosen(self, event: ValueChangeEventArguments[Any]) -> None:
        self.query = replace(self.query, kind=str(event.value or ""), page=1)
        await self.refresh()


def heading(text: str, note: str = "") -> None:
    with ui.row().classes("w-full items-baseline gap-3"):
        ui.label(text).classes("text-h5").props("role=heading aria-level=1")
        if note:
            ui.label(note).classes("text-caption fa-quiet")


def section(text: str) -> None:
    ui.label(text).classes("text-subtitle1 text-weight-medium q-mt-md")


def plot(title: str, options: dict[str, Any], height: str = "h-56") -> ui.echart:
    """A chart with its title above it."""
    with ui.column().classes("fa-plot"):
        ui.label(title).classes("text-subtitle2")
        return ui.echart(options).classes(f"w-full {height}")


def tile(label: str, value: str, note: str = "", color: str = "") -> ui.label:
    """A figure; returns the label that holds it."""
    with ui.card().classes("fa-tile").props("flat bordered"):
        ui.label(label).classes("text-caption fa-quiet")
        shown = ui.label(value).classes(f"text-h5 {color}")
        if note:
            ui.label(note).classes("text-caption fa-quiet")
    return shown


def nothing(text: str) -> None:
    """In place of a list that is empty."""
    with ui.row().classes("items-center gap-2 fa-quiet q-pa-md"):
        ui.icon("inbox")
        ui.label(text)


def problem(text: str) -> None:
    with ui.card().classes("w-full fa-problem").props("flat"):
        row = ui.row().classes("items-center gap-2 no-wrap")
    with row:
        ui.icon("error")
        ui.label(text)


def ask(view: View, title: str, lines: Sequence[str], do: Callable[[], Awaitable[None]]) -> None:
    """A question before something that cannot be undone."""
    with ui.dialog() as dialog, ui.card().classes("min-w-[24rem]"):
        ui.label(title).classes("text-h6")
        for line in lines:
            ui.label(line)

        async def confirmed() -> None:
            dialog.close()
            await do()

        with ui.row().classes("w-full justify-end"):
            ui.button(view.t("cancel"), on_click=dialog.close).props("flat")
            button = ui.button(view.t("confirm"), color="negative", on_click=confirmed)
            button.props("data-test=confirm")
    dialog.open()


def action_button(
    text: str, icon: str, do: Callable[[], object], *, marker: str, color: str = "primary"
) -> ui.button:
    """One page has one filled button at most; what else there is to do has an outline."""
    button = ui.button(text, icon=icon, color=None if color == "secondary" else color, on_click=do)
    button.props("unelevated" if color == "primary" else "outline")
    if color == "secondary":
        button.classes("fa-calm")
    return button.props(f'no-caps size=13px padding="4px 12px" data-test={marker}')
