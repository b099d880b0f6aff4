"""What a run of a user's pipeline leaves behind for others: `.firearrow/status.json`.

The command `status` reads it, and so can a console. docs/formats/pipeline-status.md has the fields.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from firearrow.base.errors import ConfigError
from firearrow.base.files import make_directory, write_atomically

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from firearrow.pipeline.progress import Progress

FORMAT: Final = 1
STATUS_FILE: Final = "status.json"
EVERY_MS: Final = 1_000  # written no oftener than this while a run goes on


class State(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"
    LOST = "lost"  # the file says running, and its process is gone


class StatusFile:
    """Owns the file of one run."""

    def __init__(self, folder: Path, pipeline: str, now_ms: Callable[[], int]) -> None:
        make_directory(folder)
        self._path = folder / STATUS_FILE
        self._now_ms = now_ms
        self._written_ms = 0
        self._streams: dict[str, dict[str, object]] = {}
        self._content: dict[str, Any] = {
            "format": FORMAT,
            "pipeline": pipeline,
            "pid": os.getpid(),
            "state": State.STARTING.value,
            "startedAt": as_time(now_ms()),
            "updatedAt": as_time(now_ms()),
            "endedAt": None,
            "error": None,
            "streams": [],
            "tables": [],
        }
        self._write()

    def progress(self, streams: list[Progress], running: bool) -> None:  # noqa: FBT001
        """What the streams have done by now."""
        self._streams |= {one.name: one.as_json() for one in streams}
        self._content["streams"] = list(self._streams.values())
        if running:
            self._content["state"] = State.RUNNING.value
        if not running or self._now_ms() - self._written_ms >= EVERY_MS:
            self._write()

    def table(self, name: str) -> None:
        """A sink that was written in one go."""
        self._content["tables"].append(name)
        self._write()

    def end(self, state: State, error: str | None = None) -> None:
        self._content |= {
            "state": state.value,
            "error": error,
            "endedAt": as_time(self._now_ms()),
        }
        self._write()

    def _write(self) -> None:
        self._written_ms = self._now_ms()
        self._content["updatedAt"] = as_time(self._written_ms)
        content = json.dumps(self._content, indent=1).encode()
        write_atomically(self._path, content, keep_backup=False)


def read_status(folder: Path) -> dict[str, Any]:
    """The status of the last or running run of a project."""
    path = folder / STATUS_FILE
    try:
        status: dict[str, Any] = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ConfigError(f"{path} is not there: this pipeline has not been run yet") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    if not isinstance(status, dict) or status.get("format") != FORMAT:
        raise ConfigError(f"{path} is of another version; run the pipeline again")
    live = {State.STARTING.value, State.RUNNING.value}
    if status["state"] in live and not _is_alive(int(status["pid"])):
        status["state"] = State.LOST.value
    return status


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # somebody else's, but there
    return True


def as_time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
