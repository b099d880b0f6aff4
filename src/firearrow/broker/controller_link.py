"""What a broker asks of controllers: the one that leads is found, and found again."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from firearrow.base.errors import FirearrowError
from firearrow.model.errors import ResponseCode, error_for
from firearrow.net.errors import NetworkError
from firearrow.wire import java_json
from firearrow.wire.bodies.controller import SyncStateSet
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import request
from firearrow.wire.headers import BrokerHeartbeatRequest
from firearrow.wire.headers import controller as headers

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from firearrow.broker.identity import Wish
    from firearrow.net.client import RemotingClient
    from firearrow.wire.command import Command
    from firearrow.wire.header import Header

log = logging.getLogger(__name__)

ASK_MS: Final = 2_000

_H = TypeVar("_H", bound="Header")


class NoController(FirearrowError):
    """No controller leads, or none can be reached."""


@dataclass(frozen=True, slots=True)
class ReplicaInfo:
    """What the controller says about the replicas of a broker."""

    master_id: int | None
    master_address: str
    epoch: int
    in_sync: frozenset[int]
    set_epoch: int


class ControllerLink:
    """One broker's questions. Waits for answers, keeps nothing but who leads."""

    def __init__(
        self, client: RemotingClient, controllers: Sequence[str], *, cluster: str, name: str
    ) -> None:
        self._client = client
        self._controllers = list(controllers)
        self._cluster = cluster
        self._name = name
        self._leader: str | None = None

    # --- ids --------------------------------------------------------------------------------

    async def next_id(self) -> int:
        header = headers.GetNextBrokerIdRequest(cluster_name=self._cluster, broker_name=self._name)
        reply = await self._ask(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, header)
        return _read(reply, headers.GetNextBrokerIdReply).next_broker_id

    async def apply(self, wish: Wish) -> bool:
        """Whether the id is ours now."""
        header = headers.ApplyBrokerIdRequest(
            cluster_name=self._cluster,
            broker_name=self._name,
            applied_broker_id=wish.broker_id,
            register_check_code=wish.check_code,
        )
        reply = await self._ask(RequestCode.CONTROLLER_APPLY_BROKER_ID, header)
        if reply.code == ResponseCode.CONTROLLER_BROKER_ID_INVALID:
            log.info("id %d is not to be had: %s", wish.broker_id, reply.remark)
            return False
        _refuse(reply)
        return True

    async def register(self, broker_id: int, address: str) -> None:
        header = headers.RegisterToControllerRequest(
            cluster_name=self._cluster,
            broker_name=self._name,
            broker_id=broker_id,
            broker_address=address,
        )
        _refuse(await self._ask(RequestCode.CONTROLLER_REGISTER_BROKER, header))

    # --- life signs and news ----------------------------------------------------------------

    async def heartbeat(self, header: BrokerHeartbeatRequest) -> None:
        _refuse(await self._ask(RequestCode.BROKER_HEARTBEAT, header))

    async def info(self) -> ReplicaInfo:
        header = headers.GetReplicaInfoRequest(broker_name=self._name)
        reply = await self._ask(RequestCode.CONTROLLER_GET_REPLICA_INFO, header)
        said = _read(reply, headers.GetReplicaInfoReply)
        members = java_json.decode(reply.body, SyncStateSet)
        return ReplicaInfo(
            said.master_broker_id,
            said.master_address or "",
            said.master_epoch or 0,
            frozenset(members.sync_state_set),
            members.sync_state_set_epoch,
        )

    async def elect(self, broker_id: int) -> None:
        """Ask for an election; the outcome is news like any other."""
        header = headers.ElectMasterRequest(
            cluster_name=self._cluster, broker_name=self._name, broker_id=broker_id
        )
        reply = await self._ask(RequestCode.CONTROLLER_ELECT_MASTER, header)
        if reply.code not in {0, ResponseCode.CONTROLLER_MASTER_STILL_EXIST}:
            _refuse(reply)

    async def alter(
        self, members: Collection[int], *, master_id: int, epoch: int, set_epoch: int
    ) -> SyncStateSet:
        """Propose who is in sync. BrokerError: no. NoController: nobody knows."""
        header = headers.AlterSyncStateSetRequest(
            broker_name=self._name, master_broker_id=master_id, master_epoch=epoch
        )
        body = SyncStateSet(sync_state_set=tuple(sorted(members)), sync_state_set_epoch=set_epoch)
        reply = await self._ask(
            RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, header, java_json.encode(body)
        )
        _refuse(reply)
        return java_json.decode(reply.body, SyncStateSet)

    # --- asking -----------------------------------------------------------------------------

    async def _ask(self, code: int, header: Header, body: bytes = b"") -> Command:
        leader = self._leader or await self._find_leader()
        try:
            reply = await self._client.invoke(leader, request(code, header, body), ASK_MS)
        except (NetworkError, OSError, ValueError) as error:
            self._leader = None
            raise NoController(f"controller {leader} does not answer: {error}") from error
        if reply.code == ResponseCode.CONTROLLER_NOT_LEADER:
            self._leader = None
            raise NoController(f"controller {leader} does not lead: {reply.remark}")
        return reply

    async def _find_leader(self) -> str:
        """All are asked at once: one that does not answer must not hold up the others."""
        asking = [asyncio.create_task(self._leader_by(address)) for address in self._controllers]
        complaints = []
        try:
            for answer in asyncio.as_completed(asking):
                leader, complaint = await answer
                if leader:
                    self._leader = leader
                    return leader
                complaints.append(complaint)
        finally:
            for task in asking:
                task.cancel()
        raise NoController("; ".join(complaints))

    async def _leader_by(self, address: str) -> tuple[str, str]:
        """Who leads as this controller has it, or nobody and why."""
        asking = request(RequestCode.CONTROLLER_GET_METADATA_INFO)
        try:
            reply = await self._client.invoke(address, asking, ASK_MS)
        except (NetworkError, OSError, ValueError) as error:
            return "", f"{address}: {error}"
        said = headers.GetControllerMetadataReply.from_ext(reply.ext)
        if reply.code == 0 and said.controller_leader_address:
            return said.controller_leader_address, ""
        return "", f"{address}: {reply.remark or 'nobody leads'}"


def _read(reply: Command, kind: type[_H]) -> _H:
    _refuse(reply)
    return kind.from_ext(reply.ext)


def _refuse(reply: Command) -> None:
    if reply.code:
        raise error_for(reply.code, reply.remark)
