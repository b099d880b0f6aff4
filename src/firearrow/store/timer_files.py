"""The timer's files as a whole: how they are opened after any kind of stop, and saved.

Saving keeps an order that a crash cannot break: the log's entries, then the checkpoint that vouches
for them, then the wheel. The wheel is behind rather than ahead, and what it misses is read from the
log. A directory that RocketMQ wrote last is recovered by its own rules.
"""

from __future__ import annotations

import bisect
import dataclasses
import logging
from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from firearrow.base.errors import ConfigError
from firearrow.store.config_files import FOLDER
from firearrow.store.timer_checkpoint import TimerCheckpoint
from firearrow.store.timer_log import ENTRY_BYTES, NOWHERE, TimerLog
from firearrow.store.timer_wheel import BLANK_SLOTS, SLOTS_A_TURN, Slot, TimerWheel

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from firearrow.store.disk import Disk, MappedFile
    from firearrow.store.timer_log import TimerEntry

log = logging.getLogger(__name__)

CHECKPOINT_NAME: Final = "timercheck"
METRICS_NAME: Final = "timermetrics"


@dataclass(slots=True)
class Found:
    """Where the timer goes on."""

    read_ms: int  # the first slot that is not delivered, or not all of it
    queue_offset: int  # the first message of the timer's queue that the log may not know
    log_offset: int | None = None  # deliveries of these slots lie behind it; None: nobody knows
    known: set[int] = field(default_factory=set)  # physical offsets behind `queue_offset`, in vain
    rebuilt_to: int = 0  # messages before this queue offset are looked at again: files were lost


class TimerFiles:
    """`timerwheel`, `timerlog/`, `config/timercheck` and `config/timermetrics`."""

    def __init__(
        self,
        disk: Disk,
        root: Path,
        *,
        log_file_bytes: int,
        precision_ms: int,
        slots_a_turn: int = SLOTS_A_TURN,
    ) -> None:
        self._disk = disk
        self._checkpoint_path = root / FOLDER / CHECKPOINT_NAME
        self._metrics_path = root / FOLDER / METRICS_NAME
        self._precision_ms = precision_ms
        self.log = TimerLog(disk, root / "timerlog", log_file_bytes)
        self.wheel = TimerWheel(
            disk, root / "timerwheel", precision_ms=precision_ms, slots_a_turn=slots_a_turn
        )
        self.checkpoint = TimerCheckpoint()
        self._wheel_to = 0
        self.is_taken_over = False  # RocketMQ had them last, and there is no checkpoint of ours yet

    # --- opening ----------------------------------------------------------------------------

    def open(
        self,
        now_ms: int,
        *,
        begun_ms: int,
        queue_offset_of: Callable[[int], int | None],
        physical_of: Callable[[int], int | None],
    ) -> Found:
        """Find out how far everything is. Blocks.

        `begun_ms` is when the first message of the timer's queue was stored, or now. The two
        functions tell where a record of that queue lies, and the reverse.
        """
        checkpoint = TimerCheckpoint.decode(self._disk.read(self._checkpoint_path))
        for oddity in self.log.load():
            log.error("timer log: %s", oddity)
        has_wheel = self.wheel.load()
        if checkpoint is None:
            # Nothing vouches for what is there. Whatever was delivered lies behind the first
            # message that was put in, if there is one, and no slot was read that is older.
            self._forget()
            return Found(
                read_ms=min(begun_ms, now_ms) // self._precision_ms * self._precision_ms,
                queue_offset=0,
                log_offset=physical_of(0),
            )
        self.checkpoint = checkpoint
        if self.checkpoint.is_ours:
            return self._open_ours(self.checkpoint, has_wheel=has_wheel)
        self._refuse_other_precision(self._precision_of_wheel())
        return self._open_apaches(self.checkpoint, now_ms, queue_offset_of, physical_of)

    def _refuse_other_precision(self, found_ms: int | None) -> None:
        if found_ms not in {None, self._precision_ms}:
            raise ConfigError(
                f"timerPrecisionMs is {self._precision_ms}, but the timer's files were written "
                f"with {found_ms}: set it to that; messages that wait would be delivered too early"
            )

    def _open_ours(self, checkpoint: TimerCheckpoint, *, has_wheel: bool) -> Found:
        self._refuse_other_precision(checkpoint.precision_ms)
        end = checkpoint.log_end
        found = Found(
            read_ms=checkpoint.read_ms,
            queue_offset=checkpoint.queue_offset,
            log_offset=checkpoint.log_offset,
        )
        if not self._reaches(end):
            log.error("the timer log does not reach to %d: it is made again from the log", end)
            self._forget()
            found.rebuilt_to, found.queue_offset = found.queue_offset, 0
            return found
        self.log.open_at(end)
        # Without a file everything in the log is news to the wheel.
        self._wheel_to = checkpoint.wheel_to if has_wheel else 0
        for position, entry in self.log.entries(max(self._wheel_to, self.log.min_position)):
            if entry.slot_ms >= checkpoint.read_ms:
                self._redo(position, entry)
        return found

    def _reaches(self, end: int) -> bool:
        """Whether the log has the last entry that the checkpoint vouches for."""
        self.log.end = end  # as far as `entry` may look
        return end == 0 or self.log.entry(end - ENTRY_BYTES) is not None

    def _forget(self) -> None:
        self.wheel.forget()
        self.log.open_at(self.log.segments.min_offset)
        self._wheel_to = self.log.end

    def _redo(self, position: int, entry: TimerEntry) -> None:
        """Have the wheel know of an entry."""
        slot = self.wheel.get(entry.slot_ms)
        if slot is None or slot.last < position:
            self.wheel.add(entry.slot_ms, position, change=-1 if entry.takes_back else 1)

    # --- what RocketMQ wrote ----------------------------------------------------------------

    def _precision_of_wheel(self) -> int | None:
        """With which precision a wheel was written, judging by one of its slots."""
        self.log.end = self.log.segments.end_offset
        for slot in self.wheel.used():
            entry = self.log.entry(slot.last)
            if entry is not None:
                return entry.slot_ms // (slot.time_ms // self._precision_ms)
        return None

    def _open_apaches(
        self,
        checkpoint: TimerCheckpoint,
        now_ms: int,
        queue_offset_of: Callable[[int], int | None],
        physical_of: Callable[[int], int | None],
    ) -> Found:
        precision_ms = self._precision_ms
        read_ms = checkpoint.read_ms
        if read_ms <= 0:  # it was never written
            back = (self.wheel.slots_a_turn - BLANK_SLOTS) * precision_ms
            read_ms = now_ms // precision_ms * precision_ms - back
        seen, last = self._scan(checkpoint)
        self._mend_chains(read_ms)
        self.is_taken_over = True
        self._wheel_to = self.log.min_position  # nothing of it was synced by us
        offset = None if last is None else queue_offset_of(last.physical_offset)
        next_offset = checkpoint.queue_offset if offset is None else offset + 1
        next_offset = min(next_offset, checkpoint.master_queue_offset)
        first = physical_of(next_offset)
        known = set() if first is None else set(seen[bisect.bisect_left(seen, first) :])
        return Found(read_ms=read_ms, queue_offset=next_offset, known=known)

    def _scan(self, checkpoint: TimerCheckpoint) -> tuple[array[int], TimerEntry | None]:
        """Find the end of the log, and have the wheel know of its last entries."""
        segments = self.log.segments
        begin = max(0, checkpoint.log_end - segments.file_bytes)
        starts = [start for start in segments.starts if start <= begin]
        first = starts[-1] if starts else segments.min_offset
        seen, last, end = array("q"), None, first
        for position, entry in self.log.entries(first):
            seen.append(entry.physical_offset)
            self._redo(position, entry)
            last, end = entry, position + ENTRY_BYTES
        self.log.open_at(end)
        return seen, last

    def _mend_chains(self, read_ms: int) -> None:
        """Slots that lead behind the end of the log: lead them to the last entry that is there."""
        broken = {
            slot.time_ms: slot
            for slot in self.wheel.used()
            if slot.time_ms >= read_ms and slot.last >= self.log.end
        }
        if not broken:
            return
        log.error("%d slots of the timer's wheel lead behind the end of its log", len(broken))
        for slot in broken.values():
            self.wheel.put(Slot(slot.time_ms, slot.first, NOWHERE, 0))
        first = max(min(slot.first for slot in broken.values()), self.log.min_position)
        for position, entry in self.log.entries(first):
            if entry.slot_ms in broken:
                self._redo(position, entry)

    # --- saving -----------------------------------------------------------------------------

    def saving(self, now_ms: int, *, read_ms: int, queue_offset: int, log_offset: int) -> Saving:
        """Everything as it is at this moment, to be made durable."""
        files, end = self.log.dirty_files()
        self.wheel.take_changes()
        checkpoint = dataclasses.replace(
            self.checkpoint,
            read_ms=read_ms,
            log_end=end,
            queue_offset=queue_offset,
            master_queue_offset=queue_offset,
            timestamp=now_ms,
            counter=self.checkpoint.counter + 1,
            precision_ms=self._precision_ms,
            wheel_to=self._wheel_to,
            log_offset=log_offset,
        )
        return Saving(checkpoint, files)

    def save(self, saving: Saving, metrics: bytes) -> None:
        """The first part: log and checkpoint. Blocks and shares nothing: for a thread."""
        for file in saving.files:
            file.sync()
        self._disk.replace(self._metrics_path, metrics)
        self._disk.replace(self._checkpoint_path, saving.checkpoint.encode())

    def saved(self, saving: Saving) -> None:
        self.checkpoint = saving.checkpoint
        self.is_taken_over = False
        self.log.note_synced(saving.checkpoint.log_end)

    def wheel_saved(self, saving: Saving) -> None:
        """The wheel is on disk as far as this, too; the next checkpoint says so."""
        self._wheel_to = saving.checkpoint.log_end

    def metrics(self) -> bytes | None:
        return self._disk.read(self._metrics_path)

    @property
    def is_wheel_behind(self) -> bool:
        """Whether the checkpoint has less to say of the wheel than is true."""
        return self.checkpoint.wheel_to != self._wheel_to or self.wheel.is_changed

    def close(self) -> None:
        self.wheel.close()
        self.log.close()


@dataclass(frozen=True, slots=True)
class Saving:
    """What a checkpoint will say, and the files that must be on disk before."""

    checkpoint: TimerCheckpoint
    files: list[MappedFile]
