"""What commands print: one table, shown as aligned text, JSON or CSV.

A command returns values, never text: numbers stay numbers and times stay milliseconds in JSON and
CSV, and become readable only in the table. No row is looked at twice as often as there are formats,
so that fifty thousand topics are printed in the time it takes to fetch them.
"""

from __future__ import annotations

import csv
import io
import os
import sys
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Value: TypeAlias = object  # text, a number, a truth, nothing, or a list or mapping of them
BOLD: Final = "\x1b[1m{}\x1b[0m"
NOTHING: Final = "-"  # a cell that says that there is nothing to say


class OutputFormat(StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"


class Kind(StrEnum):
    """How a column is shown; only the table cares."""

    TEXT = "text"
    NUMBER = "number"
    TIME = "time"  # milliseconds since 1970
    SIZE = "size"  # bytes
    RATIO = "ratio"  # 0 to 1


@dataclass(frozen=True, slots=True)
class Column:
    name: str  # of the field, in JSON and CSV; the heading is the same with spaces
    kind: Kind = Kind.TEXT

    @property
    def heading(self) -> str:
        return self.name.removesuffix("_ms").replace("_", " ")


def text(*names: str) -> list[Column]:
    return [Column(name) for name in names]


def numbers(*names: str) -> list[Column]:
    return [Column(name, Kind.NUMBER) for name in names]


@dataclass(slots=True)
class Table:
    """Rows of values, and what is to be said below them."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Value]]
    notes: list[str] = field(default_factory=list)  # on standard error, so that pipes stay clean
    title: str | None = None

    def objects(self) -> list[dict[str, Value]]:
        names = [column.name for column in self.columns]
        return [dict(zip(names, row, strict=True)) for row in self.rows]


@dataclass(slots=True)
class Record:
    """One thing with named values, shown one below the other."""

    values: Mapping[str, Value]
    tables: dict[str, Table] = field(default_factory=dict)  # parts of it that are lists
    notes: list[str] = field(default_factory=list)
    wrong: bool = False  # something is wrong with it: exit code 1


@dataclass(slots=True)
class Effect:
    """What a write does: in words, and in numbers."""

    would: str  # "create topic orders with 8 queues on 2 brokers"
    did: str  # "created topic orders with 8 queues on 2 brokers"
    numbers: Mapping[str, Value] = field(default_factory=dict)
    table: Table | None = None
    notes: list[str] = field(default_factory=list)


Shown: TypeAlias = "Table | Record | Effect"


# --- rendering ----------------------------------------------------------------------------------


def render(shown: Shown, form: OutputFormat, *, dry_run: bool = False, bold: bool = False) -> str:
    """The text of a result, ended by a newline unless it is empty."""
    if isinstance(shown, Effect):
        return _render_effect(shown, form, dry_run=dry_run, bold=bold)
    if isinstance(shown, Record):
        return _render_record(shown, form, bold=bold)
    if form is OutputFormat.JSON:
        return to_json(shown.objects())
    if form is OutputFormat.CSV:
        return _csv(shown)
    return _aligned(shown, bold=bold)


def _render_effect(effect: Effect, form: OutputFormat, *, dry_run: bool, bold: bool) -> str:
    if form is OutputFormat.TABLE:
        table = "" if effect.table is None else _aligned(effect.table, bold=bold)
        return table + (f"would {effect.would}\n" if dry_run else f"{effect.did}\n")
    values: dict[str, Value] = {
        "dry_run": dry_run,
        "effect": effect.would if dry_run else effect.did,
        **effect.numbers,
    }
    if form is OutputFormat.CSV:
        return _csv(effect.table or Table(text(*values), [list(values.values())]))
    if effect.table is not None:
        values["rows"] = effect.table.objects()
    return to_json(values)


def _render_record(record: Record, form: OutputFormat, *, bold: bool) -> str:
    if form is OutputFormat.JSON:
        parts: dict[str, Value] = {name: table.objects() for name, table in record.tables.items()}
        return to_json({**record.values, **parts})
    if form is OutputFormat.CSV:
        if record.tables:
            return _csv(next(iter(record.tables.values())))
        return _csv(Table(text(*record.values), [list(record.values.values())]))
    width = max((len(Column(name).heading) for name in record.values), default=0)
    lines = [
        f"{Column(name).heading.ljust(width)}  {cell(value, _kind_of(name))}".rstrip() + "\n"
        for name, value in record.values.items()
    ]
    for name, table in record.tables.items():
        if table.rows:
            heading = name.replace("_", " ")
            lines.append(f"\n{BOLD.format(heading) if bold else heading}\n")
            lines.append(_aligned(table, bold=bold))
    return "".join(lines)


def _kind_of(name: str) -> Kind:
    return Kind.TIME if name.endswith("_ms") or name in {"born", "stored"} else Kind.TEXT


def to_json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


def _csv(table: Table) -> str:
    page = io.StringIO()
    writer = csv.writer(page, lineterminator="\n")
    writer.writerow([column.name for column in table.columns])
    writer.writerows([[_plain(value) for value in row] for row in table.rows])
    return page.getvalue()


def _plain(value: Value) -> str | int | float:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return " ".join(f"{key}={one}" for key, one in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return " ".join(map(str, value))
    return value if isinstance(value, int | float) else str(value)


def _aligned(table: Table, *, bold: bool) -> str:
    """Column by column: one call for each value, whatever the number of rows."""
    padded = [
        _column(column, [row[place] for row in table.rows])
        for place, column in enumerate(table.columns)
    ]
    head, *rows = ("  ".join(cells).rstrip() for cells in zip(*padded, strict=True))
    title = [] if table.title is None else [table.title]
    return "\n".join([*title, BOLD.format(head) if bold else head, *rows]) + "\n"


def _column(column: Column, values: Iterable[Value]) -> list[str]:
    """The heading and the values of a column, all as wide as the widest."""
    cells = [column.heading, *(cell(value, column.kind) for value in values)]
    to_right = column.kind in {Kind.NUMBER, Kind.SIZE, Kind.RATIO}
    if all(map(str.isascii, cells)):
        width = max(map(len, cells))
        return [one.rjust(width) if to_right else one.ljust(width) for one in cells]
    widths = [shown_width(one) for one in cells]
    blanks = [" " * (max(widths) - width) for width in widths]
    pairs = zip(cells, blanks, strict=True)
    return [blank + one if to_right else one + blank for one, blank in pairs]


def shown_width(written: str) -> int:
    """Columns that a text takes on a terminal: Chinese characters take two."""
    if written.isascii():
        return len(written)
    from rich.cells import cell_len  # noqa: PLC0415 - only for what is not ASCII

    return cell_len(written)


def cell(value: Value, kind: Kind = Kind.TEXT) -> str:
    """One value as a reader wants it."""
    if type(value) is str:  # most are
        return printable(value) or NOTHING
    shown = NOTHING
    if value is None or value in ("", []):
        return shown
    if isinstance(value, bool):
        shown = "yes" if value else "no"
    elif kind is Kind.TIME and isinstance(value, int):
        shown = time_text(value) if value > 0 else NOTHING
    elif kind is Kind.SIZE and isinstance(value, int):
        shown = size_text(value)
    elif kind is Kind.RATIO and isinstance(value, int | float):
        shown = f"{100 * value:.1f} %"
    elif isinstance(value, float):
        shown = f"{value:,.2f}"
    else:
        shown = printable(str(_plain(value)))
    return shown


def time_text(timestamp_ms: int) -> str:
    """Local time; the number itself if it is no time that a calendar knows."""
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000).astimezone()
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return moment.replace(tzinfo=None).isoformat(" ", "milliseconds")


def size_text(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def printable(written: str) -> str:
    """A message must not be able to talk to the terminal."""
    if written.isprintable():
        return written
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in written)


# --- printing -----------------------------------------------------------------------------------


def print_shown(shown: Shown, form: OutputFormat, *, dry_run: bool = False) -> None:
    """Print a result to standard output, and what is to be noted to standard error."""
    bold = form is OutputFormat.TABLE and sys.stdout.isatty() and "NO_COLOR" not in os.environ
    sys.stdout.write(render(shown, form, dry_run=dry_run, bold=bold))
    sys.stdout.flush()
    print_notes(shown.notes)


def print_notes(notes: Iterable[str]) -> None:
    for note in notes:
        sys.stderr.write(f"note: {note}\n")
