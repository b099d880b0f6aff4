"""What groups gave up on: look, send again, take away as a file."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from nicegui import ui

from firearrow.console.data import messages as finding
from firearrow.console.pages.messages import show_messages
from firearrow.console.view import address
from firearrow.console.widgets import action_button, ask, heading, nothing

if TYPE_CHECKING:
    from firearrow.client.message import ReceivedMessage
    from firearrow.console.view import View

EXPORTED_MAX: Final = 10_000


async def build(view: View) -> None:
    t, group = view.t, view.asked.get("group", "")
    heading(t("page.dlq"))
    groups = await view.state.catalog.dlq_groups()
    if group and group not in groups:
        groups.append(group)
    if not groups:
        nothing(t("dlq.none"))
        return
    chosen = ui.select(
        groups,
        value=group or None,
        label=t("group"),
        with_input=True,
        on_change=lambda event: ui.navigate.to(address("/dlq", group=str(event.value or ""))),
    )
    chosen.classes("w-96").props("dense outlined data-test=dlq-group")
    if not group:
        return
    found = await finding.dead_letters(view.state.admin, group)
    if not found.messages:
        nothing(t("dlq.empty", group=group))
        return
    note = t("search.found", count=len(found.messages))
    ui.label(note if found.complete else f"{note} {t('dlq.more')}").props("data-test=found-note")
    buttons = ui.row().classes("gap-2")
    table = show_messages(view, found.messages, marker="dead", dead=True).props(
        "selection=multiple"
    )
    by_place = {one.offset_msg_id: one for one in found.messages}

    def selected() -> list[ReceivedMessage]:
        places = [row["place"] for row in table.selected]
        return [by_place[place] for place in places if place in by_place]

    with buttons:
        if view.may("dlq.resend"):
            action_button(
                t("dlq.resend"),
                "redo",
                lambda: resend(view, group, selected()),
                marker="dlq-resend",
            )
        if view.may("dlq.export"):
            for kind in ("csv", "json"):
                action_button(
                    t(f"dlq.{kind}"),
                    "download",
                    partial(export, view, group, kind),
                    marker=f"dlq-{kind}",
                    color="secondary",
                )


def resend(view: View, group: str, messages: list[ReceivedMessage]) -> None:
    if not messages:
        ui.notify(view.t("dlq.choose"), type="warning")
        return

    async def do() -> None:
        await view.told(view.actions.resend_dead(view.who, group, messages))

    lines = [view.t("dlq.resend_note", count=len(messages), group=group)]
    ask(view, view.t("dlq.resend"), lines, do)


async def export(view: View, group: str, kind: str) -> None:
    """All dead letters of a group, as far as a file is good for it."""
    found = await view.attempt(finding.dead_letters(view.state.admin, group, EXPORTED_MAX))
    if found is None:
        return
    if not await view.told(view.actions.note_export(view.who, group, len(found.messages))):
        return
    may_see = view.may_see_bodies
    if kind == "csv":
        data, media = finding.export_csv(found.messages, may_see=may_see), "text/csv"
    else:
        data, media = finding.export_json(found.messages, may_see=may_see), "application/json"
    ui.download(data, f"dlq-{group}.{kind}", media)
