"""A scrape of a broker with many topics and groups, beside Prometheus' own library."""

from __future__ import annotations

import asyncio
import dataclasses
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from benchmarks.harness import Measured, Stopwatch, measure_part
from firearrow.broker.broker import Broker
from firearrow.broker.config import BrokerConfig
from firearrow.broker.metric_families import broker_families
from firearrow.metrics.families import pieces

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client.core import Metric

    from firearrow.broker.state import BrokerState
    from firearrow.metrics.families import Family

LABELS = {"cluster": "DefaultCluster", "node_type": "broker", "node_id": "broker-a"}
REMARKS: dict[str, str] = {}


def fill(state: BrokerState, topics: int) -> None:
    """Topics with traffic, and a group for every tenth of them."""
    for number in range(topics):
        topic = f"topic-{number:05}"
        state.statistics.add("TOPIC_PUT_NUMS", topic, 10)
        state.statistics.add("TOPIC_PUT_SIZE", topic, 1_000)
        if number % 10 == 0:
            group = f"group-{number:05}"
            state.statistics.add("GROUP_GET_NUMS", f"{topic}@{group}", 10)
            state.statistics.add("GROUP_GET_SIZE", f"{topic}@{group}", 1_000)
            for queue_id in range(4):
                state.offsets.commit(topic, group, queue_id, 0)


class Collector:
    """The same families, as `prometheus_client` wants them."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = list(families)

    def collect(self) -> Iterator[Metric]:
        for family in self._families:
            if family.kind == "histogram":
                continue
            kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
            samples = list(family.samples)
            names = [*LABELS, *(samples[0][0] if samples else ())]
            metric = kind(family.name, family.help, labels=names)
            for labels, value in samples:
                assert isinstance(value, int | float)
                metric.add_metric([*LABELS.values(), *labels.values()], value)
            yield metric


def ours(count: int, watch: Stopwatch) -> Iterable[bytes]:
    async def run() -> int:
        with tempfile.TemporaryDirectory() as folder:
            broker = Broker(BrokerConfig(store_path_root_dir=Path(folder), listen_port=0))
            await broker.start()
            try:
                fill(broker.state, count)
                lines = 0
                longest = 0.0
                with watch:
                    before = time.perf_counter()
                    for piece in pieces(broker_families(broker.state, list), LABELS):
                        lines += piece.count(b'topic="topic-')
                        await asyncio.sleep(0)
                        after = time.perf_counter()
                        longest = max(longest, after - before)
                        before = after
                REMARKS["ours"] = (
                    f"page in {watch.wall_s * 1e3:.0f} ms, the loop away for "
                    f"{longest * 1e3:.1f} ms at most"
                )
            finally:
                await broker.stop()
            return lines

    return [b"%d" % uvloop.run(run())]


def library(count: int, watch: Stopwatch) -> Iterable[bytes]:
    async def run() -> int:
        with tempfile.TemporaryDirectory() as folder:
            broker = Broker(BrokerConfig(store_path_root_dir=Path(folder), listen_port=0))
            await broker.start()
            try:
                fill(broker.state, count)
                registry = CollectorRegistry(auto_describe=False)
                with watch:
                    registry.register(Collector(broker_families(broker.state, list)))
                    page = generate_latest(registry)
                REMARKS["library"] = f"page in {watch.wall_s * 1e3:.0f} ms, all of it at once"
            finally:
                await broker.stop()
            return page.count(b'topic="topic-')

    return [b"%d" % uvloop.run(run())]


def run() -> list[Measured]:
    results = []
    for key, name, work in (
        ("ours", "scrape of a broker, by topics", ours),
        ("library", "the same by prometheus_client", library),
    ):
        result = measure_part(name, "topics", work, small=200, large=50_000, rounds=3)
        results.append(dataclasses.replace(result, remark=REMARKS[key]))
    return results


if __name__ == "__main__":
    for row in run():
        print(row)
