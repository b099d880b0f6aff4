"""Which messages have a key: RocketMQ's index files, hash tables that only ever grow.

The dispatcher inserts, queries by key read, retention deletes old files, and recovery cuts off
what points behind the end of the log. What a query returns are hash matches: the caller reads
the records and drops those of another topic or key.

One file holds a table of slots and a list of entries; each entry leads to the one before it in
its slot, so the newest message of a key is found first:

    | header 40 bytes | slot 0 .. slots-1, 4 bytes each | entry 0 .. entries-1, 20 bytes each |

    header | begin, end time 8+8 | begin, end offset 8+8 | slots used 4 | next entry 4 |
    slot   | number of the newest entry 4 |                              0: none
    entry  | hash 4 | physical offset 8 | seconds since begin time 4 | previous entry 4 |

Entry numbers start at 1 because 0 means none, so entry 0 is never used and a file is full with
`entries - 1` of them.
"""

from __future__ import annotations

import logging
import struct
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from firearrow.base.errors import ConfigError
from firearrow.hot import KeyTable, key_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from firearrow.store.disk import Disk, MappedFile

log = logging.getLogger(__name__)

SLOTS_DEFAULT: Final = 5_000_000
ENTRIES_DEFAULT: Final = 20_000_000

HEADER: Final = struct.Struct(">qqqqii")
SLOT: Final = struct.Struct(">i")
ENTRY: Final = struct.Struct(">iqii")

NAME_DIGITS: Final = 17  # yyyyMMddHHmmssSSS
SECONDS_MAX: Final = (1 << 31) - 1
RESERVE_BYTES: Final = 1024 * 1024  # asked of the disk ahead of need
TIGHT_BYTES: Final = 4 * 1024 * 1024 * 1024  # free on the disk: from here on nothing is left open


class IndexHeader(NamedTuple):
    """The first 40 bytes of a file. An empty one may say 0 for the next entry and mean 1."""

    begin_timestamp: int
    end_timestamp: int
    begin_offset: int
    end_offset: int
    slots_used: int
    next_entry: int


class IndexMark(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The state of the last file at a checkpoint: which entries were on disk then."""

    slots: int
    entries: int
    full: tuple[str, ...]  # the files before it
    name: str
    next_entry: int
    begin_ms: int
    end_ms: int
    begin_offset: int
    end_offset: int

    def agrees(self, header: IndexHeader) -> bool:
        return (
            self.next_entry,
            self.begin_ms,
            self.end_ms,
            self.begin_offset,
            self.end_offset,
        ) == (
            header.next_entry,
            header.begin_timestamp,
            header.end_timestamp,
            header.begin_offset,
            header.end_offset,
        )


@dataclass(frozen=True, slots=True)
class IndexStatistics:
    files: int
    entries: int
    size_bytes: int
    begin_timestamp: int
    end_timestamp: int
    end_offset: int


def index_file_bytes(slots: int, entries: int) -> int:
    return HEADER.size + slots * SLOT.size + entries * ENTRY.size


def index_file_name(now_ms: int) -> str:
    """A name for a file made at this moment: local time, as RocketMQ names them."""
    seconds, ms = divmod(now_ms, 1000)
    return time.strftime("%Y%m%d%H%M%S", time.localtime(seconds)) + f"{ms:03d}"


def first_header(previous: IndexHeader | None) -> bytes:
    """What a new file begins with: where the one before it ended, as both ends.

    A broker of Apache's that finds an abort file makes everything again that lies behind the end
    of the last file. It must never see one that does not say where that is.
    """
    if previous is None:
        return bytes(HEADER.size)
    end_ms, end_offset = max(previous.end_timestamp, 0), max(previous.end_offset, 0)
    return HEADER.pack(end_ms, end_ms, end_offset, end_offset, 0, 0)


class IndexFile:
    """One file of the index, over memory that a disk lends."""

    __slots__ = (
        "_buffer",
        "_file",
        "_is_tight",
        "_reserved",
        "_slots_reserved",
        "name",
        "synced",
        "table",
    )

    def __init__(
        self, file: MappedFile, *, slots: int, entries: int, is_tight: Callable[[], bool]
    ) -> None:
        assert file.size == index_file_bytes(slots, entries)
        self.name = file.path.name
        self.synced = False  # since it became full, which is when it stops changing
        self._file = file
        self._buffer = file.buffer
        self.table = KeyTable(file.buffer, slots, entries)
        self.table.limit = 0
        self._is_tight = is_tight
        self._slots_reserved = False
        self._reserved = HEADER.size + slots * SLOT.size  # entries up to here have disk space

    @property
    def header(self) -> IndexHeader:
        return IndexHeader._make(self.table.header)

    @property
    def path(self) -> Path:
        return self._file.path

    @property
    def is_full(self) -> bool:
        return self.table.header[5] >= self.table.entries

    def insert(self, hashes: Sequence[int], first: int, *, offset: int, timestamp: int) -> int:
        """As `KeyTable.insert`; OSError, and nothing inserted, when the disk is full."""
        self._reserve(len(hashes) - first)
        return self.table.insert(hashes, first, offset, timestamp)

    def _reserve(self, more: int) -> None:
        """Have disk space for so many more entries, and some ahead.

        Files are sparse, and a write into a hole on a full disk would kill the process. Slots are
        written here and there, so they are reserved all at once, but not before space gets tight:
        the index of a small store stays small.
        """
        table = self.table
        entries_at = HEADER.size + table.slots * SLOT.size
        next_entry = table.header[5]
        if next_entry + more <= table.limit or table.limit == table.entries:
            return
        if not self._slots_reserved and self._is_tight():
            self._file.reserve(0, entries_at)
            self._slots_reserved = True
        stop = min(entries_at + (next_entry + more) * ENTRY.size + RESERVE_BYTES, self._file.size)
        if stop > self._reserved:
            self._file.reserve(self._reserved, stop - self._reserved)
            self._reserved = stop
        table.limit = min(table.entries, (stop - entries_at) // ENTRY.size)

    def overlaps(self, begin_ms: int, end_ms: int) -> bool:
        """Whether something stored in this time may be here."""
        first, last = self.header[:2]
        return (
            (first < begin_ms and last > end_ms)
            or begin_ms <= first <= end_ms
            or begin_ms <= last <= end_ms
        )

    def collect(
        self, hashed: int, found: set[int], *, limit: int, begin_ms: int, end_ms: int
    ) -> None:
        """Add offsets of entries with this hash and time, newest first, until there are `limit`."""
        begin_time, _, _, _, _, count = self.header
        slots = self.table.slots
        entries_at = HEADER.size + slots * SLOT.size
        slot_at = HEADER.size + hashed % slots * SLOT.size
        (number,) = SLOT.unpack_from(self._buffer, slot_at)
        below = min(count, self.table.entries)  # a link only ever leads to an older entry
        while 0 < number < below and len(found) < limit:
            entry_hash, offset, seconds, previous = ENTRY.unpack_from(
                self._buffer, entries_at + number * ENTRY.size
            )
            # The first entry of a file counts from the end of the file before (`KeyTable.insert`),
            # but its own time is what the header begins with.
            stored_ms = begin_time + 1000 * seconds if number > 1 else begin_time
            if seconds < 0:
                return
            if entry_hash == hashed and begin_ms <= stored_ms <= end_ms:
                found.add(offset)
            if stored_ms < begin_ms:
                return
            below, number = number, previous

    def cut(self, offset: int) -> None:
        """Take back every entry at or behind this offset, newest first, as if never inserted.

        The end time becomes the last entry's own, which is whole seconds after the begin time and
        so up to 999 ms early. No query notices, since entries are looked up by that same time.
        """
        begin_time, end_time, begin_offset, end_offset, used, count = self.header
        slots = self.table.slots
        entries_at = HEADER.size + slots * SLOT.size
        while count > 1:
            entry_at = entries_at + (count - 1) * ENTRY.size
            hashed, entry_offset, seconds, previous = ENTRY.unpack_from(self._buffer, entry_at)
            if entry_offset < offset:
                end_offset = entry_offset
                end_time = min(end_time, begin_time + 1000 * seconds)
                break
            count -= 1
            slot_at = HEADER.size + max(hashed, 0) % slots * SLOT.size
            SLOT.pack_into(self._buffer, slot_at, previous)
            used -= previous == 0
            self._buffer[entry_at : entry_at + ENTRY.size] = bytes(ENTRY.size)
        HEADER.pack_into(
            self._buffer, 0, begin_time, end_time, begin_offset, end_offset, used, count
        )
        self.synced = False

    def restore(self, mark: IndexMark) -> bool:
        """After a crash: the entries that the mark counts are on disk, the rest is anything.

        False if they are not: then the file is damaged.
        """
        self._reserve(mark.next_entry)
        in_order = self.table.restore(
            min(max(mark.next_entry, 1), self.table.entries),
            mark.end_ms,
            begin_timestamp=mark.begin_ms,
            begin_offset=mark.begin_offset,
        )
        self.synced = False
        return in_order and (mark.next_entry <= 1 or self.header.end_offset == mark.end_offset)

    def settle(self) -> None:
        """What RocketMQ writes when it flushes an empty file: the next entry, 1."""
        HEADER.pack_into(self._buffer, 0, *self.header)

    def sync(self) -> None:
        """Flush. May run in a thread while entries are inserted, and so writes nothing."""
        self._file.sync()
        self.synced = self.is_full

    def close(self) -> None:
        self.table.release()
        self._buffer = memoryview(b"")
        self._file.close()


class KeyIndex:
    """All index files of a store, oldest first. Only the last one is written to."""

    def __init__(
        self,
        disk: Disk,
        folder: Path,
        *,
        slots: int = SLOTS_DEFAULT,
        entries: int = ENTRIES_DEFAULT,
        now_name: Callable[[], str],
    ) -> None:
        assert slots > 0
        assert entries > 1, "entry 0 is never used"
        self._disk = disk
        self._folder = folder
        self._slots = slots
        self._entries = entries
        self._now_name = now_name
        self._files: list[IndexFile] = []
        self.is_complete = True  # False: files were given up, and the log has what they had

    # --- life ---------------------------------------------------------------------------------

    def load(
        self,
        *,
        clean: bool,
        index_timestamp: int,
        mark: IndexMark | None,
        is_recent: bool = True,
    ) -> None:
        """Open what is there, as far as it can be trusted.

        `mark` is how far the index was on disk at our own last checkpoint: after a crash exactly
        that much is kept. `is_recent` if no files were expired since. Without one (the directory
        was Apache's) a file that went on after the checkpoint of the index is removed, as RocketMQ
        does; nothing in it would tell what it lost.
        """
        assert not self._files
        for name in self._disk.names(self._folder):
            if name.endswith(".tmp"):  # a process died while it made a file
                self._disk.remove(self._folder / name)
        if mark is not None and (mark.slots, mark.entries) != (self._slots, self._entries):
            raise self._other_shape(f"maxHashSlotNum={mark.slots} and maxIndexNum={mark.entries}")
        names = [name for name in self._disk.names(self._folder) if name.isdigit()]
        try:
            for number, name in enumerate(names):
                if not self._load_file(name, marked=mark is not None):
                    self._give_up(names[number:])
                    break
        except BaseException:
            self.close()
            raise
        if mark is not None:
            self._back_to(mark, clean=clean, is_recent=is_recent)
        elif not clean:
            times = [file.header.end_timestamp for file in self._files]
            newer = (n for n, end_ms in enumerate(times) if end_ms > index_timestamp)
            self._give_up_from(next(newer, len(times)))

    def _load_file(self, name: str, *, marked: bool) -> bool:
        """Open one file; False if it is damaged."""
        path = self._folder / name
        found = self._disk.size_of(path)
        if found != index_file_bytes(self._slots, self._entries):
            if found and not marked:
                raise self._other_shape(f"{path.name} has {found} bytes")
            return False  # a crash, or somebody, has cut it
        file = self._open(path)
        file.synced = file.is_full  # or neither checkpoint nor clean stop would vouch for it
        self._files.append(file)
        return True

    def _other_shape(self, found: str) -> ConfigError:
        return ConfigError(
            f"maxHashSlotNum={self._slots} and maxIndexNum={self._entries} make index files of "
            f"{index_file_bytes(self._slots, self._entries)} bytes, but {found} in {self._folder}: "
            "set them as they were, or move that folder away: it is made again from the log"
        )

    def _give_up(self, names: list[str]) -> None:
        self.is_complete = False
        for name in names:
            self._disk.remove(self._folder / name)

    def _back_to(self, mark: IndexMark, *, clean: bool, is_recent: bool) -> None:
        """Keep what the mark vouches for, up to the first file that is missing or damaged."""
        vouched = [*mark.full, mark.name]
        for file in [file for file in self._files if file.name not in vouched]:
            self._remove(file)
        names = [file.name for file in self._files]
        if not is_recent:
            while vouched[0] not in names[:1] and len(vouched) > 1:
                del vouched[0]  # it went with the log
        sound = 0
        for name, file in zip(vouched, self._files, strict=False):
            if name != file.name or not (file.is_full or name == mark.name):
                break
            sound += 1
        if sound == len(vouched):
            last = self._files[-1]
            if (not clean or not mark.agrees(last.header)) and not last.restore(mark):
                sound -= 1
        if sound < len(vouched):
            log.warning("index: %s is damaged or missing and made again", vouched[sound])
            self.is_complete = False
        self._give_up_from(sound)

    def _give_up_from(self, number: int) -> None:
        while len(self._files) > number:
            self.is_complete = False
            self._remove(self._files[-1])

    def _remove(self, file: IndexFile) -> None:
        self._files.remove(file)
        file.close()
        self._disk.remove(file.path)

    def mark(self) -> IndexMark | None:
        """How far the index is now, for a checkpoint that is written after `sync`."""
        if not self._files:
            return None
        self._files[-1].settle()
        header = self._files[-1].header
        return IndexMark(
            slots=self._slots,
            entries=self._entries,
            full=tuple(file.name for file in self._files[:-1]),
            name=self._files[-1].name,
            next_entry=header.next_entry,
            begin_ms=header.begin_timestamp,
            end_ms=header.end_timestamp,
            begin_offset=header.begin_offset,
            end_offset=header.end_offset,
        )

    @property
    def end_offset(self) -> int | None:
        """The last record that is in the index; None when nothing is."""
        return self._files[-1].header.end_offset if self._files else None

    @property
    def table(self) -> KeyTable:
        """The table that the next record goes into."""
        return self._file_with_room().table

    def close(self) -> None:
        for file in self._files:
            file.close()
        self._files.clear()

    def statistics(self) -> IndexStatistics:
        headers = [file.header for file in self._files]
        return IndexStatistics(
            files=len(headers),
            entries=sum(header.next_entry - 1 for header in headers),
            size_bytes=len(headers) * index_file_bytes(self._slots, self._entries),
            begin_timestamp=headers[0].begin_timestamp if headers else 0,
            end_timestamp=headers[-1].end_timestamp if headers else 0,
            end_offset=headers[-1].end_offset if headers else 0,
        )

    # --- writing ------------------------------------------------------------------------------

    def insert(
        self, topic: str, keys: Iterable[str], physical_offset: int, store_timestamp: int
    ) -> None:
        """Index one dispatched record, by `dispatcher.index_keys`; never a rolled-back one.

        A record before the end of the index is there already: recovery dispatches again. The last
        one is inserted once more, since its keys may have been divided between two files of which
        only the first survived. A record without keys still opens a file, as in RocketMQ. OSError
        when the disk is full; the same record can be inserted again later.
        """
        file = self._file_with_room()
        if physical_offset < file.header.end_offset:
            return
        hashes = [key_hash(topic, key) for key in keys]
        done = 0
        while True:
            done = file.insert(hashes, done, offset=physical_offset, timestamp=store_timestamp)
            if done == len(hashes):
                return
            file = self._file_with_room()

    def truncate(self, physical_offset: int) -> None:
        """Forget everything at or behind this offset: the log was cut there.

        RocketMQ has nothing like it. There, entries of the lost tail answer queries with whatever
        record lies at their offset now, and new records below the old end are never indexed. Here
        the entries are taken out and their bytes zeroed, so that the file is again what it was when
        the log ended there, but for its end time (`IndexFile.cut`).
        """
        while self._files:
            file = self._files[-1]
            if file.header.end_offset < physical_offset:
                return
            file.cut(physical_offset)
            if file.header.next_entry > 1:
                return
            self._remove(file)

    def delete_before(self, min_physical_offset: int) -> int:
        """Remove leading files that only point to messages gone from the log; returns how many."""
        removed = 0
        while len(self._files) > 1 and self._files[0].header.end_offset < min_physical_offset:
            self._remove(self._files[0])
            removed += 1
        return removed

    @property
    def has_unsynced_full_file(self) -> bool:
        """Whether `sync_full_files` has something to do; cheap enough to ask after each insert."""
        return any(file.is_full and not file.synced for file in self._files)

    def sync_full_files(self) -> int:
        """Flush files that became full; returns what checkpoint.indexMsgTimestamp may say now.

        That is the end time of the newest full file, 0 without one. Blocks; may run in a thread,
        since a full file does not change any more.
        """
        timestamp = 0
        for file in list(self._files):
            if file.is_full:
                if not file.synced:
                    file.sync()
                    self._disk.sync_folder(self._folder)
                timestamp = file.header.end_timestamp
        return timestamp

    def sync(self) -> int:
        """Flush everything, at the end of the broker's life; returns as `sync_full_files`."""
        timestamp = self.sync_full_files()
        if self._files and not self._files[-1].is_full:
            self._files[-1].sync()
            self._disk.sync_folder(self._folder)
        return timestamp

    def _file_with_room(self) -> IndexFile:
        if self._files and not self._files[-1].is_full:
            return self._files[-1]
        name = self._now_name()
        if self._files and name <= self._files[-1].name:
            # Files are put in order by name when loaded, whatever the clock did in between.
            name = str(int(self._files[-1].name) + 1).zfill(NAME_DIGITS)
        previous = self._files[-1].header if self._files else None
        file = self._open(self._folder / name, head=first_header(previous))
        self._files.append(file)
        return file

    def _open(self, path: Path, *, head: bytes = b"") -> IndexFile:
        """A file that is there; with a header, one that is made."""
        size = index_file_bytes(self._slots, self._entries)
        file = self._disk.map(path, size, create=bool(head), head=head)
        return IndexFile(file, slots=self._slots, entries=self._entries, is_tight=self._is_tight)

    def _is_tight(self) -> bool:
        return self._disk.usage(self._folder)[1] < TIGHT_BYTES

    # --- reading ------------------------------------------------------------------------------

    def query(self, topic: str, key: str, *, limit: int, begin_ms: int, end_ms: int) -> list[int]:
        """Offsets of at most `limit` records that may have this key, the newest, in log order.

        Times are compared in whole seconds since a file's begin, rounded down, as RocketMQ does. A
        record that is in the index twice counts once here, which RocketMQ does not do.
        """
        hashed = key_hash(topic, key)
        found: set[int] = set()
        for file in reversed(self._files):
            if file.overlaps(begin_ms, end_ms):
                file.collect(hashed, found, limit=limit, begin_ms=begin_ms, end_ms=end_ms)
            if len(found) >= limit or file.header.begin_timestamp < begin_ms:
                break
        return sorted(found)

    def last_update(self) -> tuple[int, int]:
        """Store time and offset of the newest indexed record, for query responses; else zeros."""
        if not self._files:
            return 0, 0
        header = self._files[-1].header
        return header.end_timestamp, header.end_offset
