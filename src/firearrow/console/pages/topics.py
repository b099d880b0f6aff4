"""All topics: fifty thousand of them as quickly as five."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from nicegui import ui

from firearrow.console.data.catalog import TOPIC_KINDS
from firearrow.console.view import address
from firearrow.console.widgets import PagedTable, action_button, column, heading

if TYPE_CHECKING:
    from firearrow.console.data.catalog import TopicRow
    from firearrow.console.data.paging import Page, Query
    from firearrow.console.view import View

PERMS: Final = {6: "RW", 4: "R", 2: "W"}
TYPES: Final = ("NORMAL", "FIFO", "DELAY", "TRANSACTION")
_KIND_COLORS: Final = {
    "normal": "blue-grey",
    "system": "blue-grey",
    "retry": "orange-9",
    "dlq": "negative",
}


async def build(view: View) -> None:
    t = view.t
    heading(t("page.topics"))

    async def fetch(query: Query) -> Page[TopicRow]:
        return await view.state.catalog.topic_page(query)

    table: PagedTable[TopicRow] = PagedTable(
        view,
        [
            column("name", t("topic"), sortable=True),
            column("kind", t("topic.kind"), sortable=True),
            column("queues", t("topic.queues"), number=True, sortable=True),
            column("perm", t("topic.perm"), sortable=True),
            column("brokers", t("overview.brokers")),
        ],
        fetch,
        lambda row: topic_row(view, row),
        links=["name"],
        badges=["kind"],
        kinds={kind: t(f"kind.{kind}") for kind in TOPIC_KINDS},
        marker="topics",
    )
    if view.may("topic.create"):
        with table.extra:
            action_button(
                t("topic.create"), "add", lambda: create(view, table), marker="topic-create"
            )
    await table.refresh()


def topic_row(view: View, row: TopicRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "name_href": address("/topic", name=row.name),
        "kind": view.t(f"kind.{row.kind}"),
        "kind_color": _KIND_COLORS.get(row.kind, "primary"),
        "queues": row.write_queues
        if row.write_queues == row.read_queues
        else f"{row.write_queues} / {row.read_queues}",
        "perm": PERMS.get(row.perm & 6, "—"),
        "brokers": ", ".join(row.brokers),
    }


def create(view: View, table: PagedTable[TopicRow]) -> None:
    t = view.t
    with ui.dialog() as dialog, ui.card().classes("min-w-[26rem]"):
        ui.label(t("topic.create")).classes("text-h6")
        name = ui.input(t("topic")).classes("w-full").props("data-test=topic-name autofocus")
        queues = ui.number(t("topic.queues"), value=8, min=1, max=1024, precision=0)
        kind = ui.select(list(TYPES), value="NORMAL", label=t("topic.kind")).classes("w-full")
        perm = ui.select(PERMS, value=6, label=t("topic.perm")).classes("w-full")
        order = ui.checkbox(t("topic.order"))

        async def save() -> None:
            done = await view.told(
                view.actions.create_topic(
                    view.who,
                    str(name.value or "").strip(),
                    queues=int(queues.value or 0),
                    perm=int(perm.value or 0),
                    kind=str(kind.value),
                    order=bool(order.value),
                )
            )
            if done:
                dialog.close()
                await table.refresh()

        with ui.row().classes("w-full justify-end"):
            ui.button(t("cancel"), on_click=dialog.close).props("flat")
            ui.button(t("save"), on_click=save).props("data-test=save")
    dialog.open()
