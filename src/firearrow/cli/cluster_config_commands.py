"""`firearrow cluster config|set|drain|undrain|clean`: settings of running servers."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from firearrow.base.errors import ConfigError
from firearrow.cli.arguments import pairs, plural
from firearrow.cli.cluster_app import cluster_app
from firearrow.cli.cluster_view_commands import BrokerName  # noqa: TC001 - typer reads it
from firearrow.cli.output import Effect, Table, text
from firearrow.cli.verbs import change, listing
from firearrow.client.errors import BrokerNotFound
from firearrow.wire.codes import RequestCode

if TYPE_CHECKING:
    from firearrow.cli.target import Target

Settings = Annotated[list[str], typer.Argument(metavar="KEY=VALUE...", help="Settings.")]


@listing(cluster_app, "config")
def config(
    target: Target,
    *,
    broker: Annotated[
        str, typer.Argument(metavar="BROKER", help="Name or address; 'nameservers' for those.")
    ],
    pattern: Annotated[str | None, typer.Argument(help="Only keys with this in them.")] = None,
) -> Table:
    """Show the settings of a broker, or of the name servers.

    [bold]Examples[/bold]

      firearrow cluster config broker-a

      firearrow cluster config broker-a flush

      firearrow cluster config nameservers --output json
    """
    if broker == "nameservers":
        found = target.admin.nameserver_config()
    else:
        found = {broker: target.admin.broker_config(broker)}
    rows: list[list[Any]] = [
        [server, key, value]
        for server, settings in sorted(found.items())
        for key, value in sorted(settings.items())
        if pattern is None or pattern.lower() in key.lower()
    ]
    return Table(text("server", "key", "value"), rows)


@change(cluster_app, "set")
def set_command(
    target: Target,
    *,
    broker: Annotated[
        str, typer.Argument(metavar="BROKER", help="Name or address; 'nameservers' for those.")
    ],
    settings: Settings,
    dry_run: bool,
) -> Effect:
    """Change settings of a running broker, or of the name servers. Only some may be changed so.

    [bold]Examples[/bold]

      firearrow cluster set broker-a fileReservedTime=48 --dry-run

      firearrow cluster set nameservers orderMessageEnable=true
    """
    wanted = pairs("KEY=VALUE", settings)
    if broker == "nameservers":
        before = target.admin.nameserver_config()
    else:
        before = {broker: target.admin.broker_config(broker)}
    unknown = sorted(key for key in wanted if all(key not in one for one in before.values()))
    if unknown:
        raise ConfigError(
            f"{broker} has no setting {unknown[0]}; see: firearrow cluster config {broker}"
        )
    rows = [
        [server, key, known.get(key), value]
        for server, known in sorted(before.items())
        for key, value in wanted.items()
        if known.get(key) != value
    ]
    if not dry_run:
        if broker == "nameservers":
            target.admin.update_nameserver_config(wanted)
        else:
            target.admin.update_broker_config(wanted, broker=broker)
    words = f"{plural(len(rows), 'setting')} of {broker}"
    return Effect(
        would=f"change {words}",
        did=f"changed {words}",
        numbers={"server": broker, "changes": len(rows)},
        table=Table(text("server", "key", "before", "after"), rows),
    )


@change(cluster_app, "drain")
def drain(target: Target, *, broker: BrokerName, dry_run: bool) -> Effect:
    """Have producers leave a broker, say before it stops. Consumers go on.

    [bold]Examples[/bold]

      firearrow cluster drain broker-a --dry-run
    """
    count = _written_topics(target, broker)
    if not dry_run:
        changed = target.admin.wipe_write_permission(broker)
        count = max(changed.values(), default=0)
    words = f"sending to broker {broker}: {plural(count, 'topic')}"
    return Effect(
        would=f"stop {words}",
        did=f"stopped {words}",
        numbers={"broker": broker, "topics": count},
    )


@change(cluster_app, "undrain")
def undrain(target: Target, *, broker: BrokerName, dry_run: bool) -> Effect:
    """Have producers use a broker again.

    [bold]Examples[/bold]

      firearrow cluster undrain broker-a
    """
    count = _written_topics(target, broker)
    if not dry_run:
        changed = target.admin.add_write_permission(broker)
        count = max(changed.values(), default=0)
    words = f"sending to broker {broker}: {plural(count, 'topic')}"
    return Effect(
        would=f"allow {words}",
        did=f"allowed {words}",
        numbers={"broker": broker, "topics": count},
    )


def _written_topics(target: Target, broker: str) -> int:
    if broker not in target.admin.clusters().broker_addr_table:
        raise BrokerNotFound(f"there is no broker {broker}")
    return sum(broker in found for found in target.admin.topic_configs().values())


class Clean(StrEnum):
    LOG = "log"
    QUEUES = "queues"
    TOPICS = "topics"


_CLEAN_CODES = {
    Clean.LOG: RequestCode.DELETE_EXPIRED_COMMITLOG,
    Clean.QUEUES: RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
    Clean.TOPICS: RequestCode.CLEAN_UNUSED_TOPIC,
}


@change(cluster_app, "clean")
def clean(
    target: Target,
    *,
    what: Annotated[
        Clean, typer.Argument(help="log: expired files; queues; topics: queues without topic.")
    ],
    broker: Annotated[str | None, typer.Option("--broker", help="Else all masters.")] = None,
    dry_run: bool,
) -> Effect:
    """Have brokers remove what has expired now, rather than at their hour.

    [bold]Examples[/bold]

      firearrow cluster clean log --broker broker-a

      firearrow cluster clean topics --dry-run
    """
    masters = [
        one
        for one in target.admin.brokers()
        if one.is_master and broker in {None, one.name, one.address}
    ]
    if not masters:
        raise BrokerNotFound(f"there is no master of broker {broker}")
    if not dry_run:
        for one in masters:
            target.admin.request(one.address, _CLEAN_CODES[what])
    words = f"{plural(len(masters), 'broker')} to clean {what.value}"
    return Effect(would=f"tell {words}", did=f"told {words}", numbers={"brokers": len(masters)})
