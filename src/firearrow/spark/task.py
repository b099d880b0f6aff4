"""The rows of one task on their way to brokers: several requests at once, results in order."""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final, NamedTuple

from firearrow.base.errors import FirearrowError
from firearrow.base.runtime import SystemClock
from firearrow.client.ids import UniqueKeys, local_ip
from firearrow.client.portal import Call, portal
from firearrow.client.selection import by_key
from firearrow.spark.decisions import Place, Target, Written
from firearrow.spark.errors import ConnectorError
from firearrow.spark.rows import Encoder, placed

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from firearrow.model.topic import MessageQueue
    from firearrow.spark.rows import Placed, Plan
    from firearrow.spark.sink_cluster import SinkCluster
    from firearrow.spark.write_options import WriteOptions

MESSAGE_BYTES_MAX: Final = 4 * 1024 * 1024  # what brokers take unless told otherwise
BUFFERED_BYTES_MAX: Final = 64 * 1024 * 1024
ONE_BROKER_MS: Final = 15_000  # then rows that may go anywhere go to another broker


class RisingClock(SystemClock):
    """Never shows the same millisecond twice: each request has one for its message ids."""

    def __init__(self) -> None:
        self._last_ms = 0

    def now_ms(self) -> int:
        self._last_ms = max(super().now_ms(), self._last_ms + 1)
        return self._last_ms


class _Done(NamedTuple):
    target: Target
    staged: bool
    places: tuple[Place, ...]


class _Waiting:
    """Rows for one queue, or for any queue of a topic, that are no whole request yet."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.size = 0

    def take(self) -> bytes:
        body = self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)
        self.parts, self.size = [], 0
        return body


class Task:
    """Sends what one attempt of one partition has to write.

    `own` are properties of its half messages; None delivers at once.
    """

    def __init__(
        self,
        cluster: SinkCluster,
        options: WriteOptions,
        plan: Plan,
        partition: int,
        own: dict[str, str] | None,
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._plan = plan
        self._own = own
        self._turn = partition
        self._queues: dict[str, tuple[MessageQueue, ...]] = {}
        self._waiting: dict[tuple[str, Target | None], _Waiting] = {}
        self._buffered = 0
        self._in_flight: deque[Future[_Done]] = deque()
        self._last: dict[Target, Future[_Done]] = {}
        self._done: list[_Done] = []
        keys = UniqueKeys(local_ip(), os.getpid(), RisingClock())
        self._encoder = Encoder(plan, options.request_bytes, lambda: keys.next()[:-4])
        self.rows = 0

    def write(self, batches: Iterable[pa.RecordBatch]) -> list[Written]:
        """Send everything; returns where half messages lie, in the order of their rows."""
        try:
            for batch in batches:
                if batch.num_rows:
                    for rows in placed(batch, self._plan, self._options.topic):
                        self._take(rows)
            for key in list(self._waiting):
                self._flush(key)
            while self._in_flight:
                self._settle_one()
        except BaseException:
            for future in self._in_flight:
                future.cancel()
            raise
        return self._written()

    def _take(self, rows: Placed) -> None:
        """Encode rows, and send them when they are enough for a request."""
        target = self._target(rows)
        waiting = self._waiting.setdefault((rows.topic, target), _Waiting())
        limit = self._options.request_bytes
        for body, count in self._encoder.requests(rows.batch, MESSAGE_BYTES_MAX):
            self.rows += count
            if waiting.parts and waiting.size + len(body) > limit:
                self._flush((rows.topic, target))
            waiting.parts.append(body)
            waiting.size += len(body)
            self._buffered += len(body)
            if waiting.size * 4 >= limit * 3:
                self._flush((rows.topic, target))
        while self._buffered > BUFFERED_BYTES_MAX:
            self._flush(max(self._waiting, key=lambda key: self._waiting[key].size))

    def _target(self, rows: Placed) -> Target | None:
        """The queue that rows ask for; None if any will do."""
        if rows.queue_id is not None:
            queues = [
                queue for queue in self._queues_of(rows.topic) if queue.queue_id == rows.queue_id
            ]
            if not queues:
                raise ConnectorError(
                    f"column queueId is {rows.queue_id}, but topic {rows.topic} has queues 0 to "
                    f"{max(queue.queue_id for queue in self._queues_of(rows.topic))}: leave the "
                    "column out, or take a remainder"
                )
            return _target_of(queues[0])
        if rows.sharding_key is not None:
            return _target_of(by_key(self._queues_of(rows.topic), rows.sharding_key))
        return None

    def _queues_of(self, topic: str) -> tuple[MessageQueue, ...]:
        found = self._queues.get(topic)
        if found is None:
            timeout_ms = self._options.delivery_timeout_ms
            found = self._queues[topic] = portal.call(self._cluster.queues, topic, timeout_ms)
        return found

    # --- requests ---------------------------------------------------------------------------

    def _flush(self, key: tuple[str, Target | None]) -> None:
        waiting = self._waiting[key]
        if not waiting.parts:
            return
        self._buffered -= waiting.size
        body = waiting.take()
        topic, target = key
        while len(self._in_flight) >= self._options.requests_in_flight:
            self._settle_one()
        if target is not None and self._own is None and target in self._last:
            # Rows of one key stay in order even if the first of two requests must be sent again.
            self._last[target].result()
        future: Future[_Done] = Future()
        if target is not None:
            self._last[target] = future
            portal.begin(Call(lambda: self._deliver(target, body), future))
        else:
            queues = self._queues_of(topic)
            turn = self._turn = self._turn + 1
            portal.begin(Call(lambda: self._deliver_anywhere(queues, turn, body), future))
        self._in_flight.append(future)

    def _settle_one(self) -> None:
        self._done.append(self._in_flight.popleft().result())

    async def _deliver_anywhere(
        self, queues: tuple[MessageQueue, ...], turn: int, body: bytes
    ) -> _Done:
        """The next queue in turn; when its broker is away for long, one of another broker."""
        turns = [queues[(turn + step) % len(queues)] for step in range(len(queues))]
        brokers = {queue.broker_name: queue for queue in reversed(turns)}
        ordered = sorted(brokers.values(), key=turns.index)
        for queue in ordered[:-1]:
            try:
                return await self._deliver(_target_of(queue), body, ONE_BROKER_MS)
            except FirearrowError:
                continue
        return await self._deliver(_target_of(ordered[-1]), body)

    async def _deliver(self, target: Target, body: bytes, timeout_ms: int | None = None) -> _Done:
        options = self._options
        timeout_ms = timeout_ms or options.delivery_timeout_ms
        if self._own is None:
            await self._cluster.send_batch(target, body, options.group, timeout_ms)
            return _Done(target, staged=False, places=())
        staged, places = await self._cluster.prepare(
            target, body, options.group, self._own, timeout_ms
        )
        return _Done(target, staged, places)

    def _written(self) -> list[Written]:
        found: dict[tuple[Target, bool], list[Place]] = {}
        for done in self._done:
            if done.places:
                found.setdefault((done.target, done.staged), []).extend(done.places)
        return [
            Written(target, staged, tuple(places)) for (target, staged), places in found.items()
        ]


def _target_of(queue: MessageQueue) -> Target:
    return Target(queue.broker_name, queue.topic, queue.queue_id)
