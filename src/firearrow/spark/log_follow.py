"""Where a log ends that may still be written, and what lies between two places of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firearrow.offline.log_walk import Damage, last_reached
from firearrow.spark.log_plan import ALWAYS, LogRange, break_at, tile_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from firearrow.offline.directory import StoreDirectory
    from firearrow.offline.log_walk import LogFile


def find_end(store: StoreDirectory, start: int, *, bytes_max: int = ALWAYS) -> int:
    """The end of the log, going on from the record at `start`; or a record about so far behind it.

    Damage between records is passed: whoever reads it has to decide. An offset at which nothing
    was written yet is an end, too.
    """
    files = store.log_files
    reached = last_reached(files)
    at = start
    for file in files:
        if file.first_offset + store.segment_bytes <= at or file.first_offset > reached:
            continue
        at = max(at, file.first_offset)
        end, closed = _end_in(
            store, file, at, start + bytes_max, follows=file.first_offset < reached
        )
        if not closed:
            return end
        at = file.first_offset + store.segment_bytes
        if at >= start + bytes_max:
            break
    # A file that does not exist yet begins where the last one ended.
    return at


def _end_in(
    store: StoreDirectory, file: LogFile, at: int, limit: int, *, follows: bool
) -> tuple[int, bool]:
    """How far the records of one file reach, and whether that is all it will ever have."""
    while True:
        every = max(1, limit - at)
        tiling = tile_file(file, store.segment_bytes, every, start=at - file.first_offset)
        if tiling is None:
            return at, follows
        if len(tiling.starts) > 1:
            return file.first_offset + tiling.starts[1][0], False
        end = file.first_offset + tiling.position
        if tiling.ending == "blank":
            return end, True
        if tiling.position >= min(file.size, store.segment_bytes):
            return end, True
        found = break_at(file, store.segment_bytes, tiling, follows=follows)
        if not isinstance(found, Damage):
            return end, follows
        at = end + found.size


def ranges_between(store: StoreDirectory, start: int, end: int) -> Iterator[LogRange]:
    """The parts of a log between two records, file by file."""
    for file in store.log_files:
        first, behind = file.first_offset, file.first_offset + store.segment_bytes
        if behind <= start or first >= end:
            continue
        begin = max(start, first) - first
        stop = min(end - first, file.size)
        if stop > begin:
            yield LogRange(
                str(file.path), first, file.size, store.segment_bytes, begin, stop, end >= behind
            )
