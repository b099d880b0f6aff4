"""Administration of a broker itself. Settings travel as properties text in the body."""

from firearrow.wire.header import Header, Int32, Int64


class GetBrokerConfigReply(Header, frozen=True, kw_only=True):
    version: str | None = None  # a DataVersion as JSON text


class ViewBrokerStatsDataRequest(Header, frozen=True, kw_only=True):
    stats_name: str
    stats_key: str


class InstallFilterRequest(Header, frozen=True, kw_only=True):
    """The body is the source of the filter, as UTF-8."""

    name: str


class RemoveFilterRequest(Header, frozen=True, kw_only=True):
    name: str


class ListTimersRequest(Header, frozen=True, kw_only=True):
    """Ours: messages of a topic that wait for their time, from a time on.

    A page ends with a cursor; the next request hands it in and gets what follows.
    """

    topic: str
    begin_timestamp: Int64 = 0
    cursor: str | None = None
    max_count: Int32 = 32
