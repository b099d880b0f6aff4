"""How a replay is cut into slices, each sent as a whole and remembered when it is. Pure.

A slice is a span of time, or one of several parts of a second with very many messages, split by
key. So whatever has one key stays in its order: slices go one after the other, and a key is in one
part only.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from firearrow.base.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

FORMAT: Final = 1
SECOND_MS: Final = 1_000
PARTS_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Slice:
    """Messages stored from `from_ms` on and before `to_ms`; of them, part `part` of `parts`."""

    from_ms: int
    to_ms: int
    rows: int
    part: int = 0
    parts: int = 1


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast: so many a second, or N times as fast as it happened; neither is full speed."""

    per_second: float | None = None
    speed: float | None = None

    def __post_init__(self) -> None:
        if self.per_second is not None and self.speed is not None:
            raise ConfigError("--rate or --speed: one of the two")
        for name, value in (("--rate", self.per_second), ("--speed", self.speed)):
            if value is not None and value <= 0:
                raise ConfigError(f"{name} {value}: more than nothing expected")

    def due_s(self, slices: Sequence[Slice], number: int, *, first: int = 0) -> float:
        """When slice `number` may begin, in seconds after slice `first` began."""
        if self.per_second is not None:
            return sum(one.rows for one in slices[first:number]) / self.per_second
        if self.speed is not None:
            one = slices[number]
            began_ms = one.from_ms + (one.to_ms - one.from_ms) * one.part / one.parts
            return max(0.0, began_ms - slices[first].from_ms) / 1000 / self.speed
        return 0.0


def plan(seconds: Iterable[tuple[int, int]], pace: Pace, slice_rows: int) -> list[Slice]:
    """Slices over (second, messages in it), in the order of time.

    Args:
        seconds: Seconds since 1970 and how many messages were stored in each; those with none
            may be left out.
        pace: With `speed`, no slice is longer than a second of the replay.
        slice_rows: Messages in a slice, about; with a rate, a second's worth if that is less.
    """
    most = slice_rows
    if pace.per_second is not None:
        most = max(1, min(slice_rows, round(pace.per_second)))
    longest_ms = SECOND_MS * max(1, round(pace.speed)) if pace.speed is not None else None
    slices: list[Slice] = []
    for second, rows in sorted(seconds):
        start = second * SECOND_MS
        parts = min(PARTS_MAX, -(-rows // most))
        if parts > 1:
            each, rest = divmod(rows, parts)
            slices += [
                Slice(start, start + SECOND_MS, each + (part < rest), part, parts)
                for part in range(parts)
            ]
            continue
        last = slices[-1] if slices else None
        if (
            last is not None
            and last.parts == 1
            and last.rows + rows <= most
            and (longest_ms is None or start + SECOND_MS - last.from_ms <= longest_ms)
        ):
            slices[-1] = Slice(last.from_ms, start + SECOND_MS, last.rows + rows)
        else:
            slices.append(Slice(start, start + SECOND_MS, rows))
    return slices


@dataclass(slots=True)
class Replayed:
    """A replay as it is remembered: what, and how many slices of it are sent."""

    job: str
    what: dict[str, Any]
    slices: list[Slice]
    until_ms: int  # what comes later is not part of it
    sent: int = 0  # slices; kept apart from the rest, which does not change

    def to_json(self) -> bytes:
        whole = {
            "format": FORMAT,
            "job": self.job,
            "what": self.what,
            "untilMs": self.until_ms,
            "slices": [asdict(one) for one in self.slices],
        }
        return json.dumps(whole).encode()

    @classmethod
    def from_json(cls, text: bytes, place: str) -> Replayed:
        try:
            whole = json.loads(text)
            if whole["format"] != FORMAT:
                raise ConfigError(f"{place} is of another version: name another directory")
            slices = [Slice(**one) for one in whole["slices"]]
            return cls(str(whole["job"]), whole["what"], slices, int(whole["untilMs"]))
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{place} is no replay's checkpoint: {error}") from error
