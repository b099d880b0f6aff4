"""Delay levels: how long a message with property DELAY waits."""

from __future__ import annotations

from typing import Final

from firearrow.base.errors import ConfigError

DELAY_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Milliseconds of each level of a `messageDelayLevel` setting, the first level first."""
    levels = []
    for word in text.split():
        number, unit = word[:-1], word[-1].lower()
        if unit not in _UNITS_MS or not (number.isascii() and number.isdecimal()):
            raise ConfigError(
                f"messageDelayLevel: {word!r} is not a delay: a number and s, m, h or d, as in 30s"
            )
        levels.append(int(number) * _UNITS_MS[unit])
    return tuple(levels)
