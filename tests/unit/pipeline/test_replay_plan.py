"""How a replay is cut, and when each piece is due."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow.base.errors import ConfigError
from firearrow.pipeline.replay_plan import Pace, Replayed, Slice, plan


def test_quiet_seconds_share_a_slice_and_busy_ones_are_split_by_key() -> None:
    slices = plan([(10, 3), (11, 4), (20, 25), (21, 1)], Pace(), 10)
    assert slices == [
        Slice(10_000, 12_000, 7),
        Slice(20_000, 21_000, 9, 0, 3),
        Slice(20_000, 21_000, 8, 1, 3),
        Slice(20_000, 21_000, 8, 2, 3),
        Slice(21_000, 22_000, 1),
    ]


@given(
    st.dictionaries(st.integers(0, 500), st.integers(1, 300), max_size=30),
    st.integers(1, 100),
    st.one_of(st.none(), st.floats(0.5, 200)),
    st.booleans(),
)
def test_every_message_is_in_one_slice_and_slices_are_in_order(
    seconds: dict[int, int], slice_rows: int, pace: float | None, by_rate: bool
) -> None:
    slices = plan(seconds.items(), Pace(pace, None) if by_rate else Pace(None, pace), slice_rows)
    assert sum(one.rows for one in slices) == sum(seconds.values())
    places = [(one.from_ms, one.part) for one in slices]
    assert places == sorted(set(places))
    for before, after in itertools.pairwise(slices):
        assert before.to_ms <= after.from_ms or (before.parts > 1 and before.parts == after.parts)
    for second in seconds:
        holders = [one for one in slices if one.from_ms <= second * 1000 < one.to_ms]
        assert [one.part for one in holders] == list(range(holders[0].parts))


def test_a_rate_makes_slices_of_a_second_and_spaces_them() -> None:
    pace = Pace(per_second=5)
    slices = plan([(0, 12)], pace, 100)
    assert [one.rows for one in slices] == [4, 4, 4]
    assert [pace.due_s(slices, number) for number in range(3)] == [0, 0.8, 1.6]
    assert pace.due_s(slices, 2, first=1) == 0.8, "what a run before sent is not waited for"


def test_original_speed_times_n_keeps_the_gaps() -> None:
    pace = Pace(speed=10)
    slices = plan([(100, 1), (105, 1), (160, 1)], pace, 100)
    assert [(one.from_ms, one.rows) for one in slices] == [(100_000, 2), (160_000, 1)]
    assert pace.due_s(slices, 1) == 6.0


def test_full_speed_waits_for_nothing() -> None:
    assert Pace().due_s(plan([(1, 5), (99, 5)], Pace(), 5), 1) == 0.0


@pytest.mark.parametrize("pace", [(1, 1), (0, None), (None, -2)])
def test_a_pace_that_is_none_is_refused(pace: tuple[float | None, float | None]) -> None:
    with pytest.raises(ConfigError):
        Pace(*pace)


def test_a_replay_is_remembered() -> None:
    state = Replayed("r1", {"toTopic": "x"}, plan([(1, 5)], Pace(), 2), 9_000)
    assert Replayed.from_json(state.to_json(), "file") == state


@pytest.mark.parametrize("text", [b"", b"{}", b'{"format": 2}', b'{"format": 1, "slices": [1]}'])
def test_what_is_no_replay_is_refused(text: bytes) -> None:
    with pytest.raises(ConfigError, match=r"^replay\.json is "):
        Replayed.from_json(text, "replay.json")
