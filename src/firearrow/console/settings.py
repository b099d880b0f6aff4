"""What the console can be told, and where it keeps its three files."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from firearrow.base.errors import ConfigError

DEFAULT_PORT: Final = 8080
DEFAULT_FOLDER: Final = Path("~/.firearrow/console")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """`folder` holds users and the audit list; `projects` are folders with Spark pipelines."""

    nameservers: str
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    folder: Path = DEFAULT_FOLDER
    insecure: bool = False
    projects: tuple[Path, ...] = field(default_factory=lambda: (Path(),))
    session_ms: int = 12 * 3_600_000  # how long a login lasts without use
    sample_ms: int = 5_000  # between two looks for the plots

    def check(self) -> None:
        """ConfigError unless everything is possible, and safe or knowingly not."""
        if not self.insecure and not is_loopback(self.host):
            raise ConfigError(
                f"--host {self.host} is reachable from other machines and the console speaks plain "
                "HTTP: bind to 127.0.0.1 and put a TLS proxy in front, or say --insecure if the "
                "network itself is trusted"
            )

    @property
    def users_file(self) -> Path:
        return self.folder.expanduser() / "users.json"

    @property
    def audit_file(self) -> Path:
        return self.folder.expanduser() / "audit.jsonl"


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
