"""Where the log really ends, after any kind of stop.

Two questions, both answered by scanning forward from a place that is known to be good:

 1. What is the last sound record? Everything behind it was never promised to anybody, or the disk
    has lost it; it is cut off.
 2. From where on must queues and index be made again?

The known good place is our own note (exact), else the newest file that Apache's checkpoint vouches
for, else the first file. Damage before the offset that is known to have been flushed is not a torn
tail: the broken bytes are given up with a report, and what follows is served.
"""

from __future__ import annotations

import logging
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from firearrow.base.errors import RecordError
from firearrow.hot import check_run, decode_record, scan_records
from firearrow.hot.layout import MAGIC_BLANK
from firearrow.store.rules import WINDOW_BYTES, next_sound

if TYPE_CHECKING:
    from firearrow.store.checkpoint import Checkpoint, OwnNote
    from firearrow.store.segments import Segments

log = logging.getLogger(__name__)

BLANK: Final = "blank"
_SIZE_MAGIC: Final = struct.Struct(">ii")


@dataclass(slots=True)
class Recovered:
    """What was found. `damage` names every place that is lost, for people."""

    clean: bool
    scanned_from: int = 0
    end_offset: int = 0
    cut_bytes: int = 0
    records: int = 0
    last_store_timestamp: int = 0
    damage: list[str] = field(default_factory=list)

    def report(self, store: str) -> None:
        """Say it in the log."""
        for line in self.damage:
            log.error("store %s: %s", store, line)
        if not self.clean:
            log.warning(
                "store %s was not stopped cleanly: %d records checked from offset %d on",
                store,
                self.records,
                self.scanned_from,
            )


def recover(
    segments: Segments, checkpoint: Checkpoint, note: OwnNote | None, *, clean: bool
) -> Recovered:
    """Scan the log from the last good place to its end."""
    start = _known_good_place(segments, checkpoint, note)
    if start is None:
        return Recovered(clean)
    found = _scan(segments, start, note, clean=clean)
    if note is None and found.last_store_timestamp < checkpoint.recover_before_ms:
        # It speaks of messages that are not there, so it proves nothing about those that are.
        found = _scan(segments, segments.starts[0], note, clean=clean)
    return found


def _scan(segments: Segments, start: int, note: OwnNote | None, *, clean: bool) -> Recovered:
    found = Recovered(clean, scanned_from=start, end_offset=start)
    flushed_to = note.flushed_to if note is not None else 0
    if clean:  # then the last sound record that there is was flushed, too
        flushed_to = max(flushed_to, _newest_file_in_use(segments))
    offset: int | None = start
    while offset is not None:
        offset = _scan_file(segments, offset, flushed_to, found, is_ours=note is not None)
    return found


def _known_good_place(
    segments: Segments, checkpoint: Checkpoint, note: OwnNote | None
) -> int | None:
    if not segments.starts:
        return None
    if note is not None and segments.min_offset <= note.derived_to <= segments.end_offset:
        start = segments.start_of(note.derived_to)
        at_end = note.derived_to == segments.end_offset
        if at_end or start == note.derived_to or _goes_on_at(segments, note.derived_to):
            return note.derived_to
        if start is not None and note.flushed_to <= note.derived_to:
            return note.derived_to  # nothing is promised behind the note
    for start in reversed(segments.starts):
        timestamp = _record_at(segments, start)
        if timestamp is not None and 0 < timestamp <= checkpoint.recover_before_ms:
            return start
    return segments.starts[0]


def _newest_file_in_use(segments: Segments) -> int:
    """The first offset of the newest file that begins with a sound record; 0 without one."""
    return next(
        (start for start in reversed(segments.starts) if _record_at(segments, start) is not None), 0
    )


def _goes_on_at(segments: Segments, offset: int) -> bool:
    """Whether a sound record begins there, or the filler that leads to the next file."""
    start = segments.start_of(offset)
    if start is None:
        return False
    size, magic = _SIZE_MAGIC.unpack_from(segments.file(start).buffer, offset - start)
    if magic == MAGIC_BLANK:
        return bool(offset - start + size == segments.file_bytes)
    return _record_at(segments, offset) is not None


def _record_at(segments: Segments, offset: int) -> int | None:
    """The store timestamp of the sound record at `offset`; None if there is none."""
    start = segments.start_of(offset)
    if start is None:
        return None
    try:
        record = decode_record(segments.file(start).buffer, offset - start)
    except RecordError:
        return None
    return record.store_timestamp if record.physical_offset == offset else None


def _scan_file(
    segments: Segments, offset: int, flushed_to: int, found: Recovered, *, is_ours: bool
) -> int | None:
    """Scan one file from `offset` on; returns where to go on, None at the end of the log."""
    start = segments.start_of(offset)
    following = segments.next_start(offset)
    if start is None:
        return _over_a_hole(offset, following, flushed_to, found)
    reason = _scan_records_of(segments, start, offset, found, is_ours=is_ours)
    end_of_file = start + segments.file_bytes
    if reason == BLANK:
        # Also when it is the last thing in the log: a slave may hold it, and go on behind it.
        found.end_offset = end_of_file
        return end_of_file if following == end_of_file or end_of_file < flushed_to else None
    if found.end_offset >= flushed_to:
        return None  # a torn tail
    # Once flushed and now unreadable: not a torn tail but a damaged file.
    resume = next_sound(segments, found.end_offset + 1)
    goes_on = resume is not None or following is not None
    high = resume or (end_of_file if goes_on else flushed_to)
    _report(found, found.end_offset, high, reason)
    if goes_on:
        found.end_offset = high
    return high if goes_on else None


def _over_a_hole(
    offset: int, following: int | None, flushed_to: int, found: Recovered
) -> int | None:
    if following is None or offset >= flushed_to:
        return None
    _report(found, offset, following, "the file is missing")
    found.end_offset = following
    return following


def _report(found: Recovered, low: int, high: int, reason: str) -> None:
    found.damage.append(f"bytes {low} to {high} of the log cannot be read: {reason}")


def _scan_records_of(
    segments: Segments, start: int, offset: int, found: Recovered, *, is_ours: bool
) -> str:
    """Count sound records of one file into `found`; returns why it stopped."""
    buffer = segments.file(start).buffer
    position = offset - start
    found.end_offset = offset
    window = WINDOW_BYTES
    while True:
        stop = min(segments.file_bytes, position + window)
        # Records that are whole and lie where they say, as many as there are in a row. Sound
        # records of another place are bytes of a former life of the file.
        sound = check_run(buffer, position, stop, start, check_crc=True, check_torn=is_ours)
        if sound > position:
            _count(buffer, position, sound, start, found)
        scan = scan_records(buffer, sound, stop, check_crc=True)
        if scan.records:
            stated = scan.records[0].physical_offset
            if stated == start + sound:
                return "a record was written in part"
            return f"a record of offset {stated} lies here"
        if scan.ending == BLANK:
            blank_bytes = int.from_bytes(buffer[sound : sound + 4], "big")
            whole = sound + blank_bytes == segments.file_bytes
            return BLANK if whole else f"a filler of {blank_bytes} bytes lies here"
        if stop == segments.file_bytes or scan.ending == "broken":
            return scan.reason or "zeros where records were"
        if scan.ending == "end" and stop - sound >= _ZEROS_BYTES:
            return "zeros where records were"
        # A record crosses the end of the window.
        window = WINDOW_BYTES if sound > position else 2 * window
        position = sound


_ZEROS_BYTES: Final = 8  # fewer may be the front of a record that the window cuts


def _count(buffer: memoryview, position: int, stop: int, start: int, found: Recovered) -> None:
    """Take note of sound records that lie back to back."""
    last = position
    while position < stop:
        last = position
        position += int.from_bytes(buffer[position : position + 4], "big")
        found.records += 1
    found.end_offset = start + stop
    found.last_store_timestamp = decode_record(buffer, last, check_crc=False).store_timestamp
