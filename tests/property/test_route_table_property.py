"""Whatever brokers do, in whatever order, the five tables agree with each other."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from firearrow.model.topic import DataVersion, TopicConfig
from firearrow.nameserver.route_table import BrokerKey, Registration, RouteTable

clusters = st.sampled_from(["C", "D"])
names = st.sampled_from(["a", "b"])
ids = st.integers(0, 2)
hosts = st.sampled_from(["h1:1", "h2:1", "h3:1"])
topic_sets = st.sets(st.sampled_from(["t1", "t2", "t3"]))


class RouteTableMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.table = RouteTable()
        self.now_ms = 0

    @rule(
        cluster=clusters,
        name=names,
        broker_id=ids,
        address=hosts,
        topics=topic_sets,
        counter=st.integers(0, 3),
        state=st.integers(0, 2),
        acting=st.sampled_from([None, False, True]),
        delete_missing=st.booleans(),
    )
    def register(  # noqa: PLR0917 - Hypothesis fills them in
        self,
        cluster: str,
        name: str,
        broker_id: int,
        address: str,
        topics: set[str],
        counter: int,
        state: int,
        acting: bool | None,
        delete_missing: bool,
    ) -> None:
        known = self.table.broker(name)
        registered = self.table.register(
            Registration(
                cluster=cluster,
                broker_name=name,
                broker_id=broker_id,
                address=address,
                acting_master=acting,
                data_version=DataVersion(counter=counter, state_version=state),
                topics={topic: TopicConfig(topic_name=topic) for topic in topics},
                channel=address,
            ),
            now_ms=self.now_ms,
            timeout_ms=1_000,
            delete_missing_topics=delete_missing,
        )
        if registered is None:
            assert len(topics) == 1
            assert self.table.broker(name) == known

    @rule(cluster=clusters, name=names, address=hosts)
    def unregister(self, cluster: str, name: str, address: str) -> None:
        lived = self.live_names().get((cluster, address)) == name
        self.table.unregister(cluster, name, address)
        data = self.table.broker(name)
        assert not lived or data is None or address not in data.broker_addrs.values()

    @rule(name=names)
    def wipe(self, name: str) -> None:
        self.table.wipe_write_perm(name)

    @rule(topic=st.sampled_from(["t1", "t2", "t3"]))
    def delete(self, topic: str) -> None:
        self.table.delete_topic(topic)
        assert self.table.route(topic) is None

    @rule(passed_ms=st.integers(0, 1_500))
    def expire(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        for (cluster, address), live in self.table.expired(self.now_ms):
            self.table.unregister(cluster, live.broker_name, address)
        assert self.table.expired(self.now_ms) == []

    def live_names(self) -> dict[BrokerKey, str]:
        return {key: live.broker_name for key, live in self.table.expired(1 << 60)}

    @invariant()
    def every_listed_topic_has_a_route_with_live_brokers(self) -> None:
        for topic in self.table.topics():
            route = self.table.route(topic)
            assert route is not None
            assert route.queues
            assert [q.broker_name for q in route.queues] == [b.broker_name for b in route.brokers]
            assert all(broker.broker_addrs for broker in route.brokers)

    @invariant()
    def clusters_and_brokers_name_each_other(self) -> None:
        brokers = self.table.brokers()
        clusters = self.table.clusters()
        assert {name for names in clusters.values() for name in names} == set(brokers)
        assert all(clusters.values())
        assert all(name in clusters[data.cluster] for name, data in brokers.items())
        for data in brokers.values():
            assert len(set(data.broker_addrs.values())) == len(data.broker_addrs)

    @invariant()
    def every_address_is_alive_and_so_will_expire(self) -> None:
        live = {(address, name) for (_, address), name in self.live_names().items()}
        for name, data in self.table.brokers().items():
            assert {(address, name) for address in data.broker_addrs.values()} <= live


TestRouteTable = RouteTableMachine.TestCase
