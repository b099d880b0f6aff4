from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from firearrow.client.allocation import (
    AllocateAveragely,
    AllocateAveragelyByCircle,
    AllocateByConfig,
    AllocateByConsistentHash,
    AllocateByMachineRoom,
    AllocateMachineRoomNearby,
)
from firearrow.model.topic import MessageQueue

if TYPE_CHECKING:
    from firearrow.client.allocation import AllocationStrategy

GROUP = "readers"
IDS = ["CID1", "CID2", "CID3"]


def queues_of(count: int, broker_name: str = "brokerName") -> list[MessageQueue]:
    return [
        MessageQueue(topic="topic_test", broker_name=broker_name, queue_id=number)
        for number in range(count)
    ]


def ids_given(
    strategy: AllocationStrategy, queues: list[MessageQueue], client_ids: list[str]
) -> list[list[int]]:
    return [
        [queue.queue_id for queue in strategy.allocate(GROUP, client_id, queues, client_ids)]
        for client_id in client_ids
    ]


class RoomsByPrefix:
    """``room-a@...`` for brokers and clients alike."""

    def broker_room(self, queue: MessageQueue) -> str:
        return queue.broker_name.rpartition("@")[0]

    def consumer_room(self, client_id: str) -> str:
        return client_id.rpartition("@")[0]


@pytest.mark.parametrize(
    ("count", "shares"),
    [
        (10, [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9]]),
        (8, [[0, 1, 2], [3, 4, 5], [6, 7]]),
        (3, [[0], [1], [2]]),
        (2, [[0], [1], []]),
    ],
)
def test_averagely_gives_runs_of_neighbours(count: int, shares: list[list[int]]) -> None:
    assert ids_given(AllocateAveragely(), queues_of(count), IDS) == shares


@pytest.mark.parametrize(
    ("count", "shares"),
    [(8, [[0, 3, 6], [1, 4, 7], [2, 5]]), (2, [[0], [1], []])],
)
def test_by_circle_deals_queues_like_cards(count: int, shares: list[list[int]]) -> None:
    assert ids_given(AllocateAveragelyByCircle(), queues_of(count), IDS) == shares


def test_by_machine_room_deals_the_rest_from_the_end() -> None:
    strategy = AllocateByMachineRoom(["room1"])
    near = queues_of(8, "room1@broker-a")
    assert ids_given(strategy, near, IDS) == [[0, 1, 6], [2, 3, 7], [4, 5]]


@pytest.mark.parametrize(
    ("broker_name", "taken"),
    [
        ("room1@a", True),
        ("room2@a", True),
        ("room3@a", False),
        ("room1", False),
        ("room1@", False),
        ("@room1", False),
        ("room1@a@b", False),
        ("room1@a@", True),  # Java drops empty parts at the end
    ],
)
def test_by_machine_room_takes_only_queues_of_its_rooms(broker_name: str, *, taken: bool) -> None:
    strategy = AllocateByMachineRoom({"room1", "room2"})
    queues = queues_of(1, broker_name)
    assert strategy.allocate(GROUP, "me", queues, ["me"]) == (queues if taken else [])


def test_by_config_gives_the_configured_queues_whoever_is_there() -> None:
    fixed = queues_of(2)
    strategy = AllocateByConfig(fixed)
    assert strategy.allocate(GROUP, "me", [], []) == fixed
    strategy.allocate(GROUP, "me", [], []).clear()
    assert strategy.allocate(GROUP, "me", queues_of(9), ["others"]) == fixed


def test_consistent_hash_gives_each_queue_to_the_owner_that_java_gives_it_to() -> None:
    strategy = AllocateByConsistentHash()
    queues = queues_of(8)
    owners = {
        queue.queue_id: client_id
        for client_id in IDS
        for queue in strategy.allocate(GROUP, client_id, queues, IDS)
    }
    assert [owners[number] for number in range(8)] == [
        "CID3", "CID2", "CID2", "CID1", "CID2", "CID2", "CID2", "CID2",
    ]  # fmt: skip


def test_consistent_hash_without_virtual_nodes_gives_nobody_anything() -> None:
    assert ids_given(AllocateByConsistentHash(0), queues_of(8), IDS) == [[], [], []]


def test_nearby_shares_a_room_among_its_own_and_an_empty_room_among_all() -> None:
    strategy = AllocateMachineRoomNearby(AllocateAveragely(), RoomsByPrefix())
    near, far, empty = (queues_of(4, f"{room}@broker") for room in ("a", "b", "c"))
    ids = ["a@1", "a@2", "b@1"]
    queues = [*near, *far, *empty]
    assert strategy.allocate(GROUP, "a@1", queues, ids) == near[:2] + empty[:2]
    assert strategy.allocate(GROUP, "a@2", queues, ids) == near[2:] + empty[2:3]
    assert strategy.allocate(GROUP, "b@1", queues, ids) == far + empty[3:]


def test_nearby_gives_a_member_of_a_room_without_queues_its_share_of_empty_rooms() -> None:
    strategy = AllocateMachineRoomNearby(AllocateAveragelyByCircle(), RoomsByPrefix())
    queues = queues_of(3, "c@broker")
    assert strategy.allocate(GROUP, "b@1", queues, ["a@1", "b@1"]) == queues[1:2]


def test_nearby_names_what_has_no_room() -> None:
    strategy = AllocateMachineRoomNearby(AllocateAveragely(), RoomsByPrefix())
    with pytest.raises(ValueError, match=r"no machine room for .*nowhere"):
        strategy.allocate(GROUP, "a@1", queues_of(1, "nowhere"), ["a@1"])
    with pytest.raises(ValueError, match="no machine room for stray"):
        strategy.allocate(GROUP, "a@1", queues_of(1, "a@x"), ["a@1", "stray"])


def test_names_are_those_that_brokers_know() -> None:
    strategies: list[AllocationStrategy] = [
        AllocateAveragely(),
        AllocateAveragelyByCircle(),
        AllocateByConfig([]),
        AllocateByMachineRoom(["a"]),
        AllocateByConsistentHash(),
        AllocateMachineRoomNearby(AllocateByConsistentHash(), RoomsByPrefix()),
    ]
    assert [strategy.name for strategy in strategies] == [
        "AVG",
        "AVG_BY_CIRCLE",
        "CONFIG",
        "MACHINE_ROOM",
        "CONSISTENT_HASH",
        "MACHINE_ROOM_NEARBY-CONSISTENT_HASH",
    ]


SHARING: list[AllocationStrategy] = [
    AllocateAveragely(),
    AllocateAveragelyByCircle(),
    AllocateByMachineRoom(["a"]),
    AllocateByConsistentHash(),
    AllocateMachineRoomNearby(AllocateAveragely(), RoomsByPrefix()),
]


@pytest.mark.parametrize("strategy", SHARING, ids=lambda strategy: strategy.name)
def test_a_client_that_is_not_listed_yet_gets_nothing(strategy: AllocationStrategy) -> None:
    assert strategy.allocate(GROUP, "a@9", queues_of(3, "a@x"), ["a@1", "a@2"]) == []


@pytest.mark.parametrize("strategy", SHARING, ids=lambda strategy: strategy.name)
def test_nothing_to_share_or_nobody_to_share_among_is_an_error(
    strategy: AllocationStrategy,
) -> None:
    with pytest.raises(ValueError, match="readers: the client id is empty"):
        strategy.allocate(GROUP, "", queues_of(1), ["a@1"])
    with pytest.raises(ValueError, match="readers: there are no queues"):
        strategy.allocate(GROUP, "a@1", [], ["a@1"])
    with pytest.raises(ValueError, match="readers: there are no client ids"):
        strategy.allocate(GROUP, "a@1", queues_of(1), [])


def test_strategies_that_could_never_share_are_refused_when_made() -> None:
    with pytest.raises(ValueError, match="-1 virtual nodes"):
        AllocateByConsistentHash(-1)
    with pytest.raises(ValueError, match="no machine room is named"):
        AllocateByMachineRoom([])
