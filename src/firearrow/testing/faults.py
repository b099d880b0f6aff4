"""A clock that moves only when told."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

SETTLE_TURNS: Final = 5  # turns of the loop that tasks get to react to a timer


class ManualTimer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class ManualClock:
    """Time stands still until `advance`; timers then fire in their order, tasks in between."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._started_ms = now_ms
        self._elapsed_ms = 0
        self._timers: list[tuple[int, int, ManualTimer]] = []
        self._order = itertools.count()

    def now_ms(self) -> int:
        return self._started_ms + self._elapsed_ms

    def elapsed_ms(self) -> int:
        return self._elapsed_ms

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> ManualTimer:
        timer = ManualTimer(callback)
        due_ms = self._elapsed_ms + max(0, delay_ms)
        heapq.heappush(self._timers, (due_ms, next(self._order), timer))
        return timer

    async def sleep(self, delay_ms: int) -> None:
        if delay_ms <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not woken.done():
                woken.set_result(None)

        timer = self.call_later(delay_ms, wake)
        try:
            await woken
        finally:
            timer.cancel()

    async def advance(self, ms: int) -> None:
        """Let so much time pass."""
        assert ms >= 0
        target_ms = self._elapsed_ms + ms
        await self._settle()
        while self._timers and self._timers[0][0] <= target_ms:
            due_ms, _, timer = heapq.heappop(self._timers)
            self._elapsed_ms = max(self._elapsed_ms, due_ms)
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback()
                await self._settle()
        self._elapsed_ms = target_ms
        await self._settle()

    async def _settle(self) -> None:
        for _ in range(SETTLE_TURNS):
            await asyncio.sleep(0)
