"""From messages to send requests, and from answers to receipts. Pure."""

from __future__ import annotations

import base64
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from firearrow.client.errors import ClientError, InvalidMessage
from firearrow.hot import encode_messages, encode_properties
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
    from collections.abc import Mapping, Sequence

    from firearrow.base.errors import FirearrowError
    from firearrow.client.message import Message
    from firearrow.client.routes import TopicRoute

DEFAULT_REGION: Final = "DefaultRegion"
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


class Batch(NamedTuple):
    """Messages of one topic in one request."""

    messages: list[Message]
    body: bytes
    msg_ids: str  # joined by commas
    properties: dict[str, str]


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
    check_topic(message.topic)
    check_body(len(message.body), body_bytes_max)


def check_topic(topic: str) -> None:
    """InvalidMessage unless producers may send to it."""
    problem = topic_problem(topic)
    if problem is not None:
        raise InvalidMessage(problem)


@lru_cache(maxsize=4096)
def topic_problem(topic: str) -> str | None:
    """Why nothing can be sent to a topic; None if it can."""
    if topic in NO_SEND_TOPICS:
        return f"nobody but the broker writes to topic {topic}"
    return check_topic_name(topic)


def check_queue(queue: MessageQueue | None, topic: str) -> None:
    """InvalidMessage if it is a queue of another topic."""
    if queue is not None and queue.topic != topic:
        raise InvalidMessage(f"a message to topic {topic} cannot go to a queue of {queue.topic}")


def check_body(size: int, body_bytes_max: int) -> None:
    if size == 0:
        raise InvalidMessage("the body is empty; RocketMQ wants at least one byte")
    if size > body_bytes_max:
        raise InvalidMessage(f"the body has {size} bytes; the limit is {body_bytes_max}")


def properties_text(properties: Mapping[str, str]) -> str:
    """The properties as they travel; InvalidMessage names the one that cannot."""
    try:
        text = encode_properties(properties)
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidMessage(f"the properties are not text that UTF-8 has: {error}") from None
    except ValueError as error:
        raise InvalidMessage(str(error)) from None
    except TypeError:
        wrong = [name for name, value in properties.items() if not isinstance(value, str)]
        raise InvalidMessage(f"properties are text, which {wrong} are not") from None
    if size > PROPERTIES_BYTES_MAX:
        raise InvalidMessage(
            f"the properties have {size} bytes; the limit is {PROPERTIES_BYTES_MAX}"
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


def batch_envelope(batch: Batch, topic: str) -> Envelope:
    """A batch ready to leave; never compressed."""
    return Envelope(
        RequestCode.SEND_BATCH_MESSAGE,
        topic,
        batch.body,
        batch.msg_ids,
        properties_text(batch.properties),
        "0",
        str(batch.messages[0].flag),
        batch=True,
    )


def check_batch(messages: Sequence[Message]) -> None:
    """InvalidMessage unless these may travel together."""
    if not messages:
        raise InvalidMessage("a batch needs at least one message")
    topic, waits = messages[0].topic, messages[0].wait_stored
    check_topic(topic)
    if is_retry_topic(topic):
        raise InvalidMessage("a batch cannot go to a retry topic")
    for message in messages:
        if message.topic != topic:
            raise InvalidMessage(f"a batch has one topic, not {topic} and {message.topic}")
        properties = message.properties
        if not _DELAYS.isdisjoint(properties):
            raise InvalidMessage("a batch cannot hold delayed messages; send them one by one")
        if (properties.get(names.WAIT) == "false") is waits:
            raise InvalidMessage("in a batch all messages wait for the disk, or none does")


_DELAYS: Final = frozenset(
    {names.DELAY, names.TIMER_DELIVER_MS, names.TIMER_DELAY_MS, names.TIMER_DELAY_SEC}
)


def encode_batches(
    messages: list[Message], msg_ids: list[str], bytes_max: int, *, split: bool = True
) -> list[Batch]:
    """A batch in as few parts as fit; InvalidMessage if one message never does."""
    shared = {} if messages[0].wait_stored else {names.WAIT: "false"}
    batches: list[Batch] = []
    start = 0
    while start < len(messages):
        encoded = encode_messages(messages, start, bytes_max)
        if encoded is None:
            _refuse(messages[start:], bytes_max)
        body, stop = encoded
        if len(body) > bytes_max:
            check_body(len(body), bytes_max)
        if not split and stop < len(messages):
            raise InvalidMessage(
                f"the batch is too large; the limit is {bytes_max} bytes (split=True sends parts)"
            )
        part = messages[start:stop] if batches or stop < len(messages) else messages
        batches.append(Batch(part, body, ",".join(msg_ids[start:stop]), shared))
        start = stop
    return batches


def _refuse(messages: list[Message], bytes_max: int) -> NoReturn:
    """Say which message of a batch cannot be encoded, and why."""
    for message in messages:
        check_body(len(message.body), bytes_max)
        properties_text(message.properties)
    raise InvalidMessage("a message of the batch has a body or a flag that is none")


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


def queue_of(topic: str, queue: MessageQueue) -> MessageQueue:
    """The same queue under another name of its topic."""
    return MessageQueue(topic=topic, broker_name=queue.broker_name, queue_id=queue.queue_id)


def receipt_of(
    answer: Command, sent: Envelope | Message, topic: str, broker_name: str
) -> SendReceipt:
    """Read a broker's answer; raises what it said when the message was not stored."""
    status = _STATUS.get(answer.code)
    if status is None:
        raise error_for(answer.code, answer.remark)
    ext = answer.ext
    return SendReceipt(
        status,
        ext.get("batchUniqId") or sent.msg_id or "",
        ext.get("msgId", ""),
        MessageQueue(topic=topic, broker_name=broker_name, queue_id=int(ext.get("queueId", -1))),
        int(ext.get("queueOffset", -1)),
        ext.get("transactionId"),
        ext.get("recallHandle"),
        ext.get("MSG_REGION") or DEFAULT_REGION,
        ext.get("TRACE_ON") != "false",
    )
