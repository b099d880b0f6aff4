"""Options of the plots, for ECharts. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Distinguishable with the usual kinds of colour blindness (Okabe and Ito).
COLORS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#999999")


# Readable on light and on dark ground.
_TEXT: Final = {"color": "#848b96"}
_GRID: Final = {"lineStyle": {"color": "rgba(128, 128, 128, 0.22)"}}


def _values() -> dict[str, Any]:
    return {"type": "value", "min": 0, "axisLabel": dict(_TEXT), "splitLine": dict(_GRID)}


def lines(
    series: Mapping[str, Sequence[tuple[int, float]]],
    *,
    area: bool = False,
) -> dict[str, Any]:
    """Values over time; times are in milliseconds."""
    return {
        "animation": False,
        "color": list(COLORS),
        "grid": {"left": 48, "right": 16, "top": 36, "bottom": 28},
        "legend": {
            "top": 4,
            "left": 0,
            "type": "scroll",
            "itemHeight": 8,
            "textStyle": dict(_TEXT),
            "pageTextStyle": dict(_TEXT),
        },
        "tooltip": {"trigger": "axis"},
        "xAxis": {
            "type": "time",
            "splitLine": {"show": False},
            "axisLabel": _TEXT | {"formatter": "{HH}:{mm}:{ss}", "hideOverlap": True},
        },
        "yAxis": _values(),
        "series": [
            {
                "name": name,
                "type": "line",
                "showSymbol": False,
                "areaStyle": {"opacity": 0.15} if area else None,
                "data": [[at_ms, value] for at_ms, value in values],
            }
            for name, values in series.items()
        ],
    }


def bars(values: Mapping[str, float]) -> dict[str, Any]:
    """One bar for each name."""
    turned = len(values) > 8
    return {
        "animation": False,
        "color": list(COLORS),
        "grid": {"left": 48, "right": 16, "top": 16, "bottom": 64 if turned else 28},
        "tooltip": {"trigger": "axis"},
        "xAxis": {
            "type": "category",
            "data": list(values),
            "axisLabel": _TEXT | {"rotate": 30 if turned else 0, "hideOverlap": True},
        },
        "yAxis": _values() | {"minInterval": 1},
        "series": [{"type": "bar", "data": list(values.values()), "barMaxWidth": 32}],
    }


def swimlanes(events: Sequence[tuple[int, str, str]]) -> dict[str, Any]:
    """Moments by lane: when, which lane, what. The first moment is zero."""
    lanes = list(dict.fromkeys(lane for _, lane, _ in events))
    begin_ms = min((at_ms for at_ms, _, _ in events), default=0)
    end_ms = max((at_ms for at_ms, _, _ in events), default=0)
    near_ms = (end_ms - begin_ms) // 12  # closer ones share a mark, or nobody can read them
    points: list[dict[str, Any]] = []
    marks: dict[str, tuple[int, dict[str, Any]]] = {}
    for at_ms, lane, what in sorted(events):
        last = marks.get(lane)
        if last is not None and at_ms - last[0] <= near_ms:
            last[1]["name"] += f", {what}"
        else:
            point = {"value": [at_ms - begin_ms, lanes.index(lane)], "name": what}
            points.append(point)
            marks[lane] = at_ms, point
    return {
        "animation": False,
        "color": list(COLORS),
        "grid": {"left": 130, "right": 90, "top": 28, "bottom": 32},
        "tooltip": {"trigger": "item", "formatter": "{b}"},
        "xAxis": _values() | {"name": "ms", "nameTextStyle": dict(_TEXT)},
        "yAxis": {"type": "category", "data": lanes, "inverse": True, "axisLabel": dict(_TEXT)},
        "series": [
            {
                "type": "scatter",
                "symbolSize": 14,
                "data": points,
                "label": {
                    "show": True,
                    "position": "top",
                    "formatter": "{b}",
                    "fontSize": 11,
                    **_TEXT,
                },
            }
        ],
    }
