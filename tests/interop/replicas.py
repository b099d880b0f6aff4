"""Brokers of ours as processes of their own, masters and slaves, killed and started at will."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Final

from .apache import START_TIMEOUT_S, write_properties
from .processes import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .apache import Mqadmin
    from .processes import Bench, PeerProcess

LOG_FILE_BYTES: Final = 16 << 20
CATCH_UP_S: Final = 40.0


class OurBroker:
    """`firearrow broker`, always on the same ports and data."""

    def __init__(
        self,
        bench: Bench,
        nameserver: str,
        *,
        name: str,
        cluster: str,
        broker_id: int = 0,
        role: str = "ASYNC_MASTER",
        extra: Mapping[str, object] | None = None,
    ) -> None:
        self.bench = bench
        self.name = name
        self.broker_id = broker_id
        self.folder = bench.new_folder(f"{name}-{broker_id}")
        self.port = bench.reserve_ports()
        self._starts = 0
        self._properties: dict[str, object] = {
            "brokerClusterName": cluster,
            "brokerName": name,
            "brokerId": broker_id,
            "brokerRole": role,
            "listenPort": self.port,
            "haListenPort": self.port + 1,
            "namesrvAddr": nameserver,
            "storePathRootDir": self.folder / "store",
            "mappedFileSizeCommitLog": LOG_FILE_BYTES,
            "diskSpaceWarningLevelRatio": 100,
            **(extra or {}),
        }
        self.process: PeerProcess
        self.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def commit_log(self) -> Path:
        return self.folder / "store" / "commitlog"

    def start(self, **changes: object) -> None:
        """Start it, with other settings than before if they are given."""
        self._starts += 1
        self._properties |= changes
        file = write_properties(self.folder / "broker.properties", self._properties)
        command = [sys.executable, "-m", "firearrow", "broker", "-c", str(file)]
        self.process = self.bench.start(
            f"{self.name}-{self.broker_id}-{self._starts}", command, work_dir=self.folder
        )
        self.process.wait_for_line("broker ready on", timeout_s=START_TIMEOUT_S)

    def kill(self) -> None:
        """End it without a word (SIGKILL)."""
        self.process.kill()


def log_end(admin: Mqadmin, address: str) -> int:
    """Where a broker's log ends, as it says itself."""
    answer = admin.run("brokerStatus", "-b", address)
    found = re.search(r"^commitLogMaxOffset\s*: (\d+)", answer.out, re.MULTILINE)
    assert found is not None, answer.out
    return int(found[1])


def log_bytes(folder: Path, stop: int) -> bytes:
    """The log of a directory up to an offset; zeros where a file is missing."""
    content = bytearray(stop)
    for path in sorted(folder.glob("[0-9]" * 20)):
        start = int(path.name)
        part = path.read_bytes()[: max(0, stop - start)]
        content[start : start + len(part)] = part
    return bytes(content)


def wait_for_equal_logs(admin: Mqadmin, master: str, slave: str) -> int:
    """Wait until a slave's log ends where its master's does; returns where."""

    def same() -> int | None:
        ends = log_end(admin, master), log_end(admin, slave)
        return ends[0] if ends[0] == ends[1] and ends[0] > 0 else None

    return wait_until(
        same,
        timeout_s=CATCH_UP_S,
        what=lambda: f"master {log_end(admin, master)}, slave {log_end(admin, slave)}",
    )
