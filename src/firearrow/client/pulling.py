"""The pull loop of one queue: ask, fill the window, hand on, ask again.

A broker without new messages holds the question, so there is always one under way; the loop
pauses only while the window is full, the consumer is paused, or something is wrong.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Protocol

from firearrow.base.errors import FirearrowError
from firearrow.client.message import ReceivedMessage
from firearrow.hot import decode_records
from firearrow.model.errors import FlowControlled, ResponseCode
from firearrow.model.group import is_tag_type
from firearrow.model.inner_batch import inner_records, is_inner_batch
from firearrow.model.topic import MASTER_ID
from firearrow.net.errors import NetworkError
from firearrow.wire.headers import PullFlag, PullMessageReply, PullMessageRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from firearrow.client.consumer_state import ConsumerState, Subscription
    from firearrow.client.window import Window

log = logging.getLogger(__name__)

HOLD_MS: Final = 15_000  # how long a broker may hold a pull
PULL_TIMEOUT_MS: Final = 30_000
FAILURE_PAUSE_MS: Final = 1_000
FLOW_CONTROL_PAUSE_MS: Final = 20
PAUSED_MS: Final = 1_000


def messages_from(
    body: bytes, broker_name: str, from_offset: int, tags: frozenset[str] | None, delta: int = 0
) -> list[ReceivedMessage]:
    """The messages of a pull that are wanted: inner batches taken apart, tags compared exactly."""
    found = []
    for record in decode_records(body):
        for one in inner_records(record) if is_inner_batch(record.sys_flag) else (record,):
            offset = one.queue_offset + delta
            if offset < from_offset:
                continue
            message = ReceivedMessage(one, broker_name, offset)
            if tags is None or message.tags in tags:
                found.append(message)
    return found


class Consumption(Protocol):
    """Takes what was pulled."""

    def submit(self, window: Window, messages: Sequence[ReceivedMessage]) -> None:
        """New messages are in the window."""
        ...

    def skipped(self, window: Window, offset: int) -> None:
        """There is nothing for us before this offset that is not in the window."""
        ...


class PullLoop:
    """Pulls one window until it is dropped."""

    def __init__(
        self,
        state: ConsumerState,
        window: Window,
        consumption: Consumption,
        offset_was_wrong: Callable[[Window, int], None],
    ) -> None:
        self._state = state
        self._window = window
        self._consumption = consumption
        self._offset_was_wrong = offset_was_wrong

    async def run(self) -> None:
        """Until the window is dropped."""
        window, settings = self._window, self._state.settings
        while not window.dropped:
            pause_ms = await self._wait_until_ready()
            if pause_ms is None:
                try:
                    await self._pull_once()
                    pause_ms = settings.pull_interval_ms
                except FlowControlled:
                    pause_ms = FLOW_CONTROL_PAUSE_MS
                except FirearrowError as error:
                    now_ms = self._state.clock.elapsed_ms()
                    self._state.trouble.warning(now_ms, "%r: pull failed: %s", window, error)
                    pause_ms = FAILURE_PAUSE_MS
                    if isinstance(error, NetworkError):
                        await self._look_elsewhere()
            if pause_ms and not window.dropped:
                await self._state.clock.sleep(pause_ms)

    async def _look_elsewhere(self) -> None:
        """A broker is gone: name servers know by now, and a slave may serve in its place."""
        try:
            await self._state.session.refresh_route(self._window.queue.topic)
        except FirearrowError as error:
            log.info("%r: no news of the route: %s", self._window, error)

    async def _wait_until_ready(self) -> int | None:
        """None when a pull may be made now; else how long to wait before looking again."""
        state, window = self._state, self._window
        window.last_pull_ms = state.clock.now_ms()
        if state.on_hold:
            return PAUSED_MS
        ordered = state.settings.ordered
        if not window.has_room(state.limits, ordered=ordered):
            # Looked at again now and then: a queue that nobody seems to pull is given up.
            changed = asyncio.Event()
            window.when_changed(changed.set)
            timer = state.clock.call_later(PAUSED_MS, changed.set)
            try:
                await changed.wait()
            finally:
                timer.cancel()
            return 0
        if ordered and not state.settings.broadcasting and not window.locked:
            return FAILURE_PAUSE_MS
        return None

    async def _pull_once(self) -> None:
        state, window = self._state, self._window
        queue = window.queue
        subscription = state.subscriptions.get(queue.topic)
        if subscription is None:
            await state.clock.sleep(FAILURE_PAUSE_MS)
            return
        address, broker_id = await state.session.find_replica(
            queue.broker_name, queue.topic, state.session.brokers.suggested(queue)
        )
        started_ms = state.clock.elapsed_ms()
        code, reply, body = await state.calls.pull(
            address,
            self._request(subscription, broker_id),
            PULL_TIMEOUT_MS,
            lite=state.settings.lite,
        )
        state.session.brokers.suggest(queue, reply.suggest_which_broker_id)
        if window.dropped:
            return
        if code == ResponseCode.SUCCESS:
            rates = state.rates_of(queue.topic)
            rates.pulls.add(1, state.clock.elapsed_ms() - started_ms)
            self._take(reply, body, subscription)
        elif code == ResponseCode.PULL_OFFSET_MOVED:
            log.warning(
                "%r: offset %d is not there; going on at %d",
                window,
                window.next_offset,
                reply.next_begin_offset,
            )
            self._offset_was_wrong(window, reply.next_begin_offset)
        else:
            self._move_to(reply.next_begin_offset)

    def _request(self, subscription: Subscription, broker_id: int) -> PullMessageRequest:
        state, window = self._state, self._window
        queue, settings, data = window.queue, state.settings, subscription.data
        flags = PullFlag.SUSPEND
        if settings.lite:  # brokers need not know the group: the request says what it wants
            flags |= PullFlag.SUBSCRIPTION | PullFlag.LITE_PULL
        commit_offset = 0
        if not settings.broadcasting and not settings.lite:
            commit_offset = state.offsets.memory.get(queue, 0)
            if commit_offset > 0 and broker_id == MASTER_ID:
                flags |= PullFlag.COMMIT_OFFSET
        unversioned = settings.lite and is_tag_type(data.expression_type)
        return PullMessageRequest(
            consumer_group=state.wire_group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=window.next_offset,
            max_msg_nums=settings.pull_batch,
            sys_flag=int(flags),
            commit_offset=commit_offset,
            suspend_timeout_millis=HOLD_MS,
            subscription=data.sub_string if settings.lite else None,
            sub_version=0 if unversioned else subscription.version,
            expression_type=data.expression_type,
            max_msg_bytes=settings.pull_batch_bytes,
        )

    def _take(self, reply: PullMessageReply, body: bytes, subscription: Subscription) -> None:
        window = self._window
        messages = messages_from(
            body,
            window.queue.broker_name,
            window.next_offset,
            subscription.tags,
            reply.offset_delta or 0,
        )
        if not messages:
            self._move_to(reply.next_begin_offset)
            return
        window.next_offset = reply.next_begin_offset
        added = window.put(messages)
        self._state.rates_of(window.queue.topic).pulled.add(len(added))
        self._consumption.submit(window, added)

    def _move_to(self, offset: int) -> None:
        self._window.next_offset = offset
        self._consumption.skipped(self._window, offset)
