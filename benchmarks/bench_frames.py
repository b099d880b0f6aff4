"""Frames split and headers decoded, records encoded and scanned: the cost per message of `hot`.

Budget (design, section 4): a SEND_MESSAGE_V2 frame with a JSON header is split and decoded in
under 1 µs compiled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchmarks.harness import Measured, measure
from firearrow import hot

if TYPE_CHECKING:
    from collections.abc import Iterable

FRAMES_PER_CHUNK: Final = 64  # what one read of a busy connection brings
BODY: Final = bytes(range(256)) * 4
# What a Java 5.3 producer sends for a message with keys and a tag.
SEND_FIELDS: Final = {
    "a": "orders-service",
    "b": "orders",
    "c": "TBW102",
    "d": "4",
    "e": "1",
    "f": "0",
    "g": "1794732492652",
    "h": "0",
    "i": "KEYS\x01k1 k2\x02UNIQ_KEY\x017F0000011DDE4E0E2F2A49FC9F6B0000\x02WAIT\x01true\x02"
    "TAGS\x01TagA\x02",
    "j": "0",
    "k": "false",
    "m": "false",
    "n": "broker-a",
}
REPLY_FIELDS: Final = {
    "MSG_REGION": "DefaultRegion",
    "TRACE_ON": "true",
    "msgId": "C0A8010A00002A9F0000000000001234",
    "queueId": "0",
    "queueOffset": "17",
    "transactionId": "7F0000011DDE4E0E2F2A49FC9F6B0000",
}
PROPERTIES: Final = SEND_FIELDS["i"]


def send_chunk(serializer: int) -> bytes:
    frames = [
        hot.encode_frame(
            hot.Command(310, dict(SEND_FIELDS), BODY, opaque=i, language=0, serializer=serializer)
        )
        for i in range(FRAMES_PER_CHUNK)
    ]
    return b"".join(frames)


def decode(count: int, serializer: int) -> Iterable[bytes]:
    chunk = send_chunk(serializer)
    commands: list[hot.Command] = []
    for _ in range(max(1, count // FRAMES_PER_CHUNK)):
        commands, used, bad = hot.decode_frames(chunk, 1 << 24, 1 << 20)
        assert used == len(chunk), bad
    return [repr((c.code, c.opaque, sorted(c.ext.items()))).encode() for c in commands]


def encode_replies(count: int) -> Iterable[bytes]:
    reply = hot.Command(0, dict(REPLY_FIELDS), opaque=7, flag=1)
    frame = b""
    for _ in range(count):
        frame = hot.encode_frame(reply)
    return [frame]


def encode_records(count: int) -> Iterable[bytes]:
    record = hot.Record("orders", BODY, PROPERTIES, queue_id=3, queue_offset=17)
    raw = b""
    for _ in range(count):
        raw = hot.encode_record(record)
    return [raw]


def scan_records(count: int) -> Iterable[bytes]:
    raw = hot.encode_record(hot.Record("orders", BODY, PROPERTIES)) * 1_000
    scan = hot.scan_records(raw, 0, len(raw))
    for _ in range(count // 1_000 - 1):
        scan = hot.scan_records(raw, 0, len(raw))
    return [repr(scan.records[-1]).encode(), scan.ending.encode()]


def run() -> list[Measured]:
    size = {"small": 1_280, "large": 128_000}
    return [
        measure("split + decode SEND_MESSAGE_V2, JSON", "frames", lambda n: decode(n, 0), **size),
        measure("split + decode SEND_MESSAGE_V2, binary", "frames", lambda n: decode(n, 1), **size),
        measure("encode send reply, JSON", "frames", encode_replies, **size),
        measure("encode record, 1 KiB body", "records", encode_records, **size),
        measure("scan records, 1 KiB body", "records", scan_records, small=2_000, large=200_000),
    ]
