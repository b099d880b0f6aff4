"""`firearrow store`: look into a store directory without a broker.

Exit codes: 0 fine, 1 something is wrong with the store, 2 the command could not do its work.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from contextlib import contextmanager
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from firearrow.base.errors import ConfigError, PeerProtocolError
from firearrow.offline.check import check as check_store
from firearrow.offline.directory import Shape, StoreDirectory
from firearrow.offline.dump import Selection, as_object, message_id
from firearrow.offline.dump import dump as dump_store
from firearrow.offline.findings import RULES
from firearrow.offline.log_walk import Damage
from firearrow.offline.rebuild import rebuild as rebuild_store
from firearrow.store.errors import StoreInUse
from firearrow.wire.properties_text import parse_properties

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from firearrow.offline.check import Report
    from firearrow.offline.payload import Message

store_app = typer.Typer(
    help="Look into a store directory, FireArrow's or Apache RocketMQ's, without a broker.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

EXIT_FINDINGS: Final = 1
EXIT_NOT_DONE: Final = 2

Directory = Annotated[
    Path, typer.Argument(metavar="DIR", help="The broker's storePathRootDir.", show_default=False)
]
Config = Annotated[
    Path | None,
    typer.Option(
        "-c",
        "--config",
        help="The broker's configuration. Needed only where the files themselves do not show "
        "their sizes, or storePathCommitLog is set.",
    ),
]


class Only(StrEnum):
    QUEUES = "queues"
    INDEX = "index"


# --- dump ---------------------------------------------------------------------------------------


@store_app.command("dump")
def dump_command(  # noqa: PLR0917 - options, all of them named on the command line
    directory: Directory,
    topic: Annotated[str | None, typer.Option("-t", "--topic", help="Of this topic only.")] = None,
    queue: Annotated[int | None, typer.Option("-q", "--queue", help="Of this queue id.")] = None,
    offset: Annotated[
        str | None, typer.Option(help="With this queue offset, or these: 7 or 7-20.")
    ] = None,
    key: Annotated[
        str | None, typer.Option("-k", "--key", help="With this key or unique key.")
    ] = None,
    tag: Annotated[str | None, typer.Option(help="With this tag.")] = None,
    message: Annotated[
        str | None, typer.Option("--id", help="With this message id, of either kind.")
    ] = None,
    begin: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="From here on: a log offset (1048576), or a store time (2026-11-15, "
            "2026-11-15T08:55:30, @1794732962468).",
        ),
    ] = None,
    end: Annotated[str | None, typer.Option("--to", help="Up to here, exclusive.")] = None,
    limit: Annotated[
        int | None, typer.Option("-n", "--limit", min=1, help="Stop after so many.")
    ] = None,
    body: Annotated[bool, typer.Option("--body", help="Show bodies too.")] = False,  # noqa: FBT002
    as_json: Annotated[  # noqa: FBT002
        bool, typer.Option("--json", help="One JSON object per line, with every field.")
    ] = False,
    config: Config = None,
) -> None:
    """Print the messages of a store, in the order of its log.

    Bodies are unpacked and inner batches taken apart, as an application sees them. What cannot be
    read is named on standard error, and the exit code is 1. Running brokers are not disturbed.

    [bold]Examples[/bold]

      firearrow store dump ~/store --topic Orders --queue 0 --limit 20

      firearrow store dump ~/store --key order-4711 --body

      firearrow store dump ~/store --json --from 2026-11-15T08:00 --to 2026-11-15T09:00
    """
    with _errors("dump"):
        first_offset, begin_ms = _place("--from", begin)
        end_offset, end_ms = _place("--to", end)
        first_queue_offset, end_queue_offset = _queue_offsets(offset)
        selection = Selection(
            topic=topic,
            queue_id=queue,
            first_queue_offset=first_queue_offset,
            end_queue_offset=end_queue_offset,
            first_offset=first_offset,
            end_offset=end_offset,
            begin_ms=begin_ms,
            end_ms=end_ms,
            key=key,
            tag=tag,
            message_id=message,
        )
        store = _open(directory, config)
        damage = _print_messages(store, selection, limit=limit, body=body, as_json=as_json)
    if damage:
        raise typer.Exit(EXIT_FINDINGS)


def _print_messages(
    store: StoreDirectory, selection: Selection, *, limit: int | None, body: bool, as_json: bool
) -> list[Damage]:
    damage: list[Damage] = []
    # A bar between the lines of a table would be in the way.
    with _progress("reading", hidden=sys.stdout.isatty()) as progress:
        found = dump_store(store, selection, progress=progress)
        messages = itertools.islice(_without_damage(found, damage), limit)
        lines = _json_lines(messages, body=body) if as_json else _table(messages, body=body)
        for line in lines:
            sys.stdout.write(line)
        sys.stdout.flush()
    for part in damage:
        what = f"{part.size} bytes cannot be read: {part.reason}"
        typer.echo(f"{part.code} commitlog {part.offset}: {what}", err=True)
    return damage


def _without_damage(found: Iterable[Message | Damage], damage: list[Damage]) -> Iterator[Message]:
    for message in found:
        if isinstance(message, Damage):
            damage.append(message)
        else:
            yield message


def _json_lines(messages: Iterable[Message], *, body: bool) -> Iterator[str]:
    for message in messages:
        yield msgspec.json.encode(as_object(message, with_body=body)).decode() + "\n"


_COLUMNS: Final = ("log offset", "topic", "queue", "offset", "stored", "tags", "keys", "size", "id")
_NUMBERS: Final = frozenset({0, 2, 3, 7})  # to the right
_ROWS_FOR_WIDTH: Final = 200


def _table(messages: Iterable[Message], *, body: bool) -> Iterator[str]:
    """Columns as wide as the first rows need; what comes later may stick out."""
    messages = iter(messages)
    first = list(itertools.islice(messages, _ROWS_FOR_WIDTH))
    rows = [_COLUMNS, *(_row(message) for message in first)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]

    def line(row: tuple[str, ...]) -> str:
        cells = (
            cell.rjust(width) if column in _NUMBERS else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        return "  ".join(cells).rstrip() + "\n"

    yield line(_COLUMNS)
    for message in itertools.chain(first, messages):
        yield line(_row(message))
        if body:
            yield f"    {_body_text(message)}\n"


def _row(message: Message) -> tuple[str, ...]:
    record, properties = message.record, message.properties
    return (
        str(record.physical_offset),
        _printable(record.topic),
        str(record.queue_id),
        str(message.queue_offset),
        _time_text(record.store_timestamp),
        _printable(properties.get("TAGS", "")),
        _printable(properties.get("KEYS", "")),
        str(len(message.body)),
        _printable(message_id(message)),
    )


def _time_text(timestamp_ms: int) -> str:
    """Local time; the number itself if it is no time that a calendar knows."""
    try:
        stored = datetime.fromtimestamp(timestamp_ms / 1000).astimezone()
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return stored.replace(tzinfo=None).isoformat(" ", "milliseconds")


def _body_text(message: Message) -> str:
    note = f"({message.note}) " if message.note else ""
    try:
        return note + _printable(message.body.decode())
    except UnicodeDecodeError:
        return f"{note}{len(message.body)} bytes: {message.body.hex(' ')}"


def _printable(text: str) -> str:
    """A message must not be able to talk to the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _place(option: str, text: str | None) -> tuple[int | None, int | None]:
    """A log offset, or a time in milliseconds."""
    if text is None:
        return None, None
    if text.isdecimal():
        return int(text), None
    try:
        if text.startswith("@"):
            return None, int(text[1:])
        return None, int(datetime.fromisoformat(text).astimezone().timestamp() * 1000)
    except ValueError:
        raise ConfigError(
            f"{option} {text!r}: a log offset (1048576), a time (2026-11-15T08:55:30, local unless "
            "it names a zone) or milliseconds (@1794732962468) expected"
        ) from None


def _queue_offsets(text: str | None) -> tuple[int | None, int | None]:
    if text is None:
        return None, None
    first, dash, last = text.partition("-")
    if not first.isdecimal() or (dash and not last.isdecimal()):
        raise ConfigError(f"--offset {text!r}: a queue offset or two expected, as 7 or 7-20")
    return int(first), int(last or first) + 1


# --- check --------------------------------------------------------------------------------------


@store_app.command("check")
def check_command(
    directory: Directory,
    as_json: Annotated[bool, typer.Option("--json", help="The report as JSON.")] = False,  # noqa: FBT002
    config: Config = None,
) -> None:
    """Check every invariant of a store, and name what is broken.

    The exit code is 1 if something is. A store that crashed, or that a broker has open, is judged
    by what recovery would make of it. Nothing is changed.

    [bold]Examples[/bold]

      firearrow store check ~/store

      firearrow store check ~/store --json
    """
    with _errors("check"):
        store = _open(directory, config)
        with _progress("checking") as progress:
            report = check_store(store, now_ms=int(time.time() * 1000), progress=progress)
        if as_json:
            sys.stdout.write(_report_json(directory, report) + "\n")
        else:
            sys.stdout.write(_report_text(directory, report))
    if not report.is_sound:
        raise typer.Exit(EXIT_FINDINGS)


def _report_json(directory: Path, report: Report) -> str:
    found = {
        "directory": str(directory),
        "sound": report.is_sound,
        "findings": [
            {
                "code": finding.code,
                "rule": RULES[finding.code],
                "where": finding.where,
                "what": finding.what,
                "places": finding.places,
            }
            for finding in report.findings
        ],
        "notes": report.notes,
        "minOffset": report.min_offset,
        "maxOffset": report.end_offset,
        "records": report.records,
        "newestStoreTimestamp": report.newest_timestamp,
        "commitLogFiles": report.log_files,
        "queues": report.queues,
        "indexFiles": report.index_files,
        "indexEntries": report.index_entries,
    }
    return msgspec.json.format(msgspec.json.encode(found)).decode()


def _report_text(directory: Path, report: Report) -> str:
    size = (
        f"{report.records:,} records at {report.min_offset} to {report.end_offset} in "
        f"{report.log_files} files, {report.queues:,} queues, {report.index_entries:,} index "
        f"entries in {report.index_files} files"
    )
    lines = [f"{directory}: {size}"]
    lines += [f"note: {note}" for note in report.notes]
    lines += [str(finding) for finding in report.findings]
    if report.is_sound:
        lines.append(f"sound: none of the {len(RULES)} rules is broken")
    else:
        codes = sorted({finding.code for finding in report.findings}, key=list(RULES).index)
        lines.append("broken rules:")
        lines += [f"  {code} {RULES[code]}" for code in codes]
        if any(code[0] in "QI" or code == "O9" for code in codes):
            lines.append(f"Queues and index can be made again: firearrow store rebuild {directory}")
        if any(code[0] == "C" for code in codes):
            lines.append(f"What can still be read: firearrow store dump {directory}")
    return "\n".join(lines) + "\n"


# --- rebuild ------------------------------------------------------------------------------------


@store_app.command("rebuild")
def rebuild_command(
    directory: Directory,
    only: Annotated[Only | None, typer.Option(help="Leave the other as it is.")] = None,
    dry_run: Annotated[  # noqa: FBT002
        bool, typer.Option("--dry-run", help="Read the log and count; change nothing.")
    ] = False,
    config: Config = None,
) -> None:
    """Make consume queues and index again from the log.

    The new files are built beside the old ones and replace them at the end, so that a crash leaves
    the old ones, or a store that the next broker recovers. The log is never changed. Refused while
    a broker has the directory open. The exit code is 1 if parts of the log could not be read.

    [bold]Examples[/bold]

      firearrow store rebuild ~/store --dry-run

      firearrow store rebuild ~/store

      firearrow store rebuild ~/store --only index -c conf/broker.conf
    """
    with _errors("rebuild"):
        store = _open(directory, config)
        with _progress("rebuilding") as progress:
            rebuilt = rebuild_store(
                store,
                queues=only != Only.INDEX,
                index=only != Only.QUEUES,
                dry_run=dry_run,
                progress=progress,
            )
        lines = [f"{'would make' if dry_run else 'made'} from {rebuilt.records:,} records:"]
        if only != Only.INDEX:
            lines.append(f"  {rebuilt.queues:,} queues with {rebuilt.units:,} units")
        if rebuilt.kept_queues:
            lines.append(f"  {rebuilt.kept_queues:,} of them kept: all their messages have expired")
        if rebuilt.skipped_topics:
            names = ", ".join(sorted(rebuilt.skipped_topics))
            lines.append(f"  none for topics that are not in config/topics.json: {names}")
        if only != Only.QUEUES:
            lines.append(
                f"  {rebuilt.index_files:,} index files with {rebuilt.index_entries:,} entries"
            )
        typer.echo("\n".join(lines))
        for problem in rebuilt.problems:
            typer.echo(problem, err=True)
    if rebuilt.problems:
        raise typer.Exit(EXIT_FINDINGS)


# --- all ----------------------------------------------------------------------------------------


def _open(directory: Path, config: Path | None) -> StoreDirectory:
    shape = Shape()
    if config is not None:
        try:
            shape = Shape.of_settings(parse_properties(config.read_bytes()))
        except OSError as error:
            raise ConfigError(f"{config} cannot be read: {error.strerror}") from error
        except PeerProtocolError as error:
            raise ConfigError(f"{config} is not a .properties file: {error}") from error
    return StoreDirectory(directory, shape)


@contextmanager
def _errors(command: str) -> Iterator[None]:
    """One line instead of a traceback, for what an operator can do something about."""
    try:
        yield
    except BrokenPipeError:
        # Whoever read our output has seen enough; nothing more may be written, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit from None
    except (ConfigError, StoreInUse) as error:
        typer.echo(f"firearrow store {command}: {error}", err=True)
        raise typer.Exit(EXIT_NOT_DONE) from error
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        typer.echo(f"firearrow store {command}: {place}{error.strerror}", err=True)
        raise typer.Exit(EXIT_NOT_DONE) from error


@contextmanager
def _progress(what: str, *, hidden: bool = False) -> Iterator[Callable[[int, int], None] | None]:
    """A bar on standard error, if that is a terminal; gone when the work is done."""
    console = Console(stderr=True)
    if hidden or not console.is_terminal:
        yield None
        return
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    ) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
