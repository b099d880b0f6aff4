"""Request and reply: the answer that a broker pushes to the client that asked.

The replying client sends `SendMessageRequest` or its V2 form.
"""

from firearrow.wire.header import Header, Int32, Int64


class PushReplyMessageRequest(Header, frozen=True, kw_only=True):
    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None  # the client finds its question by CORRELATION_ID in here
    reconsume_times: Int32 | None = None
    unit_mode: bool | None = None
    born_host: str  # ip:port
    store_host: str  # ip:port
    store_timestamp: Int64
