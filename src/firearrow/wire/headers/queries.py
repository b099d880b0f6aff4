"""Finding messages by key, by id and by their place in a consume queue."""

from msgspec import field

from firearrow.wire.header import Header, Int32, Int64


class QueryMessageRequest(Header, frozen=True, kw_only=True):
    topic: str
    key: str
    max_num: Int32
    begin_timestamp: Int64
    end_timestamp: Int64
    unique_key_query: bool = field(name="_UNIQUE_KEY_QUERY", default=False)


class QueryMessageReply(Header, frozen=True, kw_only=True):
    """Also with code 22, where both are 0."""

    index_last_update_timestamp: Int64
    index_last_update_phyoffset: Int64


class ViewMessageRequest(Header, frozen=True, kw_only=True):
    offset: Int64  # in the commit log
    topic: str | None = None


class QueryConsumeQueueRequest(Header, frozen=True, kw_only=True):
    topic: str
    queue_id: Int32 = 0
    index: Int64 = 0
    count: Int32 = 0
    consumer_group: str | None = None
