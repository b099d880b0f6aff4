"""Consume queue files written anew: units in files of one size, zeros behind the last.

    | filler … | unit k | unit k+1 | … | zeros … |        the first file of a queue that begins at k

The filler is RocketMQ's: its recovery takes it for units, where zeros would end the queue. We also
put it where the log has lost records, so that every message keeps its queue offset.
"""

from __future__ import annotations

import shutil
import struct
from typing import TYPE_CHECKING, Final

from firearrow.offline.derived import BATCH_UNIT
from firearrow.offline.output import write_at
from firearrow.store.consume_queue import ENTRY as UNIT
from firearrow.store.consume_queue import FILLER

if TYPE_CHECKING:
    from pathlib import Path

    from firearrow.offline.derived import QueueKey
    from firearrow.offline.unit_files import UnitFiles

_FILLER_UNITS: Final = 4_096
_UNIT_HEAD: Final = struct.Struct(">qi")  # of plain and batch units alike


class Progress:
    """How far one queue is."""

    __slots__ = ("last_physical", "next_offset", "next_unit", "units")

    def __init__(self, next_offset: int, next_unit: int) -> None:
        self.next_offset = next_offset
        self.next_unit = next_unit  # differs from the offset in a batch queue
        self.last_physical = 0
        self.units = 0


class QueueWriter:
    """Takes what `derived.QueueRuns` hands over. Without a `root` it only counts."""

    def __init__(
        self, root: Path | None, *, queue_file_bytes: int, batch_queue_file_bytes: int
    ) -> None:
        self._root = root
        self._file_bytes = queue_file_bytes - queue_file_bytes % UNIT.size
        self._batch_file_bytes = batch_queue_file_bytes - batch_queue_file_bytes % BATCH_UNIT.size
        self._queues: dict[QueueKey, Progress] = {}
        self._restarts: dict[str, int] = {}

    def take(self, key: QueueKey, first: int, units: bytes) -> None:
        """Units of a queue from queue offset `first` on."""
        queue = self._queues.get(key)
        if queue is not None and first == 0:
            # The topic was deleted and made again; only its last life has units.
            self._remove(key)
            self._restarts[key.topic] = int.from_bytes(units[:8], "big")
            queue = None
        if queue is None:
            per_file = self._file_bytes // UNIT.size
            start = 0 if key.is_batch else first - first % per_file
            queue = self._queues[key] = Progress(start, start)
        if not key.is_batch:
            while queue.next_unit < first:
                count = min(first - queue.next_unit, _FILLER_UNITS)
                self._append(key, queue, FILLER * count)
        self._append(key, queue, units)
        queue.units += len(units) // key.unit_bytes
        last = units[-key.unit_bytes :]
        queue.last_physical = int.from_bytes(last[:8], "big")
        queue.next_offset = queue.next_unit
        if key.is_batch:
            base, messages = BATCH_UNIT.unpack(last)[4:6]
            queue.next_offset = base + messages

    def keep(self, key: QueueKey, units: UnitFiles, *, min_offset: int) -> bool:
        """Take over the last file of a queue whose messages are all gone, if it makes sense.

        It alone knows which offset comes next. Units in it that cannot be become filler.
        """
        per_file = units.file_bytes // units.unit_bytes
        start = (units.end - 1) // per_file * per_file
        kept = {}
        for number, unit in units.units(start):
            offset, size = _UNIT_HEAD.unpack_from(unit)
            if unit == FILLER or 0 <= offset < offset + size <= min_offset:
                kept[number] = unit
        if not kept:
            return False
        end = max(kept) + 1
        queue = self._queues[key] = Progress(end, start)
        spare = b"" if key.is_batch else FILLER
        content = (kept.get(number, spare) for number in range(start, end))
        self._append(key, queue, b"".join(content))
        return True

    def finish(self) -> None:
        """Drop queues that only a former life of their topic had."""
        for key in list(self._queues):
            self.drop(key, before=self.restart_of(key.topic))

    def restart_of(self, topic: str) -> int:
        """Where the last life of a topic begins in the log; -1 if it had only one."""
        return self._restarts.get(topic, -1)

    def progress_of(self, key: QueueKey) -> Progress | None:
        return self._queues.get(key)

    def adopt(self, key: QueueKey, progress: Progress, *, restart: int) -> None:
        """Take over a queue that was written somewhere else."""
        self._queues[key] = progress
        self._restarts[key.topic] = max(restart, self.restart_of(key.topic))

    def drop(self, key: QueueKey, *, before: int) -> bool:
        """Drop a queue whose last record lies before the new life of its topic."""
        queue = self._queues.get(key)
        if queue is None or queue.last_physical >= before:
            return False
        self._remove(key)
        return True

    def __contains__(self, key: QueueKey) -> bool:
        return key in self._queues

    @property
    def queues(self) -> int:
        return len(self._queues)

    @property
    def units(self) -> int:
        return sum(queue.units for queue in self._queues.values())

    def _append(self, key: QueueKey, queue: Progress, units: bytes) -> None:
        file_bytes = self._batch_file_bytes if key.is_batch else self._file_bytes
        at = queue.next_unit * key.unit_bytes
        queue.next_unit += len(units) // key.unit_bytes
        if self._root is None:
            return
        folder = self._root / key.folder
        while units:
            position = at % file_bytes
            part, units = units[: file_bytes - position], units[file_bytes - position :]
            path = folder / f"{at - position:020d}"
            write_at(path, position, part, file_bytes=file_bytes)
            at += len(part)

    def _remove(self, key: QueueKey) -> None:
        del self._queues[key]
        if self._root is not None:
            shutil.rmtree(self._root / key.folder)
