"""What the process itself takes, by the names that every Prometheus user knows."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from firearrow.metrics.families import Family, one

if TYPE_CHECKING:
    from collections.abc import Iterator


def resident_bytes() -> int:
    """Memory in use now; where the system does not say, the most that ever was."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
    return pages * os.sysconf("SC_PAGE_SIZE")


def process_families(started_ms: int) -> Iterator[Family]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    yield Family(
        "process_cpu_seconds_total",
        "counter",
        "CPU time used, user and system.",
        one(used.ru_utime + used.ru_stime),
    )
    yield Family("process_resident_memory_bytes", "gauge", "Memory in use.", one(resident_bytes()))
    yield Family(
        "process_start_time_seconds",
        "gauge",
        "When it started, in seconds since 1970.",
        one(started_ms / 1_000),
    )
