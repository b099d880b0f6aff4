"""Several controllers with one etcd: one leads, and whoever was deposed saves nothing."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.etcd_model import EtcdModel, Fault
from tests.support import PATIENCE_S, settle
from typer.testing import CliRunner

from firearrow.base.errors import ConfigError
from firearrow.broker.controller_link import ControllerLink
from firearrow.cli.root import app
from firearrow.controller.config import ControllerConfig, check
from firearrow.controller.errors import NotLeader
from firearrow.controller.etcd import Etcd
from firearrow.controller.etcd_metadata import EtcdMetadata
from firearrow.controller.replicas import ReplicaSet
from firearrow.controller.server import Controller
from firearrow.model.errors import ResponseCode
from firearrow.net.client import RemotingClient
from firearrow.net.http_client import Site
from firearrow.testing import ManualClock
from firearrow.wire import java_json
from firearrow.wire.bodies.controller import SyncStateSet
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import request
from firearrow.wire.headers import controller as headers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine
    from pathlib import Path

    from firearrow.wire.command import Command
    from firearrow.wire.header import Header

LEASE_S = 3
LEASE_MS = LEASE_S * 1_000
NAME = "broker-a"


class Candidate:
    """One controller's metadata on a machine whose clock is its own, so that it can stand still."""

    def __init__(self, name: str, port: int) -> None:
        self.name = name
        self.clock = ManualClock()
        etcd = Etcd([Site("127.0.0.1", port)], self.clock, timeout_ms=LEASE_MS // 3)
        self.metadata = EtcdMetadata(
            etcd, name, prefix="/test", lease_seconds=LEASE_S, clock=self.clock
        )
        self.reigns = 0

    async def start(self) -> None:
        def lead() -> None:
            self.reigns += 1

        await self.metadata.start(f"host-{self.name}:9878", lead)

    @property
    def leads(self) -> bool:
        leader = self.metadata.leader
        return leader is not None and leader.is_me


@asynccontextmanager
async def etcd_with(*names: str) -> AsyncIterator[tuple[EtcdModel, ManualClock, list[Candidate]]]:
    clock = ManualClock()
    model = EtcdModel(clock)
    await model.start()
    candidates = [Candidate(name, model.port) for name in names]
    for one in candidates:
        await one.start()
        if one is candidates[0]:
            await settle(one.clock, lambda: candidates[0].leads, "the first leads")
    try:
        yield model, clock, candidates
    finally:
        model.fault = lambda _: Fault.REFUSED  # an etcd that is away holds up nobody who stops
        for one in candidates:
            await one.metadata.stop()
        model.stop()


async def later(ms: int, *clocks: ManualClock) -> None:
    for clock in clocks:
        await clock.advance(ms)


def known(epoch: int) -> ReplicaSet:
    return ReplicaSet(cluster_name="c", broker_name=NAME, master_epoch=epoch)


async def test_one_leads_and_the_others_say_who() -> None:
    async with etcd_with("n0", "n1") as (_, _, (first, second)):
        await settle(second.clock, lambda: second.metadata.leader, "the second knows a leader")
        leader = second.metadata.leader
        assert leader is not None
        assert (leader.name, leader.address, leader.is_me) == ("n0", "host-n0:9878", False)
        assert (first.reigns, second.reigns) == (1, 0)


async def test_decisions_of_one_are_read_by_the_next() -> None:
    async with etcd_with("n0", "n1") as (_, _, (first, second)):
        await first.metadata.save(NAME, known(1))
        await first.metadata.save("broker-b", known(1))
        await first.metadata.save(NAME, known(2))
        await first.metadata.save("broker-b", None)
        await settle(second.clock, lambda: second.metadata.leader, "the second knows a leader")
        await first.metadata.stop()  # gives its lease back: nobody waits for its end
        await later(LEASE_MS // 6, second.clock)
        await settle(second.clock, lambda: second.leads, "the second leads")
        assert await second.metadata.load() == {NAME: known(2)}


async def test_stopped_leader_that_goes_on_saves_nothing() -> None:
    """As after a SIGSTOP: for the old leader no time has passed, and it believes in its lease."""
    async with etcd_with("n0", "n1") as (model, clock, (first, second)):
        await first.metadata.save(NAME, known(1))
        await settle(second.clock, lambda: second.metadata.leader, "the second knows a leader")
        await later(LEASE_MS, clock)
        await later(LEASE_MS // 6, second.clock)
        await settle(second.clock, lambda: second.leads, "the second leads")
        assert first.leads, "its own clock says so"
        before = dict(model.keys)
        with pytest.raises(NotLeader, match="nothing is kept"):
            await first.metadata.save(NAME, known(9))
        assert model.keys == before
        assert not first.leads
        await second.metadata.save(NAME, known(2))
        assert await second.metadata.load() == {NAME: known(2)}
        # And it does not take the lead back: it sees who has it.
        await later(LEASE_MS // 6, first.clock)
        await settle(first.clock, lambda: first.metadata.leader, "the first knows the second")
        assert not first.leads
        assert first.reigns == 1


async def test_leader_that_does_not_reach_etcd_stops_before_its_lease_is_over() -> None:
    async with etcd_with("n0") as (model, clock, (first,)):
        model.fault = lambda _: Fault.REFUSED
        await later(LEASE_MS - 1, first.clock)
        assert first.leads
        await later(1, first.clock)
        assert first.metadata.leader is None
        with pytest.raises(NotLeader):
            await first.metadata.save(NAME, known(1))
        model.fault = lambda _: Fault.NONE
        await later(LEASE_MS // 6, first.clock, clock)
        await settle(first.clock, lambda: first.leads, "it leads again")
        assert first.reigns == 2, "as if another one had led meanwhile"


async def test_lease_that_etcd_has_forgotten_ends_the_reign() -> None:
    async with etcd_with("n0") as (model, _, (first,)):
        model.leases.clear()
        model.keys.clear()
        await later(LEASE_MS // 6, first.clock)
        await settle(first.clock, lambda: first.reigns == 2, "it leads anew")


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.REFUSED, Fault.LATE])
async def test_decision_without_an_answer_ends_the_reign_under_which_it_was_sent(
    fault: Fault,
) -> None:
    async with etcd_with("n0") as (model, _, (first,)):
        await first.metadata.save(NAME, known(1))
        model.fault = lambda path: fault if path.endswith("txn") else Fault.NONE
        saving = first.metadata.save(NAME, known(2))
        if fault is Fault.LATE:
            await _times_out(first, model, saving)
        else:
            with pytest.raises(NotLeader, match="nobody knows"):
                await saving
        model.fault = lambda _: Fault.NONE
        await later(LEASE_MS // 6, first.clock)
        await settle(first.clock, lambda: first.reigns == 2, "it leads under another key")
        kept = known(2) if fault is Fault.LOST else known(1)
        assert await first.metadata.load() == {NAME: kept}
        model.release()  # what was under way all the time arrives: it is too late
        assert await first.metadata.load() == {NAME: kept}
        await first.metadata.save(NAME, known(3))


async def _times_out(first: Candidate, model: EtcdModel, saving: Coroutine[Any, Any, None]) -> None:
    task = asyncio.create_task(saving)
    asked = len(model.asked)
    await settle(first.clock, lambda: len(model.asked) > asked, "etcd has heard it")
    await later(LEASE_MS // 3, first.clock)
    with pytest.raises(NotLeader, match="nobody knows"):
        await task


async def test_election_without_an_answer_is_held_again() -> None:
    async with etcd_with() as (model, clock, _):
        model.fault = lambda path: Fault.LOST if path.endswith("txn") else Fault.NONE
        first = Candidate("n0", model.port)
        await first.start()
        await settle(first.clock, lambda: "/v3/kv/txn" in model.asked, "it stood")
        assert not first.leads
        model.fault = lambda _: Fault.NONE
        await later(LEASE_MS // 6, first.clock, clock)
        await settle(first.clock, lambda: first.leads, "it leads, long before the lease is over")
        await first.metadata.stop()


async def test_another_ones_decisions_that_cannot_be_read_end_the_reign() -> None:
    async with etcd_with("n0") as (_, _, (first,)):
        await first.metadata.save(NAME, known(1))
        await first.metadata._etcd.put_if_created_at(  # noqa: SLF001 - a stranger writes there
            b"/nobody", 0, b"/test/sets/broken", b"{}"
        )
        with pytest.raises(NotLeader, match="cannot read"):
            await first.metadata.load()
        assert not first.leads


# --- whole controllers ------------------------------------------------------------------------


@asynccontextmanager
async def controllers(
    tmp_path: Path, count: int = 3
) -> AsyncIterator[tuple[EtcdModel, ManualClock, list[Controller]]]:
    clock = ManualClock()
    model = EtcdModel(clock)
    await model.start()
    running = []
    for number in range(count):
        config = ControllerConfig(
            listen_port=0,
            config_store_path=tmp_path / f"{number}.properties",
            controller_d_leger_self_id=f"n{number}",
            controller_etcd_endpoints=model.endpoint,
        )
        controller = Controller(config, clock)
        await controller.start()
        running.append(controller)
    try:
        yield model, clock, running
    finally:
        for controller in running:
            await controller.stop()
        model.stop()


async def ask(
    clock: ManualClock, address: str, code: int, header: Header | None = None, body: bytes = b""
) -> Command:
    client = RemotingClient(clock)
    try:
        return await client.invoke(address, request(code, header, body), PATIENCE_S * 1_000)
    finally:
        await client.close()


async def leader_by(clock: ManualClock, controller: Controller) -> tuple[str | None, bool]:
    reply = await ask(clock, controller.address, RequestCode.CONTROLLER_GET_METADATA_INFO)
    said = headers.GetControllerMetadataReply.from_ext(reply.ext)
    return said.controller_leader_address, said.is_leader


async def agreed(clock: ManualClock, running: list[Controller]) -> Controller:
    """The controller that all of them name."""
    for _ in range(PATIENCE_S * 50):
        named = {(await leader_by(clock, one))[0] for one in running}
        leading = [one for one in running if {one.address} == named]
        if leading:
            return leading[0]
        await clock.advance(LEASE_MS // 6)
    raise AssertionError("they do not agree")


async def test_brokers_find_the_leader_through_any_of_them(tmp_path: Path) -> None:
    async with controllers(tmp_path) as (_, clock, running):
        leader = await agreed(clock, running)
        assert [await leader_by(clock, one) for one in running] == [
            (leader.address, one is leader) for one in running
        ]
        client = RemotingClient(clock)
        others = [one for one in running if one is not leader]
        for one in [*others, leader]:
            link = ControllerLink(client, [one.address], cluster="c", name=NAME)
            assert await link.next_id() == 1
        await client.close()


async def test_who_does_not_lead_says_who_does_and_decides_nothing(tmp_path: Path) -> None:
    async with controllers(tmp_path) as (model, clock, running):
        leader = await agreed(clock, running)
        other = next(one for one in running if one is not leader)
        header = headers.ApplyBrokerIdRequest(
            cluster_name="c", broker_name=NAME, applied_broker_id=1, register_check_code="x;1"
        )
        reply = await ask(clock, other.address, RequestCode.CONTROLLER_APPLY_BROKER_ID, header)
        assert reply.code == ResponseCode.CONTROLLER_NOT_LEADER
        assert leader.address in (reply.remark or "")
        assert not [key for key in model.keys if b"/sets/" in key]


async def test_next_leader_knows_masters_and_epochs(tmp_path: Path) -> None:
    async with controllers(tmp_path) as (_, clock, running):
        leader = await agreed(clock, running)
        apply = headers.ApplyBrokerIdRequest(
            cluster_name="c", broker_name=NAME, applied_broker_id=1, register_check_code="h:1;1"
        )
        register = headers.RegisterToControllerRequest(
            cluster_name="c", broker_name=NAME, broker_id=1, broker_address="h:1"
        )
        elect = headers.ElectMasterRequest(cluster_name="c", broker_name=NAME, broker_id=1)
        client = RemotingClient(clock)
        for code, header in (
            (RequestCode.CONTROLLER_APPLY_BROKER_ID, apply),
            (RequestCode.CONTROLLER_REGISTER_BROKER, register),
            (RequestCode.CONTROLLER_ELECT_MASTER, elect),
        ):
            asking = request(code, header)
            reply = await client.invoke(leader.address, asking, PATIENCE_S * 1_000)
            assert reply.code == 0, reply.remark
        await client.close()
        running.remove(leader)
        await leader.stop()
        following = await agreed(clock, running)
        assert following is not leader
        info = headers.GetReplicaInfoRequest(broker_name=NAME)
        reply = await ask(clock, following.address, RequestCode.CONTROLLER_GET_REPLICA_INFO, info)
        told = headers.GetReplicaInfoReply.from_ext(reply.ext)
        assert (told.master_broker_id, told.master_epoch) == (1, 1)
        assert java_json.decode(reply.body, SyncStateSet).sync_state_set == (1,)


async def test_controller_waits_for_an_etcd_that_is_not_there_yet(tmp_path: Path) -> None:
    async with controllers(tmp_path, count=1) as (model, clock, (controller,)):
        await agreed(clock, [controller])
        model.fault = lambda _: Fault.REFUSED
        await clock.advance(LEASE_MS)
        assert await leader_by(clock, controller) == (None, False)
        model.fault = lambda _: Fault.NONE
        assert await agreed(clock, [controller]) is controller


# --- settings ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (
            {"controller_d_leger_peers": "n0-127.0.0.1:1;n1-127.0.0.1:2"},
            "they need an etcd to agree",
        ),
        ({"controller_etcd_endpoints": "localhost"}, "controllerEtcdEndpoints: 'localhost'"),
        ({"controller_etcd_endpoints": "ftp://h:1"}, "http or https expected"),
        (
            {"controller_etcd_endpoints": "h:1", "controller_etcd_prefix": "x"},
            "must begin with a slash",
        ),
        (
            {"controller_etcd_endpoints": "h:1", "bind_address": "0.0.0.0"},
            "tells nobody where this controller is",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        check(ControllerConfig(**settings))


def test_flag_of_the_command_line_names_the_members() -> None:
    ran = CliRunner().invoke(app, ["controller", "--etcd", "127.0.0.1"])
    assert ran.exit_code == 2
    assert "controllerEtcdEndpoints: '127.0.0.1'" in ran.output


def test_missing_certificate_is_named_with_its_settings(tmp_path: Path) -> None:
    config = ControllerConfig(
        controller_etcd_endpoints="https://h:1", controller_etcd_ca_path=tmp_path / "none.pem"
    )
    with pytest.raises(ConfigError, match="controllerEtcdCaPath"):
        check(config)
