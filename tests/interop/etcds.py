"""A real etcd of three members, each a process that can be killed and stopped."""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING, Final

from .cache import etcd_program
from .processes import Bench, wait_until

if TYPE_CHECKING:
    from .processes import PeerProcess

START_TIMEOUT_S: Final = 60.0
ASK_S: Final = 2.0


class EtcdCluster:
    """Members keep their ports and their files over all their lives."""

    def __init__(self, bench: Bench, members: int = 3) -> None:
        self._program = etcd_program()
        self._bench = bench
        self._folder = bench.new_folder("etcd")
        self._ports = {f"etcd-{n}": bench.reserve_ports() for n in range(members)}
        self._lives = 0
        self.processes: dict[str, PeerProcess] = {}
        for name in self._ports:
            self.start(name)
        wait_until(self.is_well, timeout_s=START_TIMEOUT_S, what="an etcd with a leader")

    @property
    def names(self) -> list[str]:
        return list(self._ports)

    @property
    def endpoints(self) -> str:
        """As `controllerEtcdEndpoints` takes it."""
        return ";".join(f"127.0.0.1:{port}" for port in self._ports.values())

    def start(self, name: str) -> None:
        self._lives += 1
        # Its port for other members is the one above that for clients.
        peers = ",".join(f"{of}=http://127.0.0.1:{port + 1}" for of, port in self._ports.items())
        client, peer = (f"http://127.0.0.1:{self._ports[name] + n}" for n in (0, 1))
        options = {
            "name": name,
            "data-dir": self._folder / name,
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": peers,
        }
        command = [str(self._program), *(f"--{key}={value}" for key, value in options.items())]
        self.processes[name] = self._bench.start(
            f"{name}-{self._lives}", command, work_dir=self._folder
        )

    def is_well(self) -> bool:
        """Whether a majority answers."""
        return self._ask("kv/range", {"key": "AA=="}) is not None

    def leader(self) -> str:
        """The member that leads the others."""
        found = None
        for name, port in self._ports.items():
            said = self._ask("maintenance/status", {}, ports=[port])
            if said and said.get("leader") == said["header"]["member_id"]:  # type: ignore[index]
                found = name
        assert found is not None, "no member of etcd leads"
        return found

    def _ask(
        self, what: str, request: dict[str, str], ports: list[int] | None = None
    ) -> dict[str, object] | None:
        for port in ports or self._ports.values():
            url = f"http://127.0.0.1:{port}/v3/{what}"
            asking = urllib.request.Request(url, json.dumps(request).encode())
            try:
                with urllib.request.urlopen(asking, timeout=ASK_S) as answer:
                    said: dict[str, object] = json.load(answer)
                    return said
            except OSError:
                continue
        return None
