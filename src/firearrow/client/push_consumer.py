"""Consuming by handler: messages are pulled in the background and given to functions."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import TYPE_CHECKING, Any, Final, Self, TypedDict, TypeVar, overload

from firearrow.base.errors import FirearrowError
from firearrow.client.allocation import AllocateAveragely, AllocationStrategy
from firearrow.client.calls import Calls
from firearrow.client.concurrent import ConcurrentConsumption
from firearrow.client.consumer_state import ConsumerSettings, ConsumerState, Subscription
from firearrow.client.errors import ConsumerMisuse, InvalidName
from firearrow.client.giving_back import GivingBack
from firearrow.client.handlers import Caller, Handler, Retry
from firearrow.client.local_offsets import LocalOffsetFile, offset_file_path
from firearrow.client.offset_store import BrokerOffsets, FileOffsets, OffsetStore
from firearrow.client.options import ClientOptions, parse_nameservers
from firearrow.client.ordered import OrderedConsumption
from firearrow.client.producer import Producer
from firearrow.client.questions import Questions
from firearrow.client.rebalance import Rebalance
from firearrow.client.session import Session
from firearrow.client.subscriptions import parse_subscription
from firearrow.client.tracing import TRACE_TIMEOUT_MS, Tracer, trace_group
from firearrow.model.group import (
    TAG,
    ConsumeType,
    SubscriptionData,
    check_group_name,
)
from firearrow.wire.bodies import ConsumerData

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence
    from pathlib import Path

    from firearrow.client.handlers import BatchHandler, MessageHandler
    from firearrow.client.hooks import ConsumeHook
    from firearrow.client.message import ReceivedMessage
    from firearrow.model.group import ConsumeFromWhere, MessageModel
    from firearrow.model.topic import MessageQueue
    from firearrow.wire.bodies import ConsumerRunningInfo

    F = TypeVar("F", bound="Callable[..., Any]")

log = logging.getLogger(__name__)

RESERVED_GROUP: Final = "DEFAULT_CONSUMER"
INNER_GROUP: Final = "CLIENT_INNER_PRODUCER"
BROADCAST_INSTANCE: Final = "DEFAULT"  # the same after a restart: the offset file is named by it


class PushConsumerOptions(TypedDict, total=False):
    """The arguments of `PushConsumer` beside its group; its docstring explains each."""

    nameservers: str | Sequence[str] | None
    ordered: bool | None
    message_model: MessageModel | None
    consume_from_where: ConsumeFromWhere | None
    max_reconsume_times: int | None
    workers_max: int | None
    settings: ConsumerSettings | None
    strategy: AllocationStrategy | None
    trace: bool
    trace_topic: str | None
    hooks: Sequence[ConsumeHook]
    on_assignment: Callable[[str, list[MessageQueue]], None] | None
    offset_folder: str | Path | None
    client: ClientOptions | None


class PushConsumer:
    """Gives messages to handlers; use it with `async with`.

    Args:
        group: Members of a group share its messages, and its progress.
        nameservers: ``host:port``, several joined by semicolons; else environment NAMESRV_ADDR.
        ordered: One message at a time per queue, in the queue's order; a failure holds it up.
        message_model: CLUSTERING shares messages, BROADCASTING gives each member all of them.
        consume_from_where: Where to begin in a queue for which nothing is committed.
        max_reconsume_times: How often a message comes again before it is a dead letter.
        workers_max: How many handlers run at once.
        settings: Everything else about how it consumes.
        strategy: How members share queues; all members must use the same.
        trace: Write trace records for each delivery.
        trace_topic: Where, if not the system's own.
        hooks: See every delivery.
        on_assignment: Called with a topic and the queues that are now this member's.
        offset_folder: Where a broadcasting member keeps its progress.
        client: Settings that all clients share.
    """

    def __init__(
        self,
        group: str,
        *,
        nameservers: str | Sequence[str] | None = None,
        ordered: bool | None = None,
        message_model: MessageModel | None = None,
        consume_from_where: ConsumeFromWhere | None = None,
        max_reconsume_times: int | None = None,
        workers_max: int | None = None,
        settings: ConsumerSettings | None = None,
        strategy: AllocationStrategy | None = None,
        trace: bool = False,
        trace_topic: str | None = None,
        hooks: Sequence[ConsumeHook] = (),
        on_assignment: Callable[[str, list[MessageQueue]], None] | None = None,
        offset_folder: str | Path | None = None,
        client: ClientOptions | None = None,
    ) -> None:
        problem = check_group_name(group)
        if problem is None and group == RESERVED_GROUP:
            problem = f"{RESERVED_GROUP} is the library's own name; choose another group"
        if problem is not None:
            raise InvalidName(problem)
        self.group = group
        given = {
            "ordered": ordered,
            "message_model": message_model,
            "consume_from_where": consume_from_where,
            "max_reconsume_times": max_reconsume_times,
            "workers_max": workers_max,
        }
        chosen: dict[str, Any] = {name: one for name, one in given.items() if one is not None}
        self.settings = dataclasses.replace(settings or ConsumerSettings(), **chosen)
        options = client or ClientOptions()
        addresses = parse_nameservers(nameservers)
        self._session = session = Session(
            addresses,
            options,
            instance_name=BROADCAST_INSTANCE if self.settings.broadcasting else "",
        )
        calls = Calls(session)
        self._state = ConsumerState(
            session, calls, group, self.settings, self._offset_store(calls, offset_folder)
        )
        self._strategy = strategy or AllocateAveragely()
        self._on_assignment = on_assignment
        self._inner = Producer(INNER_GROUP, nameservers=addresses, client=options)
        self._hooks: list[ConsumeHook] = list(hooks)
        self._tracer: Tracer | None = None
        if trace:
            producer = Producer(
                trace_group(group, "CONSUME"),
                nameservers=addresses,
                timeout_ms=TRACE_TIMEOUT_MS,
                client=options,
            )
            self._tracer = Tracer(producer, options.clock, group=group, topic=trace_topic)
            self._hooks.append(self._tracer)
        self._consumption: ConcurrentConsumption | OrderedConsumption | None = None
        self._rebalance: Rebalance | None = None
        self._questions: Questions | None = None
        self._for_iteration: asyncio.Queue[tuple[ReceivedMessage, asyncio.Future[None]]] = (
            asyncio.Queue(1)
        )
        self._closing = asyncio.Event()

    def _offset_store(self, calls: Calls, folder: str | Path | None) -> OffsetStore:
        session = self._session
        if self.settings.broadcasting:
            path = offset_file_path(session.client_id, self.group, folder)
            return FileOffsets(LocalOffsetFile(path))
        return BrokerOffsets(calls, session.wrap(self.group))

    # --- what to consume --------------------------------------------------------------------

    @overload
    def subscribe(
        self, topic: str, expression: str = "*", *, sql: str | None = None
    ) -> Callable[[F], F]: ...

    @overload
    def subscribe(
        self, topic: str, expression: str = "*", *, sql: str | None = None, batch: int
    ) -> Callable[[F], F]: ...

    @overload
    def subscribe(
        self,
        topic: str,
        expression: str = "*",
        handler: MessageHandler | None = None,
        *,
        sql: str | None = None,
    ) -> None: ...

    @overload
    def subscribe(
        self,
        topic: str,
        expression: str = "*",
        handler: BatchHandler | None = None,
        *,
        sql: str | None = None,
        batch: int,
    ) -> None: ...

    def subscribe(
        self,
        topic: str,
        expression: str = "*",
        handler: Callable[..., Any] | None = None,
        *,
        sql: str | None = None,
        batch: int | None = None,
    ) -> Any:
        """Consume a topic, or the part of it that has one of some tags (``a || b``).

        Without a handler it is a decorator. With `sql` the broker selects by properties. With
        `batch` the handler gets lists of up to so many messages. A plain function runs in a
        thread, a coroutine function on the loop.
        """
        if handler is None:

            def decorate(function: F) -> F:
                self.add_subscription(topic, expression, function, sql=sql, batch=batch)
                return function

            return decorate
        self.add_subscription(topic, expression, handler, sql=sql, batch=batch)
        return None

    def add_subscription(
        self,
        topic: str,
        expression: str = "*",
        handler: Callable[..., Any] | None = None,
        *,
        sql: str | None = None,
        batch: int | None = None,
    ) -> None:
        """`subscribe` without the decorator; without a handler it is for `async for`."""
        state = self._state
        wire_topic = self._session.wrap(topic)
        data, tags = parse_subscription(topic, wire_topic, expression, sql, state.clock.now_ms())
        called = Handler.of(handler or self._hand_over, batch if handler else None)
        state.subscriptions[wire_topic] = Subscription(data, called, tags)
        if self._session.running:
            self._session.spawn(self._announce(wire_topic), name="announce")

    async def _announce(self, wire_topic: str) -> None:
        try:
            await self._session.refresh_route(wire_topic)  # who is to hear it
        except FirearrowError as error:
            log.warning("the route of %s is not known yet: %s", wire_topic, error)
        await self._session.send_heartbeats()
        self.rebalance_soon()

    def unsubscribe(self, topic: str) -> None:
        """Stop consuming a topic; its queues are given back with the next rebalance."""
        self._state.subscriptions.pop(self._session.wrap(topic), None)
        self.rebalance_soon()

    # --- life -------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to consume; `async with` does it."""
        state, session = self._state, self._session
        if self._consumption is not None:
            raise ConsumerMisuse("a consumer starts once; create a new one")
        if not self.settings.broadcasting:
            retry = SubscriptionData.of(state.retry_topic, "*", version=state.clock.now_ms())
            state.subscriptions.setdefault(state.retry_topic, Subscription(retry, None))
        await self._inner.start()
        if self._tracer is not None:
            await self._tracer.start()
        caller = Caller(self.group, state.clock, self._hooks)
        giving_back = GivingBack(state, self._inner)
        consumption: ConcurrentConsumption | OrderedConsumption
        if self.settings.ordered:
            consumption = OrderedConsumption(state, caller, giving_back)
        else:
            consumption = ConcurrentConsumption(state, caller, giving_back)
        self._consumption = consumption
        self._rebalance = rebalance = Rebalance(
            state, self._strategy, consumption, self._on_assignment
        )
        if isinstance(consumption, OrderedConsumption):
            rebalance.ask_before_dropping(consumption.busy)
        self._questions = Questions(state, consumption, rebalance.soon)
        self._questions.register()
        session.add_consumer(self.group, self)
        await session.start()
        try:
            await self._join()
        except BaseException:
            await self.close()
            raise
        consumption.start()
        session.spawn(rebalance.run(), name="rebalance")
        session.spawn(self._keep_offsets(), name="offsets")
        if self.settings.ordered and not self.settings.broadcasting:
            session.spawn(rebalance.renew_locks(), name="locks")

    async def _join(self) -> None:
        """Find the brokers, let them judge the filters, tell them that we are here."""
        for subscription in list(self._state.subscriptions.values()):
            route = await self._session.refresh_route(subscription.data.topic)
            if route is not None and subscription.data.expression_type != TAG:
                await self._state.calls.check_subscription(
                    self._state.wire_group, subscription.data
                )
        await self._session.send_heartbeats()

    async def close(self) -> None:
        """Stop: handlers that are running end, offsets are saved, queues are given back."""
        self._closing.set()
        if self._consumption is not None and self._session.running:
            for window in self._state.windows.values():
                window.when_changed(None)
            self._state.paused = True
            await self._consumption.stop()
        if self._rebalance is not None and self._session.running:
            await self._rebalance.give_all_back()
        if self._tracer is not None:
            await self._tracer.stop()
        await self._session.stop()
        await self._inner.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _keep_offsets(self) -> None:
        while True:
            await self._state.clock.sleep(self.settings.persist_offsets_ms)
            try:
                await self._state.offsets.save(list(self._state.windows))
            except FirearrowError as error:
                log.warning("offsets of group %s are not saved: %s", self.group, error)

    # --- while it runs ----------------------------------------------------------------------

    def pause(self) -> None:
        """Pull nothing more until `resume`; what was pulled is still consumed."""
        self._state.paused = True

    def resume(self) -> None:
        """Go on after `pause`."""
        self._state.paused = False
        self.rebalance_soon()

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that this member consumes now."""
        return sorted(queue for queue, window in self._state.windows.items() if not window.dropped)

    @property
    def client_id(self) -> str:
        return self._session.client_id

    def running_info(self) -> ConsumerRunningInfo:
        """How this consumer is doing, as `mqadmin consumerStatus` shows it."""
        if self._questions is None:
            raise ConsumerMisuse("the consumer is not started")
        return self._questions.running_info()

    async def __aiter__(self) -> AsyncGenerator[ReceivedMessage, None]:
        """Messages of subscriptions without a handler, one by one, until the consumer is closed.

        A message is consumed when the next one is asked for; one that the loop leaves with, by
        `break` or by an exception, comes again.
        """
        while (taken := await self._next_taken()) is not None:
            message, done = taken
            try:
                yield message
            except BaseException:
                if not done.done():
                    done.set_exception(Retry("the loop over messages was left"))
                raise
            if not done.done():
                done.set_result(None)

    async def _next_taken(self) -> tuple[ReceivedMessage, asyncio.Future[None]] | None:
        """What a loop over messages gets next; None when the consumer is closed."""
        taking = asyncio.ensure_future(self._for_iteration.get())
        try:
            await self._unless_closed(taking)
            return taking.result() if taking.done() else None
        finally:
            taking.cancel()

    async def _hand_over(self, message: ReceivedMessage) -> None:
        """The handler of subscriptions that have none: somebody iterates, or will."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        await self._for_iteration.put((message, done))
        await self._unless_closed(done)
        if not done.done():
            done.cancel()
            raise Retry("the consumer was closed before the loop was done with the message")
        done.result()

    async def _unless_closed(self, waited: asyncio.Future[Any]) -> None:
        """Wait for something, or until the consumer is closed."""
        closing = asyncio.ensure_future(self._closing.wait())
        try:
            await asyncio.wait([waited, closing], return_when=asyncio.FIRST_COMPLETED)
        finally:
            closing.cancel()

    # --- for the session (client.session.ConsumerMember) ------------------------------------

    def consumer_data(self) -> ConsumerData:
        return ConsumerData(
            group_name=self._state.wire_group,
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            message_model=self.settings.message_model,
            consume_from_where=self.settings.consume_from_where,
            subscription_data_set=tuple(one.data for one in self._state.subscriptions.values()),
        )

    def topics(self) -> list[str]:
        return list(self._state.subscriptions)

    def rebalance_soon(self) -> None:
        if self._rebalance is not None:
            self._rebalance.soon()
