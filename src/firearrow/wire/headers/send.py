"""Sending messages, and sending back those that could not be consumed."""

from msgspec import field

from firearrow.wire.header import Header, Int32, Int64


class SendMessageRequest(Header, frozen=True, kw_only=True):
    """One message, or a batch if `batch` says so; the request code does not tell.

    Go sends this form for single messages; a handler that takes it also takes the V2 form.
    """

    producer_group: str
    topic: str
    default_topic: str  # the example after which a missing topic is created
    default_topic_queue_nums: Int32
    queue_id: Int32  # negative: the broker chooses
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 = 0
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None  # Go and C++ send it always; it counts for retries
    batch: bool = False
    broker_name: str | None = field(name="bname", default=None)


class SendMessageRequestV2(SendMessageRequest, frozen=True, kw_only=True):
    """The same fields under one-letter names: what Java and Node send."""

    producer_group: str = field(name="a")
    topic: str = field(name="b")
    default_topic: str = field(name="c")
    default_topic_queue_nums: Int32 = field(name="d")
    queue_id: Int32 = field(name="e")
    sys_flag: Int32 = field(name="f")
    born_timestamp: Int64 = field(name="g")
    flag: Int32 = field(name="h")
    properties: str | None = field(name="i", default=None)
    reconsume_times: Int32 = field(name="j", default=0)
    unit_mode: bool = field(name="k", default=False)
    max_reconsume_times: Int32 | None = field(name="l", default=None)
    batch: bool = field(name="m", default=False)
    broker_name: str | None = field(name="n", default=None)


class SendMessageReply(Header, frozen=True, kw_only=True):
    """Goes with codes 0, 10, 11 and 12: Java dereferences the first three blindly."""

    msg_id: str  # where the message lies; a comma list for a batch
    queue_id: Int32
    queue_offset: Int64
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None
    msg_region: str | None = field(name="MSG_REGION", default=None)
    trace_on: bool | None = field(name="TRACE_ON", default=None)


class SendMessageFailedReply(Header, frozen=True, kw_only=True):
    """What a broker adds to any other code."""

    msg_region: str | None = field(name="MSG_REGION", default=None)
    trace_on: bool | None = field(name="TRACE_ON", default=None)


class ConsumerSendMsgBackRequest(Header, frozen=True, kw_only=True):
    offset: Int64  # in the commit log
    group: str
    delay_level: Int32  # 0: by the number of attempts; negative: straight to the dead letters
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None


class RecallMessageRequest(Header, frozen=True, kw_only=True):
    """Take back a timer message that is not due yet."""

    producer_group: str | None = None
    topic: str
    recall_handle: str


class RecallMessageReply(Header, frozen=True, kw_only=True):
    msg_id: str
    msg_region: str | None = field(name="MSG_REGION", default=None)
