"""Our own two servers in one process, as `firearrow up` starts them, and a client that stays."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .apache import RELEASE_5, START_TIMEOUT_S, Mqadmin, NameServer, java_command
from .firearrow import FireArrowCluster
from .processes import Bench, PeerProcess, wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Ours:
    """A running `firearrow up`.

    Attributes:
        bench: Owns the process.
        nameserver: Where clients begin.
        broker_address: What the broker registered.
        admin: mqadmin 5.3.3, pointed at the name server.
    """

    bench: Bench
    nameserver: NameServer
    broker_address: str
    admin: Mqadmin

    def run(self, *arguments: str) -> str:
        """Run an mqadmin command that must not complain; returns what it printed."""
        return self.admin.run(*arguments).out

    def on_broker(self, command: str, *arguments: str) -> str:
        """The same for a command that takes the address of a broker."""
        return self.run(command, "-b", self.broker_address, *arguments)


def start_ours(bench: Bench, settings: Mapping[str, object] | None = None) -> Ours:
    """Start a name server and a broker of ours, on free ports."""
    cluster = FireArrowCluster(bench, settings)
    address = f"127.0.0.1:{cluster.broker_port}"
    return Ours(bench, cluster.nameserver, address, Mqadmin(bench, cluster.nameserver))


@dataclass(frozen=True, slots=True)
class StayingClient:
    """A Java producer and push consumer that stay until they are stopped."""

    process: PeerProcess
    client_id: str

    def received(self) -> list[dict[str, Any]]:
        """What came so far: body, topic, queue and offset of each message."""
        lines = self.process.output().splitlines()
        return [json.loads(line) for line in lines if line.startswith('{"body"')]

    def wait_for(self, count: int, *, timeout_s: float) -> list[dict[str, Any]]:
        """Wait until so many messages came."""
        wait_until(
            lambda: len(self.received()) >= count,
            timeout_s=timeout_s,
            what=lambda: f"{count} messages; {len(self.received())} came\n{self.process.tail()}",
        )
        return self.received()


def start_staying_client(
    ours: Ours, topic: str, group: str, *, tags: str = "*", release: str = RELEASE_5
) -> StayingClient:
    folder: Path = ours.bench.new_folder("staying")
    arguments = [f"nameserver={ours.nameserver.address}", f"topic={topic}", f"group={group}"]
    command = java_command(
        "firearrow.interop.Staying",
        release=release,
        work_dir=folder,
        arguments=[*arguments, f"tags={tags}"],
    )
    process = ours.bench.start("staying", command, work_dir=folder)
    ready = process.wait_for_line(r"staying as (\S+)", timeout_s=START_TIMEOUT_S)
    return StayingClient(process, ready[1])
