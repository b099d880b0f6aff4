"""Decisions: what they list, how they are written, and that the first one stays."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow.spark import decisions
from firearrow.spark.decisions import Decision, Group, Seen, Target, Written
from firearrow.spark.errors import ConnectorError

ORDERS = Target("broker-a", "orders", 0)
OTHER = Target("broker-b", "orders", 3)


@given(st.lists(st.tuples(st.integers(0, 1 << 62), st.integers(0, 1 << 62)), max_size=20))
def test_places_survive_packing(places: list[tuple[int, int]]) -> None:
    assert decisions.unpack_places(decisions.pack_places(places)) == places


def test_places_that_follow_each_other_take_few_bytes() -> None:
    places = [(1_000_000 + number, 1 << 40 | number * 1_300) for number in range(10_000)]
    assert len(decisions.pack_places(places)) < 4 * len(places)


@pytest.mark.parametrize("packed", [b"\x80", b"\x02", b"\x02\x02\x02"])
def test_places_that_end_too_early_are_refused(packed: bytes) -> None:
    with pytest.raises(ConnectorError, match="cannot be read"):
        decisions.unpack_places(packed)


def test_decision_lists_attempts_in_the_order_of_partitions() -> None:
    made = decisions.decision_of(
        "query",
        7,
        "me",
        group="g",
        attempts=[
            (1, "b", [Written(ORDERS, True, ((5, 50), (6, 60)))]),
            (0, "a", [Written(ORDERS, True, ((9, 90),)), Written(OTHER, False, ((1, 10),))]),
        ],
        heads={OTHER: 44},
    )
    assert made.attempts == [(0, "a"), (1, "b")]
    ours, other = made.groups
    assert (ours.target, ours.staged, ours.from_offset) == (ORDERS, True, -1)
    assert decisions.unpack_places(ours.places) == [(9, 90), (5, 50), (6, 60)]
    assert (other.target, other.staged, other.from_offset) == (OTHER, False, 44)
    assert decisions.decode(decisions.encode(made)) == made


def test_long_decision_travels_in_pieces() -> None:
    body = bytes(range(256)) * 5
    pieces = decisions.pieces_of(body, 500)
    assert [len(piece) for piece in pieces] == [500, 500, 280]
    assert b"".join(pieces) == body
    assert decisions.pieces_of(body, len(body)) == []
    assert decisions.decode(decisions.encode_pieces([4, 5, 9], len(body))) == [4, 5, 9]


@pytest.mark.parametrize(
    "body", [b"", b"hello", b"{", b'{"pieces":"x"}', zlib.compress(b"[]"), zlib.compress(b"{}")]
)
def test_record_that_is_no_decision_is_named(body: bytes) -> None:
    with pytest.raises(ConnectorError, match="decisionTopic"):
        decisions.decode(body)


def test_decision_of_a_later_version_is_refused() -> None:
    with pytest.raises(ConnectorError, match="version 2"):
        decisions.decode(decisions.encode(Decision("q", 0, "me", version=2)))


def test_first_decision_of_an_epoch_stays() -> None:
    seen = Seen("query")
    for offset, (scope, epoch, kind, body) in enumerate(
        [
            ("query", "3", "piece", b"p"),
            ("other", "3", "decision", b"x"),
            ("query", "3", "decision", b"first"),
            ("query", "3", "decision", b"second"),
            ("query", "4", "decision", b"next"),
            ("query", "odd", "decision", b"?"),
        ],
        10,
    ):
        seen.note(offset, {"FA_SCOPE": scope, "FA_EPOCH": epoch, "FA_KIND": kind}, body)
    assert (seen.first(3), seen.first(4), seen.first(5)) == (b"first", b"next", None)
    assert seen.next_offset == 16
    seen.forget_before(4)
    assert (seen.first(3), seen.first(4)) == (None, b"next")


def test_group_knows_its_queue() -> None:
    assert Group("b", "t", 2, True, b"").target == Target("b", "t", 2)
