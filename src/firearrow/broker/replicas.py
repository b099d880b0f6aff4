"""A broker in controller mode: gets its id, says that it lives, takes the role it is given.

    every second    heartbeat → who is master? → replica_rules.decide_role → become_master or _slave
    as a master     a slave has caught up, or fell back → propose another in-sync set

Everything happens in one task, so that no two changes of role overlap; notices from the controller
and from replication only wake it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Protocol

from firearrow.base.errors import ConfigError
from firearrow.broker.controller_link import ControllerLink, NoController
from firearrow.broker.identity import IdentityFile, Wish
from firearrow.broker.replica_rules import (
    AskElection,
    Follow,
    InSync,
    Lead,
    decide_role,
    must_step_down,
)
from firearrow.model.errors import BrokerError
from firearrow.net.client import split_address
from firearrow.net.errors import NetworkError
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import request
from firearrow.wire.headers import BrokerHeartbeatRequest
from firearrow.wire.headers.controller import ExchangeHaInfoReply

if TYPE_CHECKING:
    from pathlib import Path

    from firearrow.base.runtime import Clock, Service
    from firearrow.broker.config import BrokerConfig
    from firearrow.broker.controller_link import ReplicaInfo
    from firearrow.net.client import RemotingClient
    from firearrow.replication.replication import Replication

log = logging.getLogger(__name__)

HA_ASK_MS: Final = 2_000


class Host(Protocol):
    """The broker, as its part in an election sees it."""

    @property
    def config(self) -> BrokerConfig: ...
    @property
    def replication(self) -> Replication: ...
    @property
    def address(self) -> str: ...
    def take_replica_id(self, broker_id: int) -> None: ...
    async def become_master(self, epoch: int) -> None: ...
    async def become_slave(
        self, master_address: str, master_ha_address: str, epoch: int
    ) -> None: ...


class Replicas:
    """One replica's dealings with the controller."""

    def __init__(
        self, host: Host, client: RemotingClient, clock: Clock, tasks: Service, root: Path
    ) -> None:
        config = host.config
        self._host = host
        self._client = client
        self._clock = clock
        self._tasks = tasks
        self._identity = IdentityFile(
            root, cluster=config.broker_cluster_name, name=config.broker_name
        )
        self._link = ControllerLink(
            client,
            controller_addresses(config.controller_addr),
            cluster=config.broker_cluster_name,
            name=config.broker_name,
        )
        self._wake = asyncio.Event()
        self._id = 0  # 0: none yet
        self._is_registered = False
        self._reigns = 0
        self._follows: Follow | None = None
        self._in_sync = InSync(0)
        self._caught_up: set[int] = set()
        self._fallen: set[int] = set()
        self._heard_ms = clock.elapsed_ms()
        self._complaint = ""

    # --- life -------------------------------------------------------------------------------

    def start(self) -> None:
        known = self._identity.load()
        if known is not None:
            self._take_id(known)
        self._host.replication.progress.on_sync_change = self._sync_changed
        self._tasks.spawn(self._live(), name="replicas")

    def wake(self) -> None:
        """There is news: look at once, not in a second."""
        self._wake.set()

    @property
    def reigns(self) -> int:
        """The epoch that we are master of, 0 for none."""
        return self._reigns

    async def _live(self) -> None:
        while True:
            try:
                await self._turn()
            except (NoController, BrokerError, NetworkError, OSError) as error:
                self._complain(str(error))
                await self._step_down_if_lost()
            except Exception:
                log.exception("a turn with the controller failed; the next one comes")
            timer = self._clock.call_later(
                self._host.config.broker_heartbeat_interval, self._wake.set
            )
            await self._wake.wait()
            timer.cancel()
            self._wake.clear()

    def _complain(self, text: str) -> None:
        if text != self._complaint:
            log.warning("controller: %s", text)
        self._complaint = text

    async def _turn(self) -> None:
        if not self._id:
            await self._obtain_id()
            if not self._id:
                return  # somebody was faster; we ask for the next one
        if not self._is_registered:
            await self._link.register(self._id, self._host.address)
            self._is_registered = True
        try:
            await self._link.heartbeat(self._heartbeat())
            told = await self._link.info()
        except NoController:
            self._is_registered = False  # another one, or the same after a restart
            raise
        self._heard_ms = self._clock.elapsed_ms()
        self._complain("")
        await self._heed(told)
        if self._reigns:
            await self._keep_in_sync_set()

    # --- who we are -------------------------------------------------------------------------

    async def _obtain_id(self) -> None:
        wish = self._identity.load_wish()
        if wish is None:
            check_code = f"{self._host.address};{self._clock.now_ms()}"
            wish = Wish(await self._link.next_id(), check_code)
            self._identity.wish(wish)
        if await self._link.apply(wish):
            self._identity.grant(wish.broker_id)
            self._take_id(wish.broker_id)
        else:
            self._identity.give_up()
            self._wake.set()

    def _take_id(self, broker_id: int) -> None:
        self._id = broker_id
        self._in_sync = InSync(broker_id)
        self._host.take_replica_id(broker_id)

    def _heartbeat(self) -> BrokerHeartbeatRequest:
        config, replication = self._host.config, self._host.replication
        return BrokerHeartbeatRequest(
            cluster_name=config.broker_cluster_name,
            broker_addr=self._host.address,
            broker_name=config.broker_name,
            broker_id=self._id,
            epoch=replication.epochs.last_epoch,
            max_offset=replication.max_offset,
            confirm_offset=replication.confirm_offset,
            heartbeat_timeout_mills=config.controller_heart_beat_timeout_mills,
            election_priority=config.broker_election_priority,
        )

    # --- what we are ------------------------------------------------------------------------

    async def _heed(self, told: ReplicaInfo) -> None:
        decision = decide_role(
            told,
            own_id=self._id,
            reigns=self._reigns,
            newest_epoch=self._host.replication.epochs.last_epoch,
            follows=self._follows,
        )
        if isinstance(decision, AskElection):
            if self._host.config.async_learner:
                return
            await self._link.elect(self._id)
            told = await self._link.info()
            if told.master_id is not None:
                await self._heed_elected(told)
        else:
            await self._take_up(decision, told)

    async def _heed_elected(self, told: ReplicaInfo) -> None:
        decision = decide_role(
            told,
            own_id=self._id,
            reigns=self._reigns,
            newest_epoch=self._host.replication.epochs.last_epoch,
            follows=self._follows,
        )
        if not isinstance(decision, AskElection):  # else the next turn asks again
            await self._take_up(decision, told)

    async def _take_up(self, decision: object, told: ReplicaInfo) -> None:
        if isinstance(decision, Lead):
            await self._lead(told)
        elif isinstance(decision, Follow):
            await self._follow(decision)
        elif self._reigns == told.epoch and self._in_sync.told(told.in_sync, told.set_epoch):
            self._count()

    async def _lead(self, told: ReplicaInfo) -> None:
        self._follows, self._reigns = None, 0
        self._caught_up.clear()
        self._fallen.clear()
        await self._host.become_master(told.epoch)
        self._reigns = told.epoch
        self._in_sync.begin(told.in_sync, told.set_epoch)
        self._count()

    async def _follow(self, decision: Follow) -> None:
        """Step down first, if we lead: the new master may not even answer."""
        host = self._host
        if self._reigns:
            self._reigns = 0
            await host.become_slave("", "", decision.epoch)
        ha_address = await self._ha_address(decision.address)
        await host.become_slave(decision.address, ha_address, decision.epoch)
        self._follows = decision

    async def _ha_address(self, master: str) -> str:
        reply = await self._client.invoke(
            master, request(RequestCode.EXCHANGE_BROKER_HA_INFO), HA_ASK_MS
        )
        said = ExchangeHaInfoReply.from_ext(reply.ext)
        if reply.code or not said.master_ha_address:
            raise NoController(
                f"{master} does not say where its slaves may come: {reply.remark or reply.code}"
            )
        return said.master_ha_address

    async def _step_down_if_lost(self) -> None:
        """Rule 4: nobody tells us anything, and somebody else may have been told."""
        if must_step_down(
            reigns=self._reigns,
            members=self._in_sync.counting - {self._id},
            present=self._present(),
            silent_ms=self._clock.elapsed_ms() - self._heard_ms,
            limit_ms=self._host.config.controller_heart_beat_timeout_mills,
        ):
            log.warning(
                "broker %s steps down from epoch %d: no controller answers, and not all of "
                "replicas %s are there",
                self._host.config.broker_name,
                self._reigns,
                sorted(self._in_sync.counting),
            )
            epoch, self._reigns, self._follows = self._reigns, 0, None
            await self._host.become_slave("", "", epoch)

    def _present(self) -> frozenset[int]:
        followers = self._host.replication.followers()
        return frozenset(
            follower.broker_id for follower in followers if follower.broker_id is not None
        )

    # --- who is in sync ---------------------------------------------------------------------

    def _sync_changed(self, broker_id: int, in_sync: bool) -> None:  # noqa: FBT001
        """Replication says that a slave has caught up, or has fallen back."""
        here, there = self._caught_up, self._fallen
        if not in_sync:
            here, there = there, here
        there.discard(broker_id)
        if broker_id not in here:
            here.add(broker_id)
            self._wake.set()

    def _count(self) -> None:
        self._host.replication.set_sync_state_set(self._in_sync.counting)

    def _is_caught_up(self, broker_id: int) -> bool:
        """Whether it has everything that was acknowledged: looked at now, not when it was told."""
        replication = self._host.replication
        safe = max(replication.confirm_offset, replication.progress.epoch_start)
        return any(
            follower.broker_id == broker_id and follower.acked >= safe
            for follower in replication.followers()
        )

    async def _keep_in_sync_set(self) -> None:
        """Propose what has changed; until there is an answer, both sets count."""
        known = self._in_sync
        self._caught_up = {n for n in self._caught_up - known.members if self._is_caught_up(n)}
        self._fallen &= known.members
        wanted = (known.members | self._caught_up) - self._fallen | {self._id}
        if wanted == known.members and known.doubtful <= known.members:
            return
        # No wait between looking who has everything and counting whoever is proposed.
        known.propose(wanted)
        self._count()
        try:
            now = await self._link.alter(
                wanted, master_id=self._id, epoch=self._reigns, set_epoch=known.epoch
            )
        except BrokerError as error:
            known.refused()
            log.info("the in-sync set stays as it is: %s", error)
        except BaseException:
            known.unanswered()
            raise
        else:
            known.told(frozenset(now.sync_state_set), now.sync_state_set_epoch)
            log.info("in sync: %s (epoch %d)", sorted(known.members), known.epoch)
        finally:
            self._count()


def controller_addresses(text: str) -> list[str]:
    """What ``a:9878;b:9878`` names; ConfigError if it names nothing, or what is no address."""
    addresses = [address.strip() for address in text.split(";") if address.strip()]
    if not addresses:
        raise ConfigError("enableControllerMode=true needs controllerAddr, as 127.0.0.1:9878")
    for address in addresses:
        try:
            split_address(address)
        except ValueError as error:
            raise ConfigError(f"controllerAddr: {error}") from error
    return addresses
