"""First tries of ordinary sends, made at once.

    message ── id ── queue in turn ── one frame, compiled ──▶ connection
                                                                  │
    whoever waits ◀── the receipt, read by `hot.ReceiptReader` ───┘
                  ◀── any other answer as it is, or why there is none

There is no coroutine and no header here, and nothing that could wait: that is most of what a send
would cost. Whatever is not ordinary (an unknown route, no connection, a hook) is left to
`Producer`, which knows all the rules; a try that failed is left to it as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from firearrow.client.selection import by_key
from firearrow.client.sending import (
    SendReceipt,
    SendStatus,
    check_body,
    check_queue,
    check_topic,
    queue_of,
)
from firearrow.hot import ReceiptReader, SendForm
from firearrow.model import message as names
from firearrow.model.topic import is_retry_topic

if TYPE_CHECKING:
    from firearrow.base.runtime import Clock
    from firearrow.client.in_flight import InFlight
    from firearrow.client.message import Message
    from firearrow.client.packing import Packer
    from firearrow.client.routes import TopicRoute
    from firearrow.client.selection import QueueTurns
    from firearrow.client.sending import Batch
    from firearrow.client.session import Session
    from firearrow.model.topic import MessageQueue
    from firearrow.net.connection import Connection, Waiter

    Begun = tuple[int, MessageQueue]  # when it is overdue, and where it went


_receipts: Final = ReceiptReader(SendReceipt, SendStatus.SEND_OK)


def take_receipts(connection: Connection, data: bytes) -> int:
    """The express lane of a producer's connections: answers to quick sends."""
    return _receipts.take(data, connection.pending)


class _Lane(NamedTuple):
    """What all sends to a topic share, as long as its route is this one."""

    wire_topic: str
    route: TopicRoute
    form: SendForm
    shown: dict[MessageQueue, MessageQueue]  # as the application calls them, if it is different


class QuickSends:
    """Begins sends of one producer. All on the event loop."""

    def __init__(
        self,
        session: Session,
        packer: Packer,
        turns: QueueTurns,
        in_flight: InFlight,
        *,
        group: str,
        creation_queue_nums: int,
        max_message_bytes: int,
    ) -> None:
        self._session = session
        self._clock: Clock = session.options.clock
        self._packer = packer
        self._turns = turns
        self._in_flight = in_flight
        self._group = group
        self._creation_text = str(creation_queue_nums)
        self._max_message_bytes = max_message_bytes
        self._lanes: dict[str, _Lane] = {}

    def begin(
        self,
        message: Message,
        waiter: Waiter,
        timeout_ms: int,
        queue: MessageQueue | None = None,
        key: str | int | None = None,
    ) -> Begun | None:
        """Send a message if that is simple; then `waiter` hears how it ended.

        Whoever gets to hear it must call `InFlight.leave`.
        """
        lane = self._lane(message.topic)
        properties = message.properties
        if lane is None or names.MESSAGE_TYPE in properties:
            return None
        body, sys_flag = message.body, 0
        if not body or len(body) >= self._packer.over_bytes:
            check_body(len(body), self._max_message_bytes)
            packed = self._packer.pack_now(body)
            if packed is None:
                return None
            body, sys_flag = packed
        msg_id = self._packer.mark(message)
        if queue is None:
            key = properties.get(names.SHARDING_KEY) if key is None else key
            queues = lane.route.publish
            queue = self._turns.choose(queues) if key is None else by_key(queues, key)
        else:
            check_queue(queue, message.topic)
        sent = (body, properties, msg_id, sys_flag, message.flag)
        return self._launch(lane, queue, sent, waiter, timeout_ms, batch=False)

    def begin_batch(
        self, batch: Batch, waiter: Waiter, timeout_ms: int, queue: MessageQueue | None = None
    ) -> Begun | None:
        """The same for messages that are encoded already."""
        first = batch.messages[0]
        lane = self._lane(first.topic)
        if lane is None:
            return None
        queue = queue or self._turns.choose(lane.route.publish)
        sent = (batch.body, batch.properties, batch.msg_ids, 0, first.flag)
        return self._launch(lane, queue, sent, waiter, timeout_ms, batch=True)

    def _lane(self, topic: str) -> _Lane | None:
        lane = self._lanes.get(topic)
        if lane is None or self._session.known_route(lane.wire_topic) is not lane.route:
            lane = self._new_lane(topic)
        return None if self._in_flight.full else lane

    def _new_lane(self, topic: str) -> _Lane | None:
        check_topic(topic)
        wire_topic = self._session.wrap(topic)
        route = self._session.known_route(wire_topic)
        if route is None or not route.publish or is_retry_topic(wire_topic):
            return None
        shown: dict[MessageQueue, MessageQueue] = {}
        if wire_topic != topic:
            shown = {queue: queue_of(topic, queue) for queue in route.publish}
        form = SendForm(self._group, wire_topic, self._creation_text)
        lane = self._lanes[topic] = _Lane(wire_topic, route, form, shown)
        return lane

    def _launch(
        self,
        lane: _Lane,
        queue: MessageQueue,
        sent: tuple[bytes, dict[str, str], str, int, int],
        waiter: Waiter,
        timeout_ms: int,
        *,
        batch: bool,
    ) -> Begun | None:
        connection = self._session.connection_to_master(queue.broker_name)
        if connection is None:
            return None
        body, properties, msg_id, sys_flag, flag = sent
        opaque = connection.take_opaque()
        frame = lane.form.frame(
            queue.broker_name,
            queue.queue_id,
            properties,
            body,
            opaque,
            self._clock.now_ms(),
            sys_flag,
            flag,
            batch,
        )
        if frame is None:
            return None
        self._in_flight.count += 1
        about = (msg_id, lane.shown.get(queue, queue) if lane.shown else queue)
        deadline_ms = connection.expect(opaque, waiter, timeout_ms, about)
        connection.send_raw(frame)
        return deadline_ms, queue
