"""Which parts of commit logs to read: store directories in, ranges of bytes out.

A task may begin in the middle of a file, and a body may hold anything, also what looks like a
record. So a range begins only where the records before it lead to, hop by hop from the beginning
of the file; nobody ever looks for a beginning among bytes.

    file   | r r r r r r r r | r r r r r r r | r r r r r r blank |
    range  ^ start      stop = start         = start        stop

Hopping reads a page a record, so files are split only where there are fewer of them than tasks.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from firearrow.base.errors import ConfigError
from firearrow.hot import tile_records
from firearrow.offline.check_log import CLOCK_STEP_MS_MAX
from firearrow.offline.directory import StoreDirectory
from firearrow.offline.log_walk import Damage, OpenLogFile, judge_break, last_reached

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from firearrow.hot import Tiling
    from firearrow.offline.directory import Shape
    from firearrow.offline.log_walk import Debris, LogFile

RANGE_BYTES_MIN: Final = 1 << 20  # below, starting a task costs more than its rows
ALWAYS: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class LogRange:
    """A part of one file, from one record to another; `stop` may also be the file's end."""

    path: str
    first_offset: int
    file_bytes: int
    segment_bytes: int
    start: int
    stop: int
    follows: bool  # the log goes on in a later file

    @property
    def size(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class Span:
    """Store times, in milliseconds; the end is exclusive."""

    begin_ms: int = -ALWAYS
    end_ms: int = ALWAYS

    def may_hold(self, first_ms: int | None, next_ms: int | None) -> bool:
        """Whether records between two others may lie in it; clocks step back a little."""
        if next_ms is not None and next_ms + CLOCK_STEP_MS_MAX < self.begin_ms:
            return False
        return first_ms is None or first_ms - CLOCK_STEP_MS_MAX < self.end_ms


def open_stores(text: str, shape: Shape) -> list[StoreDirectory]:
    """The stores of a path: one directory, several with commas between, or a pattern."""
    found: list[Path] = []
    parts = [text] if Path(text).is_dir() else [part.strip() for part in text.split(",")]
    for part in filter(None, parts):
        matches = _matches(part)
        if not matches:
            raise ConfigError(
                f"path {part!r}: there is no such directory. Give the broker's storePathRootDir, "
                "as every executor sees it"
            )
        found += matches
    if not found:
        raise ConfigError("path is empty: give the broker's storePathRootDir")
    return [StoreDirectory(root, shape) for root in found]


def _matches(part: str) -> list[Path]:
    path = Path(part)
    if path.is_dir():
        return [path]
    if not any(character in part for character in "*?["):
        return []
    anchor = Path(path.anchor) if path.anchor else Path()
    pattern = str(path.relative_to(path.anchor) if path.anchor else path)
    return sorted(match for match in anchor.glob(pattern) if match.is_dir())


class LogPlan:
    """The ranges of one store. Unreadable files are refused, or (`lenient`) left to their task."""

    def __init__(self, store: StoreDirectory, *, span: Span, lenient: bool) -> None:
        self._store = store
        self._span = span
        self._lenient = lenient
        for file in store.log_files:
            if not lenient:
                _prove_readable(file)
        self._last_reached = last_reached(store.log_files)
        self.files = self._in_time()

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    def ranges(self, every: int) -> Iterator[LogRange]:
        """The files in ranges of about so many bytes."""
        for file in self.files:
            follows = file.first_offset < self._last_reached
            if follows and file.size <= every:
                yield self._range(file, 0, file.size, follows=True)
            else:
                yield from self._split(file, every, follows=follows)

    def _split(self, file: LogFile, every: int, *, follows: bool) -> Iterator[LogRange]:
        tiling = tile_file(file, self._store.segment_bytes, every)
        stop = file.size
        if tiling is not None and (
            follows or _ends_cleanly(file, self._store.segment_bytes, tiling)
        ):
            starts = tiling.starts or [(0, 0)]
            if tiling.ending == "blank" or not follows:
                stop = tiling.position
        else:
            # A task will say why; or bytes lie behind the end. Whether those belong to the log says
            # the last sound record before them, so who reads them must have read the rest.
            starts = [(0, 0)]
        for number, (start, first_ms) in enumerate(starts):
            is_last = number + 1 == len(starts)
            end = stop if is_last else starts[number + 1][0]
            next_ms = None if is_last else starts[number + 1][1]
            if end > start and (is_last or self._span.may_hold(first_ms, next_ms)):
                yield self._range(file, start, end, follows=follows)

    def _range(self, file: LogFile, start: int, stop: int, *, follows: bool) -> LogRange:
        return LogRange(
            str(file.path),
            file.first_offset,
            file.size,
            self._store.segment_bytes,
            start,
            stop,
            follows,
        )

    def _in_time(self) -> list[LogFile]:
        """Files that the log reached and that may hold records of the span."""
        reached = [
            file for file in self._store.log_files if file.first_offset <= self._last_reached
        ]
        if self._span == Span():
            return reached
        firsts = [self._first_ms(file) for file in reached] + [None]
        return [
            file
            for number, file in enumerate(reached)
            if self._span.may_hold(firsts[number], firsts[number + 1])
        ]

    def _first_ms(self, file: LogFile) -> int | None:
        record = self._store.record_at(file.first_offset)
        return None if record is None else record.store_timestamp


def plan_ranges(
    stores: Sequence[StoreDirectory],
    *,
    span: Span,
    lenient: bool,
    min_partitions: int,
    range_bytes: int | None,
) -> list[LogRange]:
    """Everything to read, in the order of the logs."""
    plans = [LogPlan(store, span=span, lenient=lenient) for store in stores]
    every = range_bytes
    if every is None:
        total = sum(plan.size for plan in plans)
        files = sum(len(plan.files) for plan in plans)
        every = ALWAYS
        if files < min_partitions:
            every = max(RANGE_BYTES_MIN, -(-total // min_partitions))
    return [found for plan in plans for found in plan.ranges(every)]


def pack_ranges(
    ranges: Sequence[LogRange], *, pieces: int, range_bytes: int | None
) -> list[tuple[LogRange, ...]]:
    """Ranges for each task: small ones that follow each other share one."""
    total = sum(one.size for one in ranges)
    enough = range_bytes or max(RANGE_BYTES_MIN, total // pieces)
    tasks: list[tuple[LogRange, ...]] = []
    task: list[LogRange] = []
    size = 0
    for one in ranges:
        if task and size + one.size > enough:
            tasks.append(tuple(task))
            task, size = [], 0
        task.append(one)
        size += one.size
    return [*tasks, tuple(task)] if task else tasks


def tile_file(file: LogFile, segment_bytes: int, every: int, *, start: int = 0) -> Tiling | None:
    """Where records of a file begin; None if it cannot be read."""
    stop = min(file.size, segment_bytes)
    try:
        with (
            file.path.open("rb") as opened,
            mmap.mmap(opened.fileno(), stop, access=mmap.ACCESS_READ) as content,
        ):
            return tile_records(content, start, stop, file.first_offset, every)
    except (OSError, ValueError):  # not to be read, or empty
        return None


def _ends_cleanly(file: LogFile, segment_bytes: int, tiling: Tiling) -> bool:
    """Whether hops and times of the log's last file lead straight to zeros or its blank."""
    if tiling.falls or tiling.ending != "end":
        return not tiling.falls and tiling.ending == "blank"
    try:
        with OpenLogFile(file, segment_bytes) as opened:
            # A record is there if a broker has written it meanwhile.
            return opened.is_zero(tiling.position) or bool(opened.batch(tiling.position).records)
    except OSError:
        return False


def break_at(
    file: LogFile, segment_bytes: int, tiling: Tiling, *, follows: bool
) -> Damage | Debris | None:
    """What is there where the hops of a tiling ended."""

    def oldest() -> int:
        return tiling.last_store_timestamp

    try:
        with OpenLogFile(file, segment_bytes) as opened:
            return judge_break(
                opened, tiling.position, follows=follows, reached=True, oldest=oldest
            )
    except OSError as error:
        offset = file.first_offset + tiling.position
        return Damage(offset, file.size - tiling.position, "C1", str(error.strerror))


def _prove_readable(file: LogFile) -> None:
    try:
        os.close(os.open(file.path, os.O_RDONLY))
    except OSError as error:
        raise ConfigError(
            f"{file.path} cannot be read: {error.strerror}. Let this user read the store, or set "
            "onCorrupt=skip to go without the file"
        ) from error
