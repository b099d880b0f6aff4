"""The decision topic: made once, on one broker; append, then read who was first.

All records of a scope are in one queue, whose order decides. The topic lies on one broker and stays
there: where it is, name servers remember (namespace FIREARROW), so that nobody makes it anew
elsewhere while that broker is down.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

from firearrow.client.sending import Envelope, SendStatus
from firearrow.hot import decode_properties
from firearrow.model import message as names
from firearrow.model.errors import QueryNotFound, ServerFailed
from firearrow.model.topic import AUTO_CREATE_TOPIC, Perm, TopicFilterType
from firearrow.spark import decisions
from firearrow.spark.decisions import Decision, Seen, Target
from firearrow.spark.errors import ConnectorError
from firearrow.wire import java_json
from firearrow.wire.bodies import ClusterInfo
from firearrow.wire.codes import RequestCode
from firearrow.wire.headers import (
    CreateTopicRequest,
    GetKVConfigReply,
    GetKVConfigRequest,
    PutKVConfigRequest,
)

if TYPE_CHECKING:
    from firearrow.client.routes import TopicRoute
    from firearrow.client.session import Session
    from firearrow.spark.sink_cluster import SinkCluster
    from firearrow.spark.write_options import WriteOptions

NAMESPACE: Final = "FIREARROW"
QUEUES: Final = 16
PAUSE_MS: Final = 20


class DecisionLog:
    """Decisions of one cluster in one topic, as this process has read them."""

    def __init__(self, cluster: SinkCluster, options: WriteOptions) -> None:
        self._cluster = cluster
        self._topic = options.decision_topic
        self._group = options.group
        self._timeout_ms = options.delivery_timeout_ms
        self._seen: dict[str, Seen] = {}
        self._is_there = False

    # --- the topic --------------------------------------------------------------------------

    async def ensure(self, beside: str | None) -> None:
        """See to it that the topic is there; made on the first broker of topic `beside`."""
        if self._is_there:
            return
        session = await self._cluster.open()
        topic = session.wrap(self._topic)
        route = await session.refresh_route(topic)
        if route is None or not route.publish:
            await self._create(session, topic, beside)
        else:
            self._check(route)
        self._is_there = True

    def _check(self, route: TopicRoute) -> None:
        brokers = sorted({queue.broker_name for queue in route.publish})
        if len(brokers) > 1:
            raise ConnectorError(
                f"topic {self._topic} is on brokers {', '.join(brokers)}, but the order of "
                "decisions needs one queue on one broker: delete it on all but one, or name "
                "another topic with the option decisionTopic"
            )

    async def _create(self, session: Session, topic: str, beside: str | None) -> None:
        known = await self._remembered(session, topic)
        masters = await self._masters(session, beside)
        broker = known or min(masters)
        address = masters.get(broker) or (await self._masters(session, None)).get(broker)
        if address is None:
            raise ConnectorError(
                f"broker {broker} keeps the decisions of Spark's writes (topic {self._topic}), and "
                "no name server knows where it is now: start it. If it is gone for good, name a "
                "new topic with the option decisionTopic; a query that stopped in the middle of a "
                "commit may then write that batch twice"
            )
        header = CreateTopicRequest(
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=QUEUES,
            write_queue_nums=QUEUES,
            perm=int(Perm.READ | Perm.WRITE),
            topic_filter_type=TopicFilterType.SINGLE_TAG,
            topic_sys_flag=0,
            order=False,
        )
        await session.call(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        if known is None:
            note = PutKVConfigRequest(namespace=NAMESPACE, key=_key(topic), value=broker)
            for server in session.names.addresses:
                await session.call(server, RequestCode.PUT_KV_CONFIG, note)
        deadline_ms = session.clock.elapsed_ms() + self._timeout_ms
        while True:
            made = await session.refresh_route(topic)
            if made is not None and made.publish:
                self._check(made)
                return
            if session.clock.elapsed_ms() >= deadline_ms:
                raise ConnectorError(
                    f"topic {self._topic} was made on broker {broker}, but name servers have not "
                    "heard of it: look whether that broker reaches them"
                )
            await session.clock.sleep(PAUSE_MS)

    @staticmethod
    async def _masters(session: Session, beside: str | None) -> dict[str, str]:
        """Brokers that take messages, by name: those of a topic, or all."""
        if beside is not None:
            route = await session.publish_route(session.wrap(beside), creation_queue_nums=4)
            brokers = {queue.broker_name for queue in route.publish}
            found = {broker: session.master_address(broker) for broker in brokers}
        else:
            answer = await session.ask_nameserver(RequestCode.GET_BROKER_CLUSTER_INFO)
            table = java_json.decode(answer.body, ClusterInfo).broker_addr_table
            found = {broker: data.master_addr for broker, data in table.items()}
        masters = {broker: address for broker, address in found.items() if address}
        if not masters:
            raise ConnectorError("no broker that takes messages is registered: start one")
        return masters

    @staticmethod
    async def _remembered(session: Session, topic: str) -> str | None:
        header = GetKVConfigRequest(namespace=NAMESPACE, key=_key(topic))
        try:
            answer = await session.ask_nameserver(RequestCode.GET_KV_CONFIG, header)
        except QueryNotFound:
            return None
        return GetKVConfigReply.from_ext(answer.ext).value or None

    async def _queue(self, scope: str) -> Target:
        """The queue of a scope; BrokerNotFound and its like while the broker is away."""
        session = await self._cluster.open()
        topic = session.wrap(self._topic)
        route = await session.route(topic)
        self._check(route)
        queues = sorted(route.publish)
        if not queues:
            await session.refresh_route(topic)
            raise ServerFailed(f"no queue of topic {self._topic} takes messages now")
        chosen = queues[zlib.crc32(scope.encode()) % len(queues)]
        return Target(chosen.broker_name, chosen.topic, chosen.queue_id)

    # --- deciding ---------------------------------------------------------------------------

    async def decide(self, wanted: Decision) -> Decision:
        """Make a decision durable unless there is one already; returns the one that counts."""
        known = await self.find(wanted.scope, wanted.epoch)
        if known is not None:
            return known
        body = decisions.encode(wanted)
        pieces = decisions.pieces_of(body)
        if pieces:
            offsets = [await self._append(wanted, piece, decisions.PIECE) for piece in pieces]
            body = decisions.encode_pieces(offsets, len(body))
        own = await self._append(wanted, body, decisions.DECISION)
        found = await self.find(wanted.scope, wanted.epoch, up_to=own)
        if found is None:
            raise ConnectorError(
                f"the decision on batch {wanted.epoch} of {wanted.scope} was stored at {own} and "
                f"cannot be read: is the topic {self._topic} compacted or filtered?"
            )
        return found

    async def _append(self, wanted: Decision, body: bytes, kind: str) -> int:
        properties = {
            names.KEYS: f"{wanted.scope}:{wanted.epoch}",
            names.SCOPE: wanted.scope,
            names.EPOCH: str(wanted.epoch),
            decisions.KIND: kind,
        }

        async def ask(session: Session) -> int:
            key = session.unique_keys.next()
            text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
            target = await self._queue(wanted.scope)
            packed = Envelope(
                RequestCode.SEND_MESSAGE_V2,
                target.topic,
                body,
                key,
                f"{names.UNIQ_KEY}\x01{key}\x02{text}",
                "0",
                "0",
            )
            receipt = await self._cluster.send(target, packed, self._group)
            if receipt.status in {SendStatus.FLUSH_DISK_TIMEOUT, SendStatus.FLUSH_SLAVE_TIMEOUT}:
                raise ServerFailed(f"the broker could not make it safe in time: {receipt.status}")
            return receipt.queue_offset

        what = f"writing down batch {wanted.epoch} of {wanted.scope}"
        topic = (await self._cluster.open()).wrap(self._topic)
        return await self._cluster.patiently(what, self._timeout_ms, ask, topic=topic)

    async def find(self, scope: str, epoch: int, up_to: int | None = None) -> Decision | None:
        """The decision that counts, if there is one, in the queue as it is now.

        `up_to` is an offset that was written and must be seen.
        """
        seen = self._seen.setdefault(scope, Seen(scope))
        topic = (await self._cluster.open()).wrap(self._topic)
        await self._cluster.patiently(
            f"reading the decisions of {scope}",
            self._timeout_ms,
            lambda session: self._read_on(session, seen, up_to),
            topic=topic,
        )
        body = seen.first(epoch)
        seen.forget_before(epoch)
        if body is None:
            return None
        found = decisions.decode(body)
        if isinstance(found, Decision):
            return found
        whole = decisions.decode(b"".join([await self._piece(scope, at) for at in found]))
        assert isinstance(whole, Decision)
        return whole

    async def _read_on(self, session: Session, seen: Seen, up_to: int | None) -> None:
        target = await self._queue(seen.scope)
        least, behind = await self._cluster.bounds(target)
        if seen.next_offset is None or seen.next_offset < least:
            seen.next_offset = least
        if up_to is not None:
            behind = max(behind, up_to + 1)
        deadline_ms = session.clock.elapsed_ms() + self._timeout_ms
        while seen.next_offset < behind:
            records, following = await self._cluster.read(target, seen.next_offset)
            for record in records:
                if record.queue_offset >= seen.next_offset:
                    seen.note(
                        record.queue_offset, decode_properties(record.properties), record.body
                    )
            if records:
                seen.next_offset = max(seen.next_offset, following)
            elif session.clock.elapsed_ms() >= deadline_ms:
                raise ConnectorError(
                    f"topic {self._topic} ends at {behind}, but cannot be read from "
                    f"{seen.next_offset} on"
                )
            else:
                await session.clock.sleep(PAUSE_MS)

    async def _piece(self, scope: str, offset: int) -> bytes:
        target = await self._queue(scope)
        records, _ = await self._cluster.read(target, offset)
        if not records or records[0].queue_offset != offset:
            raise ConnectorError(
                f"a piece of a decision of {scope} is gone at offset {offset} of topic "
                f"{self._topic}: the broker keeps messages for fileReservedTime hours only"
            )
        return records[0].body


def _key(topic: str) -> str:
    return f"spark.decisions.{topic}"
