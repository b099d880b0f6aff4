"""Bloom filter positions of a group and topic, as `consumerFilter.json` holds them.

We do not use them. But Apache RocketMQ ignores the whole file when they are missing, and so a
directory that moves to it would begin without its filters.

    m bits, k positions: from an error rate in percent and an expected number of groups
    position i = |h1 + i * h2| mod m, both halves of the first word of Murmur3 (128 bits, x64)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Self

_WORD: Final = (1 << 64) - 1
_C1: Final = 0x87C37B91114253D5
_C2: Final = 0x4CF5AD432745937F


@dataclass(frozen=True, slots=True)
class MarkSizes:
    bits: int
    marks: int

    @classmethod
    def of(cls, error_percent: int, groups: int) -> Self:
        rate = error_percent / 100
        marks = math.ceil(math.log(rate) / math.log(0.5))
        bits = math.ceil(groups * math.log2(1 / rate) * math.log2(math.e))
        return cls(8 * math.ceil(bits / 8), marks)

    def of_group(self, group: str, topic: str) -> tuple[int, ...]:
        """The positions of a group that filters a topic."""
        word = murmur3_first_word(f"{group}#{topic}".encode())
        low, high = _signed(word), _signed(word >> 32)
        found = []
        for number in range(1, self.marks + 1):
            combined = _signed(low + number * high)
            found.append((~combined if combined < 0 else combined) % self.bits)
        return tuple(found)


def _signed(value: int) -> int:
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def _rotated(value: int, by: int) -> int:
    return (value << by | value >> (64 - by)) & _WORD


def _mixed(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _WORD
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _WORD
    return value ^ value >> 33


def murmur3_first_word(data: bytes) -> int:
    """The first 64 of the 128 bits of Murmur3 for 64-bit machines, with seed 0."""
    first = second = 0
    whole = len(data) // 16 * 16
    for at in range(0, whole, 16):
        low = int.from_bytes(data[at : at + 8], "little")
        high = int.from_bytes(data[at + 8 : at + 16], "little")
        first ^= _rotated(low * _C1 & _WORD, 31) * _C2 & _WORD
        first = (_rotated(first, 27) + second) * 5 + 0x52DCE729 & _WORD
        second ^= _rotated(high * _C2 & _WORD, 33) * _C1 & _WORD
        second = (_rotated(second, 31) + first) * 5 + 0x38495AB5 & _WORD
    rest = data[whole:]
    second ^= _rotated(int.from_bytes(rest[8:], "little") * _C2 & _WORD, 33) * _C1 & _WORD
    first ^= _rotated(int.from_bytes(rest[:8], "little") * _C1 & _WORD, 31) * _C2 & _WORD
    first ^= len(data)
    second ^= len(data)
    first = (first + second) & _WORD
    second = (second + first) & _WORD
    return (_mixed(first) + _mixed(second)) & _WORD
