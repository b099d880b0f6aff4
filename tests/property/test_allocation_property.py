from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from firearrow.client.allocation import (
    AllocateAveragely,
    AllocateAveragelyByCircle,
    AllocateByConsistentHash,
    AllocateByMachineRoom,
    AllocateMachineRoomNearby,
    AllocationStrategy,
)
from firearrow.model.allocation import average_share
from firearrow.model.topic import MessageQueue

if TYPE_CHECKING:
    from random import Random

ROOMS = ["east", "north", "west"]


class RoomsByName:
    def broker_room(self, queue: MessageQueue) -> str:
        return queue.broker_name.partition("@")[0]

    def consumer_room(self, client_id: str) -> str:
        return client_id.partition("@")[0]


NAMES = st.builds("{}@{}".format, st.sampled_from(ROOMS), st.integers(0, 30))
QUEUES = st.lists(
    st.builds(
        MessageQueue, topic=st.just("orders"), broker_name=NAMES, queue_id=st.integers(0, 12)
    ),
    min_size=1,
    max_size=40,
    unique=True,
)
CLIENT_IDS = st.lists(NAMES, min_size=1, max_size=12, unique=True)
PLAIN: list[AllocationStrategy] = [
    AllocateAveragely(),
    AllocateAveragelyByCircle(),
    AllocateByMachineRoom(ROOMS),
    AllocateByConsistentHash(),
    AllocateByConsistentHash(1),
]
NEARBY: list[AllocationStrategy] = [
    AllocateMachineRoomNearby(inner, RoomsByName()) for inner in PLAIN
]
STRATEGIES = st.sampled_from(PLAIN + NEARBY)


def shares_of(
    strategy: AllocationStrategy, queues: list[MessageQueue], client_ids: list[str]
) -> dict[str, list[MessageQueue]]:
    return {one: strategy.allocate("readers", one, queues, client_ids) for one in client_ids}


@given(STRATEGIES, QUEUES, CLIENT_IDS)
def test_every_queue_goes_to_exactly_one_member(
    strategy: AllocationStrategy, queues: list[MessageQueue], client_ids: list[str]
) -> None:
    shares = shares_of(strategy, sorted(queues), sorted(client_ids))
    assert sorted(queue for share in shares.values() for queue in share) == sorted(queues)


@given(STRATEGIES, QUEUES, CLIENT_IDS, st.randoms(use_true_random=False))
def test_members_that_learn_of_each_other_in_any_order_agree(
    strategy: AllocationStrategy,
    queues: list[MessageQueue],
    client_ids: list[str],
    random: Random,
) -> None:
    expected = shares_of(strategy, sorted(queues), sorted(client_ids))
    for one in client_ids:
        random.shuffle(queues)
        random.shuffle(client_ids)
        seen = strategy.allocate("readers", one, sorted(queues), sorted(client_ids))
        assert seen == expected[one]


@given(st.sampled_from(PLAIN[:3]), QUEUES, CLIENT_IDS)
def test_shares_are_even(
    strategy: AllocationStrategy, queues: list[MessageQueue], client_ids: list[str]
) -> None:
    sizes = [len(share) for share in shares_of(strategy, sorted(queues), client_ids).values()]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True), "the first ones get one more, as in Java"


@given(QUEUES, CLIENT_IDS)
def test_consistent_hash_does_not_depend_on_any_order(
    queues: list[MessageQueue], client_ids: list[str]
) -> None:
    strategy = AllocateByConsistentHash()
    first = shares_of(strategy, queues, client_ids)
    second = shares_of(strategy, queues[::-1], client_ids[::-1])
    assert {one: share[::-1] for one, share in second.items()} == first


@given(QUEUES, CLIENT_IDS.filter(lambda ids: len(ids) > 1))
def test_consistent_hash_moves_only_the_queues_of_a_member_that_leaves(
    queues: list[MessageQueue], client_ids: list[str]
) -> None:
    strategy = AllocateByConsistentHash()
    before = shares_of(strategy, queues, client_ids)
    after = shares_of(strategy, queues, client_ids[1:])
    for one in client_ids[1:]:
        assert set(before[one]) <= set(after[one])


@given(st.integers(0, 60), st.integers(1, 20))
def test_average_shares_are_those_of_rocketmqs_formula(queues: int, members: int) -> None:
    rest = queues % members
    for index in range(members):
        size = 1 if queues <= members else queues // members + (rest > 0 and index < rest)
        start = index * size if rest > 0 and index < rest else index * size + rest
        expected = [start + step for step in range(min(size, queues - start))]
        assert average_share(range(queues), index=index, members=members) == expected
