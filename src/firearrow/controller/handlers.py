"""What a controller answers, request by request. `request_table` at the end names them all."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from firearrow.base.config import NotRemote, to_properties, updated
from firearrow.base.errors import ConfigError, PeerProtocolError
from firearrow.controller.config import peers_of
from firearrow.controller.errors import InvalidClean, InvalidControllerRequest, MasterStillExists
from firearrow.controller.replicas import Standing
from firearrow.model.errors import NoPermission, ServerFailed
from firearrow.wire import java_json
from firearrow.wire.bodies import BrokerMemberGroup
from firearrow.wire.bodies.controller import (
    BrokerReplicasInfo,
    ElectMasterBody,
    ReplicaIdentity,
    ReplicasInfo,
    SyncStateSet,
)
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import reply_to
from firearrow.wire.headers import BrokerHeartbeatRequest
from firearrow.wire.headers import controller as headers
from firearrow.wire.properties_text import format_properties, parse_properties

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from firearrow.controller.config import ControllerConfig
    from firearrow.controller.metadata import Metadata
    from firearrow.controller.registry import Registry
    from firearrow.controller.replicas import ReplicaSet
    from firearrow.net.connection import Connection
    from firearrow.net.router import Handler
    from firearrow.wire.command import Command

log = logging.getLogger(__name__)

CONFIG_BYTES_MAX: Final = 64 * 1024
NAMES_MAX: Final = 10_000
NOBODY: Final = -1  # "elect whom you like", in a request


class Handlers:
    """Each method answers one kind of request."""

    def __init__(
        self,
        config: ControllerConfig,
        registry: Registry,
        metadata: Metadata,
        *,
        save_config: Callable[[ControllerConfig], None],
    ) -> None:
        self.config = config
        self._registry = registry
        self._metadata = metadata
        self._save_config = save_config

    # --- ids --------------------------------------------------------------------------------

    def get_next_broker_id(self, command: Command, _: Connection) -> Command:
        asked = headers.GetNextBrokerIdRequest.from_ext(command.ext)
        reply = headers.GetNextBrokerIdReply(
            cluster_name=asked.cluster_name,
            broker_name=asked.broker_name,
            next_broker_id=self._registry.next_id(asked.broker_name),
        )
        return reply_to(command, header=reply)

    async def apply_broker_id(self, command: Command, _: Connection) -> Command:
        asked = headers.ApplyBrokerIdRequest.from_ext(command.ext)
        await self._registry.join(
            cluster=asked.cluster_name,
            name=asked.broker_name,
            broker_id=asked.applied_broker_id,
            check_code=asked.register_check_code,
        )
        reply = headers.ApplyBrokerIdReply(
            cluster_name=asked.cluster_name, broker_name=asked.broker_name
        )
        return reply_to(command, header=reply)

    async def register_broker(self, command: Command, connection: Connection) -> Command:
        asked = headers.RegisterToControllerRequest.from_ext(command.ext)
        known = await self._registry.register(
            name=asked.broker_name,
            broker_id=asked.broker_id,
            address=asked.broker_address,
            channel=connection,
            timeout_ms=self.config.broker_not_alive_millis,
        )
        is_led = known.master_broker_id in self._registry.alive(asked.broker_name)
        reply = headers.RegisterToControllerReply(
            cluster_name=known.cluster_name,
            broker_name=known.broker_name,
            master_broker_id=known.master_broker_id if is_led else None,
            master_address=known.master_address if is_led else None,
            master_epoch=known.master_epoch if is_led else None,
            sync_state_set_epoch=known.sync_state_set_epoch if is_led else None,
        )
        return reply_to(command, header=reply, body=_sync_state(known))

    def heartbeat(self, command: Command, connection: Connection) -> Command:
        asked = BrokerHeartbeatRequest.from_ext(command.ext)
        if asked.broker_id is None:
            raise InvalidControllerRequest("a heartbeat without brokerId")
        priority = asked.election_priority
        standing = Standing(
            epoch=asked.epoch or 0,
            max_offset=asked.max_offset or 0,
            confirm_offset=asked.confirm_offset or 0,
            priority=Standing().priority if priority is None else priority,
        )
        self._registry.heard(
            asked.broker_name,
            asked.broker_id,
            standing,
            channel=connection,
            timeout_ms=asked.heartbeat_timeout_mills or self.config.broker_not_alive_millis,
        )
        return reply_to(command)

    # --- masters and who is in sync ---------------------------------------------------------

    async def elect_master(self, command: Command, _: Connection) -> Command:
        asked = headers.ElectMasterRequest.from_ext(command.ext)
        broker_id = None if asked.broker_id == NOBODY else asked.broker_id
        try:
            elected = await self._registry.elect(
                asked.broker_name,
                asked_by=None if asked.designate_elect else broker_id,
                designated=broker_id if asked.designate_elect else None,
            )
        except MasterStillExists as error:
            # A broker that has no master learns by this who it is.
            known = self._registry.get(asked.broker_name)
            reply = _election(command, known)
            reply.code, reply.remark = error.code, str(error)
            return reply
        return _election(command, elected)

    def get_replica_info(self, command: Command, _: Connection) -> Command:
        asked = headers.GetReplicaInfoRequest.from_ext(command.ext)
        known = self._registry.get(asked.broker_name)
        reply = headers.GetReplicaInfoReply(
            master_broker_id=known.master_broker_id,
            master_address=known.master_address,
            master_epoch=known.master_epoch,
        )
        return reply_to(command, header=reply, body=_sync_state(known))

    async def alter_sync_state_set(self, command: Command, _: Connection) -> Command:
        asked = headers.AlterSyncStateSetRequest.from_ext(command.ext)
        proposed = java_json.decode(command.body, SyncStateSet)
        known = await self._registry.alter(
            asked.broker_name,
            proposed.sync_state_set,
            master_id=asked.master_broker_id,
            master_epoch=asked.master_epoch,
            set_epoch=proposed.sync_state_set_epoch,
        )
        reply = headers.AlterSyncStateSetReply(new_sync_state_set_epoch=known.sync_state_set_epoch)
        return reply_to(command, header=reply, body=_sync_state(known))

    # --- administration ---------------------------------------------------------------------

    def get_metadata(self, command: Command, _: Connection) -> Command:
        leader = self._metadata.leader
        config = self.config
        peers = peers_of(config)
        if not peers and leader is not None:
            peers = {leader.name: leader.address}
        reply = headers.GetControllerMetadataReply(
            group=config.controller_d_leger_group,
            controller_leader_id=None if leader is None else leader.name,
            controller_leader_address=None if leader is None else leader.address,
            is_leader=leader is not None and leader.is_me,
            peers="".join(f"{name}:{address};" for name, address in peers.items()),
        )
        return reply_to(command, header=reply)

    def get_sync_state_data(self, command: Command, _: Connection) -> Command:
        names = java_json.decode(command.body, tuple[str, ...]) if command.body else ()
        if len(names) > NAMES_MAX:
            raise InvalidControllerRequest(f"{len(names)} names; {NAMES_MAX} at most")
        known = set(self._registry.names())
        table = {name: self._replicas_info(name) for name in names if name in known}
        body = BrokerReplicasInfo(replicas_info_table=table)
        return reply_to(command, body=java_json.encode(body))

    def _replicas_info(self, name: str) -> ReplicasInfo:
        known, alive = self._registry.get(name), self._registry.alive(name)

        def identities(ids: Collection[int]) -> tuple[ReplicaIdentity, ...]:
            return tuple(
                ReplicaIdentity(
                    broker_name=name,
                    broker_id=broker_id,
                    broker_address=known.replicas[broker_id].address,
                    alive=broker_id in alive,
                )
                for broker_id in sorted(ids)
            )

        return ReplicasInfo(
            master_broker_id=known.master_broker_id,
            master_address=known.master_address,
            master_epoch=known.master_epoch,
            sync_state_set_epoch=known.sync_state_set_epoch,
            in_sync_replicas=identities(known.sync_state_set),
            not_in_sync_replicas=identities(known.replicas.keys() - known.sync_state_set),
        )

    async def clean_broker_data(self, command: Command, connection: Connection) -> Command:
        asked = headers.CleanBrokerDataRequest.from_ext(command.ext)
        text = (asked.broker_controller_ids_to_clean or "").strip()
        try:
            ids = [int(part) for part in text.split(";") if part.strip()] or None
        except ValueError:
            raise InvalidClean(
                f"brokerControllerIdsToClean={text!r}: ids separated by semicolons expected"
            ) from None
        await self._registry.forget(asked.broker_name, ids, force=asked.is_clean_living_broker)
        log.warning("%s made us forget %s of %s", connection.peer, ids or "all", asked.broker_name)
        return reply_to(command)

    def get_config(self, command: Command, _: Connection) -> Command:
        return reply_to(command, body=format_properties(to_properties(self.config)))

    def update_config(self, command: Command, connection: Connection) -> Command:
        if len(command.body) > CONFIG_BYTES_MAX:
            raise ServerFailed(
                f"settings of {len(command.body)} bytes; the limit is {CONFIG_BYTES_MAX}"
            )
        try:
            changes = parse_properties(command.body)
            config = updated(self.config, changes, who="update request")
        except NotRemote as error:
            raise NoPermission(str(error)) from error
        except (ConfigError, PeerProtocolError) as error:
            raise ServerFailed(str(error)) from error
        if config != self.config:
            log.info("%s changed the configuration: %s", connection.peer, changes)
            self._save_config(config)
            self.config = config
        return reply_to(command)

    def request_table(self) -> dict[int, Handler]:
        """Every request this server answers; everything else gets code 3."""
        return {
            RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: self.alter_sync_state_set,
            RequestCode.CONTROLLER_ELECT_MASTER: self.elect_master,
            RequestCode.CONTROLLER_REGISTER_BROKER: self.register_broker,
            RequestCode.CONTROLLER_GET_REPLICA_INFO: self.get_replica_info,
            RequestCode.CONTROLLER_GET_METADATA_INFO: self.get_metadata,
            RequestCode.CONTROLLER_GET_SYNC_STATE_DATA: self.get_sync_state_data,
            RequestCode.UPDATE_CONTROLLER_CONFIG: self.update_config,
            RequestCode.GET_CONTROLLER_CONFIG: self.get_config,
            RequestCode.CLEAN_BROKER_DATA: self.clean_broker_data,
            RequestCode.CONTROLLER_GET_NEXT_BROKER_ID: self.get_next_broker_id,
            RequestCode.CONTROLLER_APPLY_BROKER_ID: self.apply_broker_id,
            RequestCode.BROKER_HEARTBEAT: self.heartbeat,
        }


def _sync_state(known: ReplicaSet) -> bytes:
    return java_json.encode(
        SyncStateSet(
            sync_state_set=tuple(sorted(known.sync_state_set)),
            sync_state_set_epoch=known.sync_state_set_epoch,
        )
    )


def _election(command: Command, known: ReplicaSet) -> Command:
    reply = headers.ElectMasterReply(
        master_broker_id=known.master_broker_id,
        master_address=known.master_address,
        master_epoch=known.master_epoch,
        sync_state_set_epoch=known.sync_state_set_epoch,
    )
    group = BrokerMemberGroup(
        cluster=known.cluster_name,
        broker_name=known.broker_name,
        broker_addrs={n: replica.address for n, replica in known.replicas.items()},
    )
    body = ElectMasterBody(
        broker_member_group=group, sync_state_set=tuple(sorted(known.sync_state_set))
    )
    return reply_to(command, header=reply, body=java_json.encode(body))
