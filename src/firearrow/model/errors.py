"""What a server can answer, and errors that know what to do about themselves.

The store, the broker and the client raise the same classes. A retry loop reads two attributes and
never lists classes; a server turns any of them into a reply by its `code`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar

from firearrow.base.errors import FirearrowError


class ResponseCode(IntEnum):
    """Every response code of RocketMQ 5.3."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    TRANSACTION_FAILED = 4
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    VERSION_NOT_SUPPORTED = 15
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    TOPIC_EXIST_ALREADY = 18
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_NOT_LATEST = 25
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    FILTER_DATA_NOT_EXIST = 27
    FILTER_DATA_NOT_LATEST = 28
    INVALID_PARAMETER = 29
    TRANSACTION_SHOULD_COMMIT = 200
    TRANSACTION_SHOULD_ROLLBACK = 201
    TRANSACTION_STATE_UNKNOW = 202
    TRANSACTION_STATE_GROUP_WRONG = 203
    NO_BUYER_ID = 204
    NOT_IN_CURRENT_UNIT = 205
    CONSUMER_NOT_ONLINE = 206
    CONSUME_MSG_TIMEOUT = 207
    NO_MESSAGE = 208
    POLLING_FULL = 209
    POLLING_TIMEOUT = 210
    BROKER_NOT_EXIST = 211
    BROKER_DISPATCH_NOT_COMPLETE = 212
    BROADCAST_CONSUMPTION = 213
    FLOW_CONTROL = 215
    NOT_LEADER_FOR_QUEUE = 501
    ILLEGAL_OPERATION = 604
    GO_AWAY = 1500
    CONTROLLER_FENCED_MASTER_EPOCH = 2000
    CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH = 2001
    CONTROLLER_INVALID_MASTER = 2002
    CONTROLLER_INVALID_REPLICAS = 2003
    CONTROLLER_MASTER_NOT_AVAILABLE = 2004
    CONTROLLER_INVALID_REQUEST = 2005
    CONTROLLER_BROKER_NOT_ALIVE = 2006
    CONTROLLER_NOT_LEADER = 2007
    CONTROLLER_BROKER_METADATA_NOT_EXIST = 2008
    CONTROLLER_INVALID_CLEAN_BROKER_METADATA = 2009
    CONTROLLER_BROKER_NEED_TO_BE_REGISTERED = 2010
    CONTROLLER_MASTER_STILL_EXIST = 2011
    CONTROLLER_ELECT_MASTER_FAILED = 2012
    CONTROLLER_ALTER_SYNC_STATE_SET_FAILED = 2013
    CONTROLLER_BROKER_ID_INVALID = 2014
    CONTROLLER_JRAFT_INTERNAL_ERROR = 2015
    CONTROLLER_BROKER_LIVE_INFO_NOT_EXISTS = 2016
    USER_NOT_EXIST = 3001
    POLICY_NOT_EXIST = 3002
    RPC_UNKNOWN = -1000
    RPC_ADDR_IS_NULL = -1002
    RPC_SEND_TO_CHANNEL_FAILED = -1004
    RPC_TIME_OUT = -1006


class BrokerError(FirearrowError):
    """The server answered, and the answer was no."""

    code = int(ResponseCode.SYSTEM_ERROR)
    retriable = False  # another try, perhaps elsewhere, may work
    refresh_route: ClassVar[bool] = False  # what we believe about the cluster is stale
    by_code: ClassVar[dict[int, type[BrokerError]]] = {}

    def __init__(self, text: str = "", **fields: object) -> None:
        super().__init__(text)
        self.fields = {name: str(value) for name, value in fields.items()}  # of the reply's header

    def __init_subclass__(cls) -> None:
        taken = BrokerError.by_code.setdefault(cls.code, cls)
        if taken is not cls:
            raise TypeError(f"{cls.__name__} and {taken.__name__} share {cls.code!r}")


class FlowControlled(BrokerError):
    """The broker limits the reading of old data. Wait a little."""

    code = ResponseCode.FLOW_CONTROL
    retriable = True
    remedy = "Wait a moment and ask again."


class GoAway(BrokerError):
    """The server is about to leave; ask on a new connection."""

    code = ResponseCode.GO_AWAY
    retriable = True
    refresh_route = True
    remedy = "Connect again."


class ServerFailed(BrokerError):
    """The server failed; its remark says how. Another server may succeed."""

    code = ResponseCode.SYSTEM_ERROR
    remedy = "Read the remark and the log of the server; try again."
    retriable = True


class SystemBusy(BrokerError):
    """Flow control. Wait a little, or try another broker."""

    code = ResponseCode.SYSTEM_BUSY
    remedy = "Send more slowly, add brokers, or raise the broker's limits."
    retriable = True


class RequestNotSupported(BrokerError):
    """The server does not know this request. Ask a newer one, or another role."""

    code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    remedy = "Upgrade the server, or ask the role that knows the request."


class ServiceNotAvailable(BrokerError):
    """The broker cannot write now: disk full, shutting down, or a slave."""

    code = ResponseCode.SERVICE_NOT_AVAILABLE
    remedy = "Free disk space or wait for the broker; try another broker."
    retriable = True
    refresh_route = True  # after a fail-over another broker is the master


class MessageIllegal(BrokerError):
    """The message itself is wrong: too large, bad topic name, bad properties."""

    code = ResponseCode.MESSAGE_ILLEGAL
    remedy = "Correct the message: size, topic name, properties."


class NoPermission(BrokerError):
    """Not allowed: a permission bit, a protected name, or a setting that is not remote."""

    code = ResponseCode.NO_PERMISSION
    remedy = "Grant the permission (`updateTopicPerm`), or use another name."


class TopicNotFound(BrokerError):
    """No such topic here. Create it, or ask the name server again."""

    code = ResponseCode.TOPIC_NOT_EXIST
    remedy = "Create the topic, or allow autoCreateTopicEnable."
    retriable = True
    refresh_route = True


class QueryNotFound(BrokerError):
    """Nothing is stored under that name: no offset, no key, no namespace."""

    code = ResponseCode.QUERY_NOT_FOUND
    remedy = "Check the name; nothing is stored under it."


class SubscriptionParseFailed(BrokerError):
    """A filter expression cannot be understood; the text says where."""

    code = ResponseCode.SUBSCRIPTION_PARSE_FAILED
    remedy = "Correct the filter expression."


class SubscriptionNotFound(BrokerError):
    """The broker does not know what this group wants of the topic: its heartbeat comes first."""

    code = ResponseCode.SUBSCRIPTION_NOT_EXIST
    remedy = "Wait for the next heartbeat of the consumer."
    retriable = True


class SubscriptionNotLatest(BrokerError):
    """The broker knows an older subscription; the next heartbeat mends it."""

    code = ResponseCode.SUBSCRIPTION_NOT_LATEST
    remedy = "Wait for the next heartbeat of the consumer."
    retriable = True


class SubscriptionGroupNotFound(BrokerError):
    """No such group, and groups are not made on first use here. Create it."""

    code = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    remedy = "Create the group, or allow autoCreateSubscriptionGroup."


class FilterDataNotFound(BrokerError):
    """The broker has no compiled filter of this group: its expression may be wrong."""

    code = ResponseCode.FILTER_DATA_NOT_EXIST
    retriable = True


class FilterDataNotLatest(BrokerError):
    """The broker's filter is older than the subscription; the next heartbeat mends it."""

    code = ResponseCode.FILTER_DATA_NOT_LATEST
    retriable = True


class ConsumerNotOnline(BrokerError):
    """No member of this group is connected."""

    code = ResponseCode.CONSUMER_NOT_ONLINE
    remedy = "Start a consumer of the group."


class ConsumeMessageTimeout(BrokerError):
    """A client did not answer a question that the broker passed on."""

    code = ResponseCode.CONSUME_MSG_TIMEOUT
    remedy = "Look at the client that did not answer; try again."
    retriable = True


class InvalidParameter(BrokerError):
    """A field of the request is outside what it may be."""

    code = ResponseCode.INVALID_PARAMETER
    remedy = "Correct the field that the text names."


def error_for(code: int, remark: str | None) -> BrokerError:
    """The error that a response code stands for, with the server's own words."""
    error = BrokerError.by_code.get(code, BrokerError)(remark or f"the server answered {code}")
    if type(error) is BrokerError:
        error.code = code
        error.args = (f"{error.args[0]} (code {code})",)
    return error
