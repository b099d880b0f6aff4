"""Remoting frames: a byte stream split into commands, both header serializations decoded.

As lenient as Java's reader (numbers where text is meant, unknown keys, broken UTF-8), since Go, C++
and Node clients rely on it.
"""

from __future__ import annotations

import json
import re
import struct
from typing import Final, NamedTuple, NoReturn

from firearrow.base.errors import PeerProtocolError
from firearrow.hot.layout import (
    BINARY_HEADER,
    HEADER_BYTES_LIMIT,
    HEADER_WORD_BYTES,
    JSON_HEADER,
    LANGUAGE_JAVA,
    LANGUAGE_OTHER,
    LANGUAGES,
    LENGTH_BYTES,
)
from firearrow.hot.reference.commands import BINARY_FIXED, Command

_INT32_MIN: Final = -(1 << 31)
_INT32_MAX: Final = (1 << 31) - 1
_DECIMAL: Final = re.compile(r"-?[0-9]{1,10}", re.ASCII)
_LANGUAGE_OF_NAME: Final = {name: code for code, name in enumerate(LANGUAGES)}


def decode_frames(
    data: bytes | bytearray, frame_bytes_max: int, header_bytes_max: int
) -> tuple[list[Command], int, str]:
    """Take every whole frame off the front of `data`.

    Returns the commands, how many bytes they took, and what is wrong with the frame behind them
    (empty when nothing is). After a wrong frame the stream has lost its footing: the caller
    serves what was returned and closes the connection. `frame_bytes_max` counts the length word,
    as Java's limit does.
    """
    commands: list[Command] = []
    start = 0
    view = memoryview(data)
    try:
        while len(data) - start >= LENGTH_BYTES:
            (size,) = struct.unpack_from(">i", data, start)
            if size < HEADER_WORD_BYTES or size > frame_bytes_max - LENGTH_BYTES:
                return commands, start, _bad_frame_length(size, frame_bytes_max)
            if len(data) - start < LENGTH_BYTES + HEADER_WORD_BYTES:
                break
            # Judged before the rest arrives: a bad announcement costs no memory.
            if bad := _bad_header_word(data, start, size, header_bytes_max):
                return commands, start, bad
            stop = start + LENGTH_BYTES + size
            if stop > len(data):
                break
            (word,) = struct.unpack_from(">I", data, start + LENGTH_BYTES)
            header_start = start + LENGTH_BYTES + HEADER_WORD_BYTES
            body_start = header_start + (word & HEADER_BYTES_LIMIT)
            try:
                header = decode_header(bytes(view[header_start:body_start]), word >> 24)
            except PeerProtocolError as error:
                return commands, start, str(error)
            commands.append(
                Command(
                    header.code,
                    header.ext,
                    bytes(view[body_start:stop]),
                    opaque=header.opaque,
                    flag=header.flag,
                    remark=header.remark,
                    language=header.language,
                    version=header.version,
                    serializer=word >> 24,
                )
            )
            start = stop
        return commands, start, ""
    finally:
        view.release()


def _bad_frame_length(size: int, frame_bytes_max: int) -> str:
    if size < HEADER_WORD_BYTES:
        return f"frame length {size} is too small to hold a header"
    return f"frame of {size + LENGTH_BYTES} bytes; the limit is {frame_bytes_max}"


def _bad_header_word(
    data: bytes | bytearray, start: int, size: int, header_bytes_max: int
) -> str | None:
    (word,) = struct.unpack_from(">I", data, start + LENGTH_BYTES)
    serializer, header_bytes = word >> 24, word & HEADER_BYTES_LIMIT
    if serializer not in {JSON_HEADER, BINARY_HEADER}:
        return f"unknown header serializer {serializer}"
    if header_bytes > size - HEADER_WORD_BYTES:
        return f"header of {header_bytes} bytes in a frame of {size + LENGTH_BYTES}"
    if header_bytes > header_bytes_max:
        return f"header of {header_bytes} bytes; the limit is {header_bytes_max}"
    return None


class Header(NamedTuple):
    """The fields of a decoded header, whichever way it was serialized."""

    code: int
    language: int
    version: int
    opaque: int
    flag: int
    remark: str | None
    ext: dict[str, str]


def decode_header(raw: bytes, serializer: int) -> Header:
    """Decode one header; the compiled twin comes here for everything that is not ordinary."""
    return _decode_json(raw) if serializer == JSON_HEADER else _decode_binary(raw)


def _decode_json(raw: bytes) -> Header:
    try:
        # Numbers stay text: extension values are text anyway, and a hostile 10,000-digit
        # number is never converted. Broken UTF-8 becomes U+FFFD, as in Java.
        fields = json.loads(
            raw.decode("utf-8", "replace"),
            parse_int=str,
            parse_float=str,
            parse_constant=_refuse_constant,
        )
    except RecursionError:
        raise PeerProtocolError("JSON header is nested too deeply") from None
    except ValueError as error:
        raise PeerProtocolError(f"JSON header is malformed: {error}") from None
    if not isinstance(fields, dict):
        raise PeerProtocolError("JSON header is not an object")
    ext_fields = fields.get("extFields")
    if ext_fields is not None and not isinstance(ext_fields, dict):
        raise PeerProtocolError("extFields of the JSON header is not an object")
    ext: dict[str, str] = {}
    for name, value in (ext_fields or {}).items():
        text = _text(value, name)
        if text is not None:
            ext[name] = text
    return Header(
        code=_int32(fields, "code"),
        language=_language(fields.get("language")),
        version=_int32(fields, "version"),
        opaque=_int32(fields, "opaque"),
        flag=_int32(fields, "flag"),
        remark=_text(fields.get("remark"), "remark"),
        ext=ext,
    )


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _text(value: object, name: str) -> str | None:
    """An extension value as text: Node and C++ clients send numbers and booleans."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    raise PeerProtocolError(f"header field {name[:80]!r} is neither text nor a number")


def _int32(fields: dict[str, object], name: str) -> int:
    value = fields.get(name)
    if value is None:
        return 0  # Java's default for a missing number
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        number = int(value)
        if _INT32_MIN <= number <= _INT32_MAX:
            return number
    raise PeerProtocolError(f"header field {name!r} is not a 32-bit integer")


def _language(value: object) -> int:
    if value is None:
        return LANGUAGE_JAVA
    if isinstance(value, str):
        if value in _LANGUAGE_OF_NAME:
            return _LANGUAGE_OF_NAME[value]
        # fastjson also reads an enum by its ordinal, and the ordinals are the codes.
        if _DECIMAL.fullmatch(value) and 0 <= int(value) < len(LANGUAGES):
            return int(value)
    return LANGUAGE_OTHER


def _decode_binary(raw: bytes) -> Header:
    if len(raw) < BINARY_FIXED.size + 4:
        raise PeerProtocolError(f"binary header of {len(raw)} bytes; 21 is the least")
    code, language, version, opaque, flag, remark_bytes = BINARY_FIXED.unpack_from(raw)
    at = BINARY_FIXED.size
    if not 0 <= remark_bytes <= len(raw) - at - 4:
        raise PeerProtocolError(f"binary header: remark of {remark_bytes} bytes does not fit")
    remark = raw[at : at + remark_bytes].decode("utf-8", "replace") if remark_bytes else None
    at += remark_bytes
    (ext_bytes,) = struct.unpack_from(">i", raw, at)
    at += 4
    if not 0 <= ext_bytes <= len(raw) - at:
        raise PeerProtocolError(f"binary header: fields of {ext_bytes} bytes do not fit")
    return Header(
        code=code,
        language=language if 0 <= language < len(LANGUAGES) else LANGUAGE_OTHER,
        version=version,
        opaque=opaque,
        flag=flag,
        remark=remark,
        ext=_decode_binary_ext(raw, at, at + ext_bytes),
    )


# One extension field of a binary header, repeated until the announced bytes are used up:
#
#   | name length | name | value length | value |
#   | 2 bytes     | ...  | 4 bytes      | ...   |
def _decode_binary_ext(raw: bytes, at: int, stop: int) -> dict[str, str]:
    ext: dict[str, str] = {}
    while at < stop:
        if stop - at < 2:
            raise PeerProtocolError("binary header: fields end inside a name length")
        (name_bytes,) = struct.unpack_from(">h", raw, at)
        at += 2
        if not 0 <= name_bytes <= stop - at - 4:
            raise PeerProtocolError(f"binary header: field name of {name_bytes} bytes")
        name = raw[at : at + name_bytes].decode("utf-8", "replace")
        at += name_bytes
        (value_bytes,) = struct.unpack_from(">i", raw, at)
        at += 4
        if not 0 <= value_bytes <= stop - at:
            raise PeerProtocolError(f"binary header: field value of {value_bytes} bytes")
        if name and value_bytes:  # Java reads an empty name or value as null
            ext[name] = raw[at : at + value_bytes].decode("utf-8", "replace")
        at += value_bytes
    return ext
