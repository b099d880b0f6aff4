"""Administration from a program: what `mqadmin` can do, as coroutines with typed results.

This file is the list of what there is; how each is done is in the modules `admin_*`:

    admin_cluster   brokers, name servers, their settings
    admin_topics    topics
    admin_groups    groups, who is connected
    admin_offsets   progress, resets
    admin_messages  messages by id, key and place, traces, dead letters
    admin_waiting   open transactions, timers
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Self, Unpack

import msgspec

from firearrow.client import admin_waiting
from firearrow.client.admin_cluster import Cluster
from firearrow.client.admin_groups import Groups, GroupSettings
from firearrow.client.admin_messages import Messages, resend_copy
from firearrow.client.admin_offsets import Offsets, ResetTarget, check_target
from firearrow.client.admin_topics import Topics
from firearrow.client.options import ClientOptions, parse_nameservers
from firearrow.client.producer import Producer
from firearrow.client.session import Session
from firearrow.model.group import SubscriptionGroupConfig
from firearrow.model.topic import TRACE_TOPIC, MessageQueue, TopicConfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from firearrow.client.admin_results import (
        BrokerInfo,
        GroupLag,
        MessageTrace,
        OffsetReset,
        TopicStats,
    )
    from firearrow.client.admin_waiting import BrokerTransactions, TimerPage
    from firearrow.client.message import ReceivedMessage
    from firearrow.client.sending import SendReceipt
    from firearrow.wire.bodies import (
        ClusterInfo,
        ConsumeMessageDirectlyResult,
        ConsumerConnection,
        ConsumerRunningInfo,
        ProducerConnection,
        ProducerInfo,
        TopicRouteData,
    )
    from firearrow.wire.codes import RequestCode
    from firearrow.wire.command import Command
    from firearrow.wire.header import Header

INNER_GROUP: Final = "CLIENT_INNER_PRODUCER"


class Admin:
    """Looks at a cluster and changes it; use it with `async with`.

    Topics and groups have the names that applications use: with a namespace in `client` its
    prefix is added and taken off, and lists show what belongs to it. A broker is named by its
    name, which stands for its master, or by its address.

    Args:
        nameservers: ``host:port``, several joined by semicolons; else environment NAMESRV_ADDR.
        timeout_ms: For each request.
        client: Settings that all clients share.
    """

    def __init__(
        self,
        *,
        nameservers: str | Sequence[str] | None = None,
        timeout_ms: int = 5_000,
        client: ClientOptions | None = None,
    ) -> None:
        self._nameservers = parse_nameservers(nameservers)
        self._options = replace(client or ClientOptions(), call_timeout_ms=timeout_ms)
        self._session = Session(self._nameservers, self._options)
        self._cluster = Cluster(self._session)
        self._topics = Topics(self._cluster)
        self._groups = Groups(self._cluster)
        self._offsets = Offsets(self._cluster, self._groups)
        self._messages = Messages(self._cluster)
        self._producer: Producer | None = None  # made when something is resent

    # --- life -------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin; `async with` does it. No server need be reachable yet."""
        await self._session.start()

    async def close(self) -> None:
        """End; questions under way fail with a lost connection."""
        if self._producer is not None:
            await self._producer.close()
        await self._session.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _wire(self, name: str) -> str:
        self._session.check_running()
        return self._session.wrap(name)

    async def _queue(self, queue: MessageQueue) -> MessageQueue:
        """A queue as it is called on the wire; the address of its broker is known afterwards."""
        self._session.check_running()
        await self._cluster.master(queue.broker_name)
        return self._cluster.on_wire(queue)

    def _own(self, names: list[str]) -> list[str]:
        return [name for _, name in self._names(names)]

    def _names(self, names: Iterable[str]) -> list[tuple[str, str]]:
        """Names on the wire that belong to the namespace, each with the application's."""
        return [(one, self._session.unwrap(one)) for one in names if self._cluster.is_ours(one)]

    # --- cluster ----------------------------------------------------------------------------

    async def clusters(self) -> ClusterInfo:
        """Which clusters there are, of which brokers, at which addresses."""
        self._session.check_running()
        return await self._cluster.info()

    async def brokers(self) -> list[BrokerInfo]:
        """Every broker, slaves included, and how it says it is doing."""
        self._session.check_running()
        return await self._cluster.brokers()

    async def broker_config(self, broker: str) -> dict[str, str]:
        """All settings of a broker, by RocketMQ's names."""
        self._session.check_running()
        return await self._cluster.broker_config(await self._cluster.one(broker))

    async def update_broker_config(
        self, settings: Mapping[str, str], *, broker: str | None = None, cluster: str | None = None
    ) -> None:
        """Change settings of one broker, or of all masters of a cluster, while they run."""
        self._session.check_running()
        await self._cluster.update_broker_config(settings, cluster, broker)

    async def nameserver_config(self) -> dict[str, dict[str, str]]:
        """All settings of every name server, by its address."""
        self._session.check_running()
        return await self._cluster.nameserver_config()

    async def update_nameserver_config(self, settings: Mapping[str, str]) -> None:
        """Change settings of all name servers while they run."""
        self._session.check_running()
        await self._cluster.update_nameserver_config(settings)

    async def get_kv(self, namespace: str, key: str) -> str:
        """A key-value setting of the name servers; QueryNotFound if there is none."""
        self._session.check_running()
        return await self._cluster.kv(namespace, key)

    async def list_kv(self, namespace: str) -> dict[str, str]:
        """All key-value settings of a namespace; QueryNotFound if there are none."""
        self._session.check_running()
        return await self._cluster.kv_namespace(namespace)

    async def put_kv(self, namespace: str, key: str, value: str) -> None:
        """Set a key-value setting on all name servers."""
        self._session.check_running()
        await self._cluster.put_kv(namespace, key, value)

    async def delete_kv(self, namespace: str, key: str) -> None:
        """Remove a key-value setting from all name servers; also one that is not there."""
        self._session.check_running()
        await self._cluster.delete_kv(namespace, key)

    async def wipe_write_permission(self, broker: str) -> dict[str, int]:
        """Have producers leave a broker, say before it stops; topics changed by name server.

        It lasts until the broker registers changed topics, or until `add_write_permission`.
        """
        self._session.check_running()
        return await self._cluster.wipe_write_permission(broker)

    async def add_write_permission(self, broker: str) -> dict[str, int]:
        """Have producers use a broker again; topics changed by name server."""
        self._session.check_running()
        return await self._cluster.add_write_permission(broker)

    async def request(
        self, address: str, code: RequestCode, header: Header | None = None, body: bytes = b""
    ) -> Command:
        """Any request at all, to any server; its answer, or the error that it stands for.

        For what has no method of its own. Names are not translated: they are the wire's.
        """
        self._session.check_running()
        return await self._session.call(address, code, header, body)

    # --- topics -----------------------------------------------------------------------------

    async def topics(self, *, include_system: bool = False) -> list[str]:
        """Names of topics; RocketMQ's own, retry and dead-letter topics only if asked for."""
        self._session.check_running()
        return self._own(await self._topics.names(include_system=include_system))

    async def create_topic(
        self,
        name: str,
        *,
        queues: int = 8,
        perm: int = 6,
        order: bool = False,
        attributes: Mapping[str, str | None] | None = None,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> None:
        """Create a topic on one broker, on a cluster, or on the only cluster there is.

        Args:
            name: Letters, digits and ``% | _ -``, up to 127.
            queues: On each broker.
            perm: 2 to write, 4 to read, 6 for both.
            order: Messages stay in order even while a broker is away: the number of queues is
                written down with the name servers, too.
            attributes: RocketMQ 5's, such as ``{"message.type": "FIFO"}``.
            cluster: Every broker of this cluster.
            broker: This one only.

        Raises:
            AlreadyExists: It is there with other settings. With the same ones, all is well.
        """
        wanted = TopicConfig(
            topic_name=self._wire(name),
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=perm,
            order=order,
        )
        await self._topics.create(wanted, attributes, cluster, broker)

    async def update_topic(
        self,
        name: str,
        *,
        queues: int | None = None,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: int | None = None,
        order: bool | None = None,
        attributes: Mapping[str, str | None] | None = None,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> None:
        """Change settings of a topic wherever it is; what is not given stays as it is.

        To have fewer queues, lower `write_queues` first, and `read_queues` once the others are
        empty. An attribute of None is removed.
        """
        given = {
            "read_queue_nums": read_queues if read_queues is not None else queues,
            "write_queue_nums": write_queues if write_queues is not None else queues,
            "perm": perm,
            "order": order,
        }
        changes = {key: value for key, value in given.items() if value is not None}
        await self._topics.update(self._wire(name), changes, attributes, cluster, broker)

    async def topic_config(self, name: str) -> dict[str, TopicConfig]:
        """Settings of a topic by broker name."""
        return {
            broker: msgspec.structs.replace(
                config, topic_name=self._session.unwrap(config.topic_name)
            )
            for broker, config in (await self._topics.configs(self._wire(name))).items()
        }

    async def topic_configs(self) -> dict[str, dict[str, TopicConfig]]:
        """Settings of every topic, by topic and broker name; one request to each broker."""
        self._session.check_running()
        found = await self._topics.all_configs()
        return {name: found[wire] for wire, name in self._names(found)}

    async def delete_topic(self, name: str, *, cluster: str | None = None) -> None:
        """Delete a topic with its messages and offsets, in one cluster or everywhere."""
        await self._topics.delete(self._wire(name), cluster)

    async def topic_route(self, name: str) -> TopicRouteData:
        """Where a topic lives; NoRoute if nowhere."""
        return await self._topics.route(self._wire(name))

    async def topic_stats(self, name: str) -> TopicStats:
        """How full each queue of a topic is."""
        return await self._topics.stats(self._wire(name))

    async def topic_groups(self, name: str) -> list[str]:
        """Groups that consume a topic, or once did."""
        return self._own(await self._topics.groups(self._wire(name)))

    async def order_conf(self, topic: str) -> dict[str, int]:
        """Queues by broker of an ordered topic; empty if nothing is written down."""
        return await self._topics.order_conf(self._wire(topic))

    async def set_order_conf(self, topic: str, queues: Mapping[str, int]) -> None:
        """Write down the queues by broker of an ordered topic."""
        await self._topics.set_order_conf(self._wire(topic), queues)

    async def delete_order_conf(self, topic: str) -> None:
        """Forget the queues by broker of an ordered topic."""
        await self._topics.delete_order_conf(self._wire(topic))

    # --- queues -----------------------------------------------------------------------------

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that can be read."""
        return [self._cluster.shown(one) for one in await self._topics.queues(self._wire(topic))]

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message that a queue still has."""
        return await self._cluster.calls.min_offset(await self._queue(queue))

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message of a queue will get."""
        return await self._cluster.calls.max_offset(await self._queue(queue))

    async def offset_at(self, queue: MessageQueue, time_ms: int) -> int:
        """The offset of the first message stored at or after a time."""
        return await self._cluster.calls.offset_at(await self._queue(queue), time_ms)

    async def earliest_store_time(self, queue: MessageQueue) -> int | None:
        """When the oldest message of a queue was stored; None if it is empty."""
        time_ms = await self._cluster.calls.earliest_store_time(await self._queue(queue))
        return time_ms if time_ms >= 0 else None

    # --- groups -----------------------------------------------------------------------------

    async def groups(self, *, include_system: bool = False) -> list[str]:
        """Names of consumer groups; RocketMQ's own only if asked for."""
        self._session.check_running()
        return self._own(await self._groups.names(include_system=include_system))

    async def create_group(
        self,
        name: str,
        *,
        cluster: str | None = None,
        broker: str | None = None,
        **settings: Unpack[GroupSettings],
    ) -> None:
        """Create a consumer group on one broker, on a cluster, or on the only cluster there is.

        AlreadyExists if it is there with other settings; with the same ones, all is well.
        """
        wanted = SubscriptionGroupConfig(group_name=self._wire(name), **settings)
        await self._groups.create(wanted, cluster, broker)

    async def update_group(
        self,
        name: str,
        *,
        cluster: str | None = None,
        broker: str | None = None,
        **settings: Unpack[GroupSettings],
    ) -> None:
        """Change settings of a group wherever it is; what is not given stays as it is."""
        await self._groups.update(self._wire(name), settings, cluster, broker)

    async def group_config(self, name: str) -> dict[str, SubscriptionGroupConfig]:
        """Settings of a group by broker name."""
        return {
            broker: msgspec.structs.replace(
                config, group_name=self._session.unwrap(config.group_name)
            )
            for broker, config in (await self._groups.configs(self._wire(name))).items()
        }

    async def group_configs(self) -> dict[str, dict[str, SubscriptionGroupConfig]]:
        """Settings of every group, by group and broker name; one request to each broker."""
        self._session.check_running()
        found = await self._groups.all_configs()
        return {name: found[wire] for wire, name in self._names(found)}

    async def delete_group(
        self,
        name: str,
        *,
        cluster: str | None = None,
        remove_offsets: bool = True,
        remove_topics: bool = True,
    ) -> None:
        """Delete a group, what it has committed, and its retry and dead-letter topics.

        Stop its consumers first: a running member may bring it back.
        """
        await self._groups.delete(
            self._wire(name), cluster, remove_offsets=remove_offsets, remove_topics=remove_topics
        )

    async def consumer_connections(self, group: str) -> ConsumerConnection:
        """Members of a group that are connected; ConsumerNotOnline if there are none."""
        return await self._groups.consumers(self._wire(group))

    async def producer_connections(
        self, group: str, topic: str | None = None
    ) -> ProducerConnection:
        """Producers of a group that are connected to brokers of a topic, or to any."""
        on_wire = None if topic is None else self._wire(topic)
        return await self._groups.producers(self._wire(group), on_wire)

    async def producers(self) -> dict[str, tuple[ProducerInfo, ...]]:
        """Every producer that is connected, by its group."""
        self._session.check_running()
        found = await self._groups.all_producers()
        return {name: found[wire] for wire, name in self._names(found)}

    async def running_info(
        self, group: str, client_id: str, *, stacks: bool = False
    ) -> ConsumerRunningInfo:
        """What one member of a group is doing, as it says itself."""
        return await self._groups.running_info(self._wire(group), client_id, stacks=stacks)

    # --- progress ---------------------------------------------------------------------------

    async def group_lag(self, group: str, topic: str | None = None) -> GroupLag:
        """How far a group is in each queue, and how many messages wait for it."""
        on_wire = None if topic is None else self._wire(topic)
        return await self._offsets.lag(self._wire(group), on_wire)

    async def group_lags(self) -> dict[str, GroupLag]:
        """How far every group is that has committed something; one request to each broker."""
        self._session.check_running()
        found = await self._offsets.all_lags()
        return {name: found[wire] for wire, name in self._names(found)}

    async def committed_offsets(self, group: str, topic: str) -> dict[MessageQueue, int | None]:
        """What a group has committed, by queue; None where it has committed nothing."""
        found = await self._offsets.committed(self._wire(group), self._wire(topic))
        return {self._cluster.shown(queue): offset for queue, offset in found.items()}

    async def reset_offset(
        self,
        group: str,
        topic: str,
        to: ResetTarget,
        *,
        force: bool = True,
        dry_run: bool = False,
    ) -> OffsetReset:
        """Have a group go on elsewhere in a topic, whether it is running or not.

        Args:
            group: Who.
            topic: Of its topics, this one.
            to: A time in milliseconds since 1970, ``"earliest"``, ``"latest"``, or offsets by
                queue; queues that are not named stay where they are.
            force: Without it the group only goes back, never forward.
            dry_run: Change nothing; only tell what would come again and what be skipped.

        Returns:
            Queue by queue where the group was and where it goes on.
        """
        check_target(to)
        if isinstance(to, Mapping):
            to = {self._cluster.on_wire(queue): offset for queue, offset in to.items()}
        return await self._offsets.reset(
            self._wire(group), self._wire(topic), to, force=force, dry_run=dry_run
        )

    async def clone_offsets(
        self, source: str, target: str, topic: str | None = None
    ) -> dict[MessageQueue, int]:
        """Put a group where another one is, in one topic or in all; returns the offsets."""
        on_wire = None if topic is None else self._wire(topic)
        found = await self._offsets.clone(self._wire(source), self._wire(target), on_wire)
        return {self._cluster.shown(queue): offset for queue, offset in found.items()}

    # --- messages ---------------------------------------------------------------------------

    async def message_by_id(self, msg_id: str, topic: str | None = None) -> ReceivedMessage:
        """Find a message by the broker's id, or by the producer's and its topic.

        QueryNotFound if it is not there, or not any more.
        """
        self._session.check_running()
        on_wire = None if topic is None else self._wire(topic)
        return await self._messages.by_id(msg_id, on_wire)

    async def messages_by_key(
        self,
        topic: str,
        key: str,
        *,
        begin_ms: int = 0,
        end_ms: int | None = None,
        limit: int = 32,
    ) -> list[ReceivedMessage]:
        """Messages of a topic with a key, stored between two times, oldest first."""
        return await self._messages.by_key(self._wire(topic), key, begin_ms, end_ms, limit)

    async def message_at(self, queue: MessageQueue, offset: int) -> ReceivedMessage:
        """The message at a place of a queue; QueryNotFound if there is none."""
        return await self._messages.at(await self._queue(queue), offset)

    async def messages_between(
        self, queue: MessageQueue, begin: int, end: int | None = None
    ) -> AsyncIterator[ReceivedMessage]:
        """What a queue has from an offset up to another (exclusive), or to its end of now."""
        async for message in self._messages.between(await self._queue(queue), begin, end):
            yield message

    async def message_trace(
        self,
        msg_id: str,
        *,
        trace_topic: str | None = None,
        begin_ms: int = 0,
        end_ms: int | None = None,
    ) -> MessageTrace:
        """What happened to a message, as producers and consumers with `trace=True` wrote down."""
        topic = self._wire(trace_topic or TRACE_TOPIC)
        return await self._messages.trace(msg_id, topic, begin_ms, end_ms)

    async def consume_directly(
        self, group: str, client_id: str, message: ReceivedMessage
    ) -> ConsumeMessageDirectlyResult:
        """Have one member consume a message now, and hear what it made of it."""
        on_wire = self._wire(group)
        address = await self._cluster.master(message.broker_name)
        return await self._groups.consume_directly(
            on_wire, client_id, message.queue.topic, message.offset_msg_id, address
        )

    # --- what waits -------------------------------------------------------------------------

    async def open_transactions(self, limit: int = 100) -> list[BrokerTransactions]:
        """Half messages that wait for their end, with age and number of checks, by broker.

        Brokers that cannot say, Apache's, are left out.
        """
        return await admin_waiting.open_transactions(self, limit)

    async def timer_counts(self) -> dict[str, int]:
        """How many messages of each topic wait for their time, on all brokers."""
        return await admin_waiting.timer_counts(self)

    async def waiting_timers(self, topic: str, *, begin_ms: int = 0, limit: int = 100) -> TimerPage:
        """Messages of a topic that wait for their time, soonest first, with recall handles.

        RequestNotSupported by Apache's brokers.
        """
        return await admin_waiting.waiting_timers(
            self, self._wire(topic), begin_ms=begin_ms, limit=limit
        )

    # --- dead letters -----------------------------------------------------------------------

    async def dlq_messages(
        self, group: str, limit: int | None = None
    ) -> AsyncIterator[ReceivedMessage]:
        """What a group gave up on, oldest first; it stays in the queue."""
        async for message in self._messages.dead_letters(self._wire(group), limit):
            yield message

    async def resend_dlq(
        self, message: ReceivedMessage, *, topic: str | None = None
    ) -> SendReceipt:
        """Give a dead letter another chance.

        It goes back to its group alone, which sees it under the topic where it came from; or to
        a topic, where every group sees it. It keeps its id, and stays in the dead-letter queue.
        """
        self._session.check_running()
        copy = resend_copy(message, topic)
        await self._cluster.route(self._wire(copy.topic))
        if self._producer is None:
            self._producer = Producer(
                INNER_GROUP, nameservers=self._nameservers, client=self._options
            )
            await self._producer.start()
        return await self._producer.send(copy)
