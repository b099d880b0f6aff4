"""The record layout: an example worked out by hand, and what makes bytes no record."""

from __future__ import annotations

import struct

import pytest

from firearrow.base.errors import RecordError
from firearrow.hot import Record, decode_record, encode_record, scan_records

EXAMPLE = bytes.fromhex(
    "0000007d daa320a7 77d18982 00000001 00000000 0000000000000007 0000000000000400 00000000"
    "0000018bcfe56800 7f000001 0000d431 0000018bcfe56805 c0a8000a 00002a9f 00000000"
    "0000000000000000 00000005 48656c6c6f 09 546f70696354657374 0014"
    "544147530154616741024b455953014b45593102"
)
BLANK = struct.pack(">iI", 40, 0xCBD43194) + bytes(32)


def example() -> Record:
    return Record(
        "TopicTest",
        b"Hello",
        "TAGS\x01TagA\x02KEYS\x01KEY1\x02",
        queue_id=1,
        queue_offset=7,
        physical_offset=1024,
        born_timestamp=1700000000000,
        born_ip=bytes([127, 0, 0, 1]),
        born_port=54321,
        store_timestamp=1700000000005,
        store_ip=bytes([192, 168, 0, 10]),
        store_port=10911,
    )


def test_example_encodes_to_the_known_bytes() -> None:
    assert encode_record(example()) == EXAMPLE


def test_example_decodes_to_its_fields() -> None:
    record = decode_record(b"junk" + EXAMPLE + b"more", 4)
    assert (record.topic, record.body) == ("TopicTest", b"Hello")
    assert (record.queue_offset, record.physical_offset, record.size) == (7, 1024, 125)
    assert (record.store_ip, record.store_port) == (bytes([192, 168, 0, 10]), 10911)
    assert record.body_crc == 0x77D18982


def test_ipv6_hosts_set_their_flags_and_take_twelve_bytes_more_each() -> None:
    record = example()
    record.born_ip = bytes(range(16))
    record.store_ip = bytes(range(16, 32))
    raw = encode_record(record)
    assert len(raw) == len(EXAMPLE) + 24
    again = decode_record(raw)
    assert again.sys_flag == 0x30
    assert (again.born_ip, again.store_ip) == (record.born_ip, record.store_ip)


def test_topic_over_127_characters_makes_a_record_of_version_2() -> None:
    record = example()
    record.topic = "%RETRY%" + "x" * 121
    raw = encode_record(record)
    assert raw[4:8].hex() == "daa320ab"
    assert decode_record(raw).topic == record.topic


def test_topic_that_fits_no_length_field_is_refused() -> None:
    record = example()
    record.topic = "火" * 100  # 100 characters make version 1, whose length byte ends at 127
    with pytest.raises(RecordError, match="topic of 300 bytes"):
        encode_record(record)


def test_properties_over_the_limit_are_refused() -> None:
    record = example()
    record.properties = "a\x01" + "x" * 32767
    with pytest.raises(RecordError, match="the limit is 32767"):
        encode_record(record)


@pytest.mark.parametrize("cut", [0, 1, 3, 4, 90, len(EXAMPLE) - 1])
def test_cut_record_is_refused(cut: int) -> None:
    with pytest.raises(RecordError):
        decode_record(EXAMPLE[:cut])


def test_any_changed_byte_of_the_body_breaks_the_crc() -> None:
    for at in range(88, 93):
        damaged = bytearray(EXAMPLE)
        damaged[at] ^= 1
        with pytest.raises(RecordError, match="CRC"):
            decode_record(damaged)
        assert decode_record(damaged, check_crc=False).topic == "TopicTest"


@pytest.mark.parametrize(
    ("behind", "ending", "position"),
    [
        (b"", "end", 250),
        (bytes(100), "end", 250),
        (bytes(3), "end", 250),
        (BLANK, "blank", 290),
        (EXAMPLE[:100], "partial", 250),
        (b"\x00\x00\x01", "partial", 250),
        (b"\x00\x00\x00\x7d\xde\xad\xbe\xef" + bytes(200), "broken", 250),
        (struct.pack(">iI", 5, 0xDAA320A7) + bytes(200), "broken", 250),
        (struct.pack(">iI", 3, 0xCBD43194) + bytes(200), "broken", 250),
    ],
)
def test_scan_says_why_and_where_it_stopped(behind: bytes, ending: str, position: int) -> None:
    data = EXAMPLE * 2 + behind
    scan = scan_records(data, 0, len(data))
    assert [record.position for record in scan.records] == [0, 125]
    assert (scan.ending, scan.position) == (ending, position)
    assert bool(scan.reason) == (ending == "broken" or (ending == "partial" and len(behind) > 8))


def test_scan_gives_the_tag_hash_and_the_properties() -> None:
    (record,) = scan_records(EXAMPLE, 0, len(EXAMPLE)).records
    assert (record.topic, record.queue_id, record.queue_offset) == ("TopicTest", 1, 7)
    assert (record.tags_code, record.store_timestamp) == (2598919, 1700000000005)
    assert record.properties == "TAGS\x01TagA\x02KEYS\x01KEY1\x02"


def test_scan_with_crc_stops_at_a_damaged_body_and_without_does_not() -> None:
    damaged = bytearray(EXAMPLE * 3)
    damaged[125 + 88] ^= 1
    assert len(scan_records(damaged, 0, len(damaged)).records) == 3
    scan = scan_records(damaged, 0, len(damaged), check_crc=True)
    assert (len(scan.records), scan.ending, scan.position) == (1, "broken", 125)


def test_scan_outside_its_buffer_is_refused() -> None:
    with pytest.raises(ValueError, match="outside a buffer"):
        scan_records(EXAMPLE, 0, len(EXAMPLE) + 1)
