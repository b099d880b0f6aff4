"""Our own servers as the peer of real clients: `firearrow up`, killed and started at will."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from .apache import START_TIMEOUT_S, NameServer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .processes import Bench, PeerProcess

READY: Final = r"127\.0\.0\.1:(\d+)\D+127\.0\.0\.1:(\d+)"


class FireArrowCluster:
    """A name server and a broker of ours in one process, always on the same ports and data."""

    def __init__(self, bench: Bench, settings: Mapping[str, object] | None = None) -> None:
        """Start it and wait until it is ready."""
        self.bench = bench
        self.folder = bench.new_folder("firearrow")
        self.process: PeerProcess
        self._settings = dict(settings or {})
        self._ports = (0, 0)
        self._starts = 0
        self.start()

    @property
    def nameserver(self) -> NameServer:
        """Where clients find their routes."""
        return NameServer(self.process, self._ports[0])

    @property
    def broker_port(self) -> int:
        """Where the broker listens."""
        return self._ports[1]

    def start(self) -> None:
        """Start the process; after an end, on the ports that clients know."""
        self._starts += 1
        command = [sys.executable, "-m", "firearrow", "up", "--data", str(self.folder / "data")]
        command += ["--nameserver-port", str(self._ports[0]), "--broker-port", str(self._ports[1])]
        for key, value in self._settings.items():
            command += ["-o", f"{key}={value}"]
        self.process = self.bench.start(f"firearrow-{self._starts}", command, work_dir=self.folder)
        ready = self.process.wait_for_line(READY, timeout_s=START_TIMEOUT_S)
        self._ports = int(ready[1]), int(ready[2])

    def kill(self) -> None:
        """End it without a word (SIGKILL)."""
        self.process.kill()
