"""`firearrow msg dlq`: dead letters, listed, sent again, exported."""

from __future__ import annotations

import itertools
from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from firearrow.base.errors import ConfigError
from firearrow.cli import message_view
from firearrow.cli.arguments import GroupName, Yes, confirm, plural
from firearrow.cli.message_commands import message_app
from firearrow.cli.output import Effect, OutputFormat, Table, numbers, render, text
from firearrow.cli.verbs import change, listing
from firearrow.model import message as names

if TYPE_CHECKING:
    from firearrow.cli.target import Target
    from firearrow.client.message import ReceivedMessage

dlq_app = typer.Typer(
    name="msg dlq",
    help="Dead letters: what a group gave up on.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
message_app.add_typer(dlq_app, name="dlq")

Limit = Annotated[int, typer.Option("-l", "--limit", min=1, max=1_000_000)]


@listing(dlq_app, "ls")
def ls(target: Target, *, group: GroupName, limit: Limit = 32) -> Table:
    """List dead letters of a group, oldest first.

    [bold]Examples[/bold]

      firearrow msg dlq ls billing

      firearrow msg dlq ls billing --limit 1000 --output csv
    """
    rows = [
        [*message_view.row(one)[1:], _origin(one), one.reconsume_times]
        for one in target.admin.dlq_messages(group, limit)
    ]
    columns = [*message_view.COLUMNS[1:], *text("came_from"), *numbers("tries")]
    table = Table(columns, rows)
    if len(rows) == limit:
        table.notes.append(f"the first {limit}; --limit shows more")
    return table


def _origin(message: ReceivedMessage) -> str | None:
    properties = message.properties
    return properties.get(names.DLQ_ORIGIN_TOPIC) or properties.get(names.RETRY_TOPIC)


@change(dlq_app, "resend")
def resend(
    target: Target,
    *,
    group: GroupName,
    msg_id: Annotated[
        list[str] | None, typer.Option("--id", help="This one; repeatable. Else all.")
    ] = None,
    topic: Annotated[
        str | None, typer.Option("--to-topic", help="For every group; else to its own alone.")
    ] = None,
    limit: Limit = 10_000,
    yes: Yes = False,
    dry_run: bool,
) -> Effect:
    """Give dead letters another chance. They stay in the dead-letter queue as well.

    [bold]Examples[/bold]

      firearrow msg dlq resend billing --dry-run

      firearrow msg dlq resend billing --id AC11000200012A9F00000000 --yes

      firearrow msg dlq resend billing --to-topic orders --limit 100 --yes
    """
    letters = _chosen(target, group, msg_id, limit)
    where = f"topic {topic}" if topic else f"group {group}"
    words = f"{plural(len(letters), 'dead letter')} to {where}"
    rows: list[list[Any]] = []
    if not dry_run:
        confirm(f"Send {words}?", yes=yes)
        for one in letters:
            receipt = target.admin.resend_dlq(one, topic=topic)
            rows.append([one.msg_id, receipt.queue.topic, receipt.queue.queue_id])
            rows[-1].append(receipt.queue_offset)
    return Effect(
        would=f"send {words}",
        did=f"sent {words}",
        numbers={"group": group, "messages": len(letters)},
        table=Table([*text("msg_id", "topic"), *numbers("queue", "offset")], rows)
        if rows
        else None,
    )


def _chosen(target: Target, group: str, ids: list[str] | None, limit: int) -> list[ReceivedMessage]:
    found = list(itertools.islice(target.admin.dlq_messages(group), limit))
    if not ids:
        return found
    chosen = [one for one in found if one.msg_id in ids or one.offset_msg_id in ids]
    known = {one.msg_id for one in chosen} | {one.offset_msg_id for one in chosen}
    if missing := sorted(set(ids) - known):
        raise ConfigError(f"group {group} has no dead letter {missing[0]} among its first {limit}")
    return chosen


@change(dlq_app, "export")
def export(
    target: Target,
    *,
    group: GroupName,
    file: Annotated[Path, typer.Argument(help="FILE.json (one per line) or FILE.csv.")],
    limit: Limit = 100_000,
    dry_run: bool,
) -> Effect:
    """Write dead letters of a group to a file, with bodies and properties.

    [bold]Examples[/bold]

      firearrow msg dlq export billing letters.json

      firearrow msg dlq export billing letters.csv --dry-run
    """
    if file.suffix not in {".json", ".jsonl", ".csv"}:
        raise ConfigError(f"{file}: a name that ends in .json, .jsonl or .csv expected")
    records = [message_view.record(one).values for one in target.admin.dlq_messages(group, limit)]
    if file.suffix == ".csv":
        columns = text(*(records[0] if records else ["msg_id"]))
        content = render(Table(columns, [list(one.values()) for one in records]), OutputFormat.CSV)
    else:
        content = "".join(msgspec.json.encode(one).decode() + "\n" for one in records)
    if not dry_run:
        file.write_text(content, "utf-8")
    words = f"{plural(len(records), 'dead letter')}, {plural(len(content.encode()), 'byte')}"
    return Effect(
        would=f"write {words}, to {file}",
        did=f"wrote {words}, to {file}",
        numbers={"group": group, "messages": len(records), "bytes": len(content.encode())},
    )
