"""mqadmin 5.3.3 and `firearrow mqadmin` on two replicas under our controller: the same answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest
from typer.testing import CliRunner

from firearrow.cli.root import app

from .apache import Mqadmin, NameServer
from .failover import NAME, ReplicaCluster

if TYPE_CHECKING:
    from .processes import Bench

CLUSTER = "DefaultCluster"


class Both(NamedTuple):
    """Two replicas, and both tools."""

    replicas: ReplicaCluster
    real: Mqadmin

    @property
    def controller(self) -> str:
        return self.replicas.address("controller")

    def run(self, *words: str) -> tuple[list[str], list[str]]:
        """The lines that each prints; neither may fail."""
        ran = CliRunner().invoke(app, ["mqadmin", *words, "-n", self.replicas.address("names")])
        assert ran.exit_code == 0, f"{words}: {ran.stderr}\n{ran.exception!r}"
        printed = [text.splitlines() for text in (self.real.run(*words).out, ran.stdout)]
        real, ours = ([line.rstrip() for line in one if line.strip()] for one in printed)
        assert real, "mqadmin printed nothing"
        return sorted(real), sorted(ours)


@pytest.fixture(scope="module")
def both(bench: Bench) -> Both:
    replicas = ReplicaCluster(bench, replicas=2)
    port = int(replicas.address("names").rpartition(":")[2])
    return Both(replicas, Mqadmin(bench, NameServer(replicas.processes["names"], port)))


@pytest.mark.parametrize(
    "words",
    [
        "getSyncStateSet -a CONTROLLER -b broker-a",
        "getSyncStateSet -a CONTROLLER -c DefaultCluster",
        "getBrokerEpoch -b broker-a",
        "getBrokerEpoch -c DefaultCluster",
        "getControllerMetaData -a CONTROLLER",
        "getControllerConfig -a CONTROLLER",
        "updateControllerConfig -a CONTROLLER -k enableElectUncleanMaster -v false",
        "haStatus -b MASTER",
    ],
)
def test_what_a_command_says_of_replicas_is_the_same(both: Both, words: str) -> None:
    names = {"CONTROLLER": both.controller, "MASTER": both.replicas.address(both.replicas.master())}
    real, ours = both.run(*(names.get(word, word) for word in words.split()))
    assert ours == real


def test_an_election_and_a_clean_up_go_the_same_way(both: Both) -> None:
    """Who is elected again wins again; each election is an epoch of its own."""
    info = both.replicas.info()
    assert info is not None
    (heir,) = (
        str(one.broker_id)
        for one in info.in_sync_replicas
        if one.broker_id != info.master_broker_id
    )
    words = ("-a", both.controller, "-b", heir, "-bn", NAME, "-c", CLUSTER)
    ran = CliRunner().invoke(
        app, ["mqadmin", "electMaster", *words, "-n", both.replicas.address("names")]
    )
    assert ran.exit_code == 0, ran.stderr
    shown = dict(line.split("\t", 1) for line in ran.stdout.splitlines() if line.startswith("#"))
    assert shown["#BrokerName"] == NAME
    after = both.replicas.info()
    assert after is not None
    assert str(after.master_broker_id) == heir
    assert shown["#BrokerMasterAddr"] == after.master_address
    assert int(shown["#MasterEpoch"]) == info.master_epoch + 1
    both.replicas.wait_for_in_sync(2)
    refused = CliRunner().invoke(
        app, ["mqadmin", "cleanBrokerMetadata", "-a", both.controller, "-bn", NAME]
    )
    assert refused.exit_code == 2
    assert "-c" in refused.stderr
