"""What the benchmarks on Spark share: processes, a meter for their CPU, rounds, the table.

CPU is that of Java and of all Python workers; the broker's is apart. Workers that end between two
looks would be lost, because PySpark's daemon does not wait for them, so a thread keeps looking and
the last figure of every process counts. Rounds go over all jobs in turn, so that a busy minute hits
them alike; the first round is thrown away. "Foreign" is the share of the machine that others used.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from benchmarks.harness import keep_lines
from firearrow.spark import session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import SparkSession

TICKS: Final = os.sysconf("SC_CLK_TCK")
LOOK_S: Final = 0.1


class Meter:
    """CPU time of processes and everything that they started, also of those that ended."""

    def __init__(self, *roots: int) -> None:
        self._roots = set(roots)
        self._seen: dict[tuple[int, str], float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._look()
        self._first = dict(self._seen)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._look()

    @property
    def cpu_s(self) -> float:
        return sum(self._seen.values()) - sum(self._first.values())

    def _run(self) -> None:
        while not self._stop.wait(LOOK_S):
            self._look()

    def _look(self) -> None:
        found: dict[int, tuple[int, str, float]] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                try:
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue  # it has just ended
                used = (int(fields[11]) + int(fields[12])) / TICKS
                found[int(entry.name)] = int(fields[1]), fields[19], used
        ours = set(self._roots)
        grown = True
        while grown:
            more = {pid for pid, (parent, _, _) in found.items() if parent in ours} - ours
            grown = bool(more)
            ours |= more
        for pid in ours & found.keys():
            _, started, used = found[pid]
            self._seen[pid, started] = used


@contextmanager
def broker(folder: Path) -> Iterator[tuple[str, int]]:
    """Name server and broker in a process of their own: address and process id."""
    command = [
        *(str(Path(sys.executable).parent / "firearrow"), "up", "--data", str(folder)),
        *("--nameserver-port", "0", "--broker-port", "0", "-o", "flushDiskType=ASYNC_FLUSH"),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        try:
            yield ready.partition("name server ")[2].partition(",")[0], process.pid
        finally:
            process.terminate()


def arguments_of(doc: str | None, *, rows: int, rounds: int, kafka: bool = True) -> Any:  # noqa: ANN401
    """The options that all of them have; an `argparse.Namespace`."""
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=rows)
    parser.add_argument("--body-bytes", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--master", default="local[1]")
    parser.add_argument("--only", default="", help="jobs whose names have this regular expression")
    if kafka:
        parser.add_argument("--kafka", help="host:port of a Kafka with --kafka-topic, of --rows")
        parser.add_argument("--kafka-pid", type=int, default=0, help="of its broker")
        parser.add_argument("--kafka-topic", default="t1k")
        parser.add_argument("--kafka-jars", help="a directory with Spark's Kafka connector")
    return parser.parse_args()


def bench_session(arguments: argparse.Namespace) -> SparkSession:
    conf = {"spark.ui.enabled": "false", "spark.log.level": "ERROR", "spark.driver.memory": "1g"}
    jars = getattr(arguments, "kafka_jars", None)
    if jars:
        conf["spark.jars"] = ",".join(map(str, Path(jars).glob("*.jar")))
    return session("bench", master=arguments.master, conf=conf)


def java_of(spark: SparkSession) -> int:
    return int(spark.sparkContext._gateway.proc.pid)  # type: ignore[union-attr]  # noqa: SLF001


@dataclass(frozen=True)
class Round:
    """What one job took once."""

    took_s: float
    cpu_s: float
    broker_s: float
    foreign: float


def measured(job: Callable[[], None], pids: tuple[int, ...], brokers: tuple[int, ...]) -> Round:
    """Run a job beside meters."""
    busy_s, began = machine_cpu_s(), time.perf_counter()
    own_s = time.process_time()
    with Meter(*pids) as ours, Meter(*brokers) as theirs:
        job()
    took_s = time.perf_counter() - began
    known_s = ours.cpu_s + theirs.cpu_s
    if os.getpid() not in pids:
        known_s += time.process_time() - own_s
    others_s = machine_cpu_s() - busy_s - known_s
    share = max(0.0, others_s) / (took_s * (os.cpu_count() or 1))
    return Round(took_s, ours.cpu_s, theirs.cpu_s, share)


def machine_cpu_s() -> float:
    """All that the cores of this machine have done: user, nice, system, interrupts, stolen."""
    fields = list(map(int, Path("/proc/stat").read_text().splitlines()[0].split()[1:]))
    return sum(fields[:3] + fields[5:8]) / TICKS


def run_rounds(
    name: str,
    jobs: Mapping[str, Callable[[int], None]],
    arguments: argparse.Namespace,
    pids_of: Callable[[str], tuple[tuple[int, ...], tuple[int, ...]]],
) -> None:
    """All jobs in turn, round after round; prints and keeps the table.

    `pids_of` says for a job whose CPU is that of its rows, and which processes serve it.
    """
    chosen = {job: run for job, run in jobs.items() if re.search(arguments.only, job)}
    rounds: dict[str, list[Round]] = {job: [] for job in chosen}
    for number in range(arguments.rounds + 1):
        for job, run in chosen.items():
            ours, theirs = pids_of(job)
            found = measured(lambda run=run, at=number: run(at), ours, theirs)  # type: ignore[misc]
            print(  # a run that is cut short has said something, too
                f"round {number} of {arguments.rounds}: {job}: "
                f"{arguments.rows / found.took_s:,.0f} rows/s, "
                f"{1e6 * found.cpu_s / arguments.rows:.2f} µs CPU a row, "
                f"foreign {found.foreign:.0%}",
                file=sys.stderr,
                flush=True,
            )
            if number:
                rounds[job].append(found)
    lines = [
        {"master": arguments.master, **_line(job, found, arguments.rows)}
        for job, found in rounds.items()
    ]
    for line in lines:
        print(
            f"{line['job']:<40} {line['rows_per_second']:>10,} rows/s "
            f"({line['least_rows_per_second']:,} to {line['most_rows_per_second']:,}), "
            f"{line['cpu_us_per_row']:5.2f} µs CPU a row "
            f"({line['least_cpu_us_per_row']:.2f} to {line['most_cpu_us_per_row']:.2f}), "
            f"broker {line['broker_cpu_us_per_row']:.2f}, foreign {line['foreign']:.0%}",
            flush=True,
        )
    print(f"load when done: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    keep_lines(name, lines)


def _line(job: str, rounds: list[Round], rows: int) -> dict[str, Any]:
    rates = [rows / one.took_s for one in rounds]
    cpu_us = [1e6 * one.cpu_s / rows for one in rounds]
    return {
        "job": job,
        "rows_per_second": round(statistics.median(rates)),
        "least_rows_per_second": round(min(rates)),
        "most_rows_per_second": round(max(rates)),
        "cpu_us_per_row": round(statistics.median(cpu_us), 2),
        "least_cpu_us_per_row": round(min(cpu_us), 2),
        "most_cpu_us_per_row": round(max(cpu_us), 2),
        "broker_cpu_us_per_row": round(
            statistics.median(1e6 * one.broker_s / rows for one in rounds), 2
        ),
        "foreign": round(statistics.median(one.foreign for one in rounds), 2),
    }
