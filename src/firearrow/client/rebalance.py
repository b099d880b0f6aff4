"""Who consumes which queue: worked out by every member alone, with the same result.

    every 20 s, on notice, on route change:
      per topic   queues (sorted) + members (sorted) ── strategy ──▶ mine
      no longer mine   drop the window, save its offset, give the lock back
      newly mine       lock (ordered), find where to start, begin to pull

Two members may believe in different member lists for a moment; then a queue is consumed twice or
not at all until the next round. Nothing is lost by that, and duplicates are normal here.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from firearrow.base.errors import FirearrowError
from firearrow.client.pulling import PullLoop
from firearrow.client.window import Window, WindowLimits
from firearrow.model.errors import BrokerError
from firearrow.model.group import ConsumeFromWhere, SubscriptionData
from firearrow.model.topic import is_retry_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from firearrow.client.allocation import AllocationStrategy
    from firearrow.client.consumer_state import ConsumerState
    from firearrow.client.pulling import Consumption
    from firearrow.model.topic import MessageQueue

log = logging.getLogger(__name__)

ROUND_MS_MIN: Final = 1_000  # rounds follow each other no faster, whatever the reason
AGAIN_MS: Final = 1_000  # after a round that could not settle everything
ROUTELESS_ROUNDS: Final = 30
LOCK_FAILED_MS: Final = 500
LOCK_RENEW_MS: Final = 20_000
LOCK_AGAIN_MS: Final = 3_000  # after a renewal that did not get everything
UNLOCK_FORCED_MS: Final = 20_000
HANDOVER_MS: Final = 500  # time for the owner before us to save how far it came
HALF_AN_HOUR_MS: Final = 30 * 60_000


class Rebalance:
    """Keeps the windows of a consumer in step with what is its share."""

    def __init__(
        self,
        state: ConsumerState,
        strategy: AllocationStrategy,
        consumption: Consumption,
        on_change: Callable[[str, list[MessageQueue]], None] | None = None,
    ) -> None:
        self._state = state
        self._strategy = strategy
        self._consumption = consumption
        self._on_change = on_change
        self._wanted = asyncio.Event()
        self._last_round_ms = state.clock.elapsed_ms() - ROUND_MS_MIN
        self._wait_ms = 0
        self._busy: Callable[[Window], bool] = lambda _: False
        self._ended = False
        self._routeless: dict[str, int] = {}  # topics that nobody serves; rounds that looked
        self.fixed: frozenset[MessageQueue] | None = None  # ours without asking; None: shared out

    def ask_before_dropping(self, busy: Callable[[Window], bool]) -> None:
        """Ordered queues are given back only when no handler is at work on them."""
        self._busy = busy

    def soon(self) -> None:
        """Something changed: the next round comes at once, or as soon as it may."""
        self._wanted.set()

    async def run(self) -> None:
        """Rounds for ever."""
        while True:
            await self.run_once()

    async def run_once(self) -> None:
        """Wait until the next round is due or wanted, then have it."""
        state = self._state
        await self._wait(self._wait_ms)
        since_ms = state.clock.elapsed_ms() - self._last_round_ms
        if since_ms < ROUND_MS_MIN:
            await state.clock.sleep(ROUND_MS_MIN - since_ms)
        self._wanted.clear()
        self._last_round_ms = state.clock.elapsed_ms()
        settled = state.on_hold or await self.round()
        self._wait_ms = state.settings.rebalance_ms if settled else AGAIN_MS

    async def _wait(self, wait_ms: int) -> None:
        timer = self._state.clock.call_later(wait_ms, self._wanted.set)
        try:
            await self._wanted.wait()
        finally:
            timer.cancel()

    async def round(self) -> bool:
        """Share out every topic; whether everything is as it should be."""
        state = self._state
        settled = True
        for topic in list(state.subscriptions):
            try:
                settled &= await self._balance(topic)
            except FirearrowError as error:
                state.trouble.warning(
                    state.clock.elapsed_ms(),
                    "the queues of %s are not shared out: %s",
                    topic,
                    error,
                )
                settled = False
        for window in list(state.windows.values()):
            if window.queue.topic not in state.subscriptions:
                await self.remove(window)
        return settled

    async def _balance(self, topic: str) -> bool:
        state = self._state
        route = await state.session.refresh_route(topic)
        if self.fixed is not None:
            mine = sorted(queue for queue in self.fixed if queue.topic == topic)
            return await self._apply(topic, mine, 1)
        if route is None:
            return self._is_given_up(topic)
        self._routeless.pop(topic, None)
        queues = sorted(route.subscribe)
        members = 1
        if not state.settings.broadcasting:
            ids = await self._members(topic)
            if not queues:
                return True
            members = len(ids)
            if state.session.client_id not in ids:
                log.info("group %s: no broker knows us yet", state.group)
                return False
            queues = self._strategy.allocate(state.wire_group, state.session.client_id, queues, ids)
        return await self._apply(topic, queues, members)

    async def _members(self, topic: str) -> list[str]:
        """Who shares the group; a broker that does not know us yet hears of us first."""
        state = self._state
        try:
            ids = sorted(await state.calls.members(state.wire_group, topic))
        except BrokerError as error:
            log.debug("group %s: %s", state.group, error)
            ids = []
        if state.session.client_id in ids:
            return ids
        await state.session.send_heartbeats()
        return sorted(await state.calls.members(state.wire_group, topic))

    def _is_given_up(self, topic: str) -> bool:
        """A topic without a route is looked for often at first: it may just be being created."""
        rounds = self._routeless[topic] = self._routeless.get(topic, 0) + 1
        if rounds == 1 and not is_retry_topic(topic):
            log.warning("topic %s has no route yet; nothing of it is consumed", topic)
        return rounds >= ROUTELESS_ROUNDS

    async def _apply(self, topic: str, mine: list[MessageQueue], members: int) -> bool:
        """Make the windows of a topic those of `mine`."""
        state = self._state
        settled = changed = False
        now_ms = state.clock.now_ms()
        assigned = set(mine)
        for queue in state.owned(topic):
            window = state.windows.get(queue)
            if window is None:
                continue  # gone while another one was given up: moved, or the consumer ends
            if queue not in assigned or window.dropped or window.pull_expired(now_ms):
                changed |= await self.remove(window)
        added = [queue for queue in mine if queue not in state.windows]
        settled = all(queue not in state.windows or not state.windows[queue].dropped
                      for queue in mine)  # fmt: skip
        if added:
            if members > 1 and not state.settings.ordered:
                await state.clock.sleep(HANDOVER_MS)
            outcomes = await asyncio.gather(*(self.take(queue) for queue in added))
            changed |= any(outcomes)
            settled &= all(outcomes)
        if changed:
            await self._changed(topic)
        return settled

    # --- taking -----------------------------------------------------------------------------

    async def take(self, queue: MessageQueue) -> bool:
        """Make a queue ours; False if it must be tried again later."""
        state = self._state
        locked = False
        try:
            if state.settings.ordered and not state.settings.broadcasting:
                held = await state.calls.lock(state.wire_group, queue.broker_name, [queue])
                if queue not in held:
                    log.info("%s is still locked by its former owner", queue)
                    state.clock.call_later(LOCK_FAILED_MS, self.soon)
                    return False
                locked = True
            state.offsets.memory.pop(queue, None)
            offset = await self._first_offset(queue)
        except FirearrowError as error:
            log.warning("%s cannot be taken over yet: %s", queue, error)
            return False
        if self._ended or queue.topic not in state.subscriptions or queue in state.windows:
            return True
        self.begin_at(queue, offset, locked=locked)
        return True

    def begin_at(self, queue: MessageQueue, offset: int, *, locked: bool = False) -> None:
        """Pull a queue from here on; whatever was pulled of it before is forgotten."""
        state = self._state
        if (before := state.windows.get(queue)) is not None:
            before.drop()
        window = Window(queue, offset, state.clock.now_ms())
        window.set_locked(state.clock.now_ms(), locked=locked)
        state.windows[queue] = window
        loop = PullLoop(state, window, self._consumption, self._offset_was_wrong)
        state.session.spawn(loop.run(), name=f"pull-{queue.topic}-{queue.queue_id}")

    async def _first_offset(self, queue: MessageQueue) -> int:
        """Where to begin: what was saved, else what the consumer was told to begin with."""
        state, calls = self._state, self._state.calls
        where = state.settings.consume_from_where
        by_time = where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP
        stored = await state.offsets.load(queue, exact=by_time)
        if stored is not None and stored >= 0:
            return stored
        if where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
            return 0
        if by_time:
            if is_retry_topic(queue.topic):
                return await calls.max_offset(queue)
            timestamp_ms = state.settings.consume_timestamp_ms
            if timestamp_ms is None:
                timestamp_ms = state.started_ms - HALF_AN_HOUR_MS
            return await calls.offset_at(queue, timestamp_ms)
        return 0 if is_retry_topic(queue.topic) else await calls.max_offset(queue)

    # --- giving -----------------------------------------------------------------------------

    async def remove(self, window: Window) -> bool:
        """Give a queue up; False while a handler is still at work on an ordered one."""
        state = self._state
        queue = window.queue
        window.drop()
        ordered = state.settings.ordered and not state.settings.broadcasting
        if ordered and self._busy(window):
            now_ms = state.clock.now_ms()
            if now_ms - window.last_lock_ms < UNLOCK_FORCED_MS:
                window.unlock_tries += 1
                state.clock.call_later(LOCK_FAILED_MS, self.soon)
                return False
        await state.offsets.save([queue], wait=True)
        state.offsets.memory.pop(queue, None)
        if state.windows.get(queue) is window:
            del state.windows[queue]
        if ordered and window.locked:
            await self._unlock([queue])
        return True

    def _offset_was_wrong(self, window: Window, offset: int) -> None:
        """A broker says that the offset does not exist: go on where it says, with a new window."""
        window.drop()
        self._state.session.spawn(self._move(window, offset), name="offset-moved")

    async def _move(self, window: Window, offset: int) -> None:
        state = self._state
        state.offsets.memory[window.queue] = offset
        await state.offsets.save([window.queue], wait=True)
        state.offsets.memory.pop(window.queue, None)
        if state.windows.get(window.queue) is window:
            del state.windows[window.queue]
        self.soon()

    async def give_all_back(self) -> None:
        """At the end: save everything, drop everything, unlock everything."""
        state = self._state
        self._ended = True
        windows = list(state.windows.values())
        for window in windows:
            window.drop()
        await state.offsets.save([window.queue for window in windows], wait=True)
        if state.settings.ordered and not state.settings.broadcasting:
            await self._unlock([window.queue for window in windows if window.locked])
        state.windows.clear()

    # --- locks ------------------------------------------------------------------------------

    async def renew_locks(self) -> None:
        """Ordered groups: tell each broker which queues we still hold, every 20 s."""
        wait_ms = LOCK_RENEW_MS
        while True:
            await self._state.clock.sleep(wait_ms)
            wait_ms = LOCK_RENEW_MS if await self._renew_locks() else LOCK_AGAIN_MS

    async def _renew_locks(self) -> bool:
        """Whether all locks are ours still; queues that are being given up are left out."""
        state = self._state
        kept = [queue for queue, window in state.windows.items() if not window.dropped]
        all_held = True
        for broker_name, queues in _by_broker(kept).items():
            try:
                held = await state.calls.lock(state.wire_group, broker_name, queues)
            except FirearrowError as error:
                log.warning("locks on %s are not renewed: %s", broker_name, error)
                all_held = False
                continue
            now_ms = state.clock.now_ms()
            all_held &= held.issuperset(queues)
            for queue in queues:
                if (window := state.windows.get(queue)) is not None:
                    window.set_locked(now_ms, locked=queue in held)
        return all_held

    async def _unlock(self, queues: Sequence[MessageQueue]) -> None:
        state = self._state
        for broker_name, held in _by_broker(queues).items():
            try:
                await state.calls.unlock(state.wire_group, broker_name, held)
            except FirearrowError as error:
                log.warning("locks on %s are not given back: %s", broker_name, error)

    # --- after a change ---------------------------------------------------------------------

    async def _changed(self, topic: str) -> None:
        state = self._state
        subscription = state.subscriptions.get(topic)
        if subscription is not None:
            data = subscription.data
            subscription.data = SubscriptionData.of(
                topic,
                data.sub_string,
                version=state.clock.now_ms(),
                expression_type=data.expression_type,
            )
        self._share_out_limits()
        await state.session.send_heartbeats()
        owned = sorted(state.owned(topic))
        log.info("group %s: %d queues of %s are ours", state.group, len(owned), topic)
        if self._on_change is not None:
            self._on_change(topic, owned)

    def _share_out_limits(self) -> None:
        """Limits for a topic as a whole become limits per queue, as many as we have."""
        state, settings = self._state, self._state.settings
        queues = len(state.windows)
        if not queues or (settings.topic_messages_max is None and settings.topic_bytes_max is None):
            return
        limits = settings.limits
        state.limits = WindowLimits(
            messages_max=limits.messages_max
            if settings.topic_messages_max is None
            else max(1, settings.topic_messages_max // queues),
            bytes_max=limits.bytes_max
            if settings.topic_bytes_max is None
            else max(1, settings.topic_bytes_max // queues),
            span_max=limits.span_max,
        )


def _by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    found: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        found.setdefault(queue.broker_name, []).append(queue)
    return found
