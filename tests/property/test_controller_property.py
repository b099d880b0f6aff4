"""Elections among replicas that crash, hear late and lose what was not acknowledged."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from firearrow.controller import replicas
from firearrow.controller.replicas import ReplicaSet, Standing
from firearrow.model.errors import BrokerError

IDS = st.integers(1, 3)
NAME = "broker-a"


@dataclass
class Node:
    """A broker as far as elections go: a log whose records know their epoch."""

    log: list[tuple[int, int]] = field(default_factory=list)  # (epoch, number)
    epochs: list[tuple[int, int]] = field(default_factory=list)  # (epoch, first position)
    alive: bool = True
    reigns: int = 0  # the epoch it believes to be master of; 0 for none
    known_set: frozenset[int] = frozenset()
    set_epoch: int = 0
    proposed: frozenset[int] = frozenset()  # asked for, and no answer yet
    held: dict[int, int] = field(default_factory=dict)  # how much each follower said it has
    follows: tuple[int, int] | None = None  # (master, its epoch)
    durable: int = 0  # what it has told anybody that it has

    def end_of(self, epoch: int) -> int:
        later = [start for other, start in self.epochs if other > epoch]
        return min(later, default=len(self.log))


class Elections(RuleBasedStateMachine):
    """The controller's table is real; brokers are models that obey the rules of replication."""

    def __init__(self) -> None:
        super().__init__()
        self.known: ReplicaSet | None = None
        self.nodes: dict[int, Node] = {}
        self.number = 0
        self.acknowledged: list[tuple[int, tuple[int, int]]] = []  # (position, record)
        self.masters: dict[int, int] = {}  # who was elected in which epoch
        self.acknowledgers: dict[int, set[int]] = {}

    def table(self) -> ReplicaSet:
        assert self.known is not None
        return self.known

    def alive(self) -> dict[int, Standing]:
        return {
            n: Standing(epoch=node.epochs[-1][0] if node.epochs else 0, max_offset=len(node.log))
            for n, node in self.nodes.items()
            if node.alive
        }

    def keep(self, after: ReplicaSet) -> None:
        before = self.known
        if before is not None:
            assert after.master_epoch >= before.master_epoch
            assert after.sync_state_set_epoch >= before.sync_state_set_epoch
        self.known = after
        if after.master_broker_id is not None:
            first = self.masters.setdefault(after.master_epoch, after.master_broker_id)
            assert first == after.master_broker_id, "two masters of one epoch"

    # --- life and death ---------------------------------------------------------------------

    @initialize(count=st.integers(2, 3))
    def begin(self, count: int) -> None:
        for broker_id in range(1, count + 1):
            self.keep(
                replicas.join(
                    self.known,
                    cluster="c",
                    name=NAME,
                    broker_id=broker_id,
                    check_code=f"host:{broker_id};0",
                )
            )
            self.nodes[broker_id] = Node()
        self.ask(asked_by=1)
        self.all_is_well()

    @rule()
    def all_is_well(self) -> None:
        """Everybody is there, hears and has everything: where most trouble begins."""
        for n in self.nodes:
            self.restart(n)
        self.ask()
        for n in self.nodes:
            self.hear(n)
        self.everything_is_replicated()

    @rule(n=IDS, keep=st.integers(0, 5))
    def crash(self, n: int, keep: int) -> None:
        """What was told to nobody may be lost with the power."""
        node = self.nodes.get(n)
        if node is None:
            return
        end = min(len(node.log), node.durable + keep)
        del node.log[end:]
        node.epochs = [entry for entry in node.epochs if entry[1] <= end]
        node.alive, node.reigns, node.follows, node.proposed = False, 0, None, frozenset()

    def restart(self, n: int) -> None:
        """A broker that comes back reigns no more: it asks for an election."""
        node = self.nodes.get(n)
        if node is None or node.alive:
            return
        node.alive = True
        if self.table().master_broker_id == n:
            self.ask(asked_by=n)

    # --- elections --------------------------------------------------------------------------

    def ask(self, *, asked_by: int | None = None, designated: int | None = None) -> None:
        try:
            after = replicas.elect(
                self.table(), self.alive(), asked_by=asked_by, designated=designated
            )
        except BrokerError:
            master = self.table().master_broker_id
            if master is not None and master not in self.alive():
                self.keep(replicas.lose_master(self.table()))
            return
        assert after.master_broker_id in self.alive()
        self.keep(after)

    @rule(n=IDS, how=st.sampled_from(["by the controller", "by a replica", "by an operator"]))
    def elect(self, n: int, how: str) -> None:
        if n in self.nodes:
            self.restart(n)
        self.ask(
            asked_by=n if how == "by a replica" and n in self.nodes else None,
            designated=n if how == "by an operator" else None,
        )

    @rule(n=IDS)
    def hear(self, n: int) -> None:
        """A broker learns who is master; it may be long after the election."""
        node, table = self.nodes.get(n), self.table()
        if node is None or not node.alive or table.master_broker_id is None:
            return
        last = node.epochs[-1][0] if node.epochs else 0
        if table.master_broker_id == n:
            if node.reigns == table.master_epoch:
                node.known_set, node.set_epoch = table.sync_state_set, table.sync_state_set_epoch
                node.proposed = frozenset()
            elif table.master_epoch > last:
                node.reigns, node.follows, node.held = table.master_epoch, None, {}
                node.known_set, node.set_epoch = table.sync_state_set, table.sync_state_set_epoch
                node.proposed = frozenset()
                node.epochs.append((table.master_epoch, len(node.log)))
        else:
            node.reigns, node.follows = 0, (table.master_broker_id, table.master_epoch)

    @rule()
    def everything_is_replicated(self) -> None:
        for n in self.nodes:
            self.replicate(n, len(self.acknowledged) + 50)

    # --- replication ------------------------------------------------------------------------

    @rule()
    def write(self) -> None:
        """To everyone who believes to be master."""
        for node in self.nodes.values():
            if node.reigns:
                self.number += 1
                node.log.append((node.reigns, self.number))

    @rule(n=IDS, count=st.integers(0, 3))
    def replicate(self, n: int, count: int) -> None:
        node = self.nodes.get(n)
        if node is None or not node.alive or node.follows is None:
            return
        master = self.nodes[node.follows[0]]
        if not master.alive or master.reigns != node.follows[1]:
            return
        agreed = self.agreed(node, master)
        del node.log[agreed:]
        node.log += master.log[agreed : agreed + count]
        node.epochs = [entry for entry in master.epochs if entry[1] <= len(node.log)]
        assert node.log == master.log[: len(node.log)], "not a common history"
        node.durable = master.held[n] = len(node.log)

    def agreed(self, node: Node, master: Node) -> int:
        for entry in reversed(node.epochs):
            if entry in master.epochs:
                return min(node.end_of(entry[0]), master.end_of(entry[0]))
        return 0

    @rule()
    def acknowledge(self) -> None:
        for n in self.nodes:
            self.acknowledge_at(n)

    def acknowledge_at(self, n: int) -> None:
        """Everything that all of the in-sync set has, and all who may soon be of it."""
        node = self.nodes.get(n)
        if node is None or not node.reigns:
            return
        members = (node.known_set | node.proposed) - {n}
        end = min([len(node.log), *(node.held.get(member, 0) for member in members)])
        node.durable = max(node.durable, end)
        for position in range(end):
            if node.log[position][0] == node.reigns:
                self.acknowledged.append((position, node.log[position]))
                self.acknowledgers.setdefault(node.reigns, set()).add(n)

    @rule(grow=st.booleans(), answered=st.booleans())
    def alter(self, grow: bool, answered: bool) -> None:
        for n in self.nodes:
            self.alter_at(n, grow=grow, answered=answered)

    def alter_at(self, n: int, *, grow: bool, answered: bool) -> None:
        node = self.nodes.get(n)
        if node is None or not node.reigns or node.proposed:
            return
        members = node.known_set - {n}
        confirmed = min([len(node.log), *(node.held.get(member, 0) for member in members)])
        caught_up = {m for m, held in node.held.items() if held >= confirmed}
        start = node.epochs[-1][1]
        caught_up = {m for m in caught_up if node.held[m] >= start}
        proposed = node.known_set | caught_up if grow else frozenset({n}) | (members & caught_up)
        node.proposed = frozenset(proposed)
        try:
            after = replicas.alter(
                self.table(),
                proposed,
                master_id=n,
                master_epoch=node.reigns,
                set_epoch=node.set_epoch,
                alive=self.alive(),
            )
        except BrokerError:
            node.proposed = frozenset()
            return
        self.keep(after)
        if answered:
            node.known_set, node.set_epoch = after.sync_state_set, after.sync_state_set_epoch
            node.proposed = frozenset()

    # --- what must be true ------------------------------------------------------------------

    @invariant()
    def the_master_is_in_sync(self) -> None:
        if self.known is not None and self.known.master_broker_id is not None:
            assert self.known.master_broker_id in self.known.sync_state_set

    @invariant()
    def whoever_is_in_sync_has_everything_acknowledged(self) -> None:
        if self.known is None:
            return
        for n in self.known.sync_state_set:
            log = self.nodes[n].log
            for position, record in self.acknowledged:
                assert position < len(log), (n, position, record)
                assert log[position] == record, (n, position, record)

    @invariant()
    def one_master_of_an_epoch_acknowledges(self) -> None:
        assert all(len(who) == 1 for who in self.acknowledgers.values())


TestElections = Elections.TestCase
TestElections.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
