"""Transactions that are open: whose, how old, how often their producers were asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nicegui import ui

from firearrow.client.admin_waiting import open_transactions
from firearrow.console.view import address, duration, moment
from firearrow.console.widgets import column, heading, nothing, plain_table, tile

if TYPE_CHECKING:
    from firearrow.console.view import View

LISTED: Final = 200


async def build(view: View) -> None:
    t = view.t
    heading(t("page.transactions"))
    found = await open_transactions(view.state.admin, LISTED)
    total = sum(one.total for one in found)
    oldest = max((half.age for one in found for half in one.transactions), default=0)
    with ui.row().classes("w-full gap-3"):
        tile(t("transactions.open"), f"{total:,}").props("data-test=open")
        tile(t("transactions.oldest"), duration(oldest) if total else "—")
    if not total:
        nothing(t("transactions.none"))
        return
    plain_table(
        [
            column("id", t("message.id"), mono=True),
            column("topic", t("topic")),
            column("group", t("transactions.producers")),
            column("born", t("message.born")),
            column("age", t("transactions.age"), number=True),
            column("checks", t("transactions.checks"), number=True),
            column("broker", t("broker")),
        ],
        [
            {
                "id": half.transaction_id,
                "id_href": address("/message", id=half.offset_msg_id),
                "topic": half.topic,
                "group": half.producer_group,
                "born": moment(half.born_timestamp),
                "age": duration(half.age),
                "checks": half.checks,
                "broker": one.broker,
            }
            for one in found
            for half in one.transactions
        ],
        key="id",
        links=["id"],
        rows_per_page=25,
        marker="transactions",
    )
