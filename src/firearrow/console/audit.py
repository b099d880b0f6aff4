"""Who changed what: one JSON line for every write, tried or done. Lines are only ever added."""

from __future__ import annotations

import json
import os
from collections import deque
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from firearrow.base.files import make_directory

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from firearrow.base.runtime import Clock

KEPT: Final = 5_000  # lines that can be looked at; the file has all
TEXT_CHARS_MAX: Final = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    at_ms: int
    user: str
    address: str
    action: str  # a name of `actions.RIGHTS`, or login
    target: str  # the topic, group, broker or user
    details: str
    outcome: str  # done, refused, failed

    def matches(self, text: str) -> bool:
        needle = text.casefold()
        return any(needle in str(part).casefold() for part in asdict(self).values())


class Audit:
    """The newest entries in memory, all of them in a file."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._newest: deque[Entry] = deque(maxlen=KEPT)
        self._torn = False  # a crash has left half a line
        make_directory(path.parent)
        if path.exists():
            with path.open("rb") as file:
                lines = deque(file, maxlen=KEPT)
            self._torn = bool(lines) and not lines[-1].endswith(b"\n")
            self._newest.extend(_entries(lines))

    def add(
        self, *, user: str, address: str, action: str, target: str, details: str, outcome: str
    ) -> None:
        """Write it down, at once; it is there before the answer to who asked for it."""
        entry = Entry(
            at_ms=self._clock.now_ms(),
            user=user[:TEXT_CHARS_MAX],
            address=address,
            action=action,
            target=target[:TEXT_CHARS_MAX],
            details=details[:TEXT_CHARS_MAX],
            outcome=outcome,
        )
        line = json.dumps(asdict(entry), ensure_ascii=False) + "\n"
        if self._torn:
            line, self._torn = "\n" + line, False
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)
        self._newest.append(entry)

    def newest(self, text: str = "") -> list[Entry]:
        """Newest first, those that have a text in them."""
        return [entry for entry in reversed(self._newest) if not text or entry.matches(text)]


def _entries(lines: Iterable[bytes]) -> Iterable[Entry]:
    for line in lines:
        try:
            yield Entry(**json.loads(line))
        except (ValueError, TypeError):
            continue
