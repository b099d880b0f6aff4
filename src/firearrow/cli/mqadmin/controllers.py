"""mqadmin on controllers and replicas: who leads, who is in sync, elections, epochs, settings."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from firearrow.base.errors import ConfigError
from firearrow.cli import controllers
from firearrow.cli.mqadmin.flags import flag
from firearrow.cli.mqadmin.java_text import truth
from firearrow.cli.mqadmin.run import Command
from firearrow.wire import java_json
from firearrow.wire.bodies.controller import ElectMasterBody, EpochEntryCache
from firearrow.wire.codes import RequestCode
from firearrow.wire.headers import controller as headers
from firearrow.wire.properties_text import format_properties, parse_properties

if TYPE_CHECKING:
    from collections.abc import Callable

    from firearrow.cli.mqadmin.run import Run
    from firearrow.wire.bodies.controller import ReplicaIdentity

CONTROLLER: Final = flag("a! controllerAddress", "A controller, HOST:PORT.")
CONTROLLERS: Final = flag("a! controllerAddress", "Controllers, HOST:PORT, separated by ';'.")
CLUSTER: Final = flag("c clusterName", "The cluster.")
BROKER_NAME: Final = flag("b brokerName", "The broker's name.")
INTERVAL: Final = flag("i interval", "Again every so many seconds, until Ctrl-C.")


def _leader(run: Run) -> str:
    return controllers.leader(run.admin, controllers.addresses(run.given.text("a")))


def _again(look: Callable[[Run], None]) -> Callable[[Run], None]:
    def show(run: Run) -> None:
        look(run)
        while run.given.has("i"):
            time.sleep(max(1, run.given.number("i", 3)))
            look(run)

    return show


def _broker_names(run: Run) -> list[str]:
    if run.given.has("b"):
        return [run.given.text("b")]
    if not run.given.has("c"):
        raise ConfigError("name a broker (-b NAME) or a cluster (-c NAME)")
    return [one.broker_name for one in run.brokers(run.given.text("c"))]


def get_metadata(run: Run) -> None:
    said = controllers.metadata(run.admin, run.given.text("a"))
    run.out(f"\n#ControllerGroup\t{truth(said.group)}")
    run.out(f"#ControllerLeaderId\t{truth(said.controller_leader_id)}")
    run.out(f"#ControllerLeaderAddress\t{truth(said.controller_leader_address)}")
    for peer in controllers.addresses(said.peers or ""):
        run.out(f"#Peer:\t{peer}")


def get_sync_state_set(run: Run) -> None:
    found = controllers.replicas(run.admin, _leader(run), _broker_names(run))
    for name, info in found.items():
        run.out(
            f"\n#brokerName\t{name}\n#MasterBrokerId\t{truth(info.master_broker_id)}\n"
            f"#MasterAddr\t{truth(info.master_address)}\n#MasterEpoch\t{info.master_epoch}\n"
            f"#SyncStateSetEpoch\t{info.sync_state_set_epoch}\n"
            f"#SyncStateSetNums\t{len(info.in_sync_replicas)}"
        )
        for one in info.in_sync_replicas:
            run.out(f"\nInSyncReplica:\t{_identity(one)}")
        for one in info.not_in_sync_replicas:
            run.out(f"\nNotInSyncReplica:\t{_identity(one)}")


def _identity(one: ReplicaIdentity) -> str:
    """As Java's `toString` has it."""
    return (
        f"ReplicaIdentity{{brokerName='{one.broker_name}', brokerId={one.broker_id}, "
        f"brokerAddress='{one.broker_address}', alive={truth(one.alive)}}}"
    )


def get_broker_epoch(run: Run) -> None:
    table = run.admin.clusters().broker_addr_table
    for name in _broker_names(run):
        for _, address in sorted(table[name].broker_addrs.items() if name in table else ()):
            reply = run.admin.request(address, RequestCode.GET_BROKER_EPOCH_CACHE)
            said = java_json.decode(reply.body, EpochEntryCache)
            run.out(
                f"\n#clusterName\t{said.cluster_name}\n#brokerName\t{said.broker_name}\n"
                f"#brokerAddr\t{address}\n#brokerId\t{said.broker_id}"
            )
            for number, one in enumerate(said.epoch_list, 1):
                is_last = number == len(said.epoch_list)
                end = said.max_offset if is_last else one.end_offset
                run.out(
                    f"#Epoch: EpochEntry{{epoch={one.epoch}, startOffset={one.start_offset}, "
                    f"endOffset={end}}}"
                )


def elect_master(run: Run) -> None:
    asking = headers.ElectMasterRequest(
        cluster_name=run.given.text("c"),
        broker_name=run.given.text("bn"),
        broker_id=run.given.number("b"),
        designate_elect=True,
    )
    reply = run.admin.request(_leader(run), RequestCode.CONTROLLER_ELECT_MASTER, asking)
    said = headers.ElectMasterReply.from_ext(reply.ext)
    run.out(f"\n#ClusterName\t{run.given.text('c')}")
    run.out(f"#BrokerName\t{run.given.text('bn')}")
    run.out(f"#BrokerMasterAddr\t{truth(said.master_address)}")
    run.out(f"#MasterEpoch\t{truth(said.master_epoch)}")
    run.out(f"#SyncStateSetEpoch\t{truth(said.sync_state_set_epoch)}")
    group = java_json.decode(reply.body, ElectMasterBody).broker_member_group
    for broker_id, address in sorted((group.broker_addrs if group else {}).items()):
        run.out(f"\t#Broker\t{broker_id}\t{address}")


def clean_broker_metadata(run: Run) -> None:
    ids = run.given.optional("b")
    if ids and not all(part.strip().isdecimal() for part in ids.split(";") if part.strip()):
        raise ConfigError(f"-b {ids!r}: ids separated by ';' expected, as 1;2;3")
    living = run.given.has("l")
    if not living and not run.given.text("c"):
        raise ConfigError("name the cluster (-c), or -l to clean up living brokers as well")
    asking = headers.CleanBrokerDataRequest(
        cluster_name=run.given.optional("c"),
        broker_name=run.given.text("bn"),
        broker_controller_ids_to_clean=ids,
        is_clean_living_broker=living,
    )
    run.admin.request(_leader(run), RequestCode.CLEAN_BROKER_DATA, asking)
    run.out(f"clear broker {asking.broker_name} metadata from controller success! ")


def get_config(run: Run) -> None:
    for address in controllers.addresses(run.given.text("a")):
        reply = run.admin.request(address, RequestCode.GET_CONTROLLER_CONFIG)
        run.out(f"============{address}============")
        for key, value in parse_properties(reply.body).items():
            run.out(f"{key:<50}=  {value}")


def update_config(run: Run) -> None:
    key, value = run.given.text("k"), run.given.text("v")
    servers = controllers.addresses(run.given.text("a"))
    for address in servers:
        body = format_properties({key: value})
        run.admin.request(address, RequestCode.UPDATE_CONTROLLER_CONFIG, body=body)
    run.out(f"update controller config success![{', '.join(servers)}]\n{key} : {value}")


COMMANDS: Final = (
    Command("getControllerMetaData", "Which controller leads.", (CONTROLLER,), get_metadata),
    Command(
        "getSyncStateSet",
        "Who is master and who is in sync.",
        (CONTROLLER, CLUSTER, BROKER_NAME, INTERVAL),
        _again(get_sync_state_set),
    ),
    Command(
        "getBrokerEpoch",
        "Which part of the log was written in which master's time.",
        (CLUSTER, BROKER_NAME, INTERVAL),
        _again(get_broker_epoch),
    ),
    Command(
        "electMaster",
        "Make a replica master.",
        (
            CONTROLLER,
            flag("b! brokerId", "The id of the replica."),
            flag("bn! brokerName", "The broker's name."),
            flag("c! clusterName", "The cluster."),
        ),
        elect_master,
    ),
    Command(
        "cleanBrokerMetadata",
        "Have the controller forget replicas.",
        (
            CONTROLLER,
            flag("b brokerControllerIdsToClean", "Ids, as 1;2;3; else all."),
            flag("bn! brokerName", "The broker's name."),
            CLUSTER,
            flag("l| cleanLivingBroker", "Also those that live."),
        ),
        clean_broker_metadata,
    ),
    Command("getControllerConfig", "Settings of controllers.", (CONTROLLERS,), get_config),
    Command(
        "updateControllerConfig",
        "Change a setting of controllers.",
        (CONTROLLERS, flag("k! key", "The key."), flag("v! value", "The value.")),
        update_config,
    ),
)
