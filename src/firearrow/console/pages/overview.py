"""How the cluster is, why, and what to do; rates, lag and latency as they go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from nicegui import ui

from firearrow.console import charts
from firearrow.console.data.health import number_of, score
from firearrow.console.widgets import heading, plain_table, plot, section, tile

if TYPE_CHECKING:
    from firearrow.console.data.health import Finding
    from firearrow.console.view import View

REFRESH_S: Final = 3.0
_COLORS: Final = {
    "down": "negative",
    "critical": "negative",
    "warning": "orange-9",
    "notice": "blue-grey",
}


async def build(view: View) -> None:
    t = view.t
    heading(t("page.overview"))
    with ui.row().classes("w-full gap-3 items-stretch"):
        health = tile(t("overview.health"), "—")
        health.props("data-test=score")
        puts = tile(t("overview.put_rate"), "—", t("per_second"))
        gets = tile(t("overview.get_rate"), "—", t("per_second"))
        lag = tile(t("overview.lag"), "—", t("messages"))
        brokers_tile = tile(t("overview.brokers"), "—")
        topics_tile = tile(t("overview.topics"), "—")
        groups_tile = tile(t("overview.groups"), "—")
    reasons = ui.column().classes("w-full gap-2").props("data-test=reasons")
    with ui.row().classes("w-full gap-3 q-mt-sm"):
        rates = plot(f"{t('overview.throughput')} ({t('per_second')})", rate_options(view))
        behind = plot(t("overview.lag"), lag_options(view))
        latency = plot(f"{t('overview.latency')} (ms)", latency_options(view))
    section(t("overview.brokers"))
    table = plain_table(
        [
            {"name": "broker", "label": t("broker"), "field": "broker", "align": "left"},
            {"name": "version", "label": t("version"), "field": "version", "align": "left"},
            {"name": "puts", "label": t("overview.put_rate"), "field": "puts", "align": "right"},
            {"name": "gets", "label": t("overview.get_rate"), "field": "gets", "align": "right"},
            {"name": "p99", "label": t("overview.put_p99"), "field": "p99", "align": "right"},
            {"name": "disk", "label": t("overview.disk"), "field": "disk", "align": "right"},
        ],
        [],
        key="broker",
        links=["broker"],
        marker="brokers",
    ).props("hide-bottom")
    shown: list[Any] = [None]

    async def refresh() -> None:
        found, findings = await view.state.health()
        points = score(findings)
        health.set_text(str(points))
        health.classes(replace=f"text-h5 {'text-positive' if points >= 80 else 'text-negative'}")
        if view.state.history.samples:
            last = view.state.history.samples[-1]
            puts.set_text(f"{last.put_rate:,.1f}")
            gets.set_text(f"{last.get_rate:,.1f}")
            lag.set_text(f"{last.lag:,}")
        brokers_tile.set_text(str(len(found)))
        if found:
            topics = (await view.state.catalog.topics()).rows
            own = {"system", "retry", "dlq"}
            topics_tile.set_text(f"{sum(row.kind not in own for row in topics):,}")
            groups = (await view.state.catalog.groups()).rows
            groups_tile.set_text(f"{sum(not row.system for row in groups):,}")
        table.rows = [broker_row(broker) for broker in found]
        for chart, options in (
            (rates, rate_options(view)),
            (behind, lag_options(view)),
            (latency, latency_options(view)),
        ):
            chart.options.clear()
            chart.options.update(options)
            chart.update()
        if findings != shown[0]:
            shown[0] = findings
            show_reasons(view, reasons, findings)

    await refresh()
    ui.timer(REFRESH_S, refresh, immediate=False)


def broker_row(broker: Any) -> dict[str, Any]:  # noqa: ANN401 - BrokerInfo
    runtime = broker.runtime
    return {
        "broker": f"{broker.name}:{broker.broker_id}",
        "broker_href": f"/broker?address={broker.address}",
        "version": broker.version or broker.error or "",
        "puts": f"{number_of(runtime, 'putTps'):,.1f}",
        "gets": f"{number_of(runtime, 'getTransferredTps'):,.1f}",
        "p99": f"{number_of(runtime, 'putLatency99'):.0f} ms",
        "disk": f"{number_of(runtime, 'commitLogDiskRatio') * 100:.0f} %",
    }


def show_reasons(view: View, column: ui.column, findings: list[Finding]) -> None:
    column.clear()
    with column:
        if not findings:
            with ui.row().classes("items-center gap-2 text-positive"):
                ui.icon("check_circle")
                ui.label(view.t("health.well"))
        for finding in findings[:20]:
            card = ui.card().classes("w-full q-pa-sm").props("flat bordered")
            with card, ui.row().classes("items-center gap-3 w-full"):
                word = finding.severity.word
                ui.badge(view.t(f"severity.{word}"), color=_COLORS[word])
                ui.label(view.t(finding.key, **finding.values))
                if finding.fix:
                    ui.space()
                    ui.label(finding.fix).classes("fa-mono fa-fix")


def rate_options(view: View) -> dict[str, Any]:
    samples = view.state.history.samples
    return charts.lines(
        {
            view.t("overview.in"): [(one.at_ms, one.put_rate) for one in samples],
            view.t("overview.out"): [(one.at_ms, one.get_rate) for one in samples],
        }
    )


def lag_options(view: View) -> dict[str, Any]:
    return charts.lines(view.state.history.lag_lines(), area=True)


def latency_options(view: View) -> dict[str, Any]:
    samples = view.state.history.samples
    series = {"p99": [(one.at_ms, one.put_p99_ms) for one in samples]}
    return charts.lines(series)
