"""Transactional sending: the message becomes visible when the local transaction says so.

    send half message ── run the local transaction ── tell the broker: commit or roll back
                                                       └── broker hears nothing: it asks `check`

The broker's word counts, not ours: what we tell it at the end is one-way, and a lost word only
means that it asks.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Unpack

from firearrow.base.errors import FirearrowError, RecordError
from firearrow.client.errors import ConsumerMisuse
from firearrow.client.message import ReceivedMessage
from firearrow.client.producer import Producer, ProducerOptions
from firearrow.client.sending import Delivery, SendReceipt, SendStatus, check_message
from firearrow.hot import decode_record, parse_offset_message_id
from firearrow.model import message as names
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import Command, request
from firearrow.wire.headers import CheckTransactionStateRequest, EndTransactionRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from firearrow.client.message import Message
    from firearrow.net.connection import Connection

log = logging.getLogger(__name__)


class TransactionState(StrEnum):
    """What became of a local transaction."""

    COMMIT = "COMMIT_MESSAGE"
    ROLLBACK = "ROLLBACK_MESSAGE"
    UNKNOWN = "UNKNOW"  # RocketMQ's spelling; the broker will ask


if TYPE_CHECKING:
    # None, or no verdict at all, means that it is not known yet.
    Verdict = TransactionState | None
    LocalTransaction = Callable[[Message], Verdict | Awaitable[Verdict]]
    Checker = Callable[[ReceivedMessage], Verdict | Awaitable[Verdict]]

_WIRE_STATE: Final = {
    TransactionState.COMMIT: names.TRANSACTION_COMMIT,
    TransactionState.ROLLBACK: names.TRANSACTION_ROLLBACK,
    TransactionState.UNKNOWN: names.TRANSACTION_NONE,
}


class TransactionReceipt(NamedTuple):
    """A half message's receipt, and what the local transaction said."""

    receipt: SendReceipt
    state: TransactionState
    error: BaseException | None = None  # what the local transaction raised


class TransactionProducer(Producer):
    """A producer whose messages wait for a local transaction.

    Args:
        group: As for `Producer`; the broker asks any live producer of the group.
        check: Called with a half message whose outcome the broker does not know; returns it.
            A plain function runs in a thread, a coroutine function on the loop.
        options: Everything else as for `Producer`.
    """

    def __init__(self, group: str, *, check: Checker, **options: Unpack[ProducerOptions]) -> None:
        super().__init__(group, **options)
        self._check = check

    async def start(self) -> None:
        self._session.handle(RequestCode.CHECK_TRANSACTION_STATE, self._handle_check)
        await super().start()

    async def send_in_transaction(
        self, message: Message, local: LocalTransaction, *, timeout_ms: int | None = None
    ) -> TransactionReceipt:
        """Send a half message, run `local`, and tell the broker what it said.

        `local` gets the message and returns a `TransactionState`; a plain function runs in a
        thread. If it raises, the state is unknown and the broker asks later. A half message that
        was stored less safely than asked is rolled back without running it.
        """
        session = self._session
        session.check_running()
        check_message(message, self._max_message_bytes)
        if not callable(local):
            raise ConsumerMisuse("send_in_transaction needs a function for the local transaction")
        message.properties.pop(names.DELAY, None)
        message.properties[names.TRAN_MSG] = "true"
        message.properties[names.PRODUCER_GROUP] = self._group_on_wire
        timeout_ms = timeout_ms or self.timeout_ms
        deadline_ms = self._clock.elapsed_ms() + timeout_ms
        packed = await self._packer.pack(message, names.TRANSACTION_PREPARED)
        route = await self._in_time(self._publish_route(packed.topic), deadline_ms)
        receipt = await self._deliver(
            Delivery(packed, [message], route, None, deadline_ms, timeout_ms)
        )
        if receipt.transaction_id:
            message.properties[names.TRANSACTION_ID] = receipt.transaction_id
        state, error = TransactionState.ROLLBACK, None
        if receipt.status is SendStatus.SEND_OK:
            state, error = await _verdict(local, message)
        await self._end(message, receipt, packed.topic, state, error)
        return TransactionReceipt(receipt, state, error)

    async def _end(
        self,
        message: Message,
        receipt: SendReceipt,
        topic: str,
        state: TransactionState,
        error: BaseException | None,
    ) -> None:
        _, _, physical_offset = parse_offset_message_id(receipt.offset_msg_id)
        header = EndTransactionRequest(
            topic=topic,
            producer_group=self._group_on_wire,
            tran_state_table_offset=receipt.queue_offset,
            commit_log_offset=physical_offset,
            commit_or_rollback=_WIRE_STATE[state],
            msg_id=receipt.msg_id,
            transaction_id=receipt.transaction_id,
        )
        try:
            address = await self._session.find_master(receipt.queue.broker_name, topic)
            await self._tell(address, header, error)
        except FirearrowError as failure:
            log.warning(
                "%s is %s, but the broker could not be told (%s): it will ask",
                receipt.msg_id,
                state,
                failure,
            )
            return
        if self._tracer is not None:
            self._tracer.end_transaction(message, address, state, checked=False)

    async def _tell(
        self, address: str, header: EndTransactionRequest, error: BaseException | None
    ) -> None:
        command = request(RequestCode.END_TRANSACTION, header, oneway=True)
        if error is not None:
            command.remark = f"the local transaction raised {type(error).__name__}: {error}"[:1000]
        await self._session.invoke_oneway(address, command)

    # --- the broker asks --------------------------------------------------------------------

    def _handle_check(self, command: Command, connection: Connection) -> None:
        header = CheckTransactionStateRequest.from_ext(command.ext)
        try:
            record = decode_record(command.body)
        except RecordError as error:
            log.warning("%s asks about a message that cannot be read: %s", connection.peer, error)
            return
        message = ReceivedMessage(record, header.broker_name or "")
        message.topic = self._session.unwrap(message.topic)
        if message.properties.get(names.PRODUCER_GROUP) != self._group_on_wire:
            log.warning("%s asks about a message of another group: %r", connection.peer, message)
            return
        self._session.spawn(
            self._answer_check(header, message, connection), name=f"check-{message.msg_id}"
        )

    async def _answer_check(
        self,
        asked: CheckTransactionStateRequest,
        message: ReceivedMessage,
        connection: Connection,
    ) -> None:
        state, error = await _verdict(self._check, message)
        header = EndTransactionRequest(
            topic=asked.topic or self._session.wrap(message.topic),
            producer_group=self._group_on_wire,
            tran_state_table_offset=asked.tran_state_table_offset,
            commit_log_offset=asked.commit_log_offset,
            commit_or_rollback=_WIRE_STATE[state],
            from_transaction_check=True,
            msg_id=message.properties.get(names.UNIQ_KEY) or asked.msg_id or "",
            transaction_id=asked.transaction_id,
        )
        command = request(RequestCode.END_TRANSACTION, header, oneway=True)
        if error is not None:
            command.remark = f"the check raised {type(error).__name__}: {error}"[:1000]
        connection.invoke_oneway(self._options.decorate(command))
        if self._tracer is not None:
            self._tracer.end_transaction(message, connection.peer, state, checked=True)


async def _verdict(
    function: Callable[[Any], Verdict | Awaitable[Verdict]], message: Message
) -> tuple[TransactionState, BaseException | None]:
    """Ask the application; whatever it raises means that nobody knows."""
    try:
        if inspect.iscoroutinefunction(function):
            said = await function(message)
        else:
            said = await asyncio.to_thread(function, message)
            if inspect.isawaitable(said):
                said = await said
        return (TransactionState.UNKNOWN if said is None else TransactionState(said)), None
    except Exception as error:
        log.exception("the outcome of %r is unknown", message)
        return TransactionState.UNKNOWN, error
