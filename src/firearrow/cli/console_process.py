"""The console beside `firearrow up`: a process of its own that ends with its owner.

`up` opens the port and hands it over, so a taken port is known at once and nothing waits. The child
reads an input that nobody writes to: when `up` ends, in whichever way, it closes, and the child
goes.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from firearrow.base.errors import ConfigError
from firearrow.cli.console_commands import MISSING, is_installed
from firearrow.console.listening import listen, url_of
from firearrow.console.settings import DEFAULT_PORT

if TYPE_CHECKING:
    import socket
    from pathlib import Path

USUAL_PORTS: Final = (9876, 10911)
STOP_S: Final = 5.0


def console_port(
    wanted: int | None, nameserver_port: int, broker_port: int, *, off: bool
) -> int | None:
    """Where the console goes; None for nowhere.

    By default it is there for whoever starts `up` as it is. On other ports, or on free ones as
    tests take them, it is there when asked for.
    """
    if off:
        return None
    if wanted is not None:
        return wanted
    return DEFAULT_PORT if (nameserver_port, broker_port) == USUAL_PORTS else None


class ConsoleProcess:
    """Owns the child."""

    def __init__(self, host: str, port: int, folder: Path, *, insecure: bool) -> None:
        self._host = host
        self._port = port
        self._folder = folder
        self._insecure = insecure
        self._socket: socket.socket | None = None
        self._child: subprocess.Popen[bytes] | None = None

    def open(self) -> str | None:
        """Take the port; its URL, or None and one line of warning."""
        try:
            if not is_installed():
                raise ConfigError(MISSING)  # noqa: TRY301 - told like a taken port
            self._socket = listen(self._host, self._port)
        except ConfigError as error:
            print(f"no console: {error}", file=sys.stderr, flush=True)  # noqa: T201
            return None
        return url_of(self._socket)

    def start(self, nameservers: str) -> None:
        """Hand the port to a child. It gets ready by itself; connections wait meanwhile."""
        if self._socket is None:
            return
        descriptor = self._socket.fileno()
        command = [sys.executable, "-m", "firearrow", "console", "--listen-fd", str(descriptor)]
        command += ["-n", nameservers, "--host", self._host, "--data", str(self._folder)]
        command += ["--insecure"] if self._insecure else []
        try:
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[descriptor],
                # Ctrl-C goes to a whole group; whom it ends is for the owner to say.
                start_new_session=True,
                env={**os.environ},
            )
        except OSError as error:
            print(f"no console: {error}", file=sys.stderr, flush=True)  # noqa: T201
        self._socket.close()
        self._socket = None

    def stop(self) -> None:
        """End the child, and wait for it a little."""
        if self._socket is not None:
            self._socket.close()
        child, self._child = self._child, None
        if child is None:
            return
        assert child.stdin is not None
        with contextlib.suppress(OSError):
            child.stdin.close()
        child.terminate()
        try:
            child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
