"""Benchmarks run small in every test run, so that they never rot. Nothing here looks at a clock."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Final

import pytest

MODULES: Final = sorted(
    path.stem for path in (Path(__file__).parent.parent / "benchmarks").glob("bench_*.py")
)
# Digests of what the benchmarks produce. Both twins must make the same things.
DIGESTS: Final[dict[str, dict[str, str]]] = {
    "bench_filters": {
        "one comparison, values": "d59eced1",
        "one comparison, records": "d59eced1",
        "three conditions, values": "39fa9ec1",
        "three conditions, records": "39fa9ec1",
        "forty comparisons, values": "5feceb66",
        "forty comparisons, records": "5feceb66",
        "one comparison, queue read through it": "d59eced1",
        "three conditions, queue read through it": "39fa9ec1",
        "a filter in Python, batches of 64": "61d03094",
        "compile three conditions": "c613eb3a",
    },
    "bench_client": {
        "send 1 KiB, one at a time, asyncio": "88820462",
        "send 1 KiB, one at a time, blocking": "88820462",
        "send 1 KiB, 64 threads": "88820462",
        "send 1 KiB, 512 in flight, asyncio": "88820462",
        "send 1 KiB, batches of 32": "88820462",
        "consume 1 KiB, function": "3cbc87c7",
        "consume 1 KiB, coroutine": "3cbc87c7",
        "consume 1 KiB, poll": "3cbc87c7",
    },
    "bench_console": {"console: pages of topics and groups": "8716b7a8"},
    "bench_frames": {
        "split + decode SEND_MESSAGE_V2, JSON": "296fbc40",
        "split + decode SEND_MESSAGE_V2, binary": "296fbc40",
        "encode send reply, JSON": "79b46488",
        "encode record, 1 KiB body": "4927cdfb",
        "scan records, 1 KiB body": "a9fc7adb",
    },
    "bench_listing": {
        "topic ls": "3cbc87c7",
        "group ls": "3cbc87c7",
        "group ls --lag": "3cbc87c7",
    },
    "bench_metrics": {
        "scrape of a broker, by topics": "0b35b06a",
        "the same by prometheus_client": "0b35b06a",
    },
    "bench_offline": {
        "check a store, 1 KiB messages": "63d1e197",
        "dump a store as JSON, 1 KiB messages": "ee9c411f",
        "rebuild a store, dry, 1 KiB messages": "4a6bf96e",
    },
    "bench_replication": {
        "send 1 KiB, one at a time, no slave": "27badc98",
        "send 1 KiB, 64 in flight, no slave": "27badc98",
        "send 1 KiB, one at a time, a slave follows": "27badc98",
        "send 1 KiB, 64 in flight, a slave follows": "27badc98",
        "send 1 KiB, one at a time, a slave is waited for": "27badc98",
        "send 1 KiB, 64 in flight, a slave is waited for": "27badc98",
    },
    "bench_store": {
        "copy 1 KiB of memory": "785b0751",
        "sync 4 KiB": "6e90b5d2",
        "sync 256 KiB": "6e1ae50c",
        "append 100 B, queue entry, warm pages": "65a69990",
        "append 1024 B, queue entry, warm pages": "65a69990",
        "append 1024 B, queue entry and key, warm pages": "65a69990",
        "append 1024 B, queue entry and key, new pages": "65a69990",
        "group commit of 1 KiB, 1 waiting": "6b86b273",
        "group commit of 1 KiB, 64 waiting": "a68b412c",
        "group commit of 1 KiB, 512 waiting": "94f86079",
        "read in order, 32 at a time, 1 KiB": "3cbc87c7",
        "read one anywhere, 1 KiB": "3cbc87c7",
        "look up by key": "3cbc87c7",
        "recover after a kill": "60a33e6c",
        "put and get, a queue for each message": "3cbc87c7",
    },
    "bench_timers": {
        "timers, 1000 due a second": "624b60c5",
        "timers, all due at one moment": "983bd614",
        "timers that wait, put into the wheel": "0604cd31",
    },
}


@pytest.mark.parametrize("module", MODULES)
def test_benchmark_runs_and_produces_what_it_always_did(module: str) -> None:
    results = importlib.import_module(f"benchmarks.{module}").run()
    assert {result.name: result.digest for result in results} == DIGESTS[module]
