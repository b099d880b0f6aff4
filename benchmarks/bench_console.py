"""The lists of the console over a broker with many topics and groups: how long a page takes."""

from __future__ import annotations

import asyncio
import dataclasses
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import uvloop

from benchmarks.harness import Measured, Stopwatch, measure_part
from firearrow.base.runtime import SystemClock
from firearrow.broker.broker import Broker
from firearrow.broker.config import BrokerConfig
from firearrow.client.admin import Admin
from firearrow.console.data.catalog import Catalog
from firearrow.console.data.paging import Query
from firearrow.model.group import SubscriptionGroupConfig
from firearrow.model.topic import TopicConfig
from firearrow.nameserver.config import NameServerConfig
from firearrow.nameserver.server import NameServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

PAGES: Final = 200  # looked at, with other words, kinds, orders and places each time
TOPICS_PER_GROUP: Final = 10
REMARKS: dict[str, str] = {}


def fill(broker: Broker, topics: int) -> None:
    """Topics, and a tenth as many groups that have consumed one of them each."""
    state = broker.state
    table = state.topics.all()  # one by one the name server would hear of each
    for number in range(topics):
        name = f"topic-{number:05}"
        table[name] = TopicConfig(topic_name=name, read_queue_nums=4, write_queue_nums=4)
        if number % TOPICS_PER_GROUP == 0:
            group = f"group-{number:05}"
            state.groups.all()[group] = SubscriptionGroupConfig(group_name=group)
            for queue_id in range(4):
                state.offsets.commit(name, group, queue_id, 0)
    state.topics.touch()


def query_of(number: int) -> Query:
    """What somebody may type and click."""
    kinds = ("", "", "normal")
    return Query(
        text=("", "topic", f"{number:03}", "nothing")[number % 4],
        kind=kinds[number % 3],
        sort=("", "queues", "name")[number % 3],
        descending=bool(number % 2),
        page=number * 7 % 50 + 1,
    )


async def look(catalog: Catalog, watch: Stopwatch, key: str, pages: int) -> int:
    """Pages of both lists; how long each took goes into the remark."""
    began = time.perf_counter()
    topics, groups = await asyncio.gather(catalog.topics(fresh=True), catalog.groups(fresh=True))
    fetched_ms = (time.perf_counter() - began) * 1e3
    fetch: tuple[Callable[[Query], Awaitable[object]], ...]
    fetch = (catalog.topic_page, catalog.group_page)
    times = []
    with watch:
        for number in range(pages):
            before = time.perf_counter()
            await fetch[number % 2](query_of(number))
            times.append((time.perf_counter() - before) * 1e3)
    times.sort()
    p50, p99 = times[len(times) // 2], times[int(len(times) * 0.99)]
    REMARKS[key] = (
        f"page p50 {p50:.1f} ms, p99 {p99:.1f} ms; {len(topics.rows):,} topics and "
        f"{len(groups.rows):,} groups fetched in {fetched_ms:.0f} ms"
    )
    return len(topics.by_name) * 1_000_000 + len(groups.by_name)


def lists(count: int, watch: Stopwatch) -> Iterable[bytes]:
    async def run() -> int:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            names = NameServer(
                NameServerConfig(
                    listen_port=0,
                    kv_config_path=root / "kv.json",
                    config_store_path=root / "namesrv.properties",
                )
            )
            await names.start()
            broker = Broker(
                BrokerConfig(
                    store_path_root_dir=root / "store", listen_port=0, namesrv_addr=names.address
                )
            )
            await broker.start()
            try:
                fill(broker, count)
                async with Admin(nameservers=names.address, timeout_ms=30_000) as admin:
                    catalog = Catalog(admin, SystemClock())
                    try:
                        return await look(catalog, watch, "lists", PAGES)
                    finally:
                        await catalog.close()
            finally:
                await broker.stop()
                await names.stop()

    return [b"%d" % uvloop.run(run())]


def run() -> list[Measured]:
    result = measure_part(
        "console: pages of topics and groups", "topics", lists, small=300, large=50_000, rounds=1
    )
    return [dataclasses.replace(result, remark=REMARKS["lists"])]


if __name__ == "__main__":
    for row in run():
        print(row)
