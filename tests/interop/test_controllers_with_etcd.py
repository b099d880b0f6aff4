"""Three controllers with a real etcd under load: whoever leads dies or stops, and another does."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import pytest
from typer.testing import CliRunner

from firearrow.base.runtime import SystemClock
from firearrow.cli.root import app
from firearrow.controller.config import ControllerConfig, etcd_sites
from firearrow.controller.errors import NotLeader
from firearrow.controller.etcd import Etcd
from firearrow.controller.etcd_metadata import EtcdMetadata
from firearrow.controller.replicas import ReplicaSet
from firearrow.model.errors import ResponseCode
from firearrow.testing import ManualClock
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import request
from firearrow.wire.headers import controller as headers

from .apache import Mqadmin, NameServer
from .etcds import EtcdCluster
from .failover import NAME, ReplicaCluster, Sending, ask, check_acknowledged, writable
from .processes import Bench, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CONTROLLERS: Final = ("n0", "n1", "n2")
PATIENCE_S: Final = 60.0


@pytest.fixture(scope="module")
def etcd(bench: Bench) -> EtcdCluster:
    return EtcdCluster(bench)


@pytest.fixture(scope="module")
def replicas(bench: Bench, etcd: EtcdCluster) -> ReplicaCluster:
    return ReplicaCluster(
        bench,
        controllers=CONTROLLERS,
        controller_settings={"controllerEtcdEndpoints": etcd.endpoints},
    )


@pytest.fixture
def sending(replicas: ReplicaCluster, unique: Callable[[str], str]) -> Iterator[Sending]:
    """A producer under way; afterwards every acknowledged message must be there."""
    started = Sending(replicas.address("names"), unique("controllers"))
    started.start()
    try:
        started.wait_for_more(50)
        yield started
        started.wait_for_more(50)
    finally:
        started.stop()
    check_acknowledged(replicas.address("names"), started)


def leader_of(replicas: ReplicaCluster) -> str:
    return wait_until(replicas.leader, timeout_s=PATIENCE_S, what="a controller that leads")


def wait_for_another(replicas: ReplicaCluster, old: str) -> str:
    return wait_until(
        lambda: now if (now := replicas.leader()) != old else None,
        timeout_s=PATIENCE_S,
        what=f"a leader after {old}",
    )


def all_are_alive(replicas: ReplicaCluster) -> bool:
    info = replicas.info()
    return (
        info is not None
        and len(info.in_sync_replicas) == len(replicas.brokers)
        and all(one.alive for one in info.in_sync_replicas)
    )


def wait_for_everybody(replicas: ReplicaCluster) -> None:
    wait_until(lambda: all_are_alive(replicas), timeout_s=PATIENCE_S, what="all in sync and alive")


def test_killed_leader_is_followed_and_the_next_one_elects(
    replicas: ReplicaCluster, sending: Sending, record_property: Callable[[str, object], None]
) -> None:
    old = leader_of(replicas)
    replicas.processes[old].kill()
    record_property("writable after a kill of the leading controller, s", writable(sending))
    wait_for_another(replicas, old)
    wait_for_everybody(replicas)
    master = replicas.master()
    replicas.processes[master].kill()
    record_property("writable after a kill of the master then, s", writable(sending))
    assert replicas.master() != master
    replicas.start(old)
    replicas.start(master)
    replicas.wait_for_in_sync(3)


def test_stopped_leader_is_followed_and_decides_nothing_when_it_goes_on(
    replicas: ReplicaCluster, sending: Sending, record_property: Callable[[str, object], None]
) -> None:
    old = leader_of(replicas)
    replicas.processes[old].freeze()
    try:
        record_property("writable after a stop of the leading controller, s", writable(sending))
        wait_for_another(replicas, old)
        wait_for_everybody(replicas)
        master = replicas.master()
        replicas.processes[master].kill()
        record_property("writable after a kill of the master then, s", writable(sending))
        now = replicas.info()
        assert now is not None
    finally:
        replicas.processes[old].thaw()
    # The first that it does is to answer us: it would elect the one that it knew as master.
    elect = headers.ElectMasterRequest(
        cluster_name="DefaultCluster", broker_name=NAME, broker_id=1, designate_elect=True
    )
    asking = request(RequestCode.CONTROLLER_ELECT_MASTER, elect)
    codes = {ask(replicas.address(old), asking).code for _ in range(5)}
    assert codes == {ResponseCode.CONTROLLER_NOT_LEADER}
    after = replicas.info()
    assert after is not None
    assert after.master_epoch == now.master_epoch
    replicas.start(master)
    replicas.wait_for_in_sync(3)


def test_leader_and_master_that_die_together_lose_nothing(
    replicas: ReplicaCluster, sending: Sending, record_property: Callable[[str, object], None]
) -> None:
    old, master = leader_of(replicas), replicas.master()
    replicas.processes[old].kill()
    replicas.processes[master].kill()
    took_s = sending.wait_for_more(2, timeout_s=PATIENCE_S)
    record_property("writable after both died, s", round(took_s, 2))
    print(f"writable after {took_s:.2f} s, controller and master killed together")
    replicas.start(old)
    replicas.start(master)
    replicas.wait_for_in_sync(3)


def test_member_of_etcd_that_dies_is_hardly_noticed(
    replicas: ReplicaCluster,
    etcd: EtcdCluster,
    sending: Sending,
    record_property: Callable[[str, object], None],
) -> None:
    """The one that leads the others, so that etcd itself has an election."""
    member = etcd.leader()
    etcd.processes[member].kill()
    record_property("writable after a kill of etcd's leader, s", writable(sending))
    leader_of(replicas)
    wait_for_everybody(replicas)
    etcd.start(member)
    wait_until(etcd.is_well, timeout_s=PATIENCE_S, what="etcd is well")


def test_without_a_majority_of_etcd_nobody_leads_and_messages_are_taken(
    replicas: ReplicaCluster, etcd: EtcdCluster, sending: Sending
) -> None:
    frozen = [etcd.processes[name] for name in etcd.names[:2]]
    for process in frozen:
        process.freeze()
    try:
        wait_until(
            lambda: replicas.leader() is None, timeout_s=PATIENCE_S, what="that nobody leads"
        )
        writable(sending)
    finally:
        for process in frozen:
            process.thaw()
    leader_of(replicas)
    wait_for_everybody(replicas)


def test_old_leader_that_believes_in_its_lease_saves_nothing(etcd: EtcdCluster) -> None:
    """Its clock stands still, as for a process that was stopped in the middle of a decision."""

    async def story() -> None:
        sites = etcd_sites(ControllerConfig(controller_etcd_endpoints=etcd.endpoints))

        def candidate(name: str, clock: SystemClock | ManualClock) -> EtcdMetadata:
            asking = Etcd(sites, SystemClock(), timeout_ms=2_000)
            return EtcdMetadata(asking, name, prefix="/deposed", lease_seconds=2, clock=clock)

        async def begin(one: EtcdMetadata) -> None:
            leads = asyncio.Event()
            await one.start("127.0.0.1:1", leads.set)
            await asyncio.wait_for(leads.wait(), PATIENCE_S)

        old, new = candidate("old", ManualClock()), candidate("new", SystemClock())
        await begin(old)
        await old.save("broker", ReplicaSet(cluster_name="c", broker_name="broker"))
        await begin(new)
        decided = ReplicaSet(cluster_name="c", broker_name="broker", master_epoch=2)
        await new.save("broker", decided)
        assert old.leader is not None
        assert old.leader.is_me
        with pytest.raises(NotLeader, match="nothing is kept"):
            await old.save("broker", ReplicaSet(cluster_name="c", broker_name="broker"))
        assert await new.load() == {"broker": decided}
        await new.save("broker", None)
        assert await new.load() == {}
        await new.stop()
        await old.stop()

    asyncio.run(story())


def test_apaches_mqadmin_and_ours_say_the_same_through_any_controller(
    bench: Bench, replicas: ReplicaCluster
) -> None:
    leader, names = leader_of(replicas), replicas.address("names")
    wait_for_everybody(replicas)
    nameserver = NameServer(replicas.processes["names"], int(names.rpartition(":")[2]))
    admin = Mqadmin(bench, nameserver)

    def both(*words: str) -> list[str]:
        """What Apache's prints, and ours as well, but for empty lines; a set has no order there."""
        ran = CliRunner().invoke(app, ["mqadmin", *words, "-n", names])
        assert ran.exit_code == 0, ran.output
        said, ours = (
            sorted(line.rstrip() for line in text.splitlines() if line.strip())
            for text in (admin.run(*words).out, ran.stdout)
        )
        assert ours == said
        return said

    for name in CONTROLLERS:
        told = both("getControllerMetaData", "-a", replicas.address(name))
        assert f"#ControllerLeaderId\t{leader}" in told
        assert f"#ControllerLeaderAddress\t{replicas.address(leader)}" in told
        told = both("getSyncStateSet", "-a", replicas.address(name), "-b", NAME)
        assert "#SyncStateSetNums\t3" in told
    told = both("getBrokerEpoch", "-b", NAME)
    assert any(line.startswith("#Epoch: EpochEntry{epoch=1, startOffset=0,") for line in told)
    settings = both("getControllerConfig", "-a", replicas.address(leader))
    assert any(line.startswith("controllerEtcdEndpoints") for line in settings)

    # Apache's asks a controller that does not lead to make a slave master.
    old = replicas.info()
    assert old is not None
    other = next(
        one.broker_id for one in old.in_sync_replicas if one.broker_id != old.master_broker_id
    )
    asked = next(name for name in CONTROLLERS if name != leader)
    where = ("-a", replicas.address(asked), "-bn", NAME, "-c", "DefaultCluster")
    told_at_once = admin.run("electMaster", "-b", str(other), *where).out
    assert f"#MasterEpoch\t{old.master_epoch + 1}" in told_at_once
    now = replicas.info()
    assert now is not None
    assert now.master_broker_id == other
    replicas.wait_for_in_sync(3)
