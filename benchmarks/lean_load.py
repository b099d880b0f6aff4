"""A load that costs its machine little: raw sockets, frames made beforehand, replies only counted.

    python -m benchmarks.lean_load 127.0.0.1:10911 --topic bench --size 1024 --seconds 5

Prints one JSON object. It knows nothing of routes or retries: the topic must exist on that broker.
"""

from __future__ import annotations

import argparse
import json
import selectors
import socket
import struct
import sys
import time
from typing import Final

from firearrow.hot import Command, encode_frame

BLOB_FRAMES: Final = 32  # sent with one system call
RECEIVE_BYTES: Final = 256 * 1024


def send_fields(topic: str, queue_id: int) -> dict[str, str]:
    return {
        "a": "bench",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue_id),
        "f": "0",
        "g": str(int(time.time() * 1000)),
        "h": "0",
        "i": "UNIQ_KEY\x017F0000011DDE4E0E2F2A49FC9F6B0000\x02WAIT\x01true\x02TAGS\x01TagA\x02",
        "j": "0",
        "k": "false",
        "m": "false",
        "n": "broker-a",
    }


def send_frame(topic: str, queue_id: int, body: bytes) -> bytes:
    """What a Java 5.3 producer sends for one message."""
    return encode_frame(Command(310, send_fields(topic, queue_id), body, opaque=7, language=0))


def batch_frame(topic: str, queue_id: int, body: bytes, count: int) -> bytes:
    """What a Java 5.3 producer sends for many messages at once."""
    own = b"UNIQ_KEY\x017F0000011DDE4E0E2F2A49FC9F6B0001\x02WAIT\x01true\x02"
    size = 22 + len(body) + len(own)
    one = struct.pack(">iiiii", size, 0, 0, 0, len(body)) + body + struct.pack(">h", len(own)) + own
    fields = send_fields(topic, queue_id) | {"m": "true"}
    return encode_frame(Command(320, fields, one * count, opaque=7, language=0))


class Line:
    """One connection with a window of messages that are not answered yet."""

    def __init__(
        self, address: tuple[str, int], blob: bytes, blob_frames: int, window: int
    ) -> None:
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._blob = blob
        self._blob_frames = blob_frames
        self._window = window
        self._rest = b""
        self._reply_bytes = bytearray()
        self.in_flight = 0
        self.answered = 0
        self.failed = 0
        self._sent_at: list[float] = []
        self._done_of_first = 0
        self.latencies: list[float] = []

    def fill(self) -> None:
        """Send as much as the window allows."""
        while self.in_flight + self._blob_frames <= self._window:
            self.socket.sendall(self._blob)
            self._sent_at.append(time.perf_counter())
            self.in_flight += self._blob_frames

    def receive(self) -> None:
        data = self.socket.recv(RECEIVE_BYTES)
        if not data:
            raise ConnectionError("the broker hung up")
        buffer = self._reply_bytes
        buffer += data
        at, end = 0, len(buffer)
        count = 0
        while end - at >= 4:
            size = 4 + int.from_bytes(buffer[at : at + 4], "big")
            if end - at < size:
                break
            if buffer.find(b'"code":0,', at, at + 60) < 0:
                self.failed += 1
            at += size
            count += 1
        del buffer[:at]
        self._done(count)

    def _done(self, count: int) -> None:
        self.in_flight -= count
        self.answered += count
        self._done_of_first += count
        now = time.perf_counter()
        while self._done_of_first >= self._blob_frames:
            self._done_of_first -= self._blob_frames
            self.latencies.append(now - self._sent_at.pop(0))


def run(
    address: str,
    *,
    topic: str,
    size: int,
    seconds: float,
    lines: int,
    in_flight: int,
    batch: int,
    blob: int,
) -> dict[str, float]:
    host, _, port = address.rpartition(":")
    blob_frames = blob if batch == 1 else 1
    window = max(blob_frames, in_flight // lines)
    body = bytes(range(256)) * (size // 256) + bytes(size % 256)
    chooser = selectors.DefaultSelector()
    open_lines = []
    for number in range(lines):
        if batch == 1:
            data = b"".join(send_frame(topic, (number + k) % 4, body) for k in range(blob_frames))
        else:
            data = batch_frame(topic, number % 4, body, batch)
        line = Line((host, int(port)), data, blob_frames, window)
        chooser.register(line.socket, selectors.EVENT_READ, line)
        open_lines.append(line)
    started = time.perf_counter()
    for line in open_lines:
        line.fill()
    while (now := time.perf_counter()) - started < seconds:
        for key, _ in chooser.select(1.0):
            line = key.data
            line.receive()
            line.fill()
    spent = now - started
    latencies = sorted(latency for line in open_lines for latency in line.latencies)
    answered = batch * sum(line.answered for line in open_lines)
    return {
        "messages": answered,
        "failed": sum(line.failed for line in open_lines),
        "seconds": round(spent, 3),
        "per_second": round(answered / spent),
        "p50_ms": round(1000 * latencies[len(latencies) // 2], 3) if latencies else 0.0,
        "p99_ms": round(1000 * latencies[len(latencies) * 99 // 100], 3) if latencies else 0.0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("--topic", default="bench")
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--lines", type=int, default=4)
    parser.add_argument("--in-flight", type=int, default=512, help="requests")
    parser.add_argument("--blob", type=int, default=BLOB_FRAMES, help="requests of a system call")
    parser.add_argument("--batch", type=int, default=1, help="messages of a request")
    given = parser.parse_args()
    result = run(
        given.address,
        topic=given.topic,
        size=given.size,
        seconds=given.seconds,
        lines=given.lines,
        in_flight=given.in_flight,
        batch=given.batch,
        blob=given.blob,
    )
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
