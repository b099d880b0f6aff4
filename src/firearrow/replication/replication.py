"""One broker's part in replication: master, slave, or neither yet.

    become_master   epochs move on, slaves may come, messages wait for them by the rules
    become_slave    follow another broker's log
    rest            neither; nobody is told anything any more

The broker above decides which; roles can change at any time, and again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from firearrow.model.errors import ServerFailed
from firearrow.replication.epochs import FILE_NAME, EpochEntry, EpochHistory
from firearrow.replication.follower import FollowerClient
from firearrow.replication.leader import Leader
from firearrow.replication.progress import ReplicationProgress, SyncRules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from firearrow.base.runtime import Clock
    from firearrow.replication.progress import Follower
    from firearrow.replication.settings import HaSettings
    from firearrow.store.store import MessageStore


class Replication:
    """Owns the HA port, the links on it, and the link to a master."""

    def __init__(
        self, store: MessageStore, clock: Clock, settings: HaSettings, root: Path, own_id: int
    ) -> None:
        self._store = store
        self._replica = store.replica
        self.settings = settings
        self.own_id = own_id
        self.epochs = EpochHistory(root / FILE_NAME if settings.with_epochs else None)
        self.progress = ReplicationProgress(lambda: self._replica.end_offset)
        self.progress.on_confirmed = store.dispatch_soon
        self.leader = Leader(self._replica, self.progress, self.epochs, clock, settings)
        self.follower = FollowerClient(
            self._replica, self.epochs, clock, settings, lambda: self.own_id
        )
        self.follower.on_confirmed = store.dispatch_soon
        self.is_master = False

    # --- life -------------------------------------------------------------------------------

    async def listen(self, host: str, port: int) -> int:
        """Open the HA port; returns which it is."""
        return await self.leader.listen(host, port)

    def load(self) -> None:
        """What is known of epochs. The store is open; blocks."""
        self.epochs.load()
        if self.settings.with_epochs:
            self.epochs.truncate(max(1, self._replica.end_offset))
            self._replica.confirmed = lambda: self.confirm_offset
            self._replica.when_confirmed = self._when_confirmed

    def _when_confirmed(self, offset: int, tell: Callable[[bool], None]) -> None:
        """A slave keeps only what its master has told it when it was confirmed."""
        if self.is_master:
            self.progress.when_replicated(offset, tell)
        else:
            tell(offset <= self.confirm_offset)

    async def become_master(self, rules: SyncRules, epoch: int = 0) -> None:
        """Lead from now on. ServerFailed if a newer master is known already."""
        if epoch and epoch < self.epochs.last_epoch:
            raise ServerFailed(
                f"epoch {epoch} is over: epoch {self.epochs.last_epoch} has begun already"
            )
        await self.rest()
        end = self._replica.whole_end()
        if end < self._replica.end_offset:
            await self._replica.truncate(end)
        self.progress.reset(rules)
        if epoch:
            self.epochs.append(EpochEntry(epoch, end))
            self.progress.epoch_start = end
            self.progress.set_members(self.own_id, ())
        self.is_master = True
        self._store.dispatch_soon()
        self.leader.lead()

    async def become_slave(self, master_ha_address: str, epoch: int = 0) -> None:
        """Follow a master; ServerFailed if it belongs to the past."""
        if epoch and epoch < self.epochs.last_epoch:
            raise ServerFailed(
                f"epoch {epoch} is over: epoch {self.epochs.last_epoch} has begun already"
            )
        if self.is_master:
            await self.rest()
        if master_ha_address:
            self.follower.follow(master_ha_address)
        else:
            await self.follower.stop()

    async def rest(self) -> None:
        """Neither lead nor follow."""
        self.is_master = False
        self.leader.step_down()
        self.progress.give_up()
        await self.follower.stop()

    async def stop(self) -> None:
        await self.rest()
        await self.leader.stop()

    # --- how it is --------------------------------------------------------------------------

    @property
    def max_offset(self) -> int:
        """Behind the last byte of our log."""
        return self._replica.end_offset

    @property
    def confirm_offset(self) -> int:
        """What no change of masters takes back, as far as is known here."""
        if self.is_master:
            return min(self.progress.confirm_offset, self._replica.end_offset)
        if self.settings.with_epochs:
            return min(self.follower.state.confirm_offset, self._replica.end_offset)
        return self._replica.end_offset

    def epoch_entries(self) -> tuple[EpochEntry, ...]:
        return self.epochs.entries

    def followers(self) -> list[Follower]:
        """Slaves that have reported, as the master sees them."""
        return list(self.progress.followers)

    def set_sync_state_set(self, members: Iterable[int]) -> None:
        """The controller has decided who is in sync."""
        self.progress.set_members(self.own_id, members)
