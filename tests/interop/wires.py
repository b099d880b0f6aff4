"""Processes on networks of their own, joined by a bridge whose cables a test can pull out or cut.

    this machine (bridge, 10.203.N.1) ──┬── controller 10.203.N.11
                                        ├── replica-0  10.203.N.12
                                        └── replica-1  10.203.N.13

Network namespaces of Linux: nothing here is reachable from other machines, and nothing is left
behind but by a SIGKILL of the tests (`ip netns list` shows them; they begin with `fa`).
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

from .cache import cannot_run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

FIRST_HOST: Final = 11


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@dataclass(slots=True)
class Wires:
    """One host for each name, and the machine itself; a context manager."""

    names: Sequence[str]
    _tag: str = field(default_factory=lambda: f"fa{random.randrange(1 << 16):04x}")
    _net: str = field(default_factory=lambda: f"10.203.{random.randrange(1, 255)}")

    def __enter__(self) -> Self:
        if os.geteuid() != 0 or shutil.which("ip") is None:
            cannot_run("networks of their own for processes need root and `ip` (iproute2)")
        try:
            self._lay()
        except subprocess.CalledProcessError as error:
            self._remove()
            cannot_run(f"{' '.join(error.cmd)}: {error.stderr.strip()}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._remove()

    def _lay(self) -> None:
        _ip("link", "add", self._tag, "type", "bridge")
        _ip("addr", "add", f"{self.here}/24", "dev", self._tag)
        _ip("link", "set", self._tag, "up")
        for name in self.names:
            space, cable = self._space(name), self._cable(name)
            _ip("netns", "add", space)
            _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("link", "set", cable, "master", self._tag, "up")
            _ip("-n", space, "addr", "add", f"{self.host(name)}/24", "dev", "eth0")
            for link in ("eth0", "lo"):
                _ip("-n", space, "link", "set", link, "up")

    def _remove(self) -> None:
        for name in self.names:
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "del", self._space(name))  # and with it both ends of its cable
        with contextlib.suppress(subprocess.CalledProcessError):
            _ip("link", "del", self._tag)

    def _space(self, name: str) -> str:
        return f"{self._tag}-{name}"

    def _cable(self, name: str) -> str:
        return f"{self._tag}v{list(self.names).index(name)}"

    # --- where things are -------------------------------------------------------------------

    @property
    def here(self) -> str:
        """The address of this machine, which every host can reach."""
        return f"{self._net}.1"

    def host(self, name: str) -> str:
        """The address of a process; who has no host is on this machine."""
        if name not in self.names:
            return self.here
        return f"{self._net}.{FIRST_HOST + list(self.names).index(name)}"

    def prefix(self, name: str) -> list[str]:
        """What to put before a command so that it runs there."""
        return ["ip", "netns", "exec", self._space(name)] if name in self.names else []

    # --- faults -----------------------------------------------------------------------------

    def unplug(self, name: str) -> None:
        """Nobody reaches this host, and nobody is told."""
        _ip("link", "set", self._cable(name), "down")

    def plug(self, name: str) -> None:
        _ip("link", "set", self._cable(name), "up")

    def cut(self, name: str, others: Sequence[str]) -> None:
        """Between a host and some others nothing is answered any more; the rest goes on."""
        for other in others:
            _ip("-n", self._space(name), "route", "add", "blackhole", self.host(other))

    def mend(self, name: str, others: Sequence[str]) -> None:
        for other in others:
            _ip("-n", self._space(name), "route", "del", "blackhole", self.host(other))
