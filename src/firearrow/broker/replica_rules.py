"""What a replica does about what the controller says; pure.

The rules:

1. Nobody reigns in an epoch that it has heard of before: a master that comes back may have lost
   the end of its log, so it asks for an election, and gets a new epoch or another master.
2. A master believes nothing older than its own epoch.
3. What the controller may have heard counts: until it says how it stands, both the in-sync set
   that was and every one that was proposed must hold a message before it is acknowledged.
4. A master that hears no controller, and misses a member of its in-sync set, steps down: that
   member may be the next master. One that is alone in its set cannot have been replaced.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from firearrow.broker.controller_link import ReplicaInfo


@dataclass(frozen=True, slots=True)
class Stay:
    """Nothing new."""


@dataclass(frozen=True, slots=True)
class Lead:
    """Take messages, as the master of this epoch."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Follow:
    """Take nothing, and follow this master."""

    address: str
    epoch: int


@dataclass(frozen=True, slots=True)
class AskElection:
    """There is no master, or it is we and we have begun anew."""


Decision = Stay | Lead | Follow | AskElection


def decide_role(
    told: ReplicaInfo, *, own_id: int, reigns: int, newest_epoch: int, follows: Follow | None
) -> Decision:
    """`reigns`: the epoch we are master of, 0 for none; `newest_epoch`: the newest in our log."""
    if told.epoch < reigns:
        return Stay()
    if told.master_id is None:
        return AskElection()
    if told.master_id != own_id:
        follow = Follow(told.master_address, told.epoch)
        return Stay() if follow == follows else follow
    if told.epoch == reigns:
        return Stay()
    return Lead(told.epoch) if told.epoch > newest_epoch else AskElection()


def must_step_down(
    *, reigns: int, members: frozenset[int], present: frozenset[int], silent_ms: int, limit_ms: int
) -> bool:
    """Rule 4. `present`: members that hold what they should; `silent_ms`: since a controller."""
    return bool(reigns) and silent_ms >= limit_ms and not members <= present


@dataclass(slots=True)
class InSync:
    """Who is in sync as the master knows it, and who may be as the controller knows it."""

    own_id: int
    members: frozenset[int] = frozenset()
    epoch: int = 0
    doubtful: frozenset[int] = frozenset()  # proposed, with an outcome that is not known
    asked: frozenset[int] = field(default=frozenset())  # proposed just now

    @property
    def counting(self) -> frozenset[int]:
        """Whose word is needed before anything is acknowledged."""
        return self.members | self.doubtful | self.asked | {self.own_id}

    def begin(self, members: frozenset[int], epoch: int) -> None:
        self.members, self.epoch = members | {self.own_id}, epoch
        self.doubtful = self.asked = frozenset()

    def propose(self, members: frozenset[int]) -> None:
        self.asked = members | {self.own_id}

    def told(self, members: frozenset[int], epoch: int) -> bool:
        """What the controller says; whether that was news. Older news is none.

        The epoch has moved on, so whatever was proposed under the old one is settled.
        """
        if epoch <= self.epoch:
            return False
        self.members, self.epoch = members, epoch
        self.doubtful = self.asked = frozenset()
        return True

    def refused(self) -> None:
        """The controller has answered no: this proposal will not come to pass any more."""
        self.asked = frozenset()

    def unanswered(self) -> None:
        """The proposal may have been heard, or may yet be."""
        self.doubtful |= self.asked
        self.asked = frozenset()
