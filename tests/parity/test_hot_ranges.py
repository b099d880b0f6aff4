"""Both twins find the same records in a log: by hopping over it, and by selecting from it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow.hot import reference

native: Any = pytest.importorskip(
    "firearrow.hot.native", reason="no compiled twin here: there was no C compiler at install"
)

TOPICS = ["orders", "paid", "taxi-火", "long" * 40]
BLANK = (0xCBD43194).to_bytes(4, "big")
FIRST = 4096

records: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    topic=st.sampled_from(TOPICS),
    body=st.binary(max_size=60),
    store_timestamp=st.integers(0, 100),
    born_ip=st.sampled_from([bytes(4), bytes(16)]),
    store_ip=st.sampled_from([bytes(4), bytes(16)]),
)
changes = st.lists(st.tuples(st.integers(0, 1 << 12), st.integers(0, 255)), max_size=2)


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Records back to back, then zeros or a blank; a few bytes may be wrong."""
    log = bytearray()
    for fields in draw(st.lists(records, max_size=12)):
        shift = draw(st.sampled_from([0, 0, 0, 0, 1]))
        record = reference.Record(**fields, physical_offset=FIRST + len(log) + shift)
        log += reference.encode_record(record)
    rest = draw(st.sampled_from([0, 3, 8, 60, 200]))
    closed = draw(st.booleans()) and rest >= 8
    log += rest.to_bytes(4, "big") + BLANK + bytes(rest - 8) if closed else bytes(rest)
    for place, value in draw(changes):
        if log:
            log[place % len(log)] = value
    return bytes(log)


@given(logs(), st.integers(1, 600))
def test_hops_lead_to_the_same_places(log: bytes, every: int) -> None:
    expected = reference.tile_records(log, 0, len(log), FIRST, every)
    assert native.tile_records(log, 0, len(log), FIRST, every) == expected
    for start, _ in expected.starts:
        assert native.tile_records(memoryview(log), start, len(log), FIRST, every) == (
            reference.tile_records(log, start, len(log), FIRST, every)
        )


@given(
    logs(),
    st.integers(0, 60),
    st.integers(40, 101),
    st.none() | st.frozensets(st.sampled_from(TOPICS)),
    st.integers(1, 2_000),
)
def test_the_same_records_are_selected(
    log: bytes, begin: int, end: int, topics: frozenset[str] | None, bytes_max: int
) -> None:
    def select(twin: Any) -> list[Any]:
        known: dict[bytes, bool] | None = None if topics is None else {}
        asked: list[str] = []

        def wants(topic: str) -> bool:
            asked.append(topic)
            return topics is not None and topic in topics

        found, at = [], 0
        while True:
            step = twin.select_records(
                log, at, len(log), FIRST, begin, end, known, wants, bytes_max
            )
            found.append(step)
            at = step.position
            if step.ending != "full":
                return [found, known, sorted(asked)]

    assert select(native) == select(reference)


@pytest.mark.parametrize("twin", [native, reference])
def test_places_outside_the_log_are_refused(twin: Any) -> None:
    with pytest.raises(ValueError, match="outside a buffer of 10 bytes"):
        twin.tile_records(bytes(10), 5, 11, 0, 1)
    with pytest.raises(ValueError, match="outside a buffer of 10 bytes"):
        twin.select_records(bytes(10), 5, 11, 0, 0, 1, None, bool, 1)
