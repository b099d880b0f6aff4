"""Metadata of several controllers, in etcd: one of them leads, and only that one decides.

The rules:

1. Who creates the key `leader` leads. The key hangs on a lease: it goes when its maker is silent.
2. Each decision is a transaction that asks for the leader's key as its maker created it. Who has
   been deposed can save nothing, whatever it believes.
3. A leader counts the lease from before it asked for it, so it stops before others may begin.
   A lease that ran out on our clock is given up, even if etcd would still have it.
4. What was sent and not answered may be kept or not, and may even be kept later. Whoever leads
   gives up its key then: under another one the old change cannot be made any more.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from firearrow.base.errors import FirearrowError
from firearrow.base.runtime import Service
from firearrow.controller.errors import NotLeader
from firearrow.controller.etcd import EtcdError
from firearrow.controller.metadata import Leader
from firearrow.controller.replicas import ReplicaSet

if TYPE_CHECKING:
    from collections.abc import Callable

    from firearrow.base.runtime import Clock
    from firearrow.controller.etcd import Etcd

log = logging.getLogger(__name__)

TURNS_PER_LEASE: Final = 6


class _Candidate(msgspec.Struct, frozen=True):
    """The value of the leader's key."""

    name: str
    address: str


@dataclass(slots=True)
class _Reign:
    lease: int
    revision: int  # at which the leader's key was created: no other reign has this one
    until_ms: int


class EtcdMetadata:
    """One controller's part in the election, and the decisions of whoever leads."""

    def __init__(
        self, etcd: Etcd, name: str, *, prefix: str, lease_seconds: int, clock: Clock
    ) -> None:
        self._etcd = etcd
        self._name = name
        root = prefix.rstrip("/").encode()
        self._leader_key = root + b"/leader"
        self._sets_prefix = root + b"/sets/"
        self._lease_seconds = lease_seconds
        self._clock = clock
        self._tasks = Service("election", clock)
        self._address = ""
        self._on_leading: Callable[[], None] = lambda: None
        self._reign: _Reign | None = None
        self._abandoned = 0  # a lease that must go before there can be a leader; 0 for none
        self._seen: tuple[Leader, int] | None = None  # another leader, and how long that is true
        self._complaint = ""

    @property
    def leader(self) -> Leader | None:
        """Us, another one, or nobody as far as we know."""
        now_ms = self._clock.elapsed_ms()
        if self._reign is not None:
            is_valid = now_ms < self._reign.until_ms
            return Leader(self._name, self._address, is_me=True) if is_valid else None
        if self._seen is not None and now_ms < self._seen[1]:
            return self._seen[0]
        return None

    # --- life -------------------------------------------------------------------------------

    async def start(self, address: str, on_leading: Callable[[], None]) -> None:
        """Begin to stand for election; that etcd is away is no reason not to start."""
        self._address, self._on_leading = address, on_leading
        self._tasks.spawn(self._live(), name="turns")

    async def stop(self) -> None:
        """Give up the lead, so that nobody has to wait for the end of the lease."""
        await self._tasks.stop_tasks()
        self._address = ""
        if self._reign is not None:
            self._step_down(self._reign, "this controller stops")
        try:
            await self._revoke_abandoned()
        except FirearrowError as error:
            log.info("others can lead when the lease is over: %s", error)

    async def _live(self) -> None:
        interval_ms = self._lease_seconds * 1_000 // TURNS_PER_LEASE
        while True:
            try:
                await self._turn()
                self._complain("")
            except FirearrowError as error:
                self._complain(str(error))
            except Exception:
                log.exception("a turn of the election failed; the next one comes")
            await self._clock.sleep(interval_ms)

    def _complain(self, text: str) -> None:
        if text and text != self._complaint:
            log.warning("etcd (%s): %s", self._etcd, text)
        elif self._complaint and not text:
            log.info("etcd (%s) answers again", self._etcd)
        self._complaint = text

    async def _turn(self) -> None:
        if self._reign is not None:
            await self._renew(self._reign)
        if self._reign is None:
            await self._revoke_abandoned()
            await self._stand()

    # --- the election -----------------------------------------------------------------------

    async def _renew(self, reign: _Reign) -> None:
        asked_ms = self._clock.elapsed_ms()
        if asked_ms < reign.until_ms:
            try:
                seconds = await self._etcd.keep_alive(reign.lease)
            finally:
                self._end_if_over(reign)
            if seconds > 0:
                reign.until_ms = asked_ms + seconds * 1_000
                return
        if self._reign is reign:
            self._step_down(reign, "its lease ran out")

    def _end_if_over(self, reign: _Reign) -> None:
        """Rule 3. Whoever has looked meanwhile was told that nobody leads, so it stays so."""
        if self._reign is reign and self._clock.elapsed_ms() >= reign.until_ms:
            self._step_down(reign, "its lease ran out")

    async def _stand(self) -> None:
        """See who leads; if nobody does, try to."""
        asked_ms = self._clock.elapsed_ms()
        held = await self._etcd.get(self._leader_key)
        if held is not None:
            try:
                who = msgspec.json.decode(held.value, type=_Candidate)
            except msgspec.DecodeError as error:
                raise EtcdError(f"{self._leader_key!r} is not a controller's: {error}") from error
            self._see(Leader(who.name, who.address, is_me=False), asked_ms)
            return
        self._seen = None
        asked_ms = self._clock.elapsed_ms()
        lease, seconds = await self._etcd.grant(self._lease_seconds)
        self._abandoned = lease  # until we know that it made us leader
        me = msgspec.json.encode(_Candidate(self._name, self._address))
        key = self._leader_key
        revision = await self._etcd.put_if_created_at(key, 0, key, me, lease=lease)
        until_ms = asked_ms + seconds * 1_000
        if revision is None or self._clock.elapsed_ms() >= until_ms:
            return
        self._abandoned = 0
        self._reign = _Reign(lease, revision, until_ms)
        log.warning("controller %s leads, by lease %d of etcd", self._name, lease)
        self._on_leading()

    def _see(self, leader: Leader, asked_ms: int) -> None:
        if self._seen is None or self._seen[0] != leader:
            log.info("controller %s at %s leads", leader.name, leader.address)
        self._seen = leader, asked_ms + self._lease_seconds * 1_000

    def _step_down(self, reign: _Reign, why: str) -> None:
        if self._reign is reign:
            log.warning("controller %s leads no more: %s", self._name, why)
            self._reign, self._abandoned = None, reign.lease

    async def _revoke_abandoned(self) -> None:
        if self._abandoned:
            await self._etcd.revoke(self._abandoned)
            self._abandoned = 0

    # --- decisions --------------------------------------------------------------------------

    async def load(self) -> dict[str, ReplicaSet]:
        """Everything as it is now; NotLeader, and another election, if it cannot be read."""
        reign = self._leading()
        try:
            found = await self._etcd.get_all(self._sets_prefix)
            sets = [msgspec.json.decode(one.value, type=ReplicaSet) for one in found]
        except (FirearrowError, msgspec.DecodeError) as error:
            self._step_down(reign, f"the decisions so far cannot be read: {error}")
            raise NotLeader(f"{self._name} cannot read what was decided: {error}") from error
        if self._leading() is not reign:
            raise NotLeader(f"controller {self._name} was deposed while it read")
        return {one.broker_name: one for one in sets}

    async def save(self, name: str, after: ReplicaSet | None) -> None:
        """Keep one set for good; NotLeader if we cannot be sure that it is."""
        reign = self._leading()
        guard, key = self._leader_key, self._sets_prefix + name.encode()
        try:
            if after is None:
                change = self._etcd.delete_if_created_at(guard, reign.revision, key)
            else:
                value = msgspec.json.encode(after)
                change = self._etcd.put_if_created_at(guard, reign.revision, key, value)
            revision = await change
        except BaseException as error:
            # Rule 4, whatever it was: a caller that went away leaves the same doubt.
            self._step_down(reign, f"etcd may have kept a decision about {name}, or not")
            if isinstance(error, FirearrowError):
                raise NotLeader(f"nobody knows whether it was kept: {error}") from error
            raise
        if revision is None:
            self._step_down(reign, "its key in etcd is gone")
            raise NotLeader(f"nothing is kept: controller {self._name} leads no more")

    def _leading(self) -> _Reign:
        leader = self.leader
        if self._reign is None or leader is None:
            raise NotLeader(f"controller {self._name} does not lead")
        return self._reign
