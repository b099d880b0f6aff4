"""What `firearrow pipeline trace` makes of its options, without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typer.testing import CliRunner

from firearrow.cli import pipeline_file_commands
from firearrow.cli.pipeline_app import pipeline_app
from firearrow.pipeline import trace

if TYPE_CHECKING:
    import pytest


def asked(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> trace.TraceOptions:
    """The options that the job would get."""
    found: list[trace.TraceOptions] = []

    def carry_out(_name: str, job: Any, *_: object) -> None:
        job(None, None)

    monkeypatch.setattr(pipeline_file_commands, "carry_out", carry_out)
    monkeypatch.setattr(trace, "run", lambda _spark, options, _watch: found.append(options))
    told = CliRunner().invoke(pipeline_app, ["trace", *arguments])
    assert told.exit_code == 0, told.output
    return found[0]


def test_name_servers_come_from_the_environment_unless_files_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "10.0.0.1:9876")
    assert asked(monkeypatch).nameservers == "10.0.0.1:9876"
    assert asked(monkeypatch, "-n", "10.0.0.2:9876").nameservers == "10.0.0.2:9876"
    assert asked(monkeypatch, "--store", "/data/store").nameservers is None
