"""One group: members, who has which queue, where they disagree, lag, reset with preview."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from nicegui import ui

from firearrow.console.data.groups import group_detail, matrices
from firearrow.console.view import address, moment, when_ms
from firearrow.console.widgets import (
    action_button,
    ask,
    column,
    heading,
    nothing,
    plain_table,
    section,
    tile,
)

if TYPE_CHECKING:
    from firearrow.client.admin_offsets import ResetTarget
    from firearrow.client.admin_results import OffsetReset
    from firearrow.console.data.groups import GroupDetail, Matrix
    from firearrow.console.view import View

MEMBER_COLUMNS_MAX: Final = 12


async def build(view: View) -> None:
    name, t = view.asked.get("name", ""), view.t
    heading(name, t("group"))
    detail = await group_detail(view.state.admin, name)
    with ui.row().classes("w-full gap-3 items-stretch"):
        total = 0 if detail.lag is None else detail.lag.total
        tile(t("overview.lag"), f"{total:,}", t("messages")).props("data-test=group-lag")
        tile(t("group.members"), str(len(detail.members)))
        tile(t("group.mode"), _word(view, detail.message_model), _word(view, detail.consume_type))
    if detail.divergent:
        _divergence(view, detail)
    with ui.row().classes("gap-2"):
        if view.may("group.reset") and detail.queues:
            action_button(
                t("group.reset"), "history", lambda: reset(view, detail), marker="group-reset"
            )
        action_button(
            t("page.dlq"),
            "report",
            lambda: ui.navigate.to(address("/dlq", group=name)),
            marker="group-dlq",
            color="secondary",
        )
        if view.may("group.delete"):
            action_button(
                t("delete"),
                "delete",
                lambda: delete(view, name),
                marker="group-delete",
                color="negative",
            )
    _members(view, detail)
    _lag(view, detail)
    for matrix in matrices(detail):
        _matrix(view, matrix)


def _word(view: View, name: str) -> str:
    """RocketMQ's name of a mode, in the visitor's language."""
    return view.t(f"mode.{name.lower()}") if name else "—"


def _divergence(view: View, detail: GroupDetail) -> None:
    """Members that subscribe to different things lose messages: say who wants what."""
    t = view.t
    with ui.card().classes("w-full fa-problem").props("flat data-test=divergent"):
        with ui.row().classes("items-center gap-2"):
            ui.icon("warning")
            ui.label(t("health.divergent", group=detail.name))
        for topic, wishes in sorted(detail.divergent.items()):
            for client, expression in sorted(wishes.items()):
                ui.label(f"{topic}: {client} → {expression or '—'}").classes("fa-mono")


def _members(view: View, detail: GroupDetail) -> None:
    t = view.t
    section(t("group.members"))
    if not detail.members:
        nothing(t("group.no_members"))
        return
    plain_table(
        [
            column("id", t("group.client"), mono=True),
            column("address", t("address"), mono=True),
            column("language", t("group.language")),
            column("version", t("version")),
            column("queues", t("topic.queues"), number=True),
        ],
        [
            {
                "id": one.client_id,
                "address": one.address,
                "language": one.language,
                "version": one.version,
                "queues": sum(owner == one.client_id for owner in detail.owners.values()),
            }
            for one in detail.members
        ],
        key="id",
        rows_per_page=50,
        marker="members",
    )
    if not detail.divergent:  # else there is no one answer, and the page says so above
        section(t("group.subscriptions"))
        plain_table(
            [column("topic", t("topic")), column("wants", t("group.wants"), mono=True)],
            [
                {"topic": topic, "wants": expression}
                for topic, expression in detail.subscriptions.items()
            ],
            key="topic",
            marker="subscriptions",
        )


def _lag(view: View, detail: GroupDetail) -> None:
    t = view.t
    section(t("group.lag_by_queue"))
    if not detail.queues:
        nothing(detail.error or t("group.no_offsets"))
        return
    plain_table(
        [
            column("topic", t("topic")),
            column("queue", t("queue")),
            column("end", t("queue.max"), number=True),
            column("committed", t("group.committed"), number=True),
            column("lag", t("overview.lag"), number=True),
            column("in_flight", t("group.in_flight"), number=True),
            column("last", t("group.last")),
            column("owner", t("group.client"), mono=True),
        ],
        [
            {
                "id": f"{one.queue}",
                "topic": one.queue.topic,
                "queue": f"{one.queue.broker_name}/{one.queue.queue_id}",
                "end": one.broker_offset,
                "committed": one.committed_offset,
                "lag": one.lag,
                "in_flight": one.in_flight,
                "last": moment(one.last_timestamp_ms),
                "owner": detail.owners.get(one.queue, "—"),
            }
            for one in detail.queues
        ],
        key="id",
        rows_per_page=100,
        marker="lag",
    )


def short(client_id: str) -> str:
    """What tells members of a group apart stands at the end."""
    return client_id if len(client_id) <= 20 else f"…{client_id[-19:]}"


def _matrix(view: View, matrix: Matrix) -> None:
    """Queues down, members across."""
    if not matrix.members:
        return
    section(view.t("group.matrix", topic=matrix.topic))
    members = matrix.members[:MEMBER_COLUMNS_MAX]
    rows: list[dict[str, Any]] = []
    for queue, lag, owner in matrix.rows:
        row = {"queue": f"{queue.broker_name}/{queue.queue_id}", "lag": lag}
        row |= {f"m{index}": "●" if owner == one else "" for index, one in enumerate(members)}
        rows.append(row)
    columns = [column("queue", view.t("queue")), column("lag", view.t("overview.lag"), number=True)]
    columns += [column(f"m{index}", short(one), mono=True) for index, one in enumerate(members)]
    plain_table(columns, rows, key="queue", marker="matrix")
    if matrix.unowned:
        ui.label(view.t("group.unowned", count=matrix.unowned)).classes(
            "text-caption text-orange-9"
        )


def target_of(choice: str, when: str) -> ResetTarget:
    """Where a reset goes, from what the form says."""
    if choice == "earliest":
        return "earliest"
    if choice == "latest":
        return "latest"
    return when_ms(when)


def reset(view: View, detail: GroupDetail) -> None:
    """Choose where to go, see what it means, then do it."""
    t = view.t
    topics = sorted({one.queue.topic for one in detail.queues})
    with ui.dialog() as dialog, ui.card().classes("min-w-[36rem]"):
        ui.label(t("group.reset")).classes("text-h6")
        topic = ui.select(topics, value=topics[0], label=t("topic")).classes("w-full")
        choices = {name: t(f"reset.{name}") for name in ("earliest", "latest", "time")}
        choice = ui.radio(choices, value="earliest").props("inline data-test=reset-to")
        when = ui.input(t("reset.when"), value=moment(view.state.clock.now_ms())[:19])
        when.bind_visibility_from(choice, "value", value="time")
        shown = ui.column().classes("w-full").props("data-test=preview")

        async def look() -> None:
            go.disable()
            plan = await view.attempt(_plan())
            if plan is not None:
                show_plan(view, shown, plan)
                go.enable()

        async def _plan() -> OffsetReset:
            to = target_of(str(choice.value), str(when.value or ""))
            return await view.actions.preview_reset(detail.name, str(topic.value), to)

        async def do() -> None:
            to = target_of(str(choice.value), str(when.value or ""))
            work = view.actions.reset(view.who, detail.name, str(topic.value), to)
            if await view.told(work):
                ui.navigate.reload()

        with ui.row().classes("w-full justify-end"):
            ui.button(t("cancel"), on_click=dialog.close).props("flat")
            ui.button(t("reset.preview"), on_click=look).props("outline data-test=reset-preview")
            go = ui.button(t("reset.do"), color="negative", on_click=do)
            go.props("data-test=reset-do").disable()
        for element in (choice, topic, when):  # another wish needs another look
            element.on_value_change(go.disable)
    dialog.open()


def show_plan(view: View, shown: ui.column, plan: OffsetReset) -> None:
    t = view.t
    shown.clear()
    with shown:
        ui.label(t("reset.effect", again=f"{plan.again:,}", skipped=f"{plan.skipped:,}"))
        plain_table(
            [
                column("queue", t("queue")),
                column("now", t("group.committed"), number=True),
                column("target", t("reset.target"), number=True),
                column("again", t("reset.again"), number=True),
                column("skipped", t("reset.skipped"), number=True),
            ],
            [
                {
                    "queue": f"{one.queue.broker_name}/{one.queue.queue_id}",
                    "now": "—" if one.committed is None else one.committed,
                    "target": one.target,
                    "again": one.again,
                    "skipped": one.skipped,
                }
                for one in plan.queues
            ],
            key="queue",
            rows_per_page=16,
        )


def delete(view: View, name: str) -> None:
    async def do() -> None:
        if await view.told(view.actions.delete_group(view.who, name)):
            ui.navigate.to("/groups")

    ask(view, view.t("group.delete", group=name), [view.t("group.delete_note")], do)
