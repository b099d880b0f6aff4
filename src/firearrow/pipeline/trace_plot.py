"""A picture of latencies: what share of messages took how long, stage by stage; PNG or HTML."""

from __future__ import annotations

import base64
import html
import io
from typing import TYPE_CHECKING, Final

from firearrow.base.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

SHARES: Final = tuple(number / 100 for number in range(1, 100))
_KINDS: Final = {".png", ".html"}


def check_plot(path: Path) -> None:
    """ConfigError before the work begins, not after it."""
    if path.suffix.lower() not in _KINDS:
        raise ConfigError(f"plot {path}: a name that ends in .png or .html expected")
    if not path.parent.is_dir():
        raise ConfigError(f"plot {path}: there is no directory {path.parent}")


def plot_latencies(path: Path, curves: Mapping[str, Sequence[float]], title: str) -> None:
    """Write a picture; `curves` has milliseconds at each of SHARES, by the name of a stage."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - heavy
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(9, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for name, values in curves.items():
        axes.plot(values, [100 * share for share in SHARES], label=name)
    axes.set_xscale("symlog", linthresh=1)
    axes.set_xlim(left=0)
    axes.set_ylim(0, 100)
    axes.set_xlabel("milliseconds")
    axes.set_ylabel("messages done, %")
    axes.set_title(title)
    axes.grid(visible=True, alpha=0.3)
    if curves:
        axes.legend(loc="lower right")
    if path.suffix.lower() == ".png":
        figure.savefig(path, dpi=110)
        return
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=110)
    path.write_text(_page(title, curves, picture.getvalue()), encoding="utf-8")


def _page(title: str, curves: Mapping[str, Sequence[float]], picture: bytes) -> str:
    """One file without any other: the picture, and the numbers behind it."""
    shown = {"50 %": 0.5, "90 %": 0.9, "95 %": 0.95, "99 %": 0.99}
    head = "".join(f"<th>{html.escape(name)}</th>" for name in ("stage", *shown))
    rows = "".join(
        f"<tr><td>{html.escape(name)}</td>"
        + "".join(f"<td>{values[SHARES.index(share)]:,.0f} ms</td>" for share in shown.values())
        + "</tr>"
        for name, values in curves.items()
    )
    image = base64.b64encode(picture).decode()
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>'
        "<style>body{font-family:sans-serif;margin:2em}td,th{padding:.3em 1em;text-align:right}"
        "td:first-child,th:first-child{text-align:left}</style>"
        f'<h1>{html.escape(title)}</h1><img alt="{html.escape(title)}" '
        f'src="data:image/png;base64,{image}"><table><tr>{head}</tr>{rows}</table></html>\n'
    )
