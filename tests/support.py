"""Helpers for tests that need real sockets: servers, in process or not, and patience."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from firearrow.base.runtime import SystemClock
from firearrow.broker.broker import Broker
from firearrow.broker.config import BrokerConfig
from firearrow.nameserver.config import NameServerConfig
from firearrow.nameserver.server import NameServer
from firearrow.net.client import RemotingClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from firearrow.base.runtime import Clock
    from firearrow.net.router import Router
    from firearrow.testing import ManualClock
    from firearrow.wire.command import Command

PATIENCE_S = 20  # how long a test waits for what should take milliseconds, on a busy machine


async def until(true: Callable[[], object], what: str = "the condition") -> None:
    """Wait for something that happens by itself; no test sleeps for a fixed time."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    while not true():
        assert asyncio.get_running_loop().time() < deadline, f"{what} did not come true"
        await asyncio.sleep(0.005)


async def settle(clock: ManualClock, true: Callable[[], object], what: str) -> None:
    """Let everything happen that can happen without the time going on."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    while not true():
        assert asyncio.get_running_loop().time() < deadline, f"{what} did not come true"
        await clock.advance(0)
        await asyncio.sleep(0.001)


class Served:
    """A running name server and a client that knows its address."""

    def __init__(self, server: NameServer, client: RemotingClient) -> None:
        self.server = server
        self.client = client

    async def ask(self, command: Command) -> Command:
        return await self.client.invoke(self.server.address, command, PATIENCE_S * 1_000)


@asynccontextmanager
async def running_nameserver(
    clock: Clock | None = None, folder: Path | None = None, **settings: Any
) -> AsyncIterator[Served]:
    with tempfile.TemporaryDirectory() as temporary:
        home = folder or Path(temporary)
        given: dict[str, Any] = {
            "listen_port": 0,
            "kv_config_path": home / "kvConfig.json",
            "config_store_path": home / "namesrv.properties",
        }
        server = NameServer(NameServerConfig(**(given | settings)), clock)
        await server.start()
        client = RemotingClient(SystemClock())
        try:
            yield Served(server, client)
        finally:
            await client.close()
            await server.stop()


class ServedBroker:
    """A running broker with its name server, and a client that knows both addresses."""

    def __init__(self, broker: Broker, names: NameServer, client: RemotingClient) -> None:
        self.broker = broker
        self.nameserver = names
        self.client = client

    async def ask(self, command: Command) -> Command:
        return await self.client.invoke(self.broker.address, command, PATIENCE_S * 1_000)

    async def ask_nameserver(self, command: Command) -> Command:
        return await self.client.invoke(self.nameserver.address, command, PATIENCE_S * 1_000)

    @asynccontextmanager
    async def another_client(self, router: Router | None = None) -> AsyncIterator[RemotingClient]:
        """A client with a connection of its own, which may answer what the broker asks."""
        client = RemotingClient(SystemClock(), router=router)
        try:
            yield client
        finally:
            await client.close()


SMALL_BROKER: Final[dict[str, Any]] = {
    "listen_port": 0,
    "mapped_file_size_commit_log": 1 << 20,
    "mapped_file_size_consume_queue": 20 * 1000,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
    "disk_free_bytes_min": 0,
    "disk_space_warning_level_ratio": 100,
    "access_message_in_memory_max_ratio": 100,
}


@asynccontextmanager
async def running_broker(
    folder: Path, clock: Clock | None = None, **settings: Any
) -> AsyncIterator[ServedBroker]:
    """A broker with small files in `folder`, registered with a name server of its own."""
    async with running_nameserver(clock) as names:
        given = SMALL_BROKER | {
            "store_path_root_dir": folder,
            "namesrv_addr": names.server.address,
        }
        broker = Broker(BrokerConfig(**(given | settings)), clock)
        await broker.start()
        client = RemotingClient(SystemClock())
        try:
            yield ServedBroker(broker, names.server, client)
        finally:
            await client.close()
            await broker.stop()


def crash(alive: Path, crashed: Path) -> None:
    """Copy a broker's directory as a crash at this moment would leave it."""
    # Files that are just being written are renamed under our hands; a crash leaves half of one.
    shutil.copytree(alive, crashed, ignore=shutil.ignore_patterns("*.tmp"))


class NameServerProcess:
    """`firearrow nameserver` in a process of its own, on a free port, with its files in `folder`.

    It must end with exit code 0 when it is told to.
    """

    def __init__(
        self, folder: Path, *arguments: str, environment: dict[str, str] | None = None
    ) -> None:
        self.log = folder / "log"
        command = [sys.executable, "-m", "firearrow", "nameserver"]
        command += ["--port", "0", "-o", f"kvConfigPath={folder / 'kvConfig.json'}", *arguments]
        with self.log.open("wb") as log:
            self.popen = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "HOME": str(folder), **(environment or {})},
            )
        assert self.popen.stdout is not None
        ready = self.popen.stdout.readline()
        match = re.search(r"^name server ready on (127\.0\.0\.1:(\d+))$", ready)
        assert match is not None, self.log.read_text()
        self.address, self.port = match[1], int(match[2])

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait for the end; returns the exit code."""
        self.popen.send_signal(number)
        return self.popen.wait(PATIENCE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self.popen.poll() is None:
                assert self.end() == 0
        finally:
            self.popen.kill()
            self.popen.communicate()


class UpProcess:
    """`firearrow up` in a process of its own, on free ports; its log lies beside its data."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.log = folder.parent / "log"
        command = [sys.executable, "-m", "firearrow", "up", "--data", str(folder)]
        command += ["--nameserver-port", "0", "--broker-port", "0", *arguments]
        with self.log.open("ab") as log:
            self.popen = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.popen.stdout is not None
        found = re.findall(r"127\.0\.0\.1:\d+", self.popen.stdout.readline())
        assert len(found) == 2, self.log.read_text()
        self.nameserver, self.broker = found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.popen.kill()
        self.popen.communicate()
