"""What a job says at its end."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from firearrow.pipeline.report import Outcome, Report, Table


def text_of(report: Report) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(report.as_text())
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def report(**given: object) -> Report:
    whole = Report("archive", facts={"rowsWritten": 12_000, "tags": ["a", "b"], "resumed": True})
    whole.tables.append(Table("by topic", ("topic", "rows"), [("[red]orders", 12_000)]))
    for name, value in given.items():
        setattr(whole, name, value)
    return whole


def test_a_report_reads_as_words_and_numbers() -> None:
    text = text_of(report(plots=[Path("rates.png")], took_s=1.26))
    assert "archive: finished after 1.3 s" in text
    assert "rows written  12,000" in text
    assert "a, b" in text
    assert "[red]orders" in text, "a topic's name is no markup"
    assert "plot: rates.png" in text


def test_json_has_every_part_of_a_report() -> None:
    whole = json.loads(report(problems=["queue 3 is short"]).as_json())
    assert whole == {
        "job": "archive",
        "outcome": "finished",
        "tookSeconds": 0.0,
        "facts": {"rowsWritten": 12_000, "tags": ["a", "b"], "resumed": True},
        "tables": {"by topic": [{"topic": "[red]orders", "rows": 12_000}]},
        "plots": [],
        "problems": ["queue 3 is short"],
    }


@pytest.mark.parametrize(
    ("outcome", "problems", "code"),
    [
        (Outcome.FINISHED, [], 0),
        (Outcome.ENDED, [], 0),
        (Outcome.FINISHED, ["lost"], 1),
        (Outcome.STOPPED, ["lost"], 3),
    ],
)
def test_the_exit_code_follows_from_the_report(
    outcome: Outcome, problems: list[str], code: int
) -> None:
    assert report(outcome=outcome, problems=problems).exit_code == code
