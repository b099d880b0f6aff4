"""`firearrow group`: consumer groups, their settings, members and lag."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from firearrow.cli.arguments import (
    BrokerOption,
    ClusterOption,
    GroupName,
    Pattern,
    Yes,
    confirm,
    plural,
)
from firearrow.cli.output import Column, Effect, Kind, Record, Table, numbers, text
from firearrow.cli.topic_commands import matches
from firearrow.cli.verbs import change, listing
from firearrow.client.admin_results import refuse_other
from firearrow.client.errors import InvalidRequest
from firearrow.model.errors import ConsumerNotOnline, SubscriptionGroupNotFound
from firearrow.model.group import SubscriptionGroupConfig, is_system_group
from firearrow.wire.codes import version_name

if TYPE_CHECKING:
    from firearrow.cli.target import Target
    from firearrow.client.admin_groups import GroupSettings
    from firearrow.client.admin_results import GroupLag
    from firearrow.wire.bodies import ConsumerConnection

group_app = typer.Typer(
    name="group",
    help="Consumer groups: settings, members, lag, resets.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

Retries = Annotated[
    int | None, typer.Option("--retries", min=-1, help="Before a message is a dead letter.")
]
RetryQueues = Annotated[int | None, typer.Option("--retry-queues", min=0)]
Consume = Annotated[
    bool | None, typer.Option("--consume/--no-consume", help="Whether it may consume at all.")
]
Broadcast = Annotated[bool | None, typer.Option("--broadcast/--no-broadcast")]
Ordered = Annotated[bool | None, typer.Option("--ordered/--no-ordered")]
TimeoutMinutes = Annotated[
    int | None, typer.Option("--consume-timeout", min=1, help="Minutes for one message.")
]


def _settings(
    *,
    retries: int | None,
    retry_queues: int | None,
    consume: bool | None,
    broadcast: bool | None,
    ordered: bool | None,
    minutes: int | None,
) -> GroupSettings:
    given: dict[str, Any] = {
        "retry_max_times": retries,
        "retry_queue_nums": retry_queues,
        "consume_enable": consume,
        "consume_broadcast_enable": broadcast,
        "consume_message_orderly": ordered,
        "consume_timeout_minute": minutes,
    }
    return {key: value for key, value in given.items() if value is not None}  # type: ignore[return-value]


# --- looking ------------------------------------------------------------------------------------


@listing(group_app, "ls")
def ls(
    target: Target,
    *,
    pattern: Pattern = None,
    everything: Annotated[bool, typer.Option("-a", "--all", help="RocketMQ's own too.")] = False,
    lag: Annotated[
        bool, typer.Option("--lag", help="Also what waits; one more request to each broker.")
    ] = False,
) -> Table:
    """List consumer groups with their settings; one request to each broker.

    [bold]Examples[/bold]

      firearrow group ls

      firearrow group ls --lag --watch 5

      firearrow group ls billing --output json
    """
    found = target.admin.group_configs()
    lags = target.admin.group_lags() if lag else {}
    rows: list[list[Any]] = []
    for name in sorted(found):
        if (is_system_group(name) and not everything) or not matches(name, pattern):
            continue
        each = list(found[name].values())
        row: list[Any] = [
            name,
            all(one.consume_enable for one in each),
            each[0].retry_max_times,
            each[0].retry_queue_nums,
            each[0].consume_message_orderly,
            len(each),
        ]
        if lag:
            one_lag = lags.get(name)
            row += [one_lag.total, len(one_lag.by_topic)] if one_lag else [0, 0]
        rows.append(row)
    columns = [*text("group", "consumes"), *numbers("retries", "retry_queues"), *text("ordered")]
    columns += numbers("brokers", *(["lag", "topics"] if lag else []))
    return Table(columns, rows)


LAG_COLUMNS: Final = [
    *text("topic", "broker"),
    *numbers("queue", "broker_offset", "committed", "lag", "in_flight"),
    Column("last_consumed_ms", Kind.TIME),
]


def lag_table(found: GroupLag) -> Table:
    rows = [
        [
            one.queue.topic,
            one.queue.broker_name,
            one.queue.queue_id,
            one.broker_offset,
            one.committed_offset,
            one.lag,
            one.in_flight,
            one.last_timestamp_ms,
        ]
        for one in found.queues
    ]
    return Table(LAG_COLUMNS, rows)


@listing(group_app, "lag")
def lag_command(
    target: Target,
    *,
    group: GroupName,
    topic: Annotated[str | None, typer.Option("-t", "--topic", help="Of this topic only.")] = None,
) -> Table:
    """Show how far a group is in each queue, and what waits for it.

    [bold]Examples[/bold]

      firearrow group lag billing

      firearrow group lag billing --topic orders --watch
    """
    found = target.admin.group_lag(group, topic)
    table = lag_table(found)
    table.notes.append(
        f"{plural(found.total, 'message')} wait; {found.consume_tps:,.2f} consumed a second"
    )
    return table


@listing(group_app, "show")
def show(target: Target, *, group: GroupName) -> Record:
    """Show a group: settings by broker, members, subscriptions and lag by topic.

    [bold]Examples[/bold]

      firearrow group show billing

      firearrow group show billing --output json
    """
    configs = target.admin.group_config(group)
    here = _members(target, group)
    found = target.admin.group_lag(group)
    settings = [
        [
            broker,
            one.consume_enable,
            one.consume_broadcast_enable,
            one.consume_message_orderly,
            one.retry_max_times,
            one.retry_queue_nums,
            one.consume_timeout_minute,
        ]
        for broker, one in sorted(configs.items())
    ]
    record = Record(
        {
            "group": group,
            "members": len(here.connection_set) if here else 0,
            "lag": found.total,
            "consumed_per_second": found.consume_tps,
            "message_model": here.message_model if here else None,
            "consume_type": here.consume_type if here else None,
            "divergent_topics": sorted((here and here.divergent_subscriptions) or {}),
        },
        {
            "settings": Table(
                [
                    *text("broker", "consumes", "broadcast", "ordered"),
                    *numbers("retries", "retry_queues", "timeout_minutes"),
                ],
                settings,
            ),
            "lag_by_topic": Table(
                [*text("topic"), *numbers("lag")], [list(one) for one in found.by_topic.items()]
            ),
        },
    )
    if here is not None:
        record.tables["member_list"] = _member_table(here)
        record.tables["subscriptions"] = Table(
            text("topic", "expression", "kind"),
            [
                [topic, one.sub_string, one.expression_type]
                for topic, one in sorted(here.subscription_table.items())
            ],
        )
        record.notes += _divergence_notes(here)
    return record


def _members(target: Target, group: str) -> ConsumerConnection | None:
    try:
        return target.admin.consumer_connections(group)
    except ConsumerNotOnline:
        return None


def _member_table(found: ConsumerConnection) -> Table:
    return Table(
        text("client", "address", "language", "version"),
        [
            [one.client_id, one.client_addr, one.language, version_name(one.version)]
            for one in found.connection_set
        ],
    )


def _divergence_notes(found: ConsumerConnection) -> list[str]:
    return [
        f"members disagree on topic {topic}, so messages are lost: "
        + ", ".join(f"{client} wants {wish or 'nothing'}" for client, wish in wishes.items())
        for topic, wishes in sorted((found.divergent_subscriptions or {}).items())
    ]


@listing(group_app, "members")
def members(target: Target, *, group: GroupName) -> Table:
    """List the members of a group that are connected.

    [bold]Examples[/bold]

      firearrow group members billing --watch
    """
    found = target.admin.consumer_connections(group)
    table = _member_table(found)
    table.notes += _divergence_notes(found)
    return table


@listing(group_app, "member")
def member(
    target: Target,
    *,
    group: GroupName,
    client: Annotated[str, typer.Argument(help="Client id, from `group members`.")],
    stacks: Annotated[bool, typer.Option("--stacks", help="What its threads are doing.")] = False,
) -> Record:
    """Ask one member what it is doing: queues, cached messages, rates.

    [bold]Examples[/bold]

      firearrow group member billing 10.0.0.7@4242

      firearrow group member billing 10.0.0.7@4242 --stacks
    """
    said = target.admin.running_info(group, client, stacks=stacks)
    queues = [
        [
            queue.topic,
            queue.broker_name,
            queue.queue_id,
            info.commit_offset,
            info.cached_msg_count,
            info.locked,
            info.last_pull_timestamp,
            info.last_consume_timestamp,
        ]
        for queue, info in sorted(said.mq_table.items(), key=lambda one: one[0])
    ]
    rates = [
        [topic, one.pull_tps, one.consume_ok_tps, one.consume_failed_tps, one.consume_rt]
        for topic, one in sorted(said.status_table.items())
    ]
    values: dict[str, Any] = {"group": group, "client": client, **said.properties}
    if said.jstack:
        values["stacks"] = said.jstack
    times = [Column("last_pull_ms", Kind.TIME), Column("last_consume_ms", Kind.TIME)]
    return Record(
        values,
        {
            "queues": Table(
                [
                    *text("topic", "broker"),
                    *numbers("queue", "committed", "cached"),
                    *text("locked"),
                    *times,
                ],
                queues,
            ),
            "rates": Table(
                [*text("topic"), *numbers("pulled_s", "consumed_s", "failed_s", "handler_time")],
                rates,
            ),
        },
    )


@listing(group_app, "divergence")
def divergence(target: Target, *, group: GroupName) -> Table:
    """List what the members of a group disagree on; such a group loses messages.

    [bold]Examples[/bold]

      firearrow group divergence billing
    """
    found = target.admin.consumer_connections(group)
    rows = [
        [topic, client, wish or None]
        for topic, wishes in sorted((found.divergent_subscriptions or {}).items())
        for client, wish in wishes.items()
    ]
    table = Table(text("topic", "client", "wants"), rows)
    if not rows:
        count = plural(len(found.connection_set), "member")
        table.notes.append(f"{count} of group {group} agree")
    return table


@listing(group_app, "producers")
def producers(target: Target, *, pattern: Pattern = None) -> Table:
    """List the producers that are connected, by producer group.

    [bold]Examples[/bold]

      firearrow group producers

      firearrow group producers orders-service --output json
    """
    rows = [
        [
            group,
            one.client_id,
            one.remote_ip.lstrip("/"),
            one.language,
            version_name(one.version),
            one.last_update_timestamp,
        ]
        for group, members in target.admin.producers().items()
        if matches(group, pattern)
        for one in members
    ]
    columns = text("group", "client", "address", "language", "version")
    return Table([*columns, Column("last_heard_ms", Kind.TIME)], rows)


# --- changing -----------------------------------------------------------------------------------


@change(group_app, "create")
def create(
    target: Target,
    *,
    group: GroupName,
    retries: Retries = None,
    retry_queues: RetryQueues = None,
    consume: Consume = None,
    broadcast: Broadcast = None,
    ordered: Ordered = None,
    minutes: TimeoutMinutes = None,
    cluster: ClusterOption = None,
    broker: BrokerOption = None,
    dry_run: bool,
) -> Effect:
    """Create a consumer group; to do so again is no mistake, with other settings it is.

    [bold]Examples[/bold]

      firearrow group create billing

      firearrow group create billing --retries 5 --dry-run
    """
    settings = _settings(
        retries=retries,
        retry_queues=retry_queues,
        consume=consume,
        broadcast=broadcast,
        ordered=ordered,
        minutes=minutes,
    )
    known = target.admin.group_configs().get(group, {})
    brokers = len(target.admin.clusters().broker_addr_table) if broker is None else 1
    for name, config in known.items():
        if dry_run and broker in {None, name}:
            wanted = SubscriptionGroupConfig(group_name=config.group_name, **settings)
            refuse_other(f"group {group}", name, config, wanted)
    if not dry_run:
        target.admin.create_group(group, cluster=cluster, broker=broker, **settings)
    words = f"group {group} on {plural(brokers, 'broker')}"
    return Effect(
        would=f"create {words}; {len(known)} have it already",
        did=f"created {words}",
        numbers={"group": group, "brokers": brokers, "known_on": len(known), **settings},
    )


@change(group_app, "update")
def update(
    target: Target,
    *,
    group: GroupName,
    retries: Retries = None,
    retry_queues: RetryQueues = None,
    consume: Consume = None,
    broadcast: Broadcast = None,
    ordered: Ordered = None,
    minutes: TimeoutMinutes = None,
    cluster: ClusterOption = None,
    broker: BrokerOption = None,
    dry_run: bool,
) -> Effect:
    """Change settings of a group wherever it is; what is not given stays as it is.

    [bold]Examples[/bold]

      firearrow group update billing --retries 3

      firearrow group update billing --no-consume --dry-run
    """
    settings = _settings(
        retries=retries,
        retry_queues=retry_queues,
        consume=consume,
        broadcast=broadcast,
        ordered=ordered,
        minutes=minutes,
    )
    if not settings:
        raise InvalidRequest("no setting is given that should be changed")
    before = target.admin.group_config(group)
    chosen = [name for name in sorted(before) if broker in {None, name}]
    rows = [
        [name, key, getattr(before[name], key), value]
        for name in chosen
        for key, value in settings.items()
        if getattr(before[name], key) != value
    ]
    if not dry_run:
        target.admin.update_group(group, cluster=cluster, broker=broker, **settings)
    words = f"{plural(len(rows), 'setting')} of group {group} on {plural(len(chosen), 'broker')}"
    return Effect(
        would=f"change {words}",
        did=f"changed {words}",
        numbers={"group": group, "brokers": len(chosen), "changes": len(rows)},
        table=Table(text("broker", "setting", "before", "after"), rows),
    )


@change(group_app, "rm")
def rm(
    target: Target,
    *,
    group: GroupName,
    keep_offsets: Annotated[bool, typer.Option("--keep-offsets")] = False,
    keep_topics: Annotated[
        bool, typer.Option("--keep-topics", help="Its retry and dead-letter topics.")
    ] = False,
    cluster: Annotated[
        str | None, typer.Option("--cluster", help="From this cluster only.")
    ] = None,
    yes: Yes = False,
    dry_run: bool,
) -> Effect:
    """Remove a group, what it has committed, and its retry and dead-letter topics.

    [bold]Examples[/bold]

      firearrow group rm billing --dry-run

      firearrow group rm billing --yes --keep-offsets
    """
    try:
        found = target.admin.group_lag(group)
    except SubscriptionGroupNotFound:
        raise SubscriptionGroupNotFound(f"group {group} does not exist on any broker") from None
    here = _members(target, group)
    connected = len(here.connection_set) if here else 0
    words = (
        f"group {group}, {plural(connected, 'member')} connected, "
        f"{plural(found.total, 'message')} not consumed in {plural(len(found.by_topic), 'topic')}"
    )
    if not dry_run:
        confirm(f"Remove {words}?", yes=yes)
        target.admin.delete_group(
            group,
            cluster=cluster,
            remove_offsets=not keep_offsets,
            remove_topics=not keep_topics,
        )
    effect = Effect(
        would=f"remove {words}",
        did=f"removed {words}",
        numbers={"group": group, "members": connected, "lag": found.total}
        | {"topics": len(found.by_topic)},
    )
    if connected:
        effect.notes.append("stop its members first: a running one may bring the group back")
    return effect
