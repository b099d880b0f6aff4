"""An unmodified broker registers with our name server, and mqadmin works through it.

With FIREARROW_INTEROP_NAMESERVER=apache the same tests run against Apache's own name server.
"""

from __future__ import annotations

from collections.abc import Callable

from .apache import RELEASE_4, SOON_S, Cluster, Mqadmin
from .processes import wait_until
from .rawclient import TOPIC_NOT_EXIST

Unique = Callable[[str], str]

ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"


def test_cluster_list_shows_both_brokers_with_address_and_version(cluster: Cluster) -> None:
    rows = cluster.admin.run("clusterList").rows()

    shown = sorted(tuple(row[:5]) for row in rows)
    expected = [(cluster.name, each.name, "0", each.address, "V5_3_3") for each in cluster.brokers]
    assert shown == sorted(expected)


def test_mqadmin_of_release_4_shows_both_brokers(cluster: Cluster) -> None:
    # It prints a stack trace for each broker, because release 5 renamed a figure it wants to show.
    answer = Mqadmin(cluster.bench, cluster.nameserver, release=RELEASE_4).try_run("clusterList")

    assert sorted(row[1] for row in answer.rows()) == cluster.broker_names()


def test_topic_created_on_one_broker_is_listed_and_routed_to_it_alone(
    cluster: Cluster, unique: Unique
) -> None:
    topic, broker = unique("one"), cluster.json_broker
    cluster.create_topic(topic, broker, options=("-r", "3", "-w", "5"))

    assert topic in cluster.admin.run("topicList").out.split()
    assert cluster.admin.run("topicRoute", "-t", topic).json_body() == {
        "brokerDatas": [
            {
                "brokerAddrs": {"0": broker.address},
                "brokerName": broker.name,
                "cluster": cluster.name,
                "enableActingMaster": False,
            }
        ],
        "filterServerTable": {},
        "queueDatas": [
            {
                "brokerName": broker.name,
                "perm": 6,
                "readQueueNums": 3,
                "topicSysFlag": 0,
                "writeQueueNums": 5,
            }
        ],
    }


def test_topic_created_in_a_cluster_is_routed_to_both_brokers(
    cluster: Cluster, unique: Unique
) -> None:
    topic = unique("both")
    cluster.admin.run("updateTopic", "-t", topic, "-c", cluster.name, "-r", "2", "-w", "2")

    wait_until(
        lambda: sorted(cluster.queues(topic)) == cluster.broker_names(),
        timeout_s=SOON_S,
        what=lambda: f"both in the route, which has {cluster.queues(topic)}",
    )
    brokers = cluster.nameserver.client().route(topic).body["brokerDatas"]
    addresses = {data["brokerName"]: data["brokerAddrs"] for data in brokers}
    assert addresses == {broker.name: {"0": broker.address} for broker in cluster.brokers}


def test_topic_changed_on_its_broker_is_changed_in_its_route(
    cluster: Cluster, unique: Unique
) -> None:
    topic, broker = unique("changed"), cluster.json_broker
    cluster.create_topic(topic, broker)
    shape = ("-r", "6", "-w", "7", "-p", "4")
    cluster.admin.run("updateTopic", "-t", topic, "-b", broker.address, *shape)

    wait_until(
        lambda: cluster.permissions(topic) == {broker.name: 4},
        timeout_s=SOON_S,
        what=lambda: f"the new permission, not {cluster.queues(topic)}",
    )
    changed = cluster.queues(topic)[broker.name]
    assert (changed["readQueueNums"], changed["writeQueueNums"]) == (6, 7)


def test_topic_list_by_cluster_names_the_cluster_of_each_topic(
    cluster: Cluster, unique: Unique
) -> None:
    topic = unique("clustered")
    cluster.create_topic(topic, cluster.json_broker)

    by_cluster = [row[:2] for row in cluster.admin.run("topicList", "-c").rows()]
    assert [cluster.name, topic] in by_cluster
    assert cluster.admin.run("topicClusterList", "-t", topic).out.split() == [cluster.name]


def test_deleted_topic_is_not_listed_and_has_no_route(cluster: Cluster, unique: Unique) -> None:
    topic = unique("deleted")
    cluster.create_topic(topic, *cluster.brokers)
    cluster.admin.run("deleteTopic", "-t", topic, "-c", cluster.name)

    assert topic not in cluster.admin.run("topicList").out.split()
    assert cluster.nameserver.client().route(topic).code == TOPIC_NOT_EXIST


def test_route_of_an_unknown_topic_is_refused_with_the_words_of_rocketmq(
    cluster: Cluster, unique: Unique
) -> None:
    topic = unique("unknown")
    answer = cluster.admin.try_run("topicRoute", "-t", topic)

    words = f"CODE: 17  DESC: No topic route info in name server for the topic: {topic}"
    assert words in answer.err


def test_kv_config_is_there_after_put_and_gone_after_delete(
    cluster: Cluster, unique: Unique
) -> None:
    client, namespace, value = cluster.nameserver.client(), unique("namespace"), "héllo wörld"
    pair = ("-s", namespace, "-k", "greeting")
    put = cluster.admin.run("updateKvConfig", *pair, "-v", value)
    assert "create or update kv config to namespace success" in put.out
    assert client.kv_config(namespace, "greeting") == value

    deleted = cluster.admin.run("deleteKvConfig", *pair)
    assert "delete kv config from namespace success" in deleted.out
    assert client.kv_config(namespace, "greeting") is None


def test_order_conf_can_be_put_read_and_deleted(cluster: Cluster, unique: Unique) -> None:
    topic, value = unique("ordered"), f"{cluster.json_broker.name}:4"
    command = ("updateOrderConf", "-t", topic, "-m")
    cluster.admin.run(*command, "put", "-v", value)
    assert cluster.nameserver.client().kv_config(ORDER_NAMESPACE, topic) == value
    read = cluster.admin.run(*command, "get")
    assert f"topic=[{topic}], orderConf=[{value}]" in read.out

    cluster.admin.run(*command, "delete")
    assert "CODE: 22" in cluster.admin.try_run(*command, "get").err


def test_order_conf_is_in_the_route_only_while_order_messages_are_enabled(
    cluster: Cluster, unique: Unique
) -> None:
    client, topic = cluster.nameserver.client(), unique("ordered")
    value = f"{cluster.json_broker.name}:2"
    cluster.create_topic(topic, cluster.json_broker)
    cluster.admin.run("updateOrderConf", "-t", topic, "-m", "put", "-v", value)
    assert "orderTopicConf" not in client.route(topic).body

    cluster.admin.run("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true")
    try:
        assert client.route(topic).body["orderTopicConf"] == value
    finally:
        cluster.admin.run("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "false")
    assert "orderTopicConf" not in client.route(topic).body


def config_of(admin: Mqadmin) -> dict[str, str]:
    """The settings that getNamesrvConfig prints."""
    lines = [line for line in admin.run("getNamesrvConfig").out.splitlines() if "=  " in line]
    return {key.strip(): value for key, value in (line.split("=  ", 1) for line in lines)}


def test_updated_nameserver_config_is_read_back(cluster: Cluster) -> None:
    key = "deleteTopicWithBrokerRegistration"
    assert config_of(cluster.admin)[key] == "false"
    changed = cluster.admin.run("updateNamesrvConfig", "-k", key, "-v", "true")
    try:
        assert "update name server config success" in changed.out
        assert config_of(cluster.admin)[key] == "true"
    finally:
        cluster.admin.run("updateNamesrvConfig", "-k", key, "-v", "false")
    assert config_of(cluster.admin)[key] == "false"


def test_config_names_the_port_the_kv_file_and_the_scan_interval(cluster: Cluster) -> None:
    config = config_of(cluster.admin)

    assert config["listenPort"] == str(cluster.nameserver.port)
    assert config["kvConfigPath"].endswith("kvConfig.json")
    assert config["scanNotActiveBrokerInterval"] == "5000"


def test_config_key_on_the_black_list_is_refused_with_code_16(cluster: Cluster) -> None:
    before = config_of(cluster.admin)["kvConfigPath"]
    command = ("updateNamesrvConfig", "-k", "kvConfigPath", "-v", "elsewhere.json")

    assert "CODE: 16" in cluster.admin.try_run(*command).err
    assert config_of(cluster.admin)["kvConfigPath"] == before


def test_write_permission_of_one_broker_can_be_wiped_and_added_again(
    cluster: Cluster, unique: Unique
) -> None:
    topic, wiped, other = unique("wiped"), cluster.json_broker, cluster.binary_broker
    cluster.create_topic(topic, wiped, other)
    where = f"of broker[{wiped.name}] in name server[{cluster.nameserver.address}] OK"

    assert f"wipe write perm {where}" in cluster.admin.run("wipeWritePerm", "-b", wiped.name).out
    assert cluster.permissions(topic) == {wiped.name: 4, other.name: 6}

    assert f"add write perm {where}" in cluster.admin.run("addWritePerm", "-b", wiped.name).out
    assert cluster.permissions(topic) == {wiped.name: 6, other.name: 6}


def test_wiped_permission_survives_a_change_of_another_topic(
    cluster: Cluster, unique: Unique
) -> None:
    """A broker announces only the changed topic, so the name server must not restore the others."""
    topic, broker = unique("wiped"), cluster.json_broker
    cluster.create_topic(topic, broker)
    cluster.admin.run("wipeWritePerm", "-b", broker.name)
    try:
        other = unique("other")
        cluster.create_topic(other, broker)

        assert cluster.permissions(other) == {broker.name: 6}
        assert cluster.permissions(topic) == {broker.name: 4}
    finally:
        cluster.admin.run("addWritePerm", "-b", broker.name)


def test_adding_write_permission_makes_even_a_read_only_topic_writable(
    cluster: Cluster, unique: Unique
) -> None:
    """RocketMQ sets the permission of every topic of the broker to 6, whatever it was."""
    topic, broker = unique("readonly"), cluster.json_broker
    cluster.create_topic(topic, broker, options=("-p", "4"))
    assert cluster.permissions(topic) == {broker.name: 4}
    cluster.admin.run("addWritePerm", "-b", broker.name)

    assert cluster.permissions(topic) == {broker.name: 6}
