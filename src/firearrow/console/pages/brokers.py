"""All brokers: role, version, traffic, disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firearrow.console.data.health import number_of
from firearrow.console.view import address
from firearrow.console.widgets import column, heading, nothing, plain_table

if TYPE_CHECKING:
    from firearrow.console.view import View


async def build(view: View) -> None:
    t = view.t
    heading(t("page.brokers"))
    brokers = await view.state.brokers.get(fresh=True)
    if not brokers:
        nothing(t("health.no_broker"))
        return
    plain_table(
        [
            column("broker", t("broker")),
            column("cluster", t("broker.cluster")),
            column("role", t("broker.role")),
            column("address", t("address"), mono=True),
            column("version", t("version")),
            column("puts", t("overview.put_rate"), number=True),
            column("gets", t("overview.get_rate"), number=True),
            column("today", t("broker.today"), number=True),
            column("disk", t("overview.disk"), number=True),
        ],
        [
            {
                "broker": one.name,
                "broker_href": address("/broker", address=one.address),
                "cluster": one.cluster,
                "role": t("broker.master")
                if one.is_master
                else f"{t('broker.slave')} {one.broker_id}",
                "role_color": "primary" if one.is_master else "blue-grey",
                "address": one.address,
                "version": one.version or one.error or "",
                "puts": f"{number_of(one.runtime, 'putTps'):,.1f}",
                "gets": f"{number_of(one.runtime, 'getTransferredTps'):,.1f}",
                "today": f"{number_of(one.runtime, 'msgPutTotalTodayNow'):,.0f}",
                "disk": f"{number_of(one.runtime, 'commitLogDiskRatio') * 100:.0f} %",
            }
            for one in brokers
        ],
        key="address",
        links=["broker"],
        badges=["role"],
        marker="brokers",
    )
