"""Values that Java computed, and the rules of property strings and ids."""

from __future__ import annotations

import pytest

from firearrow.hot import (
    crc31,
    decode_properties,
    encode_properties,
    encode_unique_key,
    java_hash,
    offset_message_id,
    parse_offset_message_id,
    parse_unique_key,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("TagA", 2598919),
        ("TagB", 2598920),
        ("中文", 646394),
        ("TopicTest", -1902610879),
        ("TopicTest#KEY1", -1656969516),
        ("polygenelubricants", -2147483648),
        ("\U0001f680", 1773027),
    ],
)
def test_hash_is_javas(text: str, expected: int) -> None:
    assert java_hash(text) == expected


def test_crc_has_no_sign_bit() -> None:
    assert crc31(b"Hello") == 2010220930
    assert crc31(b"") == 0


def test_properties_survive_a_round_trip_with_a_trailing_separator() -> None:
    properties = {"KEYS": "k1 k2", "TAGS": "TagA", "名": "值"}
    assert encode_properties(properties) == "KEYS\x01k1 k2\x02TAGS\x01TagA\x02名\x01值\x02"
    assert decode_properties(encode_properties(properties)) == properties


def test_properties_without_trailing_separator_are_read_too() -> None:
    assert decode_properties("a\x011\x02b\x012") == {"a": "1", "b": "2"}


@pytest.mark.parametrize("text", ["", "\x02", "a", "\x01v\x02", "a\x01\x02", "a\x02b\x02"])
def test_pairs_without_name_or_value_do_not_exist(text: str) -> None:
    assert decode_properties(text) == {}


def test_first_separator_splits_and_last_pair_wins() -> None:
    assert decode_properties("a\x01b\x01c\x02") == {"a": "b\x01c"}
    assert decode_properties("a\x011\x02a\x012\x02") == {"a": "2"}


@pytest.mark.parametrize("pair", [{"": "v"}, {"a": ""}, {"a\x01": "v"}, {"a": "v\x02"}])
def test_properties_that_no_reader_would_return_are_refused(pair: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="property"):
        encode_properties(pair)


def test_offset_message_id_of_ipv4_and_ipv6_hosts() -> None:
    v4 = offset_message_id(bytes([192, 168, 0, 10]), 10911, 1024)
    assert v4 == "C0A8000A00002A9F0000000000000400"
    assert parse_offset_message_id(v4) == (bytes([192, 168, 0, 10]), 10911, 1024)
    v6 = offset_message_id(bytes(15) + b"\x01", 10911, 1 << 40)
    assert len(v6) == 56
    assert parse_offset_message_id(v6.lower()) == (bytes(15) + b"\x01", 10911, 1 << 40)


@pytest.mark.parametrize("text", ["", "C0A8", "Z" * 32, "0" * 33, " " + "0" * 31, "\u0660" * 32])
def test_text_that_is_no_message_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="hex digits"):
        parse_offset_message_id(text)
    with pytest.raises(ValueError, match="hex digits"):
        parse_unique_key(text)


def test_unique_key_carries_its_parts() -> None:
    key = encode_unique_key(bytes([127, 0, 0, 1]), 0x1DDE, 0x4E0E2F2A, 0x49FC9F6B, 0)
    assert key == "7F0000011DDE4E0E2F2A49FC9F6B0000"  # recorded from a Java producer
    assert parse_unique_key(key) == (bytes([127, 0, 0, 1]), 0x1DDE, 0x4E0E2F2A, 0x49FC9F6B, 0)


def test_unique_key_keeps_the_low_bits_of_large_numbers() -> None:
    key = encode_unique_key(bytes(4), 70_000, -1, 5, 65_536 + 7)
    assert parse_unique_key(key) == (bytes(4), 70_000 - 65_536, 0xFFFFFFFF, 5, 7)
