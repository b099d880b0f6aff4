"""One topic: queues, route, who consumes it; change it, delete it, send it a message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nicegui import ui

from firearrow.console import charts
from firearrow.console.pages.topics import PERMS
from firearrow.console.view import address, moment
from firearrow.console.widgets import (
    action_button,
    ask,
    column,
    heading,
    nothing,
    plain_table,
    plot,
    section,
    tile,
)

if TYPE_CHECKING:
    from firearrow.client.admin_results import TopicStats
    from firearrow.console.view import View


async def build(view: View) -> None:
    name, t = view.asked.get("name", ""), view.t
    heading(name, t("topic"))
    stats = await view.state.admin.topic_stats(name)
    with ui.row().classes("w-full gap-3 items-stretch"):
        tile(t("messages"), f"{stats.messages:,}").props("data-test=topic-messages")
        tile(t("topic.queues"), str(len(stats.queues)))
        tile(t("overview.put_rate"), f"{stats.put_tps:,.2f}", t("per_second"))
    await _buttons(view, name)
    _queues(view, stats)
    await _route(view, name)
    await _consumers(view, name)


async def _buttons(view: View, name: str) -> None:
    t = view.t
    with ui.row().classes("gap-2"):
        action_button(
            t("topic.browse"),
            "search",
            lambda: ui.navigate.to(address("/messages", topic=name)),
            marker="topic-browse",
            color="secondary",
        )
        if view.may("message.send"):
            action_button(t("topic.send"), "send", lambda: send(view, name), marker="topic-send")
        if view.may("topic.update"):
            action_button(
                t("topic.update"),
                "edit",
                lambda: update(view, name),
                marker="topic-update",
                color="secondary",
            )
        if view.may("topic.delete"):
            action_button(
                t("delete"),
                "delete",
                lambda: delete(view, name),
                marker="topic-delete",
                color="negative",
            )


def _queues(view: View, stats: TopicStats) -> None:
    t = view.t
    section(t("topic.queues"))
    if len(stats.queues) > 1:
        values = {
            f"{one.queue.broker_name}/{one.queue.queue_id}": float(one.messages)
            for one in stats.queues[:64]
        }
        with ui.row().classes("w-full"):
            plot(t("topic.fill"), charts.bars(values), "h-40")
    plain_table(
        [
            column("queue", t("queue")),
            column("min", t("queue.min"), number=True),
            column("max", t("queue.max"), number=True),
            column("messages", t("messages"), number=True),
            column("last", t("queue.last")),
        ],
        [
            {
                "queue": f"{one.queue.broker_name}/{one.queue.queue_id}",
                "min": one.min_offset,
                "max": one.max_offset,
                "messages": one.messages,
                "last": moment(one.last_stored_ms),
            }
            for one in stats.queues
        ],
        key="queue",
        rows_per_page=64,
        marker="queues",
    )


async def _route(view: View, name: str) -> None:
    t = view.t
    section(t("topic.route"))
    route = await view.state.admin.topic_route(name)
    addresses = {one.broker_name: one.broker_addrs for one in route.broker_datas}
    plain_table(
        [
            column("broker", t("broker")),
            column("read", t("topic.read_queues"), number=True),
            column("write", t("topic.write_queues"), number=True),
            column("perm", t("topic.perm")),
            column("addresses", t("address")),
        ],
        [
            {
                "broker": one.broker_name,
                "read": one.read_queue_nums,
                "write": one.write_queue_nums,
                "perm": PERMS.get(one.perm & 6, "—"),
                "addresses": ", ".join(
                    f"{number}: {where}"
                    for number, where in sorted(addresses.get(one.broker_name, {}).items())
                ),
            }
            for one in route.queue_datas
        ],
        key="broker",
        marker="route",
    )


async def _consumers(view: View, name: str) -> None:
    t = view.t
    section(t("topic.groups"))
    groups = await view.state.admin.topic_groups(name)
    if not groups:
        nothing(t("topic.no_groups"))
        return
    known = (await view.state.catalog.groups()).by_name
    plain_table(
        [column("name", t("group")), column("lag", t("overview.lag"), number=True)],
        [
            {
                "name": group,
                "name_href": address("/group", name=group),
                "lag": known[group].lag if group in known else "—",
            }
            for group in groups
        ],
        links=["name"],
        marker="topic-groups",
    )


def send(view: View, name: str) -> None:
    t = view.t
    with ui.dialog() as dialog, ui.card().classes("min-w-[30rem]"):
        ui.label(t("topic.send")).classes("text-h6")
        tags = ui.input(t("message.tags")).classes("w-full")
        keys = ui.input(t("message.keys")).classes("w-full").props("data-test=send-keys")
        delay = ui.number(t("message.delay"), value=0, min=0, precision=0)
        body = ui.textarea(t("message.body")).classes("w-full").props("data-test=send-body")

        async def go() -> None:
            receipt = await view.attempt(
                view.actions.send(
                    view.who,
                    name,
                    str(body.value or ""),
                    tags=str(tags.value or ""),
                    keys=str(keys.value or ""),
                    delay_s=int(delay.value or 0),
                )
            )
            if receipt is not None:
                ui.notify(t("message.sent", id=receipt.msg_id), type="positive")
                dialog.close()

        with ui.row().classes("w-full justify-end"):
            ui.button(t("cancel"), on_click=dialog.close).props("flat")
            ui.button(t("send"), on_click=go).props("data-test=save")
    dialog.open()


async def update(view: View, name: str) -> None:
    t = view.t
    configs = await view.attempt(view.state.admin.topic_config(name))
    if not configs:
        return
    config = next(iter(configs.values()))
    with ui.dialog() as dialog, ui.card().classes("min-w-[24rem]"):
        ui.label(t("topic.update")).classes("text-h6")
        write = ui.number(t("topic.write_queues"), value=config.write_queue_nums, min=1)
        write.props("data-test=write-queues")
        read = ui.number(t("topic.read_queues"), value=config.read_queue_nums, min=1)
        perm = ui.select(PERMS, value=config.perm & 6 or 6, label=t("topic.perm"))
        ui.label(t("topic.shrink")).classes("text-caption fa-quiet")

        async def save() -> None:
            done = await view.told(
                view.actions.update_topic(
                    view.who,
                    name,
                    read_queues=int(read.value or 0),
                    write_queues=int(write.value or 0),
                    perm=int(perm.value or 0),
                )
            )
            if done:
                ui.navigate.reload()

        with ui.row().classes("w-full justify-end"):
            ui.button(t("cancel"), on_click=dialog.close).props("flat")
            ui.button(t("save"), on_click=save).props("data-test=save")
    dialog.open()


def delete(view: View, name: str) -> None:
    async def do() -> None:
        if await view.told(view.actions.delete_topic(view.who, name)):
            ui.navigate.to("/topics")

    ask(view, view.t("topic.delete", topic=name), [view.t("topic.delete_note")], do)
