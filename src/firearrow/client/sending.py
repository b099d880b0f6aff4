"""From messages to send requests, and from answers to receipts. Pure."""

from __future__ import annotations

import base64
import struct
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from firearrow.client.errors import ClientError, InvalidMessage
from firearrow.hot import encode_properties
from firearrow.model import message as names
from firearrow.model.errors import ResponseCode, error_for
from firearrow.model.topic import (
    AUTO_CREATE_TOPIC,
    NO_SEND_TOPICS,
    MessageQueue,
    check_topic_name,
    is_retry_topic,
)
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import Command

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from firearrow.base.errors import FirearrowError
    from firearrow.client.message import Message
    from firearrow.client.routes import TopicRoute

DEFAULT_REGION: Final = "DefaultRegion"
# One message of a batch; the two zero words are a magic code and a CRC that nobody fills:
#
#   | size 4 | 0 4 | 0 4 | flag 4 | body length 4 | body | properties length 2 | properties |
_BATCHED: Final = struct.Struct(">iiiii")
_BATCHED_EXTRA: Final = _BATCHED.size + 2
PROPERTIES_BYTES_MAX: Final = 32_767


class SendStatus(StrEnum):
    """How safe a stored message is; only the first is what the broker was asked for."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


_STATUS: Final[dict[int, SendStatus]] = {
    ResponseCode.SUCCESS: SendStatus.SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}


class SendReceipt(NamedTuple):
    """What a broker answered to a send."""

    status: SendStatus
    msg_id: str  # the producer's id; those of a batch are joined by commas
    offset_msg_id: str  # the broker's id
    queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None
    recall_handle: str | None = None  # takes back a timed message before it is due
    region_id: str = DEFAULT_REGION
    trace_on: bool = True

    @property
    def ok(self) -> bool:
        """Whether the message is as safe as the broker was configured to make it."""
        return self.status is SendStatus.SEND_OK


class Envelope(NamedTuple):
    """A message ready to leave, but for the queue: it may be tried on several."""

    code: RequestCode
    topic: str  # on the wire
    body: bytes
    msg_id: str
    properties: str
    sys_flag: str
    flag: str
    reconsume_times: str = "0"
    max_reconsume_times: str | None = None
    batch: bool = False


class BatchPartlySent(ClientError):
    """A batch was too large for one request, and one of its parts failed: the ones before it are
    stored. The part that failed and those behind it are not known to be.
    """  # noqa: D205 - one thought

    remedy = "Send `rest` again; `receipts` are those of the parts that were stored."

    def __init__(
        self, text: str, receipts: list[SendReceipt], rest: list[Message], *, retriable: bool
    ) -> None:
        super().__init__(text)
        self.receipts = receipts
        self.rest = rest
        self.retriable = retriable  # as the failure of the part


class Delivery(NamedTuple):
    """A message, or a batch, on its way: what, where, and how long it may take."""

    packed: Envelope
    messages: list[Message]
    route: TopicRoute
    queue: MessageQueue | None  # this one and no other
    deadline_ms: int
    timeout_ms: int
    failed: tuple[str, FirearrowError] | None = None  # what the first try came to, and where


def broker_of_recall_handle(handle: str) -> str | None:
    """The broker that a handle names; None if it cannot be read.

    A handle is base64, safe for URLs, of: version, topic, broker name, time, message id.
    """
    try:
        parts = base64.urlsafe_b64decode(handle.encode()).decode().split(" ")
    except ValueError:
        return None
    return parts[2] if len(parts) >= 5 and parts[0] == "v1" else None


def check_message(message: Message, body_bytes_max: int) -> None:
    """InvalidMessage unless a broker could take it."""
    problem = topic_problem(message.topic)
    if problem is not None:
        raise InvalidMessage(problem)
    check_body(len(message.body), body_bytes_max)


@lru_cache(maxsize=4096)
def topic_problem(topic: str) -> str | None:
    """Why nothing can be sent to a topic; None if it can."""
    if topic in NO_SEND_TOPICS:
        return f"nobody but the broker writes to topic {topic}"
    return check_topic_name(topic)


def check_body(size: int, body_bytes_max: int) -> None:
    if size == 0:
        raise InvalidMessage("the body is empty; RocketMQ wants at least one byte")
    if size > body_bytes_max:
        raise InvalidMessage(f"the body has {size} bytes; the limit is {body_bytes_max}")


def properties_text(properties: Mapping[str, str]) -> str:
    """The properties as they travel; InvalidMessage names the one that cannot."""
    try:
        text = encode_properties(properties)
    except ValueError as error:
        raise InvalidMessage(str(error)) from None
    except TypeError:
        wrong = [name for name, value in properties.items() if not isinstance(value, str)]
        raise InvalidMessage(f"properties are text, which {wrong} are not") from None
    if len(text) * 3 > PROPERTIES_BYTES_MAX and len(text.encode()) > PROPERTIES_BYTES_MAX:
        raise InvalidMessage(
            f"the properties have {len(text.encode())} bytes; the limit is {PROPERTIES_BYTES_MAX}"
        )
    return text


def envelope(message: Message, topic: str, body: bytes, sys_flag: int) -> Envelope:
    """Pack one message. The numbers of a retry travel beside its properties, not in them."""
    properties = message.properties
    code = RequestCode.SEND_MESSAGE_V2
    if properties.get(names.MESSAGE_TYPE) == "reply":
        code = RequestCode.SEND_REPLY_MESSAGE_V2
    reconsumed, reconsume_max = "0", None
    if is_retry_topic(topic):
        properties = dict(properties)
        reconsumed = properties.pop(names.RECONSUME_TIME, "0")
        reconsume_max = properties.pop(names.MAX_RECONSUME_TIMES, None)
    return Envelope(
        code,
        topic,
        body,
        properties[names.UNIQ_KEY],
        properties_text(properties),
        str(sys_flag),
        str(message.flag),
        reconsumed,
        reconsume_max,
    )


def batch_envelope(messages: Sequence[Message], topic: str) -> Envelope:
    """Pack messages of one topic into one request; never compressed."""
    first = messages[0]
    shared = {} if first.wait_stored else {names.WAIT: "false"}
    return Envelope(
        RequestCode.SEND_BATCH_MESSAGE,
        topic,
        b"".join(map(_batched, messages)),
        ",".join(message.properties[names.UNIQ_KEY] for message in messages),
        properties_text(shared),
        "0",
        str(first.flag),
        batch=True,
    )


def _batched(message: Message) -> bytes:
    properties = properties_text(message.properties).encode()
    body = message.body
    size = _BATCHED_EXTRA + len(body) + len(properties)
    head = _BATCHED.pack(size, 0, 0, message.flag, len(body))
    return b"".join((head, body, len(properties).to_bytes(2, "big"), properties))


def check_batch(messages: Sequence[Message]) -> None:
    """InvalidMessage unless these may travel together."""
    if not messages:
        raise InvalidMessage("a batch needs at least one message")
    first = messages[0]
    for message in messages:
        if message.delay_level > 0 or not _TIMERS.isdisjoint(message.properties):
            raise InvalidMessage("a batch cannot hold delayed messages; send them one by one")
        if is_retry_topic(message.topic):
            raise InvalidMessage("a batch cannot go to a retry topic")
        if message.topic != first.topic:
            raise InvalidMessage(f"a batch has one topic, not {first.topic} and {message.topic}")
        if message.wait_stored != first.wait_stored:
            raise InvalidMessage("in a batch all messages wait for the disk, or none does")


_TIMERS: Final = frozenset({names.TIMER_DELIVER_MS, names.TIMER_DELAY_MS, names.TIMER_DELAY_SEC})


def split_batch(messages: Sequence[Message], bytes_max: int) -> Iterator[list[Message]]:
    """Cut a batch into parts that fit, in their order; InvalidMessage if one never does."""
    part: list[Message] = []
    size = 0
    for message in messages:
        one = estimated_bytes(message)
        if one > bytes_max:
            one = len(_batched(message))
            check_body(one, bytes_max)
        if part and size + one > bytes_max:
            yield part
            part, size = [], 0
        part.append(message)
        size += one
    if part:
        yield part


def estimated_bytes(message: Message) -> int:
    """At least what the message takes in a batch, without encoding it."""
    properties = message.properties.items()
    text = sum(len(name.encode()) + len(value.encode()) + 2 for name, value in properties)
    return _BATCHED_EXTRA + len(message.body) + text + 64  # room for the id that it may get


def send_command(
    packed: Envelope,
    queue: MessageQueue,
    *,
    group: str,
    born_ms: int,
    creation_queue_nums: str,
    oneway: bool = False,
) -> Command:
    """The request; what the one-letter names mean is in `wire.headers.SendMessageRequestV2`."""
    ext = {
        "a": group,
        "b": packed.topic,
        "c": AUTO_CREATE_TOPIC,
        "d": creation_queue_nums,
        "e": str(queue.queue_id),
        "f": packed.sys_flag,
        "g": str(born_ms),
        "h": packed.flag,
        "i": packed.properties,
        "j": packed.reconsume_times,
        "k": "false",
        "m": "true" if packed.batch else "false",
        "n": queue.broker_name,
    }
    if packed.max_reconsume_times is not None:
        ext["l"] = packed.max_reconsume_times
    return Command(packed.code, ext, packed.body, flag=2 if oneway else 0)


def receipt_of(answer: Command, packed: Envelope, topic: str, broker_name: str) -> SendReceipt:
    """Read a broker's answer; raises what it said when the message was not stored."""
    status = _STATUS.get(answer.code)
    if status is None:
        raise error_for(answer.code, answer.remark)
    ext = answer.ext
    return SendReceipt(
        status,
        ext.get("batchUniqId") or packed.msg_id,
        ext.get("msgId", ""),
        MessageQueue(topic=topic, broker_name=broker_name, queue_id=int(ext.get("queueId", -1))),
        int(ext.get("queueOffset", -1)),
        ext.get("transactionId"),
        ext.get("recallHandle"),
        ext.get("MSG_REGION") or DEFAULT_REGION,
        ext.get("TRACE_ON") != "false",
    )
