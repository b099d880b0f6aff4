"""Between a broker and its clients: membership, and questions that a broker passes on."""

from msgspec import field

from firearrow.wire.header import Header, Int32


class HeartbeatReply(Header, frozen=True, kw_only=True):
    """Both absent from a broker that knows only full heartbeats."""

    is_support_heart_beat_v2: bool | None = field(name="IS_SUPPORT_HEART_BEAT_V2", default=None)
    is_sub_change: bool | None = field(name="IS_SUB_CHANGE", default=None)


class UnregisterClientRequest(Header, frozen=True, kw_only=True):
    client_id: str = field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class GetConsumerListByGroupRequest(Header, frozen=True, kw_only=True):
    consumer_group: str


class NotifyConsumerIdsChangedRequest(Header, frozen=True, kw_only=True):
    consumer_group: str


class GetConsumerRunningInfoRequest(Header, frozen=True, kw_only=True):
    consumer_group: str
    client_id: str
    jstack_enable: bool | None = None


class ConsumeMessageDirectlyRequest(Header, frozen=True, kw_only=True):
    """An administrator names a message; the broker adds it, and its own name, and asks a client."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
