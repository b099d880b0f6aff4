"""The last hour as plots need it: rates, lag and latency, sampled while the console runs."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from firearrow.console.data.health import number_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from firearrow.client.admin_results import BrokerInfo
    from firearrow.console.data.catalog import GroupRow

SAMPLES_MAX: Final = 720  # an hour of five seconds
GROUPS_SHOWN: Final = 8


@dataclass(frozen=True, slots=True)
class Sample:
    """One moment. Rates are per second since the sample before."""

    at_ms: int
    put_rate: float = 0.0
    get_rate: float = 0.0
    put_p99_ms: float = 0.0
    lag: int = 0
    lags: Mapping[str, int] = field(default_factory=dict)  # of the groups that are most behind
    disk: float = 0.0
    connections_error: int = 0  # brokers that do not answer


@dataclass(frozen=True, slots=True)
class _Totals:
    at_ms: int
    puts: float
    gets: float


class History:
    """Samples, oldest first. Pure: it is told the time and what was seen."""

    def __init__(self) -> None:
        self.samples: deque[Sample] = deque(maxlen=SAMPLES_MAX)
        self._before: dict[str, _Totals] = {}  # by address

    def add(self, now_ms: int, brokers: Sequence[BrokerInfo], groups: Iterable[GroupRow]) -> Sample:
        put_rate = get_rate = 0.0
        for broker in brokers:
            if broker.error is not None or not broker.is_master:
                continue
            now = _Totals(
                now_ms,
                number_of(broker.runtime, "msgPutTotalTodayNow"),
                number_of(broker.runtime, "msgGetTotalTodayNow"),
            )
            before = self._before.get(broker.address)
            self._before[broker.address] = now
            if before is not None and now_ms > before.at_ms:
                seconds = (now_ms - before.at_ms) / 1_000
                # A broker that was started anew counts from 0 again.
                put_rate += max(0.0, now.puts - before.puts) / seconds
                get_rate += max(0.0, now.gets - before.gets) / seconds
        behind = sorted(
            ((row.name, row.lag) for row in groups if not row.system), key=lambda one: -one[1]
        )
        sample = Sample(
            at_ms=now_ms,
            put_rate=round(put_rate, 2),
            get_rate=round(get_rate, 2),
            put_p99_ms=max((number_of(one.runtime, "putLatency99") for one in brokers), default=0),
            lag=sum(lag for _, lag in behind),
            lags=dict(behind[:GROUPS_SHOWN]),
            disk=max((number_of(one.runtime, "commitLogDiskRatio") for one in brokers), default=0),
            connections_error=sum(one.error is not None for one in brokers),
        )
        self.samples.append(sample)
        return sample

    def lag_lines(self) -> dict[str, list[tuple[int, int]]]:
        """Lag over time of the groups that are most behind now."""
        if not self.samples:
            return {}
        names = [name for name, lag in self.samples[-1].lags.items() if lag]
        return {
            name: [(sample.at_ms, sample.lags.get(name, 0)) for sample in self.samples]
            for name in names
        }
