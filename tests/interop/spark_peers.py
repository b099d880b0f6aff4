"""Spark as a peer: jobs and clusters in processes of their own, and who is who among them."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .apache import START_TIMEOUT_S, NameServer
from .processes import Bench, PeerError, PeerProcess, wait_until
from .watching import BROKER_HOST, CLIENT_HOST

if TYPE_CHECKING:
    from collections.abc import Iterator

JOB_TIMEOUT_S: Final = 600.0  # of which most is Spark's own start on a busy machine
HEAP: Final = "512m"
EXECUTOR: Final = "CoarseGrainedExecutorBackend"


# --- processes --------------------------------------------------------------------------------


def children_of(pid: int) -> list[int]:
    found = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += [int(child) for child in (task / "children").read_text().split()]
    return found


def family_of(pid: int) -> list[int]:
    """A process and all that descends from it, itself first."""
    found = [pid]
    for child in children_of(pid):
        found += family_of(child)
    return found


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def parents_of(pid: int) -> Iterator[int]:
    while pid > 1:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return
        yield pid


def owner_of_port(port: int, among: list[int]) -> int | None:
    """The process, of some, whose connection has this port at its own end."""
    wanted = f"0100007F:{port:04X}"
    inodes = {
        f"socket:[{fields[9]}]"
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
        if (fields := line.split())[1] == wanted
    }
    for pid in among:
        with contextlib.suppress(OSError):
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    if str(descriptor.readlink()) in inodes:
                        return pid
    return None


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


# --- jobs -------------------------------------------------------------------------------------


class Job:
    """A job that is started again until it has done everything."""

    def __init__(self, bench: Bench, kind: str, arguments: dict[str, str]) -> None:
        self._bench = bench
        self._folder = bench.new_folder(f"job-{kind}")
        self._command = [sys.executable, "-P", str(Path(__file__).parent / "spark_job.py"), kind]
        self._command += [f"{name}={value}" for name, value in arguments.items()]
        self.starts = 0
        self.process: PeerProcess | None = None

    def run(self, starts_max: int) -> None:
        """Run it to its end, however often it is killed on the way."""
        while self.starts < starts_max:
            self.starts += 1
            self.process = self._bench.start(
                f"job-{self.starts}", self._command, work_dir=self._folder
            )
            if self.process.wait_for_exit(timeout_s=JOB_TIMEOUT_S) == 0:
                return
        assert self.process is not None
        raise PeerError(f"not done after {starts_max} starts\n{self.process.tail()}")

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def kill_driver(self) -> None:
        """The driver's Python and its JVM; what they leave behind finds out by itself."""
        for pid in [self.pid, *children_of(self.pid)]:
            kill(pid)

    def kill_sender(self, port: int) -> None:
        """The Python process that sent a request: a task's worker, or the one that commits."""
        pid = owner_of_port(port, family_of(self.pid))
        if pid is None:
            raise PeerError(f"nobody of this job has port {port}")
        kill(pid)


class SparkCluster:
    """A standalone master and two workers, started from the pip package."""

    def __init__(self, bench: Bench) -> None:
        import pyspark  # noqa: PLC0415 - slow

        self._bench = bench
        self._home = Path(pyspark.__file__).parent
        port, web = bench.reserve_ports(), bench.reserve_ports()
        self.url = f"spark://127.0.0.1:{port}"
        ports = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(web)]
        self.master = self._start("master", "master.Master", *ports)
        self.master.wait_for_line("I have been elected leader", timeout_s=START_TIMEOUT_S)
        self.workers = [self._start_worker(number) for number in range(2)]
        for worker in self.workers:
            worker.wait_for_line("Successfully registered", timeout_s=START_TIMEOUT_S)

    def _start_worker(self, number: int) -> PeerProcess:
        folder = self._bench.new_folder(f"worker-{number}")
        size = ["--cores", "1", "--memory", "1g", "--host", "127.0.0.1"]
        where = ["--work-dir", str(folder), "--webui-port", "0"]
        return self._start(f"worker-{number}", "worker.Worker", *size, *where, self.url)

    def _start(self, name: str, main: str, *arguments: str) -> PeerProcess:
        command = [str(self._home / "bin" / "spark-class"), f"org.apache.spark.deploy.{main}"]
        environment = {
            "SPARK_HOME": str(self._home),
            "SPARK_DAEMON_MEMORY": "192m",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
        }
        return self._bench.start(name, [*command, *arguments], environment=environment)

    def executors(self) -> list[int]:
        """Their JVMs."""
        return [
            pid
            for worker in self.workers
            for pid in family_of(worker.pid)
            if EXECUTOR in command_of(pid)
        ]

    def kill_executor(self, port: int) -> None:
        """The executor whose task sent a request; any, if it was the driver."""
        executors = wait_until(self.executors, timeout_s=START_TIMEOUT_S, what="an executor")
        for executor in executors:
            if owner_of_port(port, family_of(executor)) is not None:
                kill(executor)
                return
        kill(executors[0])


# --- a broker behind a watch ------------------------------------------------------------------


class WatchedBroker:
    """A name server and, in a process of its own, a broker that clients reach through a relay."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.folder = bench.new_folder("watched-broker")
        command = [sys.executable, "-m", "firearrow", "nameserver", "--port", "0"]
        command += ["-o", f"kvConfigPath={self.folder / 'kvConfig.json'}"]
        names = bench.start("nameserver", command)
        ready = names.wait_for_line(r"127\.0\.0\.1:(\d+)", timeout_s=START_TIMEOUT_S)
        self.nameserver = NameServer(names, int(ready[1]))
        self.port = bench.reserve_ports()
        self._starts = 0
        self.process: PeerProcess
        self.start()

    def start(self) -> None:
        self._starts += 1
        settings = {
            "bindAddress": BROKER_HOST,
            "brokerIP1": CLIENT_HOST,
            "listenPort": self.port,
            "storePathRootDir": self.folder / "store",
            "mappedFileSizeCommitLog": 64 << 20,
        }
        command = [sys.executable, "-m", "firearrow", "broker", "-n", self.nameserver.address]
        for key, value in settings.items():
            command += ["-o", f"{key}={value}"]
        self.process = self._bench.start(f"broker-{self._starts}", command, work_dir=self.folder)
        self.process.wait_for_line(str(self.port), timeout_s=START_TIMEOUT_S)

    def kill(self) -> None:
        self.process.kill()
