"""One file of the key index, as a table in memory.

    | header 40 bytes | slot 0 .. slots-1, 4 bytes each | entry 0 .. entries-1, 20 bytes each |

    header | begin, end time 8+8 | begin, end offset 8+8 | slots used 4 | next entry 4 |
    slot   | number of the newest entry 4 |                              0: none
    entry  | hash 4 | physical offset 8 | seconds since begin time 4 | previous entry 4 |

Entry numbers start at 1 because 0 means none, so entry 0 is never used and a file is full with
`entries - 1` of them.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_HEADER: Final = struct.Struct(">qqqqii")
_SLOT: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(">iqii")
_SECONDS_MAX: Final = (1 << 31) - 1


class KeyTable:
    """Knows slots and entries; nothing of files, keys or time ranges.

    `limit` is the entry number that must not be reached: the owner moves it as disk space is
    reserved, up to `entries`.
    """

    __slots__ = ("_buffer", "_entries_at", "entries", "limit", "slots")

    def __init__(self, buffer: memoryview, slots: int, entries: int) -> None:
        assert len(buffer) == _HEADER.size + slots * _SLOT.size + entries * _ENTRY.size
        self._buffer = buffer
        self.slots = slots
        self.entries = entries
        self.limit = entries
        self._entries_at = _HEADER.size + slots * _SLOT.size

    @property
    def header(self) -> tuple[int, int, int, int, int, int]:
        """Begin and end time, begin and end offset, slots used, next entry (never below 1)."""
        begin_time, end_time, begin, end, used, count = _HEADER.unpack_from(self._buffer)
        return begin_time, end_time, begin, end, used, max(count, 1)

    @property
    def end_offset(self) -> int:
        return self.header[3]

    @property
    def free(self) -> int:
        """How many more entries there is room for."""
        return max(0, self.limit - self.header[5])

    def insert(
        self, hashes: Sequence[int], first: int, physical_offset: int, store_timestamp: int
    ) -> int:
        """Insert ``hashes[first:]`` of one record; returns how many of `hashes` are in.

        The time of an entry counts from the header's begin time *before* the first entry sets it:
        a file that follows another starts with that one's end time, so its first entry is measured
        from there. Readers of such files know no better, and ours must be equal to the byte.
        """
        begin_time, end_time, begin_offset, end_offset, used, count = self.header
        done = first
        while done < len(hashes) and count < self.limit:
            hashed = hashes[done]
            slot_at = _HEADER.size + hashed % self.slots * _SLOT.size
            (previous,) = _SLOT.unpack_from(self._buffer, slot_at)
            if not 0 < previous <= count:
                previous = 0
            seconds = 0
            if begin_time > 0:
                seconds = min(max((store_timestamp - begin_time) // 1000, 0), _SECONDS_MAX)
            entry_at = self._entries_at + count * _ENTRY.size
            _ENTRY.pack_into(self._buffer, entry_at, hashed, physical_offset, seconds, previous)
            _SLOT.pack_into(self._buffer, slot_at, count)
            if count == 1:
                begin_time, begin_offset = store_timestamp, physical_offset
            if previous == 0:
                used += 1
            end_time, end_offset = store_timestamp, physical_offset
            count += 1
            done += 1
        if done > first:
            _HEADER.pack_into(
                self._buffer, 0, begin_time, end_time, begin_offset, end_offset, used, count
            )
        return done

    def restore(
        self, count: int, end_timestamp: int, *, begin_timestamp: int, begin_offset: int
    ) -> bool:
        """Make the table again from its first `count - 1` entries, whatever slots and header say.

        After a crash the entries up to a known number are on disk and the rest is anything, so
        slots and links are worked out anew. False if these entries are not in the order of the log:
        nobody has written them like this.
        """
        assert 1 <= count <= self.entries
        buffer = self._buffer
        buffer[_HEADER.size : self._entries_at] = bytes(self.slots * _SLOT.size)
        used = end_offset = 0
        newest, in_order = begin_offset, True
        for number in range(1, count):
            entry_at = self._entries_at + number * _ENTRY.size
            hashed, end_offset, seconds, _ = _ENTRY.unpack_from(buffer, entry_at)
            in_order &= end_offset >= newest
            newest = end_offset
            slot_at = _HEADER.size + (hashed & 0x7FFFFFFF) % self.slots * _SLOT.size
            (previous,) = _SLOT.unpack_from(buffer, slot_at)
            used += previous == 0
            _ENTRY.pack_into(buffer, entry_at, hashed, end_offset, seconds, previous)
            _SLOT.pack_into(buffer, slot_at, number)
        _HEADER.pack_into(
            buffer, 0, begin_timestamp, end_timestamp, begin_offset, end_offset, used, count
        )
        return in_order

    def release(self) -> None:
        """Let go of the memory."""
        self._buffer = memoryview(bytes(_HEADER.size))
        self.limit = 0
