"""Index files against the log: read along with it, entry by entry, so that nothing piles up.

There is no rule that every key is in the index: after a crash RocketMQ drops the newest file and
indexes again only what it recovers. What is there must be right.
"""

from __future__ import annotations

import sys
from array import array
from typing import TYPE_CHECKING, Final

from firearrow.hot import key_hash
from firearrow.offline.derived import keys_of
from firearrow.store.key_index import SECONDS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from firearrow.hot import ScannedRecord
    from firearrow.offline.check_log import LostBytes
    from firearrow.offline.findings import Findings
    from firearrow.offline.index_files import IndexTable

NOWHERE: Final = sys.maxsize

# Number in its file, hash, physical offset, seconds since the file's begin.
_Entry = tuple[int, int, int, int]


class IndexCheck:
    """All index files, oldest first, as one list of entries that the log must explain in order.

    `lost` holds the offsets where the log is damaged. `closed` is false for a store whose broker
    runs or crashed: it may have been in the middle of an insert. The files may be only some of a
    store's: `newest` is where the entry before them points, `is_end` if none is behind them.
    """

    def __init__(
        self,
        tables: list[IndexTable],
        findings: Findings,
        *,
        min_offset: int,
        lost: LostBytes,
        closed: bool,
        newest: int = -1,
        is_end: bool = True,
    ) -> None:
        self.next_offset = NOWHERE  # which record is indexed next
        self._newest = newest
        self._is_end = is_end
        self._tables = tables
        self._findings = findings
        self._min_offset = min_offset
        self._lost = lost
        self._closed = closed
        self._portions = self._read()
        self._table = tables[0] if tables else None
        self._portion: list[_Entry] = []
        self._at = 0
        self._load()

    def follow(self, record: ScannedRecord, properties: Mapping[str, str]) -> None:
        """The log has a record here. Need not be called for one before `next_offset`."""
        physical = record.physical_offset
        hashes = [key_hash(record.topic, key) for key in keys_of(properties)]
        while self.next_offset <= physical:
            number, hashed, offset, seconds = self._portion[self._at]
            if offset < physical:
                self._nothing_at(number, offset)
            else:
                if hashed not in hashes:
                    self._add("I2", number, f"the record at {offset} has no such key")
                assert self._table is not None
                assert self._table.header is not None
                expected = (record.store_timestamp - self._table.header.begin_timestamp) // 1000
                # The first entry of a file counts from the end of the file before.
                if seconds != expected and number > 1:
                    self._check_seconds(number, seconds, expected)
            self._advance()

    def nothing(self) -> None:
        """The log has no sound record at `next_offset`."""
        number, _, offset, _ = self._portion[self._at]
        self._nothing_at(number, offset)
        self._advance()

    def _advance(self) -> None:
        self._at += 1
        if self._at < len(self._portion):
            self.next_offset = self._portion[self._at][2]
        else:
            self._load()

    def finish(self, *, end_offset: int, running: bool) -> None:
        """The log is through; entries that are left point behind it."""
        while self.next_offset != NOWHERE:
            for number, _, offset, _ in self._portion[self._at :]:
                # A running broker has written more since we read the end of its log.
                if not (running and offset >= end_offset):
                    self._nothing_at(number, offset)
            self._load()

    def _check_seconds(self, number: int, seconds: int, expected: int) -> None:
        expected = min(max(expected, 0), SECONDS_MAX)
        if seconds != expected:
            what = f"stored {seconds} s after the file's begin; its record {expected} s"
            self._add("I3", number, what)

    def _nothing_at(self, number: int, offset: int) -> None:
        if offset >= self._min_offset and offset not in self._lost:
            self._add("I2", number, f"there is no record at {offset}")

    # --- the files alone ------------------------------------------------------------------------

    def _load(self) -> None:
        """Go on to the next entries that can be looked for in the log."""
        self._at = 0
        self._portion = next((portion for portion in self._portions if portion), [])
        self.next_offset = self._portion[0][2] if self._portion else NOWHERE

    def _read(self) -> Iterator[list[_Entry]]:
        """Entries in portions, without those that are out of order; complaints on the side."""
        newest = self._newest
        for table in self._tables:
            self._table = table
            if table.shape is None or table.header is None:
                self._check_unknown(table)
                continue
            if table.header.begin_offset < newest:
                continue  # out of order: `check_order` says so
            slots, number = table.shape.slots, 0
            seen = array("i", bytes(4 * slots))  # newest entry of each slot so far
            for raw in table.entries():
                portion: list[_Entry] = []
                for hashed, offset, seconds, previous in raw:
                    number += 1
                    slot = hashed % slots
                    if previous != seen[slot] or hashed < 0:
                        what = f"leads to entry {previous}; in its slot {seen[slot]} is before it"
                        self._add("I1", number, what)
                    seen[slot] = number
                    portion.append((number, hashed, offset, seconds))
                portion = self._in_order(table, portion, newest)
                newest = portion[-1][2] if portion else newest
                yield portion
            self._check_counts(table, seen)

    def _in_order(self, table: IndexTable, portion: list[_Entry], newest: int) -> list[_Entry]:
        """Entries that point forward and into the range of their file; most often all of them."""
        header = table.header
        assert header is not None
        offsets = [newest, *(entry[2] for entry in portion)]
        first = offsets[1] if portion else header.begin_offset
        in_range = header.begin_offset <= first and offsets[-1] <= header.end_offset
        if in_range and sorted(offsets) == offsets:
            return portion
        kept = []
        for at, entry in enumerate(portion):
            number, _, offset, _ = entry
            following = portion[at + 1][2] if at + 1 < len(portion) else offset
            if not header.begin_offset <= offset <= header.end_offset:
                span = f"{header.begin_offset} to {header.end_offset}"
                self._add("I2", number, f"points to {offset}, outside {span}")
            elif offset < newest:
                self._add("I2", number, f"points back to {offset}, from {newest}")
            elif newest <= following < offset:
                self._add("I2", number, f"points to {offset}, and the next back to {following}")
            else:
                newest = offset
                kept.append(entry)
        return kept

    def _check_counts(self, table: IndexTable, seen: array[int]) -> None:
        header, shape = table.header, table.shape
        assert header is not None
        assert shape is not None
        if header.next_entry > shape.entries:
            what = f"counts to {header.next_entry} with room for {shape.entries}"
            self._add("I1", None, what)
        open_ended = not self._closed and self._is_end and table is self._tables[-1]
        slots = table.slots()
        used = len(slots) - slots.count(0)
        if header.slots_used != used and not open_ended:
            what = f"counts {header.slots_used} slots in use; there are {used}"
            self._add("I1", None, what)
        if slots == seen:
            return
        for slot, (newest, expected) in enumerate(zip(slots, seen, strict=False)):
            unfinished = open_ended and newest >= header.next_entry
            if newest != expected and not unfinished:
                what = f"slot {slot} begins with entry {newest}, not {expected}"
                self._add("I1", None, what)

    def _check_unknown(self, table: IndexTable) -> None:
        if table.header is None and (self._closed or table.size):
            self._add("I1", None, f"{table.size} bytes are no index file")
        elif table.header is not None and table.header.next_entry > 1:
            what = f"no number of slots and entries explains {table.size} bytes"
            self._add("I1", None, what)

    def _add(self, code: str, number: int | None, what: str) -> None:
        assert self._table is not None
        name = f"index/{self._table.path.name}"
        where = name if number is None else f"{name} entry {number}"
        self._findings.add(code, where, what)


def check_order(tables: Sequence[IndexTable], findings: Findings) -> None:
    """Whether the files come one after the other, and whether one was left before its end."""
    end_offset = 0
    for table in tables:
        where, header, shape = f"index/{table.path.name}", table.header, table.shape
        if header is None or header.next_entry <= 1:
            continue
        if header.begin_offset > header.end_offset or header.begin_offset < end_offset:
            span = f"{header.begin_offset} to {header.end_offset}"
            findings.add("I4", where, f"covers {span}; the file before ended at {end_offset}")
        end_offset = max(end_offset, header.end_offset)
        full = shape is None or header.next_entry >= shape.entries
        if table is not tables[-1] and not full:
            findings.add("I4", where, f"has {header.next_entry - 1} entries and is not full")
