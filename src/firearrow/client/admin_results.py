"""What Admin hands out: frozen values, with topics and groups by the application's names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec import structs

from firearrow.client.errors import AlreadyExists
from firearrow.client.trace_format import EndTransaction, Pub, Recall, SubAfter, SubBefore

if TYPE_CHECKING:
    from collections.abc import Iterable

    from msgspec import Struct

    from firearrow.client.trace_format import TraceRecord
    from firearrow.model.topic import MessageQueue


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerInfo:
    """One broker process, and how it says it is doing (`mqadmin brokerStatus` prints the same)."""

    cluster: str
    name: str
    broker_id: int  # 0 is the master
    address: str
    runtime: dict[str, str] = field(default_factory=dict)
    error: str | None = None  # why it does not say how it is doing

    @property
    def is_master(self) -> bool:
        return self.broker_id == 0

    @property
    def version(self) -> str | None:
        return self.runtime.get("brokerVersionDesc")


# --- topics -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStats:
    """Where a queue begins and ends."""

    queue: MessageQueue
    min_offset: int
    max_offset: int
    last_stored_ms: int | None  # None: nothing is in it

    @property
    def messages(self) -> int:
        return self.max_offset - self.min_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicStats:
    """How full a topic is."""

    topic: str
    queues: tuple[QueueStats, ...]
    put_tps: float  # messages a second, over the last minute

    @property
    def messages(self) -> int:
        return sum(queue.messages for queue in self.queues)


# --- progress ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLag:
    """How far a group is in a queue."""

    queue: MessageQueue
    broker_offset: int  # the next message stored gets this
    committed_offset: int  # the next message consumed has this; 0 if nothing was committed
    pulled_offset: int | None  # up to here the group has fetched; old brokers do not say
    last_timestamp_ms: int | None  # when the last consumed message was stored

    @property
    def lag(self) -> int:
        """Messages that wait to be consumed."""
        return max(0, self.broker_offset - self.committed_offset)

    @property
    def in_flight(self) -> int:
        """Those of them that are with consumers already."""
        pulled = self.committed_offset if self.pulled_offset is None else self.pulled_offset
        return max(0, pulled - self.committed_offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLag:
    """How far behind a group is, its retries included."""

    group: str
    queues: tuple[QueueLag, ...]
    consume_tps: float

    @property
    def total(self) -> int:
        return sum(queue.lag for queue in self.queues)

    @property
    def by_topic(self) -> dict[str, int]:
        lags: dict[str, int] = {}
        for one in self.queues:
            lags[one.queue.topic] = lags.get(one.queue.topic, 0) + one.lag
        return lags


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueReset:
    """Where a reset takes a group in one queue."""

    queue: MessageQueue
    committed: int | None  # where it is; None if it has committed nothing
    target: int  # where it goes on
    min_offset: int
    max_offset: int
    kept: bool = False  # it would have gone forward, which only `force` allows

    @property
    def _current(self) -> int:
        if self.committed is None:
            return self.min_offset
        return min(max(self.committed, self.min_offset), self.max_offset)

    @property
    def again(self) -> int:
        """Messages that were consumed and come again; expired ones cannot."""
        return 0 if self.kept else max(0, self._current - self.target)

    @property
    def skipped(self) -> int:
        """Messages that wait and will not be consumed."""
        return 0 if self.kept else max(0, self.target - self._current)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetReset:
    """A reset of a group, made or only looked at."""

    group: str
    topic: str
    queues: tuple[QueueReset, ...]
    dry_run: bool

    @property
    def again(self) -> int:
        return sum(queue.again for queue in self.queues)

    @property
    def skipped(self) -> int:
        return sum(queue.skipped for queue in self.queues)


def plan_queue(
    queue: MessageQueue, *, committed: int | None, wanted: int, ends: tuple[int, int], force: bool
) -> QueueReset:
    """What a reset does to one queue; without force a group only ever goes back."""
    least, most = ends
    target = min(max(wanted, least), most)
    kept = not force and committed is not None and target > committed
    return QueueReset(
        queue=queue,
        committed=committed,
        target=committed if kept and committed is not None else target,
        min_offset=least,
        max_offset=most,
        kept=kept,
    )


# --- traces -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedDelivery:
    """One call of a consumer's handler: before it and, once it ended, after it."""

    before: SubBefore | None
    after: SubAfter | None

    @property
    def group(self) -> str | None:
        if self.before is not None:
            return self.before.group
        return None if self.after is None else self.after.group

    @property
    def success(self) -> bool | None:
        """None while the handler runs, or if nobody wrote down how it ended."""
        return None if self.after is None else self.after.success


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageTrace:
    """What clients wrote down about one message, oldest first."""

    msg_id: str
    published: tuple[Pub, ...] = ()
    deliveries: tuple[TracedDelivery, ...] = ()
    transactions: tuple[EndTransaction, ...] = ()
    recalls: tuple[Recall, ...] = ()


def assemble_trace(msg_id: str, records: Iterable[TraceRecord]) -> MessageTrace:
    """Put the records of one message together; the same record may have been written twice."""
    own = list(dict.fromkeys(record for record in records if record.message_id == msg_id))
    before = {one.request_id: one for one in own if isinstance(one, SubBefore)}
    after = {one.request_id: one for one in own if isinstance(one, SubAfter)}
    deliveries = [
        TracedDelivery(before=before.get(request_id), after=after.get(request_id))
        for request_id in dict.fromkeys((*before, *after))
    ]
    return MessageTrace(
        msg_id=msg_id,
        published=tuple(
            sorted((one for one in own if isinstance(one, Pub)), key=lambda one: one.timestamp_ms)
        ),
        deliveries=tuple(sorted(deliveries, key=_began_ms)),
        transactions=tuple(
            sorted(
                (one for one in own if isinstance(one, EndTransaction)),
                key=lambda one: one.timestamp_ms,
            )
        ),
        recalls=tuple(
            sorted(
                (one for one in own if isinstance(one, Recall)), key=lambda one: one.timestamp_ms
            )
        ),
    )


def _began_ms(delivery: TracedDelivery) -> int:
    if delivery.before is not None:
        return delivery.before.timestamp_ms
    assert delivery.after is not None
    return (delivery.after.timestamp_ms or 0) - delivery.after.cost_ms


def refuse_other(what: str, broker: str, known: Struct, wanted: Struct) -> None:
    """AlreadyExists, naming the settings that differ; nothing if none does."""
    before, after = structs.asdict(known), structs.asdict(wanted)
    keys = [key for key in before if before[key] != after[key]]
    if keys:
        other = "; ".join(f"{key} is {before[key]}, not {after[key]}" for key in keys)
        raise AlreadyExists(f"{what} exists on broker {broker} with other settings: {other}")
