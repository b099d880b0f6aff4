"""Who is alive: the last heartbeat of each replica. Pure state; the clock comes in by arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from firearrow.controller.replicas import Standing

if TYPE_CHECKING:
    from collections.abc import Hashable


@dataclass(slots=True)
class _Pulse:
    heard_ms: int
    timeout_ms: int
    channel: Hashable
    standing: Standing


class Heartbeats:
    """Rule: who has not been heard since we began to listen is neither alive nor dead."""

    def __init__(self) -> None:
        self._pulses: dict[tuple[str, int], _Pulse] = {}
        self._gone: set[tuple[str, int]] = set()  # heard once, and no more
        self._since_ms = 0

    def begin(self, now_ms: int) -> None:
        """Start to listen; what was heard before counts no more."""
        self._pulses.clear()
        self._gone.clear()
        self._since_ms = now_ms

    def heard(
        self,
        name: str,
        broker_id: int,
        *,
        now_ms: int,
        timeout_ms: int,
        channel: Hashable,
        standing: Standing | None = None,
    ) -> None:
        """A heartbeat, or (without a `standing`) a registration, which is a sign of life too."""
        known = self._pulses.get((name, broker_id))
        if standing is None:
            standing = Standing() if known is None else known.standing
        self._gone.discard((name, broker_id))
        self._pulses[name, broker_id] = _Pulse(now_ms, timeout_ms, channel, standing)

    def lost(self, channel: Hashable) -> list[tuple[str, int]]:
        """A connection ended: whoever spoke over it last is gone."""
        gone = [key for key, pulse in self._pulses.items() if pulse.channel is channel]
        self._bury(gone)
        return gone

    def _bury(self, gone: list[tuple[str, int]]) -> None:
        for key in gone:
            del self._pulses[key]
        self._gone.update(gone)

    def forget(self, name: str, broker_id: int) -> None:
        self._pulses.pop((name, broker_id), None)
        self._gone.discard((name, broker_id))

    def expire(self, now_ms: int) -> list[tuple[str, int]]:
        """Who has been silent for too long; they are gone with this."""
        gone = [
            key
            for key, pulse in self._pulses.items()
            if now_ms - pulse.heard_ms >= pulse.timeout_ms
        ]
        self._bury(gone)
        return gone

    def alive(self, name: str) -> dict[int, Standing]:
        return {n: pulse.standing for (of, n), pulse in self._pulses.items() if of == name}

    def is_dead(self, name: str, broker_id: int, *, now_ms: int, patience_ms: int) -> bool:
        """Heard no more, or never, although there has been time enough to hear it."""
        if (name, broker_id) in self._pulses:
            return False
        return (name, broker_id) in self._gone or (now_ms - self._since_ms >= patience_ms)
