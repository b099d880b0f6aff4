"""Ends of transactions, and what is still open."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from firearrow.broker.config import BrokerRole
from firearrow.broker.half_messages import Outcome, is_too_late
from firearrow.broker.processors.common import json_reply
from firearrow.broker.processors.ending import (
    check_claim,
    commit,
    half_record_at,
    open_half,
    roll_back,
)
from firearrow.broker.transactions import identity_of_record
from firearrow.hot import decode_properties, offset_message_id, parse_offset_message_id
from firearrow.model.errors import InvalidParameter, ResponseCode, ServerFailed
from firearrow.model.message import (
    PRODUCER_GROUP,
    UNIQ_KEY,
)
from firearrow.model.topic import CHECK_MAX_TIME_TOPIC, HALF_TOPIC
from firearrow.wire import bodies, headers
from firearrow.wire.codes import Flag
from firearrow.wire.command import Command, reply_to
from firearrow.wire.headers import TRANSACTION_COMMIT as COMMIT
from firearrow.wire.headers import TRANSACTION_ROLLBACK as ROLLBACK
from firearrow.wire.headers import TRANSACTION_UNKNOWN as UNKNOWN

if TYPE_CHECKING:
    from firearrow.broker.state import BrokerState
    from firearrow.net.connection import Connection

log = logging.getLogger(__name__)

LISTED_MAX: Final = 1_000  # open transactions in one answer


class TransactionProcessor:
    """Answers END_TRANSACTION, and those who look after transactions that nobody ends."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    # --- ending -----------------------------------------------------------------------------

    def handle_end(self, command: Command, connection: Connection) -> Command | None:
        asked = headers.EndTransactionRequest.from_ext(command.ext)
        state = self._state
        if state.config.broker_role is BrokerRole.SLAVE:
            remark = f"broker {state.config.broker_name} is a slave; its master ends transactions"
            return reply_to(command, ResponseCode.SLAVE_NOT_AVAILABLE, remark=remark)
        if asked.commit_or_rollback == UNKNOWN:
            return reply_to(command)  # the producer does not know, either; it will be asked again
        if asked.commit_or_rollback not in {COMMIT, ROLLBACK}:
            raise InvalidParameter(
                f"commitOrRollback {asked.commit_or_rollback}: {COMMIT} commits, {ROLLBACK} rolls "
                f"back, {UNKNOWN} leaves it open"
            )
        record = half_record_at(state, asked.commit_log_offset)
        properties = decode_properties(record.properties)
        age_ms = state.clock.now_ms() - record.born_timestamp
        if not asked.from_transaction_check and is_too_late(
            properties, age_ms, state.config.transaction_time_out
        ):
            remark = f"half message {asked.msg_id} is past its time; answer when you are asked"
            return reply_to(command, ResponseCode.ILLEGAL_OPERATION, remark=remark)
        place = asked.tran_state_table_offset
        check_claim(asked.producer_group, place, record, properties)
        outcome = Outcome.COMMITTED if asked.commit_or_rollback == COMMIT else Outcome.ROLLED_BACK
        half = open_half(state, record, outcome)
        if half is not None and outcome is Outcome.COMMITTED:
            commit(state, record, properties, half, place)
        elif half is not None:
            roll_back(state, half, place)
        return self._answer(command, connection, outcome)

    def _answer(self, command: Command, connection: Connection, outcome: Outcome) -> Command | None:
        """Who waits for the answer waits until the end is written down, whoever said it first."""
        state = self._state
        if command.flag & Flag.ONEWAY:
            return None
        if outcome is Outcome.ROLLED_BACK:
            state.transactions.write_ops()
        reply = reply_to(command)
        if not state.disk_waits.waits:
            return reply
        end = state.store.statistics().end_offset
        connection.begin()

        def tell(code: int) -> None:
            reply.code = code
            connection.send_soon(reply)
            connection.finish()

        state.disk_waits.answer_when_stored(end, tell)
        return None

    # --- looking after --------------------------------------------------------------------------

    def handle_open(self, command: Command, _: Connection) -> Command:
        """Open transactions, oldest place first, with their age and how often they were asked."""
        asked = headers.GetOpenTransactionsRequest.from_ext(command.ext)
        state = self._state
        now_ms = state.clock.now_ms()
        found: list[bodies.OpenTransaction] = []
        matching = 0
        for half in state.transactions.halves:
            if asked.topic and half.topic != asked.topic:
                continue
            matching += 1
            if half.offset < asked.from_offset or len(found) >= min(asked.max_num, LISTED_MAX):
                continue
            record = state.store.lookup.record_at(half.physical_offset)
            if record is None:
                continue
            properties = decode_properties(record.properties)
            found.append(
                bodies.OpenTransaction(
                    topic=half.topic,
                    producer_group=properties.get(PRODUCER_GROUP, ""),
                    transaction_id=properties.get(UNIQ_KEY, ""),
                    offset_msg_id=offset_message_id(
                        record.store_ip, record.store_port, record.physical_offset
                    ),
                    queue_offset=half.offset,
                    born_timestamp=half.born_ms,
                    store_timestamp=half.stored_ms,
                    age=max(0, now_ms - half.born_ms),
                    checks=half.checks,
                )
            )
        return json_reply(
            command, bodies.OpenTransactions(total=matching, transactions=tuple(found))
        )

    def handle_resume(self, command: Command, _: Connection) -> Command:
        """Have a parked half message asked about again, from the beginning."""
        asked = headers.ResumeCheckHalfMessageRequest.from_ext(command.ext)
        state = self._state
        try:
            *_place, offset = parse_offset_message_id(asked.msg_id or "")
        except ValueError as error:
            raise ServerFailed(f"msgId: {error}") from None
        record = state.store.lookup.record_at(offset)
        halves = state.transactions.halves
        if record is None or record.topic not in {CHECK_MAX_TIME_TOPIC, HALF_TOPIC}:
            raise ServerFailed(f"there is no half message at offset {offset} of the log")
        identity = identity_of_record(record)
        ended = halves.outcome(identity) not in {None, Outcome.PARKED}
        if ended or (record.topic == HALF_TOPIC and halves.find(identity) is None):
            raise ServerFailed(f"half message at offset {offset} is not open any more")
        state.transactions.resume(record)
        log.info("half message at %d is asked about again", offset)
        return reply_to(command)
