"""Master or slave: what a broker does in each role, and how it changes from one to the other.

    master   takes messages, delivers delayed ones, settles transactions; slaves follow its log
    slave    follows a master's log and tables; serves readers; takes nothing

A change to slave refuses writes before anything else, and answers what still waits with an error.
A change to master is done when everything that the log holds is derived, and writes come last.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import TYPE_CHECKING, Final

from firearrow.base.errors import ConfigError, FirearrowError
from firearrow.base.runtime import Service
from firearrow.broker.config import BrokerRole
from firearrow.broker.parts import make_deliveries, sync_rules
from firearrow.broker.slave_sync import SlaveSync, forget_timer_files
from firearrow.model.topic import MASTER_ID
from firearrow.wire import bodies, java_json
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import request

if TYPE_CHECKING:
    from collections.abc import Callable

    from firearrow.base.runtime import Clock
    from firearrow.broker.config import BrokerConfig
    from firearrow.broker.state import BrokerState
    from firearrow.broker.tables import Tables
    from firearrow.net.client import RemotingClient

log = logging.getLogger(__name__)

SLAVE: Final = "this broker is a slave; its master takes messages"
NO_ROLE: Final = "this broker waits to be told whether it is the master"
ASK_SLAVES_MS: Final = 3_000
FOLLOWED_BYTES: Final = 64 << 20  # of log, in which resends are known after a change of roles


class Roles:
    """Owns what runs in one role only."""

    def __init__(
        self,
        state: BrokerState,
        tables: Tables,
        client: RemotingClient,
        clock: Clock,
        heed: Callable[[BrokerConfig], None],
    ) -> None:
        self._state = state
        self._tables = tables
        self._client = client
        self._heed = heed
        self._changing = asyncio.Lock()
        self._deliveries = Service("deliveries", clock)
        self._clock = clock
        self._delivering = False
        self._close_gates: Callable[[], None] = lambda: self._heed(state.config)
        self.sync = SlaveSync(state, tables, client, clock, self._close_gates)
        self.replica_id = state.config.broker_id  # as a slave; a master is 0 to everybody

    # --- at the start -----------------------------------------------------------------------

    def before_start(self) -> None:
        """Before the store is opened."""
        config = self._state.config
        if config.enable_controller_mode:
            self._state.store.close_for_writing(NO_ROLE)
            self._state.config = dataclasses.replace(config, broker_role=BrokerRole.SLAVE)
        elif config.broker_role is BrokerRole.SLAVE:
            self._state.store.close_for_writing(SLAVE)

    def load(self) -> None:
        """The store is open, nobody is served yet. Blocks."""
        self._state.replication.load()
        if self.is_slave:
            self._tables.load_as_slave()
        else:
            self._tables.load_deliveries()

    @property
    def is_slave(self) -> bool:
        return self._state.config.broker_role is BrokerRole.SLAVE

    async def begin(self) -> None:
        """Take up the role that the settings say; with a controller, none yet."""
        state, config = self._state, self._state.config
        state.replication.follower.on_change = self._link_changed
        state.replication.follower.on_failure = state.registration.ask_again
        if self.is_slave:
            self.sync.start()
            if not config.enable_controller_mode:
                state.registration.on_master = self._master_found
                if config.ha_master_address:
                    await state.replication.become_slave(config.ha_master_address)
            return
        await self._ask_slaves()
        await state.replication.become_master(sync_rules(config))
        state.disk_waits.rules_changed()
        self._start_deliveries()

    def _master_found(self, address: str, ha_address: str) -> None:
        """A name server knows a master."""
        self.sync.follow(address)
        replication = self._state.replication
        if not self._state.config.ha_master_address and not replication.is_master:
            replication.follower.follow(ha_address)

    def _link_changed(self) -> None:
        """The master is there, or gone: what pulls are told has changed."""
        self._close_gates()
        self._state.held.wake_all()

    # --- changing ---------------------------------------------------------------------------

    def take_replica_id(self, broker_id: int) -> None:
        """The controller knows this replica by this number."""
        self.replica_id = self._state.replication.own_id = broker_id
        if self.is_slave:
            self._change(BrokerRole.SLAVE, broker_id)

    async def become_master(self, epoch: int) -> None:
        """Take messages from now on; returns when it does."""
        async with self._changing:
            state = self._state
            if state.replication.is_master and state.replication.epochs.last_epoch == epoch:
                return
            if state.replication.is_master:
                state.store.close_for_writing(NO_ROLE)
                await self._step_down()
            await self.sync.stop()
            self._change(BrokerRole.SYNC_MASTER, MASTER_ID)
            try:
                await state.replication.become_master(sync_rules(state.config), epoch)
            except BaseException:
                self._change(BrokerRole.SLAVE, self.replica_id)
                raise
            self._name_lost_topics()
            make_deliveries(state)
            self._tables.load_deliveries(FOLLOWED_BYTES)
            state.topics.begin_term(epoch)
            state.disk_waits.rules_changed()
            self._start_deliveries()
            state.store.close_for_writing("")
            self._tables.save_soon()
            state.registration.register_anew()
            log.info(
                "broker %s is the master of epoch %d, from offset %d on",
                state.config.broker_name,
                epoch,
                state.replication.max_offset,
            )

    async def become_slave(self, master_address: str, master_ha_address: str, epoch: int) -> None:
        """Follow another broker; writes are refused as soon as this is called."""
        self._state.store.close_for_writing(SLAVE)
        async with self._changing:
            state = self._state
            state.store.close_for_writing(SLAVE)  # another change may have been under way
            self._change(BrokerRole.SLAVE, self.replica_id)
            await self._step_down()
            await asyncio.to_thread(
                forget_timer_files, state.config.store_path_root_dir.expanduser()
            )
            self._tables.load_as_slave()
            await state.replication.become_slave(master_ha_address, epoch)
            self.sync.follow(master_address)
            await self.sync.stop()
            self.sync.follow(master_address)
            self.sync.start()
            state.registration.register_anew()
            log.info(
                "broker %s follows the master %s of epoch %d from offset %d on",
                state.config.broker_name,
                master_address,
                epoch,
                state.replication.max_offset,
            )

    def _name_lost_topics(self) -> None:
        """Queues whose topic was made so late that its settings did not come before the role."""
        state = self._state
        most: dict[str, int] = {}
        for topic, queue_id in state.store.queues():
            if state.topics.get(topic) is None:
                most[topic] = max(queue_id, most.get(topic, 0))
        for topic, queue_id in most.items():
            log.warning("topic %s has messages and no settings: it gets default ones", topic)
            usual = state.config.default_topic_queue_nums
            state.topics.ensure(topic, max(queue_id + 1, usual))

    def _change(self, role: BrokerRole, broker_id: int) -> None:
        self._heed(dataclasses.replace(self._state.config, broker_role=role, broker_id=broker_id))

    async def _step_down(self) -> None:
        """No more deliveries; what waits is not promised any more."""
        state = self._state
        state.disk_waits.give_up()
        await state.replication.rest()
        state.disk_waits.give_up()
        await self.stop_deliveries()
        state.disk_waits.rules_changed()

    # --- what only a master does ------------------------------------------------------------

    def _start_deliveries(self) -> None:
        state = self._state
        self._delivering = True
        state.delays.start()
        state.transactions.start(self._deliveries)
        state.timers.start()

    async def stop_deliveries(self) -> None:
        if self._delivering:
            self._delivering = False
            self._state.delays.stop()
            await self._deliveries.stop_tasks()
            if self._state.replication.settings.with_epochs:
                # What was saved last is final; what came since may be cut from the log.
                await self._state.timers.abandon()
            else:
                await self._state.timers.stop()

    async def stop(self) -> None:
        """Neither lead nor follow any more."""
        await self.sync.stop()
        await self._state.replication.stop()

    # --- what slaves know better ------------------------------------------------------------

    async def _ask_slaves(self) -> None:
        """Offsets that groups committed on our slaves while we were away."""
        state = self._state
        for address in await self._slaves():
            asking = request(RequestCode.GET_ALL_CONSUMER_OFFSET)
            try:
                reply = await self._client.invoke(address, asking, ASK_SLAVES_MS)
                if reply.code:
                    continue
                said = java_json.decode(reply.body, bodies.ConsumerOffsetWrapper)
            except (FirearrowError, OSError) as error:
                log.info("slave %s does not say how far groups are: %s", address, error)
                continue
            taken = state.offsets.take_larger(said.offset_table, state.store.lookup.max_offset)
            if taken:
                log.info("%d offsets were committed on slave %s meanwhile", taken, address)

    async def _slaves(self) -> list[str]:
        config, registration = self._state.config, self._state.registration
        members = await registration.members(config.broker_cluster_name, config.broker_name)
        return [address for number, address in sorted(members.items()) if number != MASTER_ID]


def check_role(config: BrokerConfig) -> BrokerConfig:
    """Settings whose role and id agree, as RocketMQ reads them; ConfigError if they cannot."""
    if config.enable_controller_mode:
        return config
    if config.broker_role is BrokerRole.SLAVE:
        if config.broker_id == MASTER_ID:
            raise ConfigError("brokerRole=SLAVE needs a brokerId above 0: that is its master's")
        return config
    if config.broker_id != MASTER_ID:
        log.warning("brokerId %d is ignored: a master is always 0", config.broker_id)
        return dataclasses.replace(config, broker_id=MASTER_ID)
    return config
