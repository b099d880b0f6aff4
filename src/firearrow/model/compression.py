"""Bodies packed and unpacked, and the bits of the system flag that say how.

Producers pack, consumers and tools unpack; brokers pass bodies on as they are. LZ4 and Zstandard
come from packages of the extra `server`, imported when first used.
"""

from __future__ import annotations

import importlib
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from firearrow.base.errors import FirearrowError
from firearrow.model.message import FLAG_COMPRESSED, FLAG_COMPRESSION

if TYPE_CHECKING:
    from collections.abc import Callable

    Packer = Callable[[Any, bytes, int], bytes]
    Unpacker = Callable[[Any, bytes, int], bytes]


class Compression(StrEnum):
    """How a body is packed."""

    ZLIB = "zlib"
    LZ4 = "lz4"  # frames
    ZSTD = "zstd"


# RocketMQ's default. LZ4 has no use for a level, neither there nor here.
LEVEL: Final = 5
# Producers refuse to send more than 4 MiB; the limit is there for damaged or hostile bytes.
BODY_BYTES_MAX: Final = 256 << 20

#   bit  10  9  8 │ 7 … 1 │ 0
#        kind     │       │ packed
#
# Producers before 4.9.4 know zlib only and leave the kind 0. Zlib has a kind of its own since.
_KINDS: Final = {
    0x000: Compression.ZLIB,
    0x100: Compression.LZ4,
    0x200: Compression.ZSTD,
    0x300: Compression.ZLIB,
}
_WRITTEN_KINDS: Final = {
    Compression.LZ4: 0x100,
    Compression.ZSTD: 0x200,
    Compression.ZLIB: 0x300,
}


class CompressionError(FirearrowError):
    """A body cannot be packed or unpacked; the text says why."""


# --- the system flag --------------------------------------------------------------------------


def compression_of(sys_flag: int) -> str | None:
    """How a body is packed: a `Compression`, or ``unknown``; None if it is not."""
    if not sys_flag & FLAG_COMPRESSED:
        return None
    return _KINDS.get(sys_flag & FLAG_COMPRESSION, "unknown")


def with_compression(sys_flag: int, compression: Compression | None) -> int:
    """The flag of the same message with its body packed so, or (None) not packed."""
    rest = sys_flag & ~(FLAG_COMPRESSED | FLAG_COMPRESSION)
    return rest if compression is None else rest | FLAG_COMPRESSED | _WRITTEN_KINDS[compression]


# --- bodies -----------------------------------------------------------------------------------


def pack(body: bytes, compression: Compression, level: int = LEVEL) -> bytes:
    """Compress; CompressionError when the level makes no sense or the package is missing."""
    module = _module(compression)
    try:
        return _PACKERS[compression](module, body, level)
    except Exception as error:  # each package has errors of its own, some of them plain ones
        raise CompressionError(f"{compression} at level {level}: {error}") from error


def unpack(body: bytes, compression: str, *, bytes_max: int = BODY_BYTES_MAX) -> bytes:
    """Decompress; CompressionError when the bytes are wrong or the package is missing."""
    if compression not in _UNPACKERS:
        raise CompressionError(f"{compression} compression")
    module = _module(compression)
    try:
        unpacked = _UNPACKERS[compression](module, body, bytes_max)
    except Exception as error:
        raise CompressionError(f"{compression}: {error}") from error
    if len(unpacked) > bytes_max:
        raise CompressionError(f"{compression}: unpacked it is longer than {bytes_max} bytes")
    return unpacked


def _module(compression: str) -> Any:  # noqa: ANN401 - a module, present or not
    package = _PACKAGES[compression]
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError:
        name = package.partition(".")[0]
        raise CompressionError(
            f"{compression} needs the package {name}: pip install {name}"
        ) from None


def _pack_zlib(module: Any, body: bytes, level: int) -> bytes:  # noqa: ANN401
    packed: bytes = module.compress(body, level)
    return packed


def _pack_lz4(module: Any, body: bytes, _: int) -> bytes:  # noqa: ANN401
    # Java reads only frames whose blocks stand alone; this package would link them.
    packed: bytes = module.compress(body, block_linked=False)
    return packed


def _pack_zstd(module: Any, body: bytes, level: int) -> bytes:  # noqa: ANN401
    packed: bytes = module.ZstdCompressor(level=level).compress(body)
    return packed


def _unpack_zlib(module: Any, body: bytes, bytes_max: int) -> bytes:  # noqa: ANN401
    worker = module.decompressobj()
    return _whole(worker, worker.decompress(body, bytes_max + 1), bytes_max)


def _unpack_lz4(module: Any, body: bytes, bytes_max: int) -> bytes:  # noqa: ANN401
    worker = module.LZ4FrameDecompressor()
    return _whole(worker, worker.decompress(body, bytes_max + 1), bytes_max)


def _unpack_zstd(module: Any, body: bytes, bytes_max: int) -> bytes:  # noqa: ANN401
    worker = module.ZstdDecompressor().decompressobj()
    unpacked = bytearray()
    for at in range(0, len(body), 1024):  # it knows no limit, and 4 bytes may become 128 KiB
        unpacked += worker.decompress(body[at : at + 1024])
        if worker.eof or len(unpacked) > bytes_max:
            break
    return _whole(worker, unpacked, bytes_max)


def _whole(worker: Any, unpacked: bytes | bytearray, bytes_max: int) -> bytes:  # noqa: ANN401
    if not worker.eof and len(unpacked) <= bytes_max:
        raise CompressionError("the stream stops early")
    return bytes(unpacked)


_PACKAGES: Final[dict[str, str]] = {"zlib": "zlib", "lz4": "lz4.frame", "zstd": "zstandard"}
_PACKERS: Final[dict[str, Packer]] = {
    "zlib": _pack_zlib,
    "lz4": _pack_lz4,
    "zstd": _pack_zstd,
}
_UNPACKERS: Final[dict[str, Unpacker]] = {
    "zlib": _unpack_zlib,
    "lz4": _unpack_lz4,
    "zstd": _unpack_zstd,
}
