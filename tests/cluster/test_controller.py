"""A whole controller on a free port, asked over the wire as brokers and mqadmin ask it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tests.support import PATIENCE_S, settle

from firearrow.controller.config import ControllerConfig
from firearrow.controller.server import Controller
from firearrow.model.errors import ResponseCode
from firearrow.net.client import RemotingClient
from firearrow.testing import ManualClock
from firearrow.wire import java_json
from firearrow.wire.bodies.controller import BrokerReplicasInfo, ElectMasterBody, SyncStateSet
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import Command, request
from firearrow.wire.headers import BrokerHeartbeatRequest
from firearrow.wire.headers import controller as headers
from firearrow.wire.properties_text import parse_properties

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from firearrow.wire.header import Header

NAME = "broker-a"


class Asking:
    """A controller, and one connection for each of the brokers that talk to it."""

    def __init__(self, controller: Controller, clock: ManualClock) -> None:
        self.controller = controller
        self.clock = clock
        self.clients: dict[int, RemotingClient] = {}

    async def ask(
        self, code: int, header: Header | None = None, body: bytes = b"", *, by: int = 0
    ) -> Command:
        client = self.clients.setdefault(by, RemotingClient(self.clock))
        return await client.invoke(
            self.controller.address, request(code, header, body), PATIENCE_S * 1_000
        )

    async def bring_up(self, broker_id: int) -> Command:
        header = headers.GetNextBrokerIdRequest(cluster_name="c", broker_name=NAME)
        reply = await self.ask(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, header, by=broker_id)
        assert headers.GetNextBrokerIdReply.from_ext(reply.ext).next_broker_id == broker_id
        apply = headers.ApplyBrokerIdRequest(
            cluster_name="c",
            broker_name=NAME,
            applied_broker_id=broker_id,
            register_check_code=f"127.0.0.1:{broker_id};77",
        )
        assert (
            await self.ask(RequestCode.CONTROLLER_APPLY_BROKER_ID, apply, by=broker_id)
        ).code == 0
        return await self.register(broker_id)

    async def register(self, broker_id: int) -> Command:
        header = headers.RegisterToControllerRequest(
            cluster_name="c",
            broker_name=NAME,
            broker_id=broker_id,
            broker_address=f"127.0.0.1:{broker_id}",
        )
        return await self.ask(RequestCode.CONTROLLER_REGISTER_BROKER, header, by=broker_id)

    async def elect(self, broker_id: int, *, designate: bool = False) -> Command:
        header = headers.ElectMasterRequest(
            cluster_name="c", broker_name=NAME, broker_id=broker_id, designate_elect=designate
        )
        return await self.ask(RequestCode.CONTROLLER_ELECT_MASTER, header, by=broker_id)

    async def alter(self, members: tuple[int, ...], *, epoch: int, set_epoch: int) -> Command:
        header = headers.AlterSyncStateSetRequest(
            broker_name=NAME, master_broker_id=1, master_epoch=epoch
        )
        body = SyncStateSet(sync_state_set=members, sync_state_set_epoch=set_epoch)
        return await self.ask(
            RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, header, java_json.encode(body), by=1
        )

    async def info(self) -> tuple[headers.GetReplicaInfoReply, SyncStateSet]:
        header = headers.GetReplicaInfoRequest(broker_name=NAME)
        reply = await self.ask(RequestCode.CONTROLLER_GET_REPLICA_INFO, header)
        assert reply.code == 0, reply.remark
        return (
            headers.GetReplicaInfoReply.from_ext(reply.ext),
            java_json.decode(reply.body, SyncStateSet),
        )

    async def master(self) -> int | None:
        return (await self.info())[0].master_broker_id

    async def close(self) -> None:
        for client in self.clients.values():
            await client.close()


@asynccontextmanager
async def running(path: Path) -> AsyncIterator[Asking]:
    clock = ManualClock()
    config = ControllerConfig(
        listen_port=0, controller_store_path=path, config_store_path=path / "controller.properties"
    )
    controller = Controller(config, clock)
    await controller.start()
    asking = Asking(controller, clock)
    try:
        yield asking
    finally:
        await controller.stop()
        await asking.close()


async def test_the_first_replica_that_asks_is_master_alone_in_sync(tmp_path: Path) -> None:
    async with running(tmp_path) as asking:
        await asking.bring_up(1)
        reply = await asking.elect(1)
        assert reply.code == 0
        elected = headers.ElectMasterReply.from_ext(reply.ext)
        assert (elected.master_broker_id, elected.master_address) == (1, "127.0.0.1:1")
        assert (elected.master_epoch, elected.sync_state_set_epoch) == (1, 1)
        body = java_json.decode(reply.body, ElectMasterBody)
        assert body.sync_state_set == (1,)
        assert body.broker_member_group is not None
        assert body.broker_member_group.broker_addrs == {1: "127.0.0.1:1"}


async def test_a_second_replica_learns_the_master_when_it_registers(tmp_path: Path) -> None:
    async with running(tmp_path) as asking:
        await asking.bring_up(1)
        await asking.elect(1)
        reply = await asking.bring_up(2)
        told = headers.RegisterToControllerReply.from_ext(reply.ext)
        assert (told.master_broker_id, told.master_epoch) == (1, 1)
        refused = await asking.elect(2)
        assert refused.code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST
        assert headers.ElectMasterReply.from_ext(refused.ext).master_broker_id == 1


async def test_a_master_whose_connection_ends_is_followed_by_whoever_is_in_sync(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as asking:
        for broker_id in (1, 2, 3):
            await asking.bring_up(broker_id)
        await asking.elect(1)
        assert (await asking.alter((1, 3), epoch=1, set_epoch=1)).code == 0
        await asking.clients.pop(1).close()
        masters: list[int | None] = []

        async def look() -> None:
            masters.append(await asking.master())

        while not masters or masters[-1] == 1:
            await asking.clock.advance(100)
            await look()
        assert masters[-1] == 3, "2 was not in sync"
        replica, in_sync = await asking.info()
        assert replica.master_epoch == 2
        assert in_sync.sync_state_set == (3,)


async def test_a_silent_master_is_replaced_when_its_time_is_up_and_not_before(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as asking:
        for broker_id in (1, 2):
            await asking.bring_up(broker_id)
        await asking.elect(1)
        assert (await asking.alter((1, 2), epoch=1, set_epoch=1)).code == 0
        for _ in range(4):
            await beat(asking, 2)
            await asking.clock.advance(1_000)
            assert await asking.master() == 1
        for _ in range(3):
            await beat(asking, 2)
            await asking.clock.advance(1_000)
        await settle(asking.clock, lambda: True, "nothing")
        assert await asking.master() == 2


async def beat(asking: Asking, broker_id: int) -> None:
    header = BrokerHeartbeatRequest(
        cluster_name="c",
        broker_addr=f"127.0.0.1:{broker_id}",
        broker_name=NAME,
        broker_id=broker_id,
        epoch=1,
        max_offset=100,
        heartbeat_timeout_mills=5_000,
    )
    assert (await asking.ask(RequestCode.BROKER_HEARTBEAT, header, by=broker_id)).code == 0


async def test_only_the_master_of_the_epoch_changes_the_in_sync_set(tmp_path: Path) -> None:
    async with running(tmp_path) as asking:
        for broker_id in (1, 2):
            await asking.bring_up(broker_id)
        await asking.elect(1)
        stale = await asking.alter((1, 2), epoch=0, set_epoch=1)
        assert stale.code == ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH
        stale = await asking.alter((1, 2), epoch=1, set_epoch=0)
        assert stale.code == ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH
        unknown = await asking.alter((1, 9), epoch=1, set_epoch=1)
        assert unknown.code == ResponseCode.CONTROLLER_INVALID_REPLICAS
        assert (await asking.info())[1].sync_state_set == (1,)


async def test_an_operator_can_choose_a_master_among_those_in_sync_only(tmp_path: Path) -> None:
    async with running(tmp_path) as asking:
        for broker_id in (1, 2, 3):
            await asking.bring_up(broker_id)
        await asking.elect(1)
        await asking.alter((1, 2), epoch=1, set_epoch=1)
        refused = await asking.elect(3, designate=True)
        assert refused.code == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
        assert "not in sync" in (refused.remark or "")
        assert (await asking.elect(2, designate=True)).code == 0
        assert await asking.master() == 2


async def test_a_master_that_began_anew_reigns_under_a_new_epoch(tmp_path: Path) -> None:
    async with running(tmp_path) as asking:
        await asking.bring_up(1)
        await asking.elect(1)
        again = await asking.elect(1)
        assert again.code == 0
        assert headers.ElectMasterReply.from_ext(again.ext).master_epoch == 2


async def test_a_restarted_controller_knows_everything_and_waits_for_the_master(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as asking:
        for broker_id in (1, 2):
            await asking.bring_up(broker_id)
        await asking.elect(1)
        await asking.alter((1, 2), epoch=1, set_epoch=1)
    async with running(tmp_path) as asking:
        await asking.register(2)
        await asking.clock.advance(1_500)
        replica, in_sync = await asking.info()
        assert replica.master_broker_id == 1
        assert in_sync.sync_state_set == (1, 2)


async def test_administrators_see_who_is_in_sync_and_alive(tmp_path: Path) -> None:
    async with running(tmp_path) as asking:
        for broker_id in (1, 2):
            await asking.bring_up(broker_id)
        await asking.elect(1)
        reply = await asking.ask(
            RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=b'["broker-a","broker-b"]'
        )
        table = java_json.decode(reply.body, BrokerReplicasInfo).replicas_info_table
        assert list(table) == [NAME]
        assert [one.broker_id for one in table[NAME].in_sync_replicas] == [1]
        assert [(one.broker_id, one.alive) for one in table[NAME].not_in_sync_replicas] == [
            (2, True)
        ]
        reply = await asking.ask(RequestCode.CONTROLLER_GET_METADATA_INFO)
        metadata = headers.GetControllerMetadataReply.from_ext(reply.ext)
        assert metadata.is_leader
        assert metadata.controller_leader_address == asking.controller.address


async def test_settings_are_shown_and_some_can_be_changed(tmp_path: Path) -> None:
    async with running(tmp_path) as asking:
        change = b"enableElectUncleanMaster=true\n"
        assert (await asking.ask(RequestCode.UPDATE_CONTROLLER_CONFIG, body=change)).code == 0
        shown = (await asking.ask(RequestCode.GET_CONTROLLER_CONFIG)).body
        assert parse_properties(shown)["enableElectUncleanMaster"] == "true"
        refused = await asking.ask(RequestCode.UPDATE_CONTROLLER_CONFIG, body=b"listenPort=1\n")
        assert refused.code == ResponseCode.NO_PERMISSION


async def test_a_living_replica_is_not_forgotten(tmp_path: Path) -> None:
    async with running(tmp_path) as asking:
        for broker_id in (1, 2):
            await asking.bring_up(broker_id)
        await asking.elect(1)
        header = headers.CleanBrokerDataRequest(
            broker_name=NAME, broker_controller_ids_to_clean="2"
        )
        refused = await asking.ask(RequestCode.CLEAN_BROKER_DATA, header)
        assert refused.code == ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
        assert "alive" in (refused.remark or "")
