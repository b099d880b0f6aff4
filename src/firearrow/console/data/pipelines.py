"""Spark pipelines: what `firearrow pipeline run` keeps in a project's `.firearrow` folder.

Each run keeps a JSON file with what its streams have done. Whatever can be understood of a file is
shown; files are written by other programs, perhaps newer or older than this one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

FOLDER: Final = ".firearrow"
FILES_MAX: Final = 200
FILE_BYTES_MAX: Final = 1 << 20
STALE_MS: Final = 60_000  # nothing written for so long: whoever ran it is gone
SPARK_WORDS: Final = ("spark", "pipeline")


@dataclass(frozen=True, slots=True)
class Stream:
    name: str
    batches: int = 0
    rows: int = 0
    rows_per_second: float = 0.0
    batch_ms: int = 0
    lag: int = 0
    watermark: str = ""
    timestamp: str = ""


@dataclass(frozen=True, slots=True)
class Pipeline:
    name: str
    file: str
    state: str
    updated_ms: int
    streams: tuple[Stream, ...] = ()
    error: str = ""
    details: dict[str, str] = field(default_factory=dict)


def read_pipelines(projects: Iterable[Path], now_ms: int) -> list[Pipeline]:
    """Every status file of some projects, newest first. Blocking: use a thread."""
    found: list[Pipeline] = []
    for project in projects:
        folder = project.expanduser() / FOLDER
        if not folder.is_dir():
            continue
        files = sorted(path for path in folder.rglob("*.json") if path.is_file())
        found += [one for path in files[:FILES_MAX] if (one := read_status(path, now_ms))]
    return sorted(found, key=lambda one: -one.updated_ms)


def read_status(path: Path, now_ms: int) -> Pipeline | None:
    """What one file says; None for a JSON file that is something else."""
    try:
        stat = path.stat()
        if stat.st_size > FILE_BYTES_MAX:
            return None
        said = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(said, dict):
        return None
    streams = said.get("streams") or said.get("progress") or said.get("queries") or []
    state = said.get("state") or said.get("status") or said.get("outcome")
    if not isinstance(streams, list) or (not streams and state is None):
        return None
    updated_ms = stat.st_mtime_ns // 1_000_000
    state = str(state or "running").lower()
    if state in {"starting", "running"} and now_ms - updated_ms > STALE_MS:
        state = "silent"
    plain = {
        key: str(value)
        for key, value in said.items()
        if isinstance(value, str | int | float | bool) and key not in {"state", "status", "name"}
    }
    return Pipeline(
        name=str(said.get("name") or said.get("pipeline") or said.get("job") or path.stem),
        file=str(path),
        state=state,
        updated_ms=updated_ms,
        streams=tuple(_stream(one) for one in streams if isinstance(one, dict)),
        error=str(said.get("error") or ""),
        details=plain,
    )


def _stream(said: dict[str, Any]) -> Stream:
    return Stream(
        name=str(said.get("name") or "?"),
        batches=int(_number(said.get("batches"))),
        rows=int(_number(said.get("rows"))),
        rows_per_second=_number(said.get("processedRowsPerSecond")),
        batch_ms=int(_number(said.get("batchMs"))),
        lag=int(_number(said.get("lagTotal"))),
        watermark=str(said.get("watermark") or ""),
        timestamp=str(said.get("timestamp") or ""),
    )


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def is_spark_group(name: str) -> bool:
    """Whether a consumer group is, by its name, the progress of a Spark query."""
    return any(word in name.casefold() for word in SPARK_WORDS)
