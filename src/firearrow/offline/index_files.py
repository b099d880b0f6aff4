"""Index files read from outside, without the settings that they were written with.

A file says nowhere how many slots and entries it has. Its size gives their sum; which of the many
ways to divide it is right shows in the content, since the entries must lie where the header and
the slots say.
"""

from __future__ import annotations

import mmap
import sys
from array import array
from typing import TYPE_CHECKING, Final, NamedTuple

from firearrow.store.key_index import (
    ENTRIES_DEFAULT,
    ENTRY,
    HEADER,
    SLOT,
    SLOTS_DEFAULT,
    IndexHeader,
    index_file_bytes,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_ENTRIES_PER_READ: Final = 4096
_SAMPLE: Final = 64  # entries that must fit before we believe a division
_CANDIDATES_MAX: Final = 10_000


class IndexShape(NamedTuple):
    slots: int
    entries: int


_DEFAULT: Final = IndexShape(SLOTS_DEFAULT, ENTRIES_DEFAULT)


class IndexTable:
    """One index file. Without a shape its entries cannot be found, only its header."""

    def __init__(self, path: Path, shape: IndexShape | None) -> None:
        self.path = path
        self.shape = shape
        self.size = 0
        self.header: IndexHeader | None = None
        try:
            with path.open("rb") as file:
                self.size = file.seek(0, 2)
                file.seek(0)
                front = file.read(HEADER.size)
        except OSError:
            return
        if len(front) == HEADER.size:
            header = IndexHeader._make(HEADER.unpack(front))
            self.header = header if header.next_entry > 0 else header._replace(next_entry=1)

    @property
    def count(self) -> int:
        """How many entries the header claims, as far as the file has room for them."""
        if self.header is None or self.shape is None:
            return 0
        return min(self.header.next_entry, self.shape.entries) - 1

    @property
    def last_offset(self) -> int:
        """Where the last entry points; -1 if there is none to be read."""
        if self.shape is None or not self.count:
            return -1
        at = HEADER.size + self.shape.slots * SLOT.size + self.count * ENTRY.size
        try:
            with self.path.open("rb") as file:
                file.seek(at)
                raw = file.read(ENTRY.size)
        except OSError:
            return -1
        return int(ENTRY.unpack(raw)[1]) if len(raw) == ENTRY.size else -1

    def entries(self) -> Iterator[list[tuple[int, int, int, int]]]:
        """Hash, offset, seconds and previous entry of each entry from number 1 on, in portions.

        Fewer than `count` if the file is cut.
        """
        if self.shape is None or not self.count:
            return
        left = self.count
        try:
            with self.path.open("rb") as file:
                file.seek(HEADER.size + self.shape.slots * SLOT.size + ENTRY.size)
                while left:
                    portion = file.read(min(_ENTRIES_PER_READ, left) * ENTRY.size)
                    whole = len(portion) // ENTRY.size
                    if not whole:
                        return
                    yield list(ENTRY.iter_unpack(portion[: whole * ENTRY.size]))
                    left -= whole
        except OSError:
            return

    def slots(self) -> array[int]:
        """Newest entry of each slot; fewer slots if the file is cut."""
        found = array("i")
        if self.shape is not None:
            try:
                with self.path.open("rb") as file:
                    file.seek(HEADER.size)
                    content = file.read(self.shape.slots * SLOT.size)
            except OSError:
                return found
            found.frombytes(content[: len(content) - len(content) % SLOT.size])
            if sys.byteorder == "little":
                found.byteswap()
        return found


def open_tables(paths: Sequence[Path], *, shape: tuple[int, int] | None = None) -> list[IndexTable]:
    """All files of an index; files of one size share one shape."""
    tables = [IndexTable(path, None) for path in paths]
    known: dict[int, IndexShape] = {index_file_bytes(*_DEFAULT): _DEFAULT}
    if shape is not None:
        known = {index_file_bytes(*shape): IndexShape(*shape)}
    else:
        for table in tables:
            if table.size not in known and (found := likely_shape(table)):
                known[table.size] = found
    for table in tables:
        table.shape = known.get(table.size)
    return tables


def likely_shape(table: IndexTable) -> IndexShape | None:
    """Slots and entries of a file of unusual size, worked out from its content."""
    if table.header is None or table.header.next_entry <= 1:
        return None
    try:
        with (
            table.path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
        ):
            for slots in _candidates(content, table.header):
                shape = _shape(len(content), slots)
                if shape is not None and _fits(content, table.header, shape):
                    return shape
    except (OSError, ValueError):  # not to be read, or empty
        return None
    return None


def _candidates(content: mmap.mmap, header: IndexHeader) -> Iterator[int]:
    """Numbers of slots that may be right: four entries a slot, or where the last entry is found."""
    yield (len(content) - HEADER.size) // (SLOT.size + 4 * ENTRY.size)
    # The header repeats the offset of the last entry; entries_at + 20 * last + 4 is where it is.
    last = header.next_entry - 1
    wanted = header.end_offset.to_bytes(8, "big", signed=True)
    at = len(content)
    for _ in range(_CANDIDATES_MAX):
        at = content.rfind(wanted, HEADER.size, at + len(wanted) - 1)
        if at < 0:
            return
        entries_at = at - SLOT.size - last * ENTRY.size
        if entries_at > HEADER.size and (entries_at - HEADER.size) % SLOT.size == 0:
            yield (entries_at - HEADER.size) // SLOT.size


def _shape(size: int, slots: int) -> IndexShape | None:
    entries, rest = divmod(size - HEADER.size - slots * SLOT.size, ENTRY.size)
    return IndexShape(slots, entries) if slots > 0 and entries > 1 and not rest else None


def _fits(content: mmap.mmap, header: IndexHeader, shape: IndexShape) -> bool:
    """Whether the first and last entries are the header's, and some are reached by their slots."""
    count = header.next_entry
    if count > shape.entries:
        return False
    entries_at = HEADER.size + shape.slots * SLOT.size

    def entry(number: int) -> tuple[int, int, int, int]:
        hashed, offset, seconds, previous = ENTRY.unpack_from(
            content, entries_at + number * ENTRY.size
        )
        return hashed, offset, seconds, previous

    if entry(1)[1] != header.begin_offset or entry(count - 1)[1] != header.end_offset:
        return False
    step = max(1, count // _SAMPLE)
    for number in range(1, count, step):
        hashed, _, _, previous = entry(number)
        if hashed < 0 or not 0 <= previous < number:
            return False
        slot_at = HEADER.size + hashed % shape.slots * SLOT.size
        (newest,) = SLOT.unpack_from(content, slot_at)
        if not number <= newest < count:
            return False
    return True
