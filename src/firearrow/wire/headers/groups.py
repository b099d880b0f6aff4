"""Administration of consumer and producer groups on a broker."""

from firearrow.wire.header import Header, Int32


class DeleteSubscriptionGroupRequest(Header, frozen=True, kw_only=True):
    """4.9 tools send `removeOffset` instead of the second, and 5.x brokers ignore that."""

    group_name: str
    clean_offset: bool = False


class GetSubscriptionGroupConfigRequest(Header, frozen=True, kw_only=True):
    group: str


class GetAllSubscriptionGroupRequest(Header, frozen=True, kw_only=True):
    """Pages of the table, asked for by brokers after 5.3.3; others send no fields."""

    group_seq: Int32 | None = None
    max_group_num: Int32 | None = None
    data_version: str | None = None  # JSON


class GetAllSubscriptionGroupReply(Header, frozen=True, kw_only=True):
    total_group_num: Int32 | None = None


class UpdateGroupForbiddenRequest(Header, frozen=True, kw_only=True):
    group: str
    topic: str
    readable: bool | None = None


class GetConsumerConnectionListRequest(Header, frozen=True, kw_only=True):
    consumer_group: str


class GetProducerConnectionListRequest(Header, frozen=True, kw_only=True):
    producer_group: str


class QuerySubscriptionByConsumerRequest(Header, frozen=True, kw_only=True):
    group: str
    topic: str | None = None
