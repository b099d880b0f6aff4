"""`firearrow msg`: send, find by id, key, place and time, send again, trace."""

from __future__ import annotations

import itertools
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from firearrow.base.errors import ConfigError
from firearrow.cli import completing
from firearrow.cli.arguments import TopicName, pairs, plural
from firearrow.cli.message_view import record, table
from firearrow.cli.output import Column, Effect, Kind, Record, Table, numbers, text
from firearrow.cli.times import duration_ms, moment_ms
from firearrow.cli.verbs import change, listing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from firearrow.cli.target import Target
    from firearrow.client.message import Message, ReceivedMessage
    from firearrow.model.topic import MessageQueue

message_app = typer.Typer(
    name="msg",
    help="Messages: send, find, tail, trace, dead letters.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

GROUP: Final = "firearrow-cli"  # producer group of messages sent from here
COUNT_MAX: Final = 1_000_000


class BodyView(StrEnum):
    TEXT = "text"
    JSON = "json"
    HEX = "hex"
    BASE64 = "base64"


View = Annotated[BodyView, typer.Option("--body", help="How to show the body.")]
TopicOption = Annotated[
    str | None,
    typer.Option(
        "-t", "--topic", help="Needed for a producer's id.", autocompletion=completing.topics
    ),
]
MessageId = Annotated[str, typer.Argument(metavar="ID", help="The producer's id, or the broker's.")]


# --- sending ------------------------------------------------------------------------------------


@change(message_app, "send")
def send(
    target: Target,
    *,
    topic: TopicName,
    body: Annotated[str, typer.Argument(help="Text; @FILE reads a file, - standard input.")],
    tag: Annotated[str | None, typer.Option("--tag")] = None,
    key: Annotated[list[str] | None, typer.Option("-k", "--key", help="Repeatable.")] = None,
    property_given: Annotated[
        list[str] | None, typer.Option("-p", "--property", help="NAME=VALUE; repeatable.")
    ] = None,
    delay: Annotated[
        str | None, typer.Option("--delay", help="Deliver so much later, as 90s or 2h.")
    ] = None,
    at: Annotated[str | None, typer.Option("--at", help="Deliver at this time.")] = None,
    delay_level: Annotated[int, typer.Option("--delay-level", min=0, max=18)] = 0,
    sharding_key: Annotated[
        str | None, typer.Option("--sharding-key", help="Same key, same queue, in order.")
    ] = None,
    count: Annotated[
        int, typer.Option("-c", "--count", min=1, max=COUNT_MAX, help="So many copies.")
    ] = 1,
    trace: Annotated[bool, typer.Option("--trace", help="Write down what happens to it.")] = False,
    dry_run: bool,
) -> Effect:
    """Send a message, or many.

    [bold]Examples[/bold]

      firearrow msg send orders "order 42" --tag paid --key 42

      firearrow msg send orders @order.json --property region=EU --dry-run

      firearrow msg send reminders "pay up" --delay 2h
    """
    content = _content(body)
    given = (tag, key, property_given, delay, at, delay_level, sharding_key)
    message = _message(target, topic, content, *given)
    words = f"{plural(count, 'message')} of {plural(len(content), 'byte')} to topic {topic}"
    values: dict[str, Any] = {"topic": topic, "messages": count, "bytes": len(content) * count}
    if dry_run:
        queues = len(target.admin.queues(topic))
        return Effect(
            would=f"send {words}, which has {plural(queues, 'queue')}",
            did="",
            numbers=values | {"queues": queues},
        )
    producer = target.producer(GROUP, trace=trace)
    receipts = [producer.send(message)]
    receipts += [producer.send(_message(target, topic, content, *given)) for _ in range(count - 1)]
    rows = [
        [one.status.name, one.msg_id, one.queue.broker_name, one.queue.queue_id, one.queue_offset]
        for one in receipts
    ]
    columns = [*text("status", "msg_id", "broker"), *numbers("queue", "offset")]
    return Effect(would="", did=f"sent {words}", numbers=values, table=Table(columns, rows))


def _content(given: str) -> bytes:
    if given == "-":
        return sys.stdin.buffer.read()
    return Path(given[1:]).read_bytes() if given.startswith("@") else given.encode()


def _message(  # noqa: PLR0917 - the options of `send`
    target: Target,
    topic: str,
    body: bytes,
    tag: str | None,
    keys: list[str] | None,
    properties: list[str] | None,
    delay: str | None,
    at: str | None,
    delay_level: int,
    sharding_key: str | None,
) -> Message:
    from firearrow.client.message import Message  # noqa: PLC0415

    if sum((delay is not None, at is not None, bool(delay_level))) > 1:
        raise ConfigError("say once when it is delivered: --delay, --at or --delay-level")
    return Message(
        topic,
        body,
        tags=tag,
        keys=keys,
        properties=pairs("--property", properties),
        delay_level=delay_level,
        delay_ms=None if delay is None else duration_ms("--delay", delay),
        deliver_at_ms=None if at is None else moment_ms("--at", at, target.now_ms()),
        sharding_key=sharding_key,
    )


# --- finding ------------------------------------------------------------------------------------


@listing(message_app, "get")
def get(
    target: Target,
    *,
    msg_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="The producer's id, or the broker's.")
    ] = None,
    topic: TopicOption = None,
    queue: Annotated[str | None, typer.Option("-q", "--queue", help="BROKER:QUEUE.")] = None,
    offset: Annotated[int | None, typer.Option("--offset", min=0, help="In that queue.")] = None,
    view: View = BodyView.TEXT,
) -> Record:
    """Show one message, by its id or by its place.

    [bold]Examples[/bold]

      firearrow msg get 7F00000100002A9F0000000000000000

      firearrow msg get AC11000200012A9F00000000 --topic orders --body json

      firearrow msg get --topic orders --queue broker-a:0 --offset 7 --body hex
    """
    if (msg_id is None) == (queue is None):
        raise ConfigError("name the message: its ID, or --topic, --queue BROKER:QUEUE and --offset")
    if msg_id is not None:
        return record(target.admin.message_by_id(msg_id, topic), view)
    if topic is None or offset is None:
        raise ConfigError("a place is --topic, --queue BROKER:QUEUE and --offset")
    return record(target.admin.message_at(parse_queue(topic, queue or ""), offset), view)


def parse_queue(topic: str, given: str) -> MessageQueue:
    from firearrow.model.topic import MessageQueue  # noqa: PLC0415

    broker, _, number = given.rpartition(":")
    if not broker or not number.isdecimal():
        raise ConfigError(f"--queue {given!r}: BROKER:QUEUE expected, as broker-a:0")
    return MessageQueue(topic=topic, broker_name=broker, queue_id=int(number))


@listing(message_app, "query")
def query(
    target: Target,
    *,
    topic: TopicName,
    key: Annotated[
        str | None, typer.Option("-k", "--key", help="With this key or unique key.")
    ] = None,
    begin: Annotated[
        str | None, typer.Option("--from", help="Stored from here on: 2026-11-15T08:00, -1h.")
    ] = None,
    end: Annotated[str | None, typer.Option("--to", help="Stored before this time.")] = None,
    tag: Annotated[str | None, typer.Option("--tag", help="With this tag.")] = None,
    contains: Annotated[
        str | None, typer.Option("--contains", help="With this text in the body.")
    ] = None,
    limit: Annotated[int, typer.Option("-l", "--limit", min=1, max=100_000)] = 32,
) -> Table:
    """Find messages of a topic by key, time, tag or text.

    Without a key the queues are read between the two times, so narrow them on a large topic.

    [bold]Examples[/bold]

      firearrow msg query orders --key 42

      firearrow msg query orders --from -1h --tag paid --limit 100

      firearrow msg query orders --from 2026-11-15T08:00 --to 2026-11-15T09:00 --output json
    """
    now_ms = target.now_ms()
    begin_ms = 0 if begin is None else moment_ms("--from", begin, now_ms)
    end_ms = None if end is None else moment_ms("--to", end, now_ms)

    def wanted(message: ReceivedMessage) -> bool:
        return (tag is None or message.tags == tag) and (
            contains is None or contains.encode() in message.body
        )

    if key is not None:
        found = target.admin.messages_by_key(
            topic, key, begin_ms=begin_ms, end_ms=end_ms, limit=limit
        )
        return table(message for message in found if wanted(message))
    read = _between(target, topic, begin_ms, end_ms)
    chosen = list(itertools.islice((one for one in read if wanted(one)), limit))
    shown = table(sorted(chosen, key=lambda one: one.store_timestamp))
    if len(chosen) == limit:
        shown.notes.append(f"the first {limit} of each queue in turn; --limit shows more")
    return shown


def _between(
    target: Target, topic: str, begin_ms: int, end_ms: int | None
) -> Iterator[ReceivedMessage]:
    admin = target.admin
    for queue in admin.queues(topic):
        first = admin.offset_at(queue, begin_ms) if begin_ms else admin.min_offset(queue)
        last = admin.max_offset(queue) if end_ms is None else admin.offset_at(queue, end_ms)
        for message in admin.messages_between(queue, first, last):
            if message.store_timestamp >= begin_ms and (
                end_ms is None or message.store_timestamp < end_ms
            ):
                yield message


# --- again --------------------------------------------------------------------------------------


@change(message_app, "resend")
def resend(
    target: Target,
    *,
    msg_id: MessageId,
    topic: TopicOption = None,
    to: Annotated[
        str | None, typer.Option("--to-topic", help="Another topic than its own.")
    ] = None,
    dry_run: bool,
) -> Effect:
    """Send a copy of a stored message again, with its tags, keys and properties.

    [bold]Examples[/bold]

      firearrow msg resend AC11000200012A9F00000000 --topic orders --dry-run

      firearrow msg resend 7F00000100002A9F0000000000000000 --to-topic orders-replay
    """
    found = target.admin.message_by_id(msg_id, topic)
    copy = _copy(found, to or found.topic)
    words = f"message {found.msg_id} with {plural(len(found.body), 'byte')} to topic {copy.topic}"
    groups = target.admin.topic_groups(copy.topic)
    values: dict[str, Any] = {"msg_id": found.msg_id, "topic": copy.topic, "groups": len(groups)}
    if not dry_run:
        receipt = target.producer(GROUP).send(copy)
        values |= {"new_msg_id": receipt.msg_id, "offset": receipt.queue_offset}
    return Effect(
        would=f"send {words}, which {plural(len(groups), 'group')} consume",
        did=f"sent {words} as {values.get('new_msg_id')}",
        numbers=values,
    )


def _copy(found: ReceivedMessage, topic: str) -> Message:
    """Only what the application wrote goes along."""
    from firearrow.client.message import Message  # noqa: PLC0415
    from firearrow.model import message as names  # noqa: PLC0415

    system = {value for key, value in vars(names).items() if key.isupper()}
    own = {name: value for name, value in found.properties.items() if name not in system}
    return Message(
        topic, found.body, tags=found.tags, keys=found.keys, properties=own, flag=found.flag,
        sharding_key=found.sharding_key,
    )  # fmt: skip


@change(message_app, "deliver")
def deliver(
    target: Target,
    *,
    msg_id: MessageId,
    group: Annotated[str, typer.Option("-g", "--group", autocompletion=completing.groups)],
    client: Annotated[str, typer.Option("--client", help="From `firearrow group members`.")],
    topic: TopicOption = None,
    dry_run: bool,
) -> Effect:
    """Have one member of a group consume a message now, and hear what it made of it.

    [bold]Examples[/bold]

      firearrow msg deliver 7F00000100002A9F0000000000000000 -g billing --client 10.0.0.7@42
    """
    found = target.admin.message_by_id(msg_id, topic)
    values: dict[str, Any] = {"msg_id": found.msg_id, "group": group, "client": client}
    words = f"message {found.msg_id} to {client} of group {group}"
    if dry_run:
        return Effect(would=f"deliver {words}", did="", numbers=values)
    said = target.admin.consume_directly(group, client, found)
    result = said.consume_result.value if said.consume_result else "no answer"
    values |= {"result": result, "spent_ms": said.spent_time_mills, "remark": said.remark}
    return Effect(
        would="",
        did=f"delivered {words}: {result} in {said.spent_time_mills} ms",
        numbers=values,
        notes=[said.remark] if said.remark else [],
    )


# --- traces -------------------------------------------------------------------------------------


@listing(message_app, "trace")
def trace_command(
    target: Target,
    *,
    msg_id: MessageId,
    trace_topic: Annotated[
        str | None, typer.Option("--trace-topic", help="Where traces are.")
    ] = None,
) -> Table:
    """Show the life of a message, as clients with tracing wrote it down.

    [bold]Examples[/bold]

      firearrow msg trace AC11000200012A9F00000000
    """
    trace = target.admin.message_trace(msg_id, trace_topic=trace_topic)
    rows: list[list[Any]] = [
        ["sent", one.timestamp_ms, one.group, one.store_host, one.cost_ms, one.success]
        for one in trace.published
    ]
    rows += [
        ["transaction", one.timestamp_ms, one.group, one.store_host, None, one.state]
        for one in trace.transactions
    ]
    for one in trace.deliveries:
        began = one.before.timestamp_ms if one.before else None
        host = one.before.client_host if one.before else None
        cost = one.after.cost_ms if one.after else None
        rows.append(["delivered", began, one.group, host, cost, one.success])
    rows += [
        ["recalled", one.timestamp_ms, one.group, None, None, one.success] for one in trace.recalls
    ]
    columns = [*text("event"), Column("at_ms", Kind.TIME), *text("group", "host")]
    return Table([*columns, *numbers("cost"), *text("success")], rows)
