"""What the timer needs from the disk, without holding up the loop: slots, and its next file."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from firearrow.hot import decode_properties
from firearrow.model.topic import TIMER_TOPIC
from firearrow.store.timer_log import walk

if TYPE_CHECKING:
    from collections.abc import Callable

    from firearrow.broker.timer_slots import OpenSlot
    from firearrow.store.disk import MappedFile
    from firearrow.store.store import MessageStore
    from firearrow.store.timer_log import TimerLog

    Add = Callable[[OpenSlot, int, dict[str, str], int], None]

log = logging.getLogger(__name__)

ENTRIES_PER_THREAD: Final = 2_000  # that a thread reads at a time
RECORDS_PER_TURN: Final = 100  # looked into before the loop serves others again


class SlotLoader:
    """Reads the chain of a slot in a thread, then what is due when, a few at a time.

    `add` is called for every message: its slot, its place in the timer log, its properties and when
    it was stored; `done` when that was all.
    """

    def __init__(
        self,
        timer_log: TimerLog,
        store: MessageStore,
        add: Add,
        done: Callable[[OpenSlot], None],
    ) -> None:
        self._log = timer_log
        self._store = store
        self._add = add
        self._done = done

    async def load(self, slot: OpenSlot, position: int) -> None:
        """Everything from an entry on, back to the first of its slot."""
        lookup = self._store.lookup
        while position >= self._log.min_position:
            piece = self._log.piece(position)
            if piece is None:
                break
            found, position = await asyncio.to_thread(walk, *piece, position, ENTRIES_PER_THREAD)
            await self._warm([(entry.physical_offset, entry.record_bytes) for _, entry in found])
            for number, (at, entry) in enumerate(found):
                if entry.is_rolled:
                    slot.rolls.append(at)
                else:
                    record = lookup.scanned_at(entry.physical_offset)
                    if record is not None and record.topic == TIMER_TOPIC:
                        properties = decode_properties(record.properties)
                        self._add(slot, at, properties, record.store_timestamp)
                if number % RECORDS_PER_TURN == RECORDS_PER_TURN - 1:
                    await asyncio.sleep(0)
        slot.rolls.sort(reverse=True)
        slot.is_loading = False
        self._done(slot)

    async def _warm(self, places: list[tuple[int, int]]) -> None:
        """Have records in memory, so that the loop does not wait for the disk."""
        try:
            await asyncio.to_thread(_warm, self._store.lookup.pieces(places))
        except OSError as error:
            log.warning("messages of the timer are read slowly: %s", error)


def _warm(pieces: list[tuple[MappedFile, int, int]]) -> None:
    for file, position, size in pieces:
        file.warm(position, size)


async def prepare(timer_log: TimerLog, start: int) -> None:
    """Make the next file of the timer log before it is needed."""
    try:
        file = await asyncio.to_thread(timer_log.segments.prepare, start)
    except OSError as error:
        log.warning("the next file of the timer log cannot be made yet: %s", error)
        return
    if start in timer_log.segments.starts:
        file.close()
    else:
        timer_log.segments.keep_prepared(file)
