"""Frames at their limits, headers as Go, C++ and Node write them."""

from __future__ import annotations

import json
import struct

import pytest

from firearrow.hot import Command, decode_frames, encode_frame, encode_head

FRAME_MAX = 1024
HEADER_MAX = 512


def frame(header: bytes, body: bytes = b"", serializer: int = 0) -> bytes:
    words = struct.pack(">iI", 4 + len(header) + len(body), serializer << 24 | len(header))
    return words + header + body


def decode(data: bytes) -> tuple[list[Command], int, str]:
    return decode_frames(data, FRAME_MAX, HEADER_MAX)


def only(data: bytes) -> Command:
    (command,), used, bad = decode(data)
    assert (used, bad) == (len(data), "")
    return command


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (struct.pack(">i", 0), "frame length 0 is too small"),
        (struct.pack(">i", 3), "frame length 3 is too small"),
        (struct.pack(">i", -1), "frame length -1 is too small"),
        (struct.pack(">i", -(1 << 31)), "too small"),
        (struct.pack(">i", FRAME_MAX - 3), "frame of 1025 bytes; the limit is 1024"),
        (struct.pack(">i", (1 << 31) - 1), "the limit is 1024"),
        (struct.pack(">iI", 100, 0x02000000), "unknown header serializer 2"),
        (struct.pack(">iI", 100, 0xFF000000), "unknown header serializer 255"),
        (struct.pack(">iI", 100, 97), "header of 97 bytes in a frame of 104"),
        (struct.pack(">iI", 1000, 513), "header of 513 bytes; the limit is 512"),
        (b"GET / HTTP/1.1\r\n\r\n", "the limit is 1024"),
        (frame(b""), "malformed"),
        (frame(b"[]"), "not an object"),
        (frame(b'{"code":1,"extFields":[]}'), "extFields"),
        (frame(b'{"code":99999999999}'), "'code' is not a 32-bit integer"),
        (frame(b'{"opaque":1.5}'), "'opaque' is not a 32-bit integer"),
        (frame(b'{"flag":true}'), "'flag' is not a 32-bit integer"),
        (frame(b'{"extFields":{"a":{}}}'), "'a' is neither text nor a number"),
        (frame(b'{"extFields":{"a":NaN}}'), "NaN"),
        (frame(b"[" * 400), "malformed"),
        (frame(b"", serializer=1), "binary header of 0 bytes"),
        (frame(bytes(20), serializer=1), "binary header of 20 bytes"),
        (frame(bytes(13) + b"\x7f" * 4 + bytes(4), serializer=1), "remark"),
        (frame(bytes(13) + b"\xff" * 4 + bytes(4), serializer=1), "remark of -1 bytes"),
        (frame(bytes(17) + b"\x00\x00\x00\x01", serializer=1), "fields of 1 bytes"),
        (frame(bytes(17) + b"\x00\x00\x00\x01x", serializer=1), "inside a name length"),
    ],
)
def test_broken_frame_is_reported_with_its_reason(data: bytes, reason: str) -> None:
    commands, used, bad = decode(data)
    assert (commands, used) == ([], 0)
    assert reason in bad


@pytest.mark.parametrize("size", [4, FRAME_MAX - 4])
def test_frames_at_the_limits_are_waited_for(size: int) -> None:
    assert decode(struct.pack(">i", size)) == ([], 0, "")


def test_largest_allowed_frame_is_decoded() -> None:
    header = b'{"code":1}'
    whole = frame(header, bytes(FRAME_MAX - 8 - len(header)))
    assert len(whole) == FRAME_MAX
    assert only(whole).code == 1


@pytest.mark.parametrize("cut", [0, 1, 3, 4, 7, 8, 20])
def test_unfinished_frame_is_left_alone(cut: int) -> None:
    whole = encode_frame(Command(10, {"a": "b"}, b"body"))
    commands, used, bad = decode(whole + whole[:cut])
    assert (len(commands), used, bad) == (1, len(whole), "")


def test_numbers_and_booleans_of_node_and_cpp_become_text() -> None:
    header = b'{"code":10,"extFields":{"queueId":3,"batch":false,"unitMode":true,"x":-0,"n":null}}'
    assert only(frame(header)).ext == {
        "queueId": "3",
        "batch": "false",
        "unitMode": "true",
        "x": "-0",
    }


def test_header_of_go_with_empty_remark_and_other_key_order_is_read() -> None:
    header = (
        b'{"remark":"","code":105,"language":"GO","version":317,"opaque":-5,"flag":0,'
        b'"extFields":{"topic":"t"}}'
    )
    command = only(frame(header))
    assert (command.code, command.language, command.version) == (105, 9, 317)
    assert (command.opaque, command.remark) == (-5, "")


def test_missing_fields_have_javas_defaults() -> None:
    command = only(frame(b"{}"))
    assert (command.code, command.opaque, command.flag, command.version) == (0, 0, 0, 0)
    assert (command.language, command.remark, command.ext) == (0, None, {})


@pytest.mark.parametrize(("name", "code"), [("NODE_JS", 13), ("COBOL", 7)])
def test_language_is_known_or_other(name: str, code: int) -> None:
    assert only(frame(json.dumps({"language": name}).encode())).language == code


def test_broken_utf8_becomes_replacement_characters() -> None:
    command = only(frame(b'{"extFields":{"a":"\xff\xfe"}}', b"\xff"))
    assert command.ext == {"a": "\ufffd\ufffd"}
    assert command.body == b"\xff"


def test_response_is_written_as_java_and_go_want_it() -> None:
    command = Command(
        0, {"queueId": "0", "msg": 'a"\\\x01火'}, b"!", opaque=-12, flag=1, remark="é"
    )
    header = (
        '{"code":0,"extFields":{"queueId":"0","msg":"a\\"\\\\\\u0001火"},"flag":1,'
        '"language":"PYTHON","opaque":-12,"remark":"é","version":479}'
    ).encode()
    assert encode_frame(command) == frame(header, b"!")


def test_head_announces_a_body_that_is_written_separately() -> None:
    whole = encode_frame(Command(0, {}, b"x" * 100))
    assert encode_head(Command(0), 100) == whole[:-100]


@pytest.mark.parametrize("code", [200050, -40000])
def test_code_that_a_binary_header_cannot_hold_is_refused(code: int) -> None:
    with pytest.raises(ValueError, match="JSON headers"):
        encode_frame(Command(code, serializer=1))


def test_command_describes_itself() -> None:
    text = repr(Command(17, {"a": "b"}, b"xyz", opaque=3, flag=1, remark="no"))
    assert text == "Command(response 17, opaque=3, ext={'a': 'b'}, remark='no', body=3 bytes)"
