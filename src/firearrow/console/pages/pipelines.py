"""Spark pipelines of this machine's projects, and groups that hold progress of Spark queries."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from nicegui import ui

from firearrow.console.data.pipelines import is_spark_group, read_pipelines
from firearrow.console.view import address, duration, moment
from firearrow.console.widgets import column, heading, nothing, plain_table, section

if TYPE_CHECKING:
    from firearrow.console.data.pipelines import Pipeline
    from firearrow.console.view import View

REFRESH_S: Final = 5.0
_COLORS: Final = {"running": "positive", "failed": "negative", "silent": "orange-9"}


async def build(view: View) -> None:
    t = view.t
    projects = ", ".join(str(one) for one in view.state.settings.projects)
    heading(t("page.pipelines"), projects)
    shown = ui.column().classes("w-full gap-3").props("data-test=pipelines")
    last: list[Any] = [None]

    async def refresh() -> None:
        now_ms = view.state.clock.now_ms()
        found = await asyncio.to_thread(read_pipelines, view.state.settings.projects, now_ms)
        if found != last[0]:
            last[0] = found
            shown.clear()
            with shown:
                if not found:
                    nothing(t("pipelines.none"))
                for one in found:
                    _pipeline(view, one)

    await refresh()
    ui.timer(REFRESH_S, refresh, immediate=False)
    section(t("pipelines.groups"))
    groups = [one for one in (await view.state.catalog.groups()).rows if is_spark_group(one.name)]
    if not groups:
        nothing(t("pipelines.no_groups"))
        return
    plain_table(
        [column("name", t("group")), column("lag", t("overview.lag"), number=True)],
        [
            {
                "name": one.name,
                "name_href": address("/group", name=one.name),
                "lag": f"{one.lag:,}",
            }
            for one in groups
        ],
        links=["name"],
        marker="spark-groups",
    )


def _pipeline(view: View, pipeline: Pipeline) -> None:
    t = view.t
    with ui.card().classes("w-full").props("flat bordered"):
        with ui.row().classes("items-center gap-3"):
            ui.label(pipeline.name).classes("text-subtitle1")
            ui.badge(pipeline.state, color=_COLORS.get(pipeline.state, "blue-grey"))
            ui.label(moment(pipeline.updated_ms)).classes("text-caption fa-quiet")
        if pipeline.error:
            ui.label(pipeline.error).classes("text-negative fa-mono")
        plain_table(
            [
                column("name", t("name")),
                column("batches", t("pipelines.batches"), number=True),
                column("rows", t("pipelines.rows"), number=True),
                column("rate", t("pipelines.rate"), number=True),
                column("batch", t("pipelines.batch"), number=True),
                column("lag", t("overview.lag"), number=True),
                column("watermark", t("pipelines.watermark")),
            ],
            [
                {
                    "name": one.name,
                    "batches": f"{one.batches:,}",
                    "rows": f"{one.rows:,}",
                    "rate": f"{one.rows_per_second:,.1f}",
                    "batch": duration(one.batch_ms),
                    "lag": f"{one.lag:,}",
                    "watermark": one.watermark or "—",
                }
                for one in pipeline.streams
            ],
            marker="streams",
        )
        ui.label(pipeline.file).classes("text-caption fa-quiet fa-mono")
