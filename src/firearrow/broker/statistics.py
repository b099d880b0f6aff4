"""Counters that people look at: per topic, per group, per broker; sums over a minute, hour and day.

Counting costs one dictionary look-up and two additions. Sums come from samples that a timer takes:
every ten seconds for the minute, every ten minutes for the hour, every hour for the day. A counter
that rests keeps one sample of each kind, so thousands of idle topics cost little.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from firearrow.base.runtime import Clock

SAMPLE_MS: Final = 10_000
TICKS_PER_HOUR_SAMPLE: Final = 60
TICKS_PER_DAY_SAMPLE: Final = 360
MINUTE_SAMPLES: Final = 6
HOUR_SAMPLES: Final = 6
DAY_SAMPLES: Final = 24
RATE_SECONDS: Final = (10, 60, 600)


def per_second(amount: int, elapsed_ms: int) -> float:
    """A rate. What has just begun is taken for a second old, or its first message is a storm."""
    return amount * 1000 / max(1000, elapsed_ms)


class Sample(NamedTuple):
    """Where a counter stood at a moment."""

    at_ms: int
    amount: int
    times: int


class Sum(NamedTuple):
    """What happened in a window: how much, how often, and in which time."""

    amount: int
    times: int
    elapsed_ms: int

    @property
    def tps(self) -> float:
        return per_second(self.amount, self.elapsed_ms)

    @property
    def average(self) -> float:
        return self.amount / self.times if self.times else 0.0


class Counter:
    """How much, and in how many goes, with samples of three windows, oldest first."""

    __slots__ = ("count", "day", "hour", "minute", "times")

    def __init__(self, now_ms: int) -> None:
        self.count = 0
        self.times = 0
        start = Sample(now_ms, 0, 0)
        self.minute = [start]
        self.hour = [start]
        self.day = [start]

    def sample(self, window: list[Sample], now_ms: int, kept: int) -> None:
        """Note where it stands; nothing happened in the whole window: that is all to remember."""
        if window[0].amount == self.count:
            window.clear()
        window.append(Sample(now_ms, self.count, self.times))
        del window[:-kept]

    def since(self, window: list[Sample], now_ms: int) -> Sum:
        first = window[0]
        return Sum(self.count - first.amount, self.times - first.times, now_ms - first.at_ms)


class Totals(NamedTuple):
    """All that a broker put and got since it started, at some moment."""

    puts: int = 0
    gets: int = 0


class Rates(NamedTuple):
    """A line of the broker's own history; every figure counts from its start."""

    at_ms: int
    puts: int
    found: int
    missed: int
    transferred: int


class BrokerStatistics:
    """Counters by name and key, as RocketMQ names them: ``TOPIC_PUT_NUMS``, ``orders``."""

    def __init__(self, clock: Clock, cluster: str = "DefaultCluster") -> None:
        self._clock = clock
        self._counters: dict[tuple[str, str], Counter] = {}
        self._ticks = 0
        self.started_ms = clock.now_ms()
        self.before_reading: list[Callable[[], None]] = []  # those who count elsewhere
        self.puts = self.counter("BROKER_PUT_NUMS", cluster)
        self.put_bytes = 0
        self.put_failures = 0
        self.gets = self.counter("BROKER_GET_NUMS", cluster)
        self.get_misses = self.counter("GET_MISS", "")
        self.lag_ms = 0  # how late the loop was when it last looked
        self.today_morning = Totals()
        self.yesterday_morning = Totals()
        self._day = self._local_day()
        self._history: deque[Rates] = deque([self._rates_now()], maxlen=61)

    # --- counting ---------------------------------------------------------------------------

    def counter(self, name: str, key: str) -> Counter:
        found = self._counters.get((name, key))
        if found is None:
            found = self._counters[name, key] = Counter(self._clock.elapsed_ms())
        return found

    def add(self, name: str, key: str, count: int = 1, times: int = 1) -> None:
        counter = self._counters.get((name, key)) or self.counter(name, key)
        counter.count += count
        counter.times += times

    def collect(self) -> None:
        """Have everybody's counts here: before they are looked at."""
        for give in self.before_reading:
            give()

    def by_name(self, *names: str) -> dict[str, list[tuple[str, int]]]:
        """Keys and counts of some counters, in one go over all that there are."""
        self.collect()
        found: dict[str, list[tuple[str, int]]] = {name: [] for name in names}
        for (name, key), counter in self._counters.items():
            if name in found:
                found[name].append((key, counter.count))
        return found

    def forget(self, key: str) -> None:
        """A topic or group is gone: so are its counters."""
        for known in [known for known in self._counters if key in known[1].split("@")]:
            del self._counters[known]

    # --- remembering ------------------------------------------------------------------------

    def sample(self) -> None:
        """Remember where every counter stands now."""
        self.collect()
        self._ticks += 1
        now_ms = self._clock.elapsed_ms()
        hourly = self._ticks % TICKS_PER_HOUR_SAMPLE == 0
        daily = self._ticks % TICKS_PER_DAY_SAMPLE == 0
        for counter in self._counters.values():
            counter.sample(counter.minute, now_ms, MINUTE_SAMPLES)
            if hourly:
                counter.sample(counter.hour, now_ms, HOUR_SAMPLES)
            if daily:
                counter.sample(counter.day, now_ms, DAY_SAMPLES)
        self._history.append(self._rates_now())
        if (day := self._local_day()) != self._day:
            self._day = day
            self.yesterday_morning, self.today_morning = self.today_morning, self.totals

    def _local_day(self) -> tuple[int, int]:
        local = time.localtime(self._clock.now_ms() / 1000)
        return local.tm_year, local.tm_yday

    def _rates_now(self) -> Rates:
        return Rates(
            self._clock.elapsed_ms(),
            self.puts.count,
            self.gets.times,
            self.get_misses.count,
            self.gets.count,
        )

    # --- looking ----------------------------------------------------------------------------

    @property
    def totals(self) -> Totals:
        return Totals(self.puts.count, self.gets.count)

    def find(self, name: str, key: str) -> Counter | None:
        self.collect()
        return self._counters.get((name, key))

    def sums(self, name: str, key: str) -> tuple[Sum, Sum, Sum] | None:
        """What happened in the last minute, hour and day; None for what was never counted."""
        counter = self.find(name, key)
        if counter is None:
            return None
        now_ms = self._clock.elapsed_ms()
        return (
            counter.since(counter.minute, now_ms),
            counter.since(counter.hour, now_ms),
            counter.since(counter.day, now_ms),
        )

    def tps(self, name: str, key: str) -> float:
        """Per second in the last minute."""
        sums = self.sums(name, key)
        return 0.0 if sums is None else sums[0].tps

    def rates(self) -> dict[str, tuple[float, ...]]:
        """Per second over 10, 60 and 600 s, of the broker as a whole."""
        now = self._rates_now()
        found: dict[str, list[float]] = {name: [] for name in Rates._fields[1:]}
        for seconds in RATE_SECONDS:
            earliest_ms = now.at_ms - seconds * 1000 - SAMPLE_MS // 2
            then = next(line for line in (*self._history, now) if line.at_ms >= earliest_ms)
            for name, values in found.items():
                grown = getattr(now, name) - getattr(then, name)
                values.append(per_second(grown, now.at_ms - then.at_ms))
        return {name: tuple(values) for name, values in found.items()}
