"""The express lane of pulls: those that find messages, answered by compiled code per read.

The general handler (`processors/pull.py`) has every rule. A pull that it answered with messages out
of memory, through tags or no filter, opens a gate for its group, topic and queue: the next ones go
through `hot.PullPath` with the same answer. Gates close when anything changes that the rules look
at: topics, groups, settings, what members subscribe to, offsets that are set from outside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from firearrow.hot import PullGate, own_filter, pull_key
from firearrow.model.group import is_tag_type
from firearrow.wire.command import FRAME_BYTES_MAX
from firearrow.wire.headers import PullFlag

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from firearrow.broker.clients import Clients
    from firearrow.broker.offset_table import OffsetTable
    from firearrow.broker.statistics import BrokerStatistics
    from firearrow.hot import PullPath
    from firearrow.model.topic import TopicConfig
    from firearrow.net.connection import Connection
    from firearrow.store.store import MessageStore
    from firearrow.wire import headers

REPLY_BYTES_MAX: Final = 1024 * 1024  # of one read; the pulls behind that many are served in turn
GATES_MAX: Final = 10_000  # a peer may pull with filters of its own, ever new ones
_OWN_FILTER: Final = int(PullFlag.SUBSCRIPTION)
_ANY_VERSION: Final = (1 << 63) - 1


class PullLane:
    """Owns the gates. `serve` is called with every read that the send lane leaves something of."""

    def __init__(
        self,
        store: MessageStore,
        clients: Clients,
        offsets: OffsetTable,
        statistics: BrokerStatistics,
        *,
        suggests: Callable[[], bool] = lambda: False,
    ) -> None:
        self._store = store
        self._clients = clients
        self._offsets = offsets
        self._statistics = statistics
        self._suggests = suggests  # whether readers far behind are told to go elsewhere
        self._gates: dict[bytes, PullGate] = {}
        self._of_group: dict[str, list[bytes]] = {}
        self._path: PullPath | None = None  # made when the store is started
        self.passed = 0  # pulls that came this way
        statistics.before_reading.append(self.count)
        clients.on_change = self.close_gates_of
        offsets.on_jump = self.close_gates

    def open_gate(
        self,
        code: int,
        asked: headers.PullMessageRequest,
        topic: TopicConfig,
        codes: Collection[int] | None,
        reply: headers.PullMessageReply,
    ) -> None:
        """The general handler answered this with messages: the next ones may come this way."""
        group, own, sub_version = asked.consumer_group, "", _ANY_VERSION
        if asked.sys_flag & _OWN_FILTER:
            own = own_filter(asked.subscription, asked.expression_type)
            by_tags = is_tag_type(asked.expression_type or "TAG")
        else:
            members = self._clients.group(group)
            subscription = None if members is None else members.subscriptions.get(asked.topic)
            if subscription is None:
                return
            by_tags = is_tag_type(subscription.expression_type)
            sub_version = subscription.sub_version
        if not by_tags or self._offsets.has_reset(asked.topic, group):
            return
        key = pull_key(code, group, asked.topic, own)
        gate = self._gates.get(key)
        if gate is None:
            if len(self._gates) >= GATES_MAX:
                self.close_gates()
            if self._path is None:
                self._path = self._store.pull_path(self._gates, far=not self._suggests())
            most, bytes_max, scan = self._store.read_limits
            committed, pulled = self._offsets.tables(asked.topic, group)
            gate = self._gates[key] = PullGate(
                asked.topic,
                group,
                [None] * topic.read_queue_nums,
                codes=codes,
                sub_version=sub_version,
                most=most,
                bytes_max=bytes_max,
                scan=scan,
                committed=committed,
                pulled=pulled,
                reply=reply.to_ext(),
            )
            self._of_group.setdefault(group, []).append(key)
        gate.queues[asked.queue_id] = self._store.queue(asked.topic, asked.queue_id)

    def close_gates(self) -> None:
        """Something has changed for everybody: the general handler goes first again."""
        self.count()
        self._gates.clear()
        self._of_group.clear()
        self._path = None

    def close_gates_of(self, group: str) -> None:
        """Something has changed for a group."""
        if group in self._of_group:
            self.count()
            for key in self._of_group.pop(group):
                del self._gates[key]

    def serve(self, connection: Connection, data: bytes) -> int:
        """Answer ordinary pulls from the front of a read; returns how many bytes they took."""
        if not self._gates or self._path is None:
            return 0
        served = self._path.serve(data, FRAME_BYTES_MAX, REPLY_BYTES_MAX)
        if not served.pulls:
            return 0
        self._statistics.gets.count += served.messages
        self._statistics.gets.times += served.pulls
        self.passed += served.pulls
        if served.commits:
            self._offsets.note_commits(served.commits)
        for reply in served.replies:
            connection.send_raw(reply)
        return served.used

    def count(self) -> None:
        """Give the statistics what has passed since the last time."""
        for gate in self._gates.values():
            if gate.pulls:
                key = f"{gate.topic}@{gate.group}"
                self._statistics.add("GROUP_GET_NUMS", key, gate.messages, gate.pulls)
                self._statistics.add("GROUP_GET_SIZE", key, gate.size, gate.pulls)
                gate.pulls = gate.messages = gate.size = 0
