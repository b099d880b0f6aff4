"""Layouts: RocketMQ's files under RocketMQ's names, and what is left of a cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from firearrow.base.config import Source, load
from firearrow.base.errors import ConfigError
from firearrow.broker.broker import Broker
from firearrow.broker.config import BrokerConfig, BrokerRole
from firearrow.cli.cluster_commands import (
    LAYOUTS,
    STATE_FILE,
    Member,
    layout_files,
    load_members,
    stop_all,
)
from firearrow.wire.properties_text import parse_properties

CONF = Path(__file__).parent.parent.parent.parent / "conf"
PAIRS = ["broker-a", "broker-b", "broker-a-s", "broker-b-s"]


@pytest.mark.parametrize(
    ("layout", "names", "role"),
    [
        ("2m-noslave", ["broker-a", "broker-b"], BrokerRole.ASYNC_MASTER),
        ("2m-2s-async", PAIRS, BrokerRole.ASYNC_MASTER),
        ("2m-2s-sync", PAIRS, BrokerRole.SYNC_MASTER),
    ],
)
def test_a_layout_has_masters_first_and_every_file_makes_a_broker(
    layout: str, names: list[str], role: BrokerRole, tmp_path: Path
) -> None:
    files = layout_files(layout)
    assert [file.stem for file in files] == names
    for file in files:
        values = parse_properties(file.read_bytes()) | {"storePathRootDir": str(tmp_path)}
        config = load(BrokerConfig, [Source(file.name, values)])
        is_slave = file.stem.endswith("-s")
        assert config.broker_name == file.stem.removesuffix("-s")
        assert config.broker_role is (BrokerRole.SLAVE if is_slave else role)
        assert config.broker_id == int(is_slave)
        Broker(config)


def test_the_layouts_are_where_users_of_rocketmq_look_for_them() -> None:
    assert CONF.resolve() == LAYOUTS.resolve()


def test_an_unknown_layout_is_named_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="2m-2s-async, 2m-2s-sync, 2m-noslave"):
        layout_files("3m")


def test_a_folder_of_files_is_a_layout(tmp_path: Path) -> None:
    (tmp_path / "x.properties").write_text("brokerRole=SLAVE\n")
    (tmp_path / "y.properties").write_text("brokerName=y\n")
    assert [file.stem for file in layout_files(str(tmp_path))] == ["y", "x"]


def test_a_process_of_another_kind_is_never_ours_and_never_stopped() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        member = Member("broker-a", "SLAVE", "", other.pid, "")
        assert not member.is_running
        stop_all([member])
        assert other.poll() is None
        other.communicate(b"\n")
    assert other.returncode == 0


def test_a_frozen_process_is_stopped_all_the_same() -> None:
    code = "import sys, time; print(flush=True); time.sleep(600)"
    with subprocess.Popen(
        [sys.executable, "-c", code, "firearrow"], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        os.kill(process.pid, signal.SIGSTOP)
        stop_all([Member("broker-a", "SLAVE", "", process.pid, "")])
    assert process.returncode == -signal.SIGTERM


def test_a_state_file_that_is_rubbish_is_named(tmp_path: Path) -> None:
    (tmp_path / STATE_FILE).write_text("[1]")
    with pytest.raises(ConfigError, match=STATE_FILE):
        load_members(tmp_path)
