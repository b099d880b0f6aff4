"""Strategies by which each member of a group works out which queues are its own.

Nobody tells the members: each sorts queues and client ids in the same way and counts. So all
members of a group must use the same strategy, and all of these count as RocketMQ's do to the last
queue, since a group may have Java members. The caller sorts: queues by topic, broker name and id,
client ids as plain text.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from firearrow.model.allocation import AVERAGE, CIRCLE, average_share, circle_share

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from firearrow.model.topic import MessageQueue

VIRTUAL_NODES: Final = 10

_T = TypeVar("_T")


class AllocationStrategy(Protocol):
    """How the queues of one topic are shared among the members of a group."""

    @property
    def name(self) -> str:
        """What brokers know it by."""
        ...

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """The queues of one member; none if it is not (yet) among the ids.

        ValueError if there is nothing to share or nobody to share among: a caller that knows
        neither leaves things as they are.
        """
        ...


class MachineRoomResolver(Protocol):
    """Where brokers and consumers are. Every name must have a room."""

    def broker_room(self, queue: MessageQueue) -> str: ...

    def consumer_room(self, client_id: str) -> str: ...


class AllocateAveragely:
    """The default: runs of neighbouring queues, as even as can be."""

    name: Final = AVERAGE

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if not _is_member(group, client_id, queues, client_ids):
            return []
        return average_share(queues, index=client_ids.index(client_id), members=len(client_ids))


class AllocateAveragelyByCircle:
    """Queues dealt like cards, so that each member gets some of every broker."""

    name: Final = CIRCLE

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if not _is_member(group, client_id, queues, client_ids):
            return []
        return circle_share(queues, index=client_ids.index(client_id), members=len(client_ids))


class AllocateByConfig:
    """A fixed list, whoever else is there: that nobody else has them is the operator's care."""

    name: Final = "CONFIG"

    def __init__(self, queues: Sequence[MessageQueue]) -> None:
        self._queues = tuple(queues)

    def allocate(
        self,
        group: str,  # noqa: ARG002 - nothing that is known at run time matters
        client_id: str,  # noqa: ARG002
        queues: Sequence[MessageQueue],  # noqa: ARG002
        client_ids: Sequence[str],  # noqa: ARG002
    ) -> list[MessageQueue]:
        return list(self._queues)


class AllocateByMachineRoom:
    """Only queues of some rooms, by broker names of the form ``room@broker``."""

    name: Final = "MACHINE_ROOM"

    def __init__(self, rooms: Collection[str]) -> None:
        self._rooms = frozenset(rooms)
        if not self._rooms:
            raise ValueError("no machine room is named, so no queue would ever be consumed")

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if not _is_member(group, client_id, queues, client_ids):
            return []
        index, members = client_ids.index(client_id), len(client_ids)
        near = [queue for queue in queues if self._is_near(queue.broker_name)]
        # Unlike AVG, what does not come out even is dealt from the end of the list.
        each, more = divmod(len(near), members)
        share = near[index * each : (index + 1) * each]
        if index < more:
            share.append(near[index + each * members])
        return share

    def _is_near(self, broker_name: str) -> bool:
        # Java drops empty parts at the end of what it splits: "a@b@" has two, "a@" has one.
        parts = broker_name.rstrip("@").split("@")
        return len(parts) == 2 and parts[0] in self._rooms


class AllocateMachineRoomNearby:
    """Each room's queues for its own consumers; everyone shares those of rooms without any."""

    def __init__(self, inner: AllocationStrategy, resolver: MachineRoomResolver) -> None:
        self._inner = inner
        self._resolver = resolver

    @property
    def name(self) -> str:
        return f"MACHINE_ROOM_NEARBY-{self._inner.name}"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if not _is_member(group, client_id, queues, client_ids):
            return []
        queues_in = _by_room(queues, self._resolver.broker_room)
        ids_in = _by_room(client_ids, self._resolver.consumer_room)
        own_room = self._resolver.consumer_room(client_id)
        found: list[MessageQueue] = []
        if own_queues := queues_in.pop(own_room, None):
            found += self._inner.allocate(group, client_id, own_queues, ids_in[own_room])
        for room in sorted(queues_in):
            if room not in ids_in:
                found += self._inner.allocate(group, client_id, queues_in[room], client_ids)
        return found


class AllocateByConsistentHash:
    """Most queues stay where they are when a member comes or goes; shares are less even."""

    name: Final = "CONSISTENT_HASH"

    def __init__(self, virtual_nodes: int = VIRTUAL_NODES) -> None:
        if virtual_nodes < 0:
            raise ValueError(f"{virtual_nodes} virtual nodes per client; 0 is the least")
        self._virtual_nodes = virtual_nodes

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if not _is_member(group, client_id, queues, client_ids):
            return []
        ring = self._ring(client_ids)
        places = sorted(ring)
        if not places:
            return []

        def owner(queue: MessageQueue) -> str:
            # The text that Java's MessageQueue prints of itself.
            place = _place(
                f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, "
                f"queueId={queue.queue_id}]"
            )
            return ring[places[bisect_left(places, place) % len(places)]]

        return [queue for queue in queues if owner(queue) == client_id]

    def _ring(self, client_ids: Sequence[str]) -> dict[int, str]:
        """Whose each place on the ring is: every id has several, scattered by their hashes."""
        ring: dict[int, str] = {}
        seen: set[str] = set()
        for client_id in client_ids:
            # A client that a broker lists twice has more places, numbered on from those it has.
            first = sum(owner == client_id for owner in ring.values()) if client_id in seen else 0
            seen.add(client_id)
            for number in range(first, first + self._virtual_nodes):
                ring[_place(f"{client_id}-{number}")] = client_id
        return ring


def _place(key: str) -> int:
    digest = hashlib.md5(key.encode("utf-8", "replace"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")


def _is_member(
    group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> bool:
    if not client_id:
        raise ValueError(f"group {group}: the client id is empty")
    if not queues:
        raise ValueError(f"group {group}: there are no queues to share")
    if not client_ids:
        raise ValueError(f"group {group}: there are no client ids to share queues among")
    return client_id in client_ids


def _by_room(things: Sequence[_T], room_of: Callable[[_T], str]) -> dict[str, list[_T]]:
    rooms: dict[str, list[_T]] = {}
    for thing in things:
        room = room_of(thing)
        if not room:
            raise ValueError(f"the resolver knows no machine room for {thing}")
        rooms.setdefault(room, []).append(thing)
    return rooms
