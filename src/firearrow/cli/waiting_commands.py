"""`firearrow transaction` and `firearrow timer`: what waits on brokers for its end or its time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from firearrow.base.errors import ConfigError
from firearrow.cli.arguments import TopicName, plural
from firearrow.cli.output import Column, Effect, Kind, Table, numbers, text
from firearrow.cli.verbs import change, listing
from firearrow.model.timer import RecallHandle
from firearrow.model.topic import CHECK_MAX_TIME_TOPIC
from firearrow.wire.codes import RequestCode
from firearrow.wire.headers import ResumeCheckHalfMessageRequest

if TYPE_CHECKING:
    from firearrow.cli.target import Target

transaction_app = typer.Typer(
    name="transaction",
    help="Transactions: which are open, and parked ones asked about again.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
timer_app = typer.Typer(
    name="timer",
    help="Messages that wait for their time: count, list, take back.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

RECALL_GROUP: Final = "CLIENT_INNER_PRODUCER"
Limit = Annotated[
    int, typer.Option("-l", "--limit", min=1, max=1_000, help="So many of each broker.")
]


# --- transactions -------------------------------------------------------------------------------


@listing(transaction_app, "ls")
def open_ones(target: Target, *, limit: Limit = 100) -> Table:
    """List open half messages, oldest place first: their age, and how often producers were asked.

    [bold]Examples[/bold]

      firearrow transaction ls

      firearrow transaction ls --limit 1000 --output json
    """
    columns = [
        *text("topic", "group", "transaction_id"),
        Column("born_ms", Kind.TIME),
        *numbers("age_s", "checks"),
        *text("broker", "offset_msg_id"),
    ]
    found = target.admin.open_transactions(limit)
    rows = [
        [
            *(each.topic, each.producer_group, each.transaction_id, each.born_timestamp),
            *(each.age // 1_000, each.checks, one.broker, each.offset_msg_id),
        ]
        for one in found
        for each in one.transactions
    ]
    table = Table(columns, rows)
    total = sum(one.total for one in found)
    if total > len(rows):
        table.notes.append(f"{len(rows)} of {total} that are open; --limit shows more")
    return table


@change(transaction_app, "resume")
def resume(
    target: Target,
    *,
    offset_msg_id: Annotated[
        str, typer.Argument(help="Of the message in TRANS_CHECK_MAX_TIME_TOPIC.")
    ],
    dry_run: bool,
) -> Effect:
    """Have a parked half message asked about again, as if nobody had been asked.

    [bold]Example[/bold]

      firearrow transaction resume 7F00000100002A9F0000000000012345 --dry-run
    """
    message = target.admin.message_by_id(offset_msg_id)
    if message.queue.topic != CHECK_MAX_TIME_TOPIC:
        raise ConfigError(
            f"{offset_msg_id} is a message of topic {message.queue.topic}: one of "
            f"{CHECK_MAX_TIME_TOPIC} is expected (firearrow msg tail {CHECK_MAX_TIME_TOPIC})"
        )
    if not dry_run:
        ip, port = message.store_host.rsplit(":", 1)
        header = ResumeCheckHalfMessageRequest(topic=CHECK_MAX_TIME_TOPIC, msg_id=offset_msg_id)
        target.admin.request(f"{ip}:{port}", RequestCode.RESUME_CHECK_HALF_MESSAGE, header)
    words = f"about the transaction {message.msg_id} again"
    return Effect(would=f"ask {words}", did=f"asking {words}", numbers={"transactions": 1})


# --- timers -------------------------------------------------------------------------------------


@listing(timer_app, "count")
def count(target: Target) -> Table:
    """Count the messages of each topic that wait for a time of their own, on all brokers.

    [bold]Example[/bold]

      firearrow timer count --watch
    """
    counts = target.admin.timer_counts()
    return Table([*text("topic"), *numbers("waiting")], sorted(map(list, counts.items())))


@listing(timer_app, "ls")
def waiting(target: Target, *, topic: TopicName, limit: Limit = 100) -> Table:
    """List messages of a topic that wait for their time, soonest first, with what takes them back.

    [bold]Examples[/bold]

      firearrow timer ls orders

      firearrow timer ls orders --limit 10 --output json
    """
    columns = [
        Column("due_ms", Kind.TIME),
        *text("msg_id", "tags", "keys", "broker"),
        *numbers("queue"),
        Column("size", Kind.SIZE),
        *text("recall_handle"),
    ]
    page = target.admin.waiting_timers(topic, limit=limit)
    rows = [
        [
            *(one.due_time, one.unique_key, one.tags, one.keys, broker),
            *(one.queue_id, one.size, one.recall_handle),
        ]
        for broker, one in page.timers
    ]
    table = Table(columns, rows)
    if page.cursors:
        table.notes.append(f"the first {plural(len(rows), 'message')}; there are more")
    return table


@change(timer_app, "recall")
def recall(
    target: Target,
    *,
    topic: TopicName,
    handle: Annotated[str, typer.Argument(help="From `timer ls`, or from sending.")],
    dry_run: bool,
) -> Effect:
    """Take back a message that waits. The broker must allow it (recallMessageEnable).

    [bold]Example[/bold]

      firearrow timer recall orders djEgb3JkZXJz... --dry-run
    """
    try:
        meant = RecallHandle.decode(handle)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if not dry_run:
        target.producer(RECALL_GROUP).recall(topic, handle)
    words = f"message {meant.unique_key} of topic {meant.topic} on broker {meant.broker_name}"
    return Effect(
        would=f"take back {words}",
        did=f"took back {words}",
        numbers={"messages": 1, "msg_id": meant.unique_key},
    )
