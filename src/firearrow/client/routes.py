"""Where topics live: what a name server says about it, and which queues follow from that.

The rules are RocketMQ's. A producer sends to queues of brokers that have a master; a consumer
reads from every readable queue. Clients sort queues by topic, broker name and number, and must
agree on the result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from firearrow.model.topic import MASTER_ID, MessageQueue, Perm, parse_order_conf

if TYPE_CHECKING:
    from collections.abc import Iterable

    from firearrow.wire.bodies import TopicRouteData


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """One topic's place in the cluster."""

    data: TopicRouteData
    publish: tuple[MessageQueue, ...]
    subscribe: tuple[MessageQueue, ...]

    @classmethod
    def of(cls, topic: str, data: TopicRouteData) -> TopicRoute:
        """Work out the queues of a route."""
        data = normalised(data)
        return cls(data, publish_queues(topic, data), subscribe_queues(topic, data))


def normalised(data: TopicRouteData) -> TopicRouteData:
    """The same route, always in the same order, so that two can be compared."""
    return msgspec.structs.replace(
        data,
        queue_datas=tuple(sorted(data.queue_datas, key=lambda queue: queue.broker_name)),
        broker_datas=tuple(sorted(data.broker_datas, key=lambda broker: broker.broker_name)),
    )


def publish_queues(topic: str, data: TopicRouteData) -> tuple[MessageQueue, ...]:
    """The queues that a producer chooses from."""
    if data.order_topic_conf:
        counts: Iterable[tuple[str, int]] = parse_order_conf(data.order_topic_conf).items()
    else:
        masters = {broker.broker_name for broker in data.broker_datas if broker.master_addr}
        counts = (
            (queue.broker_name, queue.write_queue_nums)
            for queue in data.queue_datas
            if queue.perm & Perm.WRITE and queue.broker_name in masters
        )
    return _queues(topic, counts)


def subscribe_queues(topic: str, data: TopicRouteData) -> tuple[MessageQueue, ...]:
    """The queues that a group shares, sorted as every client sorts them."""
    return _queues(
        topic,
        (
            (queue.broker_name, queue.read_queue_nums)
            for queue in data.queue_datas
            if queue.perm & Perm.READ
        ),
    )


def _queues(topic: str, counts: Iterable[tuple[str, int]]) -> tuple[MessageQueue, ...]:
    return tuple(
        MessageQueue(topic=topic, broker_name=broker, queue_id=number)
        for broker, count in counts
        for number in range(count)
    )


def like_creation_topic(data: TopicRouteData, queue_nums: int) -> TopicRouteData:
    """The route that a topic will have once the broker creates it on the first send."""
    return msgspec.structs.replace(
        data,
        order_topic_conf=None,
        queue_datas=tuple(
            msgspec.structs.replace(
                queue,
                read_queue_nums=min(queue_nums, queue.read_queue_nums),
                write_queue_nums=min(queue_nums, queue.read_queue_nums),
            )
            for queue in data.queue_datas
        ),
    )


class Brokers:
    """Addresses by broker name and id, gathered from all routes; pure state."""

    def __init__(self) -> None:
        self._addresses: dict[str, dict[int, str]] = {}
        self._suggested: dict[MessageQueue, int] = {}

    def update(self, data: TopicRouteData) -> None:
        for broker in data.broker_datas:
            self._addresses[broker.broker_name] = dict(broker.broker_addrs)

    def keep_only(self, routes: Iterable[TopicRoute]) -> None:
        """Forget brokers that no route names any more."""
        named = {broker.broker_name for route in routes for broker in route.data.broker_datas}
        for name in set(self._addresses) - named:
            del self._addresses[name]

    def master(self, name: str) -> str | None:
        return self._addresses.get(name, {}).get(MASTER_ID)

    def replica(self, name: str, wanted_id: int = MASTER_ID) -> tuple[str, int] | None:
        """The wanted member of a broker, or another one when it is not there."""
        members = self._addresses.get(name)
        if not members:
            return None
        for number in (wanted_id, wanted_id + 1) if wanted_id != MASTER_ID else (wanted_id,):
            if number in members:
                return members[number], number
        number = min(members)
        return members[number], number

    def suggest(self, queue: MessageQueue, broker_id: int) -> None:
        """A broker said which member should be asked next time."""
        if broker_id == MASTER_ID:
            self._suggested.pop(queue, None)
        else:
            self._suggested[queue] = broker_id

    def suggested(self, queue: MessageQueue) -> int:
        return self._suggested.get(queue, MASTER_ID)

    def all(self) -> list[tuple[str, int, str]]:
        """Name, id and address of every member known."""
        return [
            (name, number, address)
            for name, members in sorted(self._addresses.items())
            for number, address in sorted(members.items())
        ]
