"""Hashes, ids and property strings: small things that must equal Java's to the bit."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME_VALUE: Final = "\x01"
_PAIR_END: Final = "\x02"


def java_hash(text: str) -> int:
    """Java's ``String.hashCode``: consume queues store it per tag, index files per key."""
    value = 0
    for unit in memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H"):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def crc31(data: bytes | bytearray | memoryview) -> int:
    """CRC-32 without its top bit, so that Java can keep it in a signed int."""
    return zlib.crc32(data) & 0x7FFFFFFF


def encode_properties(properties: Mapping[str, str]) -> str:
    """``name 01 value 02`` per pair, with the trailing 02 that RocketMQ 5.2 and later write.

    There is no escaping, so a separator inside a name or value is refused. Empty names and values
    are refused too: every reader drops them silently.
    """
    parts: list[str] = []
    for name, value in properties.items():
        if not name or not value:
            raise ValueError(f"property {name!r} is empty; RocketMQ cannot carry empty properties")
        if _NAME_VALUE in name or _PAIR_END in name or _NAME_VALUE in value or _PAIR_END in value:
            raise ValueError(f"property {name!r} contains U+0001 or U+0002, the separators")
        parts.append(f"{name}{_NAME_VALUE}{value}{_PAIR_END}")
    return "".join(parts)


def decode_properties(text: str) -> dict[str, str]:
    """Read a property string as Java does: pairs without a name or a value do not exist."""
    properties: dict[str, str] = {}
    for pair in text.split(_PAIR_END):
        name, _, value = pair.partition(_NAME_VALUE)
        if name and value:
            properties[name] = value
    return properties


# offsetMsgId, in upper-case hex:
#
#   | store host IP  | port    | physical offset |
#   | 4 or 16 bytes  | 4 bytes | 8 bytes         |
def offset_message_id(ip: bytes, port: int, physical_offset: int) -> str:
    """The id that the broker gives a message: where it lies, so that it can be fetched by id."""
    if len(ip) not in {4, 16}:
        raise ValueError(f"an IP address of {len(ip)} bytes; 4 or 16 expected")
    if not (0 <= port < 1 << 32 and 0 <= physical_offset < 1 << 63):
        raise ValueError(f"port {port} or offset {physical_offset} out of range")
    return f"{ip.hex()}{port:08x}{physical_offset:016x}".upper()


def parse_offset_message_id(text: str) -> tuple[bytes, int, int]:
    """Take an offsetMsgId apart: IP, port, physical offset."""
    raw = _unhex(text, {32, 56}, "an offset message id")
    ip_bytes = len(raw) - 12
    return (
        raw[:ip_bytes],
        int.from_bytes(raw[ip_bytes : ip_bytes + 4], "big"),
        int.from_bytes(raw[ip_bytes + 4 :], "big"),
    )


# Client-side message id (property UNIQ_KEY), in upper-case hex:
#
#   | client IP      | pid     | class loader hash | ms since the month began | counter |
#   | 4 or 16 bytes  | 2 bytes | 4 bytes           | 4 bytes                  | 2 bytes |
def encode_unique_key(ip: bytes, pid: int, loader: int, since_month_ms: int, counter: int) -> str:
    """The id that a producer gives a message; pid and counter keep their low 16 bits."""
    if len(ip) not in {4, 16}:
        raise ValueError(f"an IP address of {len(ip)} bytes; 4 or 16 expected")
    return (
        f"{ip.hex()}{pid & 0xFFFF:04x}{loader & 0xFFFFFFFF:08x}"
        f"{since_month_ms & 0xFFFFFFFF:08x}{counter & 0xFFFF:04x}"
    ).upper()


def parse_unique_key(text: str) -> tuple[bytes, int, int, int, int]:
    """Take a UNIQ_KEY apart: IP, pid, class loader hash, ms since the month began, counter."""
    raw = _unhex(text, {32, 56}, "a unique key")
    at = len(raw) - 12
    return (
        raw[:at],
        int.from_bytes(raw[at : at + 2], "big"),
        int.from_bytes(raw[at + 2 : at + 6], "big"),
        int.from_bytes(raw[at + 6 : at + 10], "big"),
        int.from_bytes(raw[at + 10 :], "big"),
    )


def _unhex(text: str, lengths: set[int], what: str) -> bytes:
    if len(text) not in lengths or not set(text) <= set("0123456789ABCDEFabcdef"):
        raise ValueError(f"{text[:80]!r} is not {what}: 32 or 56 hex digits expected")
    return bytes.fromhex(text)
