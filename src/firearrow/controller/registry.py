"""Every replica set that this controller leads, and each change to one: decided, kept, installed.

A change waits until it is kept for good, so changes go one after the other; readers see what was
kept last. Whoever must be told of an election is told by a callback.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from firearrow.controller import replicas
from firearrow.controller.errors import (
    MasterNotAvailable,
    MasterStillExists,
    NotLeader,
    UnknownBrokerSet,
)
from firearrow.controller.liveness import Heartbeats

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable

    from firearrow.base.runtime import Clock
    from firearrow.controller.metadata import Metadata
    from firearrow.controller.replicas import ReplicaSet, Standing

log = logging.getLogger(__name__)


class Registry:
    """The table, the heartbeats, and the order of changes."""

    def __init__(
        self,
        metadata: Metadata,
        clock: Clock,
        *,
        is_unclean_allowed: Callable[[], bool],
        on_elected: Callable[[ReplicaSet], None],
    ) -> None:
        self._metadata = metadata
        self._clock = clock
        self._is_unclean_allowed = is_unclean_allowed
        self._on_elected = on_elected
        self._sets: dict[str, ReplicaSet] | None = None  # None: we do not lead, or not yet
        self._turn = asyncio.Lock()
        self._heartbeats = Heartbeats()

    # --- leading ----------------------------------------------------------------------------

    def unlearn(self) -> None:
        """What was read before another one may have led is worth nothing."""
        self._sets = None

    async def lead(self) -> None:
        """Read everything, and begin to listen for heartbeats."""
        async with self._turn:
            try:
                sets = await self._metadata.load()
            except NotLeader as error:
                log.warning("this controller led for a moment: %s", error)
                return
            self._heartbeats.begin(self._clock.elapsed_ms())
            self._sets = sets
        log.info("this controller leads, for %d broker names", len(sets))

    def _leading(self) -> dict[str, ReplicaSet]:
        leader = self._metadata.leader
        if leader is None or not leader.is_me:
            self._sets = None
            where = "nobody leads now" if leader is None else f"{leader.address} leads"
            raise NotLeader(f"this controller does not lead: {where}")
        if self._sets is None:
            raise NotLeader("this controller leads, but has not read everything yet; ask again")
        return self._sets

    async def _install(self, before: ReplicaSet | None, after: ReplicaSet | None) -> None:
        if before == after:
            return
        known = after or before
        assert known is not None
        try:
            await self._metadata.save(known.broker_name, after)
        except NotLeader:
            self._sets = None
            raise
        sets = self._leading()
        if after is None:
            del sets[known.broker_name]
        else:
            sets[known.broker_name] = after

    # --- reading ----------------------------------------------------------------------------

    def get(self, name: str) -> ReplicaSet:
        found = self._leading().get(name)
        if found is None:
            raise UnknownBrokerSet(f"no broker of the name {name} has ever been here")
        return found

    def names(self) -> list[str]:
        return sorted(self._leading())

    def next_id(self, name: str) -> int:
        known = self._leading().get(name)
        return replicas.FIRST_BROKER_ID if known is None else known.next_broker_id

    def alive(self, name: str) -> dict[int, Standing]:
        return self._heartbeats.alive(name)

    # --- changing ---------------------------------------------------------------------------

    async def join(self, *, cluster: str, name: str, broker_id: int, check_code: str) -> None:
        async with self._turn:
            before = self._leading().get(name)
            after = replicas.join(
                before, cluster=cluster, name=name, broker_id=broker_id, check_code=check_code
            )
            await self._install(before, after)

    async def register(
        self, *, name: str, broker_id: int, address: str, channel: Hashable, timeout_ms: int
    ) -> ReplicaSet:
        async with self._turn:
            before = self._leading().get(name)
            after = replicas.register(before, name=name, broker_id=broker_id, address=address)
            await self._install(before, after)
            self._heartbeats.heard(
                name,
                broker_id,
                now_ms=self._clock.elapsed_ms(),
                timeout_ms=timeout_ms,
                channel=channel,
            )
            return after

    async def elect(
        self, name: str, *, asked_by: int | None = None, designated: int | None = None
    ) -> ReplicaSet:
        """Elect a master; nobody fit and the old one dead: the set is without one from now on."""
        async with self._turn:
            before = self.get(name)
            alive = self._heartbeats.alive(name)
            try:
                after = replicas.elect(
                    before,
                    alive,
                    asked_by=asked_by,
                    designated=designated,
                    unclean=self._is_unclean_allowed(),
                )
            except MasterNotAvailable:
                if before.master_broker_id is not None:
                    await self._install(before, replicas.lose_master(before))
                    log.warning("broker %s has no master, and nobody can follow it", name)
                raise
            await self._install(before, after)
        log.warning(
            "broker %s: replica %s is master, epoch %d (before: %s)",
            name,
            after.master_broker_id,
            after.master_epoch,
            before.master_broker_id,
        )
        self._on_elected(after)
        return after

    async def alter(
        self,
        name: str,
        proposed: Collection[int],
        *,
        master_id: int,
        master_epoch: int,
        set_epoch: int,
    ) -> ReplicaSet:
        async with self._turn:
            before = self.get(name)
            after = replicas.alter(
                before,
                proposed,
                master_id=master_id,
                master_epoch=master_epoch,
                set_epoch=set_epoch,
                alive=self._heartbeats.alive(name),
            )
            await self._install(before, after)
        log.info("broker %s: in sync are %s", name, sorted(after.sync_state_set))
        return after

    async def forget(self, name: str, ids: Collection[int] | None, *, force: bool) -> None:
        async with self._turn:
            before = self.get(name)
            alive = self._heartbeats.alive(name)
            after = replicas.forget(before, ids, alive=alive, force=force)
            await self._install(before, after)
            for broker_id in before.replicas.keys() if ids is None else ids:
                self._heartbeats.forget(name, broker_id)

    # --- life signs -------------------------------------------------------------------------

    def heard(
        self,
        name: str,
        broker_id: int,
        standing: Standing,
        *,
        channel: Hashable,
        timeout_ms: int,
    ) -> None:
        """A heartbeat. From whom we know nothing it counts nothing: it must register."""
        known = self._leading().get(name)
        if known is not None and broker_id in known.replicas:
            self._heartbeats.heard(
                name,
                broker_id,
                now_ms=self._clock.elapsed_ms(),
                timeout_ms=timeout_ms,
                channel=channel,
                standing=standing,
            )

    def channel_closed(self, channel: Hashable) -> list[str]:
        """Names of brokers one of whose replicas is gone with its connection."""
        return sorted({name for name, _ in self._heartbeats.lost(channel)})

    def expire(self) -> None:
        for name, broker_id in self._heartbeats.expire(self._clock.elapsed_ms()):
            log.warning("broker %s: nothing heard of replica %d", name, broker_id)

    def without_master(self, *, patience_ms: int) -> list[str]:
        """Names of brokers whose master is dead, or who have none although one could follow."""
        try:
            sets = self._leading()
        except NotLeader:
            return []
        now_ms = self._clock.elapsed_ms()
        wanting = []
        for name, known in sets.items():
            master = known.master_broker_id
            if master is None:
                is_wanting = known.phase is not replicas.Phase.NEW
            else:
                is_wanting = self._heartbeats.is_dead(
                    name, master, now_ms=now_ms, patience_ms=patience_ms
                )
            if is_wanting and self._heartbeats.alive(name):
                wanting.append(name)
        return wanting

    async def replace_master(self, name: str) -> None:
        """Elect somebody if there is somebody; otherwise the next scan tries again."""
        try:
            await self.elect(name)
        except (MasterNotAvailable, MasterStillExists, NotLeader, UnknownBrokerSet) as error:
            log.info("broker %s: no election: %s", name, error)
