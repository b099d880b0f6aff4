"""Administration without `await`: the methods of `client/admin.py`, one for one.

Written by scripts/blocking-admin; a test checks that it is fresh. Change admin.py instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from firearrow.client import admin as aio_admin
from firearrow.client.blocking import BlockingClient
from firearrow.client.portal import portal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from firearrow.client.admin_groups import GroupSettings
    from firearrow.client.admin_offsets import ResetTarget
    from firearrow.client.admin_results import (
        BrokerInfo,
        GroupLag,
        MessageTrace,
        OffsetReset,
        TopicStats,
    )
    from firearrow.client.admin_waiting import BrokerTransactions, TimerPage
    from firearrow.client.message import ReceivedMessage
    from firearrow.client.options import ClientOptions
    from firearrow.client.sending import SendReceipt
    from firearrow.model.group import SubscriptionGroupConfig
    from firearrow.model.topic import MessageQueue, TopicConfig
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


class Admin(BlockingClient[aio_admin.Admin]):
    """Looks at a cluster and changes it; use it with `with`.

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
        super().__init__(
            lambda: aio_admin.Admin(nameservers=nameservers, timeout_ms=timeout_ms, client=client),
            survives_fork=True,
        )

    def clusters(self) -> ClusterInfo:
        """Which clusters there are, of which brokers, at which addresses."""
        return portal.call(self._here().clusters)

    def brokers(self) -> list[BrokerInfo]:
        """Every broker, slaves included, and how it says it is doing."""
        return portal.call(self._here().brokers)

    def broker_config(self, broker: str) -> dict[str, str]:
        """All settings of a broker, by RocketMQ's names."""
        return portal.call(self._here().broker_config, broker)

    def update_broker_config(
        self, settings: Mapping[str, str], *, broker: str | None = None, cluster: str | None = None
    ) -> None:
        """Change settings of one broker, or of all masters of a cluster, while they run."""
        portal.call(self._here().update_broker_config, settings, broker=broker, cluster=cluster)

    def nameserver_config(self) -> dict[str, dict[str, str]]:
        """All settings of every name server, by its address."""
        return portal.call(self._here().nameserver_config)

    def update_nameserver_config(self, settings: Mapping[str, str]) -> None:
        """Change settings of all name servers while they run."""
        portal.call(self._here().update_nameserver_config, settings)

    def get_kv(self, namespace: str, key: str) -> str:
        """A key-value setting of the name servers; QueryNotFound if there is none."""
        return portal.call(self._here().get_kv, namespace, key)

    def list_kv(self, namespace: str) -> dict[str, str]:
        """All key-value settings of a namespace; QueryNotFound if there are none."""
        return portal.call(self._here().list_kv, namespace)

    def put_kv(self, namespace: str, key: str, value: str) -> None:
        """Set a key-value setting on all name servers."""
        portal.call(self._here().put_kv, namespace, key, value)

    def delete_kv(self, namespace: str, key: str) -> None:
        """Remove a key-value setting from all name servers; also one that is not there."""
        portal.call(self._here().delete_kv, namespace, key)

    def wipe_write_permission(self, broker: str) -> dict[str, int]:
        """Have producers leave a broker, say before it stops; topics changed by name server."""
        return portal.call(self._here().wipe_write_permission, broker)

    def add_write_permission(self, broker: str) -> dict[str, int]:
        """Have producers use a broker again; topics changed by name server."""
        return portal.call(self._here().add_write_permission, broker)

    def request(
        self, address: str, code: RequestCode, header: Header | None = None, body: bytes = b""
    ) -> Command:
        """Any request at all, to any server; its answer, or the error that it stands for."""
        return portal.call(self._here().request, address, code, header, body)

    def topics(self, *, include_system: bool = False) -> list[str]:
        """Names of topics; RocketMQ's own, retry and dead-letter topics only if asked for."""
        return portal.call(self._here().topics, include_system=include_system)

    def create_topic(
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
        """Create a topic on one broker, on a cluster, or on the only cluster there is."""
        portal.call(
            self._here().create_topic,
            name,
            queues=queues,
            perm=perm,
            order=order,
            attributes=attributes,
            cluster=cluster,
            broker=broker,
        )

    def update_topic(
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
        """Change settings of a topic wherever it is; what is not given stays as it is."""
        portal.call(
            self._here().update_topic,
            name,
            queues=queues,
            read_queues=read_queues,
            write_queues=write_queues,
            perm=perm,
            order=order,
            attributes=attributes,
            cluster=cluster,
            broker=broker,
        )

    def topic_config(self, name: str) -> dict[str, TopicConfig]:
        """Settings of a topic by broker name."""
        return portal.call(self._here().topic_config, name)

    def topic_configs(self) -> dict[str, dict[str, TopicConfig]]:
        """Settings of every topic, by topic and broker name; one request to each broker."""
        return portal.call(self._here().topic_configs)

    def delete_topic(self, name: str, *, cluster: str | None = None) -> None:
        """Delete a topic with its messages and offsets, in one cluster or everywhere."""
        portal.call(self._here().delete_topic, name, cluster=cluster)

    def topic_route(self, name: str) -> TopicRouteData:
        """Where a topic lives; NoRoute if nowhere."""
        return portal.call(self._here().topic_route, name)

    def topic_stats(self, name: str) -> TopicStats:
        """How full each queue of a topic is."""
        return portal.call(self._here().topic_stats, name)

    def topic_groups(self, name: str) -> list[str]:
        """Groups that consume a topic, or once did."""
        return portal.call(self._here().topic_groups, name)

    def order_conf(self, topic: str) -> dict[str, int]:
        """Queues by broker of an ordered topic; empty if nothing is written down."""
        return portal.call(self._here().order_conf, topic)

    def set_order_conf(self, topic: str, queues: Mapping[str, int]) -> None:
        """Write down the queues by broker of an ordered topic."""
        portal.call(self._here().set_order_conf, topic, queues)

    def delete_order_conf(self, topic: str) -> None:
        """Forget the queues by broker of an ordered topic."""
        portal.call(self._here().delete_order_conf, topic)

    def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that can be read."""
        return portal.call(self._here().queues, topic)

    def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message that a queue still has."""
        return portal.call(self._here().min_offset, queue)

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message of a queue will get."""
        return portal.call(self._here().max_offset, queue)

    def offset_at(self, queue: MessageQueue, time_ms: int) -> int:
        """The offset of the first message stored at or after a time."""
        return portal.call(self._here().offset_at, queue, time_ms)

    def earliest_store_time(self, queue: MessageQueue) -> int | None:
        """When the oldest message of a queue was stored; None if it is empty."""
        return portal.call(self._here().earliest_store_time, queue)

    def groups(self, *, include_system: bool = False) -> list[str]:
        """Names of consumer groups; RocketMQ's own only if asked for."""
        return portal.call(self._here().groups, include_system=include_system)

    def create_group(
        self,
        name: str,
        *,
        cluster: str | None = None,
        broker: str | None = None,
        **settings: Unpack[GroupSettings],
    ) -> None:
        """Create a consumer group on one broker, on a cluster, or on the only cluster there is."""
        portal.call(self._here().create_group, name, cluster=cluster, broker=broker, **settings)

    def update_group(
        self,
        name: str,
        *,
        cluster: str | None = None,
        broker: str | None = None,
        **settings: Unpack[GroupSettings],
    ) -> None:
        """Change settings of a group wherever it is; what is not given stays as it is."""
        portal.call(self._here().update_group, name, cluster=cluster, broker=broker, **settings)

    def group_config(self, name: str) -> dict[str, SubscriptionGroupConfig]:
        """Settings of a group by broker name."""
        return portal.call(self._here().group_config, name)

    def group_configs(self) -> dict[str, dict[str, SubscriptionGroupConfig]]:
        """Settings of every group, by group and broker name; one request to each broker."""
        return portal.call(self._here().group_configs)

    def delete_group(
        self,
        name: str,
        *,
        cluster: str | None = None,
        remove_offsets: bool = True,
        remove_topics: bool = True,
    ) -> None:
        """Delete a group, what it has committed, and its retry and dead-letter topics."""
        portal.call(
            self._here().delete_group,
            name,
            cluster=cluster,
            remove_offsets=remove_offsets,
            remove_topics=remove_topics,
        )

    def consumer_connections(self, group: str) -> ConsumerConnection:
        """Members of a group that are connected; ConsumerNotOnline if there are none."""
        return portal.call(self._here().consumer_connections, group)

    def producer_connections(self, group: str, topic: str | None = None) -> ProducerConnection:
        """Producers of a group that are connected to brokers of a topic, or to any."""
        return portal.call(self._here().producer_connections, group, topic)

    def producers(self) -> dict[str, tuple[ProducerInfo, ...]]:
        """Every producer that is connected, by its group."""
        return portal.call(self._here().producers)

    def running_info(
        self, group: str, client_id: str, *, stacks: bool = False
    ) -> ConsumerRunningInfo:
        """What one member of a group is doing, as it says itself."""
        return portal.call(self._here().running_info, group, client_id, stacks=stacks)

    def group_lag(self, group: str, topic: str | None = None) -> GroupLag:
        """How far a group is in each queue, and how many messages wait for it."""
        return portal.call(self._here().group_lag, group, topic)

    def group_lags(self) -> dict[str, GroupLag]:
        """How far every group is that has committed something; one request to each broker."""
        return portal.call(self._here().group_lags)

    def committed_offsets(self, group: str, topic: str) -> dict[MessageQueue, int | None]:
        """What a group has committed, by queue; None where it has committed nothing."""
        return portal.call(self._here().committed_offsets, group, topic)

    def reset_offset(
        self, group: str, topic: str, to: ResetTarget, *, force: bool = True, dry_run: bool = False
    ) -> OffsetReset:
        """Have a group go on elsewhere in a topic, whether it is running or not."""
        return portal.call(
            self._here().reset_offset, group, topic, to, force=force, dry_run=dry_run
        )

    def clone_offsets(
        self, source: str, target: str, topic: str | None = None
    ) -> dict[MessageQueue, int]:
        """Put a group where another one is, in one topic or in all; returns the offsets."""
        return portal.call(self._here().clone_offsets, source, target, topic)

    def message_by_id(self, msg_id: str, topic: str | None = None) -> ReceivedMessage:
        """Find a message by the broker's id, or by the producer's and its topic."""
        return portal.call(self._here().message_by_id, msg_id, topic)

    def messages_by_key(
        self, topic: str, key: str, *, begin_ms: int = 0, end_ms: int | None = None, limit: int = 32
    ) -> list[ReceivedMessage]:
        """Messages of a topic with a key, stored between two times, oldest first."""
        return portal.call(
            self._here().messages_by_key, topic, key, begin_ms=begin_ms, end_ms=end_ms, limit=limit
        )

    def message_at(self, queue: MessageQueue, offset: int) -> ReceivedMessage:
        """The message at a place of a queue; QueryNotFound if there is none."""
        return portal.call(self._here().message_at, queue, offset)

    def messages_between(
        self, queue: MessageQueue, begin: int, end: int | None = None
    ) -> Iterator[ReceivedMessage]:
        """What a queue has from an offset up to another (exclusive), or to its end of now."""
        yield from self._each(self._here().messages_between(queue, begin, end))

    def message_trace(
        self,
        msg_id: str,
        *,
        trace_topic: str | None = None,
        begin_ms: int = 0,
        end_ms: int | None = None,
    ) -> MessageTrace:
        """What happened to a message, as producers and consumers with `trace=True` wrote down."""
        return portal.call(
            self._here().message_trace,
            msg_id,
            trace_topic=trace_topic,
            begin_ms=begin_ms,
            end_ms=end_ms,
        )

    def consume_directly(
        self, group: str, client_id: str, message: ReceivedMessage
    ) -> ConsumeMessageDirectlyResult:
        """Have one member consume a message now, and hear what it made of it."""
        return portal.call(self._here().consume_directly, group, client_id, message)

    def open_transactions(self, limit: int = 100) -> list[BrokerTransactions]:
        """Half messages that wait for their end, with age and number of checks, by broker."""
        return portal.call(self._here().open_transactions, limit)

    def timer_counts(self) -> dict[str, int]:
        """How many messages of each topic wait for their time, on all brokers."""
        return portal.call(self._here().timer_counts)

    def waiting_timers(self, topic: str, *, begin_ms: int = 0, limit: int = 100) -> TimerPage:
        """Messages of a topic that wait for their time, soonest first, with recall handles."""
        return portal.call(self._here().waiting_timers, topic, begin_ms=begin_ms, limit=limit)

    def dlq_messages(self, group: str, limit: int | None = None) -> Iterator[ReceivedMessage]:
        """What a group gave up on, oldest first; it stays in the queue."""
        yield from self._each(self._here().dlq_messages(group, limit))

    def resend_dlq(self, message: ReceivedMessage, *, topic: str | None = None) -> SendReceipt:
        """Give a dead letter another chance."""
        return portal.call(self._here().resend_dlq, message, topic=topic)
