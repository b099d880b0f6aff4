"""The express lane of the send path: ordinary messages, served by compiled code per read.

The general handler (`processors/send.py`) has every rule. A message that it stored without needing
a special one opens a gate: the next ones to the same queue go through `hot.SendPath`, whole reads
at a time, with the same effect. Gates close when anything changes that the rules look at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from firearrow.hot import KIND, SendPath, TopicGate, decode_frames, encode_frame
from firearrow.model.message import host_bytes
from firearrow.model.topic import NO_SEND_TOPICS, is_dlq_topic, is_retry_topic
from firearrow.wire.command import FRAME_BYTES_MAX, HEADER_BYTES_MAX

if TYPE_CHECKING:
    from firearrow.broker.disk_waits import DiskWaits
    from firearrow.broker.pull_lane import PullLane
    from firearrow.broker.statistics import BrokerStatistics
    from firearrow.hot import StoreMessage
    from firearrow.model.topic import TopicConfig
    from firearrow.net.connection import Connection, Express
    from firearrow.store.store import MessageStore


PULL_BEGINS: Final = b'{"code":11,"'  # as most clients write a pull, behind the length words


class ExpressLane:
    """Owns the gates. `serve` is called with every read of every connection."""

    def __init__(
        self,
        store: MessageStore,
        statistics: BrokerStatistics,
        disk_waits: DiskWaits,
        *,
        added: dict[str, str],
        reply: dict[str, str],
    ) -> None:
        self._store = store
        self._statistics = statistics
        self._disk_waits = disk_waits
        self._gates: dict[bytes, TopicGate] = {}
        self._path = SendPath(store.writer, self._gates, added, reply)
        self.passed = 0  # messages that came this way
        statistics.before_reading.append(self.count)

    def open_gate(self, topic: TopicConfig, message: StoreMessage) -> None:
        """The general handler stored this in its own topic: the next ones may come this way."""
        name = topic.topic_name
        if (
            message.topic != name
            or name in NO_SEND_TOPICS
            or is_retry_topic(name)
            or is_dlq_topic(name)
            or topic.attributes.get("cleanup.policy") == "COMPACTION"
        ):
            return
        gate = self._gates.get(name.encode())
        if gate is None:
            queues = max(topic.read_queue_nums, topic.write_queue_nums)
            gate = self._gates[name.encode()] = TopicGate(name, [None] * queues)
        if message.queue_id < len(gate.queues):
            gate.queues[message.queue_id] = self._store.queue(name, message.queue_id)

    def close_gates(self) -> None:
        """A topic, a permission or a setting has changed: the general handler goes first again."""
        self.count()
        self._gates.clear()

    def serve(self, connection: Connection, data: bytes) -> int:
        """Store ordinary messages from the front of a read; returns how many bytes they took."""
        store, waits = self._store, self._disk_waits
        if not self._gates or store.refusal or (waits.waits and waits.refusal()):
            return 0
        born_host = connection.note
        if type(born_host) is not bytes:
            born_host = born_host_of(connection)
        served = self._path.serve(data, FRAME_BYTES_MAX, born_host, store.now_ms())
        if not served.messages:
            return 0
        self._statistics.puts.count += served.messages
        self.passed += served.messages
        store.appended()
        if not served.replies:
            return served.used
        if not waits.waits:
            waits.note_unwaited(served.messages)
            connection.send_raw(served.replies)
            return served.used
        connection.begin()

        def tell(code: int) -> None:
            connection.send_raw(with_code(served.replies, code) if code else served.replies)
            connection.finish()

        waits.answer_when_stored(served.end_offset, tell, served.messages)
        return served.used

    def count(self) -> None:
        """Give the statistics what has passed since the last time."""
        for gate in self._gates.values():
            if gate.count:
                self._statistics.add("TOPIC_PUT_NUMS", gate.topic, gate.count, gate.times)
                self._statistics.add("TOPIC_PUT_SIZE", gate.topic, gate.size, gate.times)
                self._statistics.put_bytes += gate.size
                gate.count = gate.times = gate.size = 0


def both_lanes(sends: ExpressLane, pulls: PullLane) -> Express | None:
    """What connections call; None without compiled code, where it would only cost time."""

    def serve(connection: Connection, data: bytes) -> int:
        # Which lane goes first is a guess; each takes only what is its own.
        first, second = sends.serve, pulls.serve
        if data[8:20] == PULL_BEGINS:
            first, second = second, first
        used = first(connection, data)
        while used < len(data):
            taken = second(connection, data[used:] if used else data)
            if not taken:
                break
            used += taken
            first, second = second, first
        return used

    return serve if KIND == "native" else None


def with_code(replies: bytes, code: int) -> bytes:
    """The same replies, saying that the disk is late, or slaves."""
    commands, _, _ = decode_frames(replies, FRAME_BYTES_MAX, HEADER_BYTES_MAX)
    for command in commands:
        command.code = code
    return b"".join(encode_frame(command) for command in commands)


def born_host_of(connection: Connection) -> bytes:
    """The peer's address as records hold it, worked out once."""
    known = connection.note
    if isinstance(known, bytes):
        return known
    host, _, port = connection.peer.rpartition(":")
    try:
        born_host = host_bytes(host.strip("[]"), int(port))
    except ValueError:
        born_host = host_bytes("127.0.0.1", 0)
    connection.note = born_host
    return born_host
