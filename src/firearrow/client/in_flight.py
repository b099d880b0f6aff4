"""How many sends may be under way at once; more wait for room, but not for ever."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from firearrow.client.errors import TooManyRequests

if TYPE_CHECKING:
    from firearrow.base.runtime import Clock


class InFlight:
    """Counts what is under way; whoever counts must leave."""

    def __init__(self, limit: int, clock: Clock) -> None:
        self.count = 0
        self._limit = limit
        self._clock = clock
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def full(self) -> bool:
        return self.count >= self._limit

    async def enter(self, deadline_ms: int) -> None:
        """Count in, when there is room; TooManyRequests if there is none in time."""
        if self.full:
            await self._wait(deadline_ms)
        self.count += 1

    async def _wait(self, deadline_ms: int) -> None:
        room: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(room)

        def give_up() -> None:
            if not room.done():
                room.set_exception(TooManyRequests(f"{self._limit} sends are under way already"))

        timer = self._clock.call_later(deadline_ms - self._clock.elapsed_ms(), give_up)
        try:
            await room
        except asyncio.CancelledError:
            if room.done() and not room.cancelled():
                self._give_room()  # somebody else can use it
            raise
        finally:
            timer.cancel()

    def leave(self) -> None:
        """Count out; the one who waits longest goes on."""
        self.count -= 1
        self._give_room()

    def _give_room(self) -> None:
        while self._waiting and not self.full:
            room = self._waiting.popleft()
            if not room.done():
                room.set_result(None)
                return
