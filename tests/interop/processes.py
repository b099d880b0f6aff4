"""Start, watch and stop the peer processes of the interop tests.

Everything a process prints goes to a file, so that a full pipe never blocks it and a failed test
can show it. Only processes started here are ever signalled, each by its own id.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import time
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

Result = TypeVar("Result")

POLL_SECONDS: Final = 0.05
TAIL_LINES: Final = 40
STOP_GRACE_S: Final = 2.0

# Blocks of four ports, below the usual ephemeral range, so that outgoing connections of other peers
# cannot take one between our check and the peer's bind. A RocketMQ broker listens on its port, on
# port - 2 (the "VIP" channel) and on port + 1 (HA); port - 1 is left for our reservation.
PORT_BLOCKS: Final = range(20_002, 32_000, 4)
USED_OFFSETS: Final = (-2, 0, 1)
RESERVATION_OFFSET: Final = -1


class PeerError(Exception):
    """A peer could not be built, started or talked to; the message shows what it printed."""


def wait_until(
    probe: Callable[[], Result | None], *, timeout_s: float, what: Callable[[], str] | str
) -> Result:
    """Call `probe` until it returns something true, and return that.

    Args:
        probe: Returns a true value when the awaited state is reached.
        timeout_s: How long to go on asking.
        what: Says what was awaited; a function if the text depends on the last state seen.

    Raises:
        PeerError: If the time is over.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        found = probe()
        if found:
            return found
        if time.monotonic() >= deadline:
            text = what if isinstance(what, str) else what()
            raise PeerError(f"not within {timeout_s:g} s: {text}")
        time.sleep(POLL_SECONDS)


def can_bind(port: int) -> bool:
    """Say whether nobody listens on this port, on any address (Apache's peers bind them all)."""
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def reserve(port: int) -> socket.socket | None:
    """Bind a port and keep it, or return None if somebody else holds it."""
    # Without SO_REUSEADDR: with it, Linux lets two sockets that do not listen share a port.
    holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        holder.bind(("", port))
    except OSError:
        holder.close()
        return None
    return holder


def dying_with_us() -> list[str]:
    """What to put before a command so that it ends even if the tests themselves are killed."""
    # Only Linux has this; elsewhere a killed test run leaves its servers behind.
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []


class PeerProcess:
    """One child process with its output in a file.

    Attributes:
        name: Used for the log file and in messages.
        log_path: What the process printed, standard output and standard error together.
        is_frozen: Whether `freeze` was called last, and not `thaw`.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        work_dir: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start the process; `environment` is added to ours."""
        work_dir.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.log_path = work_dir / f"{name}.out"
        self.is_frozen = False
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [*dying_with_us(), *command],
                cwd=work_dir,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code, or None while the process runs."""
        return self._process.poll()

    def output(self) -> str:
        """All that the process printed so far."""
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def tail(self) -> str:
        """The last lines it printed, with its state, for an error message."""
        state = "running" if self.exit_code is None else f"ended with {self.exit_code}"
        lines = "\n".join(self.output().splitlines()[-TAIL_LINES:])
        return f"--- {self.name} (pid {self.pid}, {state}) ---\n{lines}"

    def send_line(self, line: str) -> None:
        """Write one line to its standard input."""
        stream = self._process.stdin
        if stream is None or self.exit_code is not None:
            raise PeerError(f"{self.name} does not listen any more\n{self.tail()}")
        stream.write(line.encode() + b"\n")
        stream.flush()

    def wait_for_line(self, pattern: str, *, timeout_s: float) -> re.Match[str]:
        """Wait until it has printed a line that the pattern matches.

        Raises:
            PeerError: If the time is over or the process ended first.
        """
        compiled = re.compile(pattern, re.MULTILINE)

        def look() -> re.Match[str] | None:
            ended = self.exit_code is not None
            match = compiled.search(self.output())
            if match is None and ended:
                raise PeerError(f"{self.name} ended before it printed {pattern!r}\n{self.tail()}")
            return match

        return wait_until(
            look, timeout_s=timeout_s, what=lambda: f"line {pattern!r}\n{self.tail()}"
        )

    def wait_for_exit(self, *, timeout_s: float) -> int:
        """Wait until it has ended by itself and return its exit code."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise PeerError(
                f"{self.name} did not end within {timeout_s:g} s\n{self.tail()}"
            ) from None

    def freeze(self) -> None:
        """Stop it with SIGSTOP: it does nothing any more, but its sockets stay open."""
        self._process.send_signal(signal.SIGSTOP)
        self.is_frozen = True

    def thaw(self) -> None:
        """Let a frozen process go on."""
        self._process.send_signal(signal.SIGCONT)
        self.is_frozen = False

    def terminate(self) -> None:
        """Ask it to end (SIGTERM), without waiting."""
        self._process.terminate()

    def kill(self) -> None:
        """End it with SIGKILL (which also ends a frozen process) and collect it."""
        self._process.kill()
        self._process.wait()

    def stop(self, *, grace_s: float) -> None:
        """End it: SIGTERM, then SIGKILL if it does not obey in time."""
        if self._process.stdin is not None:
            # A process that died leaves unsent bytes behind, and closing tries to send them.
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        if self.exit_code is None:
            self.terminate()
            try:
                self._process.wait(grace_s)
            except subprocess.TimeoutExpired:
                self.kill()


class Bench:
    """All processes of one file of tests, and the folder they work in."""

    def __init__(self, folder: Path) -> None:
        """Keep everything that peers write below `folder`."""
        self.folder = folder
        self._peers: list[PeerProcess] = []
        self._reservations: list[socket.socket] = []
        self._count = 0

    def new_folder(self, name: str) -> Path:
        """Make an empty folder for one peer."""
        self._count += 1
        path = self.folder / f"{self._count:02d}-{name}"
        path.mkdir(parents=True)
        return path

    def reserve_ports(self) -> int:
        """Find a port that is free together with those a broker needs beside it.

        A JVM takes seconds until it binds its ports. As long as the bench lasts no other peer, of
        this run or of one beside it, gets the same block: one port in it stays bound by us.
        """
        generator = random.Random(f"{os.getpid()} {time.monotonic_ns()}")
        for port in generator.sample(PORT_BLOCKS, 200):
            holder = reserve(port + RESERVATION_OFFSET)
            if holder is None:
                continue
            self._reservations.append(holder)
            if all(can_bind(port + offset) for offset in USED_OFFSETS):
                return port
        raise PeerError("found no free ports between 20000 and 32000 for a peer")

    def start(
        self,
        name: str,
        command: Sequence[str],
        *,
        work_dir: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> PeerProcess:
        """Start a process that ends at the latest with the bench."""
        peer = PeerProcess(
            name,
            command,
            work_dir=work_dir if work_dir is not None else self.new_folder(name),
            environment=environment,
        )
        self._peers.append(peer)
        return peer

    def tails(self) -> Iterator[tuple[str, str]]:
        """Name and last output of every peer started so far, the newest first."""
        for peer in reversed(self._peers):
            yield f"{peer.name} ({peer.log_path})", peer.tail()

    def stop_all(self) -> None:
        """End every process, clients before the servers they use."""
        # Nobody reads the stores of these brokers afterwards, so an orderly stop of each would only
        # take time: all are asked at once, and what is left soon after is killed.
        for peer in reversed(self._peers):
            peer.terminate()
            peer.thaw()
        deadline = time.monotonic() + STOP_GRACE_S
        for peer in reversed(self._peers):
            peer.stop(grace_s=max(0.0, deadline - time.monotonic()))
        for holder in self._reservations:
            holder.close()
