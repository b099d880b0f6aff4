"""Finding messages: by id, key, and time with a tag; following the end of a topic; dead letters."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from firearrow.base.errors import FirearrowError
from firearrow.client.errors import InvalidRequest
from firearrow.client.message import Message
from firearrow.console.data.bodies import preview
from firearrow.model import message as names
from firearrow.model.errors import QueryNotFound

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from firearrow.client.admin import Admin
    from firearrow.client.message import ReceivedMessage
    from firearrow.model.topic import MessageQueue

FOUND_MAX: Final = 200
SCANNED_MAX: Final = 20_000  # messages of one search by time
TAIL_MAX: Final = 500  # messages of one look at the end of a topic
# What the next owner of a message sets itself.
_OF_THE_LAST_SEND: Final = frozenset(
    {
        names.UNIQ_KEY,
        names.DELAY,
        names.REAL_TOPIC,
        names.REAL_QUEUE_ID,
        names.RECONSUME_TIME,
        names.MAX_RECONSUME_TIMES,
        names.TRAN_MSG,
        names.RETRY_TOPIC,
        names.ORIGIN_MESSAGE_ID,
    }
)


@dataclass(frozen=True, slots=True)
class Found:
    """Messages, oldest first, and whether that is all."""

    messages: list[ReceivedMessage]
    scanned: int = 0
    complete: bool = True


async def by_id(admin: Admin, msg_id: str, topic: str) -> Found:
    """QueryNotFound if it is not there."""
    return Found([await admin.message_by_id(msg_id.strip(), topic.strip() or None)])


async def by_key(admin: Admin, topic: str, key: str) -> Found:
    found = await admin.messages_by_key(_named(topic), key.strip(), limit=FOUND_MAX)
    return Found(found, complete=len(found) < FOUND_MAX)


async def by_time(
    admin: Admin, topic: str, begin_ms: int, end_ms: int, *, tag: str = "", limit: int = FOUND_MAX
) -> Found:
    """What was stored in a topic from one time to another, perhaps only with a tag."""
    if end_ms < begin_ms:
        raise InvalidRequest("the end of the time is before its beginning")
    queues = await admin.queues(_named(topic))
    found: list[ReceivedMessage] = []
    scanned, complete = 0, True
    for queue in queues:  # each may fill the page: its first messages may be the oldest of all
        room, patience = limit, max(1, SCANNED_MAX // len(queues))
        offset = await admin.offset_at(queue, begin_ms)
        async for message in admin.messages_between(queue, offset):
            if message.store_timestamp > end_ms:
                break
            if room == 0 or patience == 0:
                complete = False
                break
            scanned, patience = scanned + 1, patience - 1
            if message.store_timestamp >= begin_ms and tag.strip() in {"", message.tags}:
                found.append(message)
                room -= 1
    # Of one millisecond, as one broker stored them.
    found.sort(key=lambda one: (one.store_timestamp, one.commit_log_offset))
    return Found(found[:limit], scanned, complete and len(found) <= limit)


def _named(topic: str) -> str:
    if not topic.strip():
        raise InvalidRequest("name a topic")
    return topic.strip()


class Tail:
    """New messages of a topic, from the moment when it was begun."""

    def __init__(self, admin: Admin, topic: str) -> None:
        self._admin = admin
        self._topic = _named(topic)
        self._next: dict[MessageQueue, int] = {}

    async def begin(self, *, back: int = 0) -> None:
        """Start at the end of every queue, or a few messages before it."""
        for queue in await self._admin.queues(self._topic):
            end = await self._admin.max_offset(queue)
            self._next[queue] = max(0, end - back)

    async def more(self) -> list[ReceivedMessage]:
        """What has come since the last look, oldest first."""
        found: list[ReceivedMessage] = []
        for queue, offset in list(self._next.items()):
            async for message in self._admin.messages_between(queue, offset):
                found.append(message)
                self._next[queue] = message.queue_offset + 1
                if len(found) >= TAIL_MAX:
                    break
        return sorted(found, key=lambda one: one.store_timestamp)


async def dead_letters(admin: Admin, group: str, limit: int = FOUND_MAX) -> Found:
    """What a group gave up on, oldest first."""
    found = [message async for message in admin.dlq_messages(group, limit + 1)]
    return Found(found[:limit], len(found), complete=len(found) <= limit)


async def find_again(admin: Admin, message: ReceivedMessage) -> ReceivedMessage:
    """The same message from its place: what a page holds may be old."""
    try:
        return await admin.message_by_id(message.offset_msg_id)
    except FirearrowError as error:
        raise QueryNotFound(f"message {message.msg_id} is gone: {error}") from error


def copy_of(message: ReceivedMessage, topic: str = "") -> Message:
    """A new message with the same body and properties, to the same topic or to another."""
    copy = Message(topic or message.topic, message.body, flag=message.flag)
    copy.properties = {
        name: value for name, value in message.properties.items() if name not in _OF_THE_LAST_SEND
    }
    return copy


# --- rows -------------------------------------------------------------------------------------


def row_of(message: ReceivedMessage, *, may_see: bool) -> dict[str, Any]:
    """A message as a line of a table."""
    return {
        "id": message.msg_id,
        "place": message.offset_msg_id,
        "topic": message.topic,
        "queue": f"{message.broker_name}/{message.queue_id}",
        "offset": message.queue_offset,
        "tags": message.tags or "",
        "keys": " ".join(message.keys),
        "stored": message.store_timestamp,
        "size": message.stored_bytes,
        "times": message.reconsume_times,
        "came": message.properties.get(names.DLQ_ORIGIN_TOPIC)
        or message.properties.get(names.RETRY_TOPIC, ""),
        "body": preview(message.body, may_see=may_see),
    }


def export_json(messages: Iterable[ReceivedMessage], *, may_see: bool) -> bytes:
    """All of them with properties; bodies as text where they are, else in hex."""
    rows = []
    for message in messages:
        row = row_of(message, may_see=may_see) | {"born": message.born_timestamp}
        if may_see:
            try:
                row["body"] = message.body.decode()
            except UnicodeDecodeError:
                row["body"], row["bodyHex"] = "", message.body.hex()
            row["properties"] = dict(message.properties)
        rows.append(row)
    return json.dumps(rows, ensure_ascii=False, indent=1).encode()


def export_csv(messages: Sequence[ReceivedMessage], *, may_see: bool) -> bytes:
    """A table for a spreadsheet, which must not take a body for a formula."""
    out = io.StringIO()
    writer = csv.writer(out)
    columns = ("id", "topic", "queue", "offset", "tags", "keys", "stored", "times", "size", "body")
    writer.writerow(columns)
    for message in messages:
        row = row_of(message, may_see=may_see)
        if may_see:
            row["body"] = message.body.decode("utf-8", "replace")
        writer.writerow([_harmless(row[column]) for column in columns])
    return out.getvalue().encode("utf-8-sig")


def _harmless(value: object) -> object:
    text = str(value)
    return "'" + text if text[:1] in {"=", "+", "-", "@", "\t", "\r"} else value
