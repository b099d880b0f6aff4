"""Concurrent consumption: handlers run beside each other, in no particular order.

A queue's committed offset is the first message that is not done, so one slow message holds it
back; what comes again after a crash is what was not done then.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final

from firearrow.client.handlers import NOBODY, Caller, Handler, Outcome, Work, outcome_of
from firearrow.client.offset_store import advance
from firearrow.client.workers import LoopWatch, TaskWorkers, ThreadWorkers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from firearrow.client.consumer_state import ConsumerState
    from firearrow.client.giving_back import GivingBack
    from firearrow.client.message import ReceivedMessage
    from firearrow.client.window import Window

log = logging.getLogger(__name__)

AGAIN_HERE_MS: Final = 5_000  # a message that nobody takes back is tried here again after this
CHECK_SLOW_MS: Final = 1_000
EXPIRED_LEVEL: Final = 3


class ConcurrentConsumption:
    """Hands messages to handlers and their outcomes to windows, offsets and brokers."""

    def __init__(self, state: ConsumerState, caller: Caller, giving_back: GivingBack) -> None:
        self._state = state
        self._giving_back = giving_back
        self._caller = caller
        settings = state.settings
        name = f"consume-{state.group}"
        order = _priority_of if settings.by_priority else None
        most = settings.workers_max
        self._threads: ThreadWorkers[Work] = ThreadWorkers(
            name, state.clock, caller.run, self._all_done, workers_max=most, priority_of=order
        )
        self._tasks: TaskWorkers[Work] = TaskWorkers(
            name,
            state.session,
            caller.run_async,
            self._all_done,
            workers_max=most,
            priority_of=order,
        )
        self._watch: LoopWatch | None = None
        self._returning: set[asyncio.Task[None]] = set()
        self._warned: set[tuple[str, float]] = set()

    def start(self) -> None:
        state = self._state
        state.session.every(CHECK_SLOW_MS, self._name_the_slow, name="slow-handlers")
        state.session.every(
            max(1, state.settings.consume_timeout_ms), self._clean_expired, name="expired"
        )

    async def stop(self) -> None:
        """Wait a while for handlers that are running; what was not begun is not begun."""
        grace_ms = self._state.settings.stop_grace_ms
        await self._threads.stop(grace_ms)
        await self._tasks.stop(grace_ms)
        if self._returning:  # what a broker has taken back must not be pulled again as well
            await asyncio.wait(self._returning, timeout=grace_ms / 1000)
        if self._watch is not None:
            self._watch.stop()

    def submit(self, window: Window, messages: Sequence[ReceivedMessage]) -> None:
        """New messages of a window; each goes to the handler of its topic."""
        batch: list[ReceivedMessage] = []
        batch_handler: Handler | None = None
        for message in messages:
            handler = self._state.handler_for(message)
            if handler is None:
                log.warning("topic %s has no handler; its message goes back", message.topic)
                self._done(Work(window, [message], NOBODY), Outcome(0, "FAILED"))
                continue
            if handler.batch_max == 1:
                self._start(Work(window, [message], handler))
                continue
            if batch_handler is not None and (
                handler is not batch_handler or len(batch) >= handler.batch_max
            ):
                self._start(Work(window, batch, batch_handler))
                batch = []
            batch_handler = handler
            batch.append(message)
        if batch_handler is not None and batch:
            self._start(Work(window, batch, batch_handler))

    def skipped(self, window: Window, offset: int) -> None:
        """Nothing wanted up to there: that much is done, unless something still waits."""
        if not window.count:
            advance(self._state.offsets, window.queue, offset)

    def _start(self, work: Work) -> None:
        if not work.handler.is_async:
            self._threads.submit(work)
            return
        if self._watch is None:
            self._watch = LoopWatch(f"group {self._state.group}", self._describe_running)
        self._tasks.submit(work)

    def _describe_running(self) -> str:
        running = self._tasks.running()
        return max(running, key=lambda entry: entry[1])[0].describe() if running else ""

    # --- outcomes ---------------------------------------------------------------------------

    def _all_done(self, outcomes: Sequence[tuple[Work, Outcome | BaseException]]) -> None:
        """Outcomes that came together; those of one window that went well are one to it."""
        now_ms = self._state.clock.now_ms()
        window: Window | None = None
        done: list[ReceivedMessage] = []
        for work, outcome in outcomes:
            if outcome.__class__ is not Outcome or outcome.done < len(work.messages):
                self._done(work, outcome)
                continue
            if work.window is not window:
                if window is not None:
                    self._succeeded(window, done, now_ms)
                window, done = work.window, []
            done += work.messages
        if window is not None:
            self._succeeded(window, done, now_ms)

    def _succeeded(self, window: Window, messages: Sequence[ReceivedMessage], now_ms: int) -> None:
        window.last_consume_ms = now_ms
        took_ms = sum(max(0, now_ms - message.consume_started_ms) for message in messages)
        self._state.rates_of(window.queue.topic).consumed.add(len(messages), took_ms)
        if not window.dropped:
            self._finish(window, messages)

    def _done(self, work: Work, outcome: Outcome | BaseException) -> None:
        if isinstance(outcome, BaseException):  # the call itself failed, not the handler
            outcome = outcome_of(outcome, len(work.messages))
        state, window, messages = self._state, work.window, work.messages
        now_ms = state.clock.now_ms()
        window.last_consume_ms = now_ms
        rates = state.rates_of(window.queue.topic)
        took_ms = max(0, now_ms - messages[0].consume_started_ms)
        if outcome.done:
            rates.consumed.add(outcome.done, took_ms * outcome.done)
        if outcome.done < len(messages):
            rates.failed.add(len(messages) - outcome.done)
        if window.dropped:
            return  # its new owner gets them again
        done, failed = messages[: outcome.done], messages[outcome.done :]
        if failed and not state.settings.broadcasting:
            task = state.session.spawn(
                self._give_back(window, failed, outcome.delay_level), name="send-back"
            )
            self._returning.add(task)
            task.add_done_callback(self._returning.discard)
        elif failed:
            for message in failed:
                log.warning("broadcasting: message %s failed and is dropped", message.msg_id)
            done = messages
        if done:
            self._finish(window, done)

    def _finish(self, window: Window, messages: Sequence[ReceivedMessage]) -> None:
        offset = window.remove(messages)
        if offset >= 0 and not window.dropped:
            advance(self._state.offsets, window.queue, offset)

    async def _give_back(
        self, window: Window, messages: Sequence[ReceivedMessage], delay_level: int
    ) -> None:
        """Return messages to the broker; those that it does not take are tried here again."""
        kept = await self._return(window, messages, delay_level)
        for message in kept:
            message.reconsume_times += 1
        if kept:
            self._state.clock.call_later(AGAIN_HERE_MS, lambda: self._again(window, kept))

    def _again(self, window: Window, messages: Sequence[ReceivedMessage]) -> None:
        if not window.dropped:
            self.submit(window, messages)

    async def _return(
        self, window: Window, messages: Sequence[ReceivedMessage], delay_level: int
    ) -> list[ReceivedMessage]:
        """Those that the broker has not taken."""
        returned, kept = [], []
        for message in messages:
            if message.queue_offset not in window.waiting:
                continue  # given back already because it took too long
            if await self._giving_back.give_back(message, delay_level):
                returned.append(message)
            else:
                kept.append(message)
        if returned and not window.dropped:
            self._finish(window, returned)
        return kept

    # --- watching ---------------------------------------------------------------------------

    def _name_the_slow(self) -> None:
        """Say which handlers take long, once each: a stuck consumer is otherwise a riddle."""
        limit_s = self._state.settings.slow_handler_ms / 1000
        now = time.monotonic()
        running = self._threads.running() + self._tasks.running()
        current = {(work.messages[0].offset_msg_id, since): work for work, since in running}
        self._warned &= current.keys()
        for key, work in current.items():
            if now - key[1] > limit_s and key not in self._warned:
                self._warned.add(key)
                log.warning("%s has been running for %.0f s", work.describe(), now - key[1])

    def _clean_expired(self) -> None:
        for window in list(self._state.windows.values()):
            expired = window.expired(
                self._state.clock.now_ms(), self._state.settings.consume_timeout_ms
            )
            if expired:
                self._state.session.spawn(self._give_expired_back(window, expired), name="expired")

    async def _give_expired_back(self, window: Window, messages: Sequence[ReceivedMessage]) -> None:
        """Their handlers still run, so what the broker does not take is not begun again here."""
        await self._return(window, messages, EXPIRED_LEVEL)

    # --- an administrator wants one message consumed, now -----------------------------------

    async def consume_now(self, work: Work) -> Outcome:
        """Call the handler once, outside of everything, and say what came of it."""
        if work.handler.is_async:
            return await self._caller.run_async(work)
        return await asyncio.to_thread(self._caller.run, work)


def _priority_of(work: Work) -> int:
    return work.messages[0].priority
