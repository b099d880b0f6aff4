"""Times and durations as people write them on a command line."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from firearrow.base.errors import ConfigError

UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def duration_ms(option: str, given: str) -> int:
    """``90s``, ``1h30m``, ``250ms``; a bare number is seconds."""
    written = given.strip()
    if re.fullmatch(r"\d+(\.\d+)?", written):
        return round(float(written) * 1_000)
    parts = _DURATION.findall(written)
    if not parts or "".join(number + unit for number, unit in parts) != written:
        raise ConfigError(f"{option} {given!r}: a duration expected, as 90s, 1h30m, 250ms or 2d")
    return round(sum(float(number) * UNITS_MS[unit] for number, unit in parts))


def moment_ms(option: str, given: str, now_ms: int) -> int:
    """``now``, ``-1h`` (an hour ago), a date, a date and time, or ``@milliseconds``."""
    written = given.strip()
    if written == "now":
        return now_ms
    if written.startswith("-"):
        return now_ms - duration_ms(option, written[1:])
    try:
        if written.startswith("@"):
            return int(written[1:])
        return int(datetime.fromisoformat(written).astimezone().timestamp() * 1000)
    except (ValueError, OverflowError):
        raise ConfigError(
            f"{option} {given!r}: a time expected, as 2026-11-15T08:55:30 (local unless it names a "
            "zone), -1h for an hour ago, now, or milliseconds as @1794732962468"
        ) from None
