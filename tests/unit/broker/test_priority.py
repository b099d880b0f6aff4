"""Which queue a message with a priority goes to."""

from __future__ import annotations

import pytest

from firearrow.broker.priority import queue_by_priority
from firearrow.model.message import PRIORITY


@pytest.mark.parametrize(
    ("priority", "queue_id"), [("0", 0), ("2", 2), ("3", 3), ("4", 3), ("999", 3)]
)
def test_a_priority_is_a_queue_and_the_last_one_takes_the_rest(
    priority: str, queue_id: int
) -> None:
    properties = {PRIORITY: priority}
    assert queue_by_priority(properties, 1, 4) == queue_id
    assert properties == {PRIORITY: priority}


@pytest.mark.parametrize("priority", ["-1", "high", "", "1.5", "12345678901"])
def test_what_is_no_priority_changes_nothing(priority: str) -> None:
    assert queue_by_priority({PRIORITY: priority}, 1, 4) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"DELAY": "3"},
        {"TIMER_DELIVER_MS": "5"},
        {"TIMER_DELAY_SEC": "5"},
        {"__SHARDINGKEY": "a"},
        {"TRAN_MSG": "true"},
    ],
)
def test_what_waits_or_is_ordered_has_no_priority(other: dict[str, str]) -> None:
    properties = {PRIORITY: "3", **other}
    assert queue_by_priority(properties, 1, 4) == 1
    assert PRIORITY not in properties
