"""`firearrow topic`: list, look, create, change, remove."""

from __future__ import annotations

import fnmatch
import functools
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

from firearrow.base.errors import ConfigError
from firearrow.cli.arguments import (
    BrokerOption,
    ClusterOption,
    Pattern,
    TopicName,
    Yes,
    confirm,
    pairs,
    plural,
)
from firearrow.cli.output import Column, Effect, Kind, Record, Table, numbers, text
from firearrow.cli.verbs import change, listing
from firearrow.client.admin_results import refuse_other
from firearrow.client.errors import BrokerNotFound, InvalidRequest, NoRoute
from firearrow.model.topic import (
    is_dlq_topic,
    is_retry_topic,
    is_system_topic,
    perm_text,
    reply_topic,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from firearrow.cli.target import Target
    from firearrow.client.admin_results import TopicStats
    from firearrow.model.topic import TopicConfig
    from firearrow.wire.bodies import ClusterInfo

topic_app = typer.Typer(
    name="topic",
    help="Topics: list, look, create, change, remove.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

PERMISSIONS: Final = {"rw": 6, "wr": 6, "r": 4, "w": 2, "none": 0}
TYPE: Final = "message.type"
Queues = Annotated[int | None, typer.Option("--queues", min=1, help="To read and to write.")]
Perm = Annotated[str | None, typer.Option("--perm", help="rw, r or w; or RocketMQ's 6, 4, 2.")]
Attributes = Annotated[
    list[str] | None,
    typer.Option("-a", "--attribute", help="KEY=VALUE; repeatable. KEY= removes it."),
]
MessageType = Annotated[
    str | None,
    typer.Option("--type", help="NORMAL, FIFO, DELAY, TRANSACTION, MIXED or PRIORITY."),
]


def permission(given: str) -> int:
    """A permission as a number, from a number or letters."""
    if given.isdecimal() and int(given) in {0, 2, 4, 6}:
        return int(given)
    if given.lower() in PERMISSIONS:
        return PERMISSIONS[given.lower()]
    raise ConfigError(f"permission {given!r}: rw (6), r (4), w (2) or none (0) expected")


def kind_of(name: str, own: Iterable[str] = ()) -> str:
    """What a topic is for, by its name."""
    if is_retry_topic(name):
        return "retry"
    if is_dlq_topic(name):
        return "dead-letter"
    return "system" if is_system_topic(name) or name in own else "normal"


def own_topics(info: ClusterInfo) -> set[str]:
    """Topics that brokers have for themselves: named after clusters and brokers."""
    own = {*info.cluster_addr_table, *info.broker_addr_table}
    return own | {reply_topic(cluster) for cluster in info.cluster_addr_table}


def matches(name: str, pattern: str | None) -> bool:
    return pattern is None or fnmatch.fnmatchcase(name, f"*{pattern}*")


# --- looking ------------------------------------------------------------------------------------


@listing(topic_app, "ls")
def ls(
    target: Target,
    *,
    pattern: Pattern = None,
    everything: Annotated[
        bool, typer.Option("-a", "--all", help="Retry, dead-letter and system topics too.")
    ] = False,
) -> Table:
    """List topics with their settings; one request to each broker.

    [bold]Examples[/bold]

      firearrow topic ls

      firearrow topic ls order --output csv

      firearrow topic ls --all --watch 5
    """
    found = target.admin.topic_configs()
    own = own_topics(target.admin.clusters())
    rows: list[list[Any]] = []
    for name in sorted(found):
        kind = kind_of(name, own)
        if (kind == "normal" or everything) and matches(name, pattern):
            rows.append([name, kind, *_summary(found[name])])
    columns = [*text("topic", "kind", "type"), *numbers("read_queues", "write_queues")]
    columns += [*text("perm", "ordered"), *numbers("brokers")]
    return Table(columns, rows)


_perm_text = functools.cache(perm_text)  # there are few, and many topics


def _summary(configs: dict[str, TopicConfig]) -> list[Any]:
    each = list(configs.values())
    perms = {_perm_text(one.perm) for one in each}
    return [
        next((one.attributes[TYPE] for one in each if TYPE in one.attributes), None),
        sum(one.read_queue_nums for one in each),
        sum(one.write_queue_nums for one in each),
        "/".join(sorted(perms)),
        any(one.order for one in each),
        len(each),
    ]


QUEUE_COLUMNS: Final = [
    *text("broker"),
    *numbers("queue", "min_offset", "max_offset", "messages"),
    Column("last_stored_ms", Kind.TIME),
]


def queue_rows(stats: TopicStats) -> list[list[Any]]:
    return [
        [
            one.queue.broker_name,
            one.queue.queue_id,
            one.min_offset,
            one.max_offset,
            one.messages,
            one.last_stored_ms,
        ]
        for one in stats.queues
    ]


@listing(topic_app, "show")
def show(target: Target, *, topic: TopicName) -> Record:
    """Show a topic: settings by broker, queues, and who consumes it.

    [bold]Examples[/bold]

      firearrow topic show orders

      firearrow topic show orders --output json
    """
    admin = target.admin
    configs, stats = admin.topic_config(topic), admin.topic_stats(topic)
    settings = [
        [
            broker,
            one.read_queue_nums,
            one.write_queue_nums,
            perm_text(one.perm),
            one.order,
            one.attributes,
        ]
        for broker, one in sorted(configs.items())
    ]
    columns = [*text("broker"), *numbers("read_queues", "write_queues")]
    return Record(
        {
            "topic": topic,
            "kind": kind_of(topic, own_topics(admin.clusters())),
            "messages": stats.messages,
            "messages_per_second": stats.put_tps,
            "groups": admin.topic_groups(topic),
        },
        {
            "settings": Table([*columns, *text("perm", "ordered", "attributes")], settings),
            "queues": Table(QUEUE_COLUMNS, queue_rows(stats)),
        },
    )


@listing(topic_app, "status")
def status(target: Target, *, topic: TopicName) -> Table:
    """Show the queues of a topic: where each begins and ends.

    [bold]Examples[/bold]

      firearrow topic status orders

      firearrow topic status orders --watch
    """
    return Table(QUEUE_COLUMNS, queue_rows(target.admin.topic_stats(topic)))


@listing(topic_app, "route")
def route(target: Target, *, topic: TopicName) -> Table:
    """Show where a topic lives, as name servers tell clients.

    [bold]Examples[/bold]

      firearrow topic route orders
    """
    found = target.admin.topic_route(topic)
    addresses = {one.broker_name: one for one in found.broker_datas}
    rows = []
    for data in sorted(found.queue_datas, key=lambda one: one.broker_name):
        broker = addresses.get(data.broker_name)
        rows.append(
            [
                broker.cluster if broker else None,
                data.broker_name,
                [f"{number}={at}" for number, at in sorted(broker.broker_addrs.items())]
                if broker
                else None,
                data.read_queue_nums,
                data.write_queue_nums,
                perm_text(data.perm),
            ]
        )
    columns = [*text("cluster", "broker", "addresses"), *numbers("read_queues", "write_queues")]
    return Table([*columns, *text("perm")], rows)


@listing(topic_app, "groups")
def groups(target: Target, *, topic: TopicName) -> Table:
    """List the groups that consume a topic, or once did.

    [bold]Examples[/bold]

      firearrow topic groups orders
    """
    lags = target.admin.group_lags()
    names = target.admin.topic_groups(topic)
    rows = [[name, lags[name].by_topic.get(topic, 0) if name in lags else None] for name in names]
    return Table([*text("group"), *numbers("lag")], rows)


# --- changing -----------------------------------------------------------------------------------


@change(topic_app, "create")
def create(
    target: Target,
    *,
    topic: TopicName,
    queues: Annotated[int, typer.Option("--queues", min=1, help="On each broker.")] = 8,
    perm: Annotated[str, typer.Option("--perm", help="rw, r or w; or 6, 4, 2.")] = "rw",
    message_type: MessageType = None,
    attribute: Attributes = None,
    order: Annotated[
        bool, typer.Option("--order", help="Stay ordered while a broker is away.")
    ] = False,
    cluster: ClusterOption = None,
    broker: BrokerOption = None,
    dry_run: bool,
) -> Effect:
    """Create a topic; to do so again is no mistake, with other settings it is.

    [bold]Examples[/bold]

      firearrow topic create orders

      firearrow topic create payments --queues 16 --type FIFO --dry-run

      firearrow topic create audit --perm r --cluster DefaultCluster
    """
    number = permission(perm)
    attributes = _attributes(attribute, message_type)
    known = _configs_or_none(target, topic)
    where = _brokers(target, cluster, broker)
    for name in where:
        if dry_run and name in known:
            given = {key: value for key, value in (attributes or {}).items() if value is not None}
            wanted = msgspec.structs.replace(
                known[name],
                read_queue_nums=queues,
                write_queue_nums=queues,
                perm=number,
                order=order,
                attributes=known[name].attributes | given,
            )
            refuse_other(f"topic {topic}", name, known[name], wanted)
    if not dry_run:
        target.admin.create_topic(
            topic,
            queues=queues,
            perm=number,
            order=order,
            attributes=attributes,
            cluster=cluster,
            broker=broker,
        )
    new = [name for name in where if name not in known]
    words = f"{plural(queues, 'queue')} on each of {plural(len(where), 'broker')}"
    return Effect(
        would=f"create topic {topic} with {words}; {len(where) - len(new)} have it already",
        did=f"created topic {topic} with {words}",
        numbers={"topic": topic, "brokers": len(where), "new_on": len(new)}
        | {"queues": queues * len(where)},
    )


def _attributes(given: list[str] | None, kind: str | None) -> dict[str, str | None]:
    found: dict[str, str | None] = {
        key: value or None for key, value in pairs("--attribute", given).items()
    }
    if kind is not None:
        found[TYPE] = kind.upper()
    return found


def _configs_or_none(target: Target, topic: str) -> dict[str, TopicConfig]:
    try:
        return target.admin.topic_config(topic)
    except NoRoute:
        return {}


def _brokers(target: Target, cluster: str | None, broker: str | None) -> list[str]:
    """Names of the brokers that a write goes to."""
    info = target.admin.clusters()
    table = info.broker_addr_table
    if not table:
        raise BrokerNotFound("no broker is registered")
    if broker is not None:
        for name, data in table.items():
            if broker == name or broker in data.broker_addrs.values():
                return [name]
        raise BrokerNotFound(f"there is no broker {broker}, only {', '.join(sorted(table))}")
    clusters = info.cluster_addr_table
    if cluster is None and len(clusters) > 1:
        raise InvalidRequest(f"name one of the clusters: --cluster {' or '.join(sorted(clusters))}")
    cluster = cluster or next(iter(clusters), "")
    if cluster not in clusters:
        raise InvalidRequest(f"there is no cluster {cluster}, only {', '.join(sorted(clusters))}")
    return sorted(clusters[cluster])


@change(topic_app, "update")
def update(
    target: Target,
    *,
    topic: TopicName,
    queues: Queues = None,
    read_queues: Annotated[int | None, typer.Option("--read-queues", min=1)] = None,
    write_queues: Annotated[int | None, typer.Option("--write-queues", min=1)] = None,
    perm: Perm = None,
    order: Annotated[bool | None, typer.Option("--order/--no-order")] = None,
    message_type: MessageType = None,
    attribute: Attributes = None,
    cluster: ClusterOption = None,
    broker: BrokerOption = None,
    dry_run: bool,
) -> Effect:
    """Change settings of a topic wherever it is; what is not given stays as it is.

    To have fewer queues, lower --write-queues first, and --read-queues once the others are empty.

    [bold]Examples[/bold]

      firearrow topic update orders --queues 16

      firearrow topic update orders --write-queues 4 --dry-run

      firearrow topic update orders --attribute reserve.time=72
    """
    number = None if perm is None else permission(perm)
    attributes = _attributes(attribute, message_type)
    before = target.admin.topic_config(topic)
    wanted = {
        "read_queue_nums": read_queues if read_queues is not None else queues,
        "write_queue_nums": write_queues if write_queues is not None else queues,
        "perm": number,
        "order": order,
    }
    wanted = {key: value for key, value in wanted.items() if value is not None}
    if not wanted and not attributes:
        raise InvalidRequest("no setting is given that should be changed")
    chosen = _chosen(target, before, cluster, broker)
    rows = [
        [name, key, getattr(before[name], key), value]
        for name in chosen
        for key, value in wanted.items()
        if getattr(before[name], key) != value
    ]
    rows += [
        [name, key, before[name].attributes.get(key), value]
        for name in chosen
        for key, value in attributes.items()
        if before[name].attributes.get(key) != value
    ]
    if not dry_run:
        target.admin.update_topic(
            topic,
            queues=queues,
            read_queues=read_queues,
            write_queues=write_queues,
            perm=number,
            order=order,
            attributes=attributes or None,
            cluster=cluster,
            broker=broker,
        )
    return _changes(topic, len(chosen), rows)


def _changes(topic: str, brokers: int, rows: list[list[Any]]) -> Effect:
    words = f"{plural(len(rows), 'setting')} of topic {topic} on {plural(brokers, 'broker')}"
    return Effect(
        would=f"change {words}",
        did=f"changed {words}",
        numbers={"topic": topic, "brokers": brokers, "changes": len(rows)},
        table=Table(text("broker", "setting", "before", "after"), rows),
    )


def _chosen(
    target: Target, known: dict[str, TopicConfig], cluster: str | None, broker: str | None
) -> list[str]:
    if cluster is None and broker is None:
        return sorted(known)
    return [name for name in _brokers(target, cluster, broker) if name in known]


@change(topic_app, "perm")
def perm_command(
    target: Target,
    *,
    topic: TopicName,
    permission_given: Annotated[
        str, typer.Argument(metavar="PERM", help="rw, r, w or none; or 6, 4, 2, 0.")
    ],
    broker: BrokerOption = None,
    dry_run: bool,
) -> Effect:
    """Change whether a topic can be read and written.

    [bold]Examples[/bold]

      firearrow topic perm orders r

      firearrow topic perm orders rw --broker broker-a --dry-run
    """
    number = permission(permission_given)
    if number == 0:
        raise ConfigError("a topic nobody may use is one to remove: firearrow topic rm TOPIC")
    before = target.admin.topic_config(topic)
    chosen = _chosen(target, before, None, broker)
    if not dry_run:
        target.admin.update_topic(topic, perm=number, broker=broker)
    rows = [[name, perm_text(before[name].perm), perm_text(number)] for name in chosen]
    words = f"the permission of topic {topic} on {plural(len(chosen), 'broker')}"
    return Effect(
        would=f"set {words} to {perm_text(number)}",
        did=f"set {words} to {perm_text(number)}",
        numbers={"topic": topic, "brokers": len(chosen), "perm": number},
        table=Table(text("broker", "before", "after"), rows),
    )


@change(topic_app, "rm")
def rm(
    target: Target,
    *,
    topic: TopicName,
    cluster: Annotated[
        str | None, typer.Option("--cluster", help="From this cluster only.")
    ] = None,
    yes: Yes = False,
    dry_run: bool,
) -> Effect:
    """Remove a topic with its messages and offsets.

    [bold]Examples[/bold]

      firearrow topic rm orders --dry-run

      firearrow topic rm orders --yes
    """
    stats, members = target.admin.topic_stats(topic), target.admin.topic_groups(topic)
    words = (
        f"topic {topic} with {plural(stats.messages, 'message')} in "
        f"{plural(len(stats.queues), 'queue')}, which {plural(len(members), 'group')} consumed"
    )
    if not dry_run:
        confirm(f"Remove {words}?", yes=yes)
        target.admin.delete_topic(topic, cluster=cluster)
    return Effect(
        would=f"remove {words}",
        did=f"removed {words}",
        numbers={"topic": topic, "messages": stats.messages, "queues": len(stats.queues)}
        | {"groups": len(members)},
    )


@change(topic_app, "order")
def order_command(
    target: Target,
    *,
    topic: TopicName,
    queues: Annotated[
        list[str] | None, typer.Argument(metavar="[BROKER=QUEUES...]", help="None: forget it.")
    ] = None,
    dry_run: bool,
) -> Effect:
    """Write down how many queues each broker has of an ordered topic; without any, forget it.

    [bold]Examples[/bold]

      firearrow topic order orders broker-a=8 broker-b=8

      firearrow topic order orders --dry-run
    """
    wanted: dict[str, int] = {}
    for broker, count in pairs("BROKER=QUEUES", queues).items():
        if not count.isdecimal() or int(count) < 1:
            raise ConfigError(f"{broker}={count}: a number of queues, at least 1, expected")
        wanted[broker] = int(count)
    before = target.admin.order_conf(topic)
    if not dry_run:
        if wanted:
            target.admin.set_order_conf(topic, wanted)
        else:
            target.admin.delete_order_conf(topic)
    after = " ".join(f"{broker}={count}" for broker, count in wanted.items()) or "nothing"
    return Effect(
        would=f"set the order of topic {topic} to {after}",
        did=f"set the order of topic {topic} to {after}",
        numbers={"topic": topic, "before": before, "after": wanted},
    )
