"""The guide to errors names every error that a client can raise, with what the classes say."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Final

import pytest

from firearrow.base.errors import FirearrowError

GUIDE: Final = Path(__file__).parent.parent.parent / "docs/guides/errors.md"
# The chapters of the guide, and where their errors live.
CHAPTERS: Final = {
    "The client itself": "firearrow.client.errors",
    "The network": "firearrow.net.errors",
    "The server's answer": "firearrow.model.errors",
}


def errors_of(module_name: str) -> list[type[FirearrowError]]:
    module = importlib.import_module(module_name)
    found = [
        one
        for one in vars(module).values()
        if inspect.isclass(one)
        and issubclass(one, FirearrowError)
        and one.__module__ == module_name
        and one.remedy != FirearrowError.remedy  # the others are only for `except`
    ]
    return sorted(found, key=lambda one: (int(one.code), one.__name__))


def row(error: type[FirearrowError]) -> str:
    meaning = " ".join((error.__doc__ or "").split())
    again = "yes" if error.retriable else "no"
    cells = (f"`{error.__name__}`", str(int(error.code)), again, meaning, error.remedy)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_table_of_the_guide_says_what_the_classes_say(chapter: str) -> None:
    text = GUIDE.read_text("utf-8")
    part = text.partition(f"## {chapter}\n")[2].partition("\n## ")[0]
    rows = [line for line in part.splitlines() if line.startswith("| `")]
    wanted = [row(error) for error in errors_of(CHAPTERS[chapter])]
    assert rows == wanted, "the table should read:\n" + "\n".join(wanted)
