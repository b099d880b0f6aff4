"""The guide to the command line: its commands run, and print what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.examples.test_guides import ROOT, run_steps

from firearrow.testing import LocalCluster

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_the_guide_to_the_command_line_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (ROOT / "docs/guides/cli.md").read_text("utf-8")
    monkeypatch.setenv("FIREARROW_CONFIG_DIR", str(tmp_path / "config"))
    with LocalCluster() as cluster:
        monkeypatch.setenv("NAMESRV_ADDR", cluster.nameservers)
        assert run_steps(text, tmp_path) == 6
