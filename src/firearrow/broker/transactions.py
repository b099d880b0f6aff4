"""Transactions: half messages are followed, asked about, and settled by op messages.

    send         -> `prepared`: it is open
    its end      -> the message itself is put, or not; `settle`: an op message will say so
    every round  -> `half_messages.decide_checks`: ask, renew, park
    offsets      -> both positions are committed for the group of RocketMQ's own checker, when all
                    that they rest on is on disk: either broker can go on where the other stopped

A crash may lose op messages that were still being collected. What was committed is found again by
the message that it became; what was rolled back is asked about once more, unless its producer was
told that it is rolled back: then its op message was on disk before.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

from firearrow.base.telemetry import RateLimitedLog
from firearrow.broker.half_messages import (
    REMOVE_TAG,
    TRANSACTION_GROUP,
    Action,
    Half,
    HalfTable,
    Limits,
    OpTable,
    Outcome,
    decide_checks,
    half_of,
    identity_of,
    op_body,
    op_offsets,
)
from firearrow.hot import (
    Record,
    StoreMessage,
    decode_properties,
    encode_record,
    offset_message_id,
)
from firearrow.model.errors import BrokerError, MessageIllegal, SystemBusy
from firearrow.model.message import (
    CHECK_TIMES,
    FLAG_TRANSACTION,
    PARTS,
    PREPARED_QUEUE_OFFSET,
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TAGS,
    TRANSACTION_COMMIT,
    UNIQ_KEY,
    WAIT,
    properties_bytes,
)
from firearrow.model.topic import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_HALF_TOPIC
from firearrow.net.connection import Connection
from firearrow.wire import headers
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from firearrow.base.runtime import Clock, Service
    from firearrow.broker.clients import Clients
    from firearrow.broker.config import BrokerConfig
    from firearrow.broker.offset_table import OffsetTable
    from firearrow.broker.statistics import BrokerStatistics
    from firearrow.broker.topic_table import TopicTable
    from firearrow.store.store import MessageStore

log = logging.getLogger(__name__)

QUEUE: Final = 0  # of the half topic and the op topic
HOUR_MS: Final = 3_600_000
TURN: Final = 64  # half messages that a round deals with before others have their turn
OP_PROPERTIES: Final = properties_bytes({WAIT: "true", TAGS: REMOVE_TAG})


class TransactionService:
    """Owns the open half messages of a broker."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        clock: Clock,
        *,
        topics: TopicTable,
        offsets: OffsetTable,
        clients: Clients,
        statistics: BrokerStatistics,
    ) -> None:
        self._config = config
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._clients = clients
        self._statistics = statistics
        self._clock = clock
        self._ops = OpTable()
        self._ops_written_ms = 0
        self._positions = (0, 0)  # that are committed, or will be when the log is on disk
        self._turn = 0  # of the producers of a group
        self._broker_name = config.broker_name
        self._complaints = RateLimitedLog(log)
        self.halves = HalfTable()
        self.asked = 0
        self.parked = 0

    # --- life -------------------------------------------------------------------------------

    def load(self) -> None:
        """Find what is open in the queues, whoever wrote them. Blocks."""
        half_from, op_from = self._starts()
        self._positions = (half_from, op_from)
        self._ops.load(op_from)
        lookup = self._store.lookup
        copies: list[Half] = []
        for offset in range(half_from, lookup.max_offset(HALF_TOPIC, QUEUE)):
            record = lookup.by_queue_offset(HALF_TOPIC, QUEUE, offset)
            if record is not None:
                copies.append(half_of_record(record))
        settled: set[int] = set()
        for offset in range(op_from, lookup.max_offset(OP_HALF_TOPIC, QUEUE)):
            record = lookup.by_queue_offset(OP_HALF_TOPIC, QUEUE, offset)
            listed = [] if record is None else op_offsets(record.body)
            settled.update(listed)
            self._ops.written(offset, listed)
        first = copies[0].physical_offset if copies else None
        staged = {half.physical_offset for half in copies if half.parts}
        committed, delivered = self._committed_since(first, staged)
        for half in self.halves.load(copies, settled, committed, half_from, delivered):
            self._ops.add(half.offset)
        if len(self.halves):
            log.info("%d transactions are open", len(self.halves))

    def _starts(self) -> tuple[int, int]:
        """Where the last broker was in both queues.

        What it said of a log that has been lost does not count, not even for what is left: a half
        message that it had passed may have gone on as a copy that is lost. A slave's log ends like
        this when it was behind its master.
        """
        lookup, topics = self._store.lookup, (HALF_TOPIC, OP_HALF_TOPIC)
        least = [lookup.min_offset(topic, QUEUE) for topic in topics]
        most = [lookup.max_offset(topic, QUEUE) for topic in topics]
        said = [self._offsets.committed(topic, TRANSACTION_GROUP, QUEUE) for topic in topics]
        if said[0] > most[0] or said[1] > most[1]:
            log.warning("the log ends before the last half messages; all that it has are read")
            return least[0], least[1]
        return max(said[0], least[0]), max(said[1], least[1])

    def _committed_since(
        self, physical_offset: int | None, staged: set[int]
    ) -> tuple[set[int], dict[int, int]]:
        """What became of half messages whose op message may be lost.

        Identities of messages that were half ones before; of staged batches, which are known by
        where they lie, how many messages have come of each.
        """
        found: set[int] = set()
        delivered: dict[int, int] = {}
        last, last_is_batch = -1, False
        for scanned in () if physical_offset is None else self._store.scan(physical_offset):
            if scanned.sys_flag & FLAG_TRANSACTION != TRANSACTION_COMMIT:
                continue
            prepared = scanned.prepared_offset
            if prepared in staged:
                delivered[prepared] = delivered.get(prepared, 0) + 1
                continue
            if prepared != last:
                last, last_is_batch = prepared, self._is_staged(prepared)
            record = (
                None if last_is_batch else self._store.lookup.record_at(scanned.physical_offset)
            )
            if record is not None:
                found.add(identity_of_record(record))
        return found, delivered

    def _is_staged(self, physical_offset: int) -> bool:
        record = self._store.lookup.record_at(physical_offset)
        return record is not None and PARTS in decode_properties(record.properties)

    def start(self, tasks: Service) -> None:
        self._ops_written_ms = self._clock.elapsed_ms()
        tasks.spawn(self._keep_writing(), name="transaction-ops")
        tasks.spawn(self._keep_checking(), name="transaction-checks")

    def reconfigure(self, config: BrokerConfig) -> None:
        self._config = config

    async def _keep_writing(self) -> None:
        while True:
            await self._clock.sleep(self._config.transaction_op_batch_interval)
            self._write_ops_or_say()

    async def _keep_checking(self) -> None:
        while True:
            await self._clock.sleep(self._config.transaction_check_interval)
            try:
                await self.check()
            except Exception:
                log.exception("half messages could not be checked; the next round tries again")

    def finish(self) -> None:
        """Nothing comes any more: write what was collected."""
        self._write_ops_or_say()

    # --- beginning --------------------------------------------------------------------------

    def refuse_if_full(self) -> None:
        most = self._config.open_transactions_max
        if len(self.halves) >= most:
            raise SystemBusy(
                f"{most} transactions are open (openTransactionsMax); commit or roll back some"
            )

    def prepared(self, message: StoreMessage, properties: Mapping[str, str]) -> None:
        """A half message was put."""
        older = self.halves.add(half_of_message(message, properties))
        if older is not None:  # the very same request came twice
            self._collect(older.offset)

    # --- ending -----------------------------------------------------------------------------

    def settle(self, half: Half, outcome: Outcome, *also: int) -> None:
        """A transaction is over; an op message will say so, of other copies as well."""
        self.halves.end(half.identity, outcome)
        for offset in {half.offset, *also}:
            self._collect(offset)

    def _collect(self, half_offset: int) -> None:
        self._ops.add(half_offset)
        if self._ops.pending_bytes > self._config.transaction_op_msg_max_size:
            self._write_ops_or_say()

    def write_ops(self) -> None:
        """Write what was collected."""
        while taken := self._ops.take(self._config.transaction_op_msg_max_size):
            message = StoreMessage(
                OP_HALF_TOPIC,
                QUEUE,
                op_body(taken),
                OP_PROPERTIES,
                born_timestamp=self._clock.now_ms(),
            )
            try:
                self._store.put(message)
            except BrokerError:
                self._ops.put_back(taken)
                raise
            self._ops.written(message.queue_offset, taken)
        self._note_positions()

    def _write_ops_or_say(self) -> None:
        try:
            self.write_ops()
        except BrokerError as error:
            log.warning("ends of transactions cannot be written: %s; tried again later", error)

    def _note_positions(self) -> None:
        """Commit how far both queues are settled, once the log is on disk so far."""
        position = self.halves.position
        positions = (position, self._ops.position(position))
        if positions == self._positions:
            return
        self._positions = positions

        def tell(on_disk: bool) -> None:  # noqa: FBT001
            if on_disk:
                self._offsets.commit(HALF_TOPIC, TRANSACTION_GROUP, QUEUE, positions[0])
                self._offsets.commit(OP_HALF_TOPIC, TRANSACTION_GROUP, QUEUE, positions[1])

        self._store.replica.when_final(self._store.statistics().end_offset, tell)

    # --- asking -----------------------------------------------------------------------------

    async def check(self) -> None:
        """One round over everything that is open."""
        config = self._config
        limits = Limits(
            config.transaction_time_out,
            config.transaction_check_max,
            config.file_reserved_time * HOUR_MS,
        )
        done = 0
        for action, half in decide_checks(self.halves, self._clock.now_ms(), limits):
            if not self.halves.is_current(half):
                continue
            try:
                self._act_or_park(action, half)
            except BrokerError as error:
                log.warning("half messages wait: %s", error)
                break
            done += 1
            if done % TURN == 0:
                await asyncio.sleep(0)
        self._note_positions()

    def _act_or_park(self, action: Action, half: Half) -> None:
        """One that the log does not take again must not keep those behind it waiting."""
        try:
            self._act(action, half)
        except MessageIllegal as error:
            now_ms, at = self._clock.elapsed_ms(), half.physical_offset
            self._complaints.warning(now_ms, "half message at %d is not checked: %s", at, error)
            record = self._store.lookup.record_at(half.physical_offset)
            if action is not Action.PARK and record is not None:
                with contextlib.suppress(MessageIllegal):
                    self.park(half, record)

    def _act(self, action: Action, half: Half) -> None:
        record = self._store.lookup.record_at(half.physical_offset)
        if record is None:
            log.error("half message at %d cannot be read; it is lost", half.physical_offset)
            self.settle(half, Outcome.PARKED)
            return
        properties = decode_properties(record.properties)
        if action is Action.PARK:
            self.park(half, record)
        elif action is Action.RENEW:
            properties.setdefault(PREPARED_QUEUE_OFFSET, str(half.offset))
            self._append_again(record, properties)
        else:
            properties[CHECK_TIMES] = str(half.checks + 1)
            copy, end = self._append_again(record, properties)

            def ask(on_disk: bool) -> None:  # noqa: FBT001
                if on_disk and self.halves.is_at(half.identity, copy.queue_offset):
                    self._ask(record, properties, copy)

            # Not before: another half message may take the place of a copy that is lost, and an
            # answer names the place.
            self._store.replica.when_final(end, ask)

    def _append_again(self, record: Record, properties: dict[str, str]) -> tuple[StoreMessage, int]:
        """The copy, and up to where the log must be on disk for it to be safe."""
        message = copied(record, HALF_TOPIC, QUEUE, properties)
        end = self._store.put(message)
        self.halves.add(half_of_message(message, properties))
        return message, end

    def park(self, half: Half, record: Record) -> None:
        """Give up on a half message: into a topic where people look.

        Not a staged batch: nobody could read it there, and whoever staged it can do it again.
        """
        if half.parts:
            self.settle(half, Outcome.PARKED)
            self._complaints.warning(
                self._clock.elapsed_ms(),
                "staged batch at %d for topic %s was not ended while the log kept it",
                half.physical_offset,
                half.topic,
            )
            return
        self._topics.ensure(CHECK_MAX_TIME_TOPIC, 1)
        message = copied(record, CHECK_MAX_TIME_TOPIC, QUEUE, decode_properties(record.properties))
        self._store.put(message)
        self.settle(half, Outcome.PARKED)
        self.parked += 1
        self._statistics.add("TRANSACTION_PARKED", half.topic)
        self._complaints.warning(
            self._clock.elapsed_ms(),
            "half message at %d for topic %s is parked in %s after %d checks",
            record.physical_offset,
            half.topic,
            CHECK_MAX_TIME_TOPIC,
            half.checks,
        )

    def resume(self, record: Record) -> int:
        """Open a parked half message again, as if nobody had been asked; returns as `put`."""
        properties = decode_properties(record.properties)
        properties[CHECK_TIMES] = "0"
        message = copied(record, HALF_TOPIC, QUEUE, properties)
        end = self._store.put(message)
        older = self.halves.add(half_of_message(message, properties))
        if older is not None:
            self._collect(older.offset)
        return end

    def _ask(self, record: Record, properties: Mapping[str, str], copy: StoreMessage) -> None:
        """Ask one live producer of the group; its answer is an END_TRANSACTION."""
        self._statistics.add("TRANSACTION_CHECKS", properties.get(REAL_TOPIC, ""))
        channel = self._channel(properties.get(PRODUCER_GROUP, ""))
        if channel is None:
            log.debug("no producer of group %s is here to ask", properties.get(PRODUCER_GROUP))
            return
        unique_key = properties.get(UNIQ_KEY)
        queue_id = properties.get(REAL_QUEUE_ID, "0")
        header = headers.CheckTransactionStateRequest(
            topic=HALF_TOPIC,
            tran_state_table_offset=copy.queue_offset,
            commit_log_offset=copy.physical_offset,
            msg_id=unique_key,
            transaction_id=unique_key,
            offset_msg_id=offset_message_id(
                record.store_ip, record.store_port, copy.physical_offset
            ),
            broker_name=self._broker_name,
        )
        shown = Record(
            properties.get(REAL_TOPIC, ""),
            record.body,
            properties_bytes(properties).decode(),
            queue_id=int(queue_id) if queue_id.isdecimal() else 0,
            flag=record.flag,
            queue_offset=copy.queue_offset,
            physical_offset=copy.physical_offset,
            sys_flag=record.sys_flag,
            born_timestamp=record.born_timestamp,
            born_ip=record.born_ip,
            born_port=record.born_port,
            store_timestamp=copy.store_timestamp,
            store_ip=record.store_ip,
            store_port=record.store_port,
            reconsume_times=record.reconsume_times,
        )
        channel.invoke_oneway(
            request(RequestCode.CHECK_TRANSACTION_STATE, header, encode_record(shown), oneway=True)
        )
        self.asked += 1

    def _channel(self, group: str) -> Connection | None:
        """Producers of a group take turns; one that reads what it is sent is preferred."""
        channels = [
            member.channel
            for member in self._clients.producers.get(group, {}).values()
            if isinstance(member.channel, Connection)
        ]
        if not channels:
            return None
        self._turn += 1
        start = self._turn % len(channels)
        in_turn = channels[start:] + channels[:start]
        return next((channel for channel in in_turn if not channel.blocked), in_turn[0])


def copied(
    record: Record,
    topic: str,
    queue_id: int,
    properties: Mapping[str, str],
    *,
    transaction: int = 0,
    prepared_offset: int = 0,
) -> StoreMessage:
    """The same message elsewhere. It keeps the hosts that its id was made of."""
    return StoreMessage(
        topic,
        queue_id,
        record.body,
        properties_bytes(properties),
        flag=record.flag,
        sys_flag=record.sys_flag & ~FLAG_TRANSACTION | transaction,
        born_timestamp=record.born_timestamp,
        born_host=record.born_ip + record.born_port.to_bytes(4, "big"),
        store_host=record.store_ip + record.store_port.to_bytes(4, "big"),
        reconsume_times=record.reconsume_times,
        prepared_offset=prepared_offset,
    )


def half_of_message(message: StoreMessage, properties: Mapping[str, str]) -> Half:
    return half_of(
        properties,
        offset=message.queue_offset,
        physical_offset=message.physical_offset,
        born_ms=message.born_timestamp,
        born_host=message.born_host,
        stored_ms=message.store_timestamp,
        body_bytes=len(message.body),
    )


def half_of_record(record: Record) -> Half:
    return half_of(
        decode_properties(record.properties),
        offset=record.queue_offset,
        physical_offset=record.physical_offset,
        born_ms=record.born_timestamp,
        born_host=record.born_ip + record.born_port.to_bytes(4, "big"),
        stored_ms=record.store_timestamp,
        body_bytes=len(record.body),
    )


def identity_of_record(record: Record) -> int:
    return identity_of(
        decode_properties(record.properties),
        record.born_timestamp,
        record.born_ip + record.born_port.to_bytes(4, "big"),
        len(record.body),
    )
