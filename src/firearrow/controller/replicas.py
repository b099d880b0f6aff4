"""One broker's replicas: who has which id, who is master, who is in sync. Pure; start reading here.

The rules:

1. A `ReplicaSet` changes by the functions below and by nothing else; each asks `NEXT_PHASE`, and
   what is not in that table cannot happen.
2. Each election begins a new epoch, also when the same replica is elected again: a master that
   was away may have lost what it had not written, so what it writes from now on must be told
   from what others still have of before. Epochs only grow.
3. The in-sync set contains the master. After an election it is the master alone; only the master
   of the current epoch changes it, naming the set that it knows.
4. Nobody outside the in-sync set is elected, unless the operator allows it (`unclean`): each
   acknowledged message is on every member, so each of them may follow, and nobody else.
5. A master that is lost leaves the in-sync set behind as it was.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

import msgspec

from firearrow.controller.errors import (
    AlterFailed,
    BrokerNotAlive,
    ElectionFailed,
    FencedMasterEpoch,
    FencedSyncStateSetEpoch,
    InvalidBrokerId,
    InvalidClean,
    InvalidControllerRequest,
    InvalidMaster,
    InvalidReplicas,
    MasterNotAvailable,
    MasterStillExists,
    NotRegistered,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

FIRST_BROKER_ID: Final = 1  # 0 is how name servers know a master; a replica's own id never is
REPLICAS_MAX: Final = 100


class Phase(Enum):
    """Where a broker's replicas stand."""

    NEW = "new"  # there never was a master
    LED = "led"
    LEADERLESS = "leaderless"  # there was a master; the in-sync set says who may be the next


class Event(Enum):
    JOINED = "joined"  # a replica took an id
    MOVED = "moved"  # a replica has another address
    ELECTED = "elected"
    MASTER_LOST = "master-lost"
    ALTERED = "altered"  # the in-sync set
    FORGOTTEN = "forgotten"  # a replica, by an operator


NEXT_PHASE: Final[dict[tuple[Phase, Event], Phase]] = {
    (Phase.NEW, Event.JOINED): Phase.NEW,
    (Phase.NEW, Event.MOVED): Phase.NEW,
    (Phase.NEW, Event.ELECTED): Phase.LED,
    (Phase.NEW, Event.FORGOTTEN): Phase.NEW,
    (Phase.LED, Event.JOINED): Phase.LED,
    (Phase.LED, Event.MOVED): Phase.LED,
    (Phase.LED, Event.ELECTED): Phase.LED,
    (Phase.LED, Event.MASTER_LOST): Phase.LEADERLESS,
    (Phase.LED, Event.ALTERED): Phase.LED,
    (Phase.LED, Event.FORGOTTEN): Phase.LED,
    (Phase.LEADERLESS, Event.JOINED): Phase.LEADERLESS,
    (Phase.LEADERLESS, Event.MOVED): Phase.LEADERLESS,
    (Phase.LEADERLESS, Event.ELECTED): Phase.LED,
    (Phase.LEADERLESS, Event.FORGOTTEN): Phase.LEADERLESS,
}


class Replica(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    address: str
    check_code: str  # proves, when the broker asks again, that the id is its own


class ReplicaSet(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All that is known for good about the replicas of one broker name."""

    cluster_name: str
    broker_name: str
    replicas: dict[int, Replica] = {}
    next_broker_id: int = FIRST_BROKER_ID  # ids are never given twice
    master_broker_id: int | None = None
    master_epoch: int = 0
    sync_state_set: frozenset[int] = frozenset()
    sync_state_set_epoch: int = 0

    @property
    def phase(self) -> Phase:
        if self.master_broker_id is not None:
            return Phase.LED
        return Phase.LEADERLESS if self.master_epoch else Phase.NEW

    @property
    def master_address(self) -> str | None:
        if self.master_broker_id is None:
            return None
        return self.replicas[self.master_broker_id].address


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What a living replica said of itself last: a hint whom to prefer, never a proof."""

    epoch: int = 0
    max_offset: int = 0
    confirm_offset: int = 0
    priority: int = (1 << 31) - 1  # the lower the better


def _next(before: ReplicaSet, event: Event, **changes: object) -> ReplicaSet:
    phase = NEXT_PHASE.get((before.phase, event))
    if phase is None:
        raise InvalidControllerRequest(
            f"{before.broker_name} is {before.phase.value}: it cannot be {event.value}"
        )
    after = msgspec.structs.replace(before, **changes)
    assert after.phase is phase, (before, event, after)
    assert after.master_epoch >= before.master_epoch
    assert after.sync_state_set_epoch >= before.sync_state_set_epoch
    assert after.master_broker_id is None or after.master_broker_id in after.sync_state_set
    assert after.sync_state_set <= after.replicas.keys()
    return after


# --- ids --------------------------------------------------------------------------------------


def join(
    before: ReplicaSet | None, *, cluster: str, name: str, broker_id: int, check_code: str
) -> ReplicaSet:
    """A broker takes an id that is free, or that it already has."""
    before = before or ReplicaSet(cluster_name=cluster, broker_name=name)
    known = before.replicas.get(broker_id)
    if known is not None:
        if known.check_code != check_code:
            raise InvalidBrokerId(f"id {broker_id} of {name} belongs to {known.address}")
        return before
    if broker_id != before.next_broker_id:
        raise InvalidBrokerId(
            f"id {broker_id} of {name} is not to be had: the next one is {before.next_broker_id}"
        )
    if len(before.replicas) >= REPLICAS_MAX:
        raise InvalidBrokerId(f"{name} has {REPLICAS_MAX} replicas, the most there can be")
    replica = Replica(address=check_code.partition(";")[0], check_code=check_code)
    return _next(
        before,
        Event.JOINED,
        replicas={**before.replicas, broker_id: replica},
        next_broker_id=broker_id + 1,
    )


def register(before: ReplicaSet | None, *, name: str, broker_id: int, address: str) -> ReplicaSet:
    """A broker that has an id says where it is now."""
    replica = None if before is None else before.replicas.get(broker_id)
    if before is None or replica is None:
        raise NotRegistered(f"{name} has no replica with id {broker_id}; apply for an id first")
    if replica.address == address:
        return before
    moved = msgspec.structs.replace(replica, address=address)
    return _next(before, Event.MOVED, replicas={**before.replicas, broker_id: moved})


def forget(
    before: ReplicaSet, ids: Collection[int] | None, *, alive: Collection[int], force: bool
) -> ReplicaSet | None:
    """Replicas that will not come back; all of them for `ids` None. None is left of the last."""
    doomed = set(before.replicas) if ids is None else set(ids)
    if unknown := doomed - before.replicas.keys():
        raise InvalidClean(f"{before.broker_name} has no replica {_names(unknown)}")
    if not force and (living := doomed & set(alive)):
        raise InvalidClean(f"replica {_names(living)} of {before.broker_name} is alive")
    if doomed == before.replicas.keys():
        return None
    if before.master_broker_id in doomed:
        raise InvalidClean(
            f"replica {before.master_broker_id} is the master of {before.broker_name}; "
            "elect another one first"
        )
    in_sync = before.sync_state_set - doomed
    if before.sync_state_set and not in_sync:
        raise InvalidClean(
            f"nobody but replica {_names(doomed)} of {before.broker_name} is sure to have every "
            "acknowledged message; start it, or elect another one with enableElectUncleanMaster"
        )
    changed = in_sync != before.sync_state_set
    return _next(
        before,
        Event.FORGOTTEN,
        replicas={n: replica for n, replica in before.replicas.items() if n not in doomed},
        sync_state_set=in_sync,
        sync_state_set_epoch=before.sync_state_set_epoch + changed,
    )


# --- elections --------------------------------------------------------------------------------


def elect(
    before: ReplicaSet,
    alive: Mapping[int, Standing],
    *,
    asked_by: int | None = None,
    designated: int | None = None,
    unclean: bool = False,
) -> ReplicaSet:
    """Another master, or an error that says why there is none; `asked_by` None: the controller.

    A master that asks by itself says that it has begun anew: it reigns on under a new epoch, or
    another one does.
    """
    master = before.master_broker_id
    if asked_by is not None and asked_by not in before.replicas:
        raise NotRegistered(f"{before.broker_name} has no replica with id {asked_by}")
    if designated is None and master is not None and master in alive and asked_by != master:
        raise MasterStillExists(f"replica {master} of {before.broker_name} is master and alive")
    if designated is not None and designated == master and master in alive:
        raise MasterStillExists(f"replica {master} of {before.broker_name} already is master")
    fit = _fit(before, alive, unclean=unclean)
    if designated is not None:
        if designated not in fit:
            raise ElectionFailed(_why_not(before, alive, designated))
        chosen = designated
    elif not fit:
        in_sync = _names(before.sync_state_set) or "nobody"
        raise MasterNotAvailable(
            f"no replica of {before.broker_name} can be master: in sync was {in_sync}, "
            f"alive is {_names(alive) or 'nobody'}"
        )
    else:
        chosen = min(fit, key=lambda n: _rank(n, alive[n]))
    return _next(
        before,
        Event.ELECTED,
        master_broker_id=chosen,
        master_epoch=before.master_epoch + 1,
        sync_state_set=frozenset({chosen}),
        sync_state_set_epoch=before.sync_state_set_epoch + 1,
    )


def _fit(before: ReplicaSet, alive: Mapping[int, Standing], *, unclean: bool) -> set[int]:
    living = before.replicas.keys() & alive.keys()
    if before.phase is Phase.NEW:
        return living
    in_sync = living & before.sync_state_set
    return in_sync or (living if unclean else set())


def _rank(broker_id: int, standing: Standing) -> tuple[int, int, int, int]:
    return -standing.epoch, -standing.max_offset, standing.priority, broker_id


def _why_not(before: ReplicaSet, alive: Collection[int], broker_id: int) -> str:
    name = f"replica {broker_id} of {before.broker_name}"
    if broker_id not in before.replicas:
        return f"{name} does not exist"
    if broker_id not in alive:
        return f"{name} is not alive"
    return f"{name} is not in sync and may lack acknowledged messages: wait until it is"


def lose_master(before: ReplicaSet) -> ReplicaSet:
    """The master is gone and nobody can follow yet; who was in sync is remembered."""
    return _next(before, Event.MASTER_LOST, master_broker_id=None)


# --- who is in sync ---------------------------------------------------------------------------


def alter(
    before: ReplicaSet,
    proposed: Collection[int],
    *,
    master_id: int,
    master_epoch: int,
    set_epoch: int,
    alive: Collection[int],
) -> ReplicaSet:
    """The master of this epoch says who has everything, knowing who had it before.

    The same set again is no mistake, as it is to Apache: with its new epoch, proposals that are
    still under way can no longer be heard.
    """
    name, members = before.broker_name, frozenset(proposed)
    if before.master_broker_id != master_id:
        raise InvalidMaster(f"{name}: the master is {before.master_broker_id}, not {master_id}")
    if before.master_epoch != master_epoch:
        raise FencedMasterEpoch(
            f"{name}: the master's epoch is {before.master_epoch}, not {master_epoch}"
        )
    if before.sync_state_set_epoch != set_epoch:
        raise FencedSyncStateSetEpoch(
            f"{name}: the in-sync set's epoch is {before.sync_state_set_epoch}, not {set_epoch}"
        )
    if unknown := members - before.replicas.keys():
        raise InvalidReplicas(f"{name} has no replica {_names(unknown)}")
    if master_id not in members:
        raise AlterFailed(f"{name}: the master itself must be in sync")
    if dead := members - before.sync_state_set - set(alive):
        raise BrokerNotAlive(f"{name}: replica {_names(dead)} is not alive")
    return _next(
        before,
        Event.ALTERED,
        sync_state_set=members,
        sync_state_set_epoch=before.sync_state_set_epoch + 1,
    )


def _names(ids: Collection[int]) -> str:
    return ", ".join(map(str, sorted(ids)))
