from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow.broker.half_messages import (
    ENDED_KEPT,
    Action,
    Half,
    HalfTable,
    Limits,
    OpTable,
    Outcome,
    decide_checks,
    half_of,
    is_too_late,
    op_body,
    op_offsets,
)

LIMITS = Limits(timeout_ms=6_000, check_max=15, reserved_ms=72 * 3_600_000)
NOW = 1_700_000_000_000
HOST = bytes([127, 0, 0, 1, 0, 0, 0, 9])


def half(offset: int, age_ms: int = 10_000, *, identity: int | None = None, **fields: Any) -> Half:
    given = {"born_ms": NOW - age_ms, "stored_ms": NOW - age_ms, **fields}
    identity = 1_000 + offset if identity is None else identity
    return Half(offset, offset * 500, identity, "orders", **given)


def decisions(*halves: Half) -> list[tuple[Action, int]]:
    return [(action, one.offset) for action, one in decide_checks(halves, NOW, LIMITS)]


# --- deciding ---------------------------------------------------------------------------------


def test_old_half_messages_are_checked_and_the_first_young_one_ends_the_round() -> None:
    assert decisions(half(0), half(1), half(2, 6_000), half(3)) == [
        (Action.CHECK, 0),
        (Action.CHECK, 1),
    ]


def test_half_message_that_was_stored_since_the_round_began_is_left_for_the_next() -> None:
    assert decisions(half(0, stored_ms=NOW), half(1)) == []


def test_half_message_that_was_checked_often_enough_is_parked_however_young() -> None:
    assert decisions(half(0, 1, checks=15), half(1, checks=14)) == [
        (Action.PARK, 0),
        (Action.CHECK, 1),
    ]


def test_half_message_older_than_the_log_keeps_messages_is_parked() -> None:
    assert decisions(half(0, LIMITS.reserved_ms + 1)) == [(Action.PARK, 0)]
    assert decisions(half(0, LIMITS.reserved_ms)) == [(Action.CHECK, 0)]


def test_half_message_with_a_time_of_grace_is_renewed_and_those_behind_it_go_on() -> None:
    assert decisions(half(0, immunity_ms=20_000), half(1), half(2, immunity_ms=9_999)) == [
        (Action.RENEW, 0),
        (Action.CHECK, 1),
        (Action.CHECK, 2),
    ]


def test_half_message_born_in_the_future_is_checked_at_once() -> None:
    assert decisions(half(0, -60_000, stored_ms=NOW - 1)) == [(Action.CHECK, 0)]


# --- reading properties -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "immunity_ms"), [("30", 30_000), ("0", 0), ("-1", None), ("soon", None), ("", None)]
)
def test_time_of_grace_is_in_seconds_and_nonsense_is_none(
    seconds: str, immunity_ms: int | None
) -> None:
    properties = {"REAL_TOPIC": "orders", "CHECK_IMMUNITY_TIME_IN_SECONDS": seconds}
    found = half_of(
        properties,
        offset=3,
        physical_offset=70,
        born_ms=NOW,
        born_host=HOST,
        stored_ms=NOW + 1,
        body_bytes=5,
    )
    assert found.immunity_ms == immunity_ms
    assert (found.topic, found.checks, found.offset) == ("orders", 0, 3)


@pytest.mark.parametrize(
    ("seconds", "age_ms", "late"),
    [("10", 10_001, True), ("10", 10_000, False), ("1", 5_999, False), ("1", 6_001, True)],
)
def test_unasked_answer_counts_within_its_time_of_grace_but_at_least_within_the_timeout(
    seconds: str, age_ms: int, late: bool
) -> None:
    assert is_too_late({"CHECK_IMMUNITY_TIME_IN_SECONDS": seconds}, age_ms, 6_000) is late
    assert is_too_late({}, 1 << 40, 6_000) is False


@given(st.lists(st.integers(0, 1 << 50), max_size=50))
def test_op_message_lists_what_it_was_given(offsets: list[int]) -> None:
    assert op_offsets(op_body(offsets)) == offsets


def test_op_messages_of_every_broker_are_read() -> None:
    assert op_offsets(b"1,0,2,") == [1, 0, 2]
    assert op_offsets(b"17") == [17]
    assert op_offsets(b"") == []
    assert op_offsets(b"x,-3,7,\xff,99999999999999999999999,") == [7]


# --- tables -------------------------------------------------------------------------------------


def test_position_is_the_first_open_one_else_behind_the_last() -> None:
    table = HalfTable()
    for offset in range(3):
        table.add(half(offset))
    table.end(1_001, Outcome.COMMITTED)
    assert table.position == 0
    table.end(1_000, Outcome.ROLLED_BACK)
    assert table.position == 2
    table.end(1_002, Outcome.COMMITTED)
    assert table.position == 3
    assert len(table) == 0
    assert table.by_topic == {}


def test_copy_takes_the_place_of_what_it_copies() -> None:
    table = HalfTable()
    first, other, copy = half(0, identity=7), half(1), half(2, identity=7, checks=1)
    assert table.add(first) is None
    table.add(other)
    assert table.add(copy) is first
    assert [one.offset for one in table] == [1, 2]
    assert not table.is_current(first)
    assert table.find(7) is copy
    assert table.by_topic == {"orders": 2}


def test_end_that_is_long_ago_is_forgotten() -> None:
    table = HalfTable()
    for identity in range(ENDED_KEPT + 1):
        table.end(identity, Outcome.COMMITTED)
    assert table.outcome(0) is None
    assert table.outcome(1) is Outcome.COMMITTED


def test_what_the_queues_say_is_taken_up_and_one_settled_copy_settles_all() -> None:
    table = HalfTable()
    copies = [
        half(3, identity=1),
        half(4, identity=2),
        half(5, identity=3),
        half(6, identity=1, checks=1),  # of 3, which is settled
        half(7, identity=4),
    ]
    without_op = table.load(copies, settled={3}, committed={3}, position=3)
    assert [one.offset for one in table] == [4, 7]
    assert [one.offset for one in without_op] == [5]
    assert table.position == 4
    assert table.outcome(3) is Outcome.COMMITTED


def test_op_messages_are_as_long_as_they_may_be_and_keep_their_order() -> None:
    table = OpTable()
    for offset in (10, 9, 11, 12):
        table.add(offset)
    assert table.pending_bytes == len(b"10,9,11,12,")
    assert table.take(5) == [10, 9]
    taken = table.take(100)
    assert taken == [11, 12]
    table.put_back(taken)
    assert (table.pending, table.pending_bytes) == (2, 6)
    assert table.take(1) == [11]


def test_op_message_matters_until_all_that_it_settles_lies_behind() -> None:
    table = OpTable()
    table.load(4)
    assert table.position(100) == 4
    table.written(4, [1, 9])
    table.written(5, [2])
    table.written(6, [])
    assert table.position(2) == 4
    assert table.position(9) == 4
    assert table.position(10) == 7


def test_staged_batch_is_renewed_now_and_then_and_never_asked_about() -> None:
    hour_ms = 3_600_000
    young, old = half(1, parts=3), half(2, age_ms=2 * hour_ms, parts=3, checks=99)
    expired = half(3, age_ms=73 * hour_ms, parts=3)
    assert decisions(young, old, expired, half(4)) == [
        (Action.RENEW, 2),
        (Action.PARK, 3),
        (Action.CHECK, 4),
    ]


def test_only_what_belongs_to_a_step_or_an_earlier_one_is_left_behind() -> None:
    table = HalfTable()
    for offset, (scope, epoch) in enumerate([("q", 6), ("q", 7), ("q", 8), ("r", 1), ("", 0)]):
        table.add(half(offset, scope=scope, epoch=epoch))
    assert [one.offset for one in table.left_behind("q", 7)] == [0, 1]
