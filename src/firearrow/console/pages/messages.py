"""Finding messages, and following the end of a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from nicegui import ui

from firearrow.base.errors import FirearrowError
from firearrow.console.actions import explain
from firearrow.console.data import messages as finding
from firearrow.console.view import address, moment, size_text, when_ms
from firearrow.console.widgets import action_button, column, heading, plain_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from firearrow.client.message import ReceivedMessage
    from firearrow.console.data.messages import Found
    from firearrow.console.view import View

TAIL_S: Final = 1.0
TAIL_ROWS_MAX: Final = 200
LOOK_BACK_MS: Final = 3_600_000


def message_columns(view: View, *, dead: bool = False) -> list[dict[str, Any]]:
    """Of dead letters it matters where they came from, not where they are."""
    t = view.t
    origin = [column("came", t("dlq.came")), column("times", t("dlq.tries"), number=True)]
    return [
        column("id", t("message.id"), mono=True),
        *(origin if dead else [column("topic", t("topic"))]),
        column("queue", t("queue")),
        column("offset", t("message.offset"), number=True),
        column("tags", t("message.tags")),
        column("keys", t("message.keys")),
        column("stored", t("message.stored")),
        column("size", t("message.size"), number=True),
        column("body", t("message.body")),
    ]


def message_row(view: View, message: ReceivedMessage) -> dict[str, Any]:
    row = finding.row_of(message, may_see=view.may_see_bodies)
    row["id_href"] = address("/message", id=message.offset_msg_id)
    row["stored"] = moment(message.store_timestamp)
    row["size"] = size_text(message.stored_bytes)
    return row


def show_messages(
    view: View, messages: Sequence[ReceivedMessage], marker: str = "found", *, dead: bool = False
) -> ui.table:
    rows = [message_row(view, one) for one in messages]
    columns = message_columns(view, dead=dead)
    return plain_table(columns, rows, key="place", links=["id"], rows_per_page=25, marker=marker)


async def build(view: View) -> None:
    t, asked = view.t, view.asked
    heading(t("page.messages"))
    topics = [row.name for row in (await view.state.catalog.topics()).rows]
    topic = ui.input(t("topic"), value=asked.get("topic", ""), autocomplete=topics[:2_000])
    topic.classes("w-96").props("dense outlined data-test=search-topic")
    with ui.tabs().props("align=left dense no-caps") as tabs:
        for name in ("time", "key", "id", "tail"):
            ui.tab(name, label=t(f"search.{name}")).props(f"data-test=tab-{name}")
    first = "key" if asked.get("key") else "id" if asked.get("id") else "time"
    with ui.tab_panels(tabs, value=first).classes("w-full").props("animated=false"):
        with ui.tab_panel("time"):
            _by_time(view, topic)
        with ui.tab_panel("key"):
            _by_key(view, topic)
        with ui.tab_panel("id"):
            _by_id(view, topic)
        with ui.tab_panel("tail"):
            _tail(view, topic)


async def _show(view: View, results: ui.column, work: Any) -> None:  # noqa: ANN401 - an awaitable
    results.clear()
    with results:
        try:
            found: Found = await work
        except FirearrowError as error:
            ui.label(explain(error)).classes("text-negative")
            return
        note = view.t("search.found", count=len(found.messages))
        if not found.complete:
            note += " " + view.t("search.cut", scanned=f"{found.scanned:,}")
        ui.label(note).classes("text-caption fa-quiet").props("data-test=found-note")
        show_messages(view, found.messages)


def _by_time(view: View, topic: ui.input) -> None:
    t = view.t
    now_ms = view.state.clock.now_ms()
    with ui.row().classes("items-center gap-3"):
        begin = ui.input(t("search.begin"), value=moment(now_ms - LOOK_BACK_MS)[:19])
        end = ui.input(t("search.end"), value=moment(now_ms + LOOK_BACK_MS)[:19])
        tag = ui.input(t("message.tags")).props("data-test=search-tag")
        for field in (begin, end, tag):
            field.props("dense outlined")

        async def work() -> Found:
            return await finding.by_time(
                view.state.admin,
                str(topic.value or ""),
                when_ms(str(begin.value)),
                when_ms(str(end.value)),
                tag=str(tag.value or ""),
            )

        action_button(
            t("search"), "search", lambda: _show(view, results, work()), marker="search-time"
        )
    results = ui.column().classes("w-full")


def _by_key(view: View, topic: ui.input) -> None:
    t = view.t
    with ui.row().classes("items-center gap-3"):
        key = ui.input(t("message.keys"), value=view.asked.get("key", ""))
        key.props("dense outlined data-test=search-key")

        async def work() -> Found:
            return await finding.by_key(
                view.state.admin, str(topic.value or ""), str(key.value or "")
            )

        action_button(
            t("search"), "search", lambda: _show(view, results, work()), marker="search-by-key"
        )
    results = ui.column().classes("w-full")


def _by_id(view: View, topic: ui.input) -> None:
    t = view.t
    with ui.row().classes("items-center gap-3"):
        msg_id = ui.input(t("message.id"), value=view.asked.get("id", ""))
        msg_id.classes("w-96").props("dense outlined data-test=search-id")

        async def work() -> Found:
            return await finding.by_id(
                view.state.admin, str(msg_id.value or ""), str(topic.value or "")
            )

        action_button(
            t("search"), "search", lambda: _show(view, results, work()), marker="search-by-id"
        )
    results = ui.column().classes("w-full")


def _tail(view: View, topic: ui.input) -> None:
    """New messages as they come, newest on top. It ends with the page, or by the switch."""
    t = view.t
    following: list[finding.Tail] = []

    def stop() -> None:
        timer.deactivate()
        button.set_text(t("tail.start"))
        button.set_icon("play_arrow")

    async def switch() -> None:
        if timer.active:
            stop()
            return
        tail = await view.attempt(_begin())
        if tail is not None:
            following[:] = [tail]
            table.rows = []
            button.set_text(t("tail.stop"))
            button.set_icon("stop")
            timer.activate()

    async def _begin() -> finding.Tail:
        tail = finding.Tail(view.state.admin, str(topic.value or ""))
        await tail.begin(back=3)
        return tail

    async def more() -> None:
        found = await view.attempt(following[0].more()) if following else []
        if found is None:
            stop()
        elif found:
            fresh = [message_row(view, one) for one in reversed(found)]
            table.rows = [*fresh, *table.rows][:TAIL_ROWS_MAX]

    button = action_button(t("tail.start"), "play_arrow", switch, marker="tail-switch")
    timer = ui.timer(TAIL_S, more, active=False)
    table = plain_table(message_columns(view), [], key="place", links=["id"], marker="tail")
