"""Jobs and Spark clusters in processes of their own, for the tests of pipelines."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyspark

from .processes import Bench, PeerProcess, wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SPARK_HOME: Final = Path(pyspark.__file__).parent
PATIENCE_S: Final = 300.0  # a busy machine needs half a minute for a session
SMALL: Final = (
    "--master",
    "local[2]",
    "--conf",
    "spark.driver.memory=512m",
    "--conf",
    "spark.sql.shuffle.partitions=2",
)


def start_job(
    bench: Bench,
    arguments: Sequence[str],
    *,
    nameservers: str,
    name: str = "job",
    options: Sequence[str] = SMALL,
    environment: Mapping[str, str] | None = None,
) -> PeerProcess:
    """`firearrow pipeline …`, with its report as JSON."""
    firearrow = Path(sys.executable).with_name("firearrow")
    return bench.start(
        name,
        [str(firearrow), "pipeline", *arguments, "--json", "--spark-log", "-", *options],
        environment={"NAMESRV_ADDR": nameservers, **(environment or {})},
    )


def report_of(job: PeerProcess) -> dict[str, Any]:
    """What a job said at its end."""
    lines = [line for line in job.output().splitlines() if line.startswith('{"job"')]
    assert len(lines) == 1, job.tail()
    report: dict[str, Any] = json.loads(lines[0])
    return report


def descendants(pid: int) -> list[int]:
    """Processes below one of ours; Linux tells."""
    found = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *descendants(child)]
    return found


def kill_all(job: PeerProcess) -> None:
    """The driver, its Java and its workers, all at once and without a word."""
    for pid in (job.pid, *descendants(job.pid)):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    job.wait_for_exit(timeout_s=PATIENCE_S)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class StandaloneCluster:
    """A master and two workers of one core each, as `pip install pyspark` has them."""

    def __init__(self, bench: Bench, tools: Path) -> None:
        """Workers look for programs in `tools` first."""
        port, pages = free_port(), free_port()
        home = {"SPARK_HOME": str(SPARK_HOME), "SPARK_DAEMON_MEMORY": "256m"}
        loopback = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1", **home}
        spark_class = str(SPARK_HOME / "bin" / "spark-class")
        self.master = f"spark://127.0.0.1:{port}"
        self._pages = f"http://127.0.0.1:{pages}/json/"
        where = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(pages)]
        bench.start(
            "spark-master",
            [spark_class, "org.apache.spark.deploy.master.Master", *where],
            environment=loopback,
        )
        wait_until(self.state, timeout_s=PATIENCE_S, what="Spark's master")
        for number in range(2):
            folder = bench.new_folder(f"spark-worker-{number}")
            size = ["--cores", "1", "--memory", "1g", "--webui-port", "0"]
            place = ["--host", "127.0.0.1", "--work-dir", str(folder / "work")]
            bench.start(
                f"spark-worker-{number}",
                [
                    spark_class,
                    "org.apache.spark.deploy.worker.Worker",
                    *size,
                    *place,
                    self.master,
                ],
                work_dir=folder,
                environment={**loopback, "PATH": f"{tools}:{os.environ['PATH']}"},
            )
        wait_until(
            lambda: len(self._workers()) == 2, timeout_s=PATIENCE_S, what="two workers of Spark's"
        )

    def state(self) -> dict[str, Any] | None:
        try:
            with urllib.request.urlopen(self._pages, timeout=5) as answer:
                state: dict[str, Any] = json.load(answer)
                return state
        except OSError:
            return None

    def _workers(self) -> list[dict[str, Any]]:
        return [one for one in (self.state() or {}).get("workers", []) if one["state"] == "ALIVE"]

    def options(self) -> list[str]:
        """For a job on this cluster."""
        return [
            *("--master", self.master),
            *("--conf", "spark.driver.host=127.0.0.1"),
            *("--conf", "spark.driver.memory=512m"),
            *("--conf", "spark.executor.memory=512m"),
            *("--conf", "spark.sql.shuffle.partitions=2"),
        ]
