"""Who serves which topic: five tables and the rules that change them. Pure state, no I/O.

    queues    topic        -> broker name -> QueueData
    brokers   broker name  -> BrokerData (cluster, id -> address)
    clusters  cluster      -> broker names
    live      (cluster, address) -> when heard last, data version, channel
    filters   (cluster, address) -> filter servers, obsolete and still announced

Rules worth knowing, all of them Apache's (remoting reference, section 6):

 1. Only a master's topics count, or those of the lowest slave where slaves may act as master.
 2. A broker id that is not known yet and brings exactly one topic is refused: that is an
    incremental update which has overtaken the full one.
 3. An address that holds a newer state version keeps its broker id against a newcomer.
 4. Topics that a registration no longer lists stay, unless configured otherwise: deletion has a
    request of its own.
 5. A broker name without addresses is gone, with its queues; a topic without queues is gone.

One rule is ours: an address that is listed has an entry in `live`. So whatever was registered goes
away again, by request, with its connection or in time, however odd the registrations were.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from firearrow.model.topic import MASTER_ID, BrokerData, DataVersion, Perm, QueueData, TopicConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping

    _PermChange = Callable[[int], int]

SYNC_MEMBER_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"
SYS_FLAG_UNIT = 1
SYS_FLAG_UNIT_SUB = 2

BrokerKey = tuple[str, str]  # cluster, address


@dataclass(frozen=True, slots=True)
class Registration:
    """What a broker says about itself."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    ha_address: str = ""
    zone: str | None = None
    timeout_ms: int | None = None
    acting_master: bool | None = None  # None: a 4.x broker, which does not know the word
    data_version: DataVersion = field(default_factory=DataVersion)
    topics: Mapping[str, TopicConfig] = field(default_factory=dict)
    filter_servers: tuple[str, ...] | None = None
    channel: Hashable = None

    @property
    def key(self) -> BrokerKey:
        return self.cluster, self.address


@dataclass(frozen=True, slots=True)
class MinIdChange:
    """The lowest broker id of a broker name is another one now; `notify` may be told."""

    broker_name: str
    min_broker_id: int
    min_address: str
    offline_address: str | None
    ha_address: str | None
    notify: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Registered:
    """What a broker is told in return: slaves learn their master."""

    master_address: str | None = None
    master_ha_address: str | None = None
    min_id_change: MinIdChange | None = None


@dataclass(slots=True)
class LiveBroker:
    """The last sign of life of one address."""

    broker_name: str
    broker_id: int
    last_update_ms: int
    timeout_ms: int
    data_version: DataVersion
    channel: Hashable
    ha_address: str


@dataclass(frozen=True, slots=True)
class Route:
    """Where the queues of a topic are."""

    queues: tuple[QueueData, ...]
    brokers: tuple[BrokerData, ...]
    filter_servers: dict[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class RouteTableStatistics:
    clusters: int
    broker_names: int
    brokers_live: int
    topics: int


class RouteTable:
    """The five tables. Times are passed in; channels are only compared, never used."""

    def __init__(self) -> None:
        self._queues: dict[str, dict[str, QueueData]] = {}
        self._brokers: dict[str, BrokerData] = {}
        self._clusters: dict[str, set[str]] = {}
        self._live: dict[BrokerKey, LiveBroker] = {}
        self._filters: dict[BrokerKey, tuple[str, ...]] = {}

    # --- brokers come -----------------------------------------------------------------------

    def register(
        self,
        broker: Registration,
        *,
        now_ms: int,
        timeout_ms: int,
        delete_missing_topics: bool = False,
    ) -> Registered | None:
        """Take a registration in; None if rule 2 refuses it."""
        known = self._brokers.get(broker.broker_name)
        # Rule: one address has one id. A slave that became master must not stay as slave.
        before = {} if known is None else known.broker_addrs
        addresses = {
            broker_id: address
            for broker_id, address in before.items()
            if address != broker.address or broker_id == broker.broker_id
        }
        held_by = addresses.get(broker.broker_id)
        if held_by is not None and held_by != broker.address:
            holder = self._live.get((broker.cluster, held_by))
            if (
                holder is not None
                and holder.data_version.state_version > broker.data_version.state_version
            ):
                self.unregister(broker.cluster, broker.broker_name, broker.address)
                return Registered()
        if held_by is None and len(broker.topics) == 1:
            return None

        self._leave_other_name(broker)
        previous_min = min(before, default=0)
        addresses[broker.broker_id] = broker.address
        self._clusters.setdefault(broker.cluster, set()).add(broker.broker_name)
        self._brokers[broker.broker_name] = BrokerData(
            cluster=broker.cluster if known is None else known.cluster,
            broker_name=broker.broker_name,
            broker_addrs=dict(sorted(addresses.items())),
            enable_acting_master=bool(broker.acting_master),
            zone_name=broker.zone,
        )
        self._take_topics(broker, first=held_by is None, delete_missing=delete_missing_topics)
        self._live[broker.key] = LiveBroker(
            broker.broker_name,
            broker.broker_id,
            now_ms,
            broker.timeout_ms or timeout_ms,
            broker.data_version,
            broker.channel,
            broker.ha_address,
        )
        if broker.filter_servers:
            self._filters[broker.key] = broker.filter_servers
        elif broker.filter_servers is not None:
            self._filters.pop(broker.key, None)
        change = None
        if broker.broker_id < previous_min:
            change = self._min_id_change(broker.broker_name, None, broker.ha_address)
        return self._answer(broker, change)

    def _leave_other_name(self, broker: Registration) -> None:
        """Who registers under a new name is not to be found under the old one any more."""
        live = self._live.get(broker.key)
        if live is not None and live.broker_name != broker.broker_name:
            self.unregister(broker.cluster, live.broker_name, broker.address)

    def _take_topics(self, broker: Registration, *, first: bool, delete_missing: bool) -> None:
        addresses = self._brokers[broker.broker_name].broker_addrs
        master = broker.broker_id == MASTER_ID
        prime_slave = (
            not master and broker.acting_master is not None and broker.broker_id == min(addresses)
        )
        if not (master or prime_slave):
            return
        name = broker.broker_name
        if delete_missing:
            for topic in [topic for topic, where in self._queues.items() if name in where]:
                if topic not in broker.topics:
                    self._drop_queues(topic, [name])
        changed = first or self.data_version_changed(broker.key, broker.data_version)
        for topic, config in broker.topics.items():
            where = self._queues.setdefault(topic, {})
            if changed or name not in where:
                perm = config.perm
                if prime_slave and broker.acting_master:
                    perm &= ~Perm.WRITE
                where[name] = QueueData(
                    broker_name=name,
                    read_queue_nums=config.read_queue_nums,
                    write_queue_nums=config.write_queue_nums,
                    perm=perm,
                    topic_sys_flag=config.topic_sys_flag,
                )

    def _answer(self, broker: Registration, change: MinIdChange | None) -> Registered:
        if broker.broker_id != MASTER_ID:
            master = self._brokers[broker.broker_name].broker_addrs.get(MASTER_ID)
            live = None if master is None else self._live.get((broker.cluster, master))
            if live is not None:
                return Registered(master, live.ha_address, change)
        return Registered(min_id_change=change)

    def touch(self, key: BrokerKey, now_ms: int) -> None:
        """A sign of life without news."""
        live = self._live.get(key)
        if live is not None:
            live.last_update_ms = now_ms

    def data_version(self, key: BrokerKey) -> DataVersion | None:
        live = self._live.get(key)
        return None if live is None else live.data_version

    def data_version_changed(self, key: BrokerKey, version: DataVersion) -> bool:
        """Whether a broker has news: we do not know it, or know another version of it."""
        return self.data_version(key) != version

    # --- brokers go -------------------------------------------------------------------------

    def unregister(self, cluster: str, broker_name: str, address: str) -> MinIdChange | None:
        """Forget one address, and what nobody serves without it; a stranger is no news."""
        live = self._live.get((cluster, address))
        if live is None or live.broker_name != broker_name:
            return None
        del self._live[cluster, address]
        self._filters.pop((cluster, address), None)
        data = self._brokers.get(broker_name)
        if data is None:
            return None
        addresses = {i: a for i, a in data.broker_addrs.items() if a != address}
        if not addresses:
            del self._brokers[broker_name]
            for names in self._clusters.values():
                names.discard(broker_name)
            self._clusters = {name: names for name, names in self._clusters.items() if names}
            for topic in list(self._queues):
                self._drop_queues(topic, [broker_name])
            return None
        self._brokers[broker_name] = msgspec.structs.replace(data, broker_addrs=addresses)
        if MASTER_ID not in addresses and data.enable_acting_master:
            self._change_perm(broker_name, lambda perm: perm & ~Perm.WRITE)
        if min(data.broker_addrs) != min(addresses):
            return self._min_id_change(broker_name, address, live.ha_address)
        return None

    def _min_id_change(
        self, broker_name: str, offline: str | None, ha_address: str | None
    ) -> MinIdChange:
        addresses = self._brokers[broker_name].broker_addrs
        lowest = min(addresses)
        # Who left is told to all that stay; who came is told to the others.
        notify = [
            address
            for broker_id, address in addresses.items()
            if offline is not None or len(addresses) == 1 or broker_id != lowest
        ]
        return MinIdChange(
            broker_name, lowest, addresses[lowest], offline, ha_address, tuple(notify)
        )

    def expired(self, now_ms: int) -> list[tuple[BrokerKey, LiveBroker]]:
        """Brokers that have been silent for longer than they said they would be."""
        return [
            (key, live)
            for key, live in self._live.items()
            if live.last_update_ms + live.timeout_ms < now_ms
        ]

    def on_channel(self, channel: Hashable) -> list[tuple[BrokerKey, LiveBroker]]:
        """Brokers whose latest registration came over this channel."""
        return [(key, live) for key, live in self._live.items() if live.channel == channel]

    # --- topics -----------------------------------------------------------------------------

    def route(
        self,
        topic: str,
        *,
        acting_master: bool = False,
        zone: str | None = None,
    ) -> Route | None:
        """Queues and brokers of a topic, in an order that does not change by itself.

        None if there are no queues or no live broker for them: an empty route would make a Java
        producer believe that the topic exists.
        """
        where = self._queues.get(topic)
        if not where:
            return None
        names = [name for name in sorted(where) if name in self._brokers]
        if zone:
            names = [name for name in names if self._in_zone(self._brokers[name], zone)]
        if not names:
            return None
        brokers = [self._brokers[name] for name in names]
        if acting_master and not topic.startswith(SYNC_MEMBER_PREFIX):
            brokers = [_with_acting_master(data, where[data.broker_name]) for data in brokers]
        filters: dict[str, tuple[str, ...]] = {}
        for data in brokers:
            for address in data.broker_addrs.values():
                if servers := self._filters.get((data.cluster, address)):
                    filters[address] = servers
        return Route(tuple(where[name] for name in names), tuple(brokers), filters)

    @staticmethod
    def _in_zone(data: BrokerData, zone: str) -> bool:
        """A broker name without a master is left alone: its zone cannot be judged."""
        if MASTER_ID not in data.broker_addrs:
            return True
        return (data.zone_name or "").lower() == zone.lower()

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic everywhere, or on the brokers of one cluster."""
        if cluster:
            self._drop_queues(topic, self._clusters.get(cluster, set()))
        else:
            self._queues.pop(topic, None)

    def _drop_queues(self, topic: str, broker_names: Iterable[str]) -> None:
        where = self._queues.get(topic)
        if where is None:
            return
        for name in broker_names:
            where.pop(name, None)
        if not where:
            del self._queues[topic]

    def register_topic(self, topic: str, queues: Iterable[QueueData]) -> None:
        """Announce a single topic; queues of brokers that we do not know are ignored."""
        known = {data.broker_name: data for data in queues if data.broker_name in self._brokers}
        if known:
            self._queues.setdefault(topic, {}).update(known)

    def wipe_write_perm(self, broker_name: str) -> int:
        """Take a broker out of sending; returns how many topics it had."""
        return self._change_perm(broker_name, lambda perm: perm & ~Perm.WRITE)

    def add_write_perm(self, broker_name: str) -> int:
        """Undo the above. Read and write, as Apache sets it, whatever there was before."""
        return self._change_perm(broker_name, lambda _: Perm.READ | Perm.WRITE)

    def _change_perm(self, broker_name: str, change: _PermChange) -> int:
        count = 0
        for where in self._queues.values():
            data = where.get(broker_name)
            if data is not None:
                where[broker_name] = msgspec.structs.replace(data, perm=int(change(data.perm)))
                count += 1
        return count

    # --- listings ---------------------------------------------------------------------------

    def topics(self) -> list[str]:
        return list(self._queues)

    def topics_of_cluster(self, cluster: str) -> list[str]:
        names = self._clusters.get(cluster, set())
        return [topic for topic, where in self._queues.items() if not names.isdisjoint(where)]

    def unit_topics(self, *, unit: bool | None, unit_sub: bool | None) -> list[str]:
        """Topics by their unit flags; None: either."""
        found = []
        for topic, where in self._queues.items():
            flag = next(iter(where.values())).topic_sys_flag
            if unit in {None, bool(flag & SYS_FLAG_UNIT)} and (
                unit_sub in {None, bool(flag & SYS_FLAG_UNIT_SUB)}
            ):
                found.append(topic)
        return found

    def system_topics(self) -> tuple[list[str], str | None]:
        """Names that are clusters and brokers too, and some broker that knows the others."""
        names = list(self._clusters) + [n for names in self._clusters.values() for n in names]
        for data in self._brokers.values():
            for address in data.broker_addrs.values():
                return names, address
        return names, None

    def clusters(self) -> dict[str, tuple[str, ...]]:
        return {cluster: tuple(sorted(names)) for cluster, names in self._clusters.items()}

    def brokers(self) -> dict[str, BrokerData]:
        return dict(self._brokers)

    def broker(self, broker_name: str) -> BrokerData | None:
        return self._brokers.get(broker_name)

    def statistics(self) -> RouteTableStatistics:
        return RouteTableStatistics(
            clusters=len(self._clusters),
            broker_names=len(self._brokers),
            brokers_live=len(self._live),
            topics=len(self._queues),
        )


def _with_acting_master(data: BrokerData, queue: QueueData) -> BrokerData:
    """Show the lowest slave as the master of a broker name that has lost its own."""
    if MASTER_ID in data.broker_addrs or not data.enable_acting_master or queue.perm & Perm.WRITE:
        return data
    addresses = dict(data.broker_addrs)
    addresses[MASTER_ID] = addresses.pop(min(addresses))
    return msgspec.structs.replace(data, broker_addrs=dict(sorted(addresses.items())))
