"""`firearrow nameserver` as operators start and stop it: a process, a file, flags and signals."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.support import PATIENCE_S, NameServerProcess

from firearrow.base.runtime import SystemClock
from firearrow.model.errors import ResponseCode
from firearrow.net.client import RemotingClient
from firearrow.wire import headers
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import Command, request
from firearrow.wire.properties_text import parse_properties

if TYPE_CHECKING:
    from pathlib import Path


async def ask(process: NameServerProcess, *commands: Command) -> list[Command]:
    client = RemotingClient(SystemClock())
    try:
        return [
            await client.invoke(process.address, command, PATIENCE_S * 1_000)
            for command in commands
        ]
    finally:
        await client.close()


async def settings_of(process: NameServerProcess) -> dict[str, str]:
    (reply,) = await ask(process, request(RequestCode.GET_NAMESRV_CONFIG))
    return parse_properties(reply.body)


def refused(*arguments: str) -> str:
    """What a name server that does not start says; it must not take the blame on itself."""
    done = subprocess.run(
        [sys.executable, "-m", "firearrow", "nameserver", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_the_process_cleanly_with_clients_connected(
    tmp_path: Path, number: signal.Signals
) -> None:
    with (
        NameServerProcess(tmp_path) as process,
        socket.create_connection(("127.0.0.1", process.port), PATIENCE_S) as silent,
    ):
        assert process.end(number) == 0
        assert silent.recv(1) == b""
    log = process.log.read_text()
    assert "name server stopped" in log
    assert "Traceback" not in log


async def test_file_of_apache_is_obeyed_and_gets_the_changes_made_by_request(
    tmp_path: Path,
) -> None:
    file = tmp_path / "namesrv.properties"
    file.write_text("orderMessageEnable = true\nserverWorkerThreads=8\nrocketmqHome=/opt/x\n")
    with NameServerProcess(tmp_path, "-c", str(file)) as process:
        shown = await settings_of(process)
        assert shown["orderMessageEnable"] == "true"
        assert shown["configStorePath"] == str(file)
        change = request(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"brokerExpiredMillis=5000")
        (reply,) = await ask(process, change)
        assert reply.code == 0
    assert parse_properties(file.read_bytes())["brokerExpiredMillis"] == "5000"
    with NameServerProcess(tmp_path, "-c", str(file)) as process:
        shown = await settings_of(process)
        assert (shown["brokerExpiredMillis"], shown["orderMessageEnable"]) == ("5000", "true")
        assert shown["kvConfigPath"] == str(tmp_path / "kvConfig.json")


async def test_flag_wins_over_environment_and_environment_over_file(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.properties"
    file.write_text("connectionsMax=1\nframeBytesMax=1024\nheaderBytesMax=1024\n")
    environment = {"FIREARROW_FRAME_BYTES_MAX": "2048", "FIREARROW_CONNECTIONS_MAX": "22"}
    with NameServerProcess(
        tmp_path, "-c", str(file), "-o", "connectionsMax=333", environment=environment
    ) as process:
        shown = await settings_of(process)
        assert shown["connectionsMax"] == "333"
        assert shown["frameBytesMax"] == "2048"
        assert shown["headerBytesMax"] == "1024"
        assert shown["listenPort"] == str(process.port)


async def test_unknown_key_of_a_file_is_warned_about_with_the_nearest_one(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.properties"
    file.write_text("orderMessageEnabled=true\n")
    with NameServerProcess(tmp_path, "-c", str(file)) as process:
        assert (await settings_of(process))["orderMessageEnable"] == "false"
    assert re.search(
        r"WARNING .*'orderMessageEnabled'.*'orderMessageEnable'", process.log.read_text()
    )


async def test_kv_config_is_on_disk_when_it_is_answered(tmp_path: Path) -> None:
    """The process is killed: nothing is written on the way out."""
    put = headers.PutKVConfigRequest(namespace="ns", key="k", value="v")
    with NameServerProcess(tmp_path) as process:
        (reply,) = await ask(process, request(RequestCode.PUT_KV_CONFIG, put))
        assert reply.code == 0
        assert process.end(signal.SIGKILL) == -signal.SIGKILL
    get = headers.GetKVConfigRequest(namespace="ns", key="k")
    with NameServerProcess(tmp_path) as process:
        (reply,) = await ask(process, request(RequestCode.GET_KV_CONFIG, get))
        assert headers.GetKVConfigReply.from_ext(reply.ext).value == "v"


async def test_name_of_a_peer_cannot_forge_a_line_of_the_log(tmp_path: Path) -> None:
    forged = "x\n2026-01-01 00:00:00,000 INFO    firearrow: all is well"
    delete = headers.DeleteTopicInNameserverRequest(topic=forged)
    with NameServerProcess(tmp_path) as process:
        (reply,) = await ask(process, request(RequestCode.DELETE_TOPIC_IN_NAMESRV, delete))
        assert reply.code == ResponseCode.SUCCESS
    lines = process.log.read_text().splitlines()
    assert not any(line.endswith("firearrow: all is well") for line in lines if "topic" not in line)
    assert any(r"topic x\n2026-01-01" in line for line in lines)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-c", "/nowhere/namesrv.properties"], "/nowhere/namesrv.properties cannot be read"),
        (["-o", "connectionsMax=many"], "a number from 1 to 1000000 expected"),
        (["-o", "listenPrt=1"], "did you mean 'listenPort'?"),
        (["-o", "listenPort"], "key=value expected"),
        (["--host", "0.0.0.0"], "--insecure"),
        (["--log-level", "loud"], "DEBUG, INFO, WARNING or ERROR expected"),
    ],
)
def test_what_cannot_be_is_refused_with_a_remedy(arguments: list[str], words: str) -> None:
    assert words in refused("--port", "0", *arguments)


def test_port_that_is_taken_is_refused_with_a_remedy(tmp_path: Path) -> None:
    with NameServerProcess(tmp_path) as process:
        said = refused("--port", str(process.port), "-o", f"kvConfigPath={tmp_path / 'other'}")
    assert f"cannot listen on {process.address}" in said
    assert "choose another port" in said
