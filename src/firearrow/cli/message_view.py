"""Messages as values to print: rows of a listing, one in full, bodies as text, JSON or hex."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

import msgspec

from firearrow.cli.output import Column, Kind, Record, Table, numbers, printable, text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from firearrow.client.message import ReceivedMessage

BODY_CHARS: Final = 60  # of a body in a listing

COLUMNS: Final = [
    *text("topic", "broker"),
    *numbers("queue", "offset"),
    Column("stored_ms", Kind.TIME),
    *text("tags", "keys"),
    Column("size", Kind.SIZE),
    *text("msg_id", "body"),
]


def row(message: ReceivedMessage) -> list[Any]:
    return [
        message.topic,
        message.broker_name,
        message.queue.queue_id,
        message.queue_offset,
        message.store_timestamp,
        message.tags,
        list(message.keys),
        len(message.body),
        message.msg_id,
        body_text(message.body, BODY_CHARS),
    ]


def table(messages: Iterable[ReceivedMessage]) -> Table:
    return Table(COLUMNS, [row(message) for message in messages])


def body_text(body: bytes, chars: int | None = None) -> str:
    """A body on one line: text if it is text, else its bytes in hex."""
    try:
        shown = printable(body.decode())
    except UnicodeDecodeError:
        shown = body.hex(" ")
    if chars is not None and len(shown) > chars:
        return shown[: chars - 1] + "…"
    return shown


def body_view(body: bytes, view: str) -> str:
    """A body as somebody wants to see it: text, json, hex or base64."""
    if view == "hex":
        return "\n".join(
            f"{at:08x}  {body[at : at + 16].hex(' '):<47}  {_ascii(body[at : at + 16])}"
            for at in range(0, len(body), 16)
        )
    if view == "base64":
        return base64.b64encode(body).decode()
    if view == "json":
        try:
            return msgspec.json.format(body, indent=2).decode()
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return body_text(body)
    return body_text(body)


def _ascii(part: bytes) -> str:
    return "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)


def record(message: ReceivedMessage, view: str = "text") -> Record:
    """One message with all there is to know."""
    return Record(
        {
            "msg_id": message.msg_id,
            "offset_msg_id": message.offset_msg_id,
            "topic": message.topic,
            "tags": message.tags,
            "keys": list(message.keys),
            "broker": message.broker_name,
            "queue": message.queue.queue_id,
            "offset": message.queue_offset,
            "commit_log_offset": message.commit_log_offset,
            "born_ms": message.born_timestamp,
            "stored_ms": message.store_timestamp,
            "born_host": message.born_host,
            "store_host": message.store_host,
            "reconsume_times": message.reconsume_times,
            "system_flag": message.sys_flag,
            "flag": message.flag,
            "size": len(message.body),
            "properties": dict(message.properties),
            "body": body_view(message.body, view),
        }
    )
