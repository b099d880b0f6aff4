"""How many messages wait in the timer, topic by topic, and how many come and go."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from firearrow.base.errors import FirearrowError
from firearrow.model.topic import DataVersion
from firearrow.wire import bodies, java_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from firearrow.base.runtime import Clock

log = logging.getLogger(__name__)


class TimerCounts:
    """`config/timermetrics`, and rates of the last seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[str, bodies.TimerMetric] = {}
        self._version = DataVersion()
        self.enqueued = 0
        self.delivered = 0
        self.recalled = 0
        self.enqueue_rate = 0.0
        self.dequeue_rate = 0.0
        self._sampled = (clock.elapsed_ms(), 0, 0)

    def load(self, raw: bytes | None) -> None:
        if raw is None:
            return
        try:
            saved = java_json.decode(raw, bodies.TimerMetrics)
        except FirearrowError as error:
            log.warning("how many messages wait in the timer is not known: %s", error)
            return
        self._waiting = dict(saved.timing_count)
        self._version = saved.data_version

    def add(self, topic: str, change: int) -> None:
        known = self._waiting.get(topic)
        count = change if known is None else known.count + change
        self._waiting[topic] = bodies.TimerMetric(count=count, time_stamp=self._clock.now_ms())

    def waiting(self, topic: str) -> int:
        known = self._waiting.get(topic)
        return 0 if known is None else max(0, known.count)

    @property
    def total(self) -> int:
        return sum(max(0, metric.count) for metric in self._waiting.values())

    def snapshot(self) -> bodies.TimerMetrics:
        return bodies.TimerMetrics(data_version=self._version, timing_count=dict(self._waiting))

    def encode(self, changes: Mapping[str, int]) -> bytes:
        """As they are to be saved: without changes that would be made again after a restart."""
        self._version = DataVersion(
            state_version=self._version.state_version,
            timestamp=self._clock.now_ms(),
            counter=self._version.counter + 1,
        )
        waiting = self._waiting | {
            topic: bodies.TimerMetric(
                count=self._waiting[topic].count - change,
                time_stamp=self._waiting[topic].time_stamp,
            )
            for topic, change in changes.items()
        }
        return java_json.encode(
            bodies.TimerMetrics(data_version=self._version, timing_count=waiting)
        )

    def sample(self) -> None:
        """Work out the rates since the last time."""
        then_ms, enqueued, delivered = self._sampled
        now_ms = self._clock.elapsed_ms()
        seconds = max(1, now_ms - then_ms) / 1_000
        self.enqueue_rate = (self.enqueued - enqueued) / seconds
        self.dequeue_rate = (self.delivered - delivered) / seconds
        self._sampled = (now_ms, self.enqueued, self.delivered)
