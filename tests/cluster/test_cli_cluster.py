"""`firearrow cluster` and `firearrow doctor` on a real broker, with faults planted in it."""

from __future__ import annotations

import json
import socket
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.cli_runs import Commands
from typer.testing import CliRunner

from firearrow.cli.root import app
from firearrow.testing import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def cli() -> Iterator[Commands]:
    with LocalCluster() as cluster:
        yield Commands(cluster)


def test_brokers_and_name_servers_are_listed(cli: Commands) -> None:
    (row,) = cli.json("cluster", "ls")
    assert (row["broker"], row["role"], row["state"]) == ("broker-a", "master", "up")
    assert row["address"] == cli.cluster.broker_address
    assert 0 <= row["disk"] <= 1
    (names,) = cli.json("cluster", "nameservers")
    assert (names["brokers"], names["state"]) == (1, "up")
    status = cli.json("cluster", "health")
    assert (status["state"], status["reasons"]) == ("well", [])
    figures = cli.json("cluster", "info", "broker-a", "brokerVersion")
    assert {one["figure"] for one in figures} == {"brokerVersion", "brokerVersionDesc"}


def test_settings_are_shown_previewed_and_changed(cli: Commands) -> None:
    (before,) = cli.json("cluster", "config", "broker-a", "fileReservedTime")
    planned = cli.json("cluster", "set", "broker-a", "fileReservedTime=11", "--dry-run")
    assert planned["changes"] == 1
    assert cli.json("cluster", "config", "broker-a", "fileReservedTime") == [before]
    cli.run("cluster", "set", "broker-a", "fileReservedTime=11")
    (after,) = cli.json("cluster", "config", "broker-a", "fileReservedTime")
    assert (before["value"], after["value"]) == ("72", "11")
    assert cli.json("cluster", "config", "nameservers", "listenPort")
    assert "no setting" in cli.run("cluster", "set", "broker-a", "nothing=1", code=2).stderr
    assert "listenPort" in cli.run("cluster", "set", "broker-a", "listenPort=1", code=1).stderr


def test_producers_leave_a_drained_broker_and_come_back(cli: Commands) -> None:
    cli.run("topic", "create", "drained")
    planned = cli.json("cluster", "drain", "broker-a", "--dry-run")["topics"]
    assert planned > 0
    assert cli.json("topic", "route", "drained")[0]["perm"] == "RW-"
    cli.run("cluster", "drain", "broker-a")
    assert cli.json("topic", "route", "drained")[0]["perm"] == "R--"
    cli.run("cluster", "undrain", "broker-a")
    assert cli.json("topic", "route", "drained")[0]["perm"] == "RW-"


def test_brokers_are_told_to_clean_up(cli: Commands) -> None:
    for what in ("log", "queues", "topics"):
        assert cli.json("cluster", "clean", what)["brokers"] == 1
    assert "no master" in cli.run("cluster", "clean", "log", "--broker", "x", code=4).stderr


def doctor(cli: Commands, *words: object) -> dict[str, Any]:
    """Findings by check; the exit code says whether there are any."""
    arguments = ("doctor", *words, "-n", cli.cluster.nameservers, "--no-spark")
    return {one["check"]: one for one in cli.json(*arguments, "-q", code=1)}


def test_doctor_finds_a_taken_port(cli: Commands) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = doctor(cli, "--port", f"broker={port}")
    assert list(found) == [f"port {port}"]
    assert "Stop who has it" in found[f"port {port}"]["remedy"]


def test_doctor_knows_the_ports_of_the_cluster_itself(cli: Commands) -> None:
    port = cli.cluster.broker_address.rpartition(":")[2]
    assert cli.run("doctor", "--port", f"broker={port}", "--no-spark", "-q").rows == []


def test_doctor_finds_a_clock_that_is_ahead() -> None:
    with LocalCluster() as cluster:
        cluster.advance(minutes=5)
        found = doctor(Commands(cluster), "--port", "unused=1023")
    assert "s ahead of this machine" in found["clock of broker-a"]["what"]


def test_doctor_finds_an_address_that_nobody_answers() -> None:
    with LocalCluster(broker_ip1="127.0.0.9") as cluster:
        cli = Commands(cluster)
        found = doctor(cli)
        health = cli.json("cluster", "health", code=1)
    assert health["state"] == "ill"
    (reason,) = health["reasons"]
    assert (reason["severity"], reason["remedy"]) == ("critical", "firearrow doctor")
    assert "127.0.0.9" in reason["problem"]
    assert "brokerIP1" in found["address of broker-a"]["remedy"]
    assert "127.0.0.9" in found["address of broker-a"]["what"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="filters need Linux's seccomp")
def test_filters_are_tried_dry_installed_listed_and_removed(tmp_path: Path) -> None:
    file = tmp_path / "large.py"
    file.write_text("def matches(properties, body):\n    return len(body) > 10\n")

    def run(*words: str) -> str:
        ran = CliRunner().invoke(app, ["filter", *words, "--broker", address])
        assert ran.exit_code == 0, ran.output
        return ran.stdout

    with LocalCluster(filter_server_nums=1, filter_installers="127.0.0.1") as cluster:
        address = cluster.broker_address
        said = run("install", "large", str(file), "--dry-run")
        assert said == f"would install filter large on {address}: {len(file.read_bytes())} bytes\n"
        assert json.loads(run("ls", "-O", "json")) == []
        run("install", "large", str(file))
        assert run("install", "large", str(file), "--dry-run").startswith("would replace")
        assert run("ls", "-O", "csv").splitlines()[1].startswith("large,")
        assert run("rm", "large", "--dry-run").startswith("would remove 1 filters")
        run("rm", "large")
        assert json.loads(run("ls", "-O", "json")) == []
