"""The compiled and the plain twin of `firearrow.hot` give the same answer to the same input.

Inputs are valid, truncated, mutated and random. "Same" includes which error, with which words.
"""

from __future__ import annotations

import inspect
import json
import struct
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from firearrow.hot import reference

if TYPE_CHECKING:
    from collections.abc import Callable

native: Any = pytest.importorskip(
    "firearrow.hot.native", reason="no compiled twin here: there was no C compiler at install"
)

FRAME_MAX = 1 << 20
HEADER_MAX = 1 << 16

int32 = st.integers(-(1 << 31), (1 << 31) - 1)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
text = st.text(max_size=40)  # includes control characters, astral characters, no lone surrogates
any_text = st.text(st.characters(), max_size=12) | st.text(
    st.characters(categories=["Cs", "Ll"]), max_size=6
)
json_value = st.recursive(
    st.none() | st.booleans() | int64 | st.floats(allow_nan=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
COMMAND_FIELDS = (
    "code",
    "language",
    "version",
    "opaque",
    "flag",
    "remark",
    "ext",
    "body",
    "serializer",
)
RECORD_FIELDS = tuple(name for name in reference.Record.__slots__)


def fields(value: Any, names: tuple[str, ...]) -> dict[str, object]:
    return {name: getattr(value, name) for name in names}


def outcome(call: Callable[[], Any]) -> tuple[str, Any]:
    """What a call came to: its value, or the error it raised."""
    try:
        return "value", call()
    except Exception as error:
        return type(error).__name__, str(error)


def frames_of(twin: Any, data: bytes) -> Any:
    commands, used, bad = twin.decode_frames(data, FRAME_MAX, HEADER_MAX)
    return [fields(command, COMMAND_FIELDS) for command in commands], used, bad


def assert_frames_agree(data: bytes) -> None:
    expected = frames_of(reference, data)
    assert frames_of(native, data) == expected
    assert frames_of(native, bytearray(data)) == expected  # type: ignore[arg-type]


def frame(header: bytes, body: bytes = b"", serializer: int = 0) -> bytes:
    return struct.pack(">iI", 4 + len(header) + len(body), serializer << 24 | len(header)) + (
        header + body
    )


def test_both_twins_offer_the_same_names_with_the_same_parameters() -> None:
    assert reference.__all__ == native.__all__
    for name in reference.__all__:
        ours, theirs = getattr(reference, name), getattr(native, name)
        if inspect.isfunction(ours):
            assert list(inspect.signature(theirs).parameters) == list(
                inspect.signature(ours).parameters
            ), name


@given(
    code=st.integers(-32768, 32767),
    ext=st.dictionaries(any_text, any_text, max_size=6),
    body=st.binary(max_size=50),
    opaque=int32,
    flag=int32,
    remark=st.none() | any_text,
    language=st.integers(-3, 20),
    version=st.integers(-32768, 32767),
    serializer=st.sampled_from([0, 1]),
)
def test_commands_encode_to_the_same_frame_and_decode_back(
    ext: dict[str, str], body: bytes, **rest: Any
) -> None:
    code = rest.pop("code")
    expected = reference.encode_frame(reference.Command(code, dict(ext), body, **rest))
    assert native.encode_frame(native.Command(code, dict(ext), body, **rest)) == expected
    assert native.encode_head(
        native.Command(code, dict(ext), b"", **rest), len(body)
    ) == reference.encode_head(reference.Command(code, dict(ext), b"", **rest), len(body))
    assert_frames_agree(expected)


@given(
    st.dictionaries(
        st.sampled_from(
            ["code", "flag", "opaque", "version", "language", "remark", "extFields", "x"]
        ),
        json_value | st.sampled_from(["GO", "JAVA", 13, "7", "-0"]),
    ),
    st.booleans(),
    st.booleans(),
)
@example({"code": 10, "extFields": {"queueId": 3, "batch": False, "x": None}}, True, True)
@example({"code": 10, "extFields": {"a": [1]}}, True, True)
@example({"code": "10", "language": 9}, True, True)
@example({"code": 1 << 40}, True, True)
def test_any_json_object_as_header_means_the_same_to_both(
    header: dict[str, object],
    compact: bool,
    ascii_only: bool,
) -> None:
    separators = (",", ":") if compact else (" , ", " : ")
    raw = json.dumps(header, separators=separators, ensure_ascii=ascii_only)
    assert_frames_agree(frame(raw.encode("utf-8", "surrogatepass"), b"body"))


@given(
    st.lists(
        st.sampled_from(
            [
                b'{"code":1',
                b',"extFields":{',
                b'"a":"b"',
                b'"k":12',
                b'"k":-0',
                b'"k":012',
                b'"k":1.5',
                b'"k":true',
                b'"k":null',
                b'"\\u0001\\ud83d\\ude00\\n"',
                b'"\\ud83d"',
                b'"\xe4\xb8"',
                b'"\xff\x00"',
                b":",
                b",",
                b"}",
                b"{",
                b"[",
                b" ",
                b'"version":479',
                b'"remark":"r"',
                b"NaN",
                b"\\",
            ]
        ),
        max_size=12,
    )
)
@settings(max_examples=400)
def test_broken_json_headers_get_the_same_verdict(pieces: list[bytes]) -> None:
    assert_frames_agree(frame(b"".join(pieces)))


@given(st.binary(max_size=80), st.sampled_from([0, 1, 1, 2, 255]))
def test_random_headers_get_the_same_verdict(header: bytes, serializer: int) -> None:
    assert_frames_agree(frame(header, b"tail", serializer))


@given(st.binary(max_size=200))
@example(struct.pack(">i", 0))
@example(struct.pack(">i", -1) + b"abcd")
@example(struct.pack(">i", 1 << 30))
@example(struct.pack(">iI", 100, 0x02000001))
@example(struct.pack(">iI", 8, 0x00000009))
@example(struct.pack(">iI", 900_000, 0x00FFFFFF))
def test_random_streams_get_the_same_verdict(data: bytes) -> None:
    assert_frames_agree(data)


@given(st.data())
def test_a_mutated_stream_of_good_frames_gets_the_same_verdict(data: st.DataObject) -> None:
    commands = [
        reference.Command(
            310,
            {"a": "group", "e": "3", "i": "TAGS\x01火箭\x02"},
            b"payload",
            opaque=7,
            serializer=data.draw(st.sampled_from([0, 1])),
        )
        for _ in range(3)
    ]
    stream = bytearray(b"".join(reference.encode_frame(command) for command in commands))
    for _ in range(data.draw(st.integers(0, 4))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    del stream[data.draw(st.integers(0, len(stream))) :]
    assert_frames_agree(bytes(stream))


@given(st.text(st.characters(), max_size=60))
@example("polygenelubricants")
@example("\U0001f680")
def test_java_hash_agrees(value: str) -> None:
    assert native.java_hash(value) == reference.java_hash(value)


@given(st.text(st.sampled_from("ab\x01\x02火\U0001f680"), max_size=30))
def test_property_strings_decode_the_same(value: str) -> None:
    assert native.decode_properties(value) == reference.decode_properties(value)


@given(st.dictionaries(st.text("ab\x01\x02火", max_size=4), st.text("xy\x01\x02", max_size=4)))
def test_property_strings_encode_or_refuse_the_same(value: dict[str, str]) -> None:
    assert outcome(lambda: native.encode_properties(value)) == outcome(
        lambda: reference.encode_properties(value)
    )


@given(
    st.binary(min_size=3, max_size=5) | st.binary(min_size=16, max_size=16),
    st.integers(-5, 1 << 33),
    st.integers(-5, 1 << 64),
    int64,
)
def test_message_ids_agree(ip: bytes, port: int, offset: int, other: int) -> None:
    assert outcome(lambda: native.offset_message_id(ip, port, offset)) == outcome(
        lambda: reference.offset_message_id(ip, port, offset)
    )
    assert outcome(lambda: native.encode_unique_key(ip, port, other, offset, 7)) == outcome(
        lambda: reference.encode_unique_key(ip, port, other, offset, 7)
    )


@given(st.binary(max_size=300))
def test_crc_agrees(data: bytes) -> None:
    assert native.crc31(data) == reference.crc31(data)


ip = st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16)
record_values = st.fixed_dictionaries(
    {
        "topic": st.text(min_size=1, max_size=20) | st.text("tüЖ", min_size=120, max_size=140),
        "body": st.binary(max_size=60),
        "properties": st.text(st.sampled_from("TAGS\x01\x02ab火"), max_size=40)
        | st.just("TAGS\x01first\x02TAGS\x01second\x02"),
        "queue_id": int32,
        "flag": int32,
        "queue_offset": int64,
        "physical_offset": int64,
        "sys_flag": int32,
        "born_timestamp": int64,
        "born_ip": ip | st.binary(max_size=5),
        "born_port": int32,
        "store_timestamp": int64,
        "store_ip": ip,
        "store_port": int32,
        "reconsume_times": int32,
        "prepared_offset": int64,
    }
)


def decoded(twin: Any, data: bytes, position: int = 0, *, check_crc: bool = True) -> Any:
    return outcome(
        lambda: fields(twin.decode_record(data, position, check_crc=check_crc), RECORD_FIELDS)
    )


def encode(values: dict[str, Any]) -> bytes:
    return reference.encode_record(reference.Record(**values))


def decoded_all(twin: Any, data: bytes) -> list[dict[str, object]]:
    return [fields(record, RECORD_FIELDS) for record in twin.decode_records(data)]


def assert_records_agree(data: bytes) -> None:
    for check_crc in (True, False):
        assert decoded(native, data, check_crc=check_crc) == decoded(
            reference, data, check_crc=check_crc
        )
        assert native.scan_records(data, 0, len(data), check_crc=check_crc) == (
            reference.scan_records(data, 0, len(data), check_crc=check_crc)
        )


@given(record_values)
def test_records_encode_or_refuse_the_same_and_decode_back(values: dict[str, Any]) -> None:
    expected = outcome(lambda: reference.encode_record(reference.Record(**values)))
    assert outcome(lambda: native.encode_record(native.Record(**values))) == expected
    if expected[0] == "value":
        assert_records_agree(expected[1])


@given(st.lists(record_values, max_size=4), st.integers(0, 3), st.binary(max_size=3))
def test_runs_of_records_are_decoded_alike(
    values: list[dict[str, Any]], bad: int, rest: bytes
) -> None:
    encoded = [outcome(partial(encode, one)) for one in values]
    whole = b"".join(raw for kind, raw in encoded if kind == "value")
    for data in (whole, whole + rest, whole[: len(whole) - bad]):
        expected = outcome(partial(decoded_all, reference, data))
        assert outcome(partial(decoded_all, native, data)) == expected


@given(record_values, st.integers(0, 400), st.integers(0, 8), st.integers(60, 600))
def test_records_are_written_in_place_or_not_at_all(
    values: dict[str, Any], body_bytes: int, position: int, room: int
) -> None:
    def write(twin: Any) -> tuple[str, Any]:
        buffer = bytearray(b"\xee" * 700)
        size = twin.write_record(
            buffer,
            position,
            position + room,
            values["topic"].encode(),
            bytes(body_bytes),
            values["properties"].encode(),
            values["queue_id"],
            values["flag"],
            values["queue_offset"],
            values["physical_offset"],
            values["sys_flag"],
            values["born_timestamp"],
            values["store_ip"] + b"\x00\x00\x00\x01",
            values["store_timestamp"],
            b"\x7f\x00\x00\x01\x00\x00\x00\x02",
            values["reconsume_times"],
            values["prepared_offset"],
        )
        assert buffer[:position] == b"\xee" * position
        assert buffer[position + size :] == b"\xee" * (700 - position - size)
        return size, bytes(buffer)

    assert outcome(lambda: write(native)) == outcome(lambda: write(reference))


@given(st.lists(record_values, max_size=3), st.data())
@settings(max_examples=150)
def test_damaged_logs_scan_the_same(many: list[dict[str, Any]], data: st.DataObject) -> None:
    log = bytearray()
    for values in many:
        values["topic"], values["born_ip"] = values["topic"][:20], values["store_ip"]
        log += reference.encode_record(reference.Record(**values))
    log += data.draw(
        st.sampled_from(
            [b"", b"\0" * 100, b"\0" * 5, struct.pack(">iI", 64, 0xCBD43194) + b"\0" * 56, b"junk"]
        )
    )
    for _ in range(data.draw(st.integers(0, 3)) if log else 0):
        log[data.draw(st.integers(0, len(log) - 1))] ^= data.draw(st.integers(1, 255))
    assert_records_agree(bytes(log[: data.draw(st.integers(0, len(log)))]))


def test_a_tag_with_a_broken_byte_hashes_the_same() -> None:
    raw = reference.encode_record(reference.Record("orders", b"", "TAGS\x01second\x02"))
    assert_records_agree(raw.replace(b"second", b"\xf3econd"))


@given(st.binary(max_size=150))
def test_random_bytes_are_the_same_non_records(data: bytes) -> None:
    assert_records_agree(data)
    magic = struct.pack(">iI", len(data) + 8, 0xDAA320A7)
    assert_records_agree(magic + data)
