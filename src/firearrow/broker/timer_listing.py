"""What waits in the timer, page by page: slots in the order of time, each from its newest on.

A page is read on the loop, a few slots and entries at a time, and ends when it is full or when it
has cost enough; a cursor says where the next one begins.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from firearrow.hot import decode_properties, java_hash
from firearrow.model.errors import InvalidParameter
from firearrow.model.message import (
    KEYS,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TAGS,
    TIMER_DEL_UNIQKEY,
    TIMER_OUT_MS,
    UNIQ_KEY,
)
from firearrow.model.timer import RecallHandle, exact_time
from firearrow.store.timer_log import NOWHERE
from firearrow.wire import bodies

if TYPE_CHECKING:
    from firearrow.broker.state import BrokerState
    from firearrow.hot import ScannedRecord
    from firearrow.store.timer_log import TimerEntry

PAGE_MAX: Final = 1_000
SLOTS_PER_PAGE: Final = 100_000
ENTRIES_PER_PAGE: Final = 20_000
RECALLS_WITHIN: Final = 200_000  # of a slot's newest entries: what takes back comes after
STEPS_PER_TURN: Final = 1_000


class TimerListing:
    """One page of one topic."""

    def __init__(self, state: BrokerState, topic: str, most: int) -> None:
        self._state = state
        self._timers = state.timers
        self._log, self._wheel = state.timers.files.log, state.timers.files.wheel
        self._precision_ms = state.timers.precision_ms
        self._topic = topic
        self._topic_hash = java_hash(topic)
        self._most = min(most, PAGE_MAX)
        self._found: list[bodies.WaitingTimer] = []
        self._entries_left = ENTRIES_PER_PAGE
        self._steps = 0

    async def read(self, begin_ms: int, cursor: str | None) -> bodies.TimerList:
        """From a time on, or from where the page before ended."""
        slot_ms, position = parse_cursor(cursor) if cursor else (begin_ms, NOWHERE)
        first_ms = self._timers.read_ms
        if slot_ms < first_ms:
            slot_ms, position = first_ms, NOWHERE
        slot_ms = slot_ms // self._precision_ms * self._precision_ms
        slots_left = SLOTS_PER_PAGE
        while slot_ms <= self._timers.last_ms:
            if not slots_left:
                return self._page(slot_ms, position)
            slot = self._wheel.get(slot_ms)
            if slot is not None:
                position = await self._read_slot(slot.last if position < 0 else position, slot.last)
                if position != NOWHERE:
                    return self._page(slot_ms, position)
            slot_ms += self._precision_ms
            position = NOWHERE
            slots_left -= 1
            await self._step()
        return bodies.TimerList(timers=tuple(self._found))

    def _page(self, slot_ms: int, position: int) -> bodies.TimerList:
        return bodies.TimerList(timers=tuple(self._found), cursor=f"{slot_ms}:{position}")

    async def _step(self) -> None:
        self._steps += 1
        if self._steps % STEPS_PER_TURN == 0:
            await asyncio.sleep(0)

    async def _read_slot(self, position: int, newest: int) -> int:
        """Go on in the chain of a slot; returns where to go on, or NOWHERE at its end."""
        recalled = await self._recalled(newest)
        while position >= self._log.min_position:
            if len(self._found) >= self._most or self._entries_left <= 0:
                return position
            entry = self._log.entry(position)
            if entry is None or entry.previous >= position:
                break
            self._entries_left -= 1
            self._look_at(entry, recalled)
            position = entry.previous
            await self._step()
        return NOWHERE

    async def _recalled(self, position: int) -> set[str]:
        """Keys of the messages of a slot that were taken back."""
        found: set[str] = set()
        for _ in range(RECALLS_WITHIN):
            entry = self._log.entry(position)
            if entry is None:
                break
            if entry.takes_back and (record := self._record(entry)) is not None:
                found.add(decode_properties(record.properties).get(TIMER_DEL_UNIQKEY, ""))
            if entry.previous >= position:
                break
            position = entry.previous
            await self._step()
        return found

    def _record(self, entry: TimerEntry) -> ScannedRecord | None:
        return self._state.store.lookup.scanned_at(entry.physical_offset)

    def _look_at(self, entry: TimerEntry, recalled: set[str]) -> None:
        if entry.takes_back or entry.topic_hash != self._topic_hash:
            return
        record = self._record(entry)
        properties = {} if record is None else decode_properties(record.properties)
        if record is None or properties.get(REAL_TOPIC) != self._topic:
            return
        unique, out_ms = properties.get(UNIQ_KEY, ""), int(properties[TIMER_OUT_MS])
        due_ms = exact_time(
            properties,
            slot_ms=out_ms,
            precision_ms=self._precision_ms,
            stored_ms=record.store_timestamp,
        )
        is_gone = not entry.is_rolled and due_ms <= self._state.clock.now_ms()
        if is_gone or self._timers.recalls.hit(properties, recalled):
            return
        name = self._state.config.broker_name
        self._found.append(
            bodies.WaitingTimer(
                topic=self._topic,
                queue_id=int(properties.get(REAL_QUEUE_ID, "0")),
                due_time=due_ms,
                unique_key=unique,
                recall_handle=RecallHandle(self._topic, name, out_ms + 1, unique).encode(),
                physical_offset=record.physical_offset,
                store_timestamp=record.store_timestamp,
                size=record.size,
                tags=properties.get(TAGS),
                keys=properties.get(KEYS),
            )
        )


def parse_cursor(cursor: str) -> tuple[int, int]:
    slot, _, position = cursor.partition(":")
    try:
        return int(slot[:20]), int(position[:20])
    except ValueError:
        raise InvalidParameter(f"cursor {cursor[:60]!r} was not given out by a broker") from None
