"""Messages as an application writes and reads them."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

from firearrow.client.errors import InvalidMessage
from firearrow.hot import decode_properties, offset_message_id
from firearrow.model import message as names
from firearrow.model.compression import compression_of, unpack
from firearrow.model.topic import MessageQueue, is_retry_topic

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from firearrow.hot import Record

# Set through arguments, by the client or by the broker; as user properties they would be lost.
_RESERVED: Final = frozenset(
    {
        names.KEYS,
        names.TAGS,
        names.WAIT,
        names.DELAY,
        names.REAL_TOPIC,
        names.REAL_QUEUE_ID,
        names.RETRY_TOPIC,
        names.UNIQ_KEY,
        names.TRAN_MSG,
        names.PRODUCER_GROUP,
        names.TIMER_DELIVER_MS,
        names.TIMER_DELAY_MS,
        names.TIMER_DELAY_SEC,
    }
)


class Message:
    """A message to send: a topic, bytes, and text properties.

    Args:
        topic: Where it goes.
        body: At least one byte; text is encoded as UTF-8.
        tags: One tag, by which consumers can select.
        keys: Business keys, by which it can be found later: one, or several.
        properties: Anything else; both names and values are text and not empty.
        delay_level: 1 to 18, the broker's ladder from one second to two hours.
        delay_ms: Deliver so many milliseconds from now (RocketMQ 5).
        deliver_at_ms: Deliver at this time, in milliseconds since 1970 (RocketMQ 5).
        sharding_key: Messages with the same key go to the same queue and stay in order.
        priority: The larger the sooner (RocketMQ 5.4): the broker puts it into the queue of that
            number, or the last. Not together with a delay or a sharding key.
        flag: An integer of the application's own, carried along.
        wait_stored: Whether the broker answers only when the message is safe on its disk.
    """

    __slots__ = ("body", "flag", "properties", "topic")

    def __init__(
        self,
        topic: str,
        body: bytes | bytearray | memoryview | str,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        properties: Mapping[str, str] | None = None,
        delay_level: int = 0,
        delay_ms: int | None = None,
        deliver_at_ms: int | None = None,
        sharding_key: str | None = None,
        priority: int | None = None,
        flag: int = 0,
        wait_stored: bool = True,
    ) -> None:
        self.topic = topic
        self.flag = flag
        self.body = body if isinstance(body, bytes) else _as_bytes(body)
        values: dict[str, str] = {}
        self.properties = values
        if properties:
            _add_properties(values, properties)
        if tags:
            values[names.TAGS] = tags
        if keys:
            values[names.KEYS] = keys if isinstance(keys, str) else " ".join(keys)
        if delay_level < 0:
            raise InvalidMessage(f"delay level {delay_level}: levels begin at 1")
        if delay_level:
            values[names.DELAY] = str(delay_level)
        if delay_ms is not None:
            values[names.TIMER_DELAY_MS] = str(delay_ms)
        if deliver_at_ms is not None:
            values[names.TIMER_DELIVER_MS] = str(deliver_at_ms)
        if sharding_key:
            values[names.SHARDING_KEY] = sharding_key
        if priority is not None:
            if priority < 0:
                raise InvalidMessage(f"priority {priority}: priorities begin at 0, the lowest")
            values[names.PRIORITY] = str(priority)
        if not wait_stored:
            values[names.WAIT] = "false"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.topic!r}, {len(self.body)} bytes, {self.properties!r})"

    @property
    def tags(self) -> str | None:
        return self.properties.get(names.TAGS)

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.properties.get(names.KEYS, "").split())

    @property
    def msg_id(self) -> str | None:
        """The id that the producer gives it when it is sent; None before."""
        return self.properties.get(names.UNIQ_KEY)

    @property
    def sharding_key(self) -> str | None:
        return self.properties.get(names.SHARDING_KEY)

    @property
    def priority(self) -> int:
        """0 also for one that names none."""
        text = self.properties.get(names.PRIORITY, "")
        return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0

    @property
    def delay_level(self) -> int:
        return int(self.properties.get(names.DELAY, 0))

    @property
    def wait_stored(self) -> bool:
        return self.properties.get(names.WAIT, "true") != "false"

    @property
    def text(self) -> str:
        """The body as UTF-8 text."""
        return self.body.decode()


def _as_bytes(body: bytearray | memoryview | str) -> bytes:
    if isinstance(body, str):
        return body.encode()
    if isinstance(body, bytearray | memoryview):
        return bytes(body)
    raise InvalidMessage(f"a body must be bytes or text, not {type(body).__name__}")


def _add_properties(values: dict[str, str], given: Mapping[str, str]) -> None:
    for name, value in given.items():
        if name in _RESERVED:
            raise InvalidMessage(
                f"property {name!r} is RocketMQ's own: use the argument of Message for it"
            )
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidMessage(f"property {name!r}: names and values are text")
        values[name] = value


class ReceivedMessage(Message):
    """A message that came from a broker: what was sent, and where and when it was stored.

    Body and properties are decoded when first looked at, in the thread that looks.
    """

    __slots__ = (
        "_body",
        "_properties",
        "_record",
        "broker_name",
        "consume_started_ms",
        "queue_id",
        "queue_offset",
        "reconsume_times",
        "stored_bytes",
    )

    def __init__(self, record: Record, broker_name: str, queue_offset: int | None = None) -> None:
        self._record = record
        self._body: bytes | None = None
        self._properties: dict[str, str] | None = None
        self.topic = record.topic
        self.flag = record.flag
        self.broker_name = broker_name
        self.queue_id = record.queue_id
        self.queue_offset = record.queue_offset if queue_offset is None else queue_offset
        self.reconsume_times = record.reconsume_times
        self.consume_started_ms = 0  # when its handler was called last; 0: not yet
        self.stored_bytes = len(record.body)  # perhaps compressed

    @property
    def properties(self) -> dict[str, str]:
        found = self._properties
        if found is None:
            found = self._properties = decode_properties(self._record.properties)
        return found

    @properties.setter
    def properties(self, value: dict[str, str]) -> None:
        self._properties = value

    @property
    def body(self) -> bytes:
        found = self._body
        if found is None:
            compression = compression_of(self._record.sys_flag)
            stored = self._record.body
            found = stored if compression is None or not stored else unpack(stored, compression)
            self._body = found
        return found

    @body.setter
    def body(self, value: bytes) -> None:
        self._body = value

    @property
    def record_bytes(self) -> int:
        """How long its record in the log is, with topic, properties and body."""
        return self._record.size

    @property
    def msg_id(self) -> str:
        """The producer's id for it; for messages of old producers the broker's."""
        return self.properties.get(names.UNIQ_KEY) or self.offset_msg_id

    @property
    def offset_msg_id(self) -> str:
        """The broker's id for it: where it lies."""
        record = self._record
        return offset_message_id(record.store_ip, record.store_port, record.physical_offset)

    @property
    def transaction_id(self) -> str | None:
        """The id of its transaction, which is the message's own."""
        return self.properties.get(names.UNIQ_KEY)

    @property
    def queue(self) -> MessageQueue:
        """Where it was read from; after a retry not where it was sent to."""
        return MessageQueue(
            topic=self._record.topic, broker_name=self.broker_name, queue_id=self.queue_id
        )

    @property
    def sys_flag(self) -> int:
        return self._record.sys_flag

    @property
    def commit_log_offset(self) -> int:
        return self._record.physical_offset

    @property
    def prepared_offset(self) -> int:
        return self._record.prepared_offset

    @property
    def born_timestamp(self) -> int:
        """When it was sent, in milliseconds since 1970."""
        return self._record.born_timestamp

    @property
    def store_timestamp(self) -> int:
        """When it was stored, in milliseconds since 1970."""
        return self._record.store_timestamp

    @property
    def born_host(self) -> str:
        return _host_text(self._record.born_ip, self._record.born_port)

    @property
    def store_host(self) -> str:
        return _host_text(self._record.store_ip, self._record.store_port)

    def show_original_topic(self, retry_topic: str) -> None:
        """A message of this retry topic is shown under the topic that it was first sent to."""
        if self.topic == retry_topic and is_retry_topic(self.topic):
            self.topic = self.properties.get(names.RETRY_TOPIC, self.topic)


def _host_text(ip: bytes, port: int) -> str:
    if len(ip) == 4:
        return f"{ip[0]}.{ip[1]}.{ip[2]}.{ip[3]}:{port}"
    return f"[{socket.inet_ntop(socket.AF_INET6, ip)}]:{port}"
