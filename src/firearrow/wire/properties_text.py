"""Java properties text: the bodies of the requests that read and change settings.

Java reads such bytes as Latin-1, so everything beyond ASCII is written as a hexadecimal escape.
We read UTF-8, which is what our own tools send.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from firearrow.base.errors import PeerProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_BLANK: Final = " \t\f"
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_ESCAPE: Final = re.compile(r"\\(u.{0,4}|.)", re.DOTALL)
_HEX: Final = re.compile(r"u[0-9a-fA-F]{4}", re.ASCII)
_CONTROL: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_TO_ESCAPE: Final = {"\\": "\\\\", **{char: f"\\{letter}" for letter, char in _CONTROL.items()}}
_PLAIN: Final = re.compile(r"[a-zA-Z0-9_./-]*", re.ASCII)  # nearly all names and values
_NAME: Final = re.compile(r"(?:[^\\=: \t\f]|\\.)*", re.DOTALL)
_SEPARATOR: Final = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")


class PropertiesTextError(PeerProtocolError):
    """The text holds an escape that means nothing."""


def parse_properties(data: bytes | str) -> dict[str, str]:
    """Names and values in their order; of a name that comes twice, the last value."""
    text = data if isinstance(data, str) else data.decode("utf-8", "replace")
    properties: dict[str, str] = {}
    for line in _logical_lines(text):
        name = _NAME.match(line)
        assert name is not None
        separator = _SEPARATOR.match(line, name.end())
        assert separator is not None
        properties[_unescape(name.group())] = _unescape(line[separator.end() :])
    return properties


def format_properties(properties: Mapping[str, str]) -> bytes:
    """One ``name=value`` line each, that Java and `parse_properties` read back to the same."""
    lines = (
        f"{_escape(name, ' =:#!')}={_escape(value[:1], ' ')}{_escape(value[1:], '')}\n"
        for name, value in properties.items()
    )
    return "".join(lines).encode("ascii")


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments, blanks and indentation; a backslash at the end joins the next one."""
    parts: list[str] = []
    for natural in _LINE_END.split(text):
        line = natural.lstrip(_BLANK)
        if not parts and (not line or line[0] in "#!"):
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            parts.append(line[:-1])
            continue
        parts.append(line)
        yield "".join(parts)
        parts = []
    if parts:
        yield "".join(parts)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    mended = _ESCAPE.sub(_escaped_character, text)
    # Escapes may spell a character beyond U+FFFF in two halves.
    return mended.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _escaped_character(match: re.Match[str]) -> str:
    escape = match.group(1)
    if escape[0] != "u":
        return _CONTROL.get(escape, escape)
    if not _HEX.fullmatch(escape):
        raise PropertiesTextError(f"{match.group()!r} is not an escape: four hex digits expected")
    return chr(int(escape[1:], 16))


def _escape(text: str, special: str) -> str:
    if _PLAIN.fullmatch(text):
        return text
    parts: list[str] = []
    for char in text:
        if char in _TO_ESCAPE:
            parts.append(_TO_ESCAPE[char])
        elif char in special:
            parts.append(f"\\{char}")
        elif " " <= char <= "~":
            parts.append(char)
        else:
            units = char.encode("utf-16-be", "surrogatepass")
            parts.extend(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))
    return "".join(parts)
