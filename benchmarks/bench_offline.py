"""The store tools over a log of 1 KiB messages; a GiB holds about 850,000 of them."""

from __future__ import annotations

import atexit
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from benchmarks.harness import Measured, measure
from firearrow import hot
from firearrow.offline.check import check
from firearrow.offline.directory import Shape, StoreDirectory
from firearrow.offline.dump import as_object, dump
from firearrow.offline.log_walk import Damage
from firearrow.offline.rebuild import rebuild

if TYPE_CHECKING:
    from collections.abc import Iterable

BODY: Final = bytes(range(256)) * 4
NOW_MS: Final = 1_794_732_955_000
SHAPE: Final = Shape(index_slots=50_000, index_entries=200_000)


@cache
def store(count: int) -> StoreDirectory:
    """Seven topics of sixteen queues; each message has a key, a unique key and a tag."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    root = Path(folder.name)
    (root / "commitlog").mkdir()
    next_offset: dict[tuple[int, int], int] = {}
    with (root / "commitlog" / f"{0:020d}").open("wb") as file:
        for number in range(count):
            queue = (number % 7, number % 16)
            offset = next_offset[queue] = next_offset.get(queue, -1) + 1
            record = hot.Record(
                f"Topic{queue[0]}",
                BODY,
                f"UNIQ_KEY\x017F0000012E844E0E{number:08X}\x02KEYS\x01k{number}\x02TAGS\x01TagA\x02",
                queue_id=queue[1],
                queue_offset=offset,
                physical_offset=file.tell(),
                store_timestamp=NOW_MS + number // 100,
            )
            file.write(hot.encode_record(record))
        file.truncate(file.tell() + 4096)
    rebuild(StoreDirectory(root, SHAPE))
    return StoreDirectory(root, SHAPE)


def check_store(count: int) -> Iterable[bytes]:
    report = check(StoreDirectory(store(count).root, SHAPE), now_ms=NOW_MS)
    return [repr((report.findings, report.records, report.index_entries)).encode()]


def dump_store(count: int) -> Iterable[bytes]:
    line = b""
    for message in dump(store(count)):
        assert not isinstance(message, Damage)
        line = msgspec.json.encode(as_object(message))
    return [line]


def rebuild_store(count: int) -> Iterable[bytes]:
    return [repr(rebuild(StoreDirectory(store(count).root, SHAPE), dry_run=True)).encode()]


def run() -> list[Measured]:
    size = {"small": 1_000, "large": 200_000}
    return [
        measure("check a store, 1 KiB messages", "records", check_store, **size),
        measure("dump a store as JSON, 1 KiB messages", "records", dump_store, **size),
        measure("rebuild a store, dry, 1 KiB messages", "records", rebuild_store, **size),
    ]
