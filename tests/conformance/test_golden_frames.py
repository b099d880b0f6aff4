"""Every recorded frame is understood, and written again: to the byte where that is ours to choose.

`data/README.md` says where the frames come from.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any, Final

import pytest

from firearrow.hot import Command, decode_frames, encode_frame
from firearrow.wire.command import FRAME_BYTES_MAX, HEADER_BYTES_MAX, FrameDecoder

DATA: Final = Path(__file__).parent / "data" / "frames.jsonl.gz"
FIELDS: Final = ("code", "language", "version", "opaque", "flag", "remark", "ext", "body")
# Java writes this key for itself and ignores it on input; we leave it out.
JAVA_ONLY: Final = b',"serializeTypeCurrentRPC":"JSON"'

# Binary frames that say too much: an empty field, which Java reads as absent, or (signed requests)
# every field twice.
REDUNDANT: Final = {668, 1014, 1238, 1426}


def recorded() -> list[dict[str, Any]]:
    with gzip.open(DATA, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


RECORDED: Final = recorded()


def decode(frame: bytes) -> Command:
    (command,), used, bad = decode_frames(frame, FRAME_BYTES_MAX, HEADER_BYTES_MAX)
    assert (used, bad) == (len(frame), "")
    return command


def fields(command: Command) -> dict[str, object]:
    return {name: getattr(command, name) for name in FIELDS}


def test_the_recording_holds_both_serializations_of_several_senders() -> None:
    assert len(RECORDED) > 1_700
    kinds = {(entry["from"].split("-")[0], entry["serializer"]) for entry in RECORDED}
    assert {("java", "JSON"), ("java", "ROCKETMQ"), ("go", "JSON"), ("node", "JSON")} <= kinds


def test_every_recorded_frame_decodes_to_what_its_record_says() -> None:
    for entry in RECORDED:
        command = decode(bytes.fromhex(entry["hex"]))
        said = (entry["code"], entry["opaque"], entry["flag"])
        assert (command.code, command.opaque, command.flag) == said, entry["id"]
        assert command.serializer == (1 if entry["serializer"] == "ROCKETMQ" else 0)
        assert all(isinstance(value, str) for value in command.ext.values())


def test_every_frame_means_the_same_after_we_wrote_it_again() -> None:
    for entry in RECORDED:
        command = decode(bytes.fromhex(entry["hex"]))
        assert fields(decode(encode_frame(command))) == fields(command), entry["id"]


def test_binary_frames_are_written_again_byte_for_byte() -> None:
    entries = [entry for entry in RECORDED if entry["serializer"] == "ROCKETMQ"]
    assert len(entries) > 300
    different = set()
    for entry in entries:
        frame = bytes.fromhex(entry["hex"])
        if encode_frame(decode(frame)) != frame:
            different.add(entry["id"])
    assert different == REDUNDANT


def test_json_frames_of_java_are_written_again_byte_for_byte_but_for_javas_own_key() -> None:
    equal = 0
    for entry in RECORDED:
        frame = bytes.fromhex(entry["hex"])
        if entry["serializer"] != "JSON" or JAVA_ONLY not in frame or b'"extFields":{}' in frame:
            continue
        command = decode(frame)
        header = frame[8 : len(frame) - len(command.body)].replace(JAVA_ONLY, b"", 1)
        assert encode_frame(command)[8:] == header + command.body, entry["id"]
        equal += 1
    assert equal > 1_000


@pytest.mark.parametrize("chunk_bytes", [1, 7, 4096, 1 << 20])
def test_a_stream_of_all_frames_is_split_the_same_however_it_is_cut(chunk_bytes: int) -> None:
    frames = [bytes.fromhex(entry["hex"]) for entry in RECORDED[:: 40 if chunk_bytes == 1 else 1]]
    stream = b"".join(frames)
    decoder = FrameDecoder()
    commands: list[Command] = []
    for at in range(0, len(stream), chunk_bytes):
        commands += decoder.feed(stream[at : at + chunk_bytes])
    assert decoder.failure is None
    assert [fields(command) for command in commands] == [fields(decode(f)) for f in frames]
