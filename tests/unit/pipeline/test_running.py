"""One job from its start to its exit code, with a session that never comes."""

from __future__ import annotations

import json
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from firearrow.pipeline import running
from firearrow.pipeline.report import EXIT_STOPPED, Report
from firearrow.pipeline.running import RunSettings, run_job

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_job_that_is_told_to_stop_while_spark_starts_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    @contextmanager
    def opened(*_: object, **__: object) -> Iterator[Any]:
        signal.raise_signal(number)
        yield pytest.fail("the start went on")

    monkeypatch.setattr(running, "opened", opened)
    before = signal.getsignal(signal.SIGTERM)
    code = run_job("archive", lambda _spark, _watch: Report("archive"), RunSettings(as_json=True))
    assert code == EXIT_STOPPED
    told = json.loads(capsys.readouterr().out)
    assert (told["outcome"], told["facts"]) == ("stopped", {"stoppedAt": "Spark's start"})
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_job_that_is_done_when_spark_is_interrupted_ending_is_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def opened(*_: object, **__: object) -> Iterator[Any]:
        yield None
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "opened", opened)
    code = run_job("archive", lambda _spark, _watch: Report("archive"), RunSettings(quiet=True))
    assert code == 0
    assert "archive: finished" in capsys.readouterr().out
