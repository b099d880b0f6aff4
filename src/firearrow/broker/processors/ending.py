"""The rules for the end of a transaction, whichever request says it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firearrow.broker.half_messages import Half, Outcome
from firearrow.broker.processors.send import park_if_delayed
from firearrow.broker.transactions import copied, half_of_record, identity_of_record
from firearrow.hot import StoreMessage
from firearrow.model.errors import ServerFailed
from firearrow.model.message import (
    CLUSTER,
    FLAG_TRANSACTION,
    MSG_REGION,
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TRACE_ON,
    TRANSACTION_COMMIT,
    properties_bytes,
)
from firearrow.model.topic import HALF_TOPIC

if TYPE_CHECKING:
    from collections.abc import Mapping

    from firearrow.broker.state import BrokerState
    from firearrow.hot import Record


def half_record_at(state: BrokerState, physical_offset: int) -> Record:
    """The half message that lies there, open or not."""
    record = state.store.lookup.record_at(physical_offset)
    if record is None or record.topic != HALF_TOPIC:
        raise ServerFailed(f"there is no half message at offset {physical_offset} of the log")
    return record


def check_claim(group: str, place: int, record: Record, properties: Mapping[str, str]) -> None:
    """Raise if who asks does not name the half message as it is."""
    if properties.get(PRODUCER_GROUP) != group:
        raise ServerFailed(
            f"half message at offset {record.physical_offset} is not of producer group {group}"
        )
    if record.queue_offset != place:
        raise ServerFailed(
            f"half message at offset {record.physical_offset} is at {record.queue_offset} of its "
            f"queue, not at {place}"
        )


def open_half(state: BrokerState, record: Record, outcome: Outcome) -> Half | None:
    """The transaction that a copy belongs to; None if it ended like this already."""
    halves = state.transactions.halves
    identity = identity_of_record(record)
    half = halves.find(identity)
    if half is not None:
        if outcome is Outcome.ROLLED_BACK and halves.begun(half):
            raise ServerFailed(
                f"staged batch at offset {record.physical_offset} is delivered in part since the "
                "broker died on it: it can only be committed"
            )
        return half
    before = halves.outcome(identity)
    if before is outcome:
        return None
    if before is Outcome.PARKED:
        return half_of_record(record)  # late, but better than never
    hint = f"it was {before}" if before else "it ended long ago"
    raise ServerFailed(f"half message at offset {record.physical_offset} is not open: {hint}")


def commit(
    state: BrokerState, record: Record, properties: dict[str, str], half: Half, *also: int
) -> None:
    """Put the message, or all that a staged batch has, where it was meant to go; settle the half.

    `also` are places of other copies that are settled with it.
    """
    topic, queue_id = properties.get(REAL_TOPIC, ""), properties.get(REAL_QUEUE_ID, "")
    if not topic or not queue_id.isdecimal():
        raise ServerFailed(f"half message at offset {record.physical_offset} has no destination")
    if half.parts:
        count, message = _deliver_parts(state, record, properties, half)
    else:
        place = park_if_delayed(state, topic, int(queue_id), properties)
        message = copied(
            record,
            *place,
            properties,
            transaction=TRANSACTION_COMMIT,
            prepared_offset=record.physical_offset,
        )
        state.store.put(message)
        count = 1
    state.transactions.settle(half, Outcome.COMMITTED, *also)
    statistics = state.statistics
    statistics.puts.count += count
    statistics.put_bytes += message.size
    statistics.add("TOPIC_PUT_NUMS", topic, count)
    statistics.add("TOPIC_PUT_SIZE", topic, message.size)
    statistics.add("TRANSACTION_COMMITS", topic)


def _deliver_parts(
    state: BrokerState, record: Record, properties: Mapping[str, str], half: Half
) -> tuple[int, StoreMessage]:
    """All messages of a staged batch, one behind the other; those of a broken start are there.

    They name the newest copy, by which a broker that starts again finds them: older ones may lie
    before the place where it begins to read.
    """
    added = {
        name: properties[name] for name in (MSG_REGION, TRACE_ON, CLUSTER) if name in properties
    }
    message = StoreMessage(
        properties[REAL_TOPIC],
        int(properties[REAL_QUEUE_ID]),
        record.body,
        properties_bytes(added),
        sys_flag=record.sys_flag & ~FLAG_TRANSACTION | TRANSACTION_COMMIT,
        born_timestamp=record.born_timestamp,
        born_host=record.born_ip + record.born_port.to_bytes(4, "big"),
        store_host=record.store_ip + record.store_port.to_bytes(4, "big"),
        prepared_offset=half.physical_offset,
    )
    begun = state.transactions.halves.begun(half)
    state.store.put_parts(message, half.parts, begun)
    return half.parts - begun, message


def roll_back(state: BrokerState, half: Half, *also: int) -> None:
    state.transactions.settle(half, Outcome.ROLLED_BACK, *also)
    state.statistics.add("TRANSACTION_ROLLBACKS", half.topic)
