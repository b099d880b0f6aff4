"""Streaming reads: what the driver of a query decides, batch by batch.

    Spark ── latestOffset(start, limit) ──▶ heads of queues, limits, loss ──▶ end
          ── partitions(start, end) ──────▶ tasks                             (reading.py runs them)
          ── commit(end) ─────────────────▶ progress of the group, to brokers

One object of this class lives in a process of its own beside the driver, as long as the query; the
tasks get a copy that only reads.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from firearrow.base.errors import FirearrowError
from firearrow.spark.columns import column_names
from firearrow.spark.directory import Directory
from firearrow.spark.heads import Heads
from firearrow.spark.offsets import from_json, to_json
from firearrow.spark.options import LATEST
from firearrow.spark.planning import plan, ranges_between, share
from firearrow.spark.positions import check_start, resolve
from firearrow.spark.reading import QueueRanges, read_partition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from firearrow.spark.directory import Bounds
    from firearrow.spark.offsets import QueueName
    from firearrow.spark.options import ReadOptions

log = logging.getLogger(__name__)

IDLE_WAIT_MS: Final = 500  # how long one question for news may take when there is none
IDLE_INTERVAL_MS_MAX: Final = 200
ROWS_PER_TASK: Final = 2_000  # a task costs some 25 ms: fewer rows do not deserve one of their own
SAMPLE_AGE_MS: Final = 10_000
RECORD_BYTES_GUESS: Final = 1_024


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Positions, limits and progress of one streaming query."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._names = column_names(schema)
        self._driver: Driver | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_driver": None}

    def _here(self) -> Driver:
        if self._driver is None:
            self._driver = Driver(self._options)
        return self._driver

    # --- asked by Spark, in the driver's process -----------------------------------------------

    def initialOffset(self) -> dict[str, int]:
        return to_json(self._here().initial())

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._options
        if options.trigger_rows_max:
            return ReadMaxRows(options.trigger_rows_max)
        if options.trigger_bytes_max:
            return ReadMaxBytes(options.trigger_bytes_max)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        unlimited = isinstance(limit, ReadAllAvailable)
        found = self._here().latest(from_json(start), limited=not unlimited)
        return start if found is None else to_json(found)

    def reportLatestOffset(self) -> dict[str, int]:
        return to_json({q: place.behind for q, place in self._here().heads.known().items()})

    def prepareForTriggerAvailableNow(self) -> None:
        self._here().freeze()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[QueueRanges]:
        return self._here().tasks(from_json(start), from_json(end))

    def commit(self, end: dict[str, int]) -> None:
        self._here().progress.report(from_json(end), now=False)

    def stop(self) -> None:
        if self._driver is not None:
            self._driver.close()
            self._driver = None

    # --- in tasks -------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, QueueRanges)
        return read_partition(self._options, self._schema, self._names, partition)


class Driver:
    """What a query remembers between Spark's questions."""

    def __init__(self, options: ReadOptions, directory: Directory | None = None) -> None:
        self._options = options
        # Its own, not the pool's: the query's heartbeats end with it.
        self._directory = directory or Directory(
            options.connection,
            retries=options.retries,
            retry_interval_ms=options.retry_interval_ms,
        )
        self.heads = Heads(options, self._directory, elapsed_ms)
        self.progress = Progress(options, self._directory)
        self._target: dict[QueueName, int] | None = None
        self._fired_ms: float | None = None
        self._record_bytes: dict[str, tuple[float, int]] = {}
        self._warned: dict[QueueName, int] = {}
        self._old_handler = on_sigterm()

    def close(self) -> None:
        """Last words to brokers, then hang up."""
        self.progress.flush()
        self._directory.close()
        if self._old_handler is not None:
            signal.signal(signal.SIGTERM, self._old_handler)

    def initial(self) -> dict[QueueName, int]:
        """Where a query without a checkpoint begins."""
        options = self._options
        bounds = self.heads.bounds(age_ms=0)
        start = resolve(
            options.starting,
            bounds,
            self._directory,
            default=LATEST,
            when_no_later_message=options.when_no_later_message,
        )
        return check_start(start, bounds, fail=options.fail_on_data_loss)

    def freeze(self) -> None:
        """From now on nothing is read that is not there at this moment."""
        bounds = self.heads.bounds(age_ms=0)
        self._target = {queue: place.behind for queue, place in bounds.items()}

    # --- how far the next batch goes ------------------------------------------------------------

    def latest(self, start: dict[QueueName, int], *, limited: bool) -> dict[QueueName, int] | None:
        """Where the next batch ends; None to stay at `start`."""
        self.progress.report(start, now=self._reached(start))
        if self._fired_ms is None:
            self._fired_ms = elapsed_ms()
        available = self._wait_for_news(start)
        rows = sum(available.values())
        if not rows:
            return self._ends(start, available) if self._grew(start) else None
        if not self._enough(rows):
            return None
        self._fired_ms = elapsed_ms()
        if limited:
            available = self._limited(start, available)
        return self._ends(start, available)

    def _enough(self, rows: int) -> bool:
        """Whether a batch of so many rows is worth it, or has waited long enough."""
        options = self._options
        if rows >= max(1, options.trigger_rows_min) or self._target is not None:
            return True
        waited_ms = elapsed_ms() - (self._fired_ms or 0)
        return rows > 0 and waited_ms >= options.trigger_delay_max_ms

    def _reached(self, start: Mapping[QueueName, int]) -> bool:
        """Whether an AvailableNow run has nothing left: Spark will not come again."""
        return self._target is not None and all(
            start.get(queue, -1) >= end for queue, end in self._target.items()
        )

    def _grew(self, start: Mapping[QueueName, int]) -> bool:
        """Whether there are queues that the position does not know, all of them empty."""
        return not self.heads.known().keys() <= start.keys()

    def _wait_for_news(self, start: Mapping[QueueName, int]) -> dict[QueueName, int]:
        """Messages that can be read, by queue; waits a moment when there are none."""
        deadline = elapsed_ms() + IDLE_WAIT_MS
        interval = float(self._options.poll_interval_ms)
        while True:
            bounds = self.heads.bounds(age_ms=interval)
            available = self._available(start, bounds)
            if (
                self._enough(sum(available.values()))
                or self._grew(start)
                or elapsed_ms() >= deadline
            ):
                return available
            time.sleep(interval / 1000)
            interval = min(IDLE_INTERVAL_MS_MAX, 1.5 * interval)

    def _available(
        self, start: Mapping[QueueName, int], bounds: Mapping[QueueName, Bounds]
    ) -> dict[QueueName, int]:
        self._look_for_loss(start, bounds)
        available = {}
        for queue, place in bounds.items():
            end = place.behind
            if self._target is not None:
                end = min(end, self._target.get(queue, 0))
            available[queue] = max(0, end - start.get(queue, place.least))
        return available

    def _look_for_loss(
        self, start: Mapping[QueueName, int], bounds: Mapping[QueueName, Bounds]
    ) -> None:
        """Raise, or warn once for each place."""
        fresh = {q: at for q, at in start.items() if self._warned.get(q) != at}
        checked = check_start(fresh, bounds, fail=self._options.fail_on_data_loss)
        self._warned.update((q, at) for q, at in fresh.items() if checked[q] != at)

    def _ends(
        self, start: Mapping[QueueName, int], taken: Mapping[QueueName, int]
    ) -> dict[QueueName, int]:
        """Never backwards; a queue that is gone keeps its place."""
        bounds = self.heads.known()
        ends = {q: start.get(q, bounds[q].least) + rows for q, rows in taken.items()}
        return dict(start) | ends

    def _limited(
        self, start: Mapping[QueueName, int], available: dict[QueueName, int]
    ) -> dict[QueueName, int]:
        options = self._options
        if options.trigger_rows_max:
            available = share(available, options.trigger_rows_max)
        if options.trigger_bytes_max:
            sizes = {q: rows * self._bytes_of(q, start) for q, rows in available.items() if rows}
            if sum(sizes.values()) > options.trigger_bytes_max:
                given = share(sizes, options.trigger_bytes_max)
                available = {
                    q: max(1, rows * given[q] // sizes[q]) if rows else 0
                    for q, rows in available.items()
                }
        return available

    def _bytes_of(self, queue: QueueName, start: Mapping[QueueName, int]) -> int:
        """The length of a record of a topic, learned from a few at where the query is."""
        since, size = self._record_bytes.get(queue.topic, (None, RECORD_BYTES_GUESS))
        if since is None or elapsed_ms() - since > SAMPLE_AGE_MS:
            least = self.heads.known()[queue].least
            try:
                found = self._directory.record_bytes(queue, max(least, start.get(queue, least)))
            except FirearrowError as error:
                log.warning("the length of messages of %s is guessed: %s", queue.topic, error)
                found = None
            size = found or size
            self._record_bytes[queue.topic] = (elapsed_ms(), size)
        return size

    # --- tasks ----------------------------------------------------------------------------------

    def tasks(self, start: dict[QueueName, int], end: dict[QueueName, int]) -> list[QueueRanges]:
        """The tasks of a batch; the same batch is asked for again after a crash."""
        options = self._options
        bounds = self.heads.known()
        new = {q: bounds[q].least if q in bounds else 0 for q in end if q not in start}
        start = check_start(start | new, bounds, fail=options.fail_on_data_loss)
        ranges = ranges_between(start, end)
        if not ranges:
            return []
        rows = sum(one.rows for one in ranges)
        tasks = plan(
            ranges,
            partitions_min=options.partitions_min,
            partitions_max=max(1, min(options.partitions_max, -(-rows // ROWS_PER_TASK))),
            rows_max=options.partition_rows_max,
        )
        addresses = self._directory.addresses(one.queue for one in ranges)
        return [QueueRanges(one, tuple(sorted(addresses.items()))) for one in tasks]


class Progress:
    """Tells brokers how far the group is. Never raises: a query does not end because of it."""

    def __init__(self, options: ReadOptions, directory: Directory) -> None:
        self._group = options.group
        self._interval_ms = options.commit_interval_ms
        self._directory = directory
        self._told: dict[QueueName, int] = {}
        self._pending: dict[QueueName, int] = {}
        self._told_ms: float | None = None
        self._joined: frozenset[str] = frozenset()

    def report(self, offsets: Mapping[QueueName, int], *, now: bool) -> None:
        """Everything before these offsets is processed for good."""
        if self._group is None:
            return
        for queue, offset in offsets.items():
            if offset > self._told.get(queue, -1):
                self._pending[queue] = max(offset, self._pending.get(queue, -1))
        due = self._told_ms is None or elapsed_ms() - self._told_ms >= self._interval_ms
        if self._pending and (now or due):
            self.flush()

    def flush(self) -> None:
        if self._group is None or not self._pending:
            return
        pending, self._pending = self._pending, {}
        self._told_ms = elapsed_ms()
        try:
            topics = frozenset(queue.topic for queue in pending) | self._joined
            if topics != self._joined:
                self._directory.join(self._group, topics)
                self._joined = topics
            self._directory.commit(self._group, pending)
        except FirearrowError as error:
            log.warning("brokers were not told how far group %s is: %s", self._group, error)
            self._pending = pending | self._pending
        else:
            self._told |= pending


def elapsed_ms() -> float:
    return time.monotonic() * 1000


def on_sigterm() -> Any:  # noqa: ANN401 - a handler, or None
    """`query.stop()` ends this process by SIGTERM: have it leave by the door, so `stop` runs."""
    if threading.current_thread() is not threading.main_thread():
        return None
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return None
    return signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
