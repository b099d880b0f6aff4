"""The same clients without `await`: each drives its asyncio twin on the process's portal.

Nothing is decided here. A method passes its arguments on and waits; handlers run in threads, so
they may block, and may use blocking clients themselves. After a fork, producers and Admin start
anew in the child when they are next used; a consumer must be created there.
"""

from __future__ import annotations

import signal
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar, Unpack, overload

from firearrow.client import idempotent as aio_idempotent
from firearrow.client import producer as aio_producer
from firearrow.client import pull_consumer as aio_pull
from firearrow.client import push_consumer as aio_push
from firearrow.client import transactions as aio_transactions
from firearrow.client.errors import ClientClosed
from firearrow.client.portal import Call, portal
from firearrow.client.sending import SendReceipt

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping

    from firearrow.base.errors import FirearrowError
    from firearrow.client.message import Message, ReceivedMessage
    from firearrow.client.producer import ProducerOptions
    from firearrow.client.pull_consumer import PullConsumerOptions
    from firearrow.client.push_consumer import PushConsumerOptions
    from firearrow.client.quick_sends import Begun
    from firearrow.client.selection import Selector
    from firearrow.client.transactions import Checker, LocalTransaction, TransactionReceipt
    from firearrow.model.topic import MessageQueue
    from firearrow.wire.bodies import ConsumerRunningInfo
    from firearrow.wire.command import Command

    F = TypeVar("F", bound=Callable[..., Any])

C = TypeVar("C", bound=Any)
T = TypeVar("T")
SOON_MAX: Final = 2_048  # more in flight do not make it faster, they only fill memory


class BlockingClient(Generic[C]):
    """Start, stop and forks, for all of them."""

    def __init__(self, make: Callable[[], C], *, survives_fork: bool) -> None:
        self._make = make
        self._survives_fork = survives_fork
        self._generation = portal.generation
        self._guard = threading.Lock()
        self._started = False
        self._prepared: list[Callable[[C], None]] = []  # what was asked for before the start
        self._aio: C = portal.call(self._build)

    async def _build(self) -> C:
        aio = self._make()
        for prepare in self._prepared:
            prepare(aio)
        return aio

    def start(self) -> None:
        """Begin; `with` does it. A client that was created before a fork can start after it."""
        portal.call(self._here().start)
        self._started = True

    def _prepare(self, step: Callable[[C], None]) -> None:
        """Do something to the asyncio twin, and to one that takes its place before the start."""
        here = self._here()

        async def run() -> None:
            step(here)

        portal.call(run)
        if not self._started:
            self._prepared.append(step)

    def close(self) -> None:
        """End; `with` does it. In a forked child the parent's client is only forgotten."""
        self._started = False
        if self._generation == portal.generation:
            portal.call(self._aio.close)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def client_id(self) -> str:
        """What brokers know this client by."""
        return str(self._here().client_id)

    def _here(self) -> C:
        """The asyncio twin that lives in this process."""
        if self._generation != portal.generation:
            self._start_anew()
        return self._aio

    def _each(self, source: AsyncIterator[T]) -> Iterator[T]:
        """What an asynchronous iterator brings, one by one."""

        async def following() -> T | None:
            return await anext(source, None)

        while (item := portal.call(following)) is not None:
            yield item

    def _start_anew(self) -> None:
        if self._started and not self._survives_fork:
            raise ClientClosed(
                "this client was started before the process forked; create a new one in the child"
            )
        with self._guard:
            if self._generation != portal.generation:
                self._aio = portal.call(self._build)
                if self._started:
                    portal.call(self._aio.start)
                self._generation = portal.generation


class SendCall(Call[SendReceipt]):
    """A send from a thread: begun without a coroutine if it is an ordinary one.

    On the connection it is who waits for the answer (`net.connection.Waiter`).
    """

    __slots__ = ("_begun", "_key", "_message", "_producer", "_queue", "_timeout_ms")

    def __init__(
        self,
        producer: aio_producer.Producer,
        message: Message,
        timeout_ms: int | None,
        queue: MessageQueue | None = None,
        key: str | int | None = None,
        *,
        future: Future[SendReceipt] | None = None,
    ) -> None:
        super().__init__(self._send, future)
        self._producer = producer
        self._message = message
        self._timeout_ms = timeout_ms or producer.timeout_ms
        self._queue = queue
        self._key = key
        self._begun: Begun | None = None

    def begin(self) -> None:
        producer, timeout_ms = self._producer, self._timeout_ms
        self._begun = producer.begin_send(self._message, self, timeout_ms, self._queue, self._key)
        if self._begun is None:
            self.run(self._send())

    def _send(self) -> Coroutine[Any, Any, SendReceipt]:
        return self._producer.send(
            self._message, queue=self._queue, key=self._key, timeout_ms=self._timeout_ms
        )

    def done(self) -> bool:
        return False

    def set_result(self, answer: SendReceipt | Command) -> None:
        if isinstance(answer, SendReceipt):
            self._producer.sent()
            self.settle(result=answer)
        else:
            self._go_on(answer)

    def set_exception(self, error: FirearrowError) -> None:
        self._go_on(error)

    def _go_on(self, outcome: Command | FirearrowError) -> None:
        producer, begun = self._producer, self._begun
        assert begun is not None
        producer.sent()
        chosen = self._queue is not None or self._key is not None
        self.run(producer.go_on(self._message, begun, outcome, self._timeout_ms, chosen=chosen))


class Producer(BlockingClient[aio_producer.Producer]):
    """Sends messages; use it with `with`, and share one among all threads.

    Args:
        group: Who is sending; producers that do the same share a group.
        options: As for `firearrow.aio.Producer`.
    """

    def __init__(self, group: str, **options: Unpack[ProducerOptions]) -> None:
        self.group = group
        self._soon = threading.Semaphore(SOON_MAX)
        super().__init__(lambda: aio_producer.Producer(group, **options), survives_fork=True)

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        key: str | int | None = None,
        selector: Selector | None = None,
        timeout_ms: int | None = None,
    ) -> SendReceipt:
        """Send one message and wait for the broker's receipt."""
        here = self._here()
        if selector is None:
            return portal.pass_on(SendCall(here, message, timeout_ms, queue, key))
        return portal.call(here.send, message, selector=selector, timeout_ms=timeout_ms)

    def send_soon(self, message: Message, *, timeout_ms: int | None = None) -> Future[SendReceipt]:
        """Send without waiting; the future gets the receipt, and callbacks when it is there.

        Waits only while SOON_MAX sends are under way already.
        """
        self._soon.acquire()
        future: Future[SendReceipt] = Future()
        future.add_done_callback(lambda _: self._soon.release())
        portal.begin(SendCall(self._here(), message, timeout_ms, future=future))
        return future

    def send_batch(
        self,
        messages: Iterable[Message],
        *,
        queue: MessageQueue | None = None,
        split: bool = True,
        timeout_ms: int | None = None,
    ) -> list[SendReceipt]:
        """Send messages of one topic in as few requests as possible."""
        return portal.call(
            self._here().send_batch, messages, queue=queue, split=split, timeout_ms=timeout_ms
        )

    def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        key: str | int | None = None,
        selector: Selector | None = None,
    ) -> None:
        """Send and do not wait: nobody will say whether it arrived."""
        portal.call(self._here().send_oneway, message, queue=queue, key=key, selector=selector)

    def request(
        self, message: Message, *, timeout_ms: int = 3_000, key: str | int | None = None
    ) -> ReceivedMessage:
        """Send a message and wait until some consumer replies to it."""
        return portal.call(self._here().request, message, timeout_ms=timeout_ms, key=key)

    def reply(self, question: ReceivedMessage, body: bytes | str) -> SendReceipt:
        """Answer a message that was sent with `request`."""
        return portal.call(self._here().reply, question, body)

    def recall(self, topic: str, recall_handle: str) -> str:
        """Take back a timed message before it is due; returns its id."""
        return portal.call(self._here().recall, topic, recall_handle)

    def queues(self, topic: str) -> list[MessageQueue]:
        """The queues that messages of a topic can be sent to."""
        return portal.call(self._here().queues, topic)


class TransactionProducer(Producer):
    """A producer whose messages wait for a local transaction.

    Args:
        group: As for `Producer`; the broker asks any live producer of the group.
        check: Called with a half message whose outcome the broker does not know; returns it.
        options: As for `firearrow.aio.Producer`.
    """

    def __init__(self, group: str, *, check: Checker, **options: Unpack[ProducerOptions]) -> None:
        self.group = group
        self._soon = threading.Semaphore(SOON_MAX)
        BlockingClient.__init__(
            self,
            lambda: aio_transactions.TransactionProducer(group, check=check, **options),
            survives_fork=True,
        )

    def send_in_transaction(
        self, message: Message, local: LocalTransaction, *, timeout_ms: int | None = None
    ) -> TransactionReceipt:
        """Send a half message, run `local` in a thread, tell the broker what it said."""
        here = self._here()
        assert isinstance(here, aio_transactions.TransactionProducer)
        return portal.call(here.send_in_transaction, message, local, timeout_ms=timeout_ms)


class IdempotentProducer(Producer):
    """A producer whose resends make no second message, on FireArrow's brokers.

    A message whose `send` has failed can be sent again, by this producer, and is stored once.

    Args:
        group: As for `Producer`.
        options: As for `firearrow.aio.IdempotentProducer`.
    """

    def __init__(self, group: str, **options: Unpack[ProducerOptions]) -> None:
        self.group = group
        self._soon = threading.Semaphore(SOON_MAX)
        BlockingClient.__init__(
            self,
            lambda: aio_idempotent.IdempotentProducer(group, **options),
            survives_fork=True,
        )


class PushConsumer(BlockingClient[aio_push.PushConsumer]):
    """Gives messages to handlers, in threads; use it with `with`.

    Args:
        group: Members of a group share its messages, and its progress.
        options: As for `firearrow.aio.PushConsumer`.
    """

    def __init__(self, group: str, **options: Unpack[PushConsumerOptions]) -> None:
        self.group = group
        self._ended = threading.Event()
        super().__init__(lambda: aio_push.PushConsumer(group, **options), survives_fork=False)

    @overload
    def subscribe(
        self,
        topic: str,
        expression: str = "*",
        *,
        sql: str | None = None,
        batch: int | None = None,
    ) -> Callable[[F], F]: ...

    @overload
    def subscribe(
        self,
        topic: str,
        expression: str = "*",
        handler: Callable[..., Any] | None = None,
        *,
        sql: str | None = None,
        batch: int | None = None,
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
        `batch` the handler gets lists of up to so many messages.
        """
        if handler is not None:
            self._subscribe(topic, expression, handler, sql, batch)
            return None

        def decorate(function: F) -> F:
            self._subscribe(topic, expression, function, sql, batch)
            return function

        return decorate

    def add_subscription(
        self, topic: str, expression: str = "*", *, sql: str | None = None
    ) -> None:
        """Subscribe without a handler: the messages are for `for message in consumer`."""
        self._subscribe(topic, expression, None, sql, None)

    def _subscribe(
        self,
        topic: str,
        expression: str,
        handler: Callable[..., Any] | None,
        sql: str | None,
        batch: int | None,
    ) -> None:
        self._prepare(
            lambda aio: aio.add_subscription(topic, expression, handler, sql=sql, batch=batch)
        )

    def unsubscribe(self, topic: str) -> None:
        """Stop consuming a topic."""
        self._prepare(lambda aio: aio.unsubscribe(topic))

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """Messages of subscriptions without a handler, one by one, until the consumer is closed.

        A message is consumed when the next one is asked for; one that the loop leaves with, by
        `break` or by an exception, comes again.
        """
        source = self._here().__aiter__()

        async def leave() -> None:
            await source.aclose()

        try:
            yield from self._each(source)
        finally:
            portal.call(leave)

    def run(self) -> None:
        """Consume until `close`, Ctrl-C or SIGTERM; starts the consumer if it is not."""
        if not self._started:
            self.start()
        previous = None
        if threading.current_thread() is threading.main_thread():
            previous = signal.signal(signal.SIGTERM, lambda *_: self._ended.set())
        try:
            self._ended.wait()
        except KeyboardInterrupt:
            pass
        finally:
            if previous is not None:
                signal.signal(signal.SIGTERM, previous)
            self.close()

    def close(self) -> None:
        """Stop: handlers that are running end, offsets are saved, queues are given back."""
        self._ended.set()
        if self._started:
            super().close()

    def pause(self) -> None:
        """Pull nothing more until `resume`; what was pulled is still consumed."""
        portal.run_soon(self._here().pause)

    def resume(self) -> None:
        """Go on after `pause`."""
        portal.run_soon(self._here().resume)

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that this member consumes now."""
        return self._here().assignment

    def running_info(self) -> ConsumerRunningInfo:
        """How this consumer is doing, as `mqadmin consumerStatus` shows it."""
        return self._here().running_info()


class PollCall(Call[list["ReceivedMessage"]]):
    """A poll from a thread: without a coroutine if there are messages."""

    __slots__ = ("_consumer",)

    def __init__(self, consumer: aio_pull.PullConsumer, timeout_ms: int) -> None:
        super().__init__(lambda: consumer.poll(timeout_ms))
        self._consumer = consumer

    def begin(self) -> None:
        messages = self._consumer.poll_now()
        if messages is None:
            super().begin()
        else:
            self.settle(result=messages)


class PullConsumer(BlockingClient[aio_pull.PullConsumer]):
    """Messages on request; use it with `with`.

    Args:
        group: Whose progress this is.
        options: As for `firearrow.aio.PullConsumer`.
    """

    def __init__(self, group: str, **options: Unpack[PullConsumerOptions]) -> None:
        self.group = group
        super().__init__(lambda: aio_pull.PullConsumer(group, **options), survives_fork=False)

    def subscribe(self, topic: str, expression: str = "*", *, sql: str | None = None) -> None:
        """Share the queues of a topic with the other members of the group."""
        self._prepare(lambda aio: aio.subscribe(topic, expression, sql=sql))

    def unsubscribe(self, topic: str) -> None:
        """Give the queues of a topic back."""
        self._prepare(lambda aio: aio.unsubscribe(topic))

    def assign(
        self, queues: Iterable[MessageQueue], expression: str = "*", *, sql: str | None = None
    ) -> None:
        """Take exactly these queues, whoever else reads them."""
        portal.call(self._here().assign, list(queues), expression, sql=sql)

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that this consumer reads now."""
        return self._here().assignment

    def queues(self, topic: str) -> list[MessageQueue]:
        """All queues of a topic that can be read."""
        return portal.call(self._here().queues, topic)

    def poll(self, timeout_ms: int = aio_pull.POLL_MS) -> list[ReceivedMessage]:
        """The next messages of some queue; an empty list when none came in time."""
        return portal.pass_on(PollCall(self._here(), timeout_ms))

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """Messages one by one, until the consumer is closed."""
        while self._started:
            try:
                messages = self.poll()
            except ClientClosed:
                if self._started:
                    raise  # in a child after a fork
                return
            yield from messages

    def running_info(self) -> ConsumerRunningInfo:
        """How this consumer is doing, as `mqadmin consumerStatus` shows it."""
        return self._here().running_info()

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Hand out nothing of these queues until `resume`."""
        here, chosen = self._here(), list(queues)
        portal.run_soon(lambda: here.pause(chosen))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Go on after `pause`."""
        here, chosen = self._here(), list(queues)
        portal.run_soon(lambda: here.resume(chosen))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on reading a queue at an offset, forwards or backwards."""
        portal.call(self._here().seek, queue, offset)

    def seek_to_beginning(self, queue: MessageQueue) -> None:
        """Read a queue from its oldest message."""
        portal.call(self._here().seek_to_beginning, queue)

    def seek_to_end(self, queue: MessageQueue) -> None:
        """Skip what a queue has."""
        portal.call(self._here().seek_to_end, queue)

    def seek_to_time(self, queue: MessageQueue, timestamp_ms: int) -> None:
        """Read a queue from the first message stored at or after a time."""
        portal.call(self._here().seek_to_time, queue, timestamp_ms)

    def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message of a queue stored at or after a time."""
        return portal.call(self._here().offset_at, queue, timestamp_ms)

    def min_offset(self, queue: MessageQueue) -> int:
        """The oldest offset that a queue still has."""
        return portal.call(self._here().min_offset, queue)

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset of the next message that a queue will get."""
        return portal.call(self._here().max_offset, queue)

    def position(self, queue: MessageQueue) -> int | None:
        """The offset of the next message that `poll` hands out."""
        return self._here().position(queue)

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Write down progress on the brokers: what was handed out, or these offsets."""
        portal.call(self._here().commit, offsets)

    def committed(self, queue: MessageQueue) -> int | None:
        """What the group has committed for a queue; None if nothing."""
        return portal.call(self._here().committed, queue)
