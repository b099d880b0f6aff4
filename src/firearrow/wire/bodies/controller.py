"""What travels about replicas: in-sync sets, elections, epochs."""

import msgspec

from firearrow.wire.bodies.nameserver import BrokerMemberGroup
from firearrow.wire.header import Int32, Int64


class SyncStateSet(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Ids of the replicas that hold everything acknowledged, and how often that has changed."""

    sync_state_set: tuple[Int64, ...] = ()
    sync_state_set_epoch: Int32 = 0


class ElectMasterBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    broker_member_group: BrokerMemberGroup | None = None
    sync_state_set: tuple[Int64, ...] = ()


class ReplicaIdentity(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    broker_name: str
    broker_id: Int64
    broker_address: str
    alive: bool = False


class ReplicasInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 = 0
    sync_state_set_epoch: Int32 = 0
    in_sync_replicas: tuple[ReplicaIdentity, ...] = ()
    not_in_sync_replicas: tuple[ReplicaIdentity, ...] = ()


class BrokerReplicasInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    replicas_info_table: dict[str, ReplicasInfo] = {}


class EpochEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A reign: which part of the log was written under which master."""

    epoch: Int32
    start_offset: Int64
    end_offset: Int64 = (1 << 63) - 1


class EpochEntryCache(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    cluster_name: str
    broker_name: str
    broker_id: Int64
    epoch_list: tuple[EpochEntry, ...] = ()
    max_offset: Int64 = 0
