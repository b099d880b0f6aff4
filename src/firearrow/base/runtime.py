"""Time and tasks: a clock that tests can move, and services that lose none of their tasks."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

log = logging.getLogger(__name__)


class Timer(Protocol):
    """A callback that was put off; cancelling it twice, or too late, does nothing."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """All the time there is. Nothing in FireArrow reads another clock."""

    def now_ms(self) -> int:
        """Wall-clock time since 1970: what goes into messages and is compared across machines."""
        ...

    def elapsed_ms(self) -> int:
        """Time that never jumps: what timeouts and intervals are measured with."""
        ...

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Timer: ...

    async def sleep(self, delay_ms: int) -> None: ...


class SystemClock:
    """The machine's clock, on the running event loop."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def elapsed_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        return asyncio.get_running_loop().call_later(delay_ms / 1000, callback)

    async def sleep(self, delay_ms: int) -> None:
        await asyncio.sleep(delay_ms / 1000)


@asynccontextmanager
async def time_limit(clock: Clock, limit_ms: int) -> AsyncIterator[None]:
    """`asyncio.timeout` on our clock: TimeoutError when the block takes longer."""
    async with asyncio.timeout(None) as timeout:
        loop = asyncio.get_running_loop()
        timer = clock.call_later(limit_ms, lambda: timeout.reschedule(loop.time()))
        try:
            yield
        finally:
            timer.cancel()


class Service:
    """Something with a life: start it, stop it, and never lose one of its tasks."""

    def __init__(self, name: str, clock: Clock) -> None:
        self.name = name
        self.clock = clock
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]:
        """Run `work` in a task of this service. A failure is logged; nothing is swallowed."""
        task = asyncio.create_task(work, name=f"{self.name}.{name}")
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def every(self, interval_ms: int, work: Callable[[], None], *, name: str) -> None:
        """Call `work` again and again, first after one interval. A failing round is logged."""
        assert interval_ms > 0
        self.spawn(self._repeat(interval_ms, work, name), name=name)

    async def _repeat(self, interval_ms: int, work: Callable[[], None], name: str) -> None:
        while True:
            await self.clock.sleep(interval_ms)
            try:
                work()
            except Exception:
                log.exception("%s: %s failed; it runs again in %d ms", self.name, name, interval_ms)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()):
            log.error("%s failed", task.get_name(), exc_info=failure)

    async def stop_tasks(self) -> None:
        """Cancel what still runs and wait for its end."""
        while tasks := [task for task in self._tasks if task is not asyncio.current_task()]:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
