"""Messages that wait for their time: how many, which, and taking one back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nicegui import ui

from firearrow.client.admin_waiting import TimerPage, timer_counts, waiting_timers
from firearrow.console import charts
from firearrow.console.view import address, duration, moment
from firearrow.console.widgets import (
    action_button,
    ask,
    column,
    heading,
    nothing,
    plain_table,
    plot,
)

if TYPE_CHECKING:
    from firearrow.console.view import View


LISTED: Final = 100
TOPICS_SHOWN: Final = 30


async def build(view: View) -> None:
    t, topic = view.t, view.asked.get("topic", "")
    heading(t("page.scheduled"))
    counts = await timer_counts(view.state.admin)
    if not counts:
        nothing(t("scheduled.none"))
        if not topic:
            return
    most = dict(sorted(counts.items(), key=lambda one: -one[1])[:TOPICS_SHOWN])
    if most:
        values = {name: float(count) for name, count in most.items()}
        with ui.row().classes("w-full"):
            plot(t("scheduled.by_topic"), charts.bars(values), "h-40")
        plain_table(
            [column("name", t("topic")), column("count", t("messages"), number=True)],
            [
                {"name": name, "name_href": address("/scheduled", topic=name), "count": count}
                for name, count in most.items()
            ],
            links=["name"],
            marker="scheduled-topics",
        )
    if topic:
        page = await waiting_timers(view.state.admin, topic, limit=LISTED)
        _list(view, topic, page)


def _list(view: View, topic: str, page: TimerPage) -> None:
    t = view.t
    now_ms = view.state.clock.now_ms()
    ui.label(t("scheduled.of", topic=topic)).classes("text-subtitle1 q-mt-md")
    table = plain_table(
        [
            column("id", t("message.id"), mono=True),
            column("due", t("scheduled.due")),
            column("left", t("scheduled.left"), number=True),
            column("broker", t("broker")),
            column("tags", t("message.tags")),
            column("keys", t("message.keys")),
        ],
        [
            {
                "id": one.unique_key,
                "due": moment(one.due_time),
                "left": duration(max(0, one.due_time - now_ms)),
                "broker": broker,
                "tags": one.tags or "",
                "keys": one.keys or "",
            }
            for broker, one in page.timers
        ],
        key="id",
        rows_per_page=25,
        marker="scheduled",
    )
    if page.cursors:
        ui.label(t("scheduled.more", count=LISTED)).classes("text-caption fa-quiet")
    if view.may("message.recall"):
        table.props("selection=single")
        known = {one.unique_key: one for _, one in page.timers}

        def chosen() -> None:
            if not table.selected:
                ui.notify(t("dlq.choose"), type="warning")
                return
            timer = known[table.selected[0]["id"]]
            recall(view, topic, timer.recall_handle, timer.unique_key)

        action_button(t("scheduled.recall"), "undo", chosen, marker="recall")


def recall(view: View, topic: str, handle: str, msg_id: str) -> None:
    async def do() -> None:
        work = view.actions.recall(view.who, topic, handle, msg_id)
        if await view.told(work):
            ui.navigate.reload()

    lines = [view.t("scheduled.recall_note", id=msg_id)]
    ask(view, view.t("scheduled.recall"), lines, do)
