"""The store beside the machine's own limits: copies of memory, and syncs of the disk.

Budget: append of a 1 KiB record (copy, CRC, map, queue entry) in under 1 µs compiled and warm; 512
waiters reach 150,000 group-committed appends/s of 1 KiB where the disk does 900 syncs/s of 256 KiB;
a killed store with 1 GiB in it recovers in under 1 s.

`FIREARROW_BENCH_DIR` says where the files go: the disk that is to be measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import os
import random
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.harness import Measured, Stopwatch, measure, measure_part
from firearrow.base.runtime import SystemClock
from firearrow.hot import StoreMessage
from firearrow.store.config import FlushDiskType, StoreConfig
from firearrow.store.disk import MappedFile, RealDisk
from firearrow.store.store import MessageStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator

BODY: Final = {100: bytes(100), 1024: bytes(range(256)) * 4}
PROPERTIES: Final = (
    b"UNIQ_KEY\x017F0000011DDE4E0E2F2A49FC9F6B%04X\x02WAIT\x01true\x02TAGS\x01TagA\x02"
)
RECORD_REST_BYTES: Final = 300  # what properties and fixed fields add to a body, at the most
FOREVER_MS: Final = 1 << 60
MIB: Final = 1 << 20
PAGE_BYTES: Final = 4096
QUEUES: Final = 8


class WarmDisk(RealDisk):
    """Files whose pages are in memory before they are used."""

    def map(  # type: ignore[override]
        self, path: Path, size: int, *, create: bool = False, head: bytes = b""
    ) -> MappedFile:
        file = super().map(path, size, create=create, head=head)
        if path.parent.name == "commitlog":
            for at in range(0, size, PAGE_BYTES):
                file.buffer[at] = 0
        return file


def message(number: int, body: bytes, topic: str = "orders", queues: int = QUEUES) -> StoreMessage:
    return StoreMessage(topic, number % queues, body, PROPERTIES % (number & 0xFFFF))


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="bench-store-", dir=os.environ.get("FIREARROW_BENCH_DIR")))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.asynccontextmanager
async def store_in(
    path: Path,
    *,
    warm: bool = False,
    **settings: Any,  # noqa: ANN401
) -> AsyncIterator[MessageStore]:
    settings = {"flush_disk_type": FlushDiskType.ASYNC_FLUSH, "disk_free_bytes_min": 0, **settings}
    config = StoreConfig(store_path_root_dir=path, **settings)
    store = MessageStore(config, SystemClock(), disk=WarmDisk() if warm else None)
    await store.start()
    try:
        yield store
    finally:
        await store.stop()


def run_loop(work: Callable[[], Coroutine[Any, Any, list[bytes]]]) -> list[bytes]:
    try:
        import uvloop  # noqa: PLC0415 - what brokers run on, where it is installed
    except ImportError:
        return asyncio.run(work())
    return uvloop.run(work())


async def fill(store: MessageStore, messages: Iterable[StoreMessage]) -> None:
    """Put messages, a few hundred per turn of the loop, until queues and index have followed."""
    for number, one in enumerate(messages):
        store.put(one)
        if number & 0x1FF == 0x1FF:
            await asyncio.sleep(0)
    await store.wait_visible(store.statistics().end_offset)


# --- the machine ------------------------------------------------------------------------------


def copy_memory(count: int) -> list[bytes]:
    source, target = BODY[1024], memoryview(bytearray(64 * MIB))
    at = 0
    for _ in range(count):
        target[at : at + 1024] = source
        at = (at + 1024) & (64 * MIB - 1)
    return [bytes(target[:1024])]


def sync_disk(count: int, size: int, watch: Stopwatch) -> list[bytes]:
    with folder() as path, (path / "file").open("w+b") as file:
        os.posix_fallocate(file.fileno(), 0, size * count)
        with mmap.mmap(file.fileno(), size * count) as memory, watch:
            for number in range(count):
                memory[number * size : number * size + size] = bytes(size)
                os.fdatasync(file.fileno())
    return [size.to_bytes(4, "big")]


# --- writing ----------------------------------------------------------------------------------


def append(count: int, watch: Stopwatch, *, size: int, warm: bool, index: bool) -> list[bytes]:
    """Put, and let queues (and the index) follow. Flushing is measured elsewhere."""

    async def work() -> list[bytes]:
        settings = {
            "mapped_file_size_commit_log": max(4 * MIB, count * (size + RECORD_REST_BYTES)),
            "message_index_enable": index,
            "flush_interval_commit_log": 1 << 30,
        }
        with folder() as path:
            async with store_in(path, warm=warm, **settings) as store:
                await fill(store, [message(number, b"") for number in range(QUEUES)])
                messages = [message(number, BODY[size]) for number in range(count)]
                with watch:
                    await fill(store, messages)
                return [str(store.lookup.max_offset("orders", 0)).encode()]

    return run_loop(work)


def commit_groups(count: int, waiters: int, watch: Stopwatch) -> list[bytes]:
    """Synchronous flush with so many producers, each waiting for its message."""

    async def producer(store: MessageStore, share: int) -> None:
        for number in range(share):
            await store.wait_flushed(store.put(message(number, BODY[1024])))

    async def work() -> list[bytes]:
        with folder() as path:
            sync: dict[str, Any] = {"flush_disk_type": FlushDiskType.SYNC_FLUSH}
            file_bytes = max(4 * MIB, count * 1400)
            async with store_in(path, mapped_file_size_commit_log=file_bytes, **sync) as store:
                await store.wait_flushed(store.put(message(0, b"")))
                with watch:
                    share = count // waiters
                    await asyncio.gather(*(producer(store, share) for _ in range(waiters)))
                return [str(waiters).encode()]

    return run_loop(work)


def fill_many_queues(count: int, watch: Stopwatch) -> list[bytes]:
    """One message to each of many queues, and one read of each."""

    async def work() -> list[bytes]:
        with folder() as path:
            async with store_in(path, mapped_file_size_commit_log=256 * MIB) as store:
                with watch:
                    await fill(
                        store,
                        (message(n, BODY[100], topic="wide", queues=count) for n in range(count)),
                    )
                    found = sum(store.get("wide", queue, 0, 32).count for queue in range(count))
                return [str(found == count).encode()]

    return run_loop(work)


# --- reading ----------------------------------------------------------------------------------


def read(count: int, watch: Stopwatch, ask: Callable[[MessageStore, int], int]) -> list[bytes]:
    """Questions about a store that holds `count` messages of 1 KiB."""

    async def work() -> list[bytes]:
        with folder() as path:
            async with store_in(path, mapped_file_size_commit_log=64 * MIB) as store:
                await fill(store, (message(number, BODY[1024]) for number in range(count)))
                with watch:
                    found = ask(store, count)
                return [str(found == count).encode()]

    return run_loop(work)


def ask_in_order(store: MessageStore, _: int) -> int:
    found = 0
    for queue in range(QUEUES):
        offset, most = 0, store.lookup.max_offset("orders", queue)
        while offset < most:
            got = store.get("orders", queue, offset, 32)
            offset, found = got.next_offset, found + got.count
    return found


def ask_anywhere(store: MessageStore, count: int) -> int:
    chance = random.Random(7)
    most = count // QUEUES
    return sum(
        store.get("orders", chance.randrange(QUEUES), chance.randrange(most), 1).count
        for _ in range(count)
    )


def ask_keys(store: MessageStore, count: int) -> int:
    found = 0
    for number in range(count):
        key = (PROPERTIES % (number & 0xFFFF)).split(b"\x01")[1].split(b"\x02")[0].decode()
        records = store.lookup.by_key("orders", key, limit=64, begin_ms=0, end_ms=FOREVER_MS)
        found += len(records) > 0
    return found


async def write_and_die(path: Path, mib: int) -> None:
    """In a process of its own: fill a store, see it on disk, and end without a word."""
    async with store_in(path, flush_consume_queue_thorough_interval=1 << 40) as store:
        await fill(store, (message(n, BODY[1024]) for n in range(mib * MIB // 1200)))
        await store.wait_flushed(store.statistics().end_offset)
        os._exit(0)


def recover(mib: int, watch: Stopwatch) -> list[bytes]:
    """Open a store whose process was killed, with what its last checkpoint left to do."""

    async def work() -> list[bytes]:
        with folder() as path:
            writer = (
                "import asyncio, pathlib, sys; from benchmarks import bench_store; "
                "where, mib = pathlib.Path(sys.argv[1]), int(sys.argv[2]); "
                "asyncio.run(bench_store.write_and_die(where, mib))"
            )
            subprocess.run([sys.executable, "-c", writer, str(path), str(mib)], check=True)  # noqa: ASYNC221
            killed = MessageStore(StoreConfig(store_path_root_dir=path), SystemClock())
            with watch:
                recovered = await killed.start()
            await killed.stop()
            return [str(recovered.clean).encode()]

    return run_loop(work)


def run_appends(copies: Measured) -> Iterator[Measured]:
    for size, warm, index in (
        (100, True, False),
        (1024, True, False),
        (1024, True, True),
        (1024, False, True),
    ):
        pages = "warm pages" if warm else "new pages"
        entries = "queue entry and key" if index else "queue entry"
        result = measure_part(
            f"append {size} B, {entries}, {pages}",
            "messages",
            partial(append, size=size, warm=warm, index=index),
            small=1_000,
            large=200_000,
            rounds=3,
        )
        yield result.beside(copies.per_second, "copying 1 KiB", body_bytes=size)


def run_commits(small_syncs: Measured, large_syncs: Measured) -> Iterator[Measured]:
    for waiters, large in ((1, 2_000), (64, 64_000), (512, 204_800)):
        result = measure_part(
            f"group commit of 1 KiB, {waiters} waiting",
            "messages",
            lambda n, w, waiters=waiters: commit_groups(n, waiters, w),  # type: ignore[misc]
            small=2 * waiters,
            large=large,
            rounds=3,
        )
        # One waits for one small sync each time; many could fill 256 KiB with each sync.
        if waiters == 1:
            yield result.beside(small_syncs.per_second, "a sync each")
        else:
            per_sync = min(waiters, 256)
            limit = large_syncs.per_second * per_sync
            yield result.beside(limit, f"{per_sync} per sync of 256 KiB")


def run_reads() -> Iterator[Measured]:
    for name, ask in (
        ("read in order, 32 at a time, 1 KiB", ask_in_order),
        ("read one anywhere, 1 KiB", ask_anywhere),
        ("look up by key", ask_keys),
    ):
        yield measure_part(
            name,
            "messages",
            lambda n, w, ask=ask: read(n, w, ask),  # type: ignore[misc]
            small=800,
            large=100_000,
            rounds=3,
        )


def run() -> list[Measured]:
    copies = measure("copy 1 KiB of memory", "copies", copy_memory, small=1_000, large=500_000)
    small_syncs = measure_part(
        "sync 4 KiB", "syncs", lambda n, w: sync_disk(n, 4096, w), small=3, large=1_000, rounds=3
    )
    large_syncs = measure_part(
        "sync 256 KiB",
        "syncs",
        lambda n, w: sync_disk(n, 256 * 1024, w),
        small=3,
        large=400,
        rounds=3,
    )
    return [
        copies,
        small_syncs,
        large_syncs,
        *run_appends(copies),
        *run_commits(small_syncs, large_syncs),
        *run_reads(),
        measure_part("recover after a kill", "MiB", recover, small=1, large=1_024, rounds=1),
        measure_part(
            "put and get, a queue for each message",
            "queues",
            fill_many_queues,
            small=200,
            large=50_000,
            rounds=1,
        ),
    ]
