"""`firearrow msg tail`: messages as they come."""

from __future__ import annotations

import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from firearrow.cli import message_view
from firearrow.cli.arguments import TopicName  # noqa: TC001 - typer reads it
from firearrow.cli.message_commands import message_app
from firearrow.cli.output import OutputFormat, Table, printable, render, time_text
from firearrow.cli.times import moment_ms
from firearrow.cli.verbs import Output, verb

if TYPE_CHECKING:
    from collections.abc import Iterator

    from firearrow.cli.target import Target
    from firearrow.client.message import ReceivedMessage

POLL_MS: Final = 500
TOOLS_GROUP: Final = "TOOLS_CONSUMER"  # every broker has it, so that none is made


@verb(message_app, "tail")
def tail(
    target: Target,
    *,
    topic: TopicName,
    tag: Annotated[str, typer.Option("--tag", help="Tags, as 'paid || refunded'.")] = "*",
    sql: Annotated[str | None, typer.Option("--sql", help="An SQL92 filter.")] = None,
    begin: Annotated[
        str | None, typer.Option("--from", help="Begin at this time instead of now; or earliest.")
    ] = None,
    count: Annotated[
        int | None, typer.Option("-c", "--count", min=1, help="Stop after so many.")
    ] = None,
    contains: Annotated[
        str | None, typer.Option("--contains", help="Only with this text in the body.")
    ] = None,
    output: Output = OutputFormat.TABLE,
) -> int | None:
    """Print messages of a topic as they come, until Ctrl-C; no group is moved by it.

    JSON is one object per line.

    [bold]Examples[/bold]

      firearrow msg tail orders

      firearrow msg tail orders --tag 'paid || refunded' --from -10m

      firearrow msg tail orders --output json --count 10
    """
    consumer = target.pull_consumer(TOOLS_GROUP, auto_commit=False)
    queues = consumer.queues(topic)
    consumer.assign(queues, tag, sql=sql)
    for queue in queues:
        if begin is None:
            consumer.seek_to_end(queue)
        elif begin == "earliest":
            consumer.seek_to_beginning(queue)
        else:
            consumer.seek_to_time(queue, moment_ms("--from", begin, target.now_ms()))
    stop = threading.Event()
    wanted = contains.encode() if contains else b""
    head = output is OutputFormat.CSV
    given = 0
    with _interruptible(stop):
        while not stop.is_set() and given != count:
            for message in consumer.poll(POLL_MS):
                if wanted in message.body and given != count:
                    sys.stdout.write(_line(message, output, head=head))
                    head = False
                    given += 1
            sys.stdout.flush()
    return None


@contextmanager
def _interruptible(stop: threading.Event) -> Iterator[None]:
    """Ctrl-C is how a tail ends, not how it fails."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda *_: stop.set())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _line(message: ReceivedMessage, form: OutputFormat, *, head: bool) -> str:
    row = message_view.row(message)
    if form is OutputFormat.TABLE:
        tags = f" [{printable(message.tags)}]" if message.tags else ""
        place = f"{message.broker_name}:{message.queue.queue_id}@{message.queue_offset}"
        body = message_view.body_text(message.body, 200)
        return f"{time_text(message.store_timestamp)}  {place}{tags}  {body}\n"
    if form is OutputFormat.CSV:
        lines = render(Table(message_view.COLUMNS, [row]), form)
        return lines if head else lines.partition("\n")[2]
    names = (column.name for column in message_view.COLUMNS)
    values = dict(zip(names, row, strict=True)) | {"body": message_view.body_text(message.body)}
    return msgspec.json.encode(values).decode() + "\n"
