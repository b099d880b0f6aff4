"""Ordered consumption: one handler call at a time per queue, and only while its lock is ours.

    locked by the broker ─▶ take the first messages ─▶ handler ─▶ commit ─▶ next
                                   ▲                       │ fails
                                   └── pause, same messages again, in place

A message that fails more often than allowed goes to the retry topic, and from there to the dead
letters, so that the queue can go on.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from firearrow.client.handlers import DEAD_LETTER_LEVEL, NOBODY, Caller, Outcome, Work
from firearrow.client.offset_store import advance

if TYPE_CHECKING:
    from collections.abc import Sequence

    from firearrow.client.consumer_state import ConsumerState
    from firearrow.client.giving_back import GivingBack
    from firearrow.client.message import ReceivedMessage
    from firearrow.client.window import Window

log = logging.getLogger(__name__)

SUSPEND_MS_MIN: Final = 10
SUSPEND_MS_MAX: Final = 30_000
WAIT_FOR_LOCK_MS: Final = 100
YIELD_CALLS: Final = 64
CHECK_SLOW_MS: Final = 1_000


class OrderedConsumption:
    """One task per window that has messages; handlers in threads or on the loop."""

    def __init__(self, state: ConsumerState, caller: Caller, giving_back: GivingBack) -> None:
        self._state = state
        self._caller = caller
        self._giving_back = giving_back
        self._threads = ThreadPoolExecutor(
            state.settings.workers_max, thread_name_prefix=f"consume-{state.group}"
        )
        self._room = asyncio.Semaphore(state.settings.workers_max)
        self._running: dict[Window, asyncio.Task[None]] = {}
        self._calls: dict[Window, tuple[Work, int]] = {}
        self._warned: set[int] = set()
        self._stopping = False

    def start(self) -> None:
        self._state.session.every(CHECK_SLOW_MS, self._name_the_slow, name="slow-handlers")

    async def stop(self) -> None:
        """Let the handlers that are running finish, begin no others."""
        self._stopping = True
        tasks = [task for window, task in self._running.items() if window in self._calls]
        if tasks:
            await asyncio.wait(tasks, timeout=self._state.settings.stop_grace_ms / 1000)
        for task in list(self._running.values()):
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def submit(self, window: Window, messages: Sequence[ReceivedMessage]) -> None:
        """Messages were put into a window; somebody must work on it."""
        del messages  # they are taken from the window, in order
        if window not in self._running and window.waiting and not self._stopping:
            name = f"ordered-{window.queue.topic}-{window.queue.queue_id}"
            task = self._state.session.spawn(self._work_on(window), name=name)
            self._running[window] = task
            task.add_done_callback(lambda _: self._worked(window))

    def skipped(self, window: Window, offset: int) -> None:
        """Nothing wanted up to there: that much is done, unless something still waits."""
        if not window.count:
            advance(self._state.offsets, window.queue, offset)

    def _worked(self, window: Window) -> None:
        self._running.pop(window, None)
        if window.waiting and not window.dropped and not self._stopping:
            self.submit(window, ())  # something came while the task was ending

    def busy(self, window: Window) -> bool:
        """Whether a handler is at work on this queue right now."""
        return window in self._calls

    def _may_consume(self, window: Window) -> bool:
        if self._state.settings.broadcasting:
            return True
        return window.locked and not window.lock_expired(self._state.clock.now_ms())

    async def _work_on(self, window: Window) -> None:
        calls = 0
        while not window.dropped and not self._stopping:
            if not self._may_consume(window):
                await self._state.clock.sleep(WAIT_FOR_LOCK_MS)
                continue
            if not window.waiting:
                return
            pause_ms = await self._consume_some(window)
            calls += 1
            if pause_ms:
                await self._state.clock.sleep(pause_ms)
            elif calls % YIELD_CALLS == 0:
                await asyncio.sleep(0)

    async def _consume_some(self, window: Window) -> int:
        """One call of a handler; how long the queue is to pause after it."""
        state = self._state
        first = next(iter(window.waiting.values()))
        handler = state.handler_for(first) or NOBODY
        messages = window.take(handler.batch_max)
        for message in messages[1:]:
            state.handler_for(message)  # shown under the topic that the application knows
        work = Work(window, messages, handler)
        async with self._room:
            self._calls[window] = (work, state.clock.elapsed_ms())
            try:
                if handler.is_async:
                    outcome = await self._caller.run_async(work)
                else:
                    loop = asyncio.get_running_loop()
                    outcome = await loop.run_in_executor(self._threads, self._caller.run, work)
            finally:
                del self._calls[window]
        return await self._settle(work, outcome)

    async def _settle(self, work: Work, outcome: Outcome) -> int:
        state, window, messages = self._state, work.window, work.messages
        window.last_consume_ms = now_ms = state.clock.now_ms()
        rates = state.rates_of(window.queue.topic)
        took_ms = max(0, now_ms - messages[0].consume_started_ms)
        if outcome.done:
            rates.consumed.add(outcome.done, took_ms * outcome.done)
            self._commit(window, outcome.done)
        failed = messages[outcome.done :]
        if not failed:
            return 0
        rates.failed.add(len(failed))
        if await self._give_up(failed, outcome):
            self._commit(window)
            return 0
        window.rollback()
        pause_ms = outcome.after_ms if outcome.after_ms is not None else state.settings.suspend_ms
        return min(max(pause_ms, SUSPEND_MS_MIN), SUSPEND_MS_MAX)

    def _commit(self, window: Window, count: int | None = None) -> None:
        """Note progress, also in a queue that is being given up: its lock goes after that."""
        offset = window.commit(count)
        if offset >= 0 and self._state.windows.get(window.queue) is window:
            self._state.offsets.memory[window.queue] = offset

    async def _give_up(self, messages: Sequence[ReceivedMessage], outcome: Outcome) -> bool:
        """Whether every message has failed for good and is safe with the broker."""
        settings = self._state.settings
        dead = outcome.delay_level == DEAD_LETTER_LEVEL
        all_gone = True
        for message in messages:
            exhausted = dead or message.reconsume_times >= settings.reconsume_times_max
            if exhausted and not settings.broadcasting:
                if await self._giving_back.send_anew(message, outcome.delay_level):
                    continue
            else:
                message.reconsume_times += 1
            all_gone = False
        return all_gone

    def _name_the_slow(self) -> None:
        now_ms = self._state.clock.elapsed_ms()
        limit_ms = self._state.settings.slow_handler_ms
        current = {id(work): (work, since_ms) for work, since_ms in self._calls.values()}
        self._warned &= current.keys()
        for key, (work, since_ms) in current.items():
            if now_ms - since_ms > limit_ms and key not in self._warned:
                self._warned.add(key)
                log.warning(
                    "%s has been running for %d s", work.describe(), (now_ms - since_ms) // 1000
                )

    async def consume_now(self, work: Work) -> Outcome:
        """Call the handler once, outside of everything, and say what came of it."""
        if work.handler.is_async:
            return await self._caller.run_async(work)
        return await asyncio.to_thread(self._caller.run, work)
