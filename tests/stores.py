"""Small stores for tests: every boundary is near."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from firearrow.base.runtime import SystemClock
from firearrow.hot import Record, StoreMessage, decode_record
from firearrow.store.config import FlushDiskType, StoreConfig
from firearrow.store.store import MessageStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterable
    from pathlib import Path

    from firearrow.base.runtime import Clock
    from firearrow.store.reading import Got

FOREVER_MS: Final = 1 << 60
SMALL: Final[dict[str, Any]] = {
    "mapped_file_size_commit_log": 4096,
    "mapped_file_size_consume_queue": 20 * 5,
    "max_hash_slot_num": 7,
    "max_index_num": 12,
    "access_message_in_memory_max_ratio": 100,
    "disk_free_bytes_min": 0,
}


def small_config(root: Path, **settings: Any) -> StoreConfig:
    return StoreConfig(store_path_root_dir=root, **(SMALL | settings))


@contextlib.asynccontextmanager
async def open_store(
    root: Path, clock: Clock | None = None, **settings: Any
) -> AsyncIterator[MessageStore]:
    """A started store; small files unless the settings say otherwise."""
    store = MessageStore(small_config(root, **settings), clock or SystemClock())
    await store.start()
    try:
        yield store
    finally:
        await store.stop()


ASYNC: Final[dict[str, Any]] = {"flush_disk_type": FlushDiskType.ASYNC_FLUSH}


def message(
    body: bytes = b"body",
    *,
    topic: str = "orders",
    queue_id: int = 0,
    tags: str = "",
    keys: str = "",
    **fields: Any,
) -> StoreMessage:
    properties = ""
    if tags:
        properties += f"TAGS\x01{tags}\x02"
    if keys:
        properties += f"KEYS\x01{keys}\x02"
    return StoreMessage(topic, queue_id, body, properties.encode(), **fields)


async def put_all(store: MessageStore, messages: Iterable[StoreMessage]) -> None:
    """Put messages and wait until they are on disk and visible."""
    end = 0
    for one in messages:
        end = store.put(one)
    await store.wait_flushed(end)
    await store.wait_visible(end)


def records_of(got: Got) -> list[Record]:
    """The records of an answer, decoded."""
    records = []
    for piece in got.slices:
        at = 0
        while at < len(piece):
            record = decode_record(piece, at)
            records.append(record)
            at += record.size
    return records


def read_all(
    store: MessageStore,
    topic: str = "orders",
    queue_id: int = 0,
    *,
    codes: Collection[int] | None = None,
) -> list[Record]:
    """Every message of a queue, as a patient consumer would read it."""
    records: list[Record] = []
    offset = store.lookup.min_offset(topic, queue_id)
    while offset < store.lookup.max_offset(topic, queue_id):
        got = store.get(topic, queue_id, offset, 32, codes=codes)
        assert got.next_offset > offset, got
        offset = got.next_offset
        records += records_of(got)
    return records


def bodies(records: Iterable[Record]) -> list[bytes]:
    return [record.body for record in records]
