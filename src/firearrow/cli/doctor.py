"""What `firearrow doctor` looks at: each check says what it saw, and what to do if it is wrong.

machine    disk space, file limit, ports, Java for Spark
cluster    name servers reachable and of one mind, brokers that answer where they say they are,
           clocks, disks of brokers
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from firearrow.base.errors import FirearrowError
from firearrow.cli.arguments import plural
from firearrow.cli.cluster_view_commands import nameserver_views
from firearrow.cli.output import size_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from firearrow.cli.machine import Machine
    from firearrow.cli.target import Target
    from firearrow.client.admin_results import BrokerInfo

FREE_BYTES_MIN: Final = 2 << 30  # two commit-log files of RocketMQ's size
USED_RATIO_MAX: Final = 0.85  # brokers begin to delete at 0.75 and refuse messages at 0.90
FILES_MIN: Final = 4_096
FILES_WISE: Final = 65_536
SKEW_MS_MAX: Final = 2_000  # timers, traces and searches by time suffer beyond
JAVA_MIN: Final = 17  # what Spark 4 needs
DIAL_S: Final = 3.0
_RUNTIME: Final = re.compile(r"(\d+) days, (\d+) hours, (\d+) minutes, (\d+) seconds", re.ASCII)


class State(StrEnum):
    OK = "ok"
    NOTE = "note"  # worth knowing, nothing is wrong
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    state: State
    what: str
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be looked at."""

    data: Path = Path("firearrow-data")
    host: str = "127.0.0.1"
    ports: tuple[tuple[str, int], ...] = (("name server", 9876), ("broker", 10911))
    nameservers: tuple[str, ...] = ()
    wants_spark: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """What name servers and brokers said of themselves, and when they were asked."""

    nameservers: dict[str, frozenset[str] | None] = field(default_factory=dict)
    brokers: tuple[BrokerInfo, ...] = ()
    asked_ms: int = 0
    problem: str | None = None

    @property
    def addresses(self) -> set[str]:
        return {*self.nameservers, *(one.address for one in self.brokers)}


def examine(machine: Machine, plan: Plan, view: ClusterView) -> list[Finding]:
    """All that can be said; whoever only wants what is wrong looks at the state."""
    found = [*_disk(machine, plan), *_files(machine), *_ports(machine, plan, view)]
    if plan.wants_spark:
        found += _java(machine)
    return [*found, *_cluster(view), *_advertised(machine, view), *_broker_disks(view),
            *_clocks(view)]  # fmt: skip


# --- the machine --------------------------------------------------------------------------------


def _disk(machine: Machine, plan: Plan) -> Iterator[Finding]:
    try:
        disk = machine.disk(plan.data)
    except OSError as error:
        yield Finding(
            "disk", State.WRONG, f"{plan.data}: {error.strerror}", "Choose another --data."
        )
        return
    what = f"{plan.data}: {size_text(disk.free)} free, {100 * disk.used_ratio:.0f} % used"
    if disk.free < FREE_BYTES_MIN or disk.used_ratio > USED_RATIO_MAX:
        yield Finding(
            "disk",
            State.WRONG,
            what,
            "Free some space, lower fileReservedTime, or put --data on another disk; a broker "
            "refuses messages above 90 %.",
        )
    else:
        yield Finding("disk", State.OK, what)
    if not machine.may_write(plan.data):
        yield Finding(
            "data directory",
            State.WRONG,
            f"{plan.data} cannot be written",
            "Change its owner, or choose another --data.",
        )


def _files(machine: Machine) -> Iterator[Finding]:
    soft, hard = machine.file_limit()
    what = f"a process may have {soft:,} files open, {hard:,} at most"
    if soft < FILES_MIN:
        yield Finding(
            "file limit",
            State.WRONG,
            what,
            f"Raise it before the broker starts: ulimit -n {FILES_WISE} (or LimitNOFILE= in its "
            "unit); each connection and each queue file needs one.",
        )
    elif soft < FILES_WISE:
        yield Finding("file limit", State.OK, what + f"; {FILES_WISE:,} suit many clients")
    else:
        yield Finding("file limit", State.OK, what)


def _ports(machine: Machine, plan: Plan, view: ClusterView) -> Iterator[Finding]:
    ours = {
        address.rpartition(":")[2]
        for address in view.addresses
        if _answers(view, address) and _is_here(machine, address)
    }
    for role, port in plan.ports:
        check = f"port {port}"
        problem = machine.listen_problem(plan.host, port)
        if problem is None:
            yield Finding(check, State.OK, f"free for a {role}")
        elif str(port) in ours:
            yield Finding(check, State.OK, f"taken by a {role} of this cluster")
        else:
            yield Finding(
                check,
                State.WRONG,
                f"a {role} could not listen on {plan.host}:{port}: {problem}",
                f"Stop who has it (ss -ltnp 'sport = :{port}'), or choose another port: "
                "firearrow up --nameserver-port N --broker-port N.",
            )


def _is_here(machine: Machine, address: str) -> bool:
    """Whether an address is this machine's: only then could a server listen on it."""
    return machine.listen_problem(address.rpartition(":")[0].strip("[]"), 0) is None


def _answers(view: ClusterView, address: str) -> bool:
    if view.nameservers.get(address) is not None:
        return True
    return any(one.address == address and one.error is None for one in view.brokers)


def _java(machine: Machine) -> Iterator[Finding]:
    version = machine.java()
    if version is None:
        yield Finding(
            "Java for Spark",
            State.NOTE,
            "no Java was found; only pipelines on Spark need it",
            "pip install 'firearrow[spark]' brings one, or set JAVA_HOME.",
        )
        return
    major = re.match(r"(?:1\.)?(\d+)", version)
    if major is not None and int(major[1]) < JAVA_MIN:
        yield Finding(
            "Java for Spark",
            State.WRONG,
            f"Java {version}",
            f"Spark 4 needs Java {JAVA_MIN} or newer: set JAVA_HOME.",
        )
    else:
        yield Finding("Java for Spark", State.OK, f"Java {version}")


# --- the cluster --------------------------------------------------------------------------------


def _cluster(view: ClusterView) -> Iterator[Finding]:
    for address, known in view.nameservers.items():
        if known is None:
            yield Finding(
                "name server",
                State.NOTE if view.problem is None else State.WRONG,
                f"{address} does not answer",
                "Start it (firearrow up), or name the right one: -n HOST:9876.",
            )
        else:
            yield Finding(
                "name server", State.OK, f"{address} knows {plural(len(known), 'broker')}"
            )
    seen = {known for known in view.nameservers.values() if known is not None}
    if len(seen) > 1:
        yield Finding(
            "name servers agree",
            State.WRONG,
            "they know different brokers",
            "Give every broker the addresses of all name servers (namesrvAddr).",
        )
    if seen and not view.brokers:
        yield Finding(
            "brokers", State.WRONG, "none is registered", "Start one: firearrow broker -n HOST:9876"
        )


def _advertised(machine: Machine, view: ClusterView) -> Iterator[Finding]:
    """Clients connect to what brokers register, which need not be where they are."""
    for one in view.brokers:
        problem = machine.dial_problem(one.address, DIAL_S) or one.error
        check = f"address of {one.name}"
        if problem is None:
            yield Finding(check, State.OK, f"{one.address} answers")
        else:
            yield Finding(
                check,
                State.WRONG,
                f"{one.name} says it is at {one.address}, but nobody answers there: {problem}",
                "Set brokerIP1 (and listenPort) to an address that clients can reach, and restart "
                "the broker.",
            )


def _broker_disks(view: ClusterView) -> Iterator[Finding]:
    for one in view.brokers:
        try:
            ratio = float(one.runtime.get("commitLogDiskRatio", ""))
        except ValueError:
            continue
        what = f"{100 * ratio:.0f} % used"
        if ratio > USED_RATIO_MAX:
            yield Finding(
                f"disk of {one.name}",
                State.WRONG,
                what,
                f"Free space there, or: firearrow cluster set {one.name} fileReservedTime=24",
            )
        else:
            yield Finding(f"disk of {one.name}", State.OK, what)


def _clocks(view: ClusterView) -> Iterator[Finding]:
    for one in view.brokers:
        there_ms = broker_time_ms(one)
        if there_ms is None:
            continue
        # A broker tells its time in whole seconds, cut off: it is up to a second later there.
        early, late = there_ms - view.asked_ms, there_ms + 1_000 - view.asked_ms
        skew_ms = early if early > 0 else late if late < 0 else 0
        check = f"clock of {one.name}"
        if abs(skew_ms) > SKEW_MS_MAX:
            side = "ahead of" if skew_ms > 0 else "behind"
            yield Finding(
                check,
                State.WRONG,
                f"{abs(skew_ms) / 1000:.0f} s {side} this machine",
                "Let both machines keep time (chronyc tracking): delays, retention and searches "
                "by time go by it.",
            )
        else:
            yield Finding(check, State.OK, "agrees with this machine")


def broker_time_ms(broker: BrokerInfo) -> int | None:
    """What time it is at a broker, to the second: when it started, and for how long it runs."""
    found = _RUNTIME.search(broker.runtime.get("runtime", ""))
    started = broker.runtime.get("bootTimestamp", "")
    if found is None or not started.isdecimal():
        return None
    days, hours, minutes, seconds = map(int, found.groups())
    return int(started) + 1000 * (seconds + 60 * (minutes + 60 * (hours + 24 * days)))


def look_at_cluster(target: Target, machine: Machine) -> ClusterView:
    """Ask every name server, and every broker that they know."""
    views = {address: known for address, known, _ in nameserver_views(target)}
    if all(known is None for known in views.values()):
        return ClusterView(nameservers=views, asked_ms=machine.now_ms())
    try:
        brokers = tuple(target.admin.brokers())
        problem = None
    except FirearrowError as error:
        brokers, problem = (), str(error)
    return ClusterView(
        nameservers=views, brokers=brokers, asked_ms=machine.now_ms(), problem=problem
    )
