"""mqadmin on replicas under a controller: who is in sync, epochs, elections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from firearrow.base.errors import ConfigError
from firearrow.cli.mqadmin.flags import flag
from firearrow.cli.mqadmin.java_text import truth
from firearrow.cli.mqadmin.run import Command
from firearrow.client.errors import BrokerNotFound
from firearrow.wire import java_json
from firearrow.wire.bodies.controller import (
    BrokerReplicasInfo,
    ElectMasterBody,
    EpochEntryCache,
)
from firearrow.wire.codes import RequestCode
from firearrow.wire.headers.controller import (
    CleanBrokerDataRequest,
    ElectMasterReply,
    ElectMasterRequest,
    GetControllerMetadataReply,
)
from firearrow.wire.properties_text import format_properties, parse_properties

if TYPE_CHECKING:
    from firearrow.cli.mqadmin.run import Run
    from firearrow.wire.bodies.controller import ReplicaIdentity

CONTROLLER: Final = flag("a! controllerAddress", "Controllers, HOST:PORT, separated by ';'.")
BROKER_NAME: Final = flag("b brokerName", "The broker's name.")
CLUSTER: Final = flag("c clusterName", "All brokers of this cluster.")
REPLICAS: Final = flag("bn! brokerName", "The name that the replicas share.")


def _metadata(run: Run) -> GetControllerMetadataReply:
    """What the controller says of itself; any one knows who leads."""
    address = run.given.text("a").split(";")[0]
    answer = run.admin.request(address, RequestCode.CONTROLLER_GET_METADATA_INFO)
    return GetControllerMetadataReply.from_ext(answer.ext)


def _leader(run: Run) -> str:
    leader = _metadata(run).controller_leader_address
    if not leader:
        raise BrokerNotFound(f"the controllers at {run.given.text('a')} have no leader")
    return leader


def _names(run: Run) -> list[str]:
    """Broker names that ``-b`` or ``-c`` mean."""
    if run.given.has("b"):
        return [run.given.text("b")]
    if run.given.has("c"):
        return [one.broker_name for one in run.brokers(run.given.text("c"))]
    raise ConfigError("name a broker (-b NAME) or a cluster (-c NAME)")


def get_sync_state_set(run: Run) -> None:
    names = _names(run)
    answer = run.admin.request(
        _leader(run), RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=java_json.encode(names)
    )
    table = java_json.decode(answer.body, BrokerReplicasInfo).replicas_info_table
    for name, one in table.items():
        run.out(f"\n#brokerName\t{name}")
        run.out(f"#MasterBrokerId\t{truth(one.master_broker_id)}")
        run.out(f"#MasterAddr\t{truth(one.master_address)}")
        run.out(f"#MasterEpoch\t{one.master_epoch}")
        run.out(f"#SyncStateSetEpoch\t{one.sync_state_set_epoch}")
        run.out(f"#SyncStateSetNums\t{len(one.in_sync_replicas)}")
        for replica in one.in_sync_replicas:
            run.out(f"\nInSyncReplica:\t{_replica(replica)}")
        for replica in one.not_in_sync_replicas:
            run.out(f"\nNotInSyncReplica:\t{_replica(replica)}")


def _replica(one: ReplicaIdentity) -> str:
    return (
        f"ReplicaIdentity{{brokerName='{one.broker_name}', brokerId={one.broker_id}, "
        f"brokerAddress='{one.broker_address}', alive={truth(one.alive)}}}"
    )


def get_broker_epoch(run: Run) -> None:
    table = run.admin.clusters().broker_addr_table
    for name in _names(run):
        if name not in table:
            raise BrokerNotFound(f"there is no broker {name}, only {', '.join(sorted(table))}")
        for address in table[name].broker_addrs.values():
            answer = run.admin.request(address, RequestCode.GET_BROKER_EPOCH_CACHE)
            told = java_json.decode(answer.body, EpochEntryCache)
            run.out(f"\n#clusterName\t{told.cluster_name}\n#brokerName\t{told.broker_name}")
            run.out(f"#brokerAddr\t{address}\n#brokerId\t{told.broker_id}")
            last = len(told.epoch_list) - 1
            for place, one in enumerate(told.epoch_list):
                end = told.max_offset if place == last else one.end_offset
                run.out(
                    f"#Epoch: EpochEntry{{epoch={one.epoch}, startOffset={one.start_offset}, "
                    f"endOffset={end}}}"
                )


def get_controller_metadata(run: Run) -> None:
    told = _metadata(run)
    run.out(f"\n#ControllerGroup\t{truth(told.group)}")
    run.out(f"#ControllerLeaderId\t{truth(told.controller_leader_id)}")
    run.out(f"#ControllerLeaderAddress\t{truth(told.controller_leader_address)}")
    for peer in filter(None, (told.peers or "").split(";")):
        run.out(f"#Peer:\t{peer}")


def get_controller_config(run: Run) -> None:
    for address in run.given.text("a").split(";"):
        answer = run.admin.request(address, RequestCode.GET_CONTROLLER_CONFIG)
        run.out(f"============{address}============")
        for key, value in parse_properties(answer.body).items():
            run.out(f"{key:<50}=  {value}")


def update_controller_config(run: Run) -> None:
    key, value = run.given.text("k"), run.given.text("v")
    servers = run.given.text("a").split(";")
    for address in servers:
        body = format_properties({key: value})
        run.admin.request(address, RequestCode.UPDATE_CONTROLLER_CONFIG, body=body)
    run.out(f"update controller config success![{', '.join(servers)}]\n{key} : {value}")


def elect_master(run: Run) -> None:
    given = run.given
    cluster, name = given.text("c"), given.text("bn")
    answer = run.admin.request(
        _leader(run),
        RequestCode.CONTROLLER_ELECT_MASTER,
        ElectMasterRequest(
            cluster_name=cluster,
            broker_name=name,
            broker_id=given.number("b"),
            designate_elect=True,
        ),
    )
    elected = ElectMasterReply.from_ext(answer.ext)
    run.out(f"\n#ClusterName\t{cluster}\n#BrokerName\t{name}")
    run.out(f"#BrokerMasterAddr\t{truth(elected.master_address)}")
    run.out(f"#MasterEpoch\t{truth(elected.master_epoch)}")
    run.out(f"#SyncStateSetEpoch\t{truth(elected.sync_state_set_epoch)}")
    group = java_json.decode(answer.body, ElectMasterBody).broker_member_group
    for number, address in (group.broker_addrs if group else {}).items():
        run.out(f"\t#Broker\t{number}\t{address}")


def clean_broker_metadata(run: Run) -> None:
    given = run.given
    living = given.has("l")
    if not living and not given.has("c"):
        raise ConfigError("without -l only replicas that are away are forgotten: name their -c too")
    run.admin.request(
        _leader(run),
        RequestCode.CLEAN_BROKER_DATA,
        CleanBrokerDataRequest(
            cluster_name=given.optional("c"),
            broker_name=given.text("bn"),
            broker_controller_ids_to_clean=given.optional("b"),
            is_clean_living_broker=living,
        ),
    )
    run.out(f"clear broker {given.text('bn')} metadata from controller success! ")


COMMANDS: Final = (
    Command(
        "getSyncStateSet",
        "Which replicas are in sync with their master.",
        (CONTROLLER, BROKER_NAME, CLUSTER, flag("i interval", "Accepted; it looks once.")),
        get_sync_state_set,
    ),
    Command(
        "getBrokerEpoch",
        "Which part of the log was written under which master.",
        (BROKER_NAME, CLUSTER, flag("i interval", "Accepted; it looks once.")),
        get_broker_epoch,
    ),
    Command(
        "getControllerMetaData",
        "Who leads the controllers.",
        (CONTROLLER,),
        get_controller_metadata,
    ),
    Command(
        "getControllerConfig", "Settings of controllers.", (CONTROLLER,), get_controller_config
    ),
    Command(
        "updateControllerConfig",
        "Change a setting of controllers.",
        (CONTROLLER, flag("k! key", "The key."), flag("v! value", "The value.")),
        update_controller_config,
    ),
    Command(
        "electMaster",
        "Make a replica the master.",
        (
            CONTROLLER,
            flag("b! brokerId", "The replica's id."),
            REPLICAS,
            flag("c! clusterName", "Its cluster."),
        ),
        elect_master,
    ),
    Command(
        "cleanBrokerMetadata",
        "Have the controller forget replicas.",
        (
            CONTROLLER,
            flag("b brokerControllerIdsToClean", "Ids separated by ';'; else all."),
            REPLICAS,
            flag("c clusterName", "Their cluster."),
            flag("l| cleanLivingBroker", "Also such as are alive."),
        ),
        clean_broker_metadata,
    ),
)
