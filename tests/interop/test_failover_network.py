"""Three replicas under load from Java and Python: killed, stopped, unplugged, cut off.

In synchronous mode: a message is acknowledged when every member of the in-sync set has it. In the
end everything acknowledged is there, each queue dense and without doubles.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from firearrow.base.errors import FirearrowError
from firearrow.model.errors import ResponseCode

from .failover import (
    WRITABLE_WITHIN_S,
    ReplicaCluster,
    Sending,
    check_acknowledged,
    check_dense,
    read_topic,
    send_to,
)
from .processes import Bench, wait_until
from .rounds import RunningRound, start_java_round
from .wires import Wires

if TYPE_CHECKING:
    from collections.abc import Callable

HOSTS: Final = ("controller", "replica-0", "replica-1", "replica-2")
JAVA_THREADS: Final = 8
PATIENCE_S: Final = 60.0


class Load:
    """Both producers."""

    def __init__(self, java: RunningRound, python: Sending) -> None:
        self.java = java
        self.python = python

    def acknowledged(self) -> tuple[int, int]:
        lines = self.java.process.output().splitlines()
        told = [line for line in lines if line.startswith("acknowledged ")]
        return (int(told[-1].split()[1]) if told else 0), len(self.python.acknowledged)

    def writable(self) -> float:
        """Until both are answered again, besides what may have been under way; how long it took."""
        before, started = self.acknowledged(), time.monotonic()
        wait_until(
            lambda: (
                (now := self.acknowledged())[0] > before[0] + JAVA_THREADS
                and now[1] > before[1] + 1
            ),
            timeout_s=PATIENCE_S,
            what=lambda: f"more than {before}: {self.acknowledged()}",
        )
        return round(time.monotonic() - started, 2)


class Trouble:
    """Faults, each with its end: when `recover` returns, all three are in sync again."""

    def __init__(self, replicas: ReplicaCluster, wires: Wires, load: Load) -> None:
        self._replicas = replicas
        self._wires = wires
        self._load = load
        self.taken: dict[str, float] = {}

    def _measure(self, what: str) -> None:
        self.taken[what] = self._load.writable()
        print(f"{what}: writable after {self.taken[what]} s")

    def recover(self) -> None:
        self._replicas.wait_for_in_sync(3)
        self._load.writable()

    def kill(self, what: str, name: str) -> None:
        self._replicas.processes[name].kill()
        self._measure(what)
        self._replicas.start(name)
        self.recover()

    def stop(self, what: str, name: str) -> None:
        process = self._replicas.processes[name]
        process.freeze()
        try:
            self._measure(what)
        finally:
            process.thaw()
        self.recover()

    def unplug(self, what: str, name: str) -> None:
        self._wires.unplug(name)
        try:
            self._measure(what)
        finally:
            self._wires.plug(name)
        self.recover()

    def cut_off(self, what: str, master: str, topic: str) -> None:
        """From the controller and the slaves; producers still reach it, and it must refuse."""
        others = [name for name in HOSTS if name != master]
        self._wires.cut(master, others)
        try:
            self._measure(what)
            assert self._replicas.master() != master
            for _ in range(3):
                try:
                    code = send_to(self._replicas.address(master), topic)
                except FirearrowError:
                    continue  # it does not even answer
                assert code != ResponseCode.SUCCESS
        finally:
            self._wires.mend(master, others)
        self.recover()


def test_what_three_replicas_acknowledged_survives_kills_stops_and_cuts(
    bench: Bench, unique: Callable[[str], str], record_property: Callable[[str, object], None]
) -> None:
    topic, javas = unique("endured"), unique("endured-java")
    with Wires(HOSTS) as wires:
        replicas = ReplicaCluster(bench, wires=wires)
        names = replicas.address("names")
        python = Sending(names, topic)
        java = start_java_round(bench, names, javas, ["send-through-kills", "find-acknowledged"])
        python.start()
        load = Load(java, python)
        try:
            load.writable()
            taken = _everything_happens(replicas, wires, load, topic)
        finally:
            python.stop()
        java.process.send_line("enough")
        assert java.finish().failures() == {}
        check_acknowledged(names, python)
        check_dense(read_topic(names, javas))
    for what, seconds in taken.items():
        record_property(f"writable after {what}, s", seconds)
    assert {what: s for what, s in taken.items() if s >= WRITABLE_WITHIN_S} == {}


def _everything_happens(
    replicas: ReplicaCluster, wires: Wires, load: Load, topic: str
) -> dict[str, float]:
    trouble = Trouble(replicas, wires, load)
    trouble.kill("master killed", replicas.master())
    trouble.stop("master stopped", replicas.master())
    trouble.unplug("master unplugged", replicas.master())
    trouble.cut_off("master cut off from controller and slaves", replicas.master(), topic)
    trouble.kill("slave killed", replicas.slave())
    trouble.stop("slave stopped", replicas.slave())
    trouble.unplug("slave unplugged", replicas.slave())
    trouble.kill("controller killed", "controller")
    trouble.stop("controller stopped", "controller")
    trouble.unplug("controller unplugged", "controller")
    return trouble.taken
