"""Who holds how much of the log, who is in sync, and who waits for that; pure.

    master  |======================================| end
    slave 1 |==================================|     acked
    slave 2 |====================|                   acked

What counts as replicated follows from the rules, which are RocketMQ's:

    nobody is waited for     ASYNC_MASTER, or SYNC_MASTER with inSyncReplicas=1
    one slave                SYNC_MASTER as RocketMQ 4 means it; SLAVE_NOT_AVAILABLE without one
    so many replicas         SYNC_MASTER with inSyncReplicas > 1, the master being one of them
    the sync-state set       controller mode: every member of it, or as many as above
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Tell = Callable[[bool], None]


@dataclass(frozen=True, slots=True)
class SyncRules:
    """By whom a message must be held before its producer hears that it is stored."""

    waits: bool = False
    replicas: int = 0  # the master included; 0: one slave, as in RocketMQ 4
    replicas_min: int = 1  # fewer than these in sync: nothing is taken
    is_auto: bool = False  # do with fewer than `replicas` when fewer are in sync
    whole_set: bool = False  # every member of the sync-state set
    gap_max: int = 256 << 20  # bytes that a slave in sync may be behind
    late_ms: int = 5_000  # a member of the set that was not caught up for so long falls out of it


@dataclass(slots=True, eq=False)
class Follower:
    """One slave's connection, as its master sees it."""

    address: str
    broker_id: int | None = None  # known with epochs only
    is_learner: bool = False
    acked: int = -1  # -1: it has not reported yet
    sent: int = -1  # where the next transfer begins
    sent_bytes: int = 0
    bytes_per_second: int = 0
    end_at_transfer: int = 0  # the master's end when something was sent last
    caught_up_ms: int = 0  # at that time it had everything, as far as we know
    mark: int = 0  # the master's end at an earlier time; who reaches it had caught up then
    marked_ms: int = 0


@dataclass(slots=True)
class SyncStateSet:
    """Broker ids that hold everything that counts, the master's own included."""

    own_id: int = 0
    members: frozenset[int] = frozenset()
    acked: dict[int, int] = field(default_factory=dict)  # by others, also when they are away
    joining: set[int] = field(default_factory=set)  # proposed: they count as members already


class ReplicationProgress:
    """Who holds what. `end_offset` says how far the master's own log is.

    `on_sync_change(broker_id, in_sync)` is called when a slave with an id has caught up and is not
    in the set, or is in it and has fallen out. Whoever owns the set decides, and says so with
    `set_members`; until then old and new members are waited for, since either may be elected.
    """

    def __init__(self, end_offset: Callable[[], int]) -> None:
        self._end_offset = end_offset
        self.rules = SyncRules()
        self.followers: list[Follower] = []
        self.set = SyncStateSet()
        self.epoch_start = 0
        self._waiting: list[tuple[int, int, Tell]] = []  # sorted by offset
        self._order = 0
        self._confirmed = 0
        self.on_sync_change: Callable[[int, bool], None] | None = None
        self.on_confirmed: Callable[[], None] | None = None

    # --- followers --------------------------------------------------------------------------

    def joined(self, follower: Follower, now_ms: int) -> None:
        follower.caught_up_ms = follower.marked_ms = now_ms
        self.followers.append(follower)

    def acked(self, follower: Follower, offset: int, now_ms: int) -> None:
        """A slave holds the log up to there."""
        follower.acked = offset
        if offset >= follower.mark:
            # Under load it never has all that there is now; it has what there was a moment ago.
            has_all = offset >= follower.end_at_transfer
            follower.caught_up_ms = now_ms if has_all else follower.marked_ms
            follower.mark, follower.marked_ms = follower.end_at_transfer, now_ms
        number = follower.broker_id
        if number is not None:
            if number in self.set.members or number in self.set.joining:
                self.set.acked[number] = offset
            elif self._is_caught_up(follower) and self.on_sync_change is not None:
                self.set.joining.add(number)
                self.set.acked[number] = offset
                self.on_sync_change(number, True)  # noqa: FBT003
        self.advance()

    def _is_caught_up(self, follower: Follower) -> bool:
        return (
            not follower.is_learner
            and follower.acked >= follower.end_at_transfer
            and follower.acked >= max(self.confirm_offset, self.epoch_start)
        )

    def left(self, follower: Follower) -> None:
        if follower in self.followers:
            self.followers.remove(follower)
            number = follower.broker_id
            if not any(other.broker_id == number for other in self.followers):
                self._fallen_out(number)

    def look_for_late(self, now_ms: int) -> None:
        """Report members of the set that are not connected, or have been late for too long.

        Call it often: who has everything and is silent is not late until there is more.
        """
        for follower in self.followers:
            if follower.acked >= follower.end_at_transfer:
                follower.caught_up_ms = now_ms
        present = {
            follower.broker_id
            for follower in self.followers
            if now_ms - follower.caught_up_ms <= self.rules.late_ms
        }
        for number in self.set.members - present - {self.set.own_id}:
            self._fallen_out(number)

    def _fallen_out(self, number: int | None) -> None:
        if number is not None and number in self.set.members and self.on_sync_change is not None:
            self.on_sync_change(number, False)  # noqa: FBT003

    # --- what follows -----------------------------------------------------------------------

    def set_members(self, own_id: int, members: Iterable[int]) -> None:
        """The set as it is from now on; whoever is new in it has acked what it said last."""
        acked = {follower.broker_id: follower.acked for follower in self.followers}
        kept = frozenset(members) | {own_id}
        self.set = SyncStateSet(
            own_id,
            kept,
            {
                number: max(acked.get(number, 0), self.set.acked.get(number, 0))
                for number in kept - {own_id}
            },
        )
        self.advance()

    def in_sync(self) -> list[Follower]:
        """Slaves that are not too far behind to count."""
        end = self._end_offset()
        return [
            follower
            for follower in self.followers
            if follower.acked >= 0 and end - follower.acked < self.rules.gap_max
        ]

    def refusal(self) -> str:
        """Why nothing should be stored now; empty when it may."""
        rules = self.rules
        if not rules.waits or rules.replicas_min <= 1:
            return ""
        there = len(self.set.members) if rules.whole_set else 1 + len(self.in_sync())
        if there >= rules.replicas_min:
            return ""
        return (
            f"IN_SYNC_REPLICAS_NOT_ENOUGH: {there} of {rules.replicas_min} replicas are in sync "
            "(minInSyncReplicas)"
        )

    @property
    def is_alone(self) -> bool:
        """Whether RocketMQ 4's rule finds no slave to wait for."""
        rules = self.rules
        return rules.waits and not rules.whole_set and not rules.replicas and not self.in_sync()

    @property
    def replicated(self) -> int:
        """Everything before this offset is held by as many as the rules want."""
        end, rules = self._end_offset(), self.rules
        if not rules.waits:
            return end
        if rules.whole_set:
            return min([end, *self.set.acked.values()])
        slaves = max(1, rules.replicas - 1) if rules.replicas != 1 else 0
        if rules.is_auto:
            slaves = min(slaves, max(len(self.in_sync()), rules.replicas_min - 1))
        if not slaves:
            return end
        acked = sorted((follower.acked for follower in self.followers), reverse=True)
        return min(end, acked[slaves - 1]) if len(acked) >= slaves else -1

    @property
    def confirm_offset(self) -> int:
        """What no change of masters takes back; it never moves backwards."""
        if self.rules.whole_set:
            self._confirmed = max(self._confirmed, self.replicated)
            return self._confirmed
        return self._end_offset()

    # --- waiting ----------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def when_replicated(self, offset: int, tell: Tell) -> None:
        """Call `tell(True)` once enough hold the log up to `offset`, at once if they do.

        `tell(False)` when it will not happen here any more.
        """
        if offset <= self.replicated:
            tell(True)  # noqa: FBT003
            return
        self._order += 1
        insort(self._waiting, (offset, self._order, tell))

    def advance(self) -> None:
        """Acknowledgements, rules or the set have changed: tell those who have waited for it."""
        held = self.replicated
        for tell in list(self._take(held)):
            tell(True)  # noqa: FBT003
        if self.rules.whole_set and self.on_confirmed is not None:
            self.on_confirmed()

    def _take(self, held: int) -> Iterator[Tell]:
        count = 0
        while count < len(self._waiting) and self._waiting[count][0] <= held:
            count += 1
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        return (tell for _, _, tell in taken)

    def give_up(self) -> None:
        """We are no master any more: nobody will be told that it is stored."""
        waiting, self._waiting = self._waiting, []
        for _, _, tell in waiting:
            tell(False)  # noqa: FBT003

    def reset(self, rules: SyncRules) -> None:
        """Begin as a master with these rules, without anybody."""
        self.rules = rules
        self.followers.clear()
        self.set = SyncStateSet()
        self._confirmed = 0
