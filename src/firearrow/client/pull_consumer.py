"""Consuming by asking: the application polls, seeks and commits as it likes.

Messages are pulled ahead in the background, as far as the limits allow. `subscribe` shares queues
with the other members of the group, `assign` takes exactly the queues that are named; one consumer
does one or the other. There is no retry: whoever wants a message again seeks back to it.

    pulled ahead ──▶ buffer ── poll ──▶ application          position: the next message to hand out
                                                              committed: what commit() wrote down
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Final, Self, TypedDict

from firearrow.base.errors import FirearrowError
from firearrow.base.runtime import time_limit
from firearrow.client.allocation import AllocateAveragely, AllocationStrategy
from firearrow.client.calls import Calls
from firearrow.client.consumer_state import ConsumerSettings, ConsumerState, Subscription
from firearrow.client.errors import ClientClosed, ConsumerMisuse, InvalidName
from firearrow.client.offset_store import BrokerOffsets
from firearrow.client.options import ClientOptions, parse_nameservers
from firearrow.client.questions import Questions
from firearrow.client.rebalance import Rebalance
from firearrow.client.session import Session
from firearrow.client.subscriptions import parse_subscription
from firearrow.model.group import ConsumeFromWhere, ConsumeType, check_group_name
from firearrow.model.topic import MessageQueue
from firearrow.wire.bodies import ConsumerData, ConsumerRunningInfo

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence

    from firearrow.client.message import ReceivedMessage
    from firearrow.client.window import Window, WindowLimits

log = logging.getLogger(__name__)

POLL_MS: Final = 5_000
AUTO_COMMIT_MS: Final = 5_000


class PullConsumerOptions(TypedDict, total=False):
    """The arguments of `PullConsumer` beside its group; its docstring explains each."""

    nameservers: str | Sequence[str] | None
    auto_commit: bool
    auto_commit_ms: int
    consume_from_where: ConsumeFromWhere
    consume_timestamp_ms: int | None
    pull_batch: int
    limits: WindowLimits | None
    strategy: AllocationStrategy | None
    on_assignment: Callable[[str, list[MessageQueue]], None] | None
    client: ClientOptions | None


class PullConsumer:
    """Messages on request; use it with `async with`.

    Args:
        group: Whose progress this is.
        nameservers: ``host:port``, several joined by semicolons; else environment NAMESRV_ADDR.
        auto_commit: Write down every few seconds what earlier polls have handed out.
        auto_commit_ms: How often.
        consume_from_where: Where to begin in a queue for which nothing is committed.
        consume_timestamp_ms: For CONSUME_FROM_TIMESTAMP; half an hour ago if not given.
        pull_batch: How many messages a broker is asked for at once.
        limits: How much of a queue is pulled ahead.
        strategy: How members of the group share queues.
        on_assignment: Called with a topic and the queues that are now this member's.
        client: Settings that all clients share.
    """

    def __init__(
        self,
        group: str,
        *,
        nameservers: str | Sequence[str] | None = None,
        auto_commit: bool = True,
        auto_commit_ms: int = AUTO_COMMIT_MS,
        consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        consume_timestamp_ms: int | None = None,
        pull_batch: int = 32,
        limits: WindowLimits | None = None,
        strategy: AllocationStrategy | None = None,
        on_assignment: Callable[[str, list[MessageQueue]], None] | None = None,
        client: ClientOptions | None = None,
    ) -> None:
        problem = check_group_name(group)
        if problem is not None:
            raise InvalidName(problem)
        self.group = group
        settings = ConsumerSettings(
            consume_from_where=consume_from_where,
            consume_timestamp_ms=consume_timestamp_ms,
            pull_batch=pull_batch,
            lite=True,
        )
        self._session = session = Session(parse_nameservers(nameservers), client or ClientOptions())
        calls = Calls(session)
        offsets = BrokerOffsets(calls, session.wrap(group))
        self._state = state = ConsumerState(session, calls, group, settings, offsets)
        if limits is not None:
            state.limits = limits
        self._buffer = _Buffer()
        strategy = strategy or AllocateAveragely()
        self._rebalance = Rebalance(state, strategy, self._buffer, on_assignment)
        self._questions = Questions(state, None, self._rebalance.soon)
        self._auto_commit = auto_commit
        self._auto_commit_ms = auto_commit_ms
        self._committed_ms = 0

    # --- which queues -----------------------------------------------------------------------

    def subscribe(self, topic: str, expression: str = "*", *, sql: str | None = None) -> None:
        """Share the queues of a topic with the other members of the group."""
        if self._rebalance.fixed is not None:
            raise ConsumerMisuse("this consumer has assigned queues; subscribe excludes assign")
        self._add(topic, expression, sql)
        if self._session.running:
            self._session.spawn(self._announce(self._session.wrap(topic)), name="announce")

    def _add(self, topic: str, expression: str, sql: str | None) -> None:
        wire_topic = self._session.wrap(topic)
        data, tags = parse_subscription(
            topic, wire_topic, expression, sql, self._state.clock.now_ms()
        )
        self._state.subscriptions[wire_topic] = Subscription(data, None, tags)

    async def _announce(self, wire_topic: str) -> None:
        try:
            await self._session.refresh_route(wire_topic)  # who is to hear it
        except FirearrowError as error:
            log.warning("the route of %s is not known yet: %s", wire_topic, error)
        await self._session.send_heartbeats()
        self._rebalance.soon()

    def unsubscribe(self, topic: str) -> None:
        """Give the queues of a topic back with the next rebalance."""
        self._state.subscriptions.pop(self._session.wrap(topic), None)
        self._rebalance.soon()

    async def assign(
        self, queues: Iterable[MessageQueue], expression: str = "*", *, sql: str | None = None
    ) -> None:
        """Take exactly these queues, whoever else reads them."""
        self._session.check_running()
        if self._rebalance.fixed is None and self._state.subscriptions:
            raise ConsumerMisuse("this consumer has subscribed; assign excludes subscribe")
        wanted = {self._on_wire(queue) for queue in queues}
        self._rebalance.fixed = frozenset(wanted)
        for topic in {queue.topic for queue in wanted}:
            self._add(self._session.unwrap(topic), expression, sql)
            await self._session.route(topic)
        for queue in list(self._state.windows):
            if queue not in wanted:
                await self._rebalance.remove(self._state.windows[queue])
        for queue in sorted(wanted - set(self._state.windows)):
            if not await self._rebalance.take(queue):
                raise ConsumerMisuse(f"{queue} cannot be read; is its broker running?")

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that this consumer reads now."""
        windows = self._state.windows.items()
        return sorted(self._shown(queue) for queue, window in windows if not window.dropped)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """All queues of a topic that can be read."""
        self._session.check_running()
        route = await self._session.route(self._session.wrap(topic))
        return [self._shown(queue) for queue in route.subscribe]

    # --- life -------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin; `async with` does it."""
        session = self._session
        self._questions.register()
        session.add_consumer(self.group, self)
        await session.start()
        self._committed_ms = session.clock.elapsed_ms()
        try:
            for subscription in list(self._state.subscriptions.values()):
                await session.refresh_route(subscription.data.topic)
            await session.send_heartbeats()
        except BaseException:
            await self.close()
            raise
        session.spawn(self._rebalance.run(), name="rebalance")

    async def close(self) -> None:
        """Stop; with auto_commit what was handed out counts as consumed."""
        if self._session.running:
            if self._auto_commit:
                await self.commit()
            await self._rebalance.give_all_back()
        self._buffer.close()
        await self._session.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # --- reading ----------------------------------------------------------------------------

    async def poll(self, timeout_ms: int = POLL_MS) -> list[ReceivedMessage]:
        """The next messages of some queue; an empty list when none came in time."""
        if timeout_ms < 0:
            raise ConsumerMisuse(f"a time limit of {timeout_ms} ms")
        messages = self.poll_now()
        if messages is not None:
            return messages
        await self._commit_if_due()
        try:
            async with time_limit(self._state.clock, timeout_ms):
                window, messages = await self._buffer.take()
        except TimeoutError:
            return []
        return self._handed_out(window, messages)

    def poll_now(self) -> list[ReceivedMessage] | None:
        """What `poll` returns if it need not wait for anything; else None."""
        self._session.check_running()
        if self._commit_is_due():
            return None
        taken = self._buffer.take_now()
        return None if taken is None else self._handed_out(*taken)

    def _handed_out(self, window: Window, messages: list[ReceivedMessage]) -> list[ReceivedMessage]:
        self._buffer.handed_out(window, messages)
        if self._session.options.namespace:
            for message in messages:
                message.topic = self._session.unwrap(message.topic)
        return messages

    async def __aiter__(self) -> AsyncGenerator[ReceivedMessage, None]:
        """Messages one by one, until the consumer is closed."""
        while self._session.running:
            try:
                messages = await self.poll()
            except ClientClosed:
                return
            for message in messages:
                yield message

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Hand out nothing of these queues until `resume`."""
        self._buffer.paused.update(map(self._on_wire, queues))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Go on after `pause`."""
        self._buffer.paused.difference_update(map(self._on_wire, queues))
        self._buffer.wake()

    def running_info(self) -> ConsumerRunningInfo:
        """How this consumer is doing, as `mqadmin consumerStatus` shows it."""
        return self._questions.running_info()

    # --- where ------------------------------------------------------------------------------

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on reading a queue at an offset, forwards or backwards."""
        queue = self._owned(queue)
        least, most = await self._bounds(queue)
        if not least <= offset <= most:
            raise ConsumerMisuse(f"offset {offset} of {queue} is outside of {least} to {most}")
        self._rebalance.begin_at(queue, offset)
        self._buffer.positions[queue] = offset

    async def seek_to_beginning(self, queue: MessageQueue) -> None:
        """Read a queue from its oldest message."""
        await self.seek(queue, (await self._bounds(self._owned(queue)))[0])

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Skip what a queue has."""
        await self.seek(queue, (await self._bounds(self._owned(queue)))[1])

    async def seek_to_time(self, queue: MessageQueue, timestamp_ms: int) -> None:
        """Read a queue from the first message stored at or after a time."""
        await self.seek(queue, await self.offset_at(queue, timestamp_ms))

    async def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message of a queue stored at or after a time."""
        return await self._state.calls.offset_at(self._on_wire(queue), timestamp_ms)

    async def min_offset(self, queue: MessageQueue) -> int:
        """The oldest offset that a queue still has."""
        return await self._state.calls.min_offset(self._on_wire(queue))

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset of the next message that a queue will get."""
        return await self._state.calls.max_offset(self._on_wire(queue))

    async def _bounds(self, queue: MessageQueue) -> tuple[int, int]:
        calls = self._state.calls
        return await calls.min_offset(queue), await calls.max_offset(queue)

    def position(self, queue: MessageQueue) -> int | None:
        """The offset of the next message that `poll` hands out; None if that is not known yet."""
        queue = self._owned(queue)
        return self._buffer.positions.get(queue)

    # --- committing -------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Write down progress on the brokers: what was handed out, or these offsets."""
        memory = self._state.offsets.memory
        if offsets is None:
            chosen = {
                queue: offset
                for queue, offset in self._buffer.positions.items()
                if queue in self._state.windows
            }
        else:
            chosen = {self._owned(queue): offset for queue, offset in offsets.items()}
        memory.update(chosen)
        self._committed_ms = self._state.clock.elapsed_ms()
        await self._state.offsets.save(chosen, wait=True)

    async def committed(self, queue: MessageQueue) -> int | None:
        """What the group has committed for a queue; None if nothing."""
        return await self._state.offsets.load(self._on_wire(queue), exact=True)

    def _commit_is_due(self) -> bool:
        elapsed_ms = self._state.clock.elapsed_ms()
        return self._auto_commit and elapsed_ms - self._committed_ms >= self._auto_commit_ms

    async def _commit_if_due(self) -> None:
        if self._commit_is_due():
            try:
                await self.commit()
            except FirearrowError as error:
                log.warning("offsets of group %s are not saved: %s", self.group, error)

    # --- names ------------------------------------------------------------------------------

    def _on_wire(self, queue: MessageQueue) -> MessageQueue:
        return _renamed(queue, self._session.wrap(queue.topic))

    def _shown(self, queue: MessageQueue) -> MessageQueue:
        return _renamed(queue, self._session.unwrap(queue.topic))

    def _owned(self, queue: MessageQueue) -> MessageQueue:
        queue = self._on_wire(queue)
        if queue not in self._state.windows:
            raise ConsumerMisuse(f"{queue} is not one of this consumer's queues")
        return queue

    # --- for the session (client.session.ConsumerMember) ------------------------------------

    def consumer_data(self) -> ConsumerData:
        return ConsumerData(
            group_name=self._state.wire_group,
            consume_type=ConsumeType.CONSUME_ACTIVELY,
            subscription_data_set=tuple(one.data for one in self._state.subscriptions.values()),
        )

    def topics(self) -> list[str]:
        return list(self._state.subscriptions)

    def rebalance_soon(self) -> None:
        self._rebalance.soon()

    @property
    def client_id(self) -> str:
        return self._session.client_id


def _renamed(queue: MessageQueue, topic: str) -> MessageQueue:
    if topic == queue.topic:
        return queue
    return MessageQueue(topic=topic, broker_name=queue.broker_name, queue_id=queue.queue_id)


class _Buffer:
    """What was pulled and not handed out yet; `Consumption` for the pull loops."""

    def __init__(self) -> None:
        self.positions: dict[MessageQueue, int] = {}
        self.paused: set[MessageQueue] = set()
        self._ready: deque[tuple[Window, list[ReceivedMessage]]] = deque()
        self._arrived = asyncio.Event()
        self._closed = False

    def submit(self, window: Window, messages: Sequence[ReceivedMessage]) -> None:
        if messages:
            self._ready.append((window, list(messages)))
            self._arrived.set()

    def skipped(self, window: Window, offset: int) -> None:
        if not window.count:
            self.positions[window.queue] = offset

    def wake(self) -> None:
        self._arrived.set()

    def close(self) -> None:
        self._closed = True
        self._ready.clear()
        self._arrived.set()

    async def take(self) -> tuple[Window, list[ReceivedMessage]]:
        """The next messages of a queue that is ours and not paused."""
        while (taken := self.take_now()) is None:
            self._arrived.clear()
            await self._arrived.wait()
        return taken

    def take_now(self) -> tuple[Window, list[ReceivedMessage]] | None:
        """The same if they are there."""
        if self._closed:
            raise ClientClosed("the consumer was closed")
        for _ in range(len(self._ready)):
            window, messages = self._ready.popleft()
            if window.dropped:
                continue
            if window.queue in self.paused:
                self._ready.append((window, messages))
                continue
            return window, messages
        return None

    def handed_out(self, window: Window, messages: list[ReceivedMessage]) -> None:
        offset = window.remove(messages)
        # Behind the last of them there may be some that no filter lets through.
        self.positions[window.queue] = offset if window.count else window.next_offset
