"""Messages with a time of their own: how late they come, and what a million of them cost."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final, cast

import uvloop

from benchmarks.harness import Measured, Stopwatch, measure_part
from firearrow.base.runtime import SystemClock
from firearrow.broker.config import BrokerConfig
from firearrow.broker.timer_admission import park_in_timer
from firearrow.broker.timers import TimerService
from firearrow.broker.topic_table import TopicTable
from firearrow.hot import StoreMessage, decode_record
from firearrow.model.message import TIMER_DELIVER_MS, UNIQ_KEY
from firearrow.store.config import FlushDiskType
from firearrow.store.store import MessageStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from firearrow.broker.state import BrokerState

TOPIC: Final = "orders"
BODY: Final = bytes(100)
A_SECOND: Final = 1_000  # timers due
FAR_MS: Final = 3_600_000
LEAD_MS: Final = 300
REMARKS: dict[str, str] = {}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Bench:
    """A store and a timer, as a broker has them."""

    def __init__(self, root: Path) -> None:
        config = BrokerConfig(
            store_path_root_dir=root,
            flush_disk_type=FlushDiskType.ASYNC_FLUSH,
            timer_max_delay_sec=30 * 24 * 3600,
            disk_free_bytes_min=0,
            disk_space_warning_level_ratio=100,
        )
        clock = SystemClock()
        self.store = MessageStore(config, clock)
        self.timers = TimerService(config, self.store, TopicTable(clock, lambda _: None), clock)
        self._state = cast(
            "BrokerState",
            SimpleNamespace(config=config, clock=clock, store=self.store, timers=self.timers),
        )
        self._sent = self._parked = 0

    async def start(self) -> None:
        await self.store.start()
        self.timers.load()
        self.timers.start()

    async def stop(self) -> None:
        await self.timers.stop()
        await self.store.stop()

    def put(self, due_ms: int) -> None:
        self._sent += 1
        properties = {UNIQ_KEY: f"7F000001{self._sent:08X}", TIMER_DELIVER_MS: str(due_ms)}
        topic, queue_id = park_in_timer(self._state, TOPIC, 0, properties)
        self._parked += topic != TOPIC  # on a busy machine a time may be over already
        text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
        self.store.put(StoreMessage(topic, queue_id, BODY, text.encode()))

    async def fill(self, dues: Iterable[int]) -> None:
        """Put timers, and wait until all of them are in the wheel."""
        for number, due_ms in enumerate(dues):
            self.put(due_ms)
            if number % 200 == 199:
                await asyncio.sleep(0)
        await self.until_enqueued()

    async def until_enqueued(self) -> None:
        while self.timers.queue_offset < self._parked:  # noqa: ASYNC110
            await asyncio.sleep(0.001)

    @property
    def arrived(self) -> int:
        return self.store.lookup.max_offset(TOPIC, 0)

    def lateness(self) -> list[int]:
        """How late each message was stored in its own topic, in milliseconds, sorted."""
        found = []
        offset, stop = 0, self.store.lookup.max_offset(TOPIC, 0)
        while offset < stop:
            got = self.store.get(TOPIC, 0, offset, 1_000)
            for piece in got.slices:
                at = 0
                while at < len(piece):
                    record = decode_record(piece, at)
                    due = record.properties.partition(f"{TIMER_DELIVER_MS}\x01")[2]
                    found.append(record.store_timestamp - int(due.partition("\x02")[0]))
                    at += record.size
            offset = got.next_offset
        return sorted(found)


@contextlib.asynccontextmanager
async def running(root: Path) -> AsyncIterator[Bench]:
    bench = Bench(root)
    await bench.start()
    try:
        yield bench
    finally:
        await bench.stop()


def percentiles(late: list[int]) -> str:
    assert late[0] >= 0, "one was early"
    shares = (0.5, 0.99, 0.999)
    p50, p99, p999 = (late[min(len(late) - 1, int(len(late) * share))] for share in shares)
    return f"late by p50 {p50} ms, p99 {p99} ms, p99.9 {p999} ms, at most {late[-1]} ms"


def anonymous_mebibytes() -> float:
    """Memory that is not a file's: what a process really costs."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    return 0.0


def steady(count: int, watch: Stopwatch) -> Iterable[bytes]:
    """A thousand due in each second, one a millisecond."""

    async def run() -> int:
        with tempfile.TemporaryDirectory() as folder:
            async with running(Path(folder)) as bench:
                begin_ms = now_ms() + LEAD_MS + count // 4
                await bench.fill(begin_ms + number for number in range(count))
                with watch:
                    while bench.arrived < count:  # noqa: ASYNC110
                        await asyncio.sleep(0.01)
                late = bench.lateness()
                REMARKS["steady"] = percentiles(late)
                return len(late)

    return [b"%d" % uvloop.run(run())]


def crowd(count: int, watch: Stopwatch) -> Iterable[bytes]:
    """All due in the same millisecond, while somebody else wants the loop now and then."""

    async def run() -> int:
        with tempfile.TemporaryDirectory() as folder:
            async with running(Path(folder)) as bench:
                due_ms = now_ms() + LEAD_MS + count // 5
                await bench.fill(due_ms for _ in range(count))
                await asyncio.sleep(max(0, due_ms - now_ms()) / 1_000)
                pauses = []
                with watch:
                    before = time.perf_counter()
                    while bench.arrived < count:
                        await asyncio.sleep(0)
                        after = time.perf_counter()
                        pauses.append(after - before)
                        before = after
                pauses.sort()
                longest, p99 = pauses[-1], pauses[int(len(pauses) * 0.99)]
                REMARKS["crowd"] = (
                    f"the loop was away for p99 {p99 * 1e3:.1f} ms, {longest * 1e3:.1f} ms at most"
                )
                return len(bench.lateness())

    return [b"%d" % uvloop.run(run())]


def waiting(count: int, watch: Stopwatch) -> Iterable[bytes]:
    """Many that wait for an hour and more; then a restart among them."""

    async def run() -> int:
        with tempfile.TemporaryDirectory() as folder:
            before = anonymous_mebibytes()
            async with running(Path(folder)) as bench:
                begin_ms = now_ms() + FAR_MS
                with watch:
                    await bench.fill(begin_ms + number * 60 for number in range(count))
                grown = anonymous_mebibytes() - before
            began = time.perf_counter()
            async with running(Path(folder)) as bench:
                opened_ms = (time.perf_counter() - began) * 1e3
                total = bench.timers.counts.total
            REMARKS["waiting"] = (
                f"{grown:.0f} MiB of memory more, opened again in {opened_ms:.0f} ms"
            )
            return total

    return [b"%d" % uvloop.run(run())]


def run() -> list[Measured]:
    rows = [
        ("steady", f"timers, {A_SECOND} due a second", steady, 30, 10_000),
        ("crowd", "timers, all due at one moment", crowd, 300, 50_000),
        ("waiting", "timers that wait, put into the wheel", waiting, 500, 1_000_000),
    ]
    results = []
    for key, name, work, small, large in rows:
        result = measure_part(name, "timers", work, small=small, large=large, rounds=1)
        results.append(dataclasses.replace(result, remark=REMARKS[key]))
    return results


if __name__ == "__main__":
    for row in run():
        print(row)
