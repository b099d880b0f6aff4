"""Bodies as the application sees them: unpacked, and inner batches taken apart.

The store keeps what producers sent; only tools that show messages need this. LZ4 and Zstandard
come from packages of the extra `server`. Without one the body stays as stored and a note says so.
"""

from __future__ import annotations

import importlib
import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from firearrow.hot import decode_properties
from firearrow.model.message import (
    FLAG_COMPRESSED,
    FLAG_COMPRESSION,
    FLAG_INNER_BATCH,
    FLAG_NEED_UNWRAP,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from firearrow.hot import Record

COMPRESSIONS: Final = {0x000: "zlib", 0x100: "lz4", 0x200: "zstd", 0x300: "zlib"}
# Producers refuse to send more than 4 MiB; the limit is there for damaged or hostile bytes.
BODY_BYTES_MAX: Final = 256 << 20
# One message inside an inner batch; the two zero words are a magic code and a CRC nobody fills:
#
#   | size 4 | 0 4 | 0 4 | flag 4 | body length 4 | body | properties length 2 | properties |
_INNER: Final = struct.Struct(">iiiii")
_INNER_BYTES_MIN: Final = _INNER.size + 2


class UnpackError(Exception):
    """A body cannot be unpacked; the text says why."""


class Message(NamedTuple):
    """One message as a consumer would get it."""

    record: Record
    queue_offset: int
    flag: int
    properties: dict[str, str]
    body: bytes
    note: str  # why the body is still packed; empty if it is not
    inner_index: int | None  # place in its inner batch


def compression_of(sys_flag: int) -> str | None:
    """How a body is packed; None if it is not."""
    if not sys_flag & FLAG_COMPRESSED:
        return None
    return COMPRESSIONS.get(sys_flag & FLAG_COMPRESSION, "unknown")


def is_inner_batch(sys_flag: int) -> bool:
    wrapped = FLAG_INNER_BATCH | FLAG_NEED_UNWRAP
    return sys_flag & wrapped == wrapped


def messages_of(record: Record) -> list[Message]:
    """The message of a record, or those of its inner batch. Never raises on odd bytes."""
    body, note = record.body, ""
    compression = compression_of(record.sys_flag)
    if compression is not None and body:
        try:
            body = unpack(body, compression)
        except UnpackError as error:
            note = f"body as stored: {error}"
    if is_inner_batch(record.sys_flag) and not note:
        inner = split_inner_batch(body)
        if inner is not None:
            return [
                Message(record, record.queue_offset + index, flag, properties, part, "", index)
                for index, (flag, properties, part) in enumerate(inner)
            ]
        note = "body as stored: it is not an inner batch, although the record says so"
    properties = decode_properties(record.properties)
    return [Message(record, record.queue_offset, record.flag, properties, body, note, None)]


def split_inner_batch(body: bytes) -> list[tuple[int, dict[str, str], bytes]] | None:
    """Flag, properties and body of each message; None if the bytes do not divide up exactly."""
    found: list[tuple[int, dict[str, str], bytes]] = []
    at = 0
    while at < len(body):
        if len(body) - at < _INNER_BYTES_MIN:
            return None
        size, _, _, flag, length = _INNER.unpack_from(body, at)
        body_at = at + _INNER.size
        if not (_INNER_BYTES_MIN <= size <= len(body) - at):
            return None
        if not 0 <= length <= size - _INNER_BYTES_MIN:
            return None
        properties_at = body_at + length + 2
        properties_bytes = int.from_bytes(body[properties_at - 2 : properties_at], "big")
        if properties_at + properties_bytes != at + size:
            return None
        text = body[properties_at : at + size].decode("utf-8", "replace")
        found.append((flag, decode_properties(text), body[body_at : body_at + length]))
        at += size
    return found


def unpack(body: bytes, compression: str) -> bytes:
    """Decompress; raises UnpackError when the bytes are wrong or the package is missing."""
    if compression not in _UNPACKERS:
        raise UnpackError(f"{compression} compression")
    package, unpacker = _UNPACKERS[compression]
    try:
        unpacked = unpacker(importlib.import_module(package), body)
    except ModuleNotFoundError:
        name = package.partition(".")[0]
        raise UnpackError(f"{compression} needs the package {name}: pip install {name}") from None
    except Exception as error:  # each package has errors of its own, some of them plain ones
        raise UnpackError(f"{compression}: {error}") from error
    if len(unpacked) > BODY_BYTES_MAX:
        raise UnpackError(f"{compression}: unpacked it is longer than {BODY_BYTES_MAX} bytes")
    return unpacked


def _unpack_zlib(module: Any, body: bytes) -> bytes:  # noqa: ANN401 - a module, present or not
    worker = module.decompressobj()
    return _whole(worker, worker.decompress(body, BODY_BYTES_MAX + 1))


def _unpack_lz4(module: Any, body: bytes) -> bytes:  # noqa: ANN401
    worker = module.LZ4FrameDecompressor()
    return _whole(worker, worker.decompress(body, BODY_BYTES_MAX + 1))


def _unpack_zstd(module: Any, body: bytes) -> bytes:  # noqa: ANN401
    worker = module.ZstdDecompressor().decompressobj()
    unpacked = bytearray()
    for at in range(0, len(body), 1024):  # it knows no limit, and 4 bytes may become 128 KiB
        unpacked += worker.decompress(body[at : at + 1024])
        if worker.eof or len(unpacked) > BODY_BYTES_MAX:
            break
    return _whole(worker, unpacked)


def _whole(worker: Any, unpacked: bytes | bytearray) -> bytes:  # noqa: ANN401
    if not worker.eof and len(unpacked) <= BODY_BYTES_MAX:
        raise UnpackError("the stream stops early")
    return bytes(unpacked)


_UNPACKERS: Final[dict[str, tuple[str, Callable[[Any, bytes], bytes]]]] = {
    "zlib": ("zlib", _unpack_zlib),
    "lz4": ("lz4.frame", _unpack_lz4),
    "zstd": ("zstandard", _unpack_zstd),
}
