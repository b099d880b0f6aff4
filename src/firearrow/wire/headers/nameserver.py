"""Requests to a name server: registration, routes, key-value settings, topic lists."""

import msgspec

from firearrow.wire.header import Header, Int32, Int64


class RegisterBrokerRequest(Header, frozen=True, kw_only=True):
    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Int64
    heartbeat_timeout_millis: Int64 | None = None
    enable_acting_master: bool | None = None  # absent from brokers of the 4.x line
    compressed: bool = False
    body_crc32: Int32 = 0  # of the body as sent, without its top bit; 0 is not checked
    zone_name: str | None = msgspec.field(name="__ZONE_NAME", default=None)


class RegisterBrokerReply(Header, frozen=True, kw_only=True):
    """What a slave learns about its master; both absent for masters."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnregisterBrokerRequest(Header, frozen=True, kw_only=True):
    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class QueryDataVersionRequest(Header, frozen=True, kw_only=True):
    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class QueryDataVersionReply(Header, frozen=True, kw_only=True):
    changed: bool


class BrokerHeartbeatRequest(Header, frozen=True, kw_only=True):
    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Int64 | None = None
    epoch: Int32 | None = None
    max_offset: Int64 | None = None
    confirm_offset: Int64 | None = None
    heartbeat_timeout_mills: Int64 | None = None  # spelt so on the wire, unlike in registration
    election_priority: Int32 | None = None


class GetRouteInfoRequest(Header, frozen=True, kw_only=True):
    topic: str
    accept_standard_json_only: bool | None = None
    zone_name: str | None = msgspec.field(name="__ZONE_NAME", default=None)
    zone_mode: bool | None = msgspec.field(name="__ZONE_MODE", default=None)


class PutKVConfigRequest(Header, frozen=True, kw_only=True):
    namespace: str
    key: str
    value: str


class GetKVConfigRequest(Header, frozen=True, kw_only=True):
    namespace: str
    key: str


class GetKVConfigReply(Header, frozen=True, kw_only=True):
    value: str | None = None


class DeleteKVConfigRequest(Header, frozen=True, kw_only=True):
    namespace: str
    key: str


class GetKVListByNamespaceRequest(Header, frozen=True, kw_only=True):
    namespace: str


class WipeWritePermOfBrokerRequest(Header, frozen=True, kw_only=True):
    broker_name: str


class WipeWritePermOfBrokerReply(Header, frozen=True, kw_only=True):
    wipe_topic_count: Int32


class AddWritePermOfBrokerRequest(Header, frozen=True, kw_only=True):
    broker_name: str


class AddWritePermOfBrokerReply(Header, frozen=True, kw_only=True):
    add_topic_count: Int32


class GetTopicsByClusterRequest(Header, frozen=True, kw_only=True):
    cluster: str


class DeleteTopicInNameserverRequest(Header, frozen=True, kw_only=True):
    topic: str
    cluster_name: str | None = None


class RegisterTopicRequest(Header, frozen=True, kw_only=True):
    topic: str


class GetBrokerMemberGroupRequest(Header, frozen=True, kw_only=True):
    cluster_name: str
    broker_name: str


class NotifyMinBrokerIdChangeRequest(Header, frozen=True, kw_only=True):
    """Name server to broker, one way: who has the lowest id of your group now."""

    min_broker_id: Int64 | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None
