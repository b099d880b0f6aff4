"""What a job says at its end: a few facts, small tables, plots; as text or as JSON. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from rich.console import Group
from rich.table import Table as RichTable
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import RenderableType

EXIT_DONE: Final = 0  # finished; or a job that runs until it is told to stop was told
EXIT_FINDINGS: Final = 1  # finished, and found something that is wrong
EXIT_NOT_DONE: Final = 2  # could not do its work
EXIT_STOPPED: Final = 3  # told to stop before its end; started again, it goes on


class Outcome(StrEnum):
    FINISHED = "finished"  # there was an end, and it was reached
    STOPPED = "stopped"  # it was told to, and there was more to do
    ENDED = "ended"  # it was told to, and has no end of its own


@dataclass(frozen=True, slots=True)
class Table:
    """Rows for a person; numbers are right-aligned."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[object, ...]]

    def as_objects(self) -> list[dict[str, object]]:
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


@dataclass(slots=True)
class Report:
    """The end of a job.

    Args:
        job: Its name, as on the command line.
        facts: What it did, in a few named values; names in camelCase, as in all our JSON.
        tables: What a table says better.
        plots: Pictures that were written.
        problems: What is wrong with what it looked at, a sentence each; any makes exit code 1.
    """

    job: str
    outcome: Outcome = Outcome.FINISHED
    facts: dict[str, object] = field(default_factory=dict)
    tables: list[Table] = field(default_factory=list)
    plots: list[Path] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    took_s: float = 0.0

    @property
    def exit_code(self) -> int:
        if self.outcome == Outcome.STOPPED:
            return EXIT_STOPPED
        return EXIT_FINDINGS if self.problems else EXIT_DONE

    def as_json(self) -> str:
        """The whole report as one JSON object."""
        whole = {
            "job": self.job,
            "outcome": self.outcome.value,
            "tookSeconds": round(self.took_s, 3),
            "facts": self.facts,
            "tables": {table.title: table.as_objects() for table in self.tables},
            "plots": [str(path) for path in self.plots],
            "problems": self.problems,
        }
        return json.dumps(whole, default=str, ensure_ascii=False)

    def as_text(self) -> RenderableType:
        """The report for a terminal, by rich."""
        parts: list[RenderableType] = [
            Text(f"{self.job}: {self.outcome.value} after {self.took_s:,.1f} s")
        ]
        if self.facts:
            grid = RichTable.grid(padding=(0, 2))
            for name, value in self.facts.items():
                grid.add_row(f"  {_words(name)}", Text(_cell(value)))
            parts.append(grid)
        parts += [_rich(table) for table in self.tables]
        parts += [Text(f"plot: {path}") for path in self.plots]
        parts += [Text(f"problem: {problem}", style="red") for problem in self.problems]
        return Group(*parts)


def _rich(table: Table) -> RichTable:
    shown = RichTable(title=table.title, title_justify="left", title_style="bold")
    for place, column in enumerate(table.columns):
        numbers = bool(table.rows) and all(
            isinstance(row[place], int | float) for row in table.rows
        )
        shown.add_column(column, justify="right" if numbers else "left")
    for row in table.rows:
        shown.add_row(*(Text(_cell(value)) for value in row))
    return shown


def _cell(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}"
    if isinstance(value, list | tuple):
        return ", ".join(_cell(one) for one in value)
    return str(value)


def _words(name: str) -> str:
    """A name in camelCase as words."""
    return "".join(f" {char.lower()}" if char.isupper() else char for char in name).strip()
