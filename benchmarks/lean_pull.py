"""A consumer that costs its machine little: raw sockets, replies skipped by their length.

    python -m benchmarks.lean_pull 127.0.0.1:10911 --topic bench --messages 300000

Reads a backlog from offset 0 with one pull in flight per queue, as a push consumer does, and begins
again where a queue ends. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import re
import socket
import sys
import time
from typing import Final

from firearrow.hot import Command, encode_frame

RECEIVE_BYTES: Final = 1024 * 1024
GROUP: Final = "lean-pull"
_NEXT: Final = re.compile(rb'"nextBeginOffset":"(\d+)"')
_OPAQUE: Final = re.compile(rb'"opaque":(\d+)')


def heartbeat_frame(topic: str) -> bytes:
    """What makes the broker know the group and what it subscribes to."""
    subscription = {
        "topic": topic,
        "subString": "*",
        "tagsSet": [],
        "codeSet": [],
        "subVersion": 1,
        "expressionType": "TAG",
        "classFilterMode": False,
    }
    said = {
        "clientID": "lean@1",
        "producerDataSet": [],
        "consumerDataSet": [
            {
                "groupName": GROUP,
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                "subscriptionDataSet": [subscription],
                "unitMode": False,
            }
        ],
    }
    return encode_frame(Command(34, {}, json.dumps(said).encode(), opaque=999_999, language=0))


def pull_frame(topic: str, queue_id: int, offset: int, count: int) -> bytes:
    """What a Java 5.3 push consumer sends."""
    fields = {
        "queueId": str(queue_id),
        "maxMsgNums": str(count),
        "sysFlag": "0",  # at the end of a queue it begins again, so nobody waits there
        "suspendTimeoutMillis": "15000",
        "commitOffset": "0",
        "topic": topic,
        "queueOffset": str(offset),
        "expressionType": "TAG",
        "subVersion": "1",
        "consumerGroup": GROUP,
    }
    return encode_frame(Command(11, fields, opaque=queue_id, language=0))


def run(address: str, *, topic: str, messages: int, queues: int, count: int) -> dict[str, float]:
    host, _, port = address.rpartition(":")
    line = socket.create_connection((host, int(port)))
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    line.sendall(heartbeat_frame(topic))
    line.recv(4096)
    offsets = [0] * queues
    started = time.perf_counter()
    line.sendall(b"".join(pull_frame(topic, queue, 0, count) for queue in range(queues)))
    buffer = bytearray()
    done = failed = pulls = 0
    while done < messages:
        data = line.recv(RECEIVE_BYTES)
        if not data:
            raise ConnectionError("the broker hung up")
        buffer += data
        at = 0
        asks = []
        while len(buffer) - at >= 8:
            size = 4 + int.from_bytes(buffer[at : at + 4], "big")
            if len(buffer) - at < size:
                break
            header = bytes(buffer[at + 8 : at + 8 + int.from_bytes(buffer[at + 5 : at + 8], "big")])
            at += size
            found = _OPAQUE.search(header)
            if found is None or int(found[1]) >= queues:
                continue  # a notice of the broker
            queue = int(found[1])
            behind = _NEXT.search(header)
            if b'"code":0,' in header and behind is not None:
                done += int(behind[1]) - offsets[queue]
                offsets[queue] = int(behind[1])
                pulls += 1
            else:
                failed += b'"code":19,' not in header
                offsets[queue] = 0
            asks.append(pull_frame(topic, queue, offsets[queue], count))
        del buffer[:at]
        if asks:
            line.sendall(b"".join(asks))
    spent = time.perf_counter() - started
    return {
        "messages": done,
        "pulls": pulls,
        "failed": failed,
        "seconds": round(spent, 3),
        "per_second": round(done / spent),
        "p50_ms": 0.0,
        "p99_ms": 0.0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("--topic", default="bench")
    parser.add_argument("--messages", type=int, default=300_000)
    parser.add_argument("--queues", type=int, default=4)
    parser.add_argument("--count", type=int, default=32)
    given = parser.parse_args()
    result = run(
        given.address,
        topic=given.topic,
        messages=given.messages,
        queues=given.queues,
        count=given.count,
    )
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
