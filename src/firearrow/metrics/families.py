"""Prometheus' text format, written piece by piece.

    # HELP rocketmq_messages_in_total Messages that producers sent.
    # TYPE rocketmq_messages_in_total counter
    rocketmq_messages_in_total{cluster="c",node_id="broker-a",topic="orders"} 42

`prometheus_client` makes an object of every sample and the page in one go: with 50,000 topics the
loop would stand still for seconds. Here a sample is a line, and who writes can pause between
pieces. Tests read the pages with that library's parser.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from firearrow.base.histogram import Histogram

    Labels = Mapping[str, str]
    Sample = tuple[Labels, float | Histogram]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
LINES_PER_PIECE: Final = 500  # about a millisecond of work
_LABEL_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


@dataclass(frozen=True, slots=True)
class Family:
    """One metric with all its series. Samples of a histogram have a Histogram for a value."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    samples: Iterable[Sample]


def one(value: float) -> list[Sample]:
    """The samples of a metric that has a single series."""
    return [({}, value)]


def number(value: float) -> str:
    """A value as the format wants it."""
    if isinstance(value, int):
        return str(value)
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(float(value))


def label_text(labels: Labels) -> str:
    """``topic="orders",is_system="false"``."""
    return ",".join(f'{name}="{value.translate(_LABEL_ESCAPES)}"' for name, value in labels.items())


def _lines(family: Family, common: str) -> Iterator[str]:
    help_text = family.help.replace("\\", "\\\\").replace("\n", "\\n")
    yield f"# HELP {family.name} {help_text}\n# TYPE {family.name} {family.kind}\n"
    for labels, value in family.samples:
        text = label_text(labels)
        inner = f"{common},{text}" if common and text else common or text
        if isinstance(value, int | float):
            yield f"{family.name}{{{inner}}} {number(value)}\n"
        else:
            yield _buckets(family.name, inner, value)


def _buckets(name: str, inner: str, histogram: Histogram) -> str:
    """A histogram's lines: each bucket counts what is in the smaller ones, too."""
    comma = "," if inner else ""
    lines, count = [], 0
    for bound, here in zip((*histogram.bounds, math.inf), histogram.counts, strict=True):
        count += here
        lines.append(f'{name}_bucket{{{inner}{comma}le="{number(float(bound))}"}} {count}\n')
    lines.append(f"{name}_sum{{{inner}}} {number(histogram.total)}\n")
    lines.append(f"{name}_count{{{inner}}} {count}\n")
    return "".join(lines)


def pieces(families: Iterable[Family], common: Labels) -> Iterator[bytes]:
    """The page in pieces; `common` are labels that every series has."""
    prefix = label_text(common)
    lines: list[str] = []
    for family in families:
        for line in _lines(family, prefix):
            lines.append(line)
            if len(lines) >= LINES_PER_PIECE:
                yield "".join(lines).encode()
                lines.clear()
    if lines:
        yield "".join(lines).encode()
