"""Our client beside Apache's Java client 5.3.3: one broker (ours), the same works, in turn.

    make bench-clients               everything, about five minutes
    python -m benchmarks.client_peers --seconds 2 --only send

Reported per message is the CPU time of the client's process, kernel included: on a shared machine
it is the only figure that can be compared. Every piece of work is done once before it is measured,
so that the JVM has compiled it. Results are appended to `benchmarks/results/` and printed.

`rocketmq-python-client` is not here: it speaks gRPC to a proxy and cannot talk to a broker.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from rich.console import Console
from rich.table import Table
from tests.interop.processes import Bench

from benchmarks.harness import keep_lines
from benchmarks.peers import TICKS, TOPIC, JavaLoad, Peer, start_firearrow, touch_memory

if TYPE_CHECKING:
    from collections.abc import Iterator

WARM_UP_S: Final = 6.0
BODY_BYTES: Final = 1024


class Work(NamedTuple):
    """One row: what each client is told to do."""

    name: str
    ours: tuple[tuple[str, str], ...]  # which of our clients, and its line of work
    java: str


class Client(Protocol):
    """A load program that is kept warm."""

    pid: int

    def run(self, work: str) -> dict[str, Any]: ...

    def stop(self) -> None: ...


class PythonLoad:
    """Our load program."""

    def __init__(self, peer: Peer) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.client_load", peer.nameserver, TOPIC],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid
        self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the load program ended")
        return line

    def run(self, work: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(work + "\n")
        self._process.stdin.flush()
        result: dict[str, Any] = json.loads(self._answer())
        return result

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


def works(seconds: float, backlog: int) -> dict[str, list[Work]]:
    """Every row, by chapter."""

    def sends(name: str, width: int, java: str, clients: tuple[str, ...]) -> Work:
        kind = "batch" if java == "batch" else "send"
        lines = tuple((one, f"{kind}-{one} {width} {seconds} {BODY_BYTES}") for one in clients)
        return Work(name, lines, f"{java} {width} {seconds} {BODY_BYTES}")

    both = ("aio", "blocking")
    return {
        "send": [
            sends("send, one at a time", 1, "sync", both),
            sends("send, 64 tasks or threads", 64, "sync", both),
            sends("send, 512 in flight", 512, "async", ("aio",)),
            sends("send batches of 32, 4 at once", 4, "batch", both),
        ],
        "consume": [
            Work(
                "consume, handler of one message",
                (
                    ("push, function", f"consume-push {backlog} 1 0"),
                    ("push, coroutine", f"consume-async {backlog} 1 0"),
                ),
                f"consume {backlog} 1 0",
            ),
            Work(
                "consume, handler of up to 32",
                (("push, function", f"consume-push {backlog} 32 0"),),
                f"consume {backlog} 32 0",
            ),
            Work(
                "consume by poll",
                (
                    ("pull, aio", f"consume-pullaio {backlog} 0 0"),
                    ("pull, blocking", f"consume-pull {backlog} 0 0"),
                ),
                f"pull {backlog} 0 0",
            ),
        ],
    }


def cpu_s_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def measured(peer: Peer, client: Client, who: str, name: str, line: str) -> dict[str, Any]:
    before, broker_before = cpu_s_of(client.pid), peer.cpu_s()
    result = client.run(line)
    count = max(1, result["messages"])
    return {
        "work": name,
        "client": who,
        "per_second": result["per_second"],
        "client_us": round((cpu_s_of(client.pid) - before) * 1e6 / count, 2),
        "broker_us": round((peer.cpu_s() - broker_before) * 1e6 / count, 2),
        "p50_ms": round(result["p50_ms"], 3),
        "p99_ms": round(result["p99_ms"], 3),
        "failed": result["failed"],
    }


def compare(
    peer: Peer, ours: Client, java: Client | None, rows: list[Work]
) -> Iterator[dict[str, Any]]:
    """Each row by each client, one after the other, so that all meet the same machine."""
    for work in rows:
        for who, line in work.ours:
            ours.run(line)
            yield measured(peer, ours, f"FireArrow, {who}", work.name, line)
        if java is not None:
            java.run(work.java)
            yield measured(peer, java, "Java 5.3.3", work.name, work.java)


def show(rows: list[dict[str, Any]]) -> None:
    table = Table(title="client beside client, on our broker")
    for heading in ("work", "client", "messages/s", "client µs each", "broker µs each", "p50 ms"):
        table.add_column(heading, justify="left" if heading in {"work", "client"} else "right")
    for row in rows:
        table.add_row(
            row["work"],
            row["client"],
            f"{row['per_second']:,}",
            f"{row['client_us']}",
            f"{row['broker_us']}",
            f"{row['p50_ms']}" if row["p50_ms"] else "",
        )
    Console(width=130).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each piece of work")
    parser.add_argument("--backlog", type=int, default=300_000, help="messages to consume")
    parser.add_argument("--only", choices=("", "send", "consume"), default="")
    parser.add_argument("--without-java", action="store_true")
    parser.add_argument("--touch", type=int, default=4, help="GiB of memory to touch before")
    given = parser.parse_args()
    chapters = works(given.seconds, given.backlog)
    chosen = [work for name, rows in chapters.items() if given.only in {"", name} for work in rows]
    touch_memory(given.touch)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(
        prefix="bench-clients-", dir=os.environ.get("FIREARROW_BENCH_DIR")
    ) as folder:
        bench = Bench(Path(folder))
        try:
            peer = start_firearrow(bench, "ASYNC_FLUSH")
            ours: Client = PythonLoad(peer)
            java: Client | None = None if given.without_java else JavaLoad(bench, peer)
            # Warm, and with enough of a backlog: batches are the quickest way to one.
            sent = ours.run(f"send-aio 64 {WARM_UP_S / 3} {BODY_BYTES}")["messages"]
            if java is not None:
                sent += java.run(f"async 512 {WARM_UP_S} {BODY_BYTES}")["messages"]
            while sent < given.backlog and given.only != "send":
                sent += ours.run(f"batch-aio 4 1 {BODY_BYTES}")["messages"]
            for row in compare(peer, ours, java, chosen):
                print(json.dumps(row), flush=True)
                rows.append(row)
            for client in (ours, java):
                if client is not None:
                    client.stop()
        finally:
            bench.stop_all()
    keep_lines("clients", rows)
    show(rows)


if __name__ == "__main__":
    main()
