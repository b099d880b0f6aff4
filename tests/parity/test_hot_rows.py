"""Rows to batches, and batches to the log: the compiled and the plain twin write the same bytes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker_requests import batch_body

from firearrow.hot import reference

native: Any = pytest.importorskip(
    "firearrow.hot.native", reason="no compiled twin here: there was no C compiler at install"
)
HOST = bytes([10, 0, 0, 1, 0, 0, 42, 159])

texts = st.none() | st.text(st.sampled_from("ab 火\x01\x02\0"), max_size=6)
rows = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=30),
        texts,
        texts,
        st.none() | st.lists(st.tuples(st.text("pq\x01", max_size=3), texts), max_size=3),
    ),
    min_size=1,
    max_size=8,
)


def text_column(array: Any) -> reference.TextColumn:
    valid, offsets, data = array.buffers()
    return reference.TextColumn(valid, offsets or bytes(4), data or b"", array.offset)


def pairs_column(array: Any) -> reference.PairsColumn:
    valid, offsets = array.buffers()[:2]
    names, values = text_column(array.keys), text_column(array.items)
    return reference.PairsColumn(valid, offsets, array.offset, names, values)


def encoded(twin: Any, columns: Any, **given_: Any) -> Any:
    try:
        return twin.encode_rows(*columns, **given_)
    except ValueError as error:
        return error.args


@given(
    rows=rows,
    skipped=st.integers(0, 3),
    start=st.integers(0, 8),
    bytes_max=st.integers(0, 400),
    counter=st.sampled_from([0, 10, 65_534]),
)
@settings(max_examples=300)
def test_rows_become_the_same_batch(
    rows: list[Any], skipped: int, start: int, bytes_max: int, counter: int
) -> None:
    table = [
        pa.array([row[0] for row in rows], pa.binary())[skipped:],
        pa.array([row[1] for row in rows], pa.string())[skipped:],
        pa.array([row[2] for row in rows], pa.string())[skipped:],
        pa.array([row[3] for row in rows], pa.map_(pa.string(), pa.string()))[skipped:],
    ]
    columns = (
        text_column(table[0]),
        [(b"TAGS", text_column(table[1])), (b"KEYS", text_column(table[2]))],
        pairs_column(table[3]),
    )
    wanted = {
        "start": start,
        "stop": len(table[0]),
        "bytes_max": bytes_max,
        "key_head": b"0A" * 14,
        "counter": counter,
    }
    expected = encoded(reference, columns, **wanted)
    assert encoded(native, columns, **wanted) == expected
    if isinstance(expected[0], bytes):
        body, behind = expected
        assert reference.count_parts(body, 0) == max(0, behind - start)


def test_long_properties_are_refused_alike() -> None:
    for size in (32_000, 32_767, 40_000, 100_000):
        columns = (
            text_column(pa.array([b"x"])),
            [(b"TAGS", text_column(pa.array(["t" * size])))],
            None,
        )
        wanted = {"start": 0, "stop": 1, "bytes_max": 9, "key_head": b"0A" * 14, "counter": 0}
        assert encoded(native, columns, **wanted) == encoded(reference, columns, **wanted)


def test_row_larger_than_the_limit_travels_alone() -> None:
    columns: Any = (text_column(pa.array([b"x" * 100_000, b"y"])), [], None)
    wanted: dict[str, Any] = {"start": 0, "stop": 2, "bytes_max": 9, "key_head": b"", "counter": 0}
    body, behind = reference.encode_rows(*columns, **wanted)
    assert (reference.count_parts(body, 0), behind) == (1, 1)
    assert native.encode_rows(*columns, **wanted) == (body, behind)


def test_compiled_twin_does_not_read_behind_a_buffer() -> None:
    short = reference.TextColumn(None, bytes(8), b"", 0)
    wanted = {"start": 0, "stop": 9, "bytes_max": 9, "key_head": b"", "counter": 0}
    with pytest.raises(ValueError, match="shorter"):
        native.encode_rows(short, [], None, **wanted)


@given(
    parts=st.lists(
        st.tuples(
            st.binary(max_size=9),
            st.dictionaries(st.sampled_from("ab"), st.text("x\0", max_size=3), max_size=2),
        ),
        max_size=5,
    ),
    cut=st.integers(0, 30),
    mutated=st.integers(0, 200),
    behind=st.sampled_from([0, 7, 32_760]),
)
@settings(max_examples=300)
def test_parts_of_a_batch_are_counted_alike(
    parts: list[Any], cut: int, mutated: int, behind: int
) -> None:
    body = bytearray(batch_body(parts))
    if mutated < len(body):
        body[mutated] ^= 1
    given_ = bytes(body[: len(body) - cut] if cut < 10 else body)
    assert native.count_parts(given_, behind) == reference.count_parts(given_, behind)


@given(
    parts=st.lists(
        st.tuples(
            st.binary(min_size=1, max_size=9),
            st.dictionaries(st.sampled_from("ab"), st.text("x", max_size=3), max_size=2),
        ),
        min_size=1,
        max_size=5,
    ),
    skip=st.integers(0, 5),
    room=st.integers(0, 900),
    sys_flag=st.sampled_from([0x8, 0x4, 0]),
    store_host=st.sampled_from([None, HOST, bytes(20)]),
)
@settings(max_examples=300)
def test_parts_are_appended_alike(
    parts: list[Any], skip: int, room: int, sys_flag: int, store_host: bytes | None
) -> None:
    seen = []
    for twin in (reference, native):
        log = bytearray(1_000)
        writer = twin.LogWriter(HOST, 1_000)
        writer.open(memoryview(log), start=5_000, position=10, room=room)
        queue = twin.QueueTail("orders", 3, plain=True)
        message = twin.StoreMessage(
            "orders",
            3,
            batch_body(parts, flag=5),
            b"CLUSTER\x01c\x02",
            sys_flag=sys_flag,
            born_timestamp=77,
            store_host=store_host,
            prepared_offset=4711,
        )
        end = writer.append_parts(message, queue, 1_234, skip)
        place = message.physical_offset, message.queue_offset, message.size
        seen.append((end, bytes(log), writer.position, queue.next_offset, place))
        writer.close()
    assert seen[0] == seen[1]
