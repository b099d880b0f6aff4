"""A command, and its bytes: written as strictly as the strictest reader wants them.

Every extension value is a JSON string, there is no white space and no null; keys are in
alphabetical order, as Java writes them, so that recorded frames compare equal.
"""

from __future__ import annotations

import json
import struct
from typing import Final

from firearrow.hot.layout import (
    BINARY_HEADER,
    HEADER_BYTES_LIMIT,
    HEADER_WORD_BYTES,
    JSON_HEADER,
    LANGUAGE_OTHER,
    LANGUAGE_PYTHON,
    LANGUAGES,
    VERSION,
)

_INT32_MIN: Final = -(1 << 31)
_INT32_MAX: Final = (1 << 31) - 1
_HEAD: Final = struct.Struct(">iI")

# Fixed part of a binary header; the remark's length is its last field:
#
#   | code    | language | version | opaque  | flag    | remark length |
#   | 2 bytes | 1 byte   | 2 bytes | 4 bytes | 4 bytes | 4 bytes       |
BINARY_FIXED: Final = struct.Struct(">hbhiii")


class Command:
    """One remoting frame, request or response, in memory."""

    __slots__ = (
        "body",
        "code",
        "ext",
        "flag",
        "language",
        "opaque",
        "remark",
        "serializer",
        "version",
    )

    def __init__(
        self,
        code: int,
        ext: dict[str, str] | None = None,
        body: bytes = b"",
        *,
        opaque: int = 0,
        flag: int = 0,
        remark: str | None = None,
        language: int = LANGUAGE_PYTHON,
        version: int = VERSION,
        serializer: int = JSON_HEADER,
    ) -> None:
        self.code = code
        self.ext: dict[str, str] = {} if ext is None else ext
        self.body = body
        self.opaque = opaque
        self.flag = flag
        self.remark = remark
        self.language = language
        self.version = version
        self.serializer = serializer

    def __repr__(self) -> str:
        kind = "response" if self.flag & 1 else "oneway" if self.flag & 2 else "request"
        remark = "" if self.remark is None else f", remark={self.remark!r}"
        return (
            f"Command({kind} {self.code}, opaque={self.opaque}, ext={self.ext!r}{remark}, "
            f"body={len(self.body)} bytes)"
        )


def encode_frame(command: Command) -> bytes:
    """One whole frame."""
    return encode_head(command, len(command.body)) + command.body


def encode_head(command: Command, body_bytes: int) -> bytes:
    """Everything of a frame but its body, which the caller writes in pieces of its own."""
    if command.serializer == JSON_HEADER:
        header = _encode_json(command)
    elif command.serializer == BINARY_HEADER:
        header = _encode_binary(command)
    else:
        raise ValueError(f"unknown header serializer {command.serializer}")
    size = HEADER_WORD_BYTES + len(header) + body_bytes
    if len(header) > HEADER_BYTES_LIMIT or not 0 <= body_bytes <= _INT32_MAX - len(header) - 4:
        raise ValueError(f"header of {len(header)} and body of {body_bytes} bytes fit no frame")
    return _HEAD.pack(size, command.serializer << 24 | len(header)) + header


def _encode_json(command: Command) -> bytes:
    fields: dict[str, object] = {"code": _checked_int32(command.code, "code")}
    if command.ext:
        for name, value in command.ext.items():
            if not isinstance(name, str) or not isinstance(value, str):
                raise TypeError(f"header field {name!r} is not text")
        fields["extFields"] = command.ext
    fields["flag"] = _checked_int32(command.flag, "flag")
    fields["language"] = _language_name(command.language)
    fields["opaque"] = _checked_int32(command.opaque, "opaque")
    if command.remark is not None:
        fields["remark"] = command.remark
    fields["version"] = _checked_int32(command.version, "version")
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


def _checked_int32(value: int, name: str) -> int:
    if not _INT32_MIN <= value <= _INT32_MAX:
        raise ValueError(f"{name} {value} is not a 32-bit integer")
    return value


def _language_name(code: int) -> str:
    return LANGUAGES[code] if 0 <= code < len(LANGUAGES) else LANGUAGES[LANGUAGE_OTHER]


def _encode_binary(command: Command) -> bytes:
    if not -32768 <= command.code <= 32767 or not -32768 <= command.version <= 32767:
        raise ValueError(
            f"code {command.code} or version {command.version} does not fit the 16 bits of a "
            "binary header; use JSON headers (POP requests need them)"
        )
    remark = (command.remark or "").encode("utf-8", "replace")
    ext = bytearray()
    for name, value in command.ext.items():
        name_raw = name.encode("utf-8", "replace")
        value_raw = value.encode("utf-8", "replace")
        if len(name_raw) > 32767:
            raise ValueError(f"header field name of {len(name_raw)} bytes; the limit is 32767")
        ext += len(name_raw).to_bytes(2, "big") + name_raw
        ext += len(value_raw).to_bytes(4, "big") + value_raw
    language = command.language if 0 <= command.language < len(LANGUAGES) else LANGUAGE_OTHER
    fixed = BINARY_FIXED.pack(
        command.code,
        language,
        command.version,
        _checked_int32(command.opaque, "opaque"),
        _checked_int32(command.flag, "flag"),
        len(remark),
    )
    return fixed + remark + len(ext).to_bytes(4, "big") + bytes(ext)
