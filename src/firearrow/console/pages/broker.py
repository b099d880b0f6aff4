"""One broker: how it runs, its replicas, its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nicegui import ui

from firearrow.base.errors import FirearrowError
from firearrow.client.admin_waiting import ha_status
from firearrow.client.errors import BrokerNotFound
from firearrow.console.actions import explain
from firearrow.console.view import moment, size_text
from firearrow.console.widgets import action_button, column, heading, nothing, plain_table, section

if TYPE_CHECKING:
    from firearrow.client.admin_results import BrokerInfo
    from firearrow.console.view import View


async def build(view: View) -> None:
    t, where = view.t, view.asked.get("address", "")
    brokers = await view.state.brokers.get(fresh=True)
    broker = next((one for one in brokers if one.address == where), None)
    if broker is None:
        raise BrokerNotFound(f"there is no broker at {where}")
    heading(f"{broker.name}:{broker.broker_id}", f"{broker.cluster} · {broker.address}")
    await _replication(view, broker)
    section(t("broker.runtime"))
    _table(view, broker.runtime, "runtime")
    section(t("broker.config"))
    if view.may("broker.config"):
        action_button(
            t("broker.change"), "tune", lambda: change(view, broker), marker="broker-config"
        )
    try:
        _table(view, await view.state.admin.broker_config(broker.address), "config")
    except FirearrowError as error:
        nothing(explain(error))


def _table(view: View, values: dict[str, str], marker: str) -> None:
    t = view.t
    search = ui.input(placeholder=t("filter")).props("dense outlined clearable")
    table = plain_table(
        [
            column("name", t("name"), mono=True, sortable=True),
            column("value", t("value"), mono=True),
        ],
        [{"name": name, "value": value} for name, value in sorted(values.items())],
        rows_per_page=15,
        marker=marker,
    )
    search.bind_value_to(table, "filter")


async def _replication(view: View, broker: BrokerInfo) -> None:
    t = view.t
    section(t("broker.replication"))
    try:
        ha = await ha_status(view.state.admin, broker.address)
    except FirearrowError as error:
        nothing(explain(error))
        return
    if not ha.master:
        client = ha.ha_client_runtime_info
        ui.label(
            t(
                "broker.follows",
                master=client.master_addr or "—",
                offset=f"{client.max_offset:,}",
                read=moment(client.last_read_timestamp),
            )
        ).props("data-test=replication")
        return
    ui.label(
        t(
            "broker.leads",
            offset=f"{ha.master_commit_log_max_offset:,}",
            count=len(ha.ha_connection_info),
            in_sync=ha.in_sync_slave_nums,
        )
    ).props("data-test=replication")
    if ha.ha_connection_info:
        plain_table(
            [
                column("address", t("address"), mono=True),
                column("offset", t("broker.acked"), number=True),
                column("behind", t("broker.behind"), number=True),
                column("rate", t("broker.transfer"), number=True),
                column("sync", t("broker.in_sync")),
            ],
            [
                {
                    "address": one.addr or "—",
                    "offset": one.slave_ack_offset,
                    "behind": size_text(max(0, one.diff)),
                    "rate": f"{size_text(one.transferred_byte_in_second)}/s",
                    "sync": "✓" if one.in_sync else "✗",
                }
                for one in ha.ha_connection_info
            ],
            key="address",
            marker="replicas",
        )


def change(view: View, broker: BrokerInfo) -> None:
    t = view.t
    with ui.dialog() as dialog, ui.card().classes("min-w-[26rem]"):
        ui.label(t("broker.change")).classes("text-h6")
        key = ui.input(t("name")).classes("w-full").props("data-test=config-key")
        value = ui.input(t("value")).classes("w-full").props("data-test=config-value")

        async def save() -> None:
            work = view.actions.set_broker(
                view.who, broker.name, str(key.value or "").strip(), str(value.value or "")
            )
            if await view.told(work):
                ui.navigate.reload()

        with ui.row().classes("w-full justify-end"):
            ui.button(t("cancel"), on_click=dialog.close).props("flat")
            ui.button(t("save"), on_click=save).props("data-test=save")
    dialog.open()
