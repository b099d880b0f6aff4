"""What the parts of a push consumer share: its settings, its queues, its progress."""

from __future__ import annotations

import logging
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from firearrow.base.telemetry import RateLimitedLog
from firearrow.client.window import WindowLimits
from firearrow.model.group import ConsumeFromWhere, MessageModel, SubscriptionData
from firearrow.model.topic import retry_topic

if TYPE_CHECKING:
    from firearrow.base.runtime import Clock
    from firearrow.client.calls import Calls
    from firearrow.client.handlers import Handler
    from firearrow.client.message import ReceivedMessage
    from firearrow.client.offset_store import OffsetStore
    from firearrow.client.session import Session
    from firearrow.client.window import Window
    from firearrow.model.topic import MessageQueue

log = logging.getLogger(__name__)

DEFAULT_RECONSUMES: Final = 16
TROUBLE_MS: Final = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """How a push consumer behaves; RocketMQ's defaults."""

    ordered: bool = False
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    consume_timestamp_ms: int | None = None  # for CONSUME_FROM_TIMESTAMP; half an hour ago
    workers_max: int = 20
    pull_batch: int = 32
    pull_batch_bytes: int = 256 * 1024
    pull_interval_ms: int = 0
    limits: WindowLimits = field(default_factory=WindowLimits)
    topic_messages_max: int | None = None  # shared out among the queues of a topic
    topic_bytes_max: int | None = None
    max_reconsume_times: int = -1  # 16 for concurrent, for ever for ordered groups
    suspend_ms: int = 1_000  # an ordered queue pauses so long after a failure
    consume_timeout_ms: int = 15 * 60_000
    slow_handler_ms: int = 10_000  # a handler that runs longer is named in a warning
    stop_grace_ms: int = 5_000  # how long close waits for handlers that are running
    persist_offsets_ms: int = 5_000
    rebalance_ms: int = 20_000
    by_priority: bool = False  # among what was pulled, the highest priority first; not if ordered
    lite: bool = False  # pulled by the application: no retry topic, no send-back

    @property
    def reconsume_times_max(self) -> int:
        if self.max_reconsume_times >= 0:
            return self.max_reconsume_times
        return (1 << 31) - 1 if self.ordered else DEFAULT_RECONSUMES

    @property
    def broadcasting(self) -> bool:
        return self.message_model is MessageModel.BROADCASTING


@dataclass(slots=True)
class Subscription:
    """What is wanted of a topic, and who gets it."""

    data: SubscriptionData  # with the topic's name on the wire
    handler: Handler | None
    tags: frozenset[str] | None = None  # exact filter; None: everything
    # What a broker must have heard before it may serve our pulls. Rebalances tell brokers of newer
    # versions with the same filter; pulls need not wait for those.
    version: int = field(init=False)

    def __post_init__(self) -> None:
        self.version = self.data.sub_version


class Rate:
    """Sums over the last minute, in buckets of ten seconds."""

    __slots__ = ("_buckets",)

    def __init__(self) -> None:
        self._buckets: deque[list[float]] = deque(maxlen=7)

    def add(self, count: float, total: float = 0.0) -> None:
        number = int(time.monotonic()) // 10
        buckets = self._buckets
        if not buckets or buckets[-1][0] != number:
            buckets.append([number, 0.0, 0.0])
        buckets[-1][1] += count
        buckets[-1][2] += total

    def read(self) -> tuple[float, float]:
        """Per second, and the mean of what was counted."""
        oldest = int(time.monotonic()) // 10 - 6
        rows = [row for row in self._buckets if row[0] > oldest]
        count = sum(row[1] for row in rows)
        return count / 60, sum(row[2] for row in rows) / count if count else 0.0

    def total(self) -> int:
        return int(sum(row[1] for row in self._buckets))


@dataclass(slots=True)
class TopicRates:
    """What `mqadmin consumerStatus` shows of one topic."""

    pulls: Rate = field(default_factory=Rate)
    pulled: Rate = field(default_factory=Rate)
    consumed: Rate = field(default_factory=Rate)
    failed: Rate = field(default_factory=Rate)


class ConsumerState:
    """Shared by rebalance, pull loops and consumption; belongs to the event loop."""

    def __init__(
        self,
        session: Session,
        calls: Calls,
        group: str,
        settings: ConsumerSettings,
        offsets: OffsetStore,
    ) -> None:
        self.session = session
        self.clock: Clock = session.clock
        self.calls = calls
        self.group = group  # the application's name for it
        self.wire_group = session.wrap(group)
        self.retry_topic = retry_topic(self.wire_group)
        self.settings = settings
        self.limits = settings.limits
        self.offsets = offsets
        self.subscriptions: dict[str, Subscription] = {}  # by topic on the wire
        self.windows: dict[MessageQueue, Window] = {}
        self.rates: dict[str, TopicRates] = {}
        self.paused = False  # by the application
        self.resets = 0  # under way; meanwhile nothing is pulled either
        self.started_ms = self.clock.now_ms()
        # A broker that is away fails every pull of its queues, once a second each.
        self.trouble = RateLimitedLog(log, TROUBLE_MS)

    @property
    def on_hold(self) -> bool:
        """Whether nothing is to be pulled, and no queue to be taken, for the moment."""
        return self.paused or self.resets > 0

    def rates_of(self, topic: str) -> TopicRates:
        rates = self.rates.get(topic)
        if rates is None:
            rates = self.rates[topic] = TopicRates()
        return rates

    def handler_for(self, message: ReceivedMessage) -> Handler | None:
        """Who gets a message; it is shown under the topic that the application knows.

        A message that comes again belongs to the handler of the topic that it was sent to first.
        If nobody subscribes to that any more, the only handler there is takes it.
        """
        if message.topic == self.retry_topic:
            message.show_original_topic(self.retry_topic)
        subscription = self.subscriptions.get(message.topic)
        if self.session.options.namespace:
            message.topic = self.session.unwrap(message.topic)
        if subscription is not None and subscription.handler is not None:
            return subscription.handler
        handlers = {id(one.handler): one.handler for one in self.subscriptions.values()}
        handlers.pop(id(None), None)
        return next(iter(handlers.values())) if len(handlers) == 1 else None

    def owned(self, topic: str) -> list[MessageQueue]:
        return [queue for queue in self.windows if queue.topic == topic]
