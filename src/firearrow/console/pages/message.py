"""One message: where it is, what is in it, what happened to it; send it again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nicegui import ui

from firearrow.console import charts
from firearrow.console.data.bodies import view_body
from firearrow.console.data.lifeline import lifeline
from firearrow.console.view import address, duration, moment, size_text
from firearrow.console.widgets import action_button, ask, column, heading, plain_table, section

if TYPE_CHECKING:
    from firearrow.client.message import ReceivedMessage
    from firearrow.console.view import View


async def build(view: View) -> None:
    t = view.t
    msg_id, topic = view.asked.get("id", ""), view.asked.get("topic", "")
    message = await view.state.admin.message_by_id(msg_id, topic or None)
    heading(message.msg_id, t("message"))
    _facts(view, message)
    if view.may("message.resend"):
        with ui.row():
            action_button(
                t("message.resend"), "redo", lambda: resend(view, message), marker="resend"
            )
    _body(view, message)
    await _life(view, message)
    section(t("message.properties"))
    plain_table(
        [column("name", t("name"), mono=True), column("value", t("value"), mono=True)],
        [{"name": name, "value": value} for name, value in sorted(message.properties.items())],
        marker="properties",
    )


def _facts(view: View, message: ReceivedMessage) -> None:
    t = view.t
    facts = [
        (t("topic"), message.topic),
        (t("queue"), f"{message.broker_name}/{message.queue_id} @ {message.queue_offset}"),
        (t("message.place"), message.offset_msg_id),
        (t("message.tags"), message.tags or "—"),
        (t("message.keys"), " ".join(message.keys) or "—"),
        (t("message.born"), f"{moment(message.born_timestamp)}  {message.born_host}"),
        (t("message.stored"), f"{moment(message.store_timestamp)}  {message.store_host}"),
        (t("message.size"), size_text(message.stored_bytes)),
        (t("message.times"), str(message.reconsume_times)),
    ]
    with ui.grid(columns="auto 1fr").classes("gap-x-6 gap-y-1"):
        for name, value in facts:
            ui.label(name).classes("fa-quiet")
            ui.label(value).classes("fa-mono")


def _body(view: View, message: ReceivedMessage) -> None:
    t = view.t
    body = view_body(message.body, may_see=view.may_see_bodies)
    section(t("message.body"))
    if body.masked:
        ui.label(t("message.masked")).classes("text-caption fa-quiet").props("data-test=masked")
    forms = {"json": body.json, "text": body.text, "hex": body.hex}
    known = {name: text for name, text in forms.items() if text is not None}
    with ui.tabs().props("align=left dense no-caps") as tabs:
        for name in known:
            ui.tab(name, label=t(f"body.{name}")).props(f"data-test=body-{name}")
    with ui.tab_panels(tabs, value=next(iter(known))).classes("w-full").props("animated=false"):
        for name, text in known.items():
            with ui.tab_panel(name).classes("q-pa-none"):
                ui.label(text).classes("fa-pre").props(f"data-test=body-text-{name}")
    if body.cut:
        ui.label(t("message.cut", size=size_text(body.size))).classes("text-caption fa-quiet")


async def _life(view: View, message: ReceivedMessage) -> None:
    t = view.t
    section(t("message.life"))
    events, traced = await lifeline(view.state.admin, message)
    if not traced:
        ui.label(t("life.untraced")).classes("text-caption fa-quiet")
    if len(events) > 2:
        moments = [(one.at_ms, lane_text(view, one.lane), t(one.key)) for one in events]
        height = 90 + 46 * len({one.lane for one in events})
        ui.echart(charts.swimlanes(moments)).classes("w-full").style(f"height: {height}px")
    with ui.element("div").props("data-test=life").classes("w-full"):
        plain_table(
            [
                column("at", t("time"), mono=True),
                column("lane", t("life.who")),
                column("what", t("life.what")),
                column("took", t("life.took"), number=True),
                column("text", ""),
            ],
            [
                {
                    "id": index,
                    "at": moment(one.at_ms),
                    "lane": lane_text(view, one.lane),
                    "what": t(one.key),
                    "took": "" if one.took_ms is None else duration(one.took_ms),
                    "text": one.text,
                }
                for index, one in enumerate(events)
            ],
            key="id",
        )


def lane_text(view: View, lane: str) -> str:
    return view.t(f"lane.{lane}") if lane in {"producer", "broker"} else lane


def resend(view: View, message: ReceivedMessage) -> None:
    async def do() -> None:
        receipt = await view.attempt(view.actions.resend(view.who, message))
        if receipt is not None:
            ui.notify(view.t("message.sent", id=receipt.msg_id), type="positive")
            if receipt.offset_msg_id:
                ui.navigate.to(address("/message", id=receipt.offset_msg_id))

    lines = [view.t("message.resend_note", topic=message.topic)]
    ask(view, view.t("message.resend"), lines, do)
