"""Rules of registration, liveness and routes; remoting reference, section 6."""

from __future__ import annotations

from typing import Any

from firearrow.model.topic import DataVersion, TopicConfig
from firearrow.nameserver.route_table import MinIdChange, Registered, Registration, RouteTable

TIMEOUT_MS = 120_000


def topic(name: str, **fields: Any) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=8, write_queue_nums=8, **fields)


def topics(*names: str) -> dict[str, TopicConfig]:
    return {name: topic(name) for name in names}


def broker(name: str = "a", broker_id: int = 0, **fields: Any) -> Registration:
    given: dict[str, Any] = {
        "cluster": "C",
        "broker_name": name,
        "broker_id": broker_id,
        "address": f"10.0.0.{broker_id}:{ord(name[0])}",
        "ha_address": f"ha-{name}-{broker_id}",
        "acting_master": False,
        "data_version": DataVersion(timestamp=1, counter=1),
        "topics": topics("orders", "TBW102"),
        "channel": f"channel-{name}-{broker_id}",
    }
    return Registration(**(given | fields))


def register(table: RouteTable, what: Registration, now_ms: int = 0, **options: Any) -> Any:
    return table.register(what, now_ms=now_ms, timeout_ms=TIMEOUT_MS, **options)


def addresses(table: RouteTable, name: str = "a") -> dict[int, str] | None:
    data = table.broker(name)
    return None if data is None else data.broker_addrs


def perm(table: RouteTable, name: str = "orders") -> list[int]:
    route = table.route(name)
    return [] if route is None else [queue.perm for queue in route.queues]


def test_registered_master_makes_its_topics_routable() -> None:
    table = RouteTable()
    assert register(table, broker()) == Registered()
    route = table.route("orders")
    assert route is not None
    assert [
        (q.broker_name, q.read_queue_nums, q.write_queue_nums, q.perm) for q in route.queues
    ] == [("a", 8, 8, 6)]
    assert [data.broker_addrs for data in route.brokers] == [{0: "10.0.0.0:97"}]
    assert route.filter_servers == {}


def test_unknown_topic_has_no_route_rather_than_an_empty_one() -> None:
    table = RouteTable()
    register(table, broker())
    assert table.route("nothing") is None


def test_route_lists_brokers_in_the_same_order_however_they_came() -> None:
    tables = [RouteTable(), RouteTable()]
    for table, order in zip(tables, ("abc", "cab"), strict=True):
        for name in order:
            register(table, broker(name))
    first, second = (table.route("orders") for table in tables)
    assert first == second


def test_slave_is_told_its_living_master_and_its_topics_do_not_count() -> None:
    table = RouteTable()
    register(table, broker())
    told = register(table, broker(broker_id=1, topics=topics("orders", "slave-only")))
    assert told == Registered("10.0.0.0:97", "ha-a-0")
    assert addresses(table) == {0: "10.0.0.0:97", 1: "10.0.0.1:97"}
    assert table.route("slave-only") is None


def test_slave_of_a_dead_master_is_told_nothing() -> None:
    table = RouteTable()
    assert register(table, broker(broker_id=1)) == Registered()


def test_first_registration_with_a_single_topic_is_refused_and_leaves_no_trace() -> None:
    table = RouteTable()
    assert register(table, broker(topics=topics("orders"))) is None
    assert addresses(table) is None
    assert table.clusters() == {}


def test_first_registration_without_topics_is_welcome() -> None:
    table = RouteTable()
    assert register(table, broker(topics={})) == Registered()


def test_single_topic_update_of_a_known_broker_is_welcome() -> None:
    table = RouteTable()
    register(table, broker())
    newer = DataVersion(timestamp=2, counter=2)
    assert register(table, broker(topics=topics("fresh"), data_version=newer)) == Registered()
    assert table.route("fresh") is not None
    assert table.route("orders") is not None, "an update never removes what it does not list"


def test_topic_settings_change_only_with_the_data_version() -> None:
    table = RouteTable()
    register(table, broker())
    changed = topics("orders", "TBW102") | {"orders": topic("orders", perm=4)}
    register(table, broker(topics=changed))
    assert perm(table) == [6]
    register(table, broker(topics=changed, data_version=DataVersion(timestamp=1, counter=2)))
    assert perm(table) == [4]


def test_topic_that_is_missing_here_is_taken_even_with_the_same_data_version() -> None:
    table = RouteTable()
    register(table, broker())
    table.delete_topic("orders")
    register(table, broker())
    assert table.route("orders") is not None


def test_missing_topics_are_removed_where_that_is_configured() -> None:
    table = RouteTable()
    register(table, broker(topics=topics("orders", "old", "TBW102")))
    register(table, broker(), delete_missing_topics=True)
    assert table.route("old") is None
    assert table.route("orders") is not None


def test_slave_that_became_master_keeps_no_slave_entry() -> None:
    table = RouteTable()
    register(table, broker(broker_id=1, address="10.0.0.9:1"))
    register(table, broker(broker_id=0, address="10.0.0.9:1"))
    assert addresses(table) == {0: "10.0.0.9:1"}


def test_newcomer_with_an_older_state_version_does_not_take_the_id() -> None:
    table = RouteTable()
    register(table, broker(data_version=DataVersion(state_version=5), address="10.0.0.1:1"))
    old = broker(data_version=DataVersion(state_version=4), address="10.0.0.2:1")
    assert register(table, old) == Registered()
    assert addresses(table) == {0: "10.0.0.1:1"}
    assert table.data_version(old.key) is None


def test_newcomer_with_the_same_state_version_takes_the_id() -> None:
    table = RouteTable()
    register(table, broker(address="10.0.0.1:1"))
    register(table, broker(address="10.0.0.2:1"))
    assert addresses(table) == {0: "10.0.0.2:1"}


def test_unregistered_broker_takes_its_topics_name_and_cluster_along() -> None:
    table = RouteTable()
    register(table, broker())
    table.unregister("C", "a", "10.0.0.0:97")
    assert table.route("orders") is None
    assert table.topics() == []
    assert table.clusters() == {}
    assert table.statistics().brokers_live == 0


def test_slave_that_is_refused_as_master_is_not_listed_without_being_alive() -> None:
    table = RouteTable()
    register(table, broker(data_version=DataVersion(state_version=5)))
    register(table, broker(broker_id=1))
    register(table, broker(address=broker(broker_id=1).address))
    assert addresses(table) == {0: "10.0.0.0:97"}
    assert table.statistics().brokers_live == 1


def test_broker_that_comes_back_under_another_name_is_not_found_under_the_old_one() -> None:
    table = RouteTable()
    register(table, broker("a", address="10.0.0.1:1"))
    register(table, broker("b", address="10.0.0.1:1"))
    assert addresses(table, "a") is None
    assert table.clusters() == {"C": ("b",)}
    table.unregister("C", "b", "10.0.0.1:1")
    assert table.topics() == []


def test_broker_name_of_two_clusters_leaves_both_with_its_last_address() -> None:
    table = RouteTable()
    register(table, broker())
    register(table, broker(broker_id=1, cluster="D"))
    assert table.clusters() == {"C": ("a",), "D": ("a",)}
    table.unregister("C", "a", "10.0.0.0:97")
    table.unregister("D", "a", "10.0.0.1:97")
    assert table.clusters() == {}
    assert table.statistics().brokers_live == 0


def test_goodbye_in_the_name_of_another_broker_or_cluster_changes_nothing() -> None:
    table = RouteTable()
    register(table, broker())
    table.unregister("C", "b", "10.0.0.0:97")
    table.unregister("D", "a", "10.0.0.0:97")
    assert addresses(table) == {0: "10.0.0.0:97"}
    assert table.statistics().brokers_live == 1


def test_topics_stay_while_another_broker_serves_them() -> None:
    table = RouteTable()
    register(table, broker("a"))
    register(table, broker("b"))
    table.unregister("C", "a", "10.0.0.0:97")
    route = table.route("orders")
    assert route is not None
    assert [queue.broker_name for queue in route.queues] == ["b"]
    assert table.clusters() == {"C": ("b",)}


def test_master_that_leaves_a_slave_behind_keeps_the_queues_routable() -> None:
    table = RouteTable()
    register(table, broker())
    register(table, broker(broker_id=1))
    table.unregister("C", "a", "10.0.0.0:97")
    assert addresses(table) == {1: "10.0.0.1:97"}
    assert perm(table) == [6], "only acting-master groups become read-only"


def test_acting_master_group_becomes_read_only_and_shows_its_slave_as_master() -> None:
    table = RouteTable()
    register(table, broker(acting_master=True))
    register(table, broker(broker_id=2, acting_master=True))
    table.unregister("C", "a", "10.0.0.0:97")
    assert perm(table) == [4]
    plain, acting = table.route("orders"), table.route("orders", acting_master=True)
    assert plain is not None
    assert acting is not None
    assert plain.brokers[0].broker_addrs == {2: "10.0.0.2:97"}
    assert acting.brokers[0].broker_addrs == {0: "10.0.0.2:97"}


def test_lowest_slave_announces_topics_read_only_where_it_may_act_as_master() -> None:
    table = RouteTable()
    register(table, broker(broker_id=1, acting_master=True))
    assert perm(table) == [4]


def test_slave_of_a_4x_broker_announces_no_topics() -> None:
    table = RouteTable()
    register(table, broker(broker_id=1, acting_master=None))
    assert table.route("orders") is None


def test_broker_expires_after_the_time_it_announced_or_the_default() -> None:
    table = RouteTable()
    register(table, broker("a"), now_ms=1_000)
    register(table, broker("b", timeout_ms=10_000), now_ms=1_000)
    assert table.expired(11_000) == []
    assert [live.broker_name for _, live in table.expired(11_001)] == ["b"]
    table.touch(("C", "10.0.0.0:98"), 11_001)
    assert table.expired(11_001) == []
    assert [live.broker_name for _, live in table.expired(121_001)] == ["a", "b"]


def test_channel_finds_the_broker_that_registered_over_it_last() -> None:
    table = RouteTable()
    register(table, broker(channel="old"))
    register(table, broker(channel="new"))
    assert table.on_channel("old") == []
    ((key, live),) = table.on_channel("new")
    assert (key, live.broker_name) == (("C", "10.0.0.0:97"), "a")


def test_data_version_counts_as_changed_when_any_of_its_numbers_differs() -> None:
    table = RouteTable()
    register(table, broker())
    key = ("C", "10.0.0.0:97")
    same = DataVersion(timestamp=1, counter=1)
    assert not table.data_version_changed(key, same)
    assert table.data_version_changed(key, DataVersion(timestamp=2, counter=1))
    assert table.data_version_changed(key, DataVersion(timestamp=1, counter=2))
    assert table.data_version_changed(key, DataVersion(timestamp=1, counter=1, state_version=1))
    assert table.data_version_changed(("C", "unknown:1"), same)


def test_wiped_write_permission_comes_back_with_a_new_data_version_or_by_request() -> None:
    table = RouteTable()
    register(table, broker())
    assert table.wipe_write_perm("a") == 2
    assert perm(table) == [4]
    register(table, broker())
    assert perm(table) == [4]
    register(table, broker(data_version=DataVersion(timestamp=9, counter=9)))
    assert perm(table) == [6]
    table.wipe_write_perm("a")
    assert table.add_write_perm("a") == 2
    assert perm(table) == [6]
    assert table.wipe_write_perm("unknown") == 0


def test_topic_is_deleted_in_one_cluster_or_everywhere() -> None:
    table = RouteTable()
    register(table, broker("a", cluster="C1"))
    register(table, broker("b", cluster="C2"))
    table.delete_topic("orders", "C1")
    route = table.route("orders")
    assert route is not None
    assert [queue.broker_name for queue in route.queues] == ["b"]
    assert table.topics_of_cluster("C1") == ["TBW102"]
    table.delete_topic("orders")
    assert table.route("orders") is None


def test_single_topic_of_an_unknown_broker_is_ignored() -> None:
    table = RouteTable()
    register(table, broker())
    route = table.route("orders")
    assert route is not None
    table.register_topic("late", route.queues)
    assert table.route("late") is not None
    table.unregister("C", "a", "10.0.0.0:97")
    table.register_topic("later", route.queues)
    assert table.topics() == []


def test_unit_topics_are_found_by_their_flags() -> None:
    table = RouteTable()
    flags = {"none": 0, "unit": 1, "sub": 2, "both": 3}
    register(
        table,
        broker(topics={name: topic(name, topic_sys_flag=flag) for name, flag in flags.items()}),
    )
    assert table.unit_topics(unit=True, unit_sub=None) == ["unit", "both"]
    assert table.unit_topics(unit=None, unit_sub=True) == ["sub", "both"]
    assert table.unit_topics(unit=False, unit_sub=True) == ["sub"]


def test_system_topics_are_clusters_and_broker_names_with_some_address() -> None:
    table = RouteTable()
    assert table.system_topics() == ([], None)
    register(table, broker())
    assert table.system_topics() == (["C", "a"], "10.0.0.0:97")


def test_zone_keeps_brokers_of_that_zone_in_any_case() -> None:
    table = RouteTable()
    register(table, broker("a", zone="East"))
    register(table, broker("b", zone="West"))
    route = table.route("orders", zone="east")
    assert route is not None
    assert [data.broker_name for data in route.brokers] == ["a"]
    assert [queue.broker_name for queue in route.queues] == ["a"]
    assert table.route("orders", zone="north") is None


def test_filter_servers_show_in_routes_until_withdrawn() -> None:
    table = RouteTable()
    register(table, broker(filter_servers=("10.0.0.0:7000",)))
    route = table.route("orders")
    assert route is not None
    assert route.filter_servers == {"10.0.0.0:97": ("10.0.0.0:7000",)}
    register(table, broker(filter_servers=()))
    route = table.route("orders")
    assert route is not None
    assert route.filter_servers == {}


def test_change_of_the_lowest_id_names_whom_to_tell() -> None:
    table = RouteTable()
    register(table, broker(broker_id=2))
    register(table, broker(broker_id=3))
    came = register(table, broker(broker_id=1)).min_id_change
    assert came == MinIdChange(
        "a", 1, "10.0.0.1:97", None, "ha-a-1", ("10.0.0.2:97", "10.0.0.3:97")
    )
    went = table.unregister("C", "a", "10.0.0.1:97")
    assert went == MinIdChange(
        "a", 2, "10.0.0.2:97", "10.0.0.1:97", "ha-a-1", ("10.0.0.2:97", "10.0.0.3:97")
    )
    assert table.unregister("C", "a", "10.0.0.3:97") is None
