"""Reading a commit log that nobody vouches for: every record that is there, and every break.

A broker stops at the first bad byte and cuts the log off. A tool that looks at somebody's damaged
disk goes on: behind a break it looks for the next record that names its own position, which no
other bytes do by chance.

Not every break is damage. Brokers never erase what they cut off, so behind the end of the log may
lie a torn record, or records from before a cut. Those are older than what was written since; bytes
behind the end that are not newer than the log are debris, and a healthy log may have some.

Files are read a window at a time, never mapped: a running broker may delete one under our hands,
and memory stays small.
"""

from __future__ import annotations

import errno
import os
import re
import struct
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from firearrow.hot import scan_records
from firearrow.hot.layout import BLANK_BYTES, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, RECORD_BYTES_MIN

if TYPE_CHECKING:
    import io
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from firearrow.hot import ScannedRecord

WINDOW_BYTES: Final = 1 << 20
# A frame that could carry more is refused by every broker (16 MiB); beyond it a size is damage.
RECORD_BYTES_MAX: Final = 256 << 20
_SIZE_MAGIC: Final = struct.Struct(">ii")
_OFFSET: Final = struct.Struct(">q")
_OFFSET_AT: Final = 28  # of the physical offset in a record
_MAGIC_AT: Final = 4
_MAGICS: Final = re.compile(rb"\xda\xa3\x20[\xa7\xab]|\xcb\xd4\x31\x94")
_ZEROS: Final = bytes(WINDOW_BYTES)


class LogFile(NamedTuple):
    path: Path
    first_offset: int
    size: int


class Batch(NamedTuple):
    """Sound records that lie back to back. Their positions count from the first byte of `data`."""

    offset: int
    data: bytes
    records: list[ScannedRecord]

    def raw(self, record: ScannedRecord) -> bytes:
        return self.data[record.position : record.position + record.size]

    @property
    def end_offset(self) -> int:
        last = self.records[-1]
        return self.offset + last.position + last.size


class Damage(NamedTuple):
    """Bytes that should be records and are not. `code` names the broken rule of the log.

    C1: the file cannot be read, or the log never reached it. C2: nothing is here, but the log goes
    on behind it. C3: a record that is not sound. C4: the blank that closes a file is missing or
    has the wrong length.
    """

    offset: int
    size: int
    code: str
    reason: str


class Debris(NamedTuple):
    """What lies behind the end of the log; `code` as if it were damage."""

    offset: int
    code: str
    reason: str


class _Broken(NamedTuple):
    code: str
    reason: str


class LogWalk:
    """Iterate over a log's files once; the attributes are complete when the iteration is.

    Files that end before `first_offset` or begin at or behind `end_offset` are left out, and all
    but the one that begins at `only`.
    """

    def __init__(
        self,
        files: Sequence[LogFile],
        *,
        segment_bytes: int,
        first_offset: int = 0,
        end_offset: int | None = None,
        only: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self.debris: list[Debris] = []
        self.newest_timestamp = 0
        self.records = 0
        self._last_timestamp = 0
        self._segment_bytes = segment_bytes
        self._progress = progress
        self._last_reached = last_reached(files)
        self._files = [
            file
            for file in files
            if file.first_offset + segment_bytes > first_offset
            and (end_offset is None or file.first_offset < end_offset)
            and only in {None, file.first_offset}
        ]
        self.end_offset = self._files[0].first_offset if self._files else 0
        # Looked into only if the first file begins with a break.
        self._before = [file for file in files if file.first_offset < self.end_offset]
        self._done_bytes = 0
        self._total_bytes = sum(file.size for file in self._files)

    def __iter__(self) -> Iterator[Batch | Damage]:
        for file in self._files:
            try:
                with OpenLogFile(file, self._segment_bytes) as opened:
                    yield from self._walk(opened, follows=file.first_offset < self._last_reached)
            except OSError as error:
                start = max(file.first_offset, self.end_offset)
                lost = max(0, file.first_offset + file.size - start)
                yield Damage(start, lost, "C1", f"cannot be read: {error.strerror}")
            self._done_bytes += file.size
            self._report(0)

    def _walk(self, opened: OpenLogFile, *, follows: bool) -> Iterator[Batch | Damage]:
        """One file; `follows` says that the log goes on in a later one."""
        first_offset, at = opened.file.first_offset, 0
        while at < opened.size:
            batch = opened.batch(at)
            if batch.records:
                self._pass(batch)
                yield batch
                at = batch.end_offset - first_offset
                self._report(at)
                continue
            found = judge_break(
                opened,
                at,
                follows=follows,
                reached=first_offset <= self._last_reached,
                oldest=self._oldest,
            )
            if isinstance(found, Debris):
                self.debris.append(found)
            if not isinstance(found, Damage):
                return
            yield found
            at += found.size

    def _oldest(self) -> int:
        """Store time of the newest record before here; what is behind the log may be older."""
        if not self._last_timestamp:
            for file in reversed(self._before):
                self._last_timestamp = last_timestamp(file, self._segment_bytes)
                if self._last_timestamp:
                    break
        return self._last_timestamp

    def _pass(self, batch: Batch) -> None:
        self.records += len(batch.records)
        self.end_offset = batch.end_offset
        self._last_timestamp = batch.records[-1].store_timestamp
        newest = max(record.store_timestamp for record in batch.records)
        self.newest_timestamp = max(self.newest_timestamp, newest)

    def _report(self, at: int) -> None:
        if self._progress is not None:
            self._progress(self._done_bytes + at, self._total_bytes)


def judge_break(
    opened: OpenLogFile,
    at: int,
    *,
    follows: bool,
    reached: bool,
    oldest: Callable[[], int],
) -> Damage | Debris | None:
    """What a place is where no sound record begins: None where the file or the log just ends.

    `follows` says that the log goes on in a later file, `reached` that it came to this one at all,
    and `oldest` is asked how old a record behind the break may be, where the log may have ended.
    """
    if opened.is_blank(at) or (not follows and opened.is_zero(at)):
        return None
    offset = opened.file.first_offset + at
    resume = opened.next_sound(at + 1, oldest=0 if follows else oldest(), blank=follows)
    broken = opened.why_broken(at)
    if resume is None and not reached and at == 0:
        broken = _Broken("C1", "a file behind the end of the log is not all zeros")
    elif resume is None and not follows:
        return Debris(offset, *broken)
    if resume is None and broken.code == "C2":
        broken = _Broken("C4", f"no blank closes the file: {broken.reason}")
    size = (opened.size if resume is None else resume) - at
    return Damage(offset, size, broken.code, broken.reason)


def last_reached(files: Sequence[LogFile]) -> int:
    """First offset of the last file that the log came to; -1 without one."""
    return max((file.first_offset for file in files if _holds_data(file)), default=-1)


def last_timestamp(file: LogFile, segment_bytes: int) -> int:
    """Store time of the last record that its first one leads to; 0 without any."""
    at, timestamp = 0, 0
    try:
        with OpenLogFile(file, segment_bytes) as opened:
            while (batch := opened.batch(at)).records:
                timestamp = batch.records[-1].store_timestamp
                at = batch.end_offset - file.first_offset
    except OSError:
        pass
    return timestamp


class OpenLogFile:
    """One file of a log, open for reading."""

    def __init__(self, file: LogFile, segment_bytes: int) -> None:
        self.file = file
        self.segment_bytes = segment_bytes
        self.size = min(file.size, segment_bytes)
        self._opened: io.BufferedReader | io.FileIO | None = None

    def __enter__(self) -> Self:
        self._opened = self.file.path.open("rb", buffering=0)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._opened is not None
        self._opened.close()

    def read(self, at: int, size: int) -> bytes:
        """Up to `size` bytes; fewer where the file ends."""
        assert self._opened is not None
        self._opened.seek(at)
        return self._opened.read(max(0, min(size, self.size - at))) or b""

    def batch(self, at: int) -> Batch:
        """The sound records from this position on: a window of them, or none."""
        data = self.read(at, WINDOW_BYTES)
        found = scan_records(data, 0, len(data), check_crc=True)
        if not found.records and found.ending == "partial":
            return self.single(at)  # larger than a window, perhaps
        return self._proved(at, data, found.records)

    def single(self, at: int) -> Batch:
        """The sound record at this position alone, or none."""
        data = self.read(at, BLANK_BYTES)
        size = _SIZE_MAGIC.unpack(data)[0] if len(data) == BLANK_BYTES else 0
        if not RECORD_BYTES_MIN <= size <= RECORD_BYTES_MAX or not self._is_named(at):
            return Batch(self.file.first_offset + at, data, [])
        data = self.read(at, size)
        return self._proved(at, data, scan_records(data, 0, len(data), check_crc=True).records)

    def _proved(self, at: int, data: bytes, records: list[ScannedRecord]) -> Batch:
        """Up to the first record that says it lies elsewhere, or leaves no room for a blank."""
        offset = self.file.first_offset + at
        for index, record in enumerate(records):
            if record.physical_offset != offset + record.position:
                records = records[:index]
                break
        room = self.segment_bytes - BLANK_BYTES - at
        while records and records[-1].position + records[-1].size > room:
            records.pop()
        return Batch(offset, data, records)

    def is_blank(self, at: int) -> bool:
        """Whether a blank lies here and reaches the end of the file, as it should."""
        head = self.read(at, BLANK_BYTES)
        return len(head) == BLANK_BYTES and _SIZE_MAGIC.unpack(head) == (
            self.segment_bytes - at,
            MAGIC_BLANK,
        )

    def why_broken(self, at: int) -> _Broken:  # noqa: PLR0911 - one return per kind of damage
        """What is wrong at a position where no sound record begins."""
        left = self.size - at
        head = self.read(at, BLANK_BYTES)
        if len(head) < BLANK_BYTES:
            return _Broken("C4", f"{left} bytes are left, too few for a blank")
        size, magic = _SIZE_MAGIC.unpack(head)
        if magic == MAGIC_BLANK:
            return _Broken("C4", f"blank of {size} bytes where {self.segment_bytes - at} are left")
        if magic not in {MAGIC_V1, MAGIC_V2}:
            if size == 0 and magic == 0:
                return _Broken("C2", "zeros where a record should begin")
            found = f"{magic & 0xFFFFFFFF:#010x}"
            return _Broken("C2", f"magic code {found} where a record should begin")
        if not RECORD_BYTES_MIN <= size <= min(left, RECORD_BYTES_MAX):
            return _Broken("C3", f"record of {size} bytes where {left} are left")
        if not self._is_named(at):
            says = _OFFSET.unpack(self.read(at + _OFFSET_AT, _OFFSET.size))[0]
            return _Broken("C3", f"record says that it lies at {says}")
        if size > self.segment_bytes - BLANK_BYTES - at:
            return _Broken("C3", f"record of {size} bytes leaves no room for a blank")
        data = self.read(at, size)
        return _Broken("C3", scan_records(data, 0, len(data), check_crc=True).reason)

    def next_sound(self, start: int, *, oldest: int, blank: bool) -> int | None:
        """Position of the next record not older than `oldest`, or of a blank that fits (if asked).

        A blank proves less than a record: it cannot say where it lies, only how far it reaches.
        """
        passed = start
        for at in self._magics(start):
            if at < passed:
                continue  # inside a record that we know already
            if blank and self.is_blank(at):
                return at
            batch = self.batch(at) if self._is_named(at) else None
            if batch is None or not batch.records:
                continue
            for record in batch.records:
                if record.store_timestamp >= oldest:
                    return at + record.position
            passed = batch.end_offset - self.file.first_offset
        return None

    def is_zero(self, start: int) -> bool:
        assert self._opened is not None
        for first, stop in extents(self._opened.fileno(), self.size, start=start):
            for at in range(first, stop, WINDOW_BYTES):
                data = self.read(at, min(WINDOW_BYTES, stop - at))
                if data != (_ZEROS if len(data) == WINDOW_BYTES else bytes(len(data))):
                    return False
        return True

    def _is_named(self, at: int) -> bool:
        """Whether the bytes here say that they lie here, as no others do."""
        says = self.read(at + _OFFSET_AT, _OFFSET.size)
        return len(says) == _OFFSET.size and _OFFSET.unpack(says)[0] == self.file.first_offset + at

    def _magics(self, start: int) -> Iterator[int]:
        """Where records or blanks may begin, judging by the magic code alone."""
        for window_at in range(start, self.size, WINDOW_BYTES):
            # A code may straddle two windows: three more bytes, which hold no whole code, end it.
            data = self.read(window_at, WINDOW_BYTES + 3)
            for match in _MAGICS.finditer(data):
                at = window_at + match.start() - _MAGIC_AT
                if at >= start:
                    yield at


def _holds_data(file: LogFile) -> bool:
    """Whether the log reached this file. Brokers make the next one ahead of need, all zeros."""
    try:
        with file.path.open("rb") as opened:
            return any(opened.read(BLANK_BYTES))
    except OSError:
        return False


def extents(descriptor: int, size: int, *, start: int = 0) -> list[tuple[int, int]]:
    """Parts of a file, from `start` on, that may hold something else than zeros."""
    found: list[tuple[int, int]] = []
    at = start
    while at < size:
        try:
            first = os.lseek(descriptor, at, os.SEEK_DATA)
            stop = os.lseek(descriptor, first, os.SEEK_HOLE)
        except OSError as error:
            if error.errno != errno.ENXIO:  # this file system knows no holes
                found.append((at, size))
            break
        if first >= size:
            break
        found.append((first, min(stop, size)))
        at = stop
    return found
