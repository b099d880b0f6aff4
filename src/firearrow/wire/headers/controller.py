"""Requests about replicas: who has which id, who is the master, who is in sync."""

import msgspec

from firearrow.wire.header import Header, Int32, Int64


class AlterSyncStateSetRequest(Header, frozen=True, kw_only=True):
    """The master proposes another in-sync set; the body has the set and the epoch it had."""

    broker_name: str
    master_broker_id: Int64
    master_epoch: Int32
    invoke_time: Int64 | None = None


class AlterSyncStateSetReply(Header, frozen=True, kw_only=True):
    new_sync_state_set_epoch: Int32


class ElectMasterRequest(Header, frozen=True, kw_only=True):
    """From a broker without a master, from an administrator, or (id -1) for anyone who is fit."""

    cluster_name: str = ""
    broker_name: str
    broker_id: Int64 = -1
    designate_elect: bool = False
    invoke_time: Int64 | None = None


class ElectMasterReply(Header, frozen=True, kw_only=True):
    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None


class RegisterToControllerRequest(Header, frozen=True, kw_only=True):
    cluster_name: str = ""
    broker_name: str
    broker_id: Int64
    broker_address: str
    invoke_time: Int64 | None = None


class RegisterToControllerReply(Header, frozen=True, kw_only=True):
    cluster_name: str | None = None
    broker_name: str | None = None
    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None


class GetReplicaInfoRequest(Header, frozen=True, kw_only=True):
    broker_name: str


class GetReplicaInfoReply(Header, frozen=True, kw_only=True):
    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None


class GetControllerMetadataReply(Header, frozen=True, kw_only=True):
    group: str | None = None
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None
    is_leader: bool = msgspec.field(name="isLeader", default=False)
    peers: str | None = None  # id:address, several separated by semicolons


class NotifyBrokerRoleChangedRequest(Header, frozen=True, kw_only=True):
    """The controller tells a broker of an election; the body has the in-sync set."""

    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None
    master_broker_id: Int64 | None = None


class CleanBrokerDataRequest(Header, frozen=True, kw_only=True):
    cluster_name: str | None = None
    broker_name: str
    broker_controller_ids_to_clean: str | None = None  # ids separated by semicolons; absent: all
    is_clean_living_broker: bool = msgspec.field(name="isCleanLivingBroker", default=False)
    invoke_time: Int64 | None = None


class GetNextBrokerIdRequest(Header, frozen=True, kw_only=True):
    cluster_name: str = ""
    broker_name: str


class GetNextBrokerIdReply(Header, frozen=True, kw_only=True):
    cluster_name: str | None = None
    broker_name: str | None = None
    next_broker_id: Int64


class ApplyBrokerIdRequest(Header, frozen=True, kw_only=True):
    """A broker takes an id; who asks again with the same check code gets the same answer."""

    cluster_name: str = ""
    broker_name: str
    applied_broker_id: Int64
    register_check_code: str  # address;time of asking


class ApplyBrokerIdReply(Header, frozen=True, kw_only=True):
    cluster_name: str | None = None
    broker_name: str | None = None


class ExchangeHaInfoReply(Header, frozen=True, kw_only=True):
    """Where the slaves of a master connect to."""

    master_ha_address: str | None = None
    master_flush_offset: Int64 | None = None
    master_address: str | None = None
