"""Which queue a message goes to: in turn, away from slow brokers, or by key. Pure.

Latency fault tolerance is RocketMQ's: a broker that was slow or failed is left alone for a while
that depends on how slow it was.

    latency at least  | 50 | 100 | 550  | 1800 | 3000 | 5000  | 15000 |  ms
    left alone for    | 0  | 0   | 2000 | 5000 | 6000 | 10000 | 30000 |  ms
"""

from __future__ import annotations

import random
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from firearrow.hot import java_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from firearrow.client.message import Message
    from firearrow.model.topic import MessageQueue

    Selector: TypeAlias = Callable[[Sequence[MessageQueue], Message], MessageQueue]

_LATENCIES_MS: Final = (50, 100, 550, 1_800, 3_000, 5_000, 15_000)
_PAUSES_MS: Final = (0, 0, 2_000, 5_000, 6_000, 10_000, 30_000)
ISOLATION_LATENCY_MS: Final = 10_000  # what a failure counts as


def pause_for(latency_ms: int) -> int:
    """How long a broker with this latency is left alone."""
    place = bisect_right(_LATENCIES_MS, latency_ms) - 1
    return _PAUSES_MS[place] if place >= 0 else 0


@dataclass(slots=True)
class _Fault:
    until_ms: int = 0
    reachable: bool = True


class BrokerFaults:
    """Which brokers to avoid, by what was seen of them."""

    def __init__(self) -> None:
        self._faults: dict[str, _Fault] = {}

    def record(
        self, broker: str, latency_ms: int, now_ms: int, *, failed: bool, reachable: bool = True
    ) -> None:
        """A try at this broker took so long, or failed."""
        pause_ms = pause_for(ISOLATION_LATENCY_MS if failed else latency_ms)
        fault = self._faults.setdefault(broker, _Fault())
        fault.until_ms = max(fault.until_ms, now_ms + pause_ms)  # the later end counts
        fault.reachable = reachable

    def available(self, broker: str, now_ms: int) -> bool:
        fault = self._faults.get(broker)
        return fault is None or now_ms >= fault.until_ms

    def reachable(self, broker: str) -> bool:
        fault = self._faults.get(broker)
        return fault is None or fault.reachable


class QueueTurns:
    """Takes queues in turn, from a random start, avoiding the broker that just failed."""

    def __init__(self, faults: BrokerFaults | None = None) -> None:
        self._next = random.randrange(1 << 31)
        self.faults = faults

    def choose(
        self, queues: Sequence[MessageQueue], last_broker: str | None = None, now_ms: int = 0
    ) -> MessageQueue:
        """The next queue; another broker than the last one if there is one."""
        assert queues
        faults = self.faults
        if faults is None:
            if last_broker is None:
                return self._turn(queues)
            return self._first(queues, lambda broker: broker != last_broker)
        if last_broker is not None:
            self._next = random.randrange(1 << 31)
        for accept in (
            lambda broker: faults.available(broker, now_ms) and broker != last_broker,
            lambda broker: faults.reachable(broker) and broker != last_broker,
        ):
            queue = self._find(queues, accept)
            if queue is not None:
                return queue
        return self._turn(queues)

    def _turn(self, queues: Sequence[MessageQueue]) -> MessageQueue:
        self._next = place = (self._next + 1) & 0x7FFFFFFF
        return queues[place % len(queues)]

    def _find(
        self, queues: Sequence[MessageQueue], accept: Callable[[str], bool]
    ) -> MessageQueue | None:
        for _ in queues:
            queue = self._turn(queues)
            if accept(queue.broker_name):
                return queue
        return None

    def _first(self, queues: Sequence[MessageQueue], accept: Callable[[str], bool]) -> MessageQueue:
        return self._find(queues, accept) or self._turn(queues)


def by_key(queues: Sequence[MessageQueue], key: str | int) -> MessageQueue:
    """The queue of a key, as RocketMQ's hash selector finds it: the remainder, without its sign."""
    value = java_hash(key) if isinstance(key, str) else _java_int_hash(key)
    return queues[abs(value) % len(queues)]


def _java_int_hash(value: int) -> int:
    """`hashCode` of an Integer or, beyond 32 bits, of a Long."""
    if -(1 << 31) <= value < 1 << 31:
        return value
    low = (value ^ (value >> 32)) & 0xFFFFFFFF
    return low - (1 << 32) if low >> 31 else low
