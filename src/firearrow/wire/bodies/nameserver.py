"""What a name server answers: routes, clusters, tables and lists."""

import msgspec

from firearrow.model.topic import BrokerData, QueueData
from firearrow.wire.header import Int32, Int64


class TopicQueueMappingInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Which queues of a static topic a broker holds: its own number of each by the topic's."""

    topic: str
    scope: str | None = None
    total_queues: Int32 = 0
    bname: str | None = None
    epoch: Int64 = 0
    dirty: bool = False
    curr_id_map: dict[Int32, Int32] = {}


class TopicRouteData(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Where a topic lives. Clients compare routes: the same state must give the same text.

    Never answer with empty lists: Java takes that for a route and stops looking for another.
    """

    order_topic_conf: str | None = None  # if not empty, Java producers use it in place of queues
    queue_datas: tuple[QueueData, ...] = ()
    broker_datas: tuple[BrokerData, ...] = ()
    filter_server_table: dict[str, tuple[str, ...]] = {}
    topic_queue_mapping_by_broker: dict[str, TopicQueueMappingInfo] | None = None


class ClusterInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    broker_addr_table: dict[str, BrokerData] = {}
    cluster_addr_table: dict[str, tuple[str, ...]] = {}


class KVTable(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Text by text: a namespace of settings, or what a broker says about its run."""

    table: dict[str, str] = {}


class TopicList(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    topic_list: tuple[str, ...] = ()
    broker_addr: str | None = None


class BrokerMemberGroup(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    cluster: str
    broker_name: str
    broker_addrs: dict[Int64, str] = {}


class BrokerMemberGroupBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    broker_member_group: BrokerMemberGroup | None = None
