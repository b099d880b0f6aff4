"""Consume queues against the log, in one pass over the log and with little memory.

`derived.QueueRuns` says which units each queue must have; here they are compared with the files,
most often many at once. Only where they differ does anybody look at single units.

A topic that was deleted and made again starts over at 0, and only its last life has units. So a
record without its unit is not reported at once: a restart of its queue, or of another queue of its
topic, takes the complaint back. Neither is a unit whose record may lie in a damaged part of the
log: that is one finding about the log, not many about queues.
"""

from __future__ import annotations

import struct
from functools import cached_property
from typing import TYPE_CHECKING, Final

from firearrow.offline.derived import BATCH_UNIT
from firearrow.store.consume_queue import ENTRY as UNIT
from firearrow.store.consume_queue import FILLER

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from pathlib import Path

    from firearrow.offline.check_log import LostBytes
    from firearrow.offline.derived import QueueKey
    from firearrow.offline.directory import StoreDirectory
    from firearrow.offline.findings import Findings
    from firearrow.offline.unit_files import UnitFiles

# A tags code below every 32-bit hash is an address in consumequeue_ext, counted from here.
_EXT_BASE: Final = -(1 << 63)
_EXT_LIMIT: Final = -(1 << 31) - 1
# | size 2 | tags code 8 | store time 8 | bitmap length 2 | bitmap |
_EXT_UNIT: Final = struct.Struct(">hqqh")
_OFFSET: Final = struct.Struct(">q")


class Gap:
    """Records in a row that have no unit, or units in a row that point somewhere else."""

    __slots__ = ("first", "first_physical", "is_wrong", "last", "last_physical", "points_to")

    def __init__(self, number: int, physical: int, points_to: int | None) -> None:
        self.first = self.last = number
        self.first_physical = self.last_physical = physical
        self.is_wrong = points_to is not None
        self.points_to = points_to or 0

    def extend(self, number: int, physical: int) -> None:
        self.last = number
        self.last_physical = physical

    @property
    def records(self) -> int:
        return self.last - self.first + 1

    @property
    def span(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first} to {self.last}"


class QueueCheck:
    """One queue, or the records of one that has no folder."""

    def __init__(self, key: QueueKey, units: UnitFiles, rules: QueuesCheck) -> None:
        self.key = key
        self.next_offset: int | None = None  # behind the last record in the log
        self.gaps: list[Gap] = []
        self.found_first: int | None = None  # number of the first unit that has its record
        self.found_last = -1
        self.found_end_physical = 0  # behind the record of the last one
        self.restarted_at = -1  # physical offset of the record that began a new life
        self._units = units
        self._all = rules
        self._batch_at = units.first  # next unit of a batch queue

    # --- plain queues -------------------------------------------------------------------------

    def take(self, first: int, expected: bytes) -> None:
        """The log has these units, one after the other."""
        (physical,) = _OFFSET.unpack_from(expected)
        if self.next_offset is None:
            self._check_front(first, physical)
        elif first == 0:
            self._begin_anew(physical)
        elif first > self.next_offset:
            self._check_strays(self.next_offset, first)
        count = len(expected) // UNIT.size
        self.next_offset = first + count
        actual = self._units.read(first, count)
        if actual == expected:
            offset, size, _ = UNIT.unpack_from(expected, len(expected) - UNIT.size)
            self._found(first, first + count - 1, offset + size)
            return
        for index in range(count):
            at = index * UNIT.size
            unit = actual[at : at + UNIT.size]
            if unit == expected[at : at + UNIT.size]:
                offset, size, _ = UNIT.unpack(unit)
                self._found(first + index, first + index, offset + size)
            else:
                self._differs(first + index, unit, *UNIT.unpack_from(expected, at))

    def _differs(self, number: int, unit: bytes, physical: int, size: int, tags_code: int) -> None:
        says_physical, says_size, says_code = UNIT.unpack(unit)
        if unit == FILLER and self.found_first is not None:
            self._add("Q4", number, "filler in the place of a message")
        elif not any(unit) or unit == FILLER:
            self._miss(number, physical)
        elif says_physical != physical:
            self._miss(number, physical, points_to=says_physical)
        else:
            self._found(number, number, physical + size)
            if says_size != size:
                self._add("Q1", number, f"says {says_size} bytes; its record has {size}")
            if says_code != tags_code and not self._is_ext_of(says_code, tags_code):
                self._add("Q3", number, f"has tags code {says_code}; its record {tags_code}")

    def _check_front(self, first: int, physical: int) -> None:
        """Units before the first record in the log: expired, filler, or of a later life."""
        for number, unit in self._units.units(self._units.first, first):
            offset, size, _ = UNIT.unpack(unit)
            if unit == FILLER or offset < self._all.min_offset or offset > physical:
                continue
            if not any(unit) or size <= 0 or offset not in self._all.lost:
                self._add("Q1", number, f"points to {offset}, where no record of this queue is")

    def _check_strays(self, first: int, stop: int | None) -> None:
        """Units between or behind those that the log asked for.

        Between them nothing has to be: that the log jumps is C6, or damage.
        """
        end, last = self._all.end_offset, first - 1
        for number, unit in self._units.units(first, stop):
            offset, size, _ = UNIT.unpack(unit)
            if offset in self._all.lost and unit != FILLER:
                continue
            if unit == FILLER:
                if stop is None and self.found_first is not None:
                    self._add("Q4", number, "filler behind messages")
            elif not any(unit):
                if stop is None:
                    self._add("Q1", number, "is empty, and others follow")
            elif stop is None and offset + size > end:
                if not self._all.running:
                    self._add(
                        "Q2", number, f"points to {offset}, behind the end of the log at {end}"
                    )
            elif offset < self._all.min_offset and self.next_offset is None:
                continue  # expired with all the others
            elif stop is None and self.next_offset is not None:
                self._add("Q6", number, f"behind the queue's last record, which has offset {last}")
            else:
                self._add("Q1", number, f"points to {offset}, where no record of this queue is")

    def _is_ext_of(self, address: int, tags_code: int) -> bool:
        """Whether this is an address in consumequeue_ext, of a unit with this tags code."""
        if address > _EXT_LIMIT:
            return False
        position = address - _EXT_BASE
        folder = self._all.root / "consumequeue_ext" / self.key.topic / str(self.key.queue_id)
        return _ext_tags_code(folder, position) == tags_code

    # --- batch queues -------------------------------------------------------------------------

    def take_batch(self, first: int, expected: bytes) -> None:
        """As `take`; units of a batch queue lie in the order of the log, wherever they are."""
        if self.next_offset is not None and first == 0:
            self._begin_anew(_OFFSET.unpack_from(expected)[0])
        count = len(expected) // BATCH_UNIT.size
        last_base, last_messages = BATCH_UNIT.unpack_from(expected, -BATCH_UNIT.size)[4:6]
        self.next_offset = last_base + last_messages
        if self._units.read(self._batch_at, count) == expected:
            offset, size, *_ = BATCH_UNIT.unpack_from(expected, -BATCH_UNIT.size)
            self._found(first, last_base, offset + size)
            self._batch_at += count
            return
        for at in range(0, len(expected), BATCH_UNIT.size):
            self._take_batch_unit(expected[at : at + BATCH_UNIT.size])

    def _take_batch_unit(self, expected: bytes) -> None:
        physical, size, tags_code, time, base, messages, _, _ = BATCH_UNIT.unpack(expected)
        self._skip_batch_units(before=physical)
        unit = self._units.read(self._batch_at, 1)
        says = BATCH_UNIT.unpack(unit)
        if says[0] != physical or not any(unit):
            self._miss(base, physical)
            return
        number = self._batch_at
        self._batch_at += 1
        self._found(base, base, physical + size)
        if (says[1], *says[3:6]) != (size, time, base, messages):
            what = f"says (size, store time, base, messages) {(says[1], *says[3:6])}"
            self._add("Q1", number, f"{what}; its record {(size, time, base, messages)}")
        if says[2] != tags_code:
            self._add("Q3", number, f"has tags code {says[2]}; its record {tags_code}")

    def _skip_batch_units(self, *, before: int | None) -> None:
        """Pass units that point to nothing: those before an offset, or all that are left."""
        end = self._all.end_offset
        for number, unit in self._units.units(self._batch_at):
            offset, size, *_ = BATCH_UNIT.unpack(unit)
            if before is not None and (offset >= before or not any(unit)):
                return
            self._batch_at = number + 1
            if offset < self._all.min_offset or offset in self._all.lost:
                continue
            if before is None and offset + size > end:
                if not self._all.running:
                    self._add(
                        "Q2", number, f"points to {offset}, behind the end of the log at {end}"
                    )
            elif not any(unit):
                self._add("Q1", number, "is empty, and others follow")
            else:
                self._add("Q1", number, f"points to {offset}, where no record of this queue is")

    def _end_of_batch_units(self) -> int:
        """The offset behind the last message of a batch queue, by its files."""
        if self._units.end <= self._units.first:
            return 0
        fields = BATCH_UNIT.unpack(self._units.read(self._units.end - 1, 1))
        return int(fields[4] + fields[5])

    # --- both ---------------------------------------------------------------------------------

    def _begin_anew(self, physical: int) -> None:
        self.gaps.clear()
        self.found_first, self.found_last = None, -1
        self.restarted_at = physical

    def _found(self, first: int, last: int, end_physical: int) -> None:
        if self.found_first is None:
            self.found_first = first
        self.found_last = last
        self.found_end_physical = end_physical

    def _miss(self, number: int, physical: int, points_to: int | None = None) -> None:
        gap = self.gaps[-1] if self.gaps else None
        if gap and gap.last == number - 1 and gap.is_wrong == (points_to is not None):
            gap.extend(number, physical)
        else:
            self.gaps.append(Gap(number, physical, points_to))

    @property
    def max_offset(self) -> int:
        """The offset that the next message gets: by the log, or by the files if it lost records."""
        if self.next_offset is not None and not self._all.lost:
            return self.next_offset
        return max(self.files_end, self.next_offset or 0)

    @cached_property
    def files_end(self) -> int:
        """The same by the files alone."""
        return self._end_of_batch_units() if self.key.is_batch else self._units.end

    def __getstate__(self) -> dict[str, object]:
        """What was found; the store that it was found in stays behind."""
        _ = self.files_end
        return {name: value for name, value in vars(self).items() if name != "_all"}

    def join(self, rules: QueuesCheck) -> None:
        """Be one of the queues of this store, after a check somewhere else."""
        self._all = rules

    def report_gaps(self) -> None:
        """Name the records without their units; it is known by now which lives have ended."""
        for gap in self.gaps:
            self._report(gap)

    def check_rest(self) -> None:
        """The log is through; what is left in the queue points to nothing."""
        if self.key.is_batch:
            self._skip_batch_units(before=None)
        else:
            first = self._units.first if self.next_offset is None else self.next_offset
            self._check_strays(first, None)
        self._check_files()

    def _report(self, gap: Gap) -> None:
        if gap.last_physical < self._all.restarts.get(self.key.topic, -1):
            return  # of a former life of the topic
        where = self.key.folder
        if gap.is_wrong:
            end, unit = self._all.end_offset, f"{where} unit {gap.first}"
            if gap.points_to >= end:
                what = f"points to {gap.points_to}, behind the end of the log at {end}"
                self._all.findings.add("Q2", unit, what, gap.records)
            else:
                what = f"points to {gap.points_to}; its record is at {gap.first_physical}"
                self._all.findings.add("Q1", unit, what, gap.records)
        elif gap.first > self.found_last:
            self._all.take_tail(self.key, gap)
        elif self.found_first is not None and gap.last < self.found_first:
            what = (
                f"begins at offset {self.found_first}; the log has its records from {gap.first} on"
            )
            self._all.findings.add("Q6", where, what, gap.records)
        else:
            what = f"no unit for queue offset {gap.span}, at {gap.first_physical} in the log"
            self._all.findings.add("Q5", where, what, gap.records)

    def _check_files(self) -> None:
        """Names and sizes of the files, and whether any of them is there for nothing."""
        units, findings = self._units, self._all.findings
        for file in units.files:
            where = f"{self.key.folder}/{file.path.name}"
            if file.size != units.file_bytes and (file.size or file is not units.files[-1]):
                findings.add("Q1", where, f"has {file.size} bytes; {units.file_bytes} expected")
        # Only the front can be left over, and never the last file, which keeps the queue's offset.
        for file in units.files[:-1] if self._all.closed else []:
            last = (file.first_offset + units.file_bytes) // units.unit_bytes - 1
            unit = units.read(last, 1)
            if not any(unit) or _OFFSET.unpack_from(unit)[0] >= self._all.min_offset:
                return
            if unit == FILLER:
                return
            what = f"all its messages are before {self._all.min_offset}, gone"
            findings.add("Q7", f"{self.key.folder}/{file.path.name}", what)

    def _add(self, code: str, number: int, what: str) -> None:
        self._all.findings.add_numbered(code, self.key.folder, "unit", number, what)


class QueuesCheck:
    """Every queue of a store, opened when the log first mentions it.

    A broker that crashed dispatches again what lies behind `recovered_from`, so records there may
    still be without units; `pending` counts them. `closed` is false while a broker runs and after
    a crash.
    """

    def __init__(
        self,
        store: StoreDirectory,
        findings: Findings,
        *,
        has_topic: Callable[[str], bool],
        lost: LostBytes,
        closed: bool,
        running: bool,
        recovered_from: int,
    ) -> None:
        self.root: Path = store.root
        self.findings = findings
        self.min_offset = store.min_offset
        self.end_offset = 0
        self.lost = lost
        self.closed = closed
        self.running = running
        self.restarts: dict[str, int] = {}
        self.pending = 0
        self._recovered_from = recovered_from
        self._store = store
        self._has_topic = has_topic
        self._queues: dict[QueueKey, QueueCheck] = {}
        self._tails: list[tuple[QueueKey, Gap]] = []

    def take(self, key: QueueKey, first: int, units: bytes) -> None:
        queue = self._queues.get(key) or self._open(key)
        if key.is_batch:
            queue.take_batch(first, units)
        else:
            queue.take(first, units)

    def finish(self, *, end_offset: int) -> None:
        """The log is through, and ends here."""
        self.check_rest(self._store.queues, end_offset=end_offset)
        self.report()

    def check_rest(self, keys: Iterable[QueueKey], *, end_offset: int) -> Collection[QueueCheck]:
        """The log is through for the queues that it mentioned, and for these."""
        self.end_offset = end_offset
        for key in keys:
            if key not in self._queues:
                self._open(key)
        for key in sorted(self._queues):
            if self._is_judged(key):
                self._queues[key].check_rest()
        return self._queues.values()

    def join(self, queue: QueueCheck) -> None:
        """Take over a queue that was checked somewhere else, up to its gaps."""
        self._queues[queue.key] = queue
        queue.join(self)

    def report(self) -> None:
        """All queues are through: name what is missing in them."""
        for queue in self._queues.values():
            topic = queue.key.topic
            self.restarts[topic] = max(self.restarts.get(topic, -1), queue.restarted_at)
        for key in sorted(self._queues):
            if self._is_judged(key):
                self._queues[key].report_gaps()
        self._report_tails()

    @property
    def max_offsets(self) -> dict[tuple[str, int], int]:
        """The offset that the next message of each queue gets."""
        return {(key.topic, key.queue_id): queue.max_offset for key, queue in self._queues.items()}

    def take_tail(self, key: QueueKey, gap: Gap) -> None:
        """The last records of a queue have no units. Were they dispatched at all?"""
        self._tails.append((key, gap))

    def _report_tails(self) -> None:
        dispatched = max((q.found_end_physical for q in self._queues.values()), default=0)
        behind = 0
        for key, gap in self._tails:
            if not self.closed and gap.first_physical >= self._recovered_from:
                self.pending += gap.records
            elif self.closed and gap.first_physical >= dispatched:
                behind += gap.records
            else:
                what = f"no unit for queue offset {gap.span}, at {gap.first_physical} in the log"
                self.findings.add("Q5", key.folder, what, gap.records)
        if behind:
            what = f"ends at {dispatched}, and {behind} records behind that are in no queue"
            self.findings.add("O9", "consumequeue", f"closed cleanly, but {what}")

    def _is_judged(self, key: QueueKey) -> bool:
        """Not without a folder if its topic was deleted; records stay until their file expires."""
        return key in self._store.queues or self._has_topic(key.topic)

    def _open(self, key: QueueKey) -> QueueCheck:
        queue = self._queues[key] = QueueCheck(key, self._store.units_of(key), self)
        return queue


def _ext_tags_code(folder: Path, position: int) -> int | None:
    """The tags code of a unit in consumequeue_ext; None if there is no unit."""
    for path in sorted(folder.glob("[0-9]*"), reverse=True):
        if path.name.isdecimal() and int(path.name) <= position:
            try:
                with path.open("rb") as file:
                    file.seek(position - int(path.name))
                    raw = file.read(_EXT_UNIT.size)
            except OSError:
                return None
            return int(_EXT_UNIT.unpack(raw)[1]) if len(raw) == _EXT_UNIT.size else None
    return None
