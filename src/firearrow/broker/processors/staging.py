"""Many messages in one transaction, and many transactions ended by one request.

    STAGE_BATCH        a batch becomes one half message                   (processors/send.py)
    END_TRANSACTIONS   listed half messages end, in the order of the list; of the same scope,
                       what is not listed and belongs to this epoch or an earlier one is rolled back

The list is worked off with pauses: other connections have their turn between two batches. It may
be sent again as often as somebody likes.
"""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, Final

from firearrow.broker.config import BrokerRole
from firearrow.broker.half_messages import Outcome
from firearrow.broker.processors.ending import (
    check_claim,
    commit,
    half_record_at,
    open_half,
    roll_back,
)
from firearrow.broker.transactions import identity_of_record
from firearrow.hot import decode_properties
from firearrow.model.errors import InvalidParameter, ResponseCode, ServerFailed
from firearrow.wire import headers
from firearrow.wire.command import Command, reply_to
from firearrow.wire.headers import TRANSACTION_COMMIT as COMMIT
from firearrow.wire.headers import TRANSACTION_ROLLBACK as ROLLBACK

if TYPE_CHECKING:
    from firearrow.broker.state import BrokerState
    from firearrow.net.connection import Connection

_PLACE: Final = struct.Struct(">qq")
LISTED_MAX: Final = 10_000
SWEEP_TURN: Final = 64  # rolled back before others have their turn


class StagingProcessor:
    """Answers END_TRANSACTIONS."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    async def handle_end_many(self, command: Command, _: Connection) -> Command:
        asked = headers.EndTransactionsRequest.from_ext(command.ext)
        state = self._state
        if state.config.broker_role is BrokerRole.SLAVE:
            remark = f"broker {state.config.broker_name} is a slave; its master ends transactions"
            return reply_to(command, ResponseCode.SLAVE_NOT_AVAILABLE, remark=remark)
        if asked.commit_or_rollback not in {COMMIT, ROLLBACK}:
            raise InvalidParameter(
                f"commitOrRollback {asked.commit_or_rollback}: {COMMIT} commits, "
                f"{ROLLBACK} rolls back"
            )
        if (asked.scope is None) is not (asked.epoch is None):
            raise InvalidParameter("scope and epoch belong together: give both, or neither")
        outcome = Outcome.COMMITTED if asked.commit_or_rollback == COMMIT else Outcome.ROLLED_BACK
        ended = before = swept = 0
        for place in places_of(command.body):
            if self._end(asked.producer_group, place, outcome):
                ended += 1
                await asyncio.sleep(0)
            else:
                before += 1
        if asked.scope is not None and asked.epoch is not None:
            swept = await self._sweep(asked.scope, asked.epoch)
        if outcome is Outcome.ROLLED_BACK or swept:
            state.transactions.write_ops()
        if state.store.waits_for_disk:
            await state.store.wait_flushed(state.store.statistics().end_offset)
        reply = headers.EndTransactionsReply(ended=ended, ended_before=before, swept=swept)
        return reply_to(command, header=reply)

    def _end(self, group: str, place: tuple[int, int], outcome: Outcome) -> bool:
        """End one; False if it had ended before.

        How it ended is not remembered for ever. Who commits the same list again is believed: what
        is on such a list is rolled back by nobody.
        """
        state = self._state
        record = half_record_at(state, place[1])
        properties = decode_properties(record.properties)
        check_claim(group, place[0], record, properties)
        halves = state.transactions.halves
        identity = identity_of_record(record)
        if halves.find(identity) is None and halves.outcome(identity) is None:
            return False
        half = open_half(state, record, outcome)
        if half is None:
            return False
        if outcome is Outcome.COMMITTED:
            commit(state, record, properties, half, place[0])
        else:
            roll_back(state, half, place[0])
        return True

    async def _sweep(self, scope: str, epoch: int) -> int:
        halves = self._state.transactions.halves
        swept = 0
        for half in halves.left_behind(scope, epoch):
            if halves.is_current(half):
                roll_back(self._state, half)
                swept += 1
                if swept % SWEEP_TURN == 0:
                    await asyncio.sleep(0)
        return swept


def places_of(body: bytes) -> list[tuple[int, int]]:
    """Places in the half queue and in the log."""
    if len(body) % _PLACE.size:
        raise ServerFailed(
            f"the list has {len(body)} bytes; {_PLACE.size} for each half message are expected"
        )
    if len(body) > LISTED_MAX * _PLACE.size:
        raise ServerFailed(
            f"the list has {len(body) // _PLACE.size} half messages; {LISTED_MAX} at most"
        )
    return list(_PLACE.iter_unpack(body))
