"""`firearrow group reset` and `clone`: moving groups, with a preview in numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from firearrow.base.errors import ConfigError
from firearrow.cli import completing
from firearrow.cli.arguments import GroupName, Yes, confirm, plural
from firearrow.cli.group_commands import group_app
from firearrow.cli.output import Effect, Table, numbers, text
from firearrow.cli.times import moment_ms
from firearrow.cli.verbs import change

if TYPE_CHECKING:
    from firearrow.cli.target import Target
    from firearrow.client.admin_offsets import ResetTarget
    from firearrow.client.admin_results import OffsetReset

TopicOption = Annotated[
    str, typer.Option("-t", "--topic", help="Which topic.", autocompletion=completing.topics)
]


@change(group_app, "reset")
def reset(
    target: Target,
    *,
    group: GroupName,
    topic: TopicOption,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", help="earliest, latest, or a time: 2026-11-15T08:00, -1h, @1794732962468."
        ),
    ] = None,
    skip: Annotated[bool, typer.Option("--skip", help="Skip what waits: --to latest.")] = False,
    offset: Annotated[
        list[str] | None,
        typer.Option("--offset", help="BROKER:QUEUE=OFFSET; repeatable; others stay."),
    ] = None,
    back_only: Annotated[
        bool, typer.Option("--back-only", help="Never go forward, so that nothing is skipped.")
    ] = False,
    yes: Yes = False,
    dry_run: bool,
) -> Effect:
    """Have a group go on elsewhere in a topic, by time, by offset, or past everything.

    With --dry-run it says, queue by queue, how many messages come again and how many are skipped.

    [bold]Examples[/bold]

      firearrow group reset billing --topic orders --to -1h --dry-run

      firearrow group reset billing --topic orders --to 2026-11-15T08:00 --yes

      firearrow group reset billing --topic orders --skip --yes

      firearrow group reset billing --topic orders --offset broker-a:0=42 --yes
    """
    wanted = _wanted(target, topic, to, offset, skip=skip)
    plan = target.admin.reset_offset(group, topic, wanted, force=not back_only, dry_run=True)
    words = _words(plan)
    if not dry_run:
        confirm(f"Reset group {group}: {words}?", yes=yes)
        plan = target.admin.reset_offset(group, topic, wanted, force=not back_only)
        words = _words(plan)
    rows = [
        [
            one.queue.broker_name,
            one.queue.queue_id,
            one.committed,
            one.target,
            one.again,
            one.skipped,
        ]
        for one in plan.queues
    ]
    columns = [*text("broker"), *numbers("queue", "committed", "target", "again", "skipped")]
    return Effect(
        would=f"reset group {group} on topic {topic}: {words}",
        did=f"reset group {group} on topic {topic}: {words}",
        numbers={"group": group, "topic": topic, "again": plan.again, "skipped": plan.skipped}
        | {"queues": len(plan.queues)},
        table=Table(columns, rows),
    )


def _words(plan: OffsetReset) -> str:
    return (
        f"{plural(plan.again, 'message')} come again, {plan.skipped:,} are skipped in "
        f"{plural(len(plan.queues), 'queue')}"
    )


def _wanted(
    target: Target, topic: str, to: str | None, offsets: list[str] | None, *, skip: bool
) -> ResetTarget:
    """Where to go, of which exactly one must be said."""
    if (to is not None) + bool(offsets) + skip != 1:
        raise ConfigError("say where to go, in one way: --to TIME, --skip or --offset")
    if skip:
        return "latest"
    if offsets:
        return _offsets(topic, offsets)
    if to == "earliest":
        return "earliest"
    if to == "latest":
        return "latest"
    return moment_ms("--to", to or "", target.now_ms())


def _offsets(topic: str, given: list[str]) -> dict[Any, int]:
    from firearrow.model.topic import MessageQueue  # noqa: PLC0415

    found = {}
    for one in given:
        place, _, number = one.partition("=")
        broker, _, queue = place.rpartition(":")
        if not (broker and queue.isdecimal() and number.isdecimal()):
            raise ConfigError(f"--offset {one!r}: BROKER:QUEUE=OFFSET expected, as broker-a:0=42")
        found[MessageQueue(topic=topic, broker_name=broker, queue_id=int(queue))] = int(number)
    return found


@change(group_app, "clone")
def clone(
    target: Target,
    *,
    source: Annotated[str, typer.Argument(help="Whose place.", autocompletion=completing.groups)],
    heir: Annotated[
        str, typer.Argument(help="Who gets it; it exists.", autocompletion=completing.groups)
    ],
    topic: Annotated[str | None, typer.Option("-t", "--topic", help="In this topic only.")] = None,
    dry_run: bool,
) -> Effect:
    """Put a group where another one is, in one topic or in all.

    [bold]Examples[/bold]

      firearrow group clone billing billing-v2 --topic orders --dry-run

      firearrow group clone billing billing-v2
    """
    if dry_run:
        target.admin.group_config(heir)
        lag = target.admin.group_lag(source, topic)
        found = {one.queue: one.committed_offset for one in lag.queues if one.committed_offset}
    else:
        found = target.admin.clone_offsets(source, heir, topic)
    rows = [
        [queue.topic, queue.broker_name, queue.queue_id, offset]
        for queue, offset in sorted(found.items())
    ]
    words = f"group {heir} where {source} is in {plural(len(rows), 'queue')}"
    return Effect(
        would=f"put {words}",
        did=f"put {words}",
        numbers={"source": source, "heir": heir, "queues": len(rows)},
        table=Table([*text("topic", "broker"), *numbers("queue", "offset")], rows),
    )
