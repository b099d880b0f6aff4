"""Whether metrics are served, by RocketMQ's words."""

from __future__ import annotations

from enum import StrEnum


class MetricsExporter(StrEnum):
    """RocketMQ also pushes to a collector and to a log; we are asked, and answer."""

    DISABLE = "disable"
    PROM = "prom"
