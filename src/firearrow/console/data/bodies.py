"""Bodies of messages as people look at them: text, JSON, hex. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

SHOWN_BYTES: Final = 64 * 1024  # more is a download
HEX_BYTES: Final = 8 * 1024
JSON_CHARS_MAX: Final = 1024 * 1024
MASK: Final = "••••••"


@dataclass(frozen=True, slots=True)
class BodyView:
    text: str | None  # None for bytes that are none
    json: str | None  # None for what is no JSON object or list
    hex: str
    size: int
    masked: bool = False
    cut: bool = False


def view_body(body: bytes, *, may_see: bool) -> BodyView:
    """How a body can be shown, to somebody who may see it or not."""
    if not may_see:
        return BodyView(MASK, None, MASK, len(body), masked=True)
    shown = body[:SHOWN_BYTES]
    try:
        text: str | None = body.decode()
    except UnicodeDecodeError:
        text = None
    pretty = None
    if text is not None and text.lstrip()[:1] in {"{", "["} and len(text) <= JSON_CHARS_MAX:
        try:
            pretty = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
        except (ValueError, RecursionError):
            pretty = None
    return BodyView(
        text=None if text is None else text[:SHOWN_BYTES],
        json=None if pretty is None else pretty[:SHOWN_BYTES],
        hex=hex_dump(shown[:HEX_BYTES]),
        size=len(body),
        cut=len(body) > SHOWN_BYTES,
    )


def hex_dump(data: bytes) -> str:
    """Sixteen bytes a line: where, in hex, and as far as they are ASCII."""
    lines = []
    for start in range(0, len(data), 16):
        row = data[start : start + 16]
        codes = " ".join(f"{byte:02x}" for byte in row)
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{start:08x}  {codes:<47}  {letters}")
    return "\n".join(lines)


def preview(body: bytes, *, may_see: bool, chars: int = 80) -> str:
    """The beginning of a body, on one line."""
    if not may_see:
        return MASK
    text = body[: 4 * chars].decode("utf-8", "replace")
    line = " ".join(text.split())
    return line if len(line) <= chars else line[: chars - 1] + "…"
