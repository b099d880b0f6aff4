"""Sending messages.

    send ── pack (id, properties, compression) ── route ── queue ── request ── receipt
                                                   └── on failure: another broker, while time lasts

An ordinary message takes the quick way first (`quick_sends.py`): one coroutine, one future and one
compiled frame; requests of one turn of the loop leave in one write. What is not ordinary, and every
second try, goes through the general code here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, Final, Self, TypedDict, TypeVar

from firearrow.base.errors import FirearrowError
from firearrow.base.runtime import time_limit
from firearrow.client.errors import InvalidMessage, InvalidName, SendTimeout
from firearrow.client.hooks import SendContext, SendHook, call_each
from firearrow.client.in_flight import InFlight
from firearrow.client.options import ClientOptions, parse_nameservers
from firearrow.client.packing import Packer
from firearrow.client.quick_sends import QuickSends, take_receipts
from firearrow.client.requests import PendingReplies, add_reply_properties, reply_message
from firearrow.client.selection import BrokerFaults, QueueTurns, by_key
from firearrow.client.sending import (
    BatchPartlySent,
    Delivery,
    Envelope,
    SendReceipt,
    SendStatus,
    batch_envelope,
    broker_of_recall_handle,
    check_batch,
    check_message,
    check_queue,
    encode_batches,
    queue_of,
    receipt_of,
    send_command,
)
from firearrow.client.session import Session
from firearrow.client.tracing import TRACE_TIMEOUT_MS, Tracer, trace_group
from firearrow.model.compression import Compression
from firearrow.model.errors import BrokerError
from firearrow.model.group import check_group_name
from firearrow.model.topic import MessageQueue
from firearrow.net.errors import NetworkError
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import Command
from firearrow.wire.headers import RecallMessageReply, RecallMessageRequest

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Iterator, Sequence

    from firearrow.client.message import Message, ReceivedMessage
    from firearrow.client.quick_sends import Begun
    from firearrow.client.routes import TopicRoute
    from firearrow.client.selection import Selector
    from firearrow.client.sending import Batch
    from firearrow.net.connection import Waiter

log = logging.getLogger(__name__)

T = TypeVar("T")

# Answers after which another broker may do better: failed, busy, unavailable, no permission,
# no topic, two of Alibaba's own, going away.
RETRY_CODES: Final = frozenset({1, 2, 14, 16, 17, 204, 205, 1500})
RESERVED_GROUP: Final = "DEFAULT_PRODUCER"


class ProducerOptions(TypedDict, total=False):
    """The arguments of `Producer` beside its group; its docstring explains each."""

    nameservers: str | Sequence[str] | None
    timeout_ms: int
    retries: int
    compress_over_bytes: int
    compression: Compression | str
    compress_level: int
    max_message_bytes: int
    retry_unless_ok: bool
    avoid_slow_brokers: bool
    creation_queue_nums: int
    in_flight_max: int
    trace: bool
    trace_topic: str | None
    hooks: Sequence[SendHook]
    client: ClientOptions | None


class Producer:
    """Sends messages; use it with `async with`, and share one among all tasks.

    Args:
        group: Who is sending; producers that do the same share a group.
        nameservers: ``host:port``, several joined by semicolons; else environment NAMESRV_ADDR.
        timeout_ms: For a send as a whole, retries included.
        retries: How often a send that failed is tried again, on another broker.
        compress_over_bytes: Bodies of at least so many bytes are compressed.
        compression: How: zlib (which every client reads), lz4 or zstd.
        compress_level: How hard.
        max_message_bytes: Larger bodies are refused before they are sent.
        retry_unless_ok: Also try another broker when a message was stored less safely than asked.
        avoid_slow_brokers: Leave brokers alone for a while that were slow or failed.
        creation_queue_nums: Queues of a topic that is created by the first send.
        in_flight_max: Sends under way at once; more wait for room.
        trace: Write a trace record for each message (`mqadmin queryMsgTraceById` reads it).
        trace_topic: Where, if not the system's own.
        hooks: See every send.
        client: Settings that all clients share.
    """

    def __init__(
        self,
        group: str,
        *,
        nameservers: str | Sequence[str] | None = None,
        timeout_ms: int = 3_000,
        retries: int = 2,
        compress_over_bytes: int = 4_096,
        compression: Compression | str = Compression.ZLIB,
        compress_level: int = 5,
        max_message_bytes: int = 4 * 1024 * 1024,
        retry_unless_ok: bool = False,
        avoid_slow_brokers: bool = False,
        creation_queue_nums: int = 4,
        in_flight_max: int = 65_535,
        trace: bool = False,
        trace_topic: str | None = None,
        hooks: Sequence[SendHook] = (),
        client: ClientOptions | None = None,
    ) -> None:
        problem = check_group_name(group)
        if problem is None and group == RESERVED_GROUP:
            problem = f"{RESERVED_GROUP} is the library's own name; choose another group"
        if problem is not None:
            raise InvalidName(problem)
        self.group = group
        self.timeout_ms = timeout_ms
        self.retries = retries
        self._options = client or ClientOptions()
        self._nameservers = parse_nameservers(nameservers)
        self._max_message_bytes = max_message_bytes
        self._retry_unless_ok = retry_unless_ok
        self._creation_queue_nums = creation_queue_nums
        self._creation_text = str(creation_queue_nums)
        self._turns = QueueTurns(BrokerFaults() if avoid_slow_brokers else None)
        self._in_flight = InFlight(in_flight_max, self._options.clock)
        self._hooks: list[SendHook] = list(hooks)
        self._session = session = Session(self._nameservers, self._options, express=take_receipts)
        self._clock = self._options.clock
        self._group_on_wire = session.wrap(group)
        self._packer = Packer(
            session, over_bytes=compress_over_bytes, compression=compression, level=compress_level
        )
        self._quick: QuickSends | None = None
        # Nobody looks, no latency is learned, and what was stored is not tried again.
        if self._options.plain and not (hooks or trace or avoid_slow_brokers or retry_unless_ok):
            self._quick = QuickSends(
                session,
                self._packer,
                self._turns,
                self._in_flight,
                group=self._group_on_wire,
                creation_queue_nums=creation_queue_nums,
                max_message_bytes=max_message_bytes,
            )
        self._replies = PendingReplies(self._session)
        self._tracer: Tracer | None = None
        if trace:
            self._tracer = Tracer(
                Producer(
                    trace_group(group, "PRODUCE"),
                    nameservers=self._nameservers,
                    timeout_ms=TRACE_TIMEOUT_MS,
                    client=self._options,
                ),
                self._clock,
                group=group,
                topic=trace_topic,
            )
            self._hooks.append(self._tracer)

    # --- life -------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin; `async with` does it. No server need be reachable yet."""
        self._session.producers.add(self.group)
        self._session.handle(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, self._replies.handle_push_reply
        )
        await self._session.start()
        if self._tracer is not None:
            await self._tracer.start()

    async def close(self) -> None:
        """End; sends under way fail with ClientClosed or a lost connection."""
        if self._tracer is not None:
            await self._tracer.stop()
        self._replies.close()
        await self._session.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def client_id(self) -> str:
        return self._session.client_id

    # --- sending ----------------------------------------------------------------------------

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        key: str | int | None = None,
        selector: Selector | None = None,
        timeout_ms: int | None = None,
    ) -> SendReceipt:
        """Send one message and wait for the broker's receipt.

        Args:
            message: What to send. It gets its `msg_id` here.
            queue: Send to this queue; it is tried once.
            key: Send to the queue of this key: messages with one key stay in order.
            selector: Called with all queues and the message; returns the queue.
            timeout_ms: For this send, retries included.

        Raises:
            FirearrowError: When it failed; `retriable` says whether another try makes sense.
        """
        self._session.check_running()
        timeout_ms = timeout_ms or self.timeout_ms
        if self._quick is not None and selector is None:
            answer = asyncio.get_running_loop().create_future()
            begun = self._quick.begin(message, answer, timeout_ms, queue, key)
            if begun is not None:
                try:
                    outcome = await answer
                except FirearrowError as error:
                    outcome = error
                finally:
                    self._in_flight.leave()
                if isinstance(outcome, SendReceipt):
                    return outcome
                chosen = queue is not None or key is not None
                return await self.go_on(message, begun, outcome, timeout_ms, chosen=chosen)
        check_message(message, self._max_message_bytes)
        deadline_ms = self._clock.elapsed_ms() + timeout_ms
        packed = await self._packer.pack(message)
        route = await self._in_time(self._publish_route(packed.topic), deadline_ms)
        queue = self._select(route, message, queue, key, selector)
        return await self._deliver(
            Delivery(packed, [message], route, queue, deadline_ms, timeout_ms)
        )

    def begin_send(
        self,
        message: Message,
        waiter: Waiter,
        timeout_ms: int,
        queue: MessageQueue | None,
        key: str | int | None,
    ) -> Begun | None:
        """`send` without a coroutine, for blocking callers: `waiter` hears how the try ended.

        None if it cannot be begun so simply: then `send` must be used. Whoever hears must call
        `sent`, and `go_on` unless it is a receipt. On the loop only.
        """
        self._session.check_running()
        if self._quick is None:
            return None
        return self._quick.begin(message, waiter, timeout_ms, queue, key)

    def sent(self) -> None:
        """A try that `begin_send` began has ended."""
        self._in_flight.leave()

    async def go_on(
        self,
        message: Message,
        begun: Begun,
        outcome: Command | FirearrowError,
        timeout_ms: int,
        *,
        chosen: bool,
    ) -> SendReceipt:
        """Read an unusual answer to a quick send; after a failure try again while time lasts."""
        deadline_ms, queue = begun
        broker_name = queue.broker_name
        if isinstance(outcome, Command):
            try:
                return receipt_of(outcome, message, message.topic, broker_name)
            except FirearrowError as error:
                outcome = error
        packed = await self._packer.pack(message)
        route = await self._in_time(self._publish_route(packed.topic), deadline_ms)
        fixed = queue if chosen or message.sharding_key is not None else None
        failed = broker_name, outcome
        return await self._deliver(
            Delivery(packed, [message], route, fixed, deadline_ms, timeout_ms, failed)
        )

    async def send_batch(
        self,
        messages: Iterable[Message],
        *,
        queue: MessageQueue | None = None,
        split: bool = True,
        timeout_ms: int | None = None,
    ) -> list[SendReceipt]:
        """Send messages of one topic in as few requests as possible; a receipt per request.

        A batch that is too large for one request is split, unless `split` is False; when a part
        fails after others were stored, BatchPartlySent says which.
        """
        self._session.check_running()
        messages = list(messages)
        check_batch(messages)
        msg_ids = self._packer.mark_all(messages)
        # All parts are known to fit before the first one leaves.
        batches = encode_batches(messages, msg_ids, self._max_message_bytes, split=split)
        receipts: list[SendReceipt] = []
        sent = 0
        for batch in batches:
            try:
                receipts.append(await self._send_part(batch, queue, timeout_ms or self.timeout_ms))
            except FirearrowError as error:
                if not receipts:
                    raise
                text = f"{sent} of {len(messages)} messages are stored, then: {error}"
                raise BatchPartlySent(
                    text, receipts, messages[sent:], retriable=error.retriable
                ) from error
            sent += len(batch.messages)
        return receipts

    async def _send_part(
        self, batch: Batch, queue: MessageQueue | None, timeout_ms: int
    ) -> SendReceipt:
        check_queue(queue, topic := batch.messages[0].topic)
        packed = batch_envelope(batch, self._session.wrap(topic))
        deadline_ms, failed = self._clock.elapsed_ms() + timeout_ms, None
        if self._quick is not None:
            answer = asyncio.get_running_loop().create_future()
            begun = self._quick.begin_batch(batch, answer, timeout_ms, queue)
            if begun is not None:
                broker_name = begun[1].broker_name
                try:
                    outcome = await answer
                    if isinstance(outcome, SendReceipt):
                        return outcome
                    return receipt_of(outcome, packed, topic, broker_name)
                except FirearrowError as error:
                    failed = broker_name, error
                finally:
                    self._in_flight.leave()
        route = await self._in_time(self._publish_route(packed.topic), deadline_ms)
        return await self._deliver(
            Delivery(packed, batch.messages, route, queue, deadline_ms, timeout_ms, failed)
        )

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        key: str | int | None = None,
        selector: Selector | None = None,
    ) -> None:
        """Send and do not wait: nobody will say whether it arrived."""
        self._session.check_running()
        check_message(message, self._max_message_bytes)
        packed = await self._packer.pack(message)
        route = await self._publish_route(packed.topic)
        queue = self._select(route, message, queue, key, selector)
        queue = queue or self._turns.choose(route.publish, now_ms=self._clock.elapsed_ms())
        address = await self._session.find_master(queue.broker_name, packed.topic)
        command = self._command(packed, queue, oneway=True)
        with self._watched([message], queue, address):
            await self._session.invoke_oneway(address, command)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues that messages of a topic can be sent to."""
        self._session.check_running()
        route = await self._publish_route(self._session.wrap(topic))
        return [self._shown(queue) for queue in route.publish]

    # --- request and reply ------------------------------------------------------------------

    async def request(
        self, message: Message, *, timeout_ms: int = 3_000, key: str | int | None = None
    ) -> ReceivedMessage:
        """Send a message and wait until some consumer replies to it."""
        self._session.check_running()
        topic = self._session.wrap(message.topic)
        if self._session.known_route(topic) is None:
            await self._publish_route(topic)
            await self._session.send_heartbeats()  # the broker must know where replies go
        correlation_id = add_reply_properties(message, self.client_id, timeout_ms)
        deadline_ms = self._clock.elapsed_ms() + timeout_ms
        with self._replies.expect(correlation_id) as reply:
            await self.send(message, key=key, timeout_ms=timeout_ms)
            return await self._replies.wait(reply, deadline_ms - self._clock.elapsed_ms())

    async def reply(self, question: ReceivedMessage, body: bytes | str) -> SendReceipt:
        """Answer a message that was sent with `request`."""
        return await self.send(reply_message(question, body))

    async def recall(self, topic: str, recall_handle: str) -> str:
        """Take back a timed message before it is due; returns its id."""
        self._session.check_running()
        wire_topic = self._session.wrap(topic)
        route = await self._publish_route(wire_topic)
        broker_name = broker_of_recall_handle(recall_handle) or route.publish[0].broker_name
        address = await self._session.find_master(broker_name, wire_topic)
        header = RecallMessageRequest(
            producer_group=self._group_on_wire, topic=wire_topic, recall_handle=recall_handle
        )
        answer = await self._session.call(address, RequestCode.RECALL_MESSAGE, header)
        return RecallMessageReply.from_ext(answer.ext).msg_id

    # --- how --------------------------------------------------------------------------------

    async def _publish_route(self, topic: str) -> TopicRoute:
        return await self._session.publish_route(
            topic, creation_queue_nums=self._creation_queue_nums
        )

    async def _in_time(self, work: Coroutine[Any, Any, T], deadline_ms: int) -> T:
        """What name servers are asked on behalf of a send counts against its time as well."""
        try:
            async with time_limit(self._clock, deadline_ms - self._clock.elapsed_ms()):
                return await work
        except TimeoutError:
            raise SendTimeout("no name server has said in time where to send to") from None

    def _select(
        self,
        route: TopicRoute,
        message: Message,
        queue: MessageQueue | None,
        key: str | int | None,
        selector: Selector | None,
    ) -> MessageQueue | None:
        """The one queue that a message must go to; None if any will do."""
        key = key if key is not None else message.sharding_key
        if queue is None and selector is None:
            return None if key is None else by_key(route.publish, key)
        if queue is None and selector is not None:
            queue = selector([self._shown(one) for one in route.publish], message)
        if not isinstance(queue, MessageQueue):
            raise InvalidMessage(f"the selector returned {queue!r}, not one of the queues")
        check_queue(queue, message.topic)
        return queue

    def _shown(self, queue: MessageQueue) -> MessageQueue:
        if not self._options.namespace:
            return queue
        return queue_of(self._session.unwrap(queue.topic), queue)

    def _command(self, packed: Envelope, queue: MessageQueue, *, oneway: bool = False) -> Command:
        return send_command(
            packed,
            queue,
            group=self._group_on_wire,
            born_ms=self._clock.now_ms(),
            creation_queue_nums=self._creation_text,
            oneway=oneway,
        )

    async def _deliver(self, delivery: Delivery) -> SendReceipt:
        """Try until stored, refused, or out of tries or time."""
        await self._in_flight.enter(delivery.deadline_ms)
        try:
            return await self._try_brokers(delivery)
        finally:
            self._in_flight.leave()

    async def _try_brokers(self, delivery: Delivery) -> SendReceipt:
        packed, messages, route, fixed, deadline_ms, timeout_ms, failed = delivery
        last_broker: str | None = None
        last_receipt: SendReceipt | None = None
        failure: FirearrowError | None = None
        tries = 1 if fixed is not None else 1 + self.retries
        attempts = range(tries)
        if failed is not None:
            last_broker, failure = failed
            attempts = range(1, tries) if self.worth_retrying(failure) else range(0)
            if attempts:
                route = await self._route_after(failure, packed.topic, route, deadline_ms)
        for attempt in attempts:
            now_ms = self._clock.elapsed_ms()
            if now_ms >= deadline_ms:
                break
            queue = fixed or self._turns.choose(route.publish, last_broker, now_ms)
            last_broker = queue.broker_name
            try:
                receipt = await self._try(packed, messages, queue, deadline_ms - now_ms)
            except FirearrowError as error:
                failure = error
                if not self.worth_retrying(error):
                    break
                if attempt + 1 < tries:
                    route = await self._route_after(error, packed.topic, route, deadline_ms)
                continue
            if receipt.status is SendStatus.SEND_OK or not self._retry_unless_ok:
                return receipt
            last_receipt = receipt
        if last_receipt is not None:
            return last_receipt
        if failure is None or (self.worth_retrying(failure) and self._is_late(deadline_ms)):
            reason = f": {failure}" if failure else ""
            self._session.refresh_soon(packed.topic)  # a silent broker may have been replaced
            raise SendTimeout(
                f"{packed.topic}: not sent within {timeout_ms} ms{reason}"
            ) from failure
        raise failure

    def _is_late(self, deadline_ms: int) -> bool:
        return self._clock.elapsed_ms() >= deadline_ms

    @staticmethod
    def worth_retrying(error: FirearrowError) -> bool:
        """Whether another broker may do better."""
        return error.code in RETRY_CODES if isinstance(error, BrokerError) else error.retriable

    async def _route_after(
        self, error: FirearrowError, topic: str, route: TopicRoute, deadline_ms: int
    ) -> TopicRoute:
        """What was believed about the topic may be why it failed."""
        if isinstance(error, BrokerError) and not error.refresh_route:
            return route
        try:
            fresh = await self._in_time(self._session.refresh_route(topic), deadline_ms)
        except FirearrowError:
            return route
        return fresh if fresh is not None and fresh.publish else route

    async def _try(
        self, packed: Envelope, messages: list[Message], queue: MessageQueue, timeout_ms: int
    ) -> SendReceipt:
        session = self._session
        topic = messages[0].topic
        address = session.master_address(queue.broker_name)
        if address is None:
            found = session.find_master(queue.broker_name, packed.topic)
            address = await self._in_time(found, self._clock.elapsed_ms() + timeout_ms)
        command = self._command(packed, queue)
        if not self._hooks and self._turns.faults is None:
            answer = await session.invoke(address, command, timeout_ms)
            return receipt_of(answer, packed, topic, queue.broker_name)
        with self._watched(messages, queue, address) as context:
            answer = await session.invoke(address, command, timeout_ms)
            context.receipt = receipt_of(answer, packed, topic, queue.broker_name)
        return context.receipt

    @contextlib.contextmanager
    def _watched(
        self, messages: list[Message], queue: MessageQueue, address: str
    ) -> Iterator[SendContext]:
        """Tell hooks how a send begins and ends, and remember how long it took."""
        context = SendContext(
            group=self.group,
            messages=messages,
            queue=queue,
            broker_address=address,
            started_ms=self._clock.now_ms(),
        )
        call_each((hook.before_send for hook in self._hooks), context)
        started_ms = self._clock.elapsed_ms()
        try:
            yield context
        except BaseException as error:
            context.error = error
            raise
        finally:
            context.took_ms = self._clock.elapsed_ms() - started_ms
            self._note_latency(context)
            call_each((hook.after_send for hook in self._hooks), context)

    def _note_latency(self, context: SendContext) -> None:
        if self._turns.faults is not None:
            self._turns.faults.record(
                context.queue.broker_name,
                context.took_ms,
                self._clock.elapsed_ms(),
                failed=isinstance(context.error, NetworkError | BrokerError),
                reachable=not isinstance(context.error, BrokerError),
            )
