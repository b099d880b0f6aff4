"""What happened to one message, in order: from the record itself, and from traces if there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from firearrow.base.errors import FirearrowError

if TYPE_CHECKING:
    from firearrow.client.admin import Admin
    from firearrow.client.admin_results import MessageTrace
    from firearrow.client.message import ReceivedMessage


@dataclass(frozen=True, slots=True)
class Event:
    """`key` names what happened; `lane` is whose doing it is: producer, broker or a group."""

    at_ms: int
    key: str
    lane: str
    text: str = ""
    took_ms: int | None = None
    ok: bool | None = None


async def lifeline(admin: Admin, message: ReceivedMessage) -> tuple[list[Event], bool]:
    """Events, oldest first, and whether clients have told of it (trace=True)."""
    events = from_record(message)
    try:
        trace = await admin.message_trace(message.msg_id)
    except FirearrowError:  # nobody wrote a trace, or there is no topic for it
        return events, False
    return sorted([*events, *from_trace(trace)], key=lambda one: one.at_ms), True


def from_record(message: ReceivedMessage) -> list[Event]:
    born = Event(message.born_timestamp, "life.born", "producer", message.born_host)
    place = f"{message.broker_name}/{message.queue_id} @ {message.queue_offset}"
    stored = Event(message.store_timestamp, "life.stored", "broker", place)
    return [born, stored]


def from_trace(trace: MessageTrace) -> list[Event]:
    events = [
        Event(one.timestamp_ms, "life.sent", "producer", one.group, one.cost_ms, one.success)
        for one in trace.published
    ]
    for delivery in trace.deliveries:
        group = delivery.group or ""
        if delivery.before is not None:
            retry = delivery.before.retry_times
            key = "life.delivered" if not retry else "life.delivered_again"
            events.append(Event(delivery.before.timestamp_ms, key, group, str(retry or "")))
        after = delivery.after
        if after is not None:
            began_ms = 0 if delivery.before is None else delivery.before.timestamp_ms
            at_ms = after.timestamp_ms or began_ms + after.cost_ms
            key = "life.consumed" if after.success else "life.failed"
            events.append(Event(at_ms, key, group, "", after.cost_ms, after.success))
    events += [
        Event(one.timestamp_ms, "life.ended", "producer", one.state.name)
        for one in trace.transactions
    ]
    events += [
        Event(one.timestamp_ms, "life.recalled", "producer", one.group, ok=one.success)
        for one in trace.recalls
    ]
    return sorted(events, key=lambda one: one.at_ms)
