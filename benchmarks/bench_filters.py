"""SQL92 expressions: evaluations per second and core, alone and on records where they lie.

Budget: 400,000 evaluations per second and core of ``a > 5`` while a queue is read (RabbitMQ 4.2
reports 404,645 on a larger machine).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from benchmarks.bench_store import folder, run_loop, store_in
from benchmarks.harness import Measured, Stopwatch, measure, measure_part
from firearrow.base.runtime import SystemClock
from firearrow.broker.filtering import wanted_records
from firearrow.broker.judging import BATCH_MESSAGES
from firearrow.filters.server import Candidate, FilterLimits, FilterServer
from firearrow.filters.sql import compile_sql
from firearrow.hot import Record, StoreMessage, encode_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ONE: Final = "a > 5"
THREE: Final = "a BETWEEN 3 AND 8 AND region IN ('EU', 'US') AND note IS NULL"
MANY: Final = " OR ".join(f"(a = {number} AND region = 'R{number}')" for number in range(20))
PROPERTIES: Final = (
    "UNIQ_KEY\x017F0000011DDE4E0E2F2A49FC9F6B%04X\x02WAIT\x01true\x02TAGS\x01TagA\x02"
    "TRACE_ON\x01true\x02MSG_REGION\x01DefaultRegion\x02a\x01%d\x02region\x01EU\x02CLUSTER\x01c\x02"
)
BODY: Final = bytes(range(256)) * 4
PYTHON: Final = "def matches(properties, body): return int(properties['a']) > 5"
KINDS: Final = 10  # values of "a": each matches a tenth


def evaluate_values(count: int, expression: str) -> Iterable[bytes]:
    wanted = compile_sql(expression)
    evaluate = wanted.evaluate
    messages = [
        tuple({"a": str(number), "region": "EU"}.get(name) for name in wanted.names)
        for number in range(KINDS)
    ]
    matching = 0
    for _ in range(count // KINDS):
        for values in messages:
            matching += evaluate(*values)
    return [str(matching * 100 // count).encode()]


def evaluate_records(count: int, expression: str) -> Iterable[bytes]:
    matches = wanted_records(compile_sql(expression))
    records = [
        memoryview(encode_record(Record("orders", BODY, PROPERTIES % (number, number))))
        for number in range(KINDS)
    ]
    matching = 0
    for _ in range(count // KINDS):
        for record in records:
            matching += matches(record)
    return [str(matching * 100 // count).encode()]


def read_queue(count: int, watch: Stopwatch, expression: str) -> Iterable[bytes]:
    """Every message of a queue, pulled with a filter, as a consumer would do it."""
    matches = wanted_records(compile_sql(expression))

    async def read() -> list[bytes]:
        with folder() as path:
            async with store_in(path) as store:
                end = 0
                for number in range(count):
                    text = PROPERTIES % (number & 0xFFFF, number % KINDS)
                    end = store.put(StoreMessage("orders", 0, BODY, text.encode()))
                await store.wait_visible(end)
                offset = matching = 0
                with watch:
                    while offset < count:
                        got = store.get("orders", 0, offset, 32, wanted=matches)
                        matching += got.count
                        offset = got.next_offset
        return [str(matching * 100 // count).encode()]

    return run_loop(read)


def judge_elsewhere(count: int, watch: Stopwatch) -> Iterable[bytes]:
    """Messages that a filter in Python judges in its own process; the time is the broker's."""
    messages = [
        Candidate((PROPERTIES % (number, number % KINDS)).encode(), BODY)
        for number in range(BATCH_MESSAGES)
    ]

    async def judge() -> list[bytes]:
        limits = FilterLimits(processes=1, memory_bytes=256 << 20, batch_ms=60_000)
        server = FilterServer(limits, SystemClock(), lambda: None)
        try:
            await server.install("bench", PYTHON, "a benchmark")
            verdicts = await server.judge("bench", messages)  # starts the process
            with watch:
                for _ in range(count // BATCH_MESSAGES):
                    verdicts = await server.judge("bench", messages)
        finally:
            await server.stop()
        return [verdicts]

    return run_loop(judge)


def compile_often(count: int) -> Iterable[bytes]:
    names: tuple[str, ...] = ()
    for _ in range(count):
        names = compile_sql(THREE).names
    return [" ".join(names).encode()]


def run() -> list[Measured]:
    compile_sql(ONE)  # the grammar is read once
    found = []
    named = ((ONE, "one comparison"), (THREE, "three conditions"), (MANY, "forty comparisons"))
    for expression, name in named:
        for what, work in (("values", evaluate_values), ("records", evaluate_records)):
            one: Callable[[int], Iterable[bytes]] = partial(work, expression=expression)
            found.append(measure(f"{name}, {what}", "evaluations", one, small=100, large=200_000))
    for expression, name in named[:2]:
        found.append(
            measure_part(
                f"{name}, queue read through it",
                "messages",
                partial(read_queue, expression=expression),
                small=100,
                large=100_000,
                rounds=3,
            )
        )
    found.append(
        measure_part(
            "a filter in Python, batches of 64",
            "messages",
            judge_elsewhere,
            small=BATCH_MESSAGES,
            large=500 * BATCH_MESSAGES,
            rounds=3,
        )
    )
    found.append(
        measure("compile three conditions", "expressions", compile_often, small=2, large=200)
    )
    return found
