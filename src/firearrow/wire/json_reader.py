"""Text of fastjson's dialect to plain values: dicts, lists, text, numbers, booleans and None.

Used by `java_json`, which says what the dialect is. Three readers, from fast to patient: msgspec
for standard JSON; msgspec again with the one liberty that large bodies and files take, keys
without quotes, put right; and a recursive descent in Python for everything else. The last one
needs a microsecond per byte, so it is not given more than `DIALECT_BYTES_MAX`.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec

from firearrow.base.errors import PeerProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable

DEPTH_MAX: Final = 64  # the deepest body recorded from Apache RocketMQ has 7 levels
DIALECT_BYTES_MAX: Final = 1024 * 1024  # the largest recorded body with objects as keys has 9 KiB
NUMBER_CHARS_MAX: Final = 400  # a longer one is an attack on int(), which is quadratic
REFERENCED_MAX: Final = 1_000_000  # values that $ref may repeat in all; a small body names many


class JavaJsonError(PeerProtocolError):
    """A body is not what it should be; the text says where and why."""


def parse(data: bytes | str) -> object:
    """Read any document of the dialect.

    Every key becomes text; an object used as a key becomes its source text.
    """
    raw = to_bytes(data)
    value = _parse_dialect(raw)
    if REFERENCE in raw:
        return Settler(value, has_references=True).settle()
    return value


def _parse_dialect(raw: bytes) -> object:
    for mend in (bytes, quote_keys):
        text = mend(raw)
        try:
            value: object = msgspec.json.decode(text)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            continue
        _check_nesting(text)
        return value
    if len(raw) > DIALECT_BYTES_MAX:
        raise JavaJsonError(
            f"{len(raw)} bytes that are not standard JSON; the limit is {DIALECT_BYTES_MAX}"
        )
    return PatientReader(raw.decode("utf-8", "replace")).document()  # as Java replaces


def _check_nesting(standard: bytes) -> None:
    """Refuse what is nested too deeply, without a step of Python per value."""
    if standard.count(b"[") + standard.count(b"{") <= DEPTH_MAX:
        return
    brackets = _ALL_BUT_BRACKETS.sub(b"", standard)
    for _ in range(DEPTH_MAX):  # each time the innermost ones go
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
    if brackets:
        raise JavaJsonError(f"nested deeper than {DEPTH_MAX} levels")


def quote_keys(raw: bytes) -> bytes:
    """Put bare keys in quotes, ``{0:1,a:2}``; what is inside quotes already stays as it is."""
    return _QUOTED_OR_BARE_KEY.sub(_quoted, raw)


_ALL_BUT_BRACKETS: Final = re.compile(rb"""(?:[^"\[\]{}]++|"(?:[^"\\]++|\\.)*+")++""", re.DOTALL)
# Possessive throughout: no byte is looked at twice, whatever the text holds.
_QUOTED_OR_BARE_KEY: Final = re.compile(
    rb""""(?:[^"\\]++|\\.)*+"|([{,][ \t\n\r]*+)(-?+[0-9A-Za-z_$]++)(?=[ \t\n\r]*+:)""", re.DOTALL
)


def _quoted(match: re.Match[bytes]) -> bytes:
    if match[2] is None:
        return match[0]
    return b'%b"%b"' % (match[1], match[2])


def to_bytes(data: bytes | str) -> bytes:
    return data.encode("utf-8", "replace") if isinstance(data, str) else data


REFERENCE: Final = b"$ref"
_SPACE: Final = re.compile("[ \t\n\r\f\b\ufeff]*")
_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)
_WORD: Final = re.compile(r"-?[\w$]+")
_PLAIN: Final = {'"': re.compile(r'[^"\\]*'), "'": re.compile(r"[^'\\]*")}
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_HEX: Final = {"u": re.compile(r"[0-9a-fA-F]{4}"), "x": re.compile(r"[0-9a-fA-F]{2}")}
_ESCAPES: Final = {
    **{char: char for char in "\"'\\/"},
    **dict(zip("bfnrtv", "\b\f\n\r\t\v", strict=True)),
    **{str(code): chr(code) for code in range(8)},
}
# fastjson reads NaN as null, and writes it so.
_LITERALS: Final = {"true": True, "false": False, "null": None, "NaN": None, "undefined": None}


def _mend_surrogates(text: str) -> str:
    """Join halves of a pair; replace lone ones, which no UTF-8 text can hold."""
    if _SURROGATE.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class PatientReader:
    """Recursive descent over one document. Looks at each character a bounded number of times."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def document(self) -> object:
        value = self._value(0)
        if self._peek():
            self._fail("text after the end of the document")
        return value

    def _fail(self, what: str) -> NoReturn:
        raise JavaJsonError(f"{what} at character {self._at}")

    def _peek(self) -> str:
        """The next character that is not white space, or nothing at the end."""
        match = _SPACE.match(self._text, self._at)
        assert match is not None
        self._at = match.end()
        return self._text[self._at : self._at + 1]

    def _value(self, depth: int) -> object:
        first = self._peek()
        if first == "{":
            return self._object(depth + 1)
        if first == "[":
            return self._array(depth + 1)
        if first in {'"', "'"}:
            return self._string(first)
        if match := _NUMBER.match(self._text, self._at):
            return self._number(match)
        if match := _WORD.match(self._text, self._at):
            word = match.group()
            if word in _LITERALS:
                self._at = match.end()
                return _LITERALS[word]
        return self._fail("a value is missing")

    def _enter(self, depth: int) -> None:
        if depth > DEPTH_MAX:
            self._fail(f"nested deeper than {DEPTH_MAX} levels")
        self._at += 1

    def _object(self, depth: int) -> dict[str, object]:
        self._enter(depth)
        fields: dict[str, object] = {}
        while True:
            first = self._peek()
            if first == "}":
                self._at += 1
                return fields
            key = self._key(first, depth)
            if self._peek() != ":":
                self._fail("':' is missing")
            self._at += 1
            fields[key] = self._value(depth)
            self._separator("}")

    def _key(self, first: str, depth: int) -> str:
        if first in {'"', "'"}:
            return self._string(first)
        if first in {"{", "["}:
            start = self._at
            self._value(depth)
            return self._text[start : self._at]
        match = _WORD.match(self._text, self._at)
        if match is None:
            self._fail("a key is missing")
        self._at = match.end()
        return match.group()

    def _array(self, depth: int) -> list[object]:
        self._enter(depth)
        items: list[object] = []
        while self._peek() != "]":
            items.append(self._value(depth))
            self._separator("]")
        self._at += 1
        return items

    def _separator(self, closing: str) -> None:
        """Step over a comma, also over one that nothing follows."""
        found = self._peek()
        if found == ",":
            self._at += 1
        elif found != closing:
            self._fail(f"',' or '{closing}' is missing")

    def _number(self, match: re.Match[str]) -> int | float:
        if match.end() - match.start() > NUMBER_CHARS_MAX:
            self._fail("a number is too long")
        text = match.group()
        number = int(text) if match.lastindex is None else float(text)
        if isinstance(number, float) and math.isinf(number):
            self._fail("a number is out of range")
        self._at = match.end()
        return number

    def _string(self, quote: str) -> str:
        self._at += 1
        parts: list[str] = []
        while True:
            plain = _PLAIN[quote].match(self._text, self._at)
            assert plain is not None
            parts.append(plain.group())
            self._at = plain.end()
            if self._at >= len(self._text):
                self._fail("the text ends inside a string")
            if self._text[self._at] == quote:
                self._at += 1
                return _mend_surrogates("".join(parts))
            parts.append(self._escape())

    def _escape(self) -> str:
        letter = self._text[self._at + 1 : self._at + 2]
        if letter in _HEX:
            digits = _HEX[letter].match(self._text, self._at + 2)
            if digits is None:
                self._fail("an escape lacks hex digits")
            self._at = digits.end()
            return chr(int(digits.group(), 16))
        if letter not in _ESCAPES:
            self._fail("an escape is unknown")
        self._at += 2
        return _ESCAPES[letter]


# One step of a reference's path: a name with escaped punctuation, or a place in brackets.
_STEP: Final = re.compile(
    r"""\.((?:[^.\[\\]|\\.)+)|\[([0-9]{1,9})\]|\[["']([^"'\]]*)["']\]""", re.S
)


class Settler:
    """Puts objects in the place of references, and refuses documents that are too deep.

    A reference to something unknown is None, and so is one to an object that encloses it (``$``,
    ``..``, ``@``): that would be a value that contains itself, which no RocketMQ body has.
    """

    def __init__(self, root: object, *, has_references: bool) -> None:
        self._root = root
        self._has_references = has_references
        # By id of each finished object or list: how many values it holds, and how many levels.
        self._extent: dict[int, tuple[int, int]] = {}
        self._referenced = 0

    def settle(self) -> object:
        return self._settle(self._root, 1)

    def _settle(self, value: object, depth: int) -> object:
        if not isinstance(value, (dict, list)):
            return value
        self._check_depth(depth)
        if self._has_references and isinstance(value, dict) and len(value) == 1:
            path = value.get("$ref")
            if isinstance(path, str):
                return self._target(path, depth)
        items: Iterable[tuple[Any, object]] = (
            value.items() if isinstance(value, dict) else enumerate(value)
        )
        size, levels = 1, 0
        for key, item in items:
            settled = self._settle(item, depth + 1)
            if settled is not item:
                value[key] = settled
            item_size, item_levels = self._extent.get(id(settled), (1, 0))
            size, levels = size + item_size, max(levels, item_levels)
        self._extent[id(value)] = size, levels + 1
        return value

    def _check_depth(self, depth: int) -> None:
        if depth > DEPTH_MAX:
            raise JavaJsonError(f"nested deeper than {DEPTH_MAX} levels")

    def _target(self, path: str, depth: int) -> object:
        found = self._find(path)
        if not isinstance(found, (dict, list)) or id(found) not in self._extent:
            return None
        # Shared here, but repeated in full by whoever builds typed values of it.
        size, levels = self._extent[id(found)]
        self._check_depth(depth + levels - 1)
        self._referenced += size
        if self._referenced > REFERENCED_MAX:
            raise JavaJsonError("references repeat too much of the document")
        return found

    def _find(self, path: str) -> object:
        found = self._root
        if not path.startswith("$"):
            return None
        at = 1
        while at < len(path):
            step = _STEP.match(path, at)
            if step is None:
                return None
            at = step.end()
            name, index, quoted = step.groups()
            if isinstance(found, list) and index is not None and int(index) < len(found):
                found = found[int(index)]
            elif isinstance(found, dict):
                found = found.get(re.sub(r"\\(.)", r"\1", name) if name else index or quoted)
            else:
                return None
        return found
