"""Pictures for reports: lines over time, as PNG, without a screen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    Line = Sequence[tuple[datetime, float]]

LINES_MAX: Final = 12  # more cannot be told apart


def plot_lines(path: Path, title: str, unit: str, lines: Mapping[str, Line]) -> Path | None:
    """One line for each name, the highest first; None, and no file, if there is nothing to show."""
    drawn = {name: sorted(points) for name, points in lines.items() if points}
    if not drawn:
        return None
    names = sorted(drawn, key=lambda name: -max(value for _, value in drawn[name]))
    figure = Figure(figsize=(9, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for name in names[:LINES_MAX]:
        times, values = zip(*drawn[name], strict=True)
        # A name that begins with "_" would be left out of the legend, "$" would be mathematics.
        label = name.replace("$", r"\$")
        label = f"\u200b{label}" if label.startswith("_") else label
        axes.plot(times, values, marker="o", markersize=3, linewidth=1.5, label=label)
    left = f" ({len(names) - LINES_MAX} more not shown)" if len(names) > LINES_MAX else ""
    axes.set_title(title + left, loc="left")
    axes.set_ylabel(unit)
    axes.set_ylim(bottom=0)
    locator = AutoDateLocator()  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    axes.grid(visible=True, alpha=0.3)
    axes.legend(loc="upper left", fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    return path
