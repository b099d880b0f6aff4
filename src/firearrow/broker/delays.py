"""Delay levels: messages that wait in SCHEDULE_TOPIC_XXXX, one queue per level, until they are due.

The entry of a delayed message holds the time of its delivery instead of a tag's hash, and within a
queue all wait equally long, so the first entry is always the next. Delivering means appending the
message again, to the topic and queue that it was meant for.

After a crash the saved offsets are older than the last deliveries. What was delivered since is in
the log behind the place that was saved with them, so it is counted there and not delivered again.
The place is saved again as the log grows, so that there is never much to read, and only when the
log is on disk up to it: offsets that run ahead of the log would lose what they say was delivered.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import msgspec

from firearrow.hot import StoreMessage, decode_properties
from firearrow.model.delay import parse_delay_levels
from firearrow.model.errors import BrokerError, MessageIllegal
from firearrow.model.message import DELAY, REAL_QUEUE_ID, REAL_TOPIC
from firearrow.model.topic import HALF_TOPIC, SCHEDULE_TOPIC, DataVersion
from firearrow.store.rules import property_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from firearrow.base.runtime import Clock, Timer
    from firearrow.broker.config import BrokerConfig
    from firearrow.broker.topic_table import TopicTable
    from firearrow.hot import Record, ScannedRecord
    from firearrow.store.consume_queue import ConsumeQueue
    from firearrow.store.store import MessageStore

log = logging.getLogger(__name__)

BATCH: Final = 256  # deliveries of one level per turn of the loop
RETRY_MS: Final = 100  # when the store does not take a message
LOOK_AGAIN_MS: Final = 1_000  # at the latest: the wall clock may have been set meanwhile


class DelayOffsets(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`config/delayOffset.json`, with one field of ours that RocketMQ does not read."""

    data_version: DataVersion | None = None
    offset_table: dict[int, int] = {}
    log_offset: int | None = None  # deliveries behind this offset of the log are not counted yet


class DelayService:
    """Delivers what is due, level by level, in order."""

    def __init__(
        self, config: BrokerConfig, store: MessageStore, topics: TopicTable, clock: Clock
    ) -> None:
        self.levels_ms = parse_delay_levels(config.message_delay_level)
        self._store = store
        self._topics = topics
        self._clock = clock
        self._offsets: dict[int, int] = {}  # level to the next queue offset
        self._timers: dict[int, Timer] = {}
        self._running = False
        self._snapshot_end = -1
        self._followed: DelayOffsets | None = None  # of the master, when we are a slave
        self._unlisten: Callable[[], None] = lambda: None
        self.delivered = 0

    # --- life -------------------------------------------------------------------------------

    def load(self, saved: DelayOffsets | None) -> None:
        """Take up where the last broker left off."""
        if saved is None:
            return
        self._offsets = {
            level: offset
            for level, offset in saved.offset_table.items()
            if 0 < level <= len(self.levels_ms)
        }
        if saved.log_offset is not None and self._any_left():
            for level, count in delivered_since(self._store.scan(saved.log_offset)).items():
                self._offsets[level] = self._offsets.get(level, 0) + count

    def follow(self, saved: DelayOffsets) -> None:
        """So far is the master whose slave we are."""
        self._followed = saved
        self._snapshot_end = -1
        self._offsets = dict(saved.offset_table)

    def _any_left(self) -> bool:
        """Whether a level has messages that the offsets do not cover."""
        for level in range(1, len(self.levels_ms) + 1):
            queue = self._store.queue(SCHEDULE_TOPIC, level - 1)
            if queue is not None and queue.max_offset > self.offset(level):
                return True
        return False

    @property
    def changed(self) -> bool:
        """Whether the log has grown since the last snapshot: a delivery makes it grow, too."""
        if self._followed is not None:
            return self._snapshot_end < 0
        return self._store.statistics().end_offset != self._snapshot_end

    def snapshot(self) -> DelayOffsets:
        """To be saved once the log is on disk up to its `log_offset`."""
        self._snapshot_end = self._store.statistics().end_offset
        if self._followed is not None:
            return self._followed
        return DelayOffsets(
            data_version=DataVersion(timestamp=self._clock.now_ms()),
            offset_table=dict(self._offsets),
            log_offset=self._snapshot_end,
        )

    def start(self) -> None:
        self._running = True
        self._unlisten = self._store.listen(self._grown)
        for level in range(1, len(self.levels_ms) + 1):
            queue = self._store.queue(SCHEDULE_TOPIC, level - 1)
            if queue is not None:
                least, most = queue.min_offset, queue.max_offset
                self._offsets[level] = min(max(self._offsets.get(level, 0), least), most)
                self._run_later(level, 0)

    def stop(self) -> None:
        self._running = False
        self._unlisten()
        self._unlisten = lambda: None
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def offset(self, level: int) -> int:
        return self._offsets.get(level, 0)

    # --- delivering -------------------------------------------------------------------------

    def _grown(self, queues: list[ConsumeQueue]) -> None:
        for queue in queues:
            if queue.topic == SCHEDULE_TOPIC and queue.queue_id + 1 not in self._timers:
                self._run_later(queue.queue_id + 1, 0)

    def _run_later(self, level: int, delay_ms: int) -> None:
        if self._running:
            self._timers[level] = self._clock.call_later(delay_ms, lambda: self._run(level))

    def _run(self, level: int) -> None:
        self._timers.pop(level, None)
        if not self._running:
            return
        try:
            wait_ms = self._deliver(level)
        except BrokerError as error:
            log.warning("delayed messages of level %d wait: %s", level, error)
            wait_ms = RETRY_MS
        if wait_ms is not None:
            self._run_later(level, wait_ms)

    def _deliver(self, level: int) -> int | None:
        """Deliver what is due; returns when to come again, None when there is nothing left."""
        queue = self._store.queue(SCHEDULE_TOPIC, level - 1)
        if queue is None:
            return None
        offset = max(self._offsets.get(level, 0), queue.min_offset)
        now_ms = self._clock.now_ms()
        for _ in range(BATCH):
            entry = queue.entry(offset) if offset < queue.max_offset else None
            if entry is None:
                self._offsets[level] = offset
                return None
            physical, _, due_ms = entry
            # Later than its level allows: the clock was set back, and nobody knows how far.
            if now_ms < due_ms <= now_ms + self._delay_of(level):
                self._offsets[level] = offset
                return min(due_ms - now_ms, LOOK_AGAIN_MS)
            record = self._store.lookup.record_at(physical)
            if record is not None:
                self._put(record)
            offset += 1
            self._offsets[level] = offset
        return 0

    def _delay_of(self, level: int) -> int:
        return self.levels_ms[min(level, len(self.levels_ms)) - 1]

    def _put(self, record: Record) -> None:
        properties = decode_properties(record.properties)
        topic = properties.get(REAL_TOPIC)
        queue_id = properties.get(REAL_QUEUE_ID, "0")
        if topic is None or topic == HALF_TOPIC or not queue_id.lstrip("-").isdecimal():
            log.error("delayed message at %d has no destination", record.physical_offset)
            return
        message = StoreMessage(
            topic,
            readable_queue(self._topics, topic, int(queue_id)),
            record.body,
            record.properties.encode(),
            flag=record.flag,
            sys_flag=record.sys_flag,
            born_timestamp=record.born_timestamp,
            born_host=record.born_ip + record.born_port.to_bytes(4, "big"),
            store_host=record.store_ip + record.store_port.to_bytes(4, "big"),
            reconsume_times=record.reconsume_times,
        )
        try:
            self._store.put(message)
        except MessageIllegal as error:
            # It would never be taken, and all others of its level would wait for it.
            log.error("delayed message at %d is given up: %s", record.physical_offset, error)  # noqa: TRY400
            return
        self.delivered += 1


def readable_queue(topics: TopicTable, topic: str, queue_id: int) -> int:
    """A queue that consumers read: the topic may have shrunk while the message waited."""
    known = topics.get(topic)
    if known is None or queue_id < known.read_queue_nums or known.read_queue_nums <= 0:
        return queue_id
    return queue_id % known.read_queue_nums


def delivered_since(records: Iterable[ScannedRecord]) -> dict[int, int]:
    """How many messages of each level were delivered, judging by the records themselves."""
    found: dict[int, int] = {}
    for record in records:
        if record.topic in {SCHEDULE_TOPIC, HALF_TOPIC}:
            continue  # it waits
        if "REAL_TOPIC\x01" not in record.properties:
            continue
        level = property_of(record.properties, DELAY)
        if level is not None and level.isdecimal() and property_of(record.properties, REAL_TOPIC):
            found[int(level)] = found.get(int(level), 0) + 1
    return found
