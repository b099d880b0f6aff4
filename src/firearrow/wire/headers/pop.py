"""Popping messages. The codes do not fit a binary header, so these always come as JSON."""

from firearrow.wire.header import Header, Int32, Int64


class PopMessageRequest(Header, frozen=True, kw_only=True):
    consumer_group: str
    topic: str
    queue_id: Int32  # -1: any
    max_msg_nums: Int32
    invisible_time: Int64  # ms
    poll_time: Int64  # ms
    born_time: Int64 = 0  # 0 means now, and so does its absence
    init_mode: Int32  # where a new group starts: 0 at the first message, 1 behind the last
    exp_type: str | None = None
    exp: str | None = None
    order: bool = False
    attempt_id: str | None = None


class PopMessageReply(Header, frozen=True, kw_only=True):
    """The three texts pair each message with its place; send the first two together or not."""

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32
    rest_num: Int64
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class AckMessageRequest(Header, frozen=True, kw_only=True):
    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str  # the message's POP_CK
    offset: Int64


class PeekMessageRequest(Header, frozen=True, kw_only=True):
    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    consumer_group: str


class ChangeInvisibleTimeRequest(Header, frozen=True, kw_only=True):
    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    invisible_time: Int64  # ms


class ChangeInvisibleTimeReply(Header, frozen=True, kw_only=True):
    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32


class NotificationRequest(Header, frozen=True, kw_only=True):
    consumer_group: str
    topic: str
    queue_id: Int32
    poll_time: Int64
    born_time: Int64
    order: bool | None = None
    attempt_id: str | None = None


class NotificationReply(Header, frozen=True, kw_only=True):
    has_msg: bool
    polling_full: bool = False


class PollingInfoRequest(Header, frozen=True, kw_only=True):
    consumer_group: str
    topic: str
    queue_id: Int32


class PollingInfoReply(Header, frozen=True, kw_only=True):
    polling_num: Int32
