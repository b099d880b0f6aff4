"""mqadmin on topics: list, route, status, create, change, delete, order, allocation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from firearrow.base.errors import ConfigError, FirearrowError
from firearrow.cli.mqadmin.flags import flag
from firearrow.cli.mqadmin.java_text import a_double, front, moment, topic_config
from firearrow.cli.mqadmin.run import Command
from firearrow.client.allocation import AllocateAveragely
from firearrow.model.topic import TopicConfig, is_dlq_topic, is_retry_topic, parse_order_conf
from firearrow.wire import java_json
from firearrow.wire.bodies import TopicConfigList
from firearrow.wire.codes import RequestCode
from firearrow.wire.headers import CreateTopicRequest, GetKVConfigReply, GetKVConfigRequest

if TYPE_CHECKING:
    from firearrow.cli.mqadmin.run import Run

ORDER: Final = "ORDER_TOPIC_CONFIG"
AUTO_CREATE: Final = "TBW102"
WHERE: Final = (
    flag("b brokerAddr", "On this broker, HOST:PORT."),
    flag("c clusterName", "On all brokers of this cluster."),
)
TOPIC: Final = flag("t! topic", "The topic.")


def topic_list(run: Run) -> None:
    names = run.admin.topics(include_system=True)
    if not run.given.has("c"):
        for name in names:
            run.out(name)
        return
    info = run.admin.clusters()
    run.out(f"{'#Cluster Name':<20}  {'#Topic':<48}  {'#Consumer Group':<48}")
    for name in names:
        if is_retry_topic(name) or is_dlq_topic(name):
            continue
        cluster, groups = "", [""]
        try:
            broker = run.admin.topic_route(name).broker_datas[0].broker_name
            cluster = next(
                (one for one, names in info.cluster_addr_table.items() if broker in names), "null"
            )
            groups = run.admin.topic_groups(name) or [""]
        except FirearrowError:
            pass  # it was deleted meanwhile
        for group in groups:
            run.out(f"{front(cluster, 20):<20}  {front(name, 64):<64}  {front(group, 64):<64}")


def topic_cluster_list(run: Run) -> None:
    info = run.admin.clusters()
    brokers = {one.broker_name for one in run.admin.topic_route(run.given.text("t")).broker_datas}
    for name, members in sorted(info.cluster_addr_table.items()):
        if brokers & set(members):
            run.out(name)


def topic_route(run: Run) -> None:
    route = run.admin.topic_route(run.given.text("t"))
    if not run.given.has("l"):
        # Standard JSON, where Java writes numbers as keys.
        found = {
            "brokerDatas": [
                {
                    "brokerAddrs": {str(key): at for key, at in one.broker_addrs.items()},
                    "brokerName": one.broker_name,
                    "cluster": one.cluster,
                    "enableActingMaster": one.enable_acting_master,
                }
                for one in route.broker_datas
            ],
            "filterServerTable": {},
            "queueDatas": [msgspec.to_builtins(one) for one in route.queue_datas],
        }
        run.out(json.dumps(found, indent="\t"))
        return
    line = "{:<45} {:<32} {:<50} {:<10} {:<11} {:<5}"
    heads = ("#ClusterName", "#BrokerName", "#BrokerAddrs", "#ReadQueue", "#WriteQueue", "#Perm")
    run.out(line.format(*heads))
    queues = {one.broker_name: one for one in route.queue_datas}
    read = write = 0
    for one in sorted(route.broker_datas, key=lambda data: data.broker_name):
        data = queues[one.broker_name]
        read, write = read + data.read_queue_nums, write + data.write_queue_nums
        addresses = "{" + ", ".join(f"{key}={at}" for key, at in one.broker_addrs.items()) + "}"
        run.out(
            line.format(
                one.cluster,
                one.broker_name,
                addresses,
                data.read_queue_nums,
                data.write_queue_nums,
                data.perm,
            )
        )
    run.out("-" * 158)
    run.out(line.format("Total:", len(queues), "", read, write, ""))


def topic_status(run: Run) -> None:
    stats = run.admin.topic_stats(run.given.text("t"))
    heads = ("#Broker Name", "#QID", "#Min Offset", "#Max Offset", "#Last Updated")
    run.out("{:<32}  {:<4}  {:<20}  {:<20}    {}".format(*heads))
    for one in stats.queues:
        last = moment(one.last_stored_ms) if one.last_stored_ms else ""
        run.out(
            f"{front(one.queue.broker_name, 32):<32}  {one.queue.queue_id:<4}  "
            f"{one.min_offset:<20}  {one.max_offset:<20}    {last}"
        )
    run.out()
    run.out(f"Topic Put TPS: {a_double(stats.put_tps)}")


# --- changing -----------------------------------------------------------------------------------


def update_topic(run: Run) -> None:
    given = run.given
    attributes = parse_attributes(given.text("a"))
    config = TopicConfig(
        topic_name=given.text("t"),
        read_queue_nums=given.number("r", 8),
        write_queue_nums=given.number("w", 8),
        perm=given.number("p", 6),
        topic_sys_flag=int(given.true("u")) + 2 * int(given.true("s")),
        order=given.true("o"),
    )
    addresses = run.masters()
    names = {
        one.master_addr: one.broker_name for one in run.admin.clusters().broker_addr_table.values()
    }
    for address in addresses:
        put_topic(run, address, config, given.optional("a"))
        if given.has("c"):
            run.out(f"create topic to {address} success.")
    if config.order:
        conf = ";".join(
            f"{names.get(address) or address}:{config.write_queue_nums}" for address in addresses
        )
        if given.has("c"):
            run.admin.put_kv(ORDER, config.topic_name, conf)
            run.out(f"set cluster orderConf. isOrder=true, orderConf=[{conf}]")
        else:
            known = run.admin.order_conf(config.topic_name)
            run.admin.set_order_conf(config.topic_name, known | parse_order_conf(conf))
            run.out(f"set broker orderConf. isOrder=true, orderConf=[{conf}]")
    if not given.has("c"):
        run.out(f"create topic to {addresses[0]} success.")
    run.out(topic_config(config, attributes))


def put_topic(run: Run, address: str, config: TopicConfig, attributes: str | None) -> None:
    run.admin.request(
        address,
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        CreateTopicRequest(
            topic=config.topic_name,
            default_topic=AUTO_CREATE,
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            perm=config.perm,
            topic_filter_type=config.topic_filter_type,
            topic_sys_flag=config.topic_sys_flag,
            order=config.order,
            attributes=attributes,
        ),
    )


def parse_attributes(given: str) -> dict[str, str]:
    """``+a=b,-c``, each with its sign, as it is shown."""
    found: dict[str, str] = {}
    for part in filter(None, given.split(",")):
        key, equals, value = part.partition("=")
        if key[:1] not in "+-" or (key[:1] == "+") != bool(equals):
            raise ConfigError(f"-a {given!r}: +KEY=VALUE and -KEY expected, separated by ','")
        found[key] = value
    return found


def update_topic_perm(run: Run) -> None:
    topic, perm = run.given.text("t"), run.given.number("p")
    route = run.admin.topic_route(topic)
    by_name = {one.broker_name: one for one in route.queue_datas}
    first = route.queue_datas[0]
    config = TopicConfig(
        topic_name=topic,
        read_queue_nums=first.read_queue_nums,
        write_queue_nums=first.write_queue_nums,
        topic_sys_flag=first.topic_sys_flag,
        perm=perm,
    )
    if run.given.has("b"):
        address = run.given.text("b")
        name = next(
            (one.broker_name for one in route.broker_datas if one.master_addr == address), None
        )
        if name is None:
            raise ConfigError(f"no master of topic {topic} is at {address}")
        if by_name[name].perm == perm:
            run.out("new perm equals to the old one!")
            return
        put_topic(run, address, config, None)
        run.out(f"update topic perm from {by_name[name].perm} to {perm} in {address} success.")
        run.out(f"{topic_config(config)}.")
        return
    for address in run.masters():
        put_topic(run, address, config, None)
        run.out(f"update topic perm from {first.perm} to {perm} in {address} success.")


def delete_topic(run: Run) -> None:
    topic, cluster = run.given.text("t"), run.given.text("c")
    run.admin.delete_topic(topic, cluster=cluster)
    run.out(f"delete topic [{topic}] from cluster [{cluster}] success.")
    run.out(f"delete topic [{topic}] from NameServer success.")


def update_topic_list(run: Run) -> None:
    path = Path(run.given.text("f"))
    topics = java_json.decode(b'{"topicConfigList":' + path.read_bytes() + b"}", TopicConfigList)
    if not topics.topic_config_list:
        raise ConfigError(f"{path} has no topics: a JSON list of topic configurations expected")
    for address in run.masters():
        run.admin.request(
            address, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=java_json.encode(topics)
        )
        run.out(
            f"submit batch of topic config to {address} success, please check the result later."
        )


def update_order_conf(run: Run) -> None:
    topic, method = run.given.text("t"), run.given.text("m")
    if method == "get":
        address = run.target.nameservers.split(";")[0]
        header = GetKVConfigRequest(namespace=ORDER, key=topic)
        answer = run.admin.request(address, RequestCode.GET_KV_CONFIG, header)
        conf = GetKVConfigReply.from_ext(answer.ext).value or ""
        run.out(f"get orderConf success. topic=[{topic}], orderConf=[{conf}] ")
    elif method == "put":
        conf = run.given.text("v")
        if not conf:
            raise ConfigError("updateOrderConf -m put needs -v, as broker-a:4;broker-b:4")
        run.admin.put_kv(ORDER, topic, conf)
        run.out(f"update orderConf success. topic=[{topic}], orderConf=[{conf}]")
    elif method == "delete":
        run.admin.delete_kv(ORDER, topic)
        run.out(f"delete orderConf success. topic=[{topic}]")
    else:
        raise ConfigError(f"-m {method!r}: get, put or delete expected")


def allocate_mq(run: Run) -> None:
    members = [one.strip() for one in run.given.text("i").split(",")]
    queues = run.admin.queues(run.given.text("t"))
    share = AllocateAveragely()
    found = {
        member: [msgspec.to_builtins(one) for one in share.allocate("aa", member, queues, members)]
        for member in members
    }
    run.out(json.dumps({"result": found}, separators=(",", ":")))


COMMANDS: Final = (
    Command(
        "topicList",
        "List topics; with -c also clusters and groups.",
        (flag("c| clusterModel", "Also clusters and groups."),),
        topic_list,
    ),
    Command("topicClusterList", "The clusters that have a topic.", (TOPIC,), topic_cluster_list),
    Command(
        "topicRoute",
        "Where a topic lives, as JSON or (-l) as a list.",
        (TOPIC, flag("l| list", "As a list.")),
        topic_route,
    ),
    Command(
        "topicStatus",
        "The queues of a topic: where each begins and ends.",
        (TOPIC, flag("c cluster", "Accepted; the route is found by the topic.")),
        topic_status,
    ),
    Command(
        "updateTopic",
        "Create a topic, or change it.",
        (
            *WHERE,
            TOPIC,
            flag("r readQueueNums", "Queues to read; 8."),
            flag("w writeQueueNums", "Queues to write; 8."),
            flag("p perm", "2 to write, 4 to read, 6 for both."),
            flag("o order", "true: stay ordered while a broker is away."),
            flag("u unit", "true: a unit topic."),
            flag("s hasUnitSub", "true: has unit subscriptions."),
            flag("a attributes", "+KEY=VALUE,-KEY."),
        ),
        update_topic,
    ),
    Command(
        "updateTopicPerm",
        "Change whether a topic can be read and written.",
        (*WHERE, TOPIC, flag("p! perm", "2, 4 or 6.")),
        update_topic_perm,
    ),
    Command(
        "deleteTopic",
        "Delete a topic with its messages.",
        (TOPIC, flag("c! clusterName", "From this cluster.")),
        delete_topic,
    ),
    Command(
        "updateTopicList",
        "Create topics from a JSON file.",
        (*WHERE, flag("f! filename", "A JSON list of topic configurations.")),
        update_topic_list,
    ),
    Command(
        "updateOrderConf",
        "Read, write or delete the queues of an ordered topic.",
        (TOPIC, flag("m! method", "get, put or delete."), flag("v orderConf", "broker-a:4;...")),
        update_order_conf,
    ),
    Command(
        "allocateMQ",
        "How queues would be shared among clients.",
        (TOPIC, flag("i! ipList", "Clients, separated by ','.")),
        allocate_mq,
    ),
)
