from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow.broker.assignment import share
from firearrow.model.errors import InvalidParameter
from firearrow.model.topic import MessageQueue


def queues_of(count: int) -> list[MessageQueue]:
    return [
        MessageQueue(topic="orders", broker_name="broker-a", queue_id=number)
        for number in range(count)
    ]


@given(
    st.sampled_from([None, "AVG", "AVG_BY_CIRCLE"]),
    st.integers(0, 40),
    st.integers(1, 12),
)
def test_every_queue_goes_to_exactly_one_member_and_shares_are_even(
    strategy: str | None, count: int, members: int
) -> None:
    names = [f"client-{number:02d}" for number in range(members)]
    shares = [share(strategy, queues_of(count), names, name) for name in names]
    assert sorted(queue for one in shares for queue in one) == queues_of(count)
    sizes = [len(one) for one in shares]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True), "the first ones get one more, as in Java"


def test_unknown_strategy_is_refused_by_name() -> None:
    with pytest.raises(InvalidParameter, match="BY_MOON"):
        share("BY_MOON", queues_of(1), ["a"], "a")
