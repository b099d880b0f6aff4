"""Pulling messages."""

from enum import IntEnum, IntFlag

from firearrow.wire.header import Header, Int32, Int64


class PullFlag(IntFlag):
    """Bits of a pull's `sys_flag`."""

    COMMIT_OFFSET = 1
    SUSPEND = 2  # hold the request until something arrives
    SUBSCRIPTION = 4  # the request carries its own filter
    CLASS_FILTER = 8  # obsolete
    LITE_PULL = 16


class Forbidden(IntEnum):
    """What forbids a pull, beside code 16."""

    BROKER = 1
    GROUP = 2
    TOPIC = 3
    BROADCASTING = 4
    SUBSCRIPTION = 5


class PullMessageRequest(Header, frozen=True, kw_only=True):
    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: Int64
    suspend_timeout_millis: Int64
    subscription: str | None = None
    sub_version: Int64
    expression_type: str | None = None  # absent means tags
    max_msg_bytes: Int32 | None = None
    request_source: Int32 | None = None
    proxy_froward_client_id: str | None = None  # misspelt on the wire too


class PullMessageReply(Header, frozen=True, kw_only=True):
    """Goes with codes 0, 19, 20 and 21; without the first four Java fails and Go starts over."""

    suggest_which_broker_id: Int64
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64
    offset_delta: Int64 | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
    forbidden_type: Int32 | None = None
