from __future__ import annotations

import pytest

from firearrow.base.errors import ConfigError
from firearrow.cli.mqadmin.java_text import a_double, parse_moment
from firearrow.cli.times import duration_ms, moment_ms
from firearrow.cli.verbs import with_seconds

NOW = 1_794_732_962_468


@pytest.mark.parametrize(
    ("given", "expected"),
    [("90s", 90_000), ("1h30m", 5_400_000), ("250ms", 250), ("2d", 172_800_000), ("1.5", 1_500)],
)
def test_durations_are_understood(given: str, expected: int) -> None:
    assert duration_ms("--delay", given) == expected


@pytest.mark.parametrize("given", ["", "soon", "5x", "1h30", "-5s"])
def test_what_is_no_duration_is_refused(given: str) -> None:
    with pytest.raises(ConfigError, match="a duration expected"):
        duration_ms("--delay", given)


def test_moments_are_understood() -> None:
    assert moment_ms("--to", "now", NOW) == NOW
    assert moment_ms("--to", "-1h", NOW) == NOW - 3_600_000
    assert moment_ms("--to", "@17", NOW) == 17
    assert moment_ms("--to", "2026-11-15T08:56:02.468+00:00", NOW) == NOW


@pytest.mark.parametrize("given", ["", "tomorrow", "2026-13-01", "@x"])
def test_what_is_no_moment_is_refused(given: str) -> None:
    with pytest.raises(ConfigError, match="a time expected"):
        moment_ms("--to", given, NOW)


def test_moments_of_mqadmin_are_understood() -> None:
    assert parse_moment("-s", "now", NOW) == NOW
    assert parse_moment("-s", "-1", NOW) == -1
    first = parse_moment("-s", "2026-11-15#08:00:00:000", NOW)
    assert parse_moment("-s", "2026-11-15#08:00:00:468", NOW) - first == 468
    with pytest.raises(ConfigError, match="yyyy-MM-dd"):
        parse_moment("-s", "yesterday", NOW)


@pytest.mark.parametrize(
    ("value", "java"),
    [(0.0, "0.0"), (1.5, "1.5"), (100.0, "100.0"), (1e7, "1.0E7"), (1.25e-5, "1.25E-5")],
)
def test_doubles_are_written_as_java_writes_them(value: float, java: str) -> None:
    assert a_double(value) == java


def test_watch_need_not_be_followed_by_a_number() -> None:
    assert with_seconds(["--watch"]) == ["--watch=2"]
    assert with_seconds(["--watch", "--all"]) == ["--watch=2", "--all"]
    assert with_seconds(["--watch", "0.5", "x"]) == ["--watch", "0.5", "x"]
