"""`firearrow cluster ls|health|info|nameservers`: who is there, and how they are doing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from firearrow.base.errors import FirearrowError
from firearrow.cli import completing
from firearrow.cli.cluster_app import cluster_app
from firearrow.cli.output import Column, Kind, Record, Table, numbers, text
from firearrow.cli.verbs import listing
from firearrow.client.errors import BrokerNotFound
from firearrow.console.data.catalog import divergent_groups, group_rows
from firearrow.console.data.health import Severity, findings
from firearrow.console.texts import Texts
from firearrow.wire import java_json
from firearrow.wire.bodies import ClusterInfo
from firearrow.wire.codes import RequestCode

if TYPE_CHECKING:
    from firearrow.cli.target import Target
    from firearrow.client.admin_results import BrokerInfo
    from firearrow.console.data.catalog import GroupRow

BrokerName = Annotated[
    str,
    typer.Argument(metavar="BROKER", help="Name, or address.", autocompletion=completing.brokers),
]


@listing(cluster_app, "ls")
def ls(target: Target) -> Table:
    """List brokers with their rates and how full they are.

    [bold]Examples[/bold]

      firearrow cluster ls

      firearrow cluster ls --watch 5

      firearrow cluster ls --output json
    """
    brokers = target.admin.brokers()
    rows = [
        [
            one.cluster,
            one.name,
            one.broker_id,
            "master" if one.is_master else "slave",
            one.address,
            one.version,
            _rate(one, "putTps"),
            _rate(one, "getTransferredTps"),
            _number(one, "commitLogDiskRatio"),
            _age_hours(one, target.now_ms()),
            "no answer" if one.error else "up",
        ]
        for one in brokers
    ]
    columns = [*text("cluster", "broker"), *numbers("id"), *text("role", "address", "version")]
    columns += [*numbers("in_per_second", "out_per_second"), Column("disk", Kind.RATIO)]
    table = Table([*columns, *numbers("hours_kept"), *text("state")], rows)
    table.notes += [f"{one.name} ({one.address}): {one.error}" for one in brokers if one.error]
    return table


def _number(broker: BrokerInfo, key: str) -> float | None:
    try:
        return float(broker.runtime[key])
    except (KeyError, ValueError):
        return None


def _rate(broker: BrokerInfo, key: str) -> float | None:
    """The first of three rates: over the last ten seconds."""
    first = broker.runtime.get(key, "").split(" ")[0]
    try:
        return float(first)
    except ValueError:
        return None


def _age_hours(broker: BrokerInfo, now_ms: int) -> float | None:
    earliest = _number(broker, "earliestMessageTimeStamp")
    return None if earliest is None or earliest <= 0 else max(0.0, (now_ms - earliest) / 3_600_000)


@listing(cluster_app, "health")
def health(target: Target) -> Record:
    """Say whether the cluster is well, why not, and what to do about it.

    Name servers agree, brokers answer, disks have room, members of a group want the same, nobody is
    far behind: what the console's first page says, too. The exit code is 1 if something is wrong.

    [bold]Examples[/bold]

      firearrow cluster health

      firearrow cluster health --watch
    """
    admin = target.admin
    brokers, views = admin.brokers(), nameserver_views(target)
    names = {name for name, _, _ in views}
    agreeing = {seen for _, seen, _ in views if seen is not None}
    worst = Severity.CRITICAL.word
    reasons = [[worst, f"name server {name}: {error}", ""] for name, _, error in views if error]
    if len(agreeing) > 1:
        reasons.append([worst, "name servers know different brokers", "firearrow doctor"])
    lone = {one.name for one in brokers} - {one.name for one in brokers if one.is_master}
    reasons += [[worst, f"broker {name} has no master", ""] for name in sorted(lone)]
    english = Texts("en")
    reasons += [
        [one.severity.word, english(one.key, **one.values), one.fix]
        for one in findings(brokers, _group_rows(target, brokers))
    ]
    wrong = any(word != Severity.NOTICE.word for word, _, _ in reasons)
    return Record(
        {
            "state": "ill" if wrong else "well",
            "name_servers": len(names),
            "clusters": sorted(admin.clusters().cluster_addr_table),
            "brokers": len({one.name for one in brokers}),
            "replicas": len(brokers),
            "topics": len(admin.topics()),
            "groups": _groups(target),
            "messages_in_per_second": sum(_rate(one, "putTps") or 0 for one in brokers),
        },
        {"reasons": Table(text("severity", "problem", "remedy"), reasons)},
        wrong=wrong,
    )


def _group_rows(target: Target, brokers: list[BrokerInfo]) -> list[GroupRow]:
    try:
        table, lags = target.admin.group_configs(), target.admin.group_lags()
    except FirearrowError:
        return []  # a broker that should say does not answer, which is among the problems
    return group_rows(table, lags, divergent_groups(brokers))


def _groups(target: Target) -> int | None:
    try:
        return len(target.admin.groups())
    except FirearrowError:
        return None  # a broker that should say does not answer, which is among the problems


def nameserver_views(target: Target) -> list[tuple[str, frozenset[str] | None, str | None]]:
    """Each name server, the addresses of the brokers that it knows, and why it does not say."""
    found: list[tuple[str, frozenset[str] | None, str | None]] = []
    for address in target.nameservers.split(";"):
        try:
            said = target.admin.request(address, RequestCode.GET_BROKER_CLUSTER_INFO)
        except FirearrowError as error:
            found.append((address, None, str(error)))
            continue
        info = java_json.decode(said.body, ClusterInfo)
        known = frozenset(
            at for data in info.broker_addr_table.values() for at in data.broker_addrs.values()
        )
        found.append((address, known, None))
    return found


@listing(cluster_app, "nameservers")
def nameservers(target: Target) -> Table:
    """List the name servers, and how many brokers each knows.

    [bold]Examples[/bold]

      firearrow cluster nameservers
    """
    rows = [
        [address, None if known is None else len(known), "no answer" if error else "up"]
        for address, known, error in nameserver_views(target)
    ]
    return Table([*text("address"), *numbers("brokers"), *text("state")], rows)


@listing(cluster_app, "info")
def info(
    target: Target,
    *,
    broker: BrokerName,
    pattern: Annotated[
        str | None, typer.Argument(help="Only figures with this in their names.")
    ] = None,
) -> Table:
    """Show every figure that a broker tells about itself.

    [bold]Examples[/bold]

      firearrow cluster info broker-a

      firearrow cluster info broker-a Tps --watch
    """
    for one in target.admin.brokers():
        if broker in {one.name, one.address}:
            if one.error:
                raise BrokerNotFound(f"broker {broker} does not answer: {one.error}")
            rows: list[list[Any]] = [
                [key, value]
                for key, value in sorted(one.runtime.items())
                if pattern is None or pattern.lower() in key.lower()
            ]
            return Table(text("figure", "value"), rows)
    raise BrokerNotFound(f"there is no broker {broker}")
