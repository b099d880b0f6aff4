"""Arguments and options that several families share."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from firearrow.base.errors import ConfigError
from firearrow.cli import completing

if TYPE_CHECKING:
    from collections.abc import Iterable

TopicName = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC",
        help="Name of the topic.",
        show_default=False,
        autocompletion=completing.topics,
    ),
]
GroupName = Annotated[
    str,
    typer.Argument(
        metavar="GROUP",
        help="Name of the consumer group.",
        show_default=False,
        autocompletion=completing.groups,
    ),
]
Pattern = Annotated[
    str | None,
    typer.Argument(help="Only names with this in them; '*' stands for anything."),
]
ClusterOption = Annotated[
    str | None, typer.Option("--cluster", help="All brokers of this cluster.")
]
BrokerOption = Annotated[
    str | None,
    typer.Option(
        "--broker", help="This broker only: name or address.", autocompletion=completing.brokers
    ),
]
Yes = Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")]


def pairs(option: str, given: Iterable[str] | None) -> dict[str, str]:
    """``KEY=VALUE`` options as a dictionary."""
    found: dict[str, str] = {}
    for one in given or []:
        key, equals, value = one.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"{option} {one!r}: KEY=VALUE expected")
        found[key.strip()] = value
    return found


def confirm(question: str, *, yes: bool) -> None:
    """Ask a person; a script is not asked."""
    if not yes and sys.stdin.isatty():
        typer.confirm(question, abort=True, err=True)


def plural(count: int, one: str, many: str | None = None) -> str:
    """``1 queue``, ``2 queues``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
