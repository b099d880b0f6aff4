from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow.spark.errors import OptionError
from firearrow.spark.offsets import QueueName, from_json, to_json
from firearrow.spark.planning import Range, pack, plan, ranges_between, share, split

QUEUES = [QueueName("t", broker, number) for broker in ("a", "b") for number in range(4)]
RANGES = st.lists(
    st.tuples(st.sampled_from(QUEUES), st.integers(0, 1_000), st.integers(0, 3_000)).map(
        lambda one: Range(one[0], one[1], one[1] + one[2])
    ),
    max_size=8,
    unique_by=lambda one: one.queue,
)


def rows_of(tasks: list[tuple[Range, ...]]) -> list[tuple[QueueName, int]]:
    return sorted(
        (one.queue, offset) for task in tasks for one in task for offset in (one.start, one.end)
    )


def covered(pieces: list[Range]) -> dict[QueueName, int]:
    found: dict[QueueName, int] = {}
    for one in pieces:
        found[one.queue] = found.get(one.queue, 0) + one.rows
    return found


@given(ranges=RANGES, least=st.integers(0, 20), most=st.integers(0, 20), rows=st.integers(0, 400))
def test_every_message_is_in_exactly_one_task(
    ranges: list[Range], least: int, most: int, rows: int
) -> None:
    tasks = plan(ranges, partitions_min=least, partitions_max=most, rows_max=rows)
    pieces = sorted(one for task in tasks for one in task)
    assert covered(pieces) == {one.queue: one.rows for one in ranges if one.rows}
    for before, after in itertools.pairwise(pieces):
        if before.queue == after.queue:
            assert before.end == after.start
    if rows:
        assert all(sum(one.rows for one in task) <= rows for task in tasks)
    elif most:
        assert len(tasks) <= max(least, most)
    total = sum(one.rows for one in ranges)
    if total >= least and not (most and not least):
        assert len(tasks) >= min(least, total) or rows


def test_a_big_queue_is_cut_when_more_tasks_are_wanted_than_queues() -> None:
    pieces = split([Range(QUEUES[0], 0, 100), Range(QUEUES[1], 0, 10)], 5, 0)
    assert len(pieces) >= 5
    assert max(one.rows for one in pieces) <= 22


def test_small_queues_share_a_task() -> None:
    tasks = pack([Range(queue, 0, 10) for queue in QUEUES], 2)
    assert [sum(one.rows for one in task) for task in tasks] == [40, 40]


@given(
    available=st.dictionaries(st.integers(0, 9), st.integers(0, 500)),
    limit=st.integers(1, 1_000),
)
def test_a_limit_is_shared_in_proportion_and_nobody_starves(
    available: dict[int, int], limit: int
) -> None:
    given_out = share(available, limit)
    total, takers = sum(available.values()), sum(count > 0 for count in available.values())
    assert given_out.keys() == available.keys()
    assert all(0 <= given_out[key] <= available[key] for key in available)
    assert all(given_out[key] for key in available if available[key])
    if total <= limit:
        assert given_out == available
    else:
        assert sum(given_out.values()) == max(limit, takers)


def test_shares_follow_the_backlog() -> None:
    assert share({"a": 900, "b": 100, "c": 0}, 100) == {"a": 90, "b": 10, "c": 0}


def test_ranges_leave_out_what_is_empty_or_goes_backwards() -> None:
    start = {QUEUES[0]: 5, QUEUES[1]: 5, QUEUES[2]: 5}
    end = {QUEUES[0]: 9, QUEUES[1]: 5, QUEUES[2]: 4, QUEUES[3]: 7}
    assert ranges_between(start, end) == [Range(QUEUES[0], 5, 9)]


def test_equal_positions_are_equal_text() -> None:
    offsets = {QUEUES[2]: 7, QUEUES[0]: 1, QueueName("t", "a", 10): 3}
    backwards = dict(reversed(offsets.items()))
    assert json.dumps(to_json(offsets)) == json.dumps(to_json(backwards))
    assert list(to_json(offsets)) == ["t@a@0", "t@a@10", "t@a@2"]
    assert from_json(to_json(offsets)) == offsets


@pytest.mark.parametrize("key", ["", "t", "t@a", "t@a@", "@a@0", "t@@0", "t@a@x", "t@a@-1"])
def test_keys_that_are_no_queue_are_refused(key: str) -> None:
    with pytest.raises(OptionError, match="is no queue"):
        QueueName.parse(key)


def test_a_broker_may_have_an_at_sign_in_its_name() -> None:
    name = QueueName("orders", "broker@home", 3)
    assert QueueName.parse(name.key) == name
