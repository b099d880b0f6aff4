"""Where a queue begins and ends, what a group has consumed, and moving it."""

from enum import Enum

from firearrow.wire.header import Header, Int32, Int64


class BoundaryType(Enum):
    """Which of the messages around a point in time is meant; sent by name in any case."""

    LOWER = "lower"
    UPPER = "upper"


class QueryConsumerOffsetRequest(Header, frozen=True, kw_only=True):
    consumer_group: str
    topic: str
    queue_id: Int32
    set_zero_if_not_found: bool | None = None


class QueryConsumerOffsetReply(Header, frozen=True, kw_only=True):
    offset: Int64


class UpdateConsumerOffsetRequest(Header, frozen=True, kw_only=True):
    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: Int64


class SearchOffsetRequest(Header, frozen=True, kw_only=True):
    topic: str
    queue_id: Int32
    timestamp: Int64
    boundary_type: BoundaryType = BoundaryType.LOWER


class SearchOffsetReply(Header, frozen=True, kw_only=True):
    offset: Int64


class GetMaxOffsetRequest(Header, frozen=True, kw_only=True):
    topic: str
    queue_id: Int32
    committed: bool = True


class GetMaxOffsetReply(Header, frozen=True, kw_only=True):
    offset: Int64


class GetMinOffsetRequest(Header, frozen=True, kw_only=True):
    topic: str
    queue_id: Int32


class GetMinOffsetReply(Header, frozen=True, kw_only=True):
    offset: Int64


class GetEarliestMsgStoretimeRequest(Header, frozen=True, kw_only=True):
    topic: str
    queue_id: Int32


class GetEarliestMsgStoretimeReply(Header, frozen=True, kw_only=True):
    timestamp: Int64


class ResetOffsetRequest(Header, frozen=True, kw_only=True):
    """From an administrator to a broker, and in the old way on from the broker to clients."""

    group: str
    topic: str
    timestamp: Int64  # -1: to the end
    is_force: bool
    queue_id: Int32 = -1  # -1: all
    offset: Int64 = -1  # -1: by timestamp


class GetConsumerStatusRequest(Header, frozen=True, kw_only=True):
    topic: str
    group: str
    client_addr: str | None = None  # a client id, in spite of the name


class QueryCorrectionOffsetRequest(Header, frozen=True, kw_only=True):
    filter_groups: str | None = None
    compare_group: str
    topic: str


class CloneGroupOffsetRequest(Header, frozen=True, kw_only=True):
    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


class QueryConsumeTimeSpanRequest(Header, frozen=True, kw_only=True):
    topic: str
    group: str


class GetConsumeStatsRequest(Header, frozen=True, kw_only=True):
    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None  # each name is followed by a semicolon


class GetBrokerConsumeStatsRequest(Header, frozen=True, kw_only=True):
    is_order: bool
