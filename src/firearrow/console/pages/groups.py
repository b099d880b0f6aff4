"""All consumer groups, with their lag."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nicegui import ui

from firearrow.console.data.paging import Query
from firearrow.console.view import address
from firearrow.console.widgets import PagedTable, action_button, column, heading

if TYPE_CHECKING:
    from firearrow.console.data.catalog import GroupRow
    from firearrow.console.data.paging import Page
    from firearrow.console.view import View


async def build(view: View) -> None:
    t = view.t
    heading(t("page.groups"))

    async def fetch(query: Query) -> Page[GroupRow]:
        return await view.state.catalog.group_page(query)

    table: PagedTable[GroupRow] = PagedTable(
        view,
        [
            column("name", t("group"), sortable=True),
            column("lag", t("overview.lag"), number=True, sortable=True),
            column("in_flight", t("group.in_flight"), number=True),
            column("tps", t("group.tps"), number=True, sortable=True),
            column("topics", t("page.topics"), sortable=True),
            column("warning", t("group.warning")),
        ],
        fetch,
        lambda row: group_row(view, row),
        links=["name"],
        badges=["warning"],
        kinds={"behind": t("group.behind"), "divergent": t("group.divergent")},
        query=Query(sort="lag", descending=True),
        marker="groups",
    )
    if view.may("group.create"):
        with table.extra:
            action_button(
                t("group.create"), "add", lambda: create(view, table), marker="group-create"
            )
    await table.refresh()


def group_row(view: View, row: GroupRow) -> dict[str, Any]:
    warning = view.t("group.divergent") if row.divergent else ""
    if not warning and not row.enabled:
        warning = view.t("group.disabled")
    topics = ", ".join(row.topics[:3]) + (" …" if len(row.topics) > 3 else "")
    return {
        "name": row.name,
        "name_href": address("/group", name=row.name),
        "lag": f"{row.lag:,}",
        "in_flight": f"{row.in_flight:,}",
        "tps": f"{row.tps:,.2f}",
        "topics": topics,
        "warning": warning,
        "warning_color": "negative" if row.divergent else "blue-grey",
    }


def create(view: View, table: PagedTable[GroupRow]) -> None:
    t = view.t
    with ui.dialog() as dialog, ui.card().classes("min-w-[24rem]"):
        ui.label(t("group.create")).classes("text-h6")
        name = ui.input(t("group")).classes("w-full").props("data-test=group-name autofocus")
        retries = ui.number(t("group.retry_max"), value=16, min=-1, precision=0)

        async def save() -> None:
            work = view.actions.create_group(
                view.who, str(name.value or "").strip(), retry_max=int(retries.value or 0)
            )
            if await view.told(work):
                dialog.close()
                await table.refresh()

        with ui.row().classes("w-full justify-end"):
            ui.button(t("cancel"), on_click=dialog.close).props("flat")
            ui.button(t("save"), on_click=save).props("data-test=save")
    dialog.open()
