"""What real clients send every day goes through the compiled lanes of a broker.

`data/README.md` says where the frames come from.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any, Final

import pytest

from firearrow.hot.reference.sending import SPECIAL_PROPERTIES

native: Any = pytest.importorskip(
    "firearrow.hot.native", reason="no compiled twin here: there was no C compiler at install"
)

DATA: Final = Path(__file__).parent / "data" / "frames.jsonl.gz"
HOST: Final = bytes([127, 0, 0, 1, 0, 0, 42, 159])
CLIENTS: Final = (
    "java-client-5.3.3",
    "java-client-4.9.8",
    "go-client-2.1.2",
    "node-ali-ons-3.12.0",
)
SENDS: Final = {10, 310, 320}
PULLS: Final = {11, 361}
LOG_BYTES: Final = 1 << 20


def recorded(client: str, codes: set[int]) -> list[tuple[bytes, Any]]:
    """Requests of a client in JSON, and what they say."""
    found = []
    with gzip.open(DATA, "rt", encoding="utf-8") as lines:
        for entry in map(json.loads, lines):
            if (
                entry["from"] == client
                and entry["to"] == "broker"
                and entry["code"] in codes
                and entry["serializer"] == "JSON"
                and not entry["flag"] & 1
            ):
                frame = bytes.fromhex(entry["hex"])
                (command,), _, _ = native.decode_frames(frame, 1 << 24, 1 << 20)
                found.append((frame, command))
    return found


def new_log() -> tuple[Any, bytearray]:
    log = bytearray(LOG_BYTES)
    writer = native.LogWriter(HOST, LOG_BYTES)
    writer.open(memoryview(log), start=0, position=0, room=LOG_BYTES)
    return writer, log


def is_everyday(command: Any) -> bool:
    """A message with its own id and nothing that needs a rule, or a batch."""
    text = command.ext.get("i", command.ext.get("properties", ""))
    properties = native.decode_properties(text)
    return (
        not properties.keys() & SPECIAL_PROPERTIES
        and text.isascii()
        and properties.get("WAIT", "true") == "true"
        and ("UNIQ_KEY" in properties or command.code == 320)
        and not {"MSG_REGION", "CLUSTER"} & properties.keys()
        and all(properties.values())
        and bool(command.body)
    )


@pytest.mark.parametrize("client", CLIENTS)
def test_everyday_messages_of_a_client_take_the_lane(client: str) -> None:
    everyday = 0
    for frame, command in recorded(client, SENDS):
        topic = command.ext.get("b") or command.ext["topic"]
        gate = native.TopicGate(topic, [native.QueueTail(topic, n) for n in range(16)])
        writer, _ = new_log()
        path = native.SendPath(writer, {topic.encode(): gate}, {"CLUSTER": "c"}, {"TRACE_ON": "t"})
        served = path.serve(frame, 1 << 24, HOST, 1)
        if is_everyday(command):
            everyday += 1
            assert served.used == len(frame), command.ext
    # Node's client leaves it to the broker to make ids, which is the general handler's work.
    assert everyday >= (0 if client.startswith("node") else 3)


@pytest.mark.parametrize("client", CLIENTS)
def test_pulls_of_a_client_take_the_lane(client: str) -> None:
    pulls = recorded(client, PULLS)
    assert len(pulls) >= 7
    for frame, command in pulls:
        ext = command.ext
        writer, log = new_log()
        queue = native.QueueTail(ext["topic"], int(ext["queueId"]))
        queue.next_offset = queue.max_offset = queue.tail_first = int(ext["queueOffset"])
        message = native.StoreMessage(ext["topic"], queue.queue_id, b"body")
        writer.append(message, queue, 1)
        queue.add_entry(message.physical_offset, message.size, 0)
        own = ""
        if int(ext["sysFlag"]) & 4:
            own = native.own_filter(ext.get("subscription"), ext.get("expressionType"))
        gate = native.PullGate(
            ext["topic"],
            ext["consumerGroup"],
            [queue] * (queue.queue_id + 1),
            codes=None,
            sub_version=1 << 62,
            most=32,
            bytes_max=1 << 18,
            scan=800,
            committed={},
            pulled={},
            reply={"nextBeginOffset": "", "minOffset": "", "maxOffset": ""},
        )
        path = native.PullPath(
            writer,
            {native.pull_key(command.code, gate.group, gate.topic, own): gate},
            {0: memoryview(log)},
            file_bytes=LOG_BYTES,
            entries_per_file=1 << 40,
            memory_bytes=LOG_BYTES,
            verified_from=0,
            look_ahead=lambda *_: None,
        )
        assert path.serve(frame, 1 << 24, 1 << 20).pulls == 1, ext
