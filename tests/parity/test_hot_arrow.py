"""Compiled and plain twin make the same columns of the same records, byte for byte."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow.base.errors import RecordError
from firearrow.hot import reference
from firearrow.hot.layout import COLUMN_KINDS

native: Any = pytest.importorskip(
    "firearrow.hot.native", reason="no compiled twin here: there was no C compiler at install"
)

TWINS = (reference, native)
NAMES = [name for name in COLUMN_KINDS if name != "bodyText"]
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
PORT = st.integers(0, 65535)
WORDS = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "TAG", "KEYSS", "a", "é", "b c", "", "\x01"])


@st.composite
def property_texts(draw: st.DrawFn) -> str:
    """Pairs, some of them odd: no name, no value, twice, no end, or very many."""
    pairs = draw(st.lists(st.tuples(WORDS, st.text(max_size=8)), max_size=8))
    text = "\x02".join(f"{name}\x01{value}" for name, value in pairs)
    if draw(st.integers(0, 9)) == 0:
        text += "".join(f"\x02n{number}\x01{number}" for number in range(70))
    return text + draw(st.sampled_from(["", "\x02"]))


@st.composite
def raw_records(draw: st.DrawFn) -> bytes:
    """One record, sometimes with bytes that are no UTF-8 in topic, properties or body."""
    ip = st.one_of(st.binary(min_size=4, max_size=4), st.binary(min_size=16, max_size=16))
    body = draw(st.one_of(st.binary(max_size=40), st.text(max_size=20).map(str.encode)))
    packed = draw(st.integers(0, 4)) == 0
    sys_flag = draw(st.sampled_from([0, 2, 8])) | (1 if packed else 0)
    record = reference.Record(
        draw(st.sampled_from(["orders", "%RETRY%g", "é", "t" * 200])),
        zlib.compress(body) if packed else body,
        draw(property_texts()),
        queue_id=draw(INT32),
        flag=draw(INT32),
        queue_offset=draw(st.integers(0, 20)),
        physical_offset=draw(st.integers(0, (1 << 63) - 1)),
        sys_flag=sys_flag,
        born_timestamp=draw(INT64),
        born_ip=draw(ip),
        born_port=draw(PORT),
        store_timestamp=draw(INT64),
        store_ip=draw(ip),
        store_port=draw(PORT),
        reconsume_times=draw(INT32),
        prepared_offset=draw(INT64),
    )
    raw = bytearray(reference.encode_record(record))
    if draw(st.integers(0, 5)) == 0 and len(record.properties) > 2:
        raw[-2] = 0xFF  # the last property's value, perhaps its end
    return bytes(raw)


@st.composite
def inner_batches(draw: st.DrawFn) -> bytes:
    parts = draw(st.lists(st.tuples(st.binary(max_size=9), property_texts()), max_size=4))
    body = b""
    for content, properties in parts:
        text = properties.encode()
        size = 22 + len(content) + len(text)
        body += struct.pack(">iiiii", size, 0, 0, 7, len(content)) + content
        body += struct.pack(">h", len(text)) + text
    packed = draw(st.booleans())
    record = reference.Record(
        "orders",
        zlib.compress(body) if packed else body,
        "INNER_NUM\x012\x02",
        queue_offset=draw(st.integers(0, 20)),
        sys_flag=0xC0 | (1 if packed else 0),
    )
    return reference.encode_record(record)


def unwrapper(twin: Any) -> Any:
    """What the connector does, without its packages: zlib, and inner batches taken apart."""

    def unwrap(record: Any) -> list[Any]:
        body = zlib.decompress(record.body) if record.sys_flag & 1 else record.body
        if not record.sys_flag & 0xC0:
            record.body = body
            return [record]
        found: list[Any] = []
        at = 0
        while at < len(body):
            size, _, _, flag, length = struct.unpack_from(">iiiii", body, at)
            text = body[at + 22 + length : at + size].decode("utf-8", "replace")
            found.append(
                twin.Record(
                    record.topic,
                    body[at + 20 : at + 20 + length],
                    text,
                    queue_id=record.queue_id,
                    flag=flag,
                    queue_offset=record.queue_offset + len(found),
                    sys_flag=record.sys_flag & ~0xC1,
                )
            )
            at += size
        return found

    return unwrap


def made(twin: Any, columns: list[str], adds: list[tuple[Any, ...]]) -> list[Any]:
    rows = twin.ArrowRows(columns, unwrapper(twin))
    outcome: list[Any] = []
    for add in adds:
        try:
            outcome.append(rows.add(*add))
        except RecordError as error:
            outcome.append(str(error))
    outcome += [rows.rows, rows.take(), rows.rows, rows.take()]
    return outcome


DATA = st.lists(st.one_of(raw_records(), inner_batches()), max_size=12).map(b"".join)


@given(
    data=st.lists(DATA, min_size=1, max_size=3),
    columns=st.lists(st.sampled_from(NAMES), unique=True),
    text=st.booleans(),
    first=st.integers(0, 12),
    delta=st.sampled_from([0, 0, 3]),
    tags=st.sampled_from([None, None, frozenset({"", "é", "0", "a"})]),
)
def test_both_twins_make_the_same_columns(
    *,
    data: list[bytes],
    columns: list[str],
    text: bool,
    first: int,
    delta: int,
    tags: frozenset[str] | None,
) -> None:
    if text:
        columns = ["bodyText" if name == "body" else name for name in columns]
    adds = [(one, "broker-é", first, 18, delta, tags) for one in data]
    assert made(native, columns, adds) == made(reference, columns, adds)


@given(data=DATA, at=st.integers(0, 400), byte=st.integers(0, 255))
def test_both_twins_refuse_the_same_damage(data: bytes, at: int, byte: int) -> None:
    damaged = bytearray(data)
    if at < len(damaged) and at >= 8:  # a changed size is the start of another message
        damaged[at] = byte
    columns = ["offset", "body"]
    outcomes = []
    for twin in TWINS:
        try:
            outcomes.append(made(twin, columns, [(bytes(damaged), "b", 0, 1 << 62)]))
        except (ValueError, zlib.error, struct.error) as error:  # what a stand-in unwraps
            outcomes.append([type(error).__name__])
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.__name__)
def test_a_batch_that_is_refused_leaves_no_rows(twin: Any) -> None:
    good = reference.encode_record(reference.Record("orders", b"one"))
    rows = twin.ArrowRows(["body"], unwrapper(twin))
    assert rows.add(good, "b", 0, 9) == 1
    with pytest.raises(RecordError):
        rows.add(good + good[:-1], "b", 0, 9)
    assert rows.rows == 1
    assert rows.take() == [(bytearray(struct.pack("<2i", 0, 3)), bytearray(b"one"), None, 0)]


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.__name__)
def test_columns_that_do_not_exist_are_refused(twin: Any) -> None:
    with pytest.raises(ValueError, match="nope"):
        twin.ArrowRows(["offset", "nope"], unwrapper(twin))
    with pytest.raises(ValueError, match="either"):
        twin.ArrowRows(["body", "bodyText"], unwrapper(twin))


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.__name__)
def test_thousands_of_rows_keep_their_places(twin: Any) -> None:
    records = [
        reference.Record(
            "orders",
            b"x" * (number % 700),
            f"TAGS\x01t{number}\x02" if number % 3 else "",
            queue_offset=number,
        )
        for number in range(3_000)
    ]
    raw = [reference.encode_record(record) for record in records]
    rows = twin.ArrowRows(["offset", "tags", "body", "properties"], unwrapper(twin))
    for start in range(0, 3_000, 500):
        assert rows.add(b"".join(raw[start : start + 500]), "b", 100, 2_900)
    offsets, tags, bodies, properties = rows.take()
    assert list(memoryview(offsets[0]).cast("q")) == list(range(100, 2_900))
    ends = memoryview(bodies[0]).cast("i")
    assert [ends[i + 1] - ends[i] for i in range(2_800)] == [n % 700 for n in range(100, 2_900)]
    assert tags[3] == sum(number % 3 == 0 for number in range(100, 2_900))
    assert memoryview(properties[0]).cast("i")[2_800] == 2_800 - tags[3]
