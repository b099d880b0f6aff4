"""Administration of topics on a broker."""

from firearrow.model.topic import TopicFilterType
from firearrow.wire.header import Header, Int32


class CreateTopicRequest(Header, frozen=True, kw_only=True):
    topic: str
    default_topic: str  # required and ignored
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_filter_type: TopicFilterType
    topic_sys_flag: Int32 | None = None
    order: bool = False
    attributes: str | None = None  # "+key=value,-key"
    force: bool = False


class DeleteTopicRequest(Header, frozen=True, kw_only=True):
    topic: str


class GetTopicConfigRequest(Header, frozen=True, kw_only=True):
    topic: str
    lo: bool | None = None  # static topics only


class GetAllTopicConfigRequest(Header, frozen=True, kw_only=True):
    """Pages of the table, asked for by brokers after 5.3.3; others send no fields."""

    topic_seq: Int32 | None = None
    max_topic_num: Int32 | None = None
    data_version: str | None = None  # JSON


class GetAllTopicConfigReply(Header, frozen=True, kw_only=True):
    total_topic_num: Int32 | None = None


class GetTopicStatsInfoRequest(Header, frozen=True, kw_only=True):
    topic: str


class QueryTopicConsumeByWhoRequest(Header, frozen=True, kw_only=True):
    topic: str


class QueryTopicsByConsumerRequest(Header, frozen=True, kw_only=True):
    group: str
