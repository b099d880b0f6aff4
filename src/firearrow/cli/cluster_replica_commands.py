"""`firearrow cluster replicas|epochs|transfer|forget`: brokers that a controller leads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from firearrow.base.errors import ConfigError
from firearrow.cli import completing, controllers
from firearrow.cli.arguments import plural
from firearrow.cli.cluster_app import cluster_app
from firearrow.cli.cluster_view_commands import BrokerName  # noqa: TC001 - typer reads it
from firearrow.cli.output import Effect, Table, numbers, text
from firearrow.cli.verbs import change, listing
from firearrow.client.errors import BrokerNotFound
from firearrow.wire import java_json
from firearrow.wire.bodies.controller import EpochEntryCache
from firearrow.wire.codes import RequestCode
from firearrow.wire.headers import controller as headers

if TYPE_CHECKING:
    from firearrow.cli.target import Target
    from firearrow.wire.bodies.controller import ReplicaIdentity, ReplicasInfo

ENDLESS: Final = (1 << 63) - 1

Controllers = Annotated[
    str | None,
    typer.Option("--controller", help="host:port, several separated by ';'. Else the brokers'."),
]
OneReplica = Annotated[str, typer.Option("--replica", help="Its id, or its address.")]


@listing(cluster_app, "replicas")
def replicas(
    target: Target,
    *,
    broker: Annotated[
        str | None,
        typer.Argument(
            metavar="[BROKER]", help="Name; else all.", autocompletion=completing.brokers
        ),
    ] = None,
    controller: Controllers = None,
) -> Table:
    """Show who is master, who is in sync and who is alive, as the controller knows it.

    [bold]Examples[/bold]

      firearrow cluster replicas

      firearrow cluster replicas broker-a --watch

      firearrow cluster replicas broker-a --controller 127.0.0.1:9878
    """
    names = [broker] if broker else sorted(target.admin.clusters().broker_addr_table)
    leading = _leading(target, broker, controller)
    found = controllers.replicas(target.admin, leading, names)
    if broker and broker not in found:
        raise BrokerNotFound(f"the controller at {leading} does not know broker {broker}")
    rows = [
        [name, *_described(info, one), info.master_epoch, info.sync_state_set_epoch]
        for name, info in sorted(found.items())
        for one in (*info.in_sync_replicas, *info.not_in_sync_replicas)
    ]
    columns = [*text("broker"), *numbers("replica"), *text("address", "role", "alive", "in_sync")]
    table = Table([*columns, *numbers("epoch", "set_epoch")], rows)
    table.notes.append(f"controller {leading} leads")
    return table


def _described(info: ReplicasInfo, one: ReplicaIdentity) -> list[object]:
    role = "master" if one.broker_id == info.master_broker_id else "slave"
    return [one.broker_id, one.broker_address, role, one.alive, one in info.in_sync_replicas]


def _leading(target: Target, broker: str | None, controller: str | None) -> str:
    named = controllers.addresses(controller or "")
    return controllers.leader(target.admin, named or controllers.of_brokers(target, broker))


@listing(cluster_app, "epochs")
def epochs(target: Target, *, broker: BrokerName) -> Table:
    """Show which part of the log was written in which master's time, on each replica.

    Replicas of one broker must agree as far as their logs go.

    [bold]Example[/bold]

      firearrow cluster epochs broker-a
    """
    members = [one for one in target.admin.brokers() if broker in {one.name, one.address}]
    if not members:
        raise BrokerNotFound(f"there is no broker {broker}")
    rows: list[list[object]] = []
    table = Table([*text("address", "role"), *numbers("epoch", "start", "end")], rows)
    for one in members:
        if one.error:
            table.notes.append(f"{one.address}: {one.error}")
            continue
        reply = target.admin.request(one.address, RequestCode.GET_BROKER_EPOCH_CACHE)
        said = java_json.decode(reply.body, EpochEntryCache)
        role = "master" if one.is_master else "slave"
        for entry in said.epoch_list:
            end = said.max_offset if entry.end_offset == ENDLESS else entry.end_offset
            rows.append([one.address, role, entry.epoch, entry.start_offset, end])
    return table


@change(cluster_app, "transfer")
def transfer(
    target: Target,
    *,
    broker: BrokerName,
    to: Annotated[
        str | None, typer.Option("--to", help="Id or address; else another one in sync.")
    ] = None,
    controller: Controllers = None,
    dry_run: bool,
) -> Effect:
    """Make another replica master, say before the machine of the present one stops.

    Only one that is in sync can be: nothing acknowledged is lost. Sends that wait get an error,
    and producers go on with the new master.

    [bold]Examples[/bold]

      firearrow cluster transfer broker-a --dry-run

      firearrow cluster transfer broker-a --to 2
    """
    leading, info = _known(target, broker, controller)
    chosen = _fit(broker, info, to)
    before = f"{info.master_address or 'nobody'}, epoch {info.master_epoch}"
    epoch = info.master_epoch + 1
    if not dry_run:
        asking = headers.ElectMasterRequest(
            broker_name=broker, broker_id=chosen.broker_id, designate_elect=True
        )
        reply = target.admin.request(leading, RequestCode.CONTROLLER_ELECT_MASTER, asking)
        epoch = headers.ElectMasterReply.from_ext(reply.ext).master_epoch or epoch
    words = f"replica {chosen.broker_id} ({chosen.broker_address}) master of {broker}"
    return Effect(
        would=f"make {words}; before: {before}",
        did=f"made {words}, epoch {epoch}; before: {before}",
        numbers={"broker": broker, "replica": chosen.broker_id, "epoch": epoch},
    )


def _known(target: Target, broker: str, controller: str | None) -> tuple[str, ReplicasInfo]:
    leading = _leading(target, broker, controller)
    info = controllers.replicas(target.admin, leading, [broker]).get(broker)
    if info is None:
        raise BrokerNotFound(f"the controller at {leading} does not know broker {broker}")
    return leading, info


def _fit(broker: str, info: ReplicasInfo, to: str | None) -> ReplicaIdentity:
    """The replica that is to be master; what the controller would refuse is refused here, too."""
    able = [
        one for one in info.in_sync_replicas if one.alive and one.broker_id != info.master_broker_id
    ]
    if to is None:
        if not able:
            raise ConfigError(f"no other replica of {broker} is in sync and alive")
        return able[0]
    chosen = _replica(broker, info, to)
    if chosen.broker_id == info.master_broker_id:
        raise ConfigError(f"replica {chosen.broker_id} already is master of {broker}")
    if chosen not in able:
        state = "alive" if chosen in info.in_sync_replicas else "in sync"
        raise ConfigError(
            f"replica {chosen.broker_id} of {broker} is not {state}: "
            f"see firearrow cluster replicas {broker}"
        )
    return chosen


def _replica(broker: str, info: ReplicasInfo, wanted: str) -> ReplicaIdentity:
    known = [*info.in_sync_replicas, *info.not_in_sync_replicas]
    for one in known:
        if wanted in {str(one.broker_id), one.broker_address}:
            return one
    there = ", ".join(str(one.broker_id) for one in known)
    raise BrokerNotFound(f"{broker} has no replica {wanted}, only {there}")


@change(cluster_app, "forget")
def forget(
    target: Target,
    *,
    broker: BrokerName,
    replica: OneReplica,
    controller: Controllers = None,
    dry_run: bool,
) -> Effect:
    """Have the controller forget a replica that will not come back.

    [bold]Example[/bold]

      firearrow cluster forget broker-a --replica 3 --dry-run
    """
    leading, info = _known(target, broker, controller)
    doomed = _replica(broker, info, replica)
    if doomed.alive:
        raise ConfigError(f"replica {doomed.broker_id} of {broker} is alive: stop it first")
    if not dry_run:
        asking = headers.CleanBrokerDataRequest(
            broker_name=broker, broker_controller_ids_to_clean=str(doomed.broker_id)
        )
        target.admin.request(leading, RequestCode.CLEAN_BROKER_DATA, asking)
    left = len(info.in_sync_replicas) + len(info.not_in_sync_replicas) - 1
    words = f"replica {doomed.broker_id} ({doomed.broker_address}) of {broker}"
    return Effect(
        would=f"forget {words}",
        did=f"forgot {words}; {plural(left, 'replica')} left",
        numbers={"broker": broker, "replica": doomed.broker_id, "left": left},
    )
