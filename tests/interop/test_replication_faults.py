"""A synchronous pair of ours under load from Java and Python, while everything happens to it.

Killed, frozen, cut off: what a producer was told is stored (SEND_OK) is on the slave, too. In the
end the master and its disk are gone for good, the slave is started as the master, and everything
acknowledged is there, each queue dense and without doubles.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from firearrow import Message, Producer
from firearrow.base.errors import FirearrowError
from firearrow.offline.check import check
from firearrow.offline.directory import StoreDirectory
from firearrow.offline.dump import dump
from firearrow.offline.log_walk import Damage

from .apache import start_name_server
from .processes import wait_until
from .relay import Relay
from .replicas import OurBroker
from .rounds import start_java_round

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from firearrow.hot import Record

    from .processes import Bench
    from .rounds import RunningRound

ACKNOWLEDGED_BETWEEN_FAULTS: Final = 200
PROGRESS_TIMEOUT_S: Final = 90.0
SLAVE_TIMEOUT_MS: Final = 1_000
SETTINGS: Final = {"slaveTimeout": SLAVE_TIMEOUT_MS, "haHousekeepingInterval": 3_000}
QUICK_HEARTBEATS: Final = {"haSendHeartbeatInterval": 1_000}


class PythonLoad(threading.Thread):
    """Sends one message after the other; notes what was acknowledged."""

    def __init__(self, nameserver: str, topic: str) -> None:
        super().__init__(name="python-load")
        self._nameserver = nameserver
        self._topic = topic
        self._enough = threading.Event()
        self.acknowledged: list[bytes] = []
        self.others: dict[str, int] = {}

    def run(self) -> None:
        with Producer(
            "python-load", nameservers=self._nameserver, retries=0, timeout_ms=2_000
        ) as producer:
            number = 0
            while not self._enough.is_set():
                number += 1
                body = b"python-%d" % number
                try:
                    status = producer.send(Message(self._topic, body)).status.value
                except FirearrowError as error:
                    status = type(error).__name__
                    self._enough.wait(0.02)
                if status == "SEND_OK":
                    self.acknowledged.append(body)
                else:
                    self.others[status] = self.others.get(status, 0) + 1

    def stop(self) -> None:
        self._enough.set()
        self.join()


class Load:
    """Both producers, and how much was acknowledged to each."""

    def __init__(self, java: RunningRound, python: PythonLoad) -> None:
        self.java = java
        self.python = python

    def acknowledged(self) -> tuple[int, int]:
        lines = self.java.process.output().splitlines()
        told = [line for line in lines if line.startswith("acknowledged ")]
        return (int(told[-1].split()[1]) if told else 0), len(self.python.acknowledged)

    def wait_for_more(self, count: int = ACKNOWLEDGED_BETWEEN_FAULTS) -> float:
        """Wait until both have got so many more acknowledgements; returns how long it took."""
        before, started = self.acknowledged(), time.monotonic()
        wait_until(
            lambda: all(
                now >= then + least
                for now, then, least in zip(
                    self.acknowledged(), before, (count, count // 10), strict=True
                )
            ),
            timeout_s=PROGRESS_TIMEOUT_S,
            what=lambda: f"more than {before}: {self.acknowledged()}; {self.python.others}",
        )
        return round(time.monotonic() - started, 2)


def records_of(store: Path, topic: str) -> list[Record]:
    """Every message of a topic in a store's log, which must be without a break."""
    found = list(dump(StoreDirectory(store)))
    broken = [one for one in found if isinstance(one, Damage)]
    assert broken == []
    return [
        one.record for one in found if not isinstance(one, Damage) and one.record.topic == topic
    ]


def check_dense(records: list[Record]) -> dict[int, int]:
    """How many messages each queue has; their offsets must be 0, 1, 2, …"""
    offsets: dict[int, list[int]] = {}
    for record in records:
        offsets.setdefault(record.queue_id, []).append(record.queue_offset)
    for queue_id, found in offsets.items():
        assert found == list(range(len(found))), f"queue {queue_id}"
    return {queue_id: len(found) for queue_id, found in offsets.items()}


def test_what_a_synchronous_pair_acknowledged_survives_every_fault_and_the_masters_end(
    bench: Bench, unique: Callable[[str], str]
) -> None:
    nameserver = start_name_server(bench)
    name, topic = unique("pair"), unique("endured")
    extra = SETTINGS | QUICK_HEARTBEATS
    master = OurBroker(
        bench, nameserver.address, name=name, cluster=name, role="SYNC_MASTER", extra=extra
    )
    with Relay(master.port + 1) as relay:
        slave = OurBroker(
            bench,
            nameserver.address,
            name=name,
            cluster=name,
            broker_id=1,
            role="SLAVE",
            extra=extra | {"haMasterAddress": relay.address},
        )
        java = start_java_round(
            bench, nameserver, topic, ["send-through-kills", "find-acknowledged"]
        )
        python = PythonLoad(nameserver.address, topic)
        python.start()
        try:
            writable_s = endure(master, slave, relay, Load(java, python))
        finally:
            python.stop()
        master.kill()  # and never comes back
        slave.kill()
        slave.start(brokerId=0, brokerRole="ASYNC_MASTER")
        java.process.send_line("enough")
        outcome = java.finish()
    assert outcome.failures() == {}
    slave.process.terminate()
    slave.process.wait_for_exit(timeout_s=30)

    store = slave.folder / "store"
    records = records_of(store, topic)
    counts = check_dense(records)
    found = {record.body for record in records}
    lost = [body for body in python.acknowledged if body not in found]
    assert lost == []
    now_ms = time.time_ns() // 1_000_000
    assert check(StoreDirectory(store), now_ms=now_ms).findings == []
    print(f"queues {counts}; acknowledged again after each fault, in seconds: {writable_s}")
    print(f"what else Python was told: {python.others}")


def endure(master: OurBroker, slave: OurBroker, relay: Relay, load: Load) -> dict[str, float]:
    """One fault after the other; the time until messages are acknowledged again after each."""
    taken: dict[str, float] = {"start": load.wait_for_more()}

    slave.kill()
    slave.start()
    taken["slave killed"] = load.wait_for_more()

    master.kill()
    master.start()
    taken["master killed"] = load.wait_for_more()

    slave.process.freeze()
    stalled(load)
    slave.process.thaw()
    taken["slave frozen"] = load.wait_for_more()

    master.process.freeze()
    stalled(load)
    master.process.thaw()
    taken["master frozen"] = load.wait_for_more()

    relay.cut()
    stalled(load)
    relay.heal()
    taken["network cut"] = load.wait_for_more()

    slave.kill()
    master.kill()
    master.start()
    slave.start()
    taken["both killed"] = load.wait_for_more()
    return taken


def stalled(load: Load) -> None:
    """Wait until nothing is acknowledged for two seconds: the fault has taken hold."""
    last, since = load.acknowledged(), time.monotonic()

    def look() -> bool:
        nonlocal last, since
        now = load.acknowledged()
        if now != last:
            last, since = now, time.monotonic()
        return time.monotonic() - since > 2.0

    wait_until(look, timeout_s=PROGRESS_TIMEOUT_S, what="nothing to be acknowledged any more")
