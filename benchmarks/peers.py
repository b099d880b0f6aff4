"""FireArrow beside Apache RocketMQ 5.3.3: one machine, the same settings, the same loads, warm.

    make bench-peers                 everything, about six minutes
    python -m benchmarks.peers --seconds 2 --only lean

Two loads: a lean one (raw sockets, frames made beforehand) shows the broker; one on Apache's own
Java client shows what its users get. Reported per message is the broker's CPU time, which a noisy
machine disturbs least. Results are appended to `benchmarks/results/` and printed as a table.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.table import Table
from tests.interop.apache import java_command, write_properties
from tests.interop.cache import apache_jars, java_programs, require_tool
from tests.interop.processes import Bench, wait_until

from benchmarks.harness import keep_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.interop.processes import PeerProcess

TOPIC: Final = "bench"  # made by the first message, with four queues
TICKS: Final = os.sysconf("SC_CLK_TCK")
WARM_UP_S: Final = 3.0


@dataclass(slots=True)
class Peer:
    """A running broker and its name server."""

    name: str
    nameserver: str
    broker: str
    process: PeerProcess
    start_s: float

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def resident_mb(self) -> int:
        """Memory of its own: pages of mapped files are the page cache's."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) // 1024
        return 0


def start_firearrow(bench: Bench, flush: str) -> Peer:
    folder = bench.new_folder(f"firearrow-{flush.lower()}")
    command = [sys.executable, "-m", "firearrow", "up", "--data", str(folder / "data")]
    command += ["--nameserver-port", "0", "--broker-port", "0", "-o", f"flushDiskType={flush}"]
    started = time.perf_counter()
    process = bench.start(f"firearrow-{flush.lower()}", command, work_dir=folder)
    ready = process.wait_for_line(r"name server (\S+), broker (\S+)", timeout_s=30)
    first_message(ready[2])
    return Peer("firearrow", ready[1], ready[2], process, time.perf_counter() - started)


def start_apache(bench: Bench, flush: str) -> Peer:
    folder = bench.new_folder(f"apache-{flush.lower()}")
    ports = bench.reserve_ports(), bench.reserve_ports()
    options = ("-Xms512m", "-Xmx2g", "-XX:MaxDirectMemorySize=1g")
    started = time.perf_counter()
    names = write_properties(folder / "namesrv.properties", {"listenPort": ports[0]})
    bench.start(
        f"namesrv-{flush.lower()}",
        warm_java("org.apache.rocketmq.namesrv.NamesrvStartup", folder, ("-Xmx256m",), names),
        work_dir=folder,
        environment={"ROCKETMQ_HOME": str(folder)},
    )
    settings = {
        "brokerName": "broker-a",
        "brokerIP1": "127.0.0.1",
        "listenPort": ports[1],
        "haListenPort": ports[1] + 1,
        "namesrvAddr": f"127.0.0.1:{ports[0]}",
        "storePathRootDir": folder / "store",
        "storePathCommitLog": folder / "store" / "commitlog",
        "flushDiskType": flush,
        "diskMaxUsedSpaceRatio": 95,
    }
    file = write_properties(folder / "broker.properties", settings)
    process = bench.start(
        f"apache-{flush.lower()}",
        warm_java("org.apache.rocketmq.broker.BrokerStartup", folder, options, file),
        work_dir=folder,
        environment={"ROCKETMQ_HOME": str(folder)},
    )
    process.wait_for_line("boot success", timeout_s=60)
    broker = f"127.0.0.1:{ports[1]}"
    first_message(broker)
    return Peer("apache", f"127.0.0.1:{ports[0]}", broker, process, time.perf_counter() - started)


def warm_java(main_class: str, folder: Path, heap: tuple[str, ...], file: Path) -> list[str]:
    """A JVM as one would run it for days: all compilers, the usual collector."""
    command = java_command(main_class, work_dir=folder, heap=heap, arguments=["-c", str(file)])
    return [word for word in command if word not in {"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"}]


def first_message(broker: str) -> None:
    """Wait until the broker has stored one."""
    from benchmarks.lean_load import send_frame  # noqa: PLC0415 - a program of its own

    host, _, port = broker.rpartition(":")

    def stored() -> bool:
        try:
            with socket.create_connection((host, int(port)), timeout=5) as line:
                line.sendall(send_frame(TOPIC, 0, b"first"))
                return b'"code":0' in line.recv(4096)
        except OSError:
            return False

    wait_until(stored, timeout_s=60, what="the first message to be stored")


class JavaLoad:
    """The load program, kept warm over several pieces of work."""

    def __init__(self, bench: Bench, peer: Peer) -> None:
        folder = bench.new_folder(f"load-{peer.name}-{id(peer)}")
        self._process = subprocess.Popen(
            [
                require_tool("java"),
                "-Xmx1g",
                f"-Duser.home={folder}",
                f"-Drocketmq.client.logRoot={folder}",
                "-Drocketmq.client.logLevel=ERROR",
                "-cp",
                f"{java_programs('5.3.3')}:{apache_jars('5.3.3')}/*",
                "firearrow.interop.Load",
                f"nameserver={peer.nameserver}",
                f"topic={TOPIC}",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.pid = self._process.pid
        self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(("{", "ready")):
                return line
        raise RuntimeError("the load program ended")

    def run(self, work: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(work + "\n")
        self._process.stdin.flush()
        result: dict[str, Any] = json.loads(self._answer())
        return result

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


def measured(
    peer: Peer, name: str, flush: str, result: dict[str, Any], cpu_s: float
) -> dict[str, Any]:
    return {
        "work": name,
        "flush": flush,
        "peer": peer.name,
        "per_second": result["per_second"],
        "broker_us": round(cpu_s * 1e6 / max(1, result["messages"]), 2),
        "p50_ms": round(result["p50_ms"], 3),
        "p99_ms": round(result["p99_ms"], 3),
        "failed": result["failed"],
        "anon_mb": peer.resident_mb(),
    }


def lean(peer: Peer, program: str, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", f"benchmarks.{program}", peer.broker, "--topic", TOPIC]
    ended = subprocess.run([*command, *arguments], capture_output=True, text=True, check=True)
    result: dict[str, Any] = json.loads(ended.stdout)
    return result


def lean_works(flush: str, seconds: float) -> list[tuple[str, list[str]]]:
    """What the lean programs do, by flush mode."""
    works = [
        (
            f"lean, 512 in flight, {size} B",
            ["lean_load", "--seconds", str(seconds), "--size", str(size)],
        )
        for size in (1024, 100)
    ]
    if flush == "ASYNC_FLUSH":
        batches = ["lean_load", "--seconds", str(seconds), "--batch", "32", "--in-flight", "8"]
        works.append(("lean, batches of 32 x 1 KiB, 8 in flight", batches))
        works.append(("lean, consume a backlog", ["lean_pull", "--messages", "300000"]))
    return works


def works(flush: str, seconds: float) -> list[tuple[str, str]]:
    """What the Java client does, by flush mode."""
    if flush == "SYNC_FLUSH":
        return [
            ("Java async, 512 in flight, 1 KiB", f"async 512 {seconds} 1024"),
            ("Java, 1 thread, 1 KiB", f"sync 1 {seconds} 1024"),
        ]
    return [
        ("Java async, 512 in flight, 1 KiB", f"async 512 {seconds} 1024"),
        ("Java, 64 threads, 1 KiB", f"sync 64 {seconds} 1024"),
        ("Java, batches of 32 x 1 KiB, 4 threads", f"batch 4 {seconds} 1024"),
        ("end to end, one in flight", f"roundtrip 1 {seconds} 1024"),
        ("consume a backlog of 1 KiB", "consume 300000 0 0"),
    ]


def measure_peer(
    bench: Bench,
    start: Callable[[Bench, str], Peer],
    flush: str,
    seconds: float,
    only: str,
) -> Iterator[dict[str, Any]]:
    peer = start(bench, flush)
    yield {
        "work": "start to first message stored",
        "flush": flush,
        "peer": peer.name,
        "seconds": round(peer.start_s, 3),
        "anon_mb": peer.resident_mb(),
    }
    if only in {"", "lean"}:
        lean(peer, "lean_load", "--seconds", str(WARM_UP_S))
        for name, arguments in lean_works(flush, seconds):
            before = peer.cpu_s()
            result = lean(peer, *arguments)
            yield measured(peer, name, flush, result, peer.cpu_s() - before)
    if only in {"", "java"}:
        load = JavaLoad(bench, peer)
        load.run(f"async 512 {WARM_UP_S * 2} 1024")
        for name, work in works(flush, seconds):
            before = peer.cpu_s()
            result = load.run(work)
            yield measured(peer, name, flush, result, peer.cpu_s() - before)
        load.stop()
    peer.process.stop(grace_s=30)


def show(rows: list[dict[str, Any]]) -> None:
    table = Table(title="broker beside broker")
    for heading in ("work", "flush", "peer", "messages/s", "broker µs each", "p50 ms", "p99 ms"):
        table.add_column(
            heading, justify="left" if heading in {"work", "flush", "peer"} else "right"
        )
    for row in sorted(rows, key=lambda row: (row["flush"], row["work"], row["peer"])):
        if "seconds" in row:
            table.add_row(
                row["work"],
                row["flush"],
                row["peer"],
                f"{row['seconds']} s",
                f"{row['anon_mb']} MB",
                "",
                "",
            )
        else:
            table.add_row(
                row["work"],
                row["flush"],
                row["peer"],
                f"{row['per_second']:,}",
                f"{row['broker_us']}",
                f"{row['p50_ms']}",
                f"{row['p99_ms']}",
            )
    Console(width=130).print(table)


def touch_memory(gibibytes: int) -> None:
    """Have the machine's memory really there: on a virtual one the first touch of each page costs
    more than a message, whoever does it.
    """
    with mmap.mmap(-1, gibibytes << 30) as memory:
        for at in range(0, gibibytes << 30, mmap.PAGESIZE):
            memory[at] = 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each piece of work")
    parser.add_argument("--only", choices=("", "lean", "java"), default="")
    parser.add_argument("--flush", choices=("ASYNC_FLUSH", "SYNC_FLUSH"), action="append")
    parser.add_argument("--touch", type=int, default=8, help="GiB of memory to touch before")
    parser.add_argument("--peer", choices=("firearrow", "apache"), action="append")
    given = parser.parse_args()
    starts = {"firearrow": start_firearrow, "apache": start_apache}
    rows: list[dict[str, Any]] = []
    touch_memory(given.touch)
    with tempfile.TemporaryDirectory(
        prefix="bench-peers-", dir=os.environ.get("FIREARROW_BENCH_DIR")
    ) as folder:
        for flush in given.flush or ("ASYNC_FLUSH", "SYNC_FLUSH"):
            for name in given.peer or ("firearrow", "apache"):
                bench = Bench(Path(folder) / f"{name}-{flush}")
                try:
                    for row in measure_peer(bench, starts[name], flush, given.seconds, given.only):
                        print(json.dumps(row), flush=True)
                        rows.append(row)
                finally:
                    bench.stop_all()
    keep_lines("peers", rows)
    show(rows)


if __name__ == "__main__":
    main()
