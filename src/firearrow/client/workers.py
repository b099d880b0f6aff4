"""Where handlers run: plain functions in threads, coroutine functions in tasks on the loop.

Both kinds take work from one queue and begin with a single worker, because waking twenty threads
for messages that take microseconds costs more than the messages. More start as long as work waits
and the workers at hand are slow with it. Results come back to the loop in batches, one wake-up for
all that are ready.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from firearrow.base.runtime import Clock, Service, Timer

log = logging.getLogger(__name__)

W = TypeVar("W")
TICK_MS: Final = 1  # how often it is asked whether more workers are needed
QUICK_PER_TICK: Final = 20  # a worker that does so many pieces of work in a tick is quick enough
TURN_CALLS: Final = 64  # after so many calls that did not wait, or so long, others have a turn
TURN_S: Final = 0.02
STUCK_S: Final = 1.0  # a loop that does not turn for so long is blocked by somebody


class ByPriority(Generic[W]):
    """A deque that gives out the highest priority first; threads may take from it."""

    def __init__(self, priority_of: Callable[[W], int]) -> None:
        self._priority_of = priority_of
        self._levels: dict[int, deque[W]] = {}
        self._highest_first: tuple[deque[W], ...] = ()

    def append(self, work: W) -> None:
        priority = self._priority_of(work)
        level = self._levels.get(priority)
        if level is None:
            level = self._levels[priority] = deque()
            self._highest_first = tuple(
                self._levels[known] for known in sorted(self._levels, reverse=True)
            )
        level.append(work)

    def popleft(self) -> W:
        for level in self._highest_first:
            try:
                return level.popleft()
            except IndexError:
                continue
        raise IndexError("no work")

    def __bool__(self) -> bool:
        return any(self._highest_first)

    def clear(self) -> None:
        for level in self._highest_first:
            level.clear()


class Workers(Protocol[W]):
    """Takes work, hands results back on the loop."""

    def submit(self, work: W) -> None: ...

    async def stop(self, grace_ms: int) -> None: ...

    def running(self) -> list[tuple[W, float]]:
        """What is being worked on, and since when (monotonic seconds)."""
        ...


class ThreadWorkers(Generic[W]):
    """Calls `run(work)` in threads and `done([(work, result), ...])` on the loop."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        run: Callable[[W], Any],
        done: Callable[[list[tuple[W, Any]]], None],
        *,
        workers_max: int,
        priority_of: Callable[[W], int] | None = None,
    ) -> None:
        self._name = name
        self._clock = clock
        self._run = run
        self._done = done
        self._max = workers_max
        self._loop = asyncio.get_running_loop()
        self._work: deque[W] | ByPriority[W] = ByPriority(priority_of) if priority_of else deque()
        self._results: deque[tuple[W, Any]] = deque()
        self._collect_comes = False
        self._idle: list[threading.Semaphore] = []
        self._threads: list[threading.Thread] = []
        self._guard = threading.Lock()  # between going idle and being woken; held for nanoseconds
        self._active = 0
        self._calls = 0  # finished since the last tick; approximate on purpose
        self._ticking: Timer | None = None
        self._stopping = False
        self._running: dict[int, tuple[W, float]] = {}

    def submit(self, work: W) -> None:
        if self._stopping:
            return  # it stays in its window, and comes again to whoever is next
        self._work.append(work)
        with self._guard:
            asleep = self._active == 0
        if asleep:
            self._add_worker()
        if self._ticking is None:
            self._calls = 0
            self._ticking = self._clock.call_later(TICK_MS, self._tick)

    def _tick(self) -> None:
        self._ticking = None
        if not self._work or self._stopping:
            return
        if self._active < self._max and self._calls < QUICK_PER_TICK * max(1, self._active):
            self._add_worker()
        self._calls = 0
        self._ticking = self._clock.call_later(TICK_MS, self._tick)

    def _add_worker(self) -> None:
        with self._guard:
            self._active += 1
            if self._idle:
                self._idle.pop().release()
                return
        number = len(self._threads)
        thread = threading.Thread(
            target=self._serve, args=(number,), name=f"{self._name}-{number}", daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def _serve(self, number: int) -> None:
        """The life of one thread: work while there is some, sleep, work again."""
        work, running, results = self._work, self._running, self._results
        rest = threading.Semaphore(0)
        while True:
            try:
                item = work.popleft()
            except IndexError:
                with self._guard:
                    if work:
                        continue
                    self._active -= 1
                    if self._stopping:
                        return
                    self._idle.append(rest)
                rest.acquire()
                continue
            running[number] = (item, time.monotonic())
            try:
                result = self._run(item)
            except BaseException as error:
                result = error
            del running[number]
            self._calls += 1
            results.append((item, result))
            if not self._collect_comes:
                self._collect_comes = True
                try:
                    self._loop.call_soon_threadsafe(self._collect)
                except RuntimeError:
                    return  # the loop is closed; nobody wants results any more

    def _collect(self) -> None:
        self._collect_comes = False
        results = self._results
        self._done([results.popleft() for _ in range(len(results))])

    async def stop(self, grace_ms: int) -> None:
        """Drop what was not begun, wait a while for what was."""
        self._stopping = True
        self._work.clear()
        if self._ticking is not None:
            self._ticking.cancel()
        await asyncio.to_thread(self._wait_for_rest, time.monotonic() + grace_ms / 1000)
        self._collect()
        with self._guard:
            self._active += len(self._idle)
            while self._idle:
                self._idle.pop().release()

    def _wait_for_rest(self, deadline: float) -> None:
        # A thread is active until its last result is in `_results`; `_running` has gaps.
        while self._active and time.monotonic() < deadline:
            time.sleep(0.002)

    def running(self) -> list[tuple[W, float]]:
        return list(self._running.values())


class TaskWorkers(Generic[W]):
    """Awaits `run(work)` in tasks on the loop, then calls `done([(work, result)])`."""

    def __init__(
        self,
        name: str,
        tasks: Service,
        run: Callable[[W], Awaitable[Any]],
        done: Callable[[list[tuple[W, Any]]], None],
        *,
        workers_max: int,
        priority_of: Callable[[W], int] | None = None,
    ) -> None:
        self._name = name
        self._tasks = tasks
        self._run = run
        self._done = done
        self._max = workers_max
        self._loop = asyncio.get_running_loop()
        self._work: deque[W] | ByPriority[W] = ByPriority(priority_of) if priority_of else deque()
        self._workers: set[asyncio.Task[None]] = set()
        self._start_comes = False
        self._stopping = False
        self._numbers = 0
        self._running: dict[int, tuple[W, float]] = {}

    def submit(self, work: W) -> None:
        if not self._stopping:
            self._work.append(work)
            self._start_soon()

    def _start_soon(self) -> None:
        if not self._start_comes:
            self._start_comes = True
            self._loop.call_soon(self._start)

    def _start(self) -> None:
        """One more worker if work waits; then look again, after it had its first step."""
        self._start_comes = False
        if self._work and len(self._workers) < self._max:
            self._numbers += 1
            task = self._tasks.spawn(self._serve(self._numbers), name=f"{self._name}-handler")
            self._workers.add(task)
            task.add_done_callback(self._workers.discard)
            self._start_soon()

    async def _serve(self, number: int) -> None:
        calls, turn_ends = 0, time.monotonic() + TURN_S
        while self._work:
            now = time.monotonic()
            if calls == TURN_CALLS or now > turn_ends:
                await asyncio.sleep(0)
                calls, turn_ends = 0, time.monotonic() + TURN_S
                continue
            item = self._work.popleft()
            self._running[number] = (item, now)
            try:
                result = await self._run(item)
            except asyncio.CancelledError:
                raise
            except BaseException as error:
                result = error
            finally:
                del self._running[number]
            self._done([(item, result)])
            calls += 1

    async def stop(self, grace_ms: int) -> None:
        """Drop what was not begun, wait a while for what was, then cancel it."""
        self._stopping = True
        self._work.clear()
        if self._workers:
            await asyncio.wait(list(self._workers), timeout=grace_ms / 1000)
        for task in list(self._workers):
            task.cancel()
        if self._workers:
            await asyncio.wait(list(self._workers))

    def running(self) -> list[tuple[W, float]]:
        return list(self._running.values())


class LoopWatch:
    """Notices, from a thread, when the event loop stands still, and says who holds it up.

    An async handler that blocks stops everything on its loop, heartbeats included; after two
    minutes of that the broker gives its queues to others. Whoever wrote it should hear before.
    """

    def __init__(self, name: str, describe: Callable[[], str]) -> None:
        self._name = name
        self._describe = describe
        self._loop = asyncio.get_running_loop()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=f"{name}-watch", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._ended.wait(STUCK_S):
            turned = threading.Event()
            try:
                self._loop.call_soon_threadsafe(turned.set)
            except RuntimeError:
                return
            if turned.wait(STUCK_S) or self._ended.is_set():
                continue
            started = time.monotonic()
            log.warning(
                "%s: the event loop stands still; %s. Use `await`, or a plain function as handler",
                self._name,
                self._describe() or "no handler of ours is running",
            )
            while not turned.wait(STUCK_S) and not self._ended.is_set():
                pass
            log.warning("%s: the loop turns again after %.1f s", self._name,
                        time.monotonic() - started + STUCK_S)  # fmt: skip

    def stop(self) -> None:
        self._ended.set()
