"""The timer's wheel: where the chain of each slot begins.

    slot    | time / precision 8 | first position 8 | last position 8 | count 4 | 0 4 |   32 bytes

A file of two weeks of slots (at a precision of a second), used over and over: a slot is that of a
time only if it says so. Changes are kept aside until the entries that they lead to are on disk, so
that the file never says more than the timer log has; what it misses is in the log.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from firearrow.base.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from firearrow.store.disk import Disk, MappedFile

SLOT: Final = struct.Struct(">qqqii")
SLOT_BYTES: Final = SLOT.size
SLOTS_A_TURN: Final = 7 * 24 * 3600  # how far ahead a message can be put
SLOTS: Final = 2 * SLOTS_A_TURN
BLANK_SLOTS: Final = 60  # kept free between the newest and the oldest
_CHUNK_SLOTS: Final = 4096
_ZEROS: Final = bytes(_CHUNK_SLOTS * SLOT_BYTES)


class Slot(NamedTuple):
    time_ms: int
    first: int
    last: int
    messages: int  # those that take others back count against them


class TimerWheel:
    """Slots by their time, in milliseconds, which is a multiple of the precision."""

    def __init__(
        self, disk: Disk, path: Path, *, precision_ms: int, slots_a_turn: int = SLOTS_A_TURN
    ) -> None:
        self._disk = disk
        self._path = path
        self.precision_ms = precision_ms
        self.slots_a_turn = slots_a_turn
        self._slots = 2 * slots_a_turn
        self._file: MappedFile | None = None
        self._changed: dict[int, Slot] = {}  # by time, not in the file yet
        self._leaving: dict[int, Slot] = {}  # on their way into it
        self._reserved: set[int] = set()  # blocks of the file that have real disk space

    @property
    def file_bytes(self) -> int:
        return self._slots * SLOT_BYTES

    def load(self) -> bool:
        """Map the file if there is one; False if there is none."""
        size = self._disk.size_of(self._path)
        if not size:
            return False
        if size != self.file_bytes:
            raise ConfigError(
                f"{self._path} has {size} bytes, not {self.file_bytes}: it is damaged. Remove it, "
                "and it is made again from the log"
            )
        self._file = self._disk.map(self._path, self.file_bytes)
        return True

    def slot_for(self, out_ms: int, written_ms: int, window: int) -> tuple[int, bool]:
        """Where a message waits that is written now: far ones only for a part of their time.

        `window` is how many slots ahead it may be; True if it has to be put in again later.
        """
        precision_ms = self.precision_ms
        beyond_ms = out_ms - written_ms - window * precision_ms
        if beyond_ms < 0:
            return out_ms, False
        # Not so that hardly anything would be left after it: the next time needs some time, too.
        near = beyond_ms < window // 3 * precision_ms
        return written_ms + (window // 2 if near else window) * precision_ms, True

    def _place(self, time_ms: int) -> int:
        return time_ms // self.precision_ms % self._slots * SLOT_BYTES

    def get(self, time_ms: int) -> Slot | None:
        """The slot of a time; None if nothing was ever put there."""
        slot = self._changed.get(time_ms) or self._leaving.get(time_ms)
        if slot is not None or self._file is None:
            return slot
        number, first, last, count, _ = SLOT.unpack_from(self._file.buffer, self._place(time_ms))
        if number * self.precision_ms != time_ms or number == 0:
            return None
        return Slot(time_ms, first, last, count)

    def put(self, slot: Slot) -> None:
        self._changed[slot.time_ms] = slot

    def add(self, time_ms: int, position: int, *, change: int) -> None:
        """An entry at `position` is the newest of a slot."""
        before = self.get(time_ms)
        if before is None:
            self.put(Slot(time_ms, position, position, change))
        else:
            self.put(Slot(time_ms, before.first, position, before.messages + change))

    # --- the file ---------------------------------------------------------------------------

    @property
    def is_changed(self) -> bool:
        return bool(self._changed or self._leaving)

    def take_changes(self) -> None:
        """Everything changed so far may go into the file when `write` is called."""
        if self._leaving:
            self._leaving.update(self._changed)
        else:
            self._leaving = self._changed
        self._changed = {}

    @property
    def is_leaving(self) -> bool:
        """Whether something was taken, and is not in the file yet."""
        return bool(self._leaving)

    def write(self, most: int) -> None:
        """Write some of what was taken. OSError when the disk is full."""
        file = self._file
        if file is None:
            file = self._disk.map(self._path, self.file_bytes, create=True)
            self._file = file
        leaving = self._leaving
        for _ in range(min(most, len(leaving))):
            time_ms, slot = next(iter(leaving.items()))
            at = self._place(time_ms)
            self._reserve(file, at)
            file.buffer[at : at + SLOT_BYTES] = SLOT.pack(
                time_ms // self.precision_ms, slot.first, slot.last, slot.messages, 0
            )
            del leaving[time_ms]

    def _reserve(self, file: MappedFile, at: int) -> None:
        block = at // len(_ZEROS)
        if block not in self._reserved:
            start = block * len(_ZEROS)
            file.reserve(start, min(len(_ZEROS), file.size - start))
            self._reserved.add(block)

    @property
    def file(self) -> MappedFile | None:
        return self._file

    def used(self) -> Iterator[Slot]:
        """Every slot of the file that was ever used, in no order of time."""
        if self._file is None:
            return
        buffer = self._file.buffer
        for at in range(0, len(buffer), len(_ZEROS)):
            piece = bytes(buffer[at : at + len(_ZEROS)])
            if piece == _ZEROS[: len(piece)]:
                continue
            for number, first, last, count, _ in SLOT.iter_unpack(piece):
                if number:
                    yield Slot(number * self.precision_ms, first, last, count)

    def forget(self) -> None:
        """Be empty, in memory and on disk: what it knew is not to be trusted. Blocks."""
        self.close()
        self._changed, self._leaving = {}, {}
        self._disk.remove(self._path)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        self._reserved.clear()
