"""What a task does: pull its ranges and hand over Arrow batches, fetching ahead in a thread."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition

from firearrow.client.namespaces import wrap
from firearrow.model.group import parse_tags
from firearrow.spark import pool
from firearrow.spark.columns import Batches, unwrapper
from firearrow.spark.puller import RangePuller

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from firearrow.spark.options import ReadOptions
    from firearrow.spark.planning import Range
    from firearrow.spark.puller import PullConnection, Pulled


AHEAD_BYTES: Final = 2 << 20  # pulled and not yet taken by the decoder


@dataclass(frozen=True)
class QueueRanges(InputPartition):
    """The work of one task, and where its brokers were when it was planned."""

    ranges: tuple[Range, ...]
    addresses: tuple[tuple[str, str], ...]

    # A dataclass does not call it, and PySpark looks at `value`.
    value = None


def arrow_schema(schema: StructType) -> pa.Schema:
    """What Spark compares every batch with."""
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - only where there is work

    return to_arrow_schema(schema, timezone="UTC")


def read_partition(
    options: ReadOptions, schema: StructType, names: tuple[str, ...], work: QueueRanges
) -> Iterator[pa.RecordBatch]:
    """All rows of a task's ranges, in the order of their offsets within each."""
    tags = parse_tags(options.tags) if options.tags else None
    wanted_tags = frozenset(tags) if tags else None
    shape = arrow_schema(schema)
    by_broker: dict[str, list[Range]] = {}
    for one in work.ranges:
        by_broker.setdefault(one.queue.broker, []).append(one)
    for broker, ranges in sorted(by_broker.items()):
        unwrap = unwrapper(broker, lenient=not options.fail_on_data_loss)
        batches = Batches(names, shape, unwrap)
        collected = batches.collected
        for pulled in _fetch(options, dict(work.addresses).get(broker), ranges):
            wanted = pulled.range
            collected.add(
                pulled.body,
                broker,
                wanted.start,
                wanted.end,
                pulled.delta,
                wanted_tags,
                check_crc=options.check_bodies,
            )
            pulled.done()
            if collected.rows >= options.batch_rows or collected.size >= options.batch_bytes:
                yield batches.take()
        if collected.rows:
            yield batches.take()


def _fetch(options: ReadOptions, address: str | None, ranges: list[Range]) -> Iterator[Pulled]:
    """Answers for some ranges of one broker, the next ones under way while one is looked at."""

    def connect(wanted: Range, failed: bool) -> PullConnection:  # noqa: FBT001
        where = address
        if where is None or failed:
            where = pool.directory(options).new_address(wanted.queue)
        return pool.borrow(options.connection, where, options.pull_timeout_ms)

    puller = RangePuller(
        options,
        connect,
        lambda used: pool.give_back(options.connection, used),
        lambda name: wrap(options.connection.namespace, name),
    )

    def everything() -> Iterator[Pulled]:
        for wanted in ranges:
            yield from puller.pull(wanted)

    def interrupt() -> None:
        connection = puller.connection
        if connection is not None:
            connection.interrupt()

    try:
        yield from ahead(everything(), interrupt)
    except BaseException:
        puller.close()
        raise
    puller.finish()


def ahead(source: Iterator[Pulled], interrupt: Callable[[], None]) -> Iterator[Pulled]:
    """The same items, taken from `source` by a thread that runs a few megabytes ahead.

    They cross over together: whoever comes takes all that is there. `interrupt` wakes the thread
    when nobody wants the rest.
    """
    fetched: deque[Pulled] = deque()
    state = _Fetching()

    def run() -> None:
        try:
            for item in source:
                with state.changed:
                    fetched.append(item)
                    state.size += len(item.body)
                    if state.waiting:
                        state.changed.notify()
                    while state.size > AHEAD_BYTES and not state.unwanted:
                        state.changed.wait()
                    if state.unwanted:
                        break
        except BaseException as failure:
            state.error = failure
        with state.changed:
            state.ended = True
            state.changed.notify()

    thread = threading.Thread(target=run, name="firearrow-fetch", daemon=True)
    thread.start()
    try:
        while True:
            with state.changed:
                while not fetched and not state.ended:
                    state.waiting = True
                    state.changed.wait()
                state.waiting = False
                taken = list(fetched)
                fetched.clear()
                if state.size > AHEAD_BYTES:
                    state.changed.notify()
                state.size = 0
            yield from taken
            if not taken:
                if state.error is not None:
                    raise state.error
                return
    finally:
        with state.changed:
            state.unwanted = True
            state.changed.notify()
        if not state.ended:
            interrupt()
        thread.join()


class _Fetching:
    """What the two threads tell each other; under the lock of `changed`."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.size = 0  # bytes that wait to be taken
        self.waiting = False  # for something to take
        self.ended = False
        self.unwanted = False
        self.error: BaseException | None = None
