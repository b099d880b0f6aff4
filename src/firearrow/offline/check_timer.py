"""The timer's own files: a wheel with a slot per second, and a log of what is due.

    slot    | time 8 | first position 8 | last position 8 | count 4 | 0 4 |       in timerwheel
    entry   | size 4 | previous 8 | magic 4 | written at 8 | delay 4 |            in timerlog/
            | physical offset 8 | size 4 | topic hash 4 | 0 8 |

A slot leads to its newest entry, and each entry to the one before it in the slot. Slots are not
erased when their time has passed, and the log's old files go with those of the commit log: a chain
may lead to what is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from firearrow.model.topic import TIMER_TOPIC
from firearrow.offline.directory import offset_files
from firearrow.store.timer_log import ENTRY, TimerEntry
from firearrow.store.timer_wheel import SLOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from firearrow.offline.check_log import LostBytes
    from firearrow.offline.directory import StoreDirectory
    from firearrow.offline.findings import Findings
    from firearrow.offline.log_walk import LogFile

_SLOTS_PER_READ: Final = 1 << 15
_ZEROS: Final = bytes(_SLOTS_PER_READ * SLOT.size)


class TimerCheck:
    """Rule O6."""

    def __init__(self, store: StoreDirectory, findings: Findings, lost: LostBytes) -> None:
        self._store = store
        self._findings = findings
        self._lost = lost
        self._files = offset_files([store.root / "timerlog"])
        self._precision_ms: int | None = None

    def check(self) -> None:
        for index, slot in self._slots():
            time, _, position, _, _ = SLOT.unpack(slot)
            where = f"timerwheel slot {index}"
            before: int | None = None
            # Delayed by the same time or less, a slot's chain is as long as its messages are many.
            while position >= 0 and self._is_kept(position):
                entry = self._entry(position)
                problem = self._problem(time, position, before, entry)
                if problem:
                    self._findings.add("O6", where, problem)
                if entry is None or not entry.is_sound or entry.previous >= position:
                    break
                before, position = position, entry.previous

    def _problem(
        self, time: int, position: int, before: int | None, entry: TimerEntry | None
    ) -> str:
        if entry is None or not entry.is_sound:
            came = "" if before is None else f" from {before}"
            return f"leads{came} to {position} of the timer log, where no entry is"
        if entry.previous >= position:
            return f"entry at {position} leads forward, to {entry.previous}"
        due_ms = entry.slot_ms
        precision = self._precision_ms
        if precision is None and time:
            precision = self._precision_ms = due_ms // time
        if due_ms != time * (precision or 0):
            return f"entry at {position} is due at {due_ms}, not in this slot"
        return self._record_problem(position, entry)

    def _record_problem(self, position: int, entry: TimerEntry) -> str:
        offset = entry.physical_offset
        if offset < self._store.min_offset or offset in self._lost:
            return ""
        record = self._store.record_at(offset)
        if record is None or record.topic != TIMER_TOPIC:
            return f"entry at {position} is for {offset}, where no record of the timer topic is"
        return ""

    def _slots(self) -> Iterator[tuple[int, bytes]]:
        """Every slot that was ever used, with its number."""
        try:
            with (self._store.root / "timerwheel").open("rb") as file:
                first = 0
                while data := file.read(len(_ZEROS)):
                    if data != _ZEROS[: len(data)]:
                        for at in range(0, len(data) - SLOT.size + 1, SLOT.size):
                            slot = data[at : at + SLOT.size]
                            if any(slot):
                                yield first + at // SLOT.size, slot
                    first += len(data) // SLOT.size
        except OSError:
            return

    def _is_kept(self, position: int) -> bool:
        """Whether the timer log still has this position, or lost it before its time."""
        return not self._files or position >= self._files[0].first_offset

    def _entry(self, position: int) -> TimerEntry | None:
        file = self._file_of(position)
        if file is None or (position - file.first_offset) % ENTRY.size:
            return None
        try:
            with file.path.open("rb") as opened:
                opened.seek(position - file.first_offset)
                raw = opened.read(ENTRY.size)
        except OSError:
            return None
        return TimerEntry._make(ENTRY.unpack(raw)) if len(raw) == ENTRY.size else None

    def _file_of(self, position: int) -> LogFile | None:
        for file in reversed(self._files):
            if file.first_offset <= position < file.first_offset + file.size:
                return file
        return None
