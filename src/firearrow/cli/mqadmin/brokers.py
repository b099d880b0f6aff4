"""mqadmin on brokers and clusters: list, status, settings, statistics, cleaning up, replication."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import msgspec

from firearrow.base.errors import ConfigError, FirearrowError
from firearrow.cli.mqadmin.flags import flag
from firearrow.cli.mqadmin.java_text import front, moment, second, truth
from firearrow.cli.mqadmin.run import Command
from firearrow.cli.mqadmin.topics import WHERE
from firearrow.client.message import Message
from firearrow.model.topic import is_dlq_topic, is_retry_topic
from firearrow.wire import java_json
from firearrow.wire.bodies import (
    BrokerStatsData,
    ConsumeStatsList,
    HARuntimeInfo,
    KVTable,
    QueryConsumeQueueBody,
)
from firearrow.wire.codes import RequestCode
from firearrow.wire.headers import (
    GetBrokerConsumeStatsRequest,
    QueryConsumeQueueRequest,
    ViewBrokerStatsDataRequest,
)
from firearrow.wire.properties_text import format_properties, parse_properties

if TYPE_CHECKING:
    from firearrow.cli.mqadmin.run import Run
    from firearrow.model.group import SubscriptionData

INTERVAL: Final = flag("i interval", "Again every so many seconds, until Ctrl-C.")


def runtime(run: Run, address: str) -> dict[str, str]:
    answer = run.admin.request(address, RequestCode.GET_BROKER_RUNTIME_INFO)
    return java_json.decode(answer.body, KVTable).table


def _clusters(run: Run) -> list[str]:
    if run.given.has("c"):
        return [run.given.text("c")]
    return sorted(run.admin.clusters().cluster_addr_table)


def cluster_list(run: Run) -> None:
    show = _more_stats if run.given.has("m") else _base_info
    show(run)
    while run.given.has("i"):
        time.sleep(max(1, run.given.number("i", 1)))
        show(run)


def _base_info(run: Run) -> None:
    line = "{:<22}  {:<22}  {:<4}  {:<22} {:<16}  {:>16}  {:>30}  {:<22}  "
    heads = ["#Cluster Name", "#Broker Name", "#BID", "#Addr", "#Version", "#InTPS(LOAD)"]
    heads += ["#OutTPS(LOAD)", "#Timer(Progress)"]
    run.out(
        line.format(*heads)
        + f"{'#PCWait(ms)':<11}  {'#Hour':<12}  {'#SPACE':<8}  {'#ACTIVATED':<10}"
    )
    for cluster in _clusters(run):
        for data in run.brokers(cluster):
            for number, address in sorted(data.broker_addrs.items()):
                try:
                    said = runtime(run, address)
                except FirearrowError:
                    said = {}  # it is listed all the same
                run.out(_base_row(line, [cluster, data.broker_name, number, address], said,
                                  run.target.now_ms()))  # fmt: skip


def _base_row(line: str, first: list[object], said: dict[str, str], now_ms: int) -> str:
    def rate(key: str) -> float:
        return float(said.get(key, "").split(" ")[0] or 0)

    def number(key: str) -> float:
        return float(said.get(key) or 0)

    sent = ("sendThreadPoolQueueSize", "sendThreadPoolQueueHeadWaitTimeMills")
    pulled = ("pullThreadPoolQueueSize", "pullThreadPoolQueueHeadWaitTimeMills")
    acked = ("ackThreadPoolQueueSize", "ackThreadPoolQueueHeadWaitTimeMills")
    load_in = f"{rate('putTps'):9.2f}({said.get(sent[0], '')},{said.get(sent[1], '')}ms)"
    load_out = (
        f"{rate('getTransferredTps'):9.2f}({said.get(pulled[0], '')},{said.get(pulled[1], '')}ms|"
        f"{said.get(acked[0], 'N')},{said.get(acked[1], 'N')}ms)"
    )
    timer = (
        f"{number('timerReadBehind'):.0f}-{number('timerOffsetBehind'):.0f}"
        f"({number('timerCongestNum') / 10_000:.1f}w, {number('timerEnqueueTps'):.1f}, "
        f"{number('timerDequeueTps'):.1f})"
    )
    earliest = said.get("earliestMessageTimeStamp", "")
    hours = (now_ms - int(earliest)) / 3_600_000 if earliest.lstrip("-").isdecimal() else 0.0
    return line.format(*first, said.get("brokerVersionDesc", ""), load_in, load_out, timer) + (
        f"{said.get('pageCacheLockTimeMills', ''):>11}  {hours:<12.2f}  "
        f"{number('commitLogDiskRatio'):<8.4f}  {said.get('brokerActive', 'false'):>10}"
    )


def _more_stats(run: Run) -> None:
    line = "{:<16}  {:<32} {:>14} {:>14} {:>14} {:>14}"
    heads = ("#Cluster Name", "#Broker Name", "#InTotalYest", "#OutTotalYest")
    run.out(line.format(*heads, "#InTotalToday", "#OutTotalToday"))
    for cluster in _clusters(run):
        for data in run.brokers(cluster):
            for _, address in sorted(data.broker_addrs.items()):
                said = runtime(run, address)

                def between(key: str, later: str, earlier: str, figures: dict[str, str]) -> int:
                    return int(figures[key + later]) - int(figures[key + earlier])

                put, got, now = "msgPutTotal", "msgGetTotal", "TodayNow"
                figures = [
                    between(put, "TodayMorning", "YesterdayMorning", said),
                    between(got, "TodayMorning", "YesterdayMorning", said),
                    between(put, now, "TodayMorning", said),
                    between(got, now, "TodayMorning", said),
                ]
                run.out(line.format(cluster, data.broker_name, *figures))


def cluster_rt(run: Run) -> None:
    """Sends to every broker's own topic; once, or with -i every so many seconds."""
    amount, size = run.given.number("a", 100), run.given.number("s", 128)
    producer = run.target.producer("MQADMIN_SENDER")
    run.out(
        f"{'#Cluster Name':<24}  {'#Broker Name':<24}  {'#RT':<4}  {'#successCount':<8}  "
        f"{'#failCount':<8}"
    )
    while True:
        for cluster in _clusters(run):
            for data in run.brokers(cluster):
                sent = failed = 0
                total_ms = 0.0
                for number in range(amount):
                    began = time.perf_counter()
                    try:
                        producer.send(Message(data.broker_name, b"a" * size))
                        sent += 1
                    except FirearrowError:
                        failed += 1
                    total_ms += 1000 * (time.perf_counter() - began) if number else 0
                rt = f"{total_ms / max(1, amount - 1):.2f}"
                run.out(f"{cluster:<24}  {data.broker_name:<24}  {rt:<8}  {sent:<16}  {failed:<16}")
        if not run.given.has("i"):
            return
        time.sleep(max(1, run.given.number("i", 10)))


# --- one broker ---------------------------------------------------------------------------------


def broker_status(run: Run) -> None:
    if run.given.has("b"):
        for key, value in sorted(runtime(run, run.given.text("b")).items()):
            run.out(f"{key:<32}: {value}")
        return
    if not run.given.has("c"):
        raise ConfigError("name a broker (-b HOST:PORT) or a cluster (-c NAME)")
    for data in run.brokers(run.given.text("c")):
        for _, address in sorted(data.broker_addrs.items()):
            for key, value in sorted(runtime(run, address).items()):
                run.out(f"{address:<24} {key:<32}: {value}")


def get_broker_config(run: Run) -> None:
    if run.given.has("b"):
        _print_config(run, run.given.text("b"), f"============{run.given.text('b')}============")
        return
    if not run.given.has("c"):
        raise ConfigError("name a broker (-b HOST:PORT) or a cluster (-c NAME)")
    for data in run.brokers(run.given.text("c")):
        master = data.master_addr
        if master is not None:
            _print_config(run, master, f"============Master: {master}============")
        for number, address in sorted(data.broker_addrs.items()):
            if number:
                head = f"============My Master: {master}=====Slave: {address}============"
                _print_config(run, address, head)


def _print_config(run: Run, address: str, head: str) -> None:
    run.out(head)
    answer = run.admin.request(address, RequestCode.GET_BROKER_CONFIG)
    for key, value in parse_properties(answer.body).items():
        run.out(f"{key:<50}=  {value}")
    run.out()


def update_broker_config(run: Run) -> None:
    body = format_properties({run.given.text("k"): run.given.text("v")})
    addresses = run.masters()
    if run.given.has("c") and run.given.true("a"):
        addresses = [
            at for data in run.brokers(run.given.text("c")) for at in data.broker_addrs.values()
        ]
    for address in addresses:
        run.admin.request(address, RequestCode.UPDATE_BROKER_CONFIG, body=body)
        run.out(f"update broker config success, {address}")


def broker_consume_stats(run: Run) -> None:
    answer = run.admin.request(
        run.given.text("b"),
        RequestCode.GET_BROKER_CONSUME_STATS,
        GetBrokerConsumeStatsRequest(is_order=run.given.true("o")),
    )
    found = java_json.decode(answer.body, ConsumeStatsList)
    level = run.given.number("l", 0)
    line = "{:<64}  {:<64}  {:<32}  {:<4}  {:<20}  {:<20}  {:<20}  {}"
    heads = ("#Topic", "#Group", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset")
    run.out(line.format(*heads, "#Diff", "#LastTime"))
    for groups in found.consume_stats_list:
        for group, each in groups.items():
            for stats in each:
                for place, one in sorted(stats.offset_table.items(), key=lambda pair: pair[0]):
                    diff = one.broker_offset - one.consumer_offset
                    if diff < level or one.last_timestamp <= 0:
                        continue
                    run.out(
                        line.format(
                            front(place.topic, 64),
                            group,
                            front(place.broker_name, 32),
                            place.queue_id,
                            one.broker_offset,
                            one.consumer_offset,
                            diff,
                            second(one.last_timestamp),
                        )
                    )
    run.out(f"\nDiff Total: {found.total_diff}")


# --- statistics ---------------------------------------------------------------------------------


def statistics(run: Run, addresses: list[str], name: str, key: str) -> tuple[float, int]:
    """Messages a second, and in a day, over some brokers."""
    tps, day = 0.0, 0
    for address in addresses:
        header = ViewBrokerStatsDataRequest(stats_name=name, stats_key=key)
        try:
            answer = run.admin.request(address, RequestCode.VIEW_BROKER_STATS_DATA, header)
        except FirearrowError:
            continue  # nothing was counted there
        said = java_json.decode(answer.body, BrokerStatsData)
        tps += said.stats_minute.tps
        day += said.stats_day.sum or said.stats_hour.sum or said.stats_minute.sum
    return tps, day


def stats_all(run: Run) -> None:
    heads = ("#Topic", "#Consumer Group", "#Accumulation", "#InTPS", "#OutTPS", "#InMsg24Hour")
    run.out("{:<64}  {:<64} {:>12} {:>11} {:>11} {:>14} {:>14}".format(*heads, "#OutMsg24Hour"))
    wanted, lags = run.given.optional("t"), run.admin.group_lags()
    for topic in run.admin.topics(include_system=True):
        if is_retry_topic(topic) or is_dlq_topic(topic) or wanted not in {None, topic}:
            continue
        try:
            route, groups = run.admin.topic_route(topic), run.admin.topic_groups(topic)
        except FirearrowError:
            continue  # it was deleted meanwhile
        masters = [one.master_addr for one in route.broker_datas if one.master_addr]
        in_tps, in_day = statistics(run, masters, "TOPIC_PUT_NUMS", topic)
        for group in groups:
            out_tps, out_day = statistics(run, masters, "GROUP_GET_NUMS", f"{topic}@{group}")
            behind = lags[group].by_topic.get(topic, 0) if group in lags else 0
            if not run.given.has("a") or in_day or out_day:
                run.out(
                    f"{front(topic, 64):<64}  {front(group, 64):<64} {behind:12d} {in_tps:11.2f} "
                    f"{out_tps:11.2f} {in_day:14d} {out_day:14d}"
                )
        if not groups and (not run.given.has("a") or in_day):
            run.out(
                f"{front(topic, 64):<64}  {'':<64} {0:12d} {in_tps:11.2f} {'':>11} {in_day:14d} "
                f"{'NO_CONSUMER':>14}"
            )


# --- cleaning up, looking into queues, replication ----------------------------------------------


def _tell(run: Run, code: RequestCode) -> None:
    addresses = run.masters() if run.given.has("b") or run.given.has("c") else run.all_masters()
    for address in addresses:
        run.admin.request(address, code)
    run.out("success" if addresses else "false")


def _pretty(told: SubscriptionData) -> str:
    """As fastjson prints an object that has no objects in it: a line for each member."""
    members = msgspec.json.decode(java_json.encode(told), type=dict[str, msgspec.Raw])
    lines = (f'\t"{key}":{bytes(value).decode()}' for key, value in members.items())
    return "{\n" + ",\n".join(lines) + "\n}"


def query_cq(run: Run) -> None:
    given, topic = run.given, run.given.text("t")
    address = given.optional("b")
    if address is None:
        address = run.admin.topic_route(topic).broker_datas[0].master_addr or ""
    answer = run.admin.request(
        address,
        RequestCode.QUERY_CONSUME_QUEUE,
        QueryConsumeQueueRequest(
            topic=topic,
            queue_id=given.number("q"),
            index=given.number("i"),
            count=given.number("c", 10),
            consumer_group=given.optional("g"),
        ),
    )
    found = java_json.decode(answer.body, QueryConsumeQueueBody)
    line = "=" * 38
    if found.subscription_data is not None:
        run.out(f"Subscription data: \n{_pretty(found.subscription_data)}\n{line}")
    if found.filter_data is not None:
        run.out(f"Filter data: \n{found.filter_data}\n{line}")
    run.out(f"Queue data: \nmax: {found.max_queue_index}, min: {found.min_queue_index}\n{line}")
    for number, one in enumerate(found.queue_data, given.number("i")):
        run.out(
            f"idx: {number}\nConsumeQueueData{{physicOffset={one.physic_offset}, "
            f"physicSize={one.physic_size}, tagsCode={one.tags_code}, "
            f"extendDataJson='{truth(one.extend_data_json)}', bitMap='{truth(one.bit_map)}', "
            f"eval={truth(one.eval)}, msg='{truth(one.msg)}'}}\n{line}"
        )


def ha_status(run: Run) -> None:
    _ha_status(run)
    while run.given.has("i"):
        time.sleep(max(1, run.given.number("i", 3)))
        _ha_status(run)


def _ha_status(run: Run) -> None:
    for address in run.masters():
        answer = run.admin.request(address, RequestCode.GET_BROKER_HA_STATUS)
        said = java_json.decode(answer.body, HARuntimeInfo)
        if not said.master:
            client = said.ha_client_runtime_info
            run.out(f"\n#MasterAddr\t{truth(client.master_addr)}")
            run.out(f"#CommitLogMaxOffset\t{client.max_offset}")
            run.out(f"#TransferSpeed(KB/s)\t{client.transferred_byte_in_second / 1024:.2f}")
            run.out(f"#LastReadTime\t{moment(client.last_read_timestamp)}")
            run.out(f"#LastWriteTime\t{moment(client.last_write_timestamp)}")
            run.out(f"#MasterFlushOffset\t{client.master_flush_offset}")
            continue
        run.out(
            f"\n#MasterAddr\t{address}\n"
            f"#MasterCommitLogMaxOffset\t{said.master_commit_log_max_offset}\n"
            f"#SlaveNum\t{len(said.ha_connection_info)}\n"
            f"#InSyncSlaveNum\t{said.in_sync_slave_nums}"
        )
        heads = ("#SlaveAddr", "#SlaveAckOffset", "#Diff", "#TransferSpeed(KB/s)", "#Status")
        run.out("{:<32}  {:<16} {:>16} {:>16} {:>16} {:>16}".format(*heads, "#TransferFromWhere"))
        for one in said.ha_connection_info:
            state = "OK" if one.in_sync else "Fall Behind"
            run.out(
                f"{truth(one.addr):<32}  {one.slave_ack_offset:<16} {one.diff:16d} "
                f"{one.transferred_byte_in_second / 1024:16.2f} {state:>16} "
                f"{one.transfer_from_where:16d}"
            )


BROKER: Final = flag("b! brokerAddr", "The broker, HOST:PORT.")
COMMANDS: Final = (
    Command(
        "clusterList",
        "Brokers of all clusters with their rates.",
        (
            flag("m| moreStats", "Messages of yesterday and today."),
            INTERVAL,
            flag("c clusterName", "This cluster only."),
        ),
        cluster_list,
    ),
    Command(
        "clusterRT",
        "How long sends to every broker take.",
        (
            flag("a amount", "Messages; 100."),
            flag("s size", "Bytes; 128."),
            flag("c cluster", "This cluster only."),
            flag("p printLog", "Accepted."),
            flag("m machineRoom", "Accepted."),
            INTERVAL,
        ),
        cluster_rt,
    ),
    Command("brokerStatus", "Every figure of a broker.", WHERE, broker_status),
    Command("getBrokerConfig", "Settings of brokers.", WHERE, get_broker_config),
    Command(
        "updateBrokerConfig",
        "Change a setting of running brokers.",
        (
            *WHERE,
            flag("a updateAllBroker", "true: slaves too."),
            flag("k! key", "The setting."),
            flag("v! value", "Its value."),
        ),
        update_broker_config,
    ),
    Command(
        "brokerConsumeStats",
        "How far all groups of a broker are.",
        (
            BROKER,
            flag("t timeoutMillis", "Accepted."),
            flag("l level", "Only queues with at least so many waiting."),
            flag("o order", "true: ordered topics only."),
        ),
        broker_consume_stats,
    ),
    Command(
        "statsAll",
        "Rates and backlogs of all topics and groups.",
        (flag("a| activeTopic", "Only those in use."), flag("t topic", "This one only.")),
        stats_all,
    ),
    Command(
        "cleanExpiredCQ",
        "Remove expired entries of queues.",
        (flag("b brokerAddr", "This broker."), flag("c cluster", "This cluster.")),
        lambda run: _tell(run, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE),
    ),
    Command(
        "cleanUnusedTopic",
        "Remove queues of topics that are no more.",
        (flag("b brokerAddr", "This broker."), flag("c cluster", "This cluster.")),
        lambda run: _tell(run, RequestCode.CLEAN_UNUSED_TOPIC),
    ),
    Command(
        "deleteExpiredCommitLog",
        "Remove expired files of the log.",
        (flag("b brokerAddr", "This broker."), flag("c cluster", "This cluster.")),
        lambda run: _tell(run, RequestCode.DELETE_EXPIRED_COMMITLOG),
    ),
    Command(
        "queryCq",
        "Entries of a consume queue.",
        (
            flag("t! topic", "The topic."),
            flag("q! queue", "The queue."),
            flag("i! index", "The first entry."),
            flag("c count", "How many; 10."),
            flag("b broker", "The broker, HOST:PORT."),
            flag("g consumer", "Judge them by this group's filter."),
        ),
        query_cq,
    ),
    Command("haStatus", "Replication of brokers.", (*WHERE, INTERVAL), ha_status),
)
