"""Message traces as text: what clients tell of each message they sent or consumed.

A trace message's body is a run of records. SOH (1) parts the fields of a record, STX (2) ends it:

    Pub ␁ timestamp ␁ region ␁ group ␁ topic ␁ id ␁ … ␁ true ␂ SubBefore ␁ timestamp ␁ … ␂

A record is one message. Versions of RocketMQ differ in the number of fields; we write those of
5.3 and read all. What is missing is printed as the word ``null``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias

from firearrow.base.errors import FirearrowError
from firearrow.model.message import KEY_SEPARATOR

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

FIELD_SEPARATOR: Final = "\x01"
RECORD_END: Final = "\x02"
NULL: Final = "null"

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}")


class TraceFormatError(FirearrowError):
    """A record is not what its type says; the text names the record and the field."""


class TracedMessageType(IntEnum):
    """What kind of message was sent."""

    NORMAL = 0
    TRANSACTION_HALF = 1
    TRANSACTION_COMMIT = 2
    DELAY = 3
    ORDER = 4


class LocalTransactionState(StrEnum):
    """How a transaction was ended, in RocketMQ's spelling."""

    COMMIT_MESSAGE = "COMMIT_MESSAGE"
    ROLLBACK_MESSAGE = "ROLLBACK_MESSAGE"
    UNKNOW = "UNKNOW"


# --- records ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Pub:
    """A message was sent, or was not."""

    timestamp_ms: int
    region_id: str
    group: str
    topic: str
    message_id: str  # the UNIQ_KEY
    tags: str | None = None
    keys: str | None = None
    store_host: str  # the broker's address
    body_bytes: int
    cost_ms: int
    message_type: TracedMessageType = TracedMessageType.NORMAL
    offset_message_id: str | None = None  # not told by the oldest clients
    success: bool
    client_host: str | None = None  # told by clients of 4.x; never written


@dataclass(frozen=True, slots=True, kw_only=True)
class SubBefore:
    """A listener is about to get a message."""

    timestamp_ms: int
    region_id: str
    group: str
    request_id: str  # the same for all messages of one call, before and after it
    message_id: str
    retry_times: int
    keys: str | None = None
    client_host: str | None = None  # told by clients of 4.x; never written


@dataclass(frozen=True, slots=True, kw_only=True)
class SubAfter:
    """A listener is done with a message; no time and no group if its access channel is CLOUD."""

    request_id: str
    message_id: str
    cost_ms: int
    success: bool
    keys: str | None = None
    context_code: int = 0  # why the listener returned; not told by the oldest clients
    timestamp_ms: int | None = None
    group: str | None = None

    def __post_init__(self) -> None:
        if (self.timestamp_ms is None) != (self.group is None):
            raise ValueError("SubAfter has a time and a group, or neither of them")


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransaction:
    """A transaction was ended by its producer, or by an answer to a broker's check."""

    timestamp_ms: int
    region_id: str
    group: str
    topic: str
    message_id: str
    tags: str | None = None
    keys: str | None = None
    store_host: str
    message_type: TracedMessageType = TracedMessageType.TRANSACTION_COMMIT
    transaction_id: str | None = None
    state: LocalTransactionState
    from_check: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """A delayed message was called back."""

    timestamp_ms: int
    region_id: str
    group: str
    topic: str
    message_id: str
    success: bool


TraceRecord: TypeAlias = Pub | SubBefore | SubAfter | EndTransaction | Recall


# --- writing ----------------------------------------------------------------------------------


def encode_trace(records: Iterable[TraceRecord]) -> str:
    """The body of a trace message. ValueError if a field contains one of the separators."""
    return "".join(map(_encode, records))


def trace_keys(records: Iterable[TraceRecord]) -> str:
    """The keys of a trace message: by all of these its readers look for a message's trace."""
    found: dict[str, None] = {}  # a set that keeps its order
    for record in records:
        found[record.message_id] = None
        if not isinstance(record, Recall) and record.keys:
            found |= dict.fromkeys(record.keys.split(KEY_SEPARATOR))
    found.pop("", None)
    return KEY_SEPARATOR.join(found)


def _encode(record: TraceRecord) -> str:
    fields = [type(record).__name__, *map(_text, _fields_of(record))]
    text = FIELD_SEPARATOR.join(fields)
    if text.count(FIELD_SEPARATOR) != len(fields) - 1 or RECORD_END in text:
        raise ValueError(f"a field of {record} contains a separator (character 1 or 2)")
    return text + RECORD_END


def _fields_of(record: TraceRecord) -> tuple[str | int | None, ...]:
    r = record
    match r:
        case Pub():
            return (
                *(r.timestamp_ms, r.region_id, r.group, r.topic, r.message_id, r.tags, r.keys),
                *(r.store_host, r.body_bytes, r.cost_ms, r.message_type),
                *(r.offset_message_id, r.success),
            )
        case SubBefore():
            return (
                *(r.timestamp_ms, r.region_id, r.group, r.request_id),
                *(r.message_id, r.retry_times, r.keys),
            )
        case SubAfter():
            told = (r.request_id, r.message_id, r.cost_ms, r.success, r.keys, r.context_code)
            if r.timestamp_ms is None:
                return (*told, "")  # a separator at the end
            return (*told, r.timestamp_ms, r.group)
        case EndTransaction():
            return (
                *(r.timestamp_ms, r.region_id, r.group, r.topic, r.message_id, r.tags, r.keys),
                *(r.store_host, r.message_type, r.transaction_id, r.state, r.from_check),
            )
        case Recall():
            return r.timestamp_ms, r.region_id, r.group, r.topic, r.message_id, r.success


def _text(value: str | int | None) -> str:
    if value is None:
        return NULL
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


# --- reading ----------------------------------------------------------------------------------


def decode_trace(text: str) -> list[TraceRecord]:
    """The records of a trace message, of any version; types that we do not know are left out.

    TraceFormatError if a record has too few fields or a word where a number should be.
    """
    records: list[TraceRecord] = []
    for part in text.split(RECORD_END):
        fields = _Fields(part.split(FIELD_SEPARATOR))
        if decode := _DECODERS.get(fields.text(0)):
            records.append(decode(fields))
    return records


class _Fields:
    """The fields of one record, with the errors of reading them."""

    __slots__ = ("_fields", "count")

    def __init__(self, fields: Sequence[str]) -> None:
        self._fields = fields
        self.count = len(fields)

    def text(self, index: int) -> str:
        if index >= self.count:
            raise TraceFormatError(
                f"a trace record of type {self._fields[0]} has {self.count} fields; number "
                f"{index + 1} is missing"
            )
        return self._fields[index]

    def maybe(self, index: int) -> str | None:
        text = self.text(index)
        return None if text == NULL else text

    def optional(self, index: int) -> str | None:
        """A field that only some versions have."""
        return self.maybe(index) if index < self.count else None

    def number(self, index: int) -> int:
        text = self.text(index)
        if not _NUMBER.fullmatch(text):
            raise self._wrong(index, "a number")
        return int(text)

    def truth(self, index: int) -> bool:
        return self.text(index).lower() == "true"  # anything else is false, as in Java

    def message_type(self, index: int) -> TracedMessageType:
        try:
            return TracedMessageType(self.number(index))
        except ValueError:
            raise self._wrong(index, "a message type (0 to 4)") from None

    def state(self, index: int) -> LocalTransactionState:
        try:
            return LocalTransactionState(self.text(index))
        except ValueError:
            raise self._wrong(index, "a transaction state") from None

    def _wrong(self, index: int, expected: str) -> TraceFormatError:
        return TraceFormatError(
            f"field {index + 1} of a trace record of type {self._fields[0]} is not {expected}: "
            f"{self._fields[index][:100]!r}"
        )


def _decode_pub(fields: _Fields) -> Pub:
    # 13 fields without the offset id, 14 today, 15 with the client's host.
    has_offset_id = fields.count > 13
    return Pub(
        timestamp_ms=fields.number(1),
        region_id=fields.text(2),
        group=fields.text(3),
        topic=fields.text(4),
        message_id=fields.text(5),
        tags=fields.maybe(6),
        keys=fields.maybe(7),
        store_host=fields.text(8),
        body_bytes=fields.number(9),
        cost_ms=fields.number(10),
        message_type=fields.message_type(11),
        offset_message_id=fields.maybe(12) if has_offset_id else None,
        success=fields.truth(13 if has_offset_id else 12),
        client_host=fields.optional(14),
    )


def _decode_sub_before(fields: _Fields) -> SubBefore:
    return SubBefore(
        timestamp_ms=fields.number(1),
        region_id=fields.text(2),
        group=fields.text(3),
        request_id=fields.text(4),
        message_id=fields.text(5),
        retry_times=fields.number(6),
        keys=fields.maybe(7),
        client_host=fields.optional(8),
    )


def _decode_sub_after(fields: _Fields) -> SubAfter:
    # 6 fields without the code, 7 or 8 (an empty one) for the cloud, 9 today.
    has_group = fields.count > 8
    return SubAfter(
        request_id=fields.text(1),
        message_id=fields.text(2),
        cost_ms=fields.number(3),
        success=fields.truth(4),
        keys=fields.maybe(5),
        context_code=fields.number(6) if fields.count > 6 else 0,
        timestamp_ms=fields.number(7) if has_group else None,
        group=fields.text(8) if has_group else None,
    )


def _decode_end_transaction(fields: _Fields) -> EndTransaction:
    return EndTransaction(
        timestamp_ms=fields.number(1),
        region_id=fields.text(2),
        group=fields.text(3),
        topic=fields.text(4),
        message_id=fields.text(5),
        tags=fields.maybe(6),
        keys=fields.maybe(7),
        store_host=fields.text(8),
        message_type=fields.message_type(9),
        transaction_id=fields.maybe(10),
        state=fields.state(11),
        from_check=fields.truth(12),
    )


def _decode_recall(fields: _Fields) -> Recall:
    return Recall(
        timestamp_ms=fields.number(1),
        region_id=fields.text(2),
        group=fields.text(3),
        topic=fields.text(4),
        message_id=fields.text(5),
        success=fields.truth(6),
    )


_DECODERS: Final[dict[str, Callable[[_Fields], TraceRecord]]] = {
    Pub.__name__: _decode_pub,
    SubBefore.__name__: _decode_sub_before,
    SubAfter.__name__: _decode_sub_after,
    EndTransaction.__name__: _decode_end_transaction,
    Recall.__name__: _decode_recall,
}
