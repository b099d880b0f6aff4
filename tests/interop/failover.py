"""Controllers and three brokers of ours, each a process that can be killed and stopped."""

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
from firearrow.wire.headers import SendMessageRequestV2
from firearrow.wire.headers import controller as headers

from .processes import Bench, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .processes import PeerProcess
    from .wires import Wires

START_TIMEOUT_S: Final = 60.0
ASK_MS: Final = 3_000
SEND_MS: Final = 2_000
NAME: Final = "broker-a"
WRITABLE_WITHIN_S: Final = 10.0
READY: Final = r"ready on [\d.]+:(\d+)"


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

    def __init__(
        self,
        bench: Bench,
        replicas: int = 3,
        *,
        controllers: Sequence[str] = ("controller",),
        controller_settings: Mapping[str, str] | None = None,
        wires: Wires | None = None,
    ) -> None:
        self.bench = bench
        self._wires = wires
        self.controllers = list(controllers)
        self._controller_settings = dict(controller_settings or {})
        self.folder = bench.new_folder("failover")
        self._ports: dict[str, int] = {}
        self._lives = 0
        self.processes: dict[str, PeerProcess] = {}
        self.start("names")
        for name in self.controllers:
            self.start(name)
        self.brokers = [f"replica-{number}" for number in range(replicas)]
        for name in self.brokers:
            self.start(name)
        self.wait_for_in_sync(replicas)

    def address(self, name: str) -> str:
        host = "127.0.0.1" if self._wires is None else self._wires.host(name)
        return f"{host}:{self._ports[name]}"

    def start(self, name: str) -> None:
        self._lives += 1
        port = self._ports.get(name, 0)
        command = [sys.executable, "-m", "firearrow", *self._command(name), "--port", str(port)]
        if self._wires is not None:
            command = [*self._wires.prefix(name), *command]
            command += ["--host", self._wires.host(name), "--insecure"]
        work_dir = self.folder / name
        work_dir.mkdir(exist_ok=True)
        process = self.bench.start(f"{name}-{self._lives}", command, work_dir=work_dir)
        self.processes[name] = process
        self._ports[name] = int(process.wait_for_line(READY, timeout_s=START_TIMEOUT_S)[1])

    def _command(self, name: str) -> list[str]:
        folder = self.folder / name
        if name == "names":
            given = {
                "kvConfigPath": f"{folder}/kv.json",
                "configStorePath": f"{folder}/names.properties",
            }
            return ["nameserver", *_options(given)]
        if name in self.controllers:
            given = {
                "configStorePath": f"{folder}/controller.properties",
                "controllerDLegerSelfId": name,
                **self._controller_settings,
            }
            return ["controller", "--data", str(folder), *_options(given)]
        settings = {
            "brokerName": NAME,
            "storePathRootDir": folder / "store",
            "enableControllerMode": "true",
            "controllerAddr": ";".join(map(self.address, self.controllers)),
            "mappedFileSizeCommitLog": 16 << 20,
            "slaveTimeout": 1_500,
        }
        return ["broker", "-n", self.address("names"), *_options(settings)]

    # --- what the controllers say -----------------------------------------------------------

    def leader(self) -> str | None:
        """The controller that says of itself that it leads."""
        for name in self.controllers:
            reply = self._ask(name, request(RequestCode.CONTROLLER_GET_METADATA_INFO))
            if reply and headers.GetControllerMetadataReply.from_ext(reply.ext).is_leader:
                return name
        return None

    def _ask(self, controller: str, command: Command) -> Command | None:
        """The answer of a controller, unless it gives none, or a refusal."""
        if self.processes[controller].is_frozen:
            return None  # no need to wait for that
        try:
            reply = ask(self.address(controller), command)
        except (FirearrowError, OSError):
            return None
        return None if reply.code else reply

    def info(self) -> ReplicasInfo | None:
        asking = request(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, None, b'["broker-a"]')
        replies = (self._ask(name, asking) for name in self.controllers)
        reply = next((reply for reply in replies if reply), None)
        if reply is None:
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


def _options(settings: Mapping[str, object]) -> list[str]:
    return [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]


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


def check_acknowledged(nameserver: str, sending: Sending) -> None:
    """Every acknowledged message is there, in its place, and no queue has gaps or doubles."""
    found = read_topic(nameserver, sending.topic)
    for _, queue_id, offset, body in sending.acknowledged:
        assert found.get((queue_id, offset)) == body, f"lost: {body!r} at {queue_id}/{offset}"
    places = [(queue_id, offset) for _, queue_id, offset, _ in sending.acknowledged]
    assert len(set(places)) == len(places), "two messages were acknowledged at one place"
    check_dense(found)


def check_dense(found: Iterable[tuple[int, int]]) -> None:
    """Queue by queue, offsets are 0, 1, 2, …"""
    offsets: dict[int, set[int]] = {}
    for queue_id, offset in found:
        offsets.setdefault(queue_id, set()).add(offset)
    for queue_id, those in offsets.items():
        assert those == set(range(len(those))), f"queue {queue_id} has gaps"


def writable(sending: Sending) -> float:
    """How long it takes until messages are acknowledged again; two, for one may be under way."""
    started = time.monotonic()
    sending.wait_for_more(2)
    took_s = round(time.monotonic() - started, 2)
    print(f"writable after {took_s} s")
    assert took_s < WRITABLE_WITHIN_S
    return took_s


def send_to(address: str, topic: str) -> int:
    """The code with which a broker answers a message."""
    header = SendMessageRequestV2(
        producer_group="stubborn",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=0,
        flag=0,
    )
    return ask(address, request(RequestCode.SEND_MESSAGE_V2, header, b"too late")).code
