"""`firearrow cluster replicas|epochs|transfer|forget` and mqadmin's commands for controllers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.cli_runs import Commands
from tests.support import PATIENCE_S, SMALL_BROKER

from firearrow.broker.broker import Broker
from firearrow.broker.config import BrokerConfig
from firearrow.client.portal import portal
from firearrow.controller.config import ControllerConfig
from firearrow.controller.server import Controller
from firearrow.testing import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

QUICK = {"broker_heartbeat_interval": 100}


class Replicated:
    """A controller and two replicas of one broker."""

    def __init__(self, folder: Path) -> None:
        config = ControllerConfig(
            listen_port=0,
            controller_store_path=folder / "controller",
            config_store_path=folder / "controller.properties",
        )
        self.controller = Controller(config)
        portal.call(self.controller.start)
        self.settings: dict[str, Any] = QUICK | {
            "broker_name": "broker-a",
            "enable_controller_mode": True,
            "controller_addr": self.controller.address,
        }
        self.first = LocalCluster(folder / "first", **self.settings)
        self.first.start()
        self.cli = Commands(self.first)
        self.folder = folder
        # The first to ask is the first master, alone in sync.
        self.until(lambda: "master" in [one["role"] for one in self.replicas()])
        self.second = self.broker("second")
        self.until(lambda: [one["in_sync"] for one in self.replicas()] == [True, True])

    def broker(self, name: str) -> Broker:
        given = SMALL_BROKER | {
            "store_path_root_dir": self.folder / name,
            "namesrv_addr": self.first.nameservers,
        }
        broker = Broker(BrokerConfig(**(given | self.settings)))
        portal.call(broker.start)
        return broker

    def replicas(self) -> list[dict[str, Any]]:
        where = ("--controller", self.controller.address)
        found: list[dict[str, Any]] = self.cli.json("cluster", "replicas", *where)
        return sorted(found, key=lambda one: one["replica"])

    def master(self) -> int:
        return next(int(one["replica"]) for one in self.replicas() if one["role"] == "master")

    def until(self, true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not true():
            assert time.monotonic() < deadline, self.replicas()
            time.sleep(0.05)

    def close(self) -> None:
        portal.call(self.second.stop)
        self.first.stop()
        portal.call(self.controller.stop)


@pytest.fixture(scope="module")
def replicated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicated]:
    started = Replicated(tmp_path_factory.mktemp("replicated"))
    yield started
    started.close()


def test_replicas_are_listed_without_naming_a_controller(replicated: Replicated) -> None:
    first, second = replicated.cli.json("cluster", "replicas", "broker-a")
    assert {first["replica"], second["replica"]} == {1, 2}
    assert {first["role"], second["role"]} == {"master", "slave"}
    assert first["alive"] is second["alive"] is True
    addresses = {first["address"], second["address"]}
    assert addresses == {replicated.first.broker_address, replicated.second.address}
    complaint = replicated.cli.run("cluster", "replicas", "nobody", code=4).stderr
    assert "there is no broker nobody" in complaint


def test_transfer_makes_the_other_replica_master_and_dry_run_says_so_first(
    replicated: Replicated,
) -> None:
    cli, old = replicated.cli, replicated.master()
    replicated.until(lambda: all(one["in_sync"] for one in replicated.replicas()))
    other = 3 - old
    planned = cli.json("cluster", "transfer", "broker-a", "--dry-run")
    assert (planned["replica"], replicated.master()) == (other, old)
    done = cli.json("cluster", "transfer", "broker-a", "--to", other)
    assert (done["replica"], done["epoch"]) == (other, planned["epoch"])
    assert replicated.master() == other
    again = cli.run("cluster", "transfer", "broker-a", "--to", other, code=2).stderr
    assert "already is master" in again
    assert "no replica 9" in cli.run("cluster", "transfer", "broker-a", "--to", 9, code=4).stderr
    replicated.until(lambda: all(one["in_sync"] for one in replicated.replicas()))


def test_epochs_of_all_replicas_are_shown(replicated: Replicated) -> None:
    cli = replicated.cli
    replicated.until(lambda: all(one["in_sync"] for one in replicated.replicas()))
    epoch = replicated.replicas()[0]["epoch"]
    rows = cli.json("cluster", "epochs", "broker-a")
    (address,) = {one["address"] for one in replicated.replicas() if one["role"] == "master"}
    masters = [row for row in rows if row["address"] == address]
    assert masters[-1]["epoch"] == epoch
    starts = [row["start"] for row in masters]
    assert starts == sorted(starts)
    assert all(row["start"] <= row["end"] for row in rows)


def test_replica_that_is_gone_is_forgotten_and_a_living_one_is_not(replicated: Replicated) -> None:
    cli = replicated.cli
    gone = replicated.broker("third")
    replicated.until(lambda: len(replicated.replicas()) == 3)
    replicated.until(lambda: all(one["in_sync"] for one in replicated.replicas()))
    refused = cli.run("cluster", "forget", "broker-a", "--replica", 3, code=2).stderr
    assert "is alive" in refused
    portal.call(gone.stop)
    replicated.until(lambda: not replicated.replicas()[2]["alive"])
    assert "not in sync" in cli.run("cluster", "transfer", "broker-a", "--to", 3, code=2).stderr
    planned = cli.json("cluster", "forget", "broker-a", "--replica", 3, "--dry-run")
    assert planned["left"] == 2
    assert len(replicated.replicas()) == 3
    cli.run("cluster", "forget", "broker-a", "--replica", gone.address)
    assert len(replicated.replicas()) == 2


def test_mqadmins_names_do_the_same(replicated: Replicated) -> None:
    cli, where = replicated.cli, ("-a", replicated.controller.address)
    told = cli.run("mqadmin", "getControllerMetaData", *where).stdout
    assert f"#ControllerLeaderAddress\t{replicated.controller.address}" in told
    replicated.until(lambda: all(one["in_sync"] for one in replicated.replicas()))
    old = replicated.master()
    told = cli.run("mqadmin", "getSyncStateSet", *where, "-b", "broker-a").stdout
    assert f"#MasterBrokerId\t{old}" in told
    assert told.count("InSyncReplica:\tReplicaIdentity{brokerName='broker-a', brokerId=") == 2
    words = ("-b", 3 - old, "-bn", "broker-a", "-c", "DefaultCluster")
    told = cli.run("mqadmin", "electMaster", *where, *words).stdout
    assert "#BrokerName\tbroker-a" in told
    assert replicated.master() == 3 - old
    told = cli.run("mqadmin", "getBrokerEpoch", "-b", "broker-a").stdout
    # Nothing was written in any master's time, so the newest is all that there is to say.
    epoch = replicated.replicas()[0]["epoch"]
    assert f"#Epoch: EpochEntry{{epoch={epoch}, startOffset=0, endOffset=0}}" in told
    change = ("-k", "enableElectUncleanMaster", "-v", "true")
    cli.run("mqadmin", "updateControllerConfig", *where, *change)
    told = cli.run("mqadmin", "getControllerConfig", *where).stdout
    assert any(line.split() == ["enableElectUncleanMaster", "=", "true"]
               for line in told.splitlines())  # fmt: skip
    refused = cli.run(
        "mqadmin", "cleanBrokerMetadata", *where, "-bn", "broker-a", "-b", "x", code=2
    )
    assert "ids separated" in refused.stderr
    alive = cli.run("mqadmin", "cleanBrokerMetadata", *where, "-bn", "broker-a", "-b", "1",
                    "-c", "DefaultCluster", code=1)  # fmt: skip
    assert "is alive" in alive.stderr


def test_broker_without_a_controller_says_so() -> None:
    with LocalCluster() as cluster:
        cli = Commands(cluster)
        complaint = cli.run("cluster", "transfer", "broker-a", "--dry-run", code=2).stderr
        assert "does not have a controller (enableControllerMode)" in complaint
        complaint = cli.run("cluster", "replicas", code=2).stderr
        assert "no broker has a controller" in complaint
