"""Pulls whose messages are judged by code of a user, which runs in another process.

A batch of messages is handed over and their verdicts are awaited; then the queue is read once more
and what was wanted is sent. Messages that nobody has judged yet are left for the next pull.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from firearrow.base.errors import RecordError
from firearrow.filters.server import Candidate
from firearrow.hot import decode_record
from firearrow.model.message import FLAG_COMPRESSED, FLAG_COMPRESSION
from firearrow.net.router import reply_for_error

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from firearrow.net.connection import Connection
    from firearrow.store.reading import Got
    from firearrow.store.store import MessageStore
    from firearrow.wire.command import Command
    from firearrow.wire.headers import PullMessageRequest

BATCH_MESSAGES: Final = 64
BATCH_BYTES: Final = 1024 * 1024  # reached by the last message of a batch
ZLIB: Final = 3  # what a compressed body is that does not say


def collect(store: MessageStore, asked: PullMessageRequest) -> dict[int, Candidate]:
    """The next messages of a queue, by their place in the log; none if there are none."""
    batch: dict[int, Candidate] = {}
    size = 0

    def take(record: memoryview) -> bool:
        nonlocal size
        if len(batch) >= BATCH_MESSAGES or size >= BATCH_BYTES:
            return True  # one is found: the reader stops
        try:
            message = decode_record(record, check_crc=False)
        except RecordError:
            return False
        compression = 0
        if message.sys_flag & FLAG_COMPRESSED:
            compression = (message.sys_flag & FLAG_COMPRESSION) >> 8 or ZLIB
        batch[message.physical_offset] = Candidate(
            message.properties.encode("utf-8", "replace"), message.body, compression
        )
        size += len(record)
        return False

    store.get(asked.topic, asked.queue_id, asked.queue_offset, 1, wanted=take)
    return batch


def read_judged(store: MessageStore, asked: PullMessageRequest, verdicts: Mapping[int, int]) -> Got:
    """What a pull gets, as far as there are verdicts, by place in the log."""
    unjudged: list[int] = []

    def is_wanted(record: memoryview) -> bool:
        verdict = verdicts.get(int.from_bytes(record[28:36], "big"))
        if verdict is None:
            unjudged.append(int.from_bytes(record[20:28], "big"))
            return False
        return not unjudged and verdict > 0

    got = store.get(
        asked.topic, asked.queue_id, asked.queue_offset, asked.max_msg_nums, wanted=is_wanted
    )
    if unjudged:
        got.next_offset = min(got.next_offset, unjudged[0])
    return got


async def answer_later(
    connection: Connection, command: Command, answer: Awaitable[Command | None]
) -> None:
    """Answer a pull that was held, when its messages are judged, or with what went wrong."""
    try:
        reply = await answer
    except Exception as error:
        reply = reply_for_error(command, error)
    if reply is not None:
        connection.send_soon(reply)
