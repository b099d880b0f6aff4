"""A controller and three brokers of ours, each a process that can be killed and stopped."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from firearrow import Message, Producer, PullConsumer
from firearrow.base.errors import FirearrowError
from firearrow.base.runtime import SystemClock
from firearrow.net.client import RemotingClient
from firearrow.wire import java_json
from firearrow.wire.bodies.controller import BrokerReplicasInfo, ReplicasInfo
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import Command, request

from .processes import Bench, wait_until

if TYPE_CHECKING:
    from .processes import PeerProcess

START_TIMEOUT_S: Final = 60.0
ASK_MS: Final = 3_000
SEND_MS: Final = 2_000
NAME: Final = "broker-a"
READY: Final = r"ready on 127\.0\.0\.1:(\d+)"


def ask(address: str, command: Command) -> Command:
    """One question to a server, on a connection of its own."""

    async def go() -> Command:
        client = RemotingClient(SystemClock())
        try:
            return await client.invoke(address, command, ASK_MS)
        finally:
            await client.close()

    return asyncio.run(go())


class ReplicaCluster:
    """Each process keeps its port and its files over all its lives."""

    def __init__(self, bench: Bench, replicas: int = 3) -> None:
        self.bench = bench
        self.folder = bench.new_folder("failover")
        self._ports: dict[str, int] = {}
        self._lives = 0
        self.processes: dict[str, PeerProcess] = {}
        self.start("names")
        self.start("controller")
        self.brokers = [f"replica-{number}" for number in range(replicas)]
        for name in self.brokers:
            self.start(name)
        self.wait_for_in_sync(replicas)

    def address(self, name: str) -> str:
        return f"127.0.0.1:{self._ports[name]}"

    def start(self, name: str) -> None:
        self._lives += 1
        port = self._ports.get(name, 0)
        command = [sys.executable, "-m", "firearrow", *self._command(name), "--port", str(port)]
        work_dir = self.folder / name
        work_dir.mkdir(exist_ok=True)
        process = self.bench.start(f"{name}-{self._lives}", command, work_dir=work_dir)
        self.processes[name] = process
        self._ports[name] = int(process.wait_for_line(READY, timeout_s=START_TIMEOUT_S)[1])

    def _command(self, name: str) -> list[str]:
        folder = self.folder / name
        if name == "names":
            kept = [f"kvConfigPath={folder}/kv.json", f"configStorePath={folder}/names.properties"]
            return ["nameserver", *(word for one in kept for word in ("-o", one))]
        if name == "controller":
            return ["controller", "--data", str(folder)]
        settings = {
            "brokerName": NAME,
            "storePathRootDir": folder / "store",
            "enableControllerMode": "true",
            "controllerAddr": self.address("controller"),
            "mappedFileSizeCommitLog": 16 << 20,
            "slaveTimeout": 1_500,
        }
        options = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
        return ["broker", "-n", self.address("names"), *options]

    # --- what the controller says -----------------------------------------------------------

    def info(self) -> ReplicasInfo | None:
        asking = request(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, None, b'["broker-a"]')
        try:
            reply = ask(self.address("controller"), asking)
        except (FirearrowError, OSError):
            return None
        if reply.code:
            return None
        table = java_json.decode(reply.body, BrokerReplicasInfo).replicas_info_table
        return table.get(NAME)

    def wait_for_in_sync(self, count: int) -> None:
        wait_until(
            lambda: (info := self.info()) is not None and len(info.in_sync_replicas) >= count,
            timeout_s=START_TIMEOUT_S,
            what=lambda: f"{count} replicas in sync: {self.info()}",
        )

    def master(self) -> str:
        """The process that is master now."""
        info = self.info()
        assert info is not None
        return next(name for name in self.brokers if self.address(name) == info.master_address)

    def slave(self) -> str:
        master = self.master()
        return next(name for name in self.brokers if name != master)


@dataclass(slots=True)
class Sending:
    """A producer in a thread of its own that never gives up, and what it was told."""

    nameserver: str
    topic: str
    acknowledged: list[tuple[float, int, int, bytes]] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._send, name="producer")
        self._thread.start()

    def _send(self) -> None:
        number = 0
        with Producer("failover", nameservers=self.nameserver, timeout_ms=SEND_MS) as producer:
            while not self._over.is_set():
                number += 1
                body = b"message %d" % number
                try:
                    receipt = producer.send(Message(self.topic, body))
                except (FirearrowError, OSError):
                    continue
                if receipt.ok:
                    place = receipt.queue.queue_id, receipt.queue_offset
                    self.acknowledged.append((time.monotonic(), *place, body))

    def wait_for_more(self, count: int, *, timeout_s: float = 60.0) -> float:
        """Until so many more are acknowledged; how long the first of them took."""
        started, before = time.monotonic(), len(self.acknowledged)
        wait_until(
            lambda: len(self.acknowledged) >= before + count,
            timeout_s=timeout_s,
            what=lambda: f"{count} more messages after {before}",
        )
        return self.acknowledged[before][0] - started

    def stop(self) -> None:
        self._over.set()
        assert self._thread is not None
        self._thread.join()


def read_topic(nameserver: str, topic: str) -> dict[tuple[int, int], bytes]:
    """Every message of a topic by its place."""
    found: dict[tuple[int, int], bytes] = {}
    with PullConsumer("reader", nameservers=nameserver) as consumer:
        queues = consumer.queues(topic)
        consumer.assign(queues)
        ends = {}
        for queue in queues:
            consumer.seek_to_beginning(queue)
            ends[queue.queue_id] = consumer.max_offset(queue)
        while len(found) < sum(ends.values()):
            messages = consumer.poll(5_000)
            assert messages, f"{len(found)} of {sum(ends.values())} messages could be read"
            for message in messages:
                found[message.queue_id, message.queue_offset] = message.body
    return found
