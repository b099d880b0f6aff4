"""One function, two sizes, and a digest, so that nobody makes it fast by making it wrong.

CPU time is reported first: it is the figure that a noisy machine disturbs least. The best of
several rounds is taken, since noise only ever adds.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from firearrow import hot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

RESULTS: Final = Path(__file__).parent / "results"
ROUNDS: Final = 7


@dataclass(frozen=True, slots=True)
class Measured:
    """What one benchmark came to. `unit` is what is counted: frames, records, requests."""

    name: str
    twin: str
    unit: str
    count: int
    cpu_us_each: float
    per_second: float
    digest: str
    remark: str = ""  # how it compares with a limit of the machine

    def __str__(self) -> str:
        return (
            f"{self.name:<46} {self.twin:<10} {self.cpu_us_each:9.3f} µs CPU each "
            f"{self.per_second:12,.0f} {self.unit}/s   digest {self.digest}   {self.remark}"
        ).rstrip()

    def beside(self, limit: float, what: str, *, body_bytes: int = 1024) -> Measured:
        """The same with a word on which share of a machine's limit, per second, it reaches."""
        rate = f"{self.per_second * body_bytes / 1e6:,.0f} MB/s of bodies"
        return replace(self, remark=f"{rate}, {100 * self.per_second / limit:.0f} % of {what}")


class Stopwatch:
    """Adds up what runs inside ``with watch:``."""

    def __init__(self) -> None:
        self.cpu_s = self.wall_s = 0.0

    def __enter__(self) -> None:
        self._cpu, self._wall = time.process_time(), time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.cpu_s += time.process_time() - self._cpu
        self.wall_s += time.perf_counter() - self._wall


def is_large() -> bool:
    return os.environ.get("FIREARROW_BENCH") == "large"


def measure(
    name: str, unit: str, work: Callable[[int], Iterable[bytes]], *, small: int, large: int
) -> Measured:
    """Run ``work(count)`` several times; it returns what it made, for the digest."""

    def watched(count: int, watch: Stopwatch) -> Iterable[bytes]:
        with watch:
            return work(count)

    return measure_part(name, unit, watched, small=small, large=large)


def measure_part(
    name: str,
    unit: str,
    work: Callable[[int, Stopwatch], Iterable[bytes]],
    *,
    small: int,
    large: int,
    rounds: int = ROUNDS,
) -> Measured:
    """As `measure`, for work that has to prepare something first and says what is timed."""
    big = is_large()
    count = large if big else small
    cpu_s = wall_s = float("inf")
    digest = ""
    for _ in range(rounds if big else 1):
        watch = Stopwatch()
        outcome = work(count, watch)
        cpu_s = min(cpu_s, watch.cpu_s)
        wall_s = min(wall_s, watch.wall_s)
        hasher = hashlib.sha256()
        for part in outcome:
            hasher.update(part)
        digest = hasher.hexdigest()[:8]
    return Measured(
        name,
        hot.KIND,
        unit,
        count,
        round(cpu_s / count * 1e6, 4),
        round(count / max(wall_s, 1e-9)),
        digest,
    )


def keep(results: list[Measured]) -> Path:
    """Append one JSON line per result; lines name commit and machine."""
    return keep_lines(time.strftime("%Y"), [asdict(result) for result in results])


def keep_lines(name: str, rows: list[dict[str, Any]]) -> Path:
    """Append rows to a file of results, each with where and when it was measured."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.jsonl"
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    about = {
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": commit or "unknown",
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }
    with path.open("a", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps({**about, **row}) + "\n")
    return path
