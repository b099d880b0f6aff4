"""`firearrow doctor` finds each planted fault, and nothing where nothing is wrong."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from firearrow.cli import doctor_command
from firearrow.cli.doctor import ClusterView, Plan, State, broker_time_ms, examine
from firearrow.cli.machine import Disk, RealMachine
from firearrow.cli.root import app
from firearrow.client.admin_results import BrokerInfo

if TYPE_CHECKING:
    from pathlib import Path

NOW = 1_794_732_962_468
GIB = 1 << 30


@dataclass
class SoundMachine:
    """A machine with nothing wrong, until a test plants something."""

    free: int = 400 * GIB
    total: int = 500 * GIB
    writable: bool = True
    taken: dict[int, str] = field(default_factory=dict)
    silent: dict[str, str] = field(default_factory=dict)
    files: tuple[int, int] = (65_536, 65_536)
    version: str | None = "21.0.2"

    def now_ms(self) -> int:
        return NOW

    def disk(self, path: Path) -> Disk:
        del path
        return Disk(self.total, self.free)

    def may_write(self, path: Path) -> bool:
        del path
        return self.writable

    def listen_problem(self, host: str, port: int) -> str | None:
        return self.taken.get(port) if host == "127.0.0.1" else "no address of this machine"

    def dial_problem(self, address: str, timeout_s: float) -> str | None:
        del timeout_s
        return self.silent.get(address)

    def file_limit(self) -> tuple[int, int]:
        return self.files

    def java(self) -> str | None:
        return self.version


def broker(ahead_s: int = 0, disk: str = "0.30", **changes: Any) -> BrokerInfo:
    started = NOW - 3_600_000
    up_s = 3_600 + ahead_s
    runtime = {
        "bootTimestamp": str(started),
        "runtime": f"[ 0 days, {up_s // 3600} hours, {up_s // 60 % 60} minutes, "
        f"{up_s % 60} seconds ]",
        "commitLogDiskRatio": disk,
    }
    known: dict[str, Any] = {
        "cluster": "c",
        "name": "broker-a",
        "broker_id": 0,
        "address": "10.0.0.1:10911",
        "runtime": runtime,
    }
    return BrokerInfo(**(known | changes))


def view(*brokers: BrokerInfo) -> ClusterView:
    known = frozenset(one.address for one in brokers)
    return ClusterView(nameservers={"10.0.0.1:9876": known}, brokers=brokers, asked_ms=NOW)


def wrong(machine: SoundMachine, seen: ClusterView | None = None) -> list[str]:
    found = examine(machine, Plan(), seen or view(broker()))
    assert all(one.remedy for one in found if one.state is State.WRONG), "a finding without remedy"
    return [one.check for one in found if one.state is State.WRONG]


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    assert wrong(SoundMachine()) == []


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        ({"free": 1 * GIB}, "disk"),
        ({"free": 40 * GIB}, "disk"),
        ({"writable": False}, "data directory"),
        ({"taken": {10911: "Address already in use"}}, "port 10911"),
        ({"taken": {9876: "Address already in use"}}, "port 9876"),
        ({"silent": {"10.0.0.1:10911": "Connection refused"}}, "address of broker-a"),
        ({"files": (1024, 4096)}, "file limit"),
        ({"version": "1.8.0_392"}, "Java for Spark"),
    ],
)
def test_planted_fault_of_the_machine_is_found_alone(fault: dict[str, Any], check: str) -> None:
    assert wrong(SoundMachine(**fault)) == [check]


@pytest.mark.parametrize(
    ("one", "check"),
    [
        (broker(ahead_s=10), "clock of broker-a"),
        (broker(ahead_s=-10), "clock of broker-a"),
        (broker(disk="0.97"), "disk of broker-a"),
        (broker(error="no answer within 3 s", runtime={}), "address of broker-a"),
    ],
)
def test_planted_fault_of_a_broker_is_found_alone(one: BrokerInfo, check: str) -> None:
    assert wrong(SoundMachine(), view(one)) == [check]


def test_port_taken_by_the_cluster_itself_is_no_fault() -> None:
    machine = SoundMachine(taken={9876: "in use", 10911: "in use"})
    here = broker(address="127.0.0.1:10911")
    known = frozenset({here.address})
    seen = ClusterView(nameservers={"127.0.0.1:9876": known}, brokers=(here,), asked_ms=NOW)
    assert wrong(machine, seen) == []
    assert wrong(machine) == ["port 9876", "port 10911"]  # that cluster is elsewhere


def test_name_servers_that_disagree_are_found() -> None:
    seen = ClusterView(
        nameservers={"a:9876": frozenset({"x:1"}), "b:9876": frozenset({"y:1"})},
        brokers=(broker(),),
        asked_ms=NOW,
    )
    assert wrong(SoundMachine(), seen) == ["name servers agree"]


def test_cluster_without_brokers_is_found() -> None:
    assert wrong(SoundMachine(), view()) == ["brokers"]


def test_missing_java_is_worth_a_note_only() -> None:
    found = examine(SoundMachine(version=None), Plan(), view(broker()))
    assert [one.check for one in found if one.state is State.NOTE] == ["Java for Spark"]


def test_time_of_a_broker_comes_from_its_start_and_its_age() -> None:
    assert broker_time_ms(broker(ahead_s=7)) == NOW + 7_000
    assert broker_time_ms(broker(runtime={})) is None


def test_findings_lead_to_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_command, "machine", lambda: SoundMachine(files=(64, 64)))
    ran = CliRunner().invoke(app, ["doctor", "-n", "127.0.0.1:1", "-q", "--output", "json"])
    assert ran.exit_code == 1
    (found,) = json.loads(ran.stdout)
    assert found["check"] == "file limit"
    assert "ulimit -n" in found["remedy"]


def test_port_that_is_no_number_is_refused() -> None:
    ran = CliRunner().invoke(app, ["doctor", "--port", "broker=x"])
    assert ran.exit_code == 2
    assert "ROLE=PORT expected" in ran.stderr


def test_real_machine_answers_every_question(tmp_path: Path) -> None:
    machine = RealMachine()
    disk = machine.disk(tmp_path / "not" / "there" / "yet")
    assert 0 < disk.free <= disk.total
    assert machine.may_write(tmp_path / "new")
    assert machine.listen_problem("127.0.0.1", 0) is None
    assert machine.dial_problem("127.0.0.1:1", 1.0)
    assert machine.dial_problem("nonsense", 1.0)
    assert machine.file_limit()[0] > 0
    assert machine.now_ms() > NOW - 10**12
