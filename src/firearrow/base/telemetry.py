"""How our programs log: one line per event on standard error, through `logging`.

Names in log lines come from peers. A line break in one of them must not make a second line that
looks like ours, and a long one must not fill the disk.
"""

from __future__ import annotations

import logging
import re
import sys
from typing import Final

from firearrow.base.errors import ConfigError

LEVELS: Final = frozenset({"DEBUG", "INFO", "WARNING", "ERROR"})
FORMAT: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
MESSAGE_CHARS_MAX: Final = 2_000
# Control characters, which also move cursors and colour terminals, and Unicode's line breaks.
_UNPRINTABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def set_up_logging(level: str = "INFO") -> None:
    """For programs only; a library never touches the root logger."""
    if level.upper() not in LEVELS:
        raise ConfigError(f"log level {level!r}: DEBUG, INFO, WARNING or ERROR expected")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLineFormatter(FORMAT))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


class OneLineFormatter(logging.Formatter):
    """A message is one line of bounded length, whatever it quotes; only tracebacks have more."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        text = record.message
        if len(text) > MESSAGE_CHARS_MAX:
            left_out = len(text) - MESSAGE_CHARS_MAX
            text = f"{text[:MESSAGE_CHARS_MAX]}… ({left_out} more characters)"
        record.message = _UNPRINTABLE.sub(lambda match: ascii(match.group())[1:-1], text)
        return super().formatMessage(record)


class RateLimitedLog:
    """Log lines that a hostile peer can cause: at most one per interval, with a count of the rest.

    Time comes in as an argument, so that it is the caller's clock.
    """

    def __init__(self, logger: logging.Logger, interval_ms: int = 1_000) -> None:
        self._logger = logger
        self._interval_ms = interval_ms
        self._last_ms: int | None = None
        self._suppressed = 0

    def warning(self, elapsed_ms: int, message: str, *args: object) -> None:
        if self._last_ms is not None and elapsed_ms - self._last_ms < self._interval_ms:
            self._suppressed += 1
            return
        if self._suppressed:
            message += f" (and {self._suppressed} like it before)"
        self._suppressed = 0
        self._last_ms = elapsed_ms
        self._logger.warning(message, *args)
