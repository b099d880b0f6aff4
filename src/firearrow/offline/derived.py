"""What follows from a record: its units in consume queues and its keys in the index.

Shared by the checker, which compares it with the files, and the rebuild, which writes it; nothing
here reads a file.

    unit of a consume queue         | physical offset 8 | size 4 | tags code 8 |
    unit of a batch consume queue   | physical offset 8 | size 4 | tags code 8 | store time 8 |
                                    | base offset 8 | messages 2 | -1 4 | 0 4 |

A plain unit lies at 20 times its queue offset; a batch unit covers several offsets and is found by
searching. The tags code is the hash of TAGS, except for delayed messages: there it is the time of
delivery, so that the scheduler needs no record to know whether it must wait.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from firearrow.model.message import (
    DELAY,
    FLAG_INNER_BATCH,
    INNER_NUM,
    KEY_SEPARATOR,
    KEYS,
    TRANSACTION_PREPARED,
    UNIQ_KEY,
)
from firearrow.model.topic import RETRY_PREFIX, SCHEDULE_TOPIC, SYSTEM_TOPIC_PREFIX
from firearrow.store.consume_queue import ENTRY as UNIT

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from firearrow.hot import ScannedRecord

BATCH_UNIT: Final = struct.Struct(">qiqqqhii")
_UNIT_HEAD: Final = struct.Struct(">qi")  # of plain and batch units alike
LMQ_PREFIX: Final = "%LMQ%"
MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"


PENDING_BYTES_MAX: Final = 32 << 20  # units that wait for their queue's turn, all queues together
GAP_MAX: Final = 3_000_000  # records in a row that a queue may have lost
OFFSET_MAX: Final = 1 << 56  # 46 bytes for each, and file names are still numbers of 63 bits


class QueueKey(NamedTuple):
    topic: str
    queue_id: int
    is_batch: bool

    @property
    def folder(self) -> str:
        """Relative to the store directory."""
        kind = "batchconsumequeue" if self.is_batch else "consumequeue"
        return f"{kind}/{self.topic}/{self.queue_id}"

    @property
    def unit_bytes(self) -> int:
        return BATCH_UNIT.size if self.is_batch else UNIT.size


def tags_code_of(
    record: ScannedRecord, properties: Mapping[str, str], delay_levels_ms: Sequence[int]
) -> int:
    """What a unit carries for filters and for the scheduler."""
    if record.topic == SCHEDULE_TOPIC:
        level = min(int_of(properties.get(DELAY, "")) or 0, len(delay_levels_ms))
        if level > 0:
            return record.store_timestamp + delay_levels_ms[level - 1]
    return record.tags_code


def is_queued(sys_flag: int) -> bool:
    """Whether a record belongs into a queue: halves and rollbacks of old brokers do not."""
    return not sys_flag & TRANSACTION_PREPARED


def keys_of(properties: Mapping[str, str]) -> list[str]:
    """Under which keys a record is indexed: its unique key, then each of its own."""
    unique = properties.get(UNIQ_KEY)
    keys = [unique] if unique else []
    own = properties.get(KEYS)
    if own:
        keys += [key for key in own.split(KEY_SEPARATOR) if key]
    return keys


def light_queues_of(
    record: ScannedRecord, properties: Mapping[str, str]
) -> Iterator[tuple[str, int]]:
    """Light queues (LMQ) that also hold this record, each with the offset that it has there."""
    if record.topic == SCHEDULE_TOPIC or record.topic.startswith(
        (RETRY_PREFIX, SYSTEM_TOPIC_PREFIX)
    ):
        return
    names = properties.get(MULTI_DISPATCH, "").split(",")
    offsets = properties.get(MULTI_QUEUE_OFFSET, "").split(",")
    for name, text in zip(names, offsets, strict=False):
        offset = int_of(text)
        if offset is not None and name.startswith(LMQ_PREFIX) and "/" not in name:
            yield name, offset


def messages_in(record: ScannedRecord, properties: Mapping[str, str]) -> int:
    """How many queue offsets a record takes: more than one for an inner batch."""
    if record.sys_flag & FLAG_INNER_BATCH or INNER_NUM in properties:
        number = int_of(properties.get(INNER_NUM, ""))
        if number is not None and 0 < number < 1 << 15:
            return number
    return 1


def int_of(text: str) -> int | None:
    """A whole number that fits Java's long, as properties carry them; None for anything else."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 18):
        return None
    return int(text)


class Suspect(NamedTuple):
    """A record whose queue offset does not follow, until the next one of its queue explains it."""

    offset: int
    unit: bytes
    takes: int


class Jump(NamedTuple):
    """A queue offset that does not follow the one before it; `is_wrong` if it cannot be right."""

    key: QueueKey
    expected: int
    offset: int
    physical: int  # of its record
    size: int
    is_wrong: bool


class UnitRules:
    """Which units dispatching a record makes, by what is known of the store."""

    def __init__(
        self,
        *,
        batch_topics: Collection[str],
        light_queues: bool,
        delay_levels_ms: Sequence[int],
    ) -> None:
        self._batch_topics = batch_topics
        self._light_queues = light_queues
        self._delay_levels_ms = delay_levels_ms

    def unit_of(
        self, record: ScannedRecord, properties: Mapping[str, str]
    ) -> tuple[bool, int, bytes] | None:
        """Whether it goes into a batch queue, how many offsets it takes, and the unit."""
        if not is_queued(record.sys_flag):
            return None
        tags_code = record.tags_code
        if record.topic == SCHEDULE_TOPIC:
            tags_code = tags_code_of(record, properties, self._delay_levels_ms)
        if record.sys_flag & FLAG_INNER_BATCH or record.topic in self._batch_topics:
            takes = messages_in(record, properties)
            return True, takes, _batch_unit(record, takes, tags_code)
        return False, 1, UNIT.pack(record.physical_offset, record.size, tags_code)

    def lights_of(
        self, record: ScannedRecord, properties: Mapping[str, str]
    ) -> Iterator[tuple[str, int]]:
        if self._light_queues and MULTI_DISPATCH in properties:
            yield from light_queues_of(record, properties)


class Run:
    """Units of one queue with consecutive offsets, not yet handed over."""

    __slots__ = ("first", "key", "next", "suspect", "units")

    def __init__(self, key: QueueKey, first: int) -> None:
        self.key = key
        self.first = first
        self.next = first
        self.units = bytearray()
        self.suspect: Suspect | None = None


class QueueRuns:
    """Turns records into units, collected per queue so that a queue is touched seldom.

    `take` gets a queue, the queue offset of the first unit, and the units. `jump` is
    told of queue offsets that do not follow. No checksum covers them, so the record after decides:

        5 6 7 | 0 1 2       a new life: the topic was deleted and made again
        5 6 7 | 9 10 11     a gap: a record is lost
        5 6 7 | 519 9 10    wrong: 8 was meant, and one bit is not what it was
    """

    def __init__(
        self,
        take: Callable[[QueueKey, int, bytes], None],
        *,
        rules: UnitRules,
        jump: Callable[[Jump], None],
    ) -> None:
        self._take = take
        self._jump = jump
        self._rules = rules
        self._runs: dict[tuple[str, int], Run] = {}
        self._batch_runs: dict[tuple[str, int], Run] = {}
        self._pending_bytes = 0

    def add(self, record: ScannedRecord, properties: Mapping[str, str]) -> None:
        """Every unit that dispatching this record makes: one in its queue, one per light queue."""
        made = self._rules.unit_of(record, properties)
        if made is None:
            return
        is_batch, takes, unit = made
        self.add_unit(record.topic, record.queue_id, is_batch, record.queue_offset, takes, unit)
        for name, offset in self._rules.lights_of(record, properties):
            self.add_light(name, offset, unit)

    def add_unit(  # noqa: PLR0917 - once for each record
        self,
        topic: str,
        queue_id: int,
        is_batch: bool,  # noqa: FBT001
        offset: int,
        takes: int,
        unit: bytes,
    ) -> None:
        """The next unit of a queue, in the order of the log."""
        runs = self._batch_runs if is_batch else self._runs
        run = runs.get((topic, queue_id))
        if run is None:
            key = QueueKey(topic, queue_id, is_batch)
            if not 0 <= offset < OFFSET_MAX:
                self._tell(key, 0, Suspect(offset, unit, takes), is_wrong=True)
                return
            run = runs[topic, queue_id] = Run(key, offset)
        if run.next == offset and run.suspect is None:
            run.units += unit
            run.next += takes
            self._pending_bytes += len(unit)
        else:
            self._add_odd(run, Suspect(offset, unit, takes))
        if self._pending_bytes > PENDING_BYTES_MAX:
            self.flush()

    def finish(self) -> None:
        """The log is through: hand over everything."""
        for runs in (self._runs, self._batch_runs):
            for run in runs.values():
                self._settle(run)
        self.flush()

    def flush(self) -> None:
        """Hand over what is waiting."""
        for runs in (self._runs, self._batch_runs):
            for run in runs.values():
                self._move(run, run.next)
        self._pending_bytes = 0

    # --- queue offsets that do not follow ---------------------------------------------------------

    def _add_odd(self, run: Run, odd: Suspect) -> None:
        """A record that jumps, or the first one behind a jump."""
        offset, before = odd.offset, run.suspect
        if before is not None:
            confirmed = offset == before.offset + before.takes
            if not confirmed and offset in {run.next, run.next + before.takes}:
                run.suspect = None
                self._tell(run.key, run.next, before, is_wrong=True)
                self._move(run, offset)
            else:
                self._settle(run)
        if offset == run.next:
            self._append(run, odd)
        else:
            run.suspect = odd

    def _settle(self, run: Run) -> None:
        """Nobody contradicts: believe the suspect, if what it says is possible at all."""
        suspect, run.suspect = run.suspect, None
        if suspect is None:
            return
        offset = suspect.offset
        possible = offset == 0 or 0 < offset - run.next <= GAP_MAX
        self._tell(run.key, run.next, suspect, is_wrong=not possible)
        if possible:
            self._move(run, offset)
            self._append(run, suspect)

    def _tell(self, key: QueueKey, expected: int, odd: Suspect, *, is_wrong: bool) -> None:
        physical, size = _UNIT_HEAD.unpack_from(odd.unit)
        self._jump(Jump(key, expected, odd.offset, physical, size, is_wrong))

    def _append(self, run: Run, odd: Suspect) -> None:
        run.units += odd.unit
        run.next += odd.takes
        self._pending_bytes += len(odd.unit)

    def add_light(self, name: str, offset: int, unit: bytes) -> None:
        """Light queues have no rule that offsets follow; what is possible is taken."""
        run = self._runs.get((name, 0))
        if run is None:
            if not 0 <= offset < OFFSET_MAX:
                return
            run = self._runs[name, 0] = Run(QueueKey(name, 0, is_batch=False), offset)
        if offset == 0 or 0 <= offset - run.next <= GAP_MAX:
            if offset != run.next:
                self._move(run, offset)
            run.units += unit[: UNIT.size]
            run.next += 1
            self._pending_bytes += UNIT.size

    def _move(self, run: Run, offset: int) -> None:
        """Hand over a run, and go on at an offset."""
        if run.units:
            self._take(run.key, run.first, bytes(run.units))
            run.units.clear()
        run.first = run.next = offset


def _batch_unit(record: ScannedRecord, messages: int, tags_code: int) -> bytes:
    return BATCH_UNIT.pack(
        record.physical_offset,
        record.size,
        tags_code,
        record.store_timestamp,
        record.queue_offset,
        messages,
        -1,
        0,
    )
