"""Values in SQL92 expressions, and how two of them compare: Java's rules, as RocketMQ has them.

A property is text or missing (None). A literal is text, a 32-bit integer (`int`), a 64-bit one
(`Long`), a double (`float`) or a truth value. Text that meets a number is read as a number of just
that kind: ``1.5`` is no integer and ``3000000000`` no 32-bit one. Where that fails, Java throws,
and the message does not match, whatever the rest of the expression says: `Mismatch`.
"""

from __future__ import annotations

import math
import re
from typing import Final, TypeAlias

INT_MIN: Final = -(1 << 31)
INT_MAX: Final = (1 << 31) - 1
LONG_MIN: Final = -(1 << 63)
LONG_MAX: Final = (1 << 63) - 1
_DIGITS_MAX: Final = 20  # longer numbers have leading zeros, or are too large
_plain: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?", re.ASCII).fullmatch
_DOUBLE: Final = re.compile(
    r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?[fd]?", re.ASCII | re.IGNORECASE
)
_HEX_DOUBLE: Final = re.compile(
    r"([+-]?0x(?:[0-9a-f]+\.?[0-9a-f]*|\.[0-9a-f]+)p[+-]?[0-9]+)[fd]?", re.ASCII | re.IGNORECASE
)
_BLANKS: Final = "".join(map(chr, range(33)))  # what Java's trim() takes off


class Mismatch(Exception):
    """A value cannot be read as the kind that it is compared with."""


class Long(int):
    """A 64-bit integer: it compares like any other, but text must only fit 64 bits to meet it."""

    __slots__ = ()


Value: TypeAlias = "str | int | float | bool | None"


def _integer(text: str, least: int, most: int) -> int:
    digits = text
    if not text.isdecimal():
        digits = text[1:]
        if text[:1] not in {"+", "-"} or not digits.isdecimal():
            raise Mismatch
    if len(digits) > _DIGITS_MAX:
        digits = digits.lstrip("0") or "0"
        if len(digits) > _DIGITS_MAX:
            raise Mismatch
    if not digits.isascii() and max(digits) > "\uffff":
        raise Mismatch  # Java reads digits of any script, but only where a char holds one
    value = -int(digits) if text[0] == "-" else int(digits)
    if not least <= value <= most:
        raise Mismatch
    return value


def int32(text: str) -> int:
    """Text as a 32-bit integer: a sign, digits, nothing else."""
    if len(text) <= 9 and text.isdecimal() and text.isascii():
        return int(text)
    return _integer(text, INT_MIN, INT_MAX)


def int64(text: str) -> int:
    """Text as a 64-bit integer."""
    return _integer(text, LONG_MIN, LONG_MAX)


def double(text: str) -> float:
    """Text as a double, in every way that Java writes one."""
    if _plain(text):
        return float(text)
    text = text.strip(_BLANKS)
    if _DOUBLE.fullmatch(text):
        return float(text.rstrip("fFdD"))
    sign, word = (text[0], text[1:]) if text[:1] in {"+", "-"} else ("", text)
    if word == "NaN":
        return math.nan
    if word == "Infinity":
        return -math.inf if sign == "-" else math.inf
    hexadecimal = _HEX_DOUBLE.fullmatch(text)
    if hexadecimal is None:
        raise Mismatch
    try:
        return float.fromhex(hexadecimal[1])
    except OverflowError:
        return -math.inf if sign == "-" else math.inf


def double_beside(text: str) -> float:
    """The same, to be compared with a finite number: Java has NaN above everything."""
    value = double(text)
    return math.inf if value != value else value  # noqa: PLR0124 - that is how NaN shows


def truth(text: str) -> bool:
    """Text as a truth value: anything but ``true`` is false."""
    return text.lower() == "true"


def compare_doubles(left: float, right: float) -> int:
    """Java's order: NaN equals itself and is above everything, -0.0 is below 0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    left_key = (left != left, math.copysign(1, left))  # noqa: PLR0124
    right_key = (right != right, math.copysign(1, right))  # noqa: PLR0124
    if left_key[0] or right_key[0]:
        return left_key[0] - right_key[0]
    if left == 0.0:
        return (left_key[1] > right_key[1]) - (left_key[1] < right_key[1])
    return 0


def compare(left: str | float, right: str | float) -> int:
    """Negative, zero or positive; -1 also for kinds that have nothing in common."""
    if isinstance(left, bool) or isinstance(right, bool):
        return _compare_truth(left, right)
    if isinstance(left, str):
        if isinstance(right, str):
            return (left > right) - (left < right)
        left = _as_kind_of(right, left)
    elif isinstance(right, str):
        right = _as_kind_of(left, right)
    if isinstance(left, float) or isinstance(right, float):
        return compare_doubles(float(left), float(right))
    return (left > right) - (left < right)


def _compare_truth(left: str | float, right: str | float) -> int:
    if isinstance(left, bool):
        if isinstance(right, str):
            raise Mismatch  # Java casts the wrong one of the two, and throws
        return left - right if isinstance(right, bool) else -1
    assert isinstance(right, bool)
    return truth(left) - right if isinstance(left, str) else -1


def _as_kind_of(number: float, text: str) -> float:
    if isinstance(number, float):
        return double(text)
    return int64(text) if isinstance(number, Long) else int32(text)


def equal(left: Value, right: Value) -> bool | None:
    """Whether two values are equal. A missing one on the left makes it unknown, on the right false;
    two missing ones are equal.
    """  # noqa: D205 - one thought
    if left is None:
        return True if right is None else None
    if right is None:
        return False
    return compare(left, right) == 0


def order(left: Value, right: Value) -> int | None:
    """How two numbers compare; texts have an order only if both are numbers. None: unknown."""
    if left is None or right is None:
        return None
    if isinstance(left, str) and isinstance(right, str):
        return compare_doubles(double(left), double(right))
    return compare(left, right)
