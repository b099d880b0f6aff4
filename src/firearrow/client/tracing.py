"""Message trace: what happened to each message, written to a topic that `mqadmin` reads.

Records gather in a bounded queue and leave in batches; when the queue is full new ones are
dropped, because tracing must never hold up messages.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from firearrow.base.errors import FirearrowError
from firearrow.base.runtime import Service
from firearrow.client.message import Message
from firearrow.client.trace_format import (
    EndTransaction,
    LocalTransactionState,
    Pub,
    SubAfter,
    SubBefore,
    TracedMessageType,
    TraceRecord,
    encode_trace,
    trace_keys,
)
from firearrow.model import message as names
from firearrow.model.topic import TRACE_TOPIC

if TYPE_CHECKING:
    from firearrow.base.runtime import Clock
    from firearrow.client.hooks import ConsumeContext, SendContext
    from firearrow.client.sending import SendReceipt

log = logging.getLogger(__name__)

TRACE_TIMEOUT_MS: Final = 5_000
QUEUE_MAX: Final = 2_048
BATCH_MAX: Final = 20
FLUSH_MS: Final = 1_000
CONTEXT_CODES: Final = {"SUCCESS": 0, "TIME_OUT": 1, "EXCEPTION": 2, "RETURNNULL": 3, "FAILED": 4}

_numbers: Final = itertools.count()


class TraceProducer(Protocol):
    """The producer that carries trace messages."""

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def send(self, message: Message) -> SendReceipt: ...


def trace_group(group: str, kind: str) -> str:
    """The group of the producer behind a client's trace."""
    return f"_INNER_TRACE_PRODUCER-{group}-{kind}-{next(_numbers)}"[:120]


class Tracer:
    """A send hook and consume hook that writes what it sees as trace records."""

    def __init__(
        self, producer: TraceProducer, clock: Clock, *, group: str, topic: str | None = None
    ) -> None:
        self._producer = producer
        self._clock = clock
        self._tasks = Service("trace", clock)
        self._group = group
        self._topic = topic or TRACE_TOPIC
        self._waiting: deque[TraceRecord] = deque()
        self._flushing = False
        self._writing: asyncio.Task[None] | None = None
        self.dropped = 0

    async def start(self) -> None:
        await self._producer.start()
        self._tasks.every(FLUSH_MS, self._flush_soon, name="flush")

    async def stop(self) -> None:
        """Write what is left, then end."""
        if self._writing is not None:
            await asyncio.wait([self._writing])
        await self._flush()
        await self._tasks.stop_tasks()
        await self._producer.close()

    # --- what is seen -----------------------------------------------------------------------

    def before_send(self, context: SendContext) -> None:
        pass

    def after_send(self, context: SendContext) -> None:
        receipt = context.receipt
        if context.queue.topic.startswith(self._topic) or (receipt and not receipt.trace_on):
            return
        if receipt is None and context.error is None:
            return  # one-way: nobody knows how it ended, and Java's client writes no trace of it
        offset_ids = receipt.offset_msg_id.split(",") if receipt else []
        for number, message in enumerate(context.messages):
            self._add(
                Pub(
                    timestamp_ms=context.started_ms,
                    region_id=receipt.region_id if receipt else "",
                    group=context.group,
                    topic=message.topic,
                    message_id=message.msg_id or "",
                    tags=message.tags,
                    keys=" ".join(message.keys) or None,
                    store_host=context.broker_address,
                    body_bytes=len(message.body),
                    cost_ms=context.took_ms,
                    message_type=_type_of(message),
                    offset_message_id=offset_ids[number] if number < len(offset_ids) else "",
                    success=receipt is not None and receipt.ok,
                )
            )

    def end_transaction(self, message: Message, address: str, state: str, *, checked: bool) -> None:
        """A transaction was settled, or not."""
        self._add(
            EndTransaction(
                timestamp_ms=self._clock.now_ms(),
                region_id="",
                group=self._group,
                topic=message.topic,
                message_id=message.msg_id or "",
                tags=message.tags,
                keys=" ".join(message.keys) or None,
                store_host=address,
                message_type=TracedMessageType.TRANSACTION_COMMIT,
                transaction_id=message.msg_id or "",
                state=LocalTransactionState(state),
                from_check=checked,
            )
        )

    def before_consume(self, context: ConsumeContext) -> None:
        context.notes["trace_id"] = request_id = f"{context.started_ms:X}{next(_numbers):X}"
        for message in context.messages:
            if message.properties.get(names.TRACE_ON) == "false":
                continue
            self._add(
                SubBefore(
                    timestamp_ms=context.started_ms,
                    region_id=message.properties.get(names.MSG_REGION, ""),
                    group=context.group,
                    request_id=request_id,
                    message_id=message.msg_id,
                    retry_times=message.reconsume_times,
                    keys=" ".join(message.keys) or None,
                )
            )

    def after_consume(self, context: ConsumeContext) -> None:
        each_ms = context.took_ms // max(1, len(context.messages))
        for message in context.messages:
            if message.properties.get(names.TRACE_ON) == "false":
                continue
            self._add(
                SubAfter(
                    request_id=context.notes.get("trace_id", ""),
                    message_id=message.msg_id,
                    cost_ms=each_ms,
                    success=context.success,
                    keys=" ".join(message.keys) or None,
                    context_code=CONTEXT_CODES[context.outcome],
                    timestamp_ms=self._clock.now_ms(),
                    group=context.group,
                )
            )

    # --- what is written --------------------------------------------------------------------

    def _add(self, record: TraceRecord) -> None:
        """Handlers call it from their threads: a deque takes it, the loop writes it later."""
        if len(self._waiting) >= QUEUE_MAX:
            self.dropped += 1
            return
        self._waiting.append(record)

    def _flush_soon(self) -> None:
        if self._waiting and not self._flushing:
            self._writing = self._tasks.spawn(self._flush(), name="write")

    async def _flush(self) -> None:
        self._flushing = True
        try:
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(BATCH_MAX, len(self._waiting)))]
                await self._write(batch)
        finally:
            self._flushing = False

    async def _write(self, records: list[TraceRecord]) -> None:
        text = encode_trace(records)
        message = Message(self._topic, text.encode(), keys=trace_keys(records))
        try:
            await self._producer.send(message)
        except FirearrowError as error:
            self.dropped += len(records)
            log.warning("%d trace records are lost: %s", len(records), error)


def _type_of(message: Message) -> TracedMessageType:
    properties = message.properties
    if properties.get(names.TRAN_MSG) == "true":
        return TracedMessageType.TRANSACTION_HALF
    if names.DELAY in properties or "__STARTDELIVERTIME" in properties:
        return TracedMessageType.DELAY
    return TracedMessageType.NORMAL
