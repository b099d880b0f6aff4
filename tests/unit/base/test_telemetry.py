from __future__ import annotations

import logging

import pytest

from firearrow.base.errors import ConfigError
from firearrow.base.telemetry import (
    MESSAGE_CHARS_MAX,
    OneLineFormatter,
    RateLimitedLog,
    set_up_logging,
)


def test_first_line_of_an_interval_is_written_and_the_rest_is_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    limited = RateLimitedLog(logging.getLogger("peers"), interval_ms=1_000)
    for elapsed_ms in (0, 1, 500, 999, 1_000, 1_001, 2_000, 5_000):
        limited.warning(elapsed_ms, "%s closed", f"peer-{elapsed_ms}")
    assert caplog.messages == [
        "peer-0 closed",
        "peer-1000 closed (and 3 like it before)",
        "peer-2000 closed (and 1 like it before)",
        "peer-5000 closed",
    ]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_percent_sign_of_a_peer_is_not_taken_for_a_format(caplog: pytest.LogCaptureFixture) -> None:
    limited = RateLimitedLog(logging.getLogger("peers"))
    for elapsed_ms in (0, 1, 1_000):
        limited.warning(elapsed_ms, "%s closed: %s", "peer", "100%s")
    assert caplog.messages == [
        "peer closed: 100%s",
        "peer closed: 100%s (and 1 like it before)",
    ]


def test_two_logs_do_not_silence_each_other(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("peers")
    RateLimitedLog(logger).warning(0, "one")
    RateLimitedLog(logger).warning(0, "two")
    assert caplog.messages == ["one", "two"]


def test_unknown_level_is_refused_with_those_that_exist() -> None:
    handlers = logging.getLogger().handlers[:]
    with pytest.raises(ConfigError, match=r"'loud'.*DEBUG, INFO, WARNING or ERROR"):
        set_up_logging("loud")
    assert logging.getLogger().handlers == handlers


def line_of(message: str, *args: object) -> str:
    record = logging.LogRecord("x", logging.INFO, "x.py", 1, message, args, None)
    return OneLineFormatter("%(levelname)s: %(message)s").format(record)


@pytest.mark.parametrize("end", ["\n", "\r", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029"])
def test_line_break_in_the_name_of_a_peer_does_not_make_a_second_line(end: str) -> None:
    line = line_of("broker %s registered", f"a{end}INFO: broker b registered")
    assert len(line.splitlines()) == 1
    assert ascii(end)[1:-1] in line


def test_escape_sequences_and_halves_of_characters_are_spelled_out() -> None:
    assert line_of("%s", "\x1b[2J\udc80 火") == "INFO: \\x1b[2J\\udc80 火"


def test_long_message_is_cut_and_says_how_much_is_missing() -> None:
    line = line_of("%s", "x" * (MESSAGE_CHARS_MAX + 7))
    assert line == f"INFO: {'x' * MESSAGE_CHARS_MAX}… (7 more characters)"


def test_traceback_keeps_its_lines() -> None:
    error = ValueError("no")
    record = logging.LogRecord(
        "x", logging.ERROR, "x.py", 1, "failed", (), (type(error), error, None)
    )
    assert OneLineFormatter("%(message)s").format(record) == "failed\nValueError: no"
