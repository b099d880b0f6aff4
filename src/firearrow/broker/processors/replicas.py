"""What controllers, slaves and tools ask of a replica."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firearrow.broker.processors.common import json_reply
from firearrow.model.errors import ServiceNotAvailable
from firearrow.wire.bodies.controller import EpochEntry, EpochEntryCache
from firearrow.wire.command import Command, reply_to
from firearrow.wire.headers.controller import ExchangeHaInfoReply

if TYPE_CHECKING:
    from firearrow.broker.state import BrokerState
    from firearrow.net.connection import Connection


class ReplicaProcessor:
    def __init__(self, state: BrokerState) -> None:
        self._state = state

    def handle_role_changed(self, command: Command, _: Connection) -> Command:
        """There was an election. What it says is not believed: the controller itself is asked."""
        self._state.on_election()
        return reply_to(command)

    def handle_ha_info(self, command: Command, _: Connection) -> Command:
        """A slave asks where to connect to."""
        state = self._state
        if not state.replication.is_master:
            raise ServiceNotAvailable("this broker is not the master; ask again soon")
        reply = ExchangeHaInfoReply(
            master_ha_address=state.registration.ha_address,
            master_flush_offset=state.replication.max_offset,
            master_address=state.registration.address,
        )
        return reply_to(command, header=reply)

    def handle_epochs(self, command: Command, _: Connection) -> Command:
        state, config = self._state, self._state.config
        entries = state.replication.epoch_entries()
        ends = [entry.start_offset for entry in entries[1:]]
        reigns = tuple(
            EpochEntry(epoch=entry.epoch, start_offset=entry.start_offset, end_offset=end)
            for entry, end in zip(entries, ends, strict=False)
        )
        if entries:
            last = entries[-1]
            reigns = (*reigns, EpochEntry(epoch=last.epoch, start_offset=last.start_offset))
        cache = EpochEntryCache(
            cluster_name=config.broker_cluster_name,
            broker_name=config.broker_name,
            broker_id=config.broker_id,
            epoch_list=reigns,
            max_offset=state.replication.max_offset,
        )
        return json_reply(command, cache)
