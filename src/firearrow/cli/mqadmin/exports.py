"""mqadmin exports: settings, topics and groups, figures, each as a JSON file."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from firearrow.base.errors import FirearrowError
from firearrow.cli.mqadmin.brokers import runtime, statistics
from firearrow.cli.mqadmin.flags import flag
from firearrow.cli.mqadmin.run import Command
from firearrow.cli.topic_commands import own_topics
from firearrow.model.group import is_system_group
from firearrow.model.topic import is_dlq_topic, is_retry_topic, is_system_topic
from firearrow.wire import java_json
from firearrow.wire.bodies import SubscriptionGroupWrapper, TopicConfigSerializeWrapper
from firearrow.wire.codes import VERSION_OURS, RequestCode, version_name
from firearrow.wire.properties_text import parse_properties

if TYPE_CHECKING:
    from firearrow.cli.mqadmin.run import Run

CLUSTER: Final = flag("c! clusterName", "The cluster.")
FILE: Final = flag("f filePath", "The directory to write to.")
# What is worth keeping of a broker's settings.
SETTINGS: Final = (
    "brokerClusterName",
    "brokerId",
    "brokerName",
    "brokerRole",
    "fileReservedTime",
    "filterServerNums",
    "flushDiskType",
    "maxMessageSize",
    "messageDelayLevel",
    "msgTraceTopicName",
    "slaveReadEnable",
    "traceOn",
    "traceTopicEnable",
    "useTLS",
    "autoCreateTopicEnable",
    "autoCreateSubscriptionGroup",
)


def _write(run: Run, name: str, content: object) -> None:
    default = Path(tempfile.gettempdir()) / "rocketmq" / "export"
    folder = Path(run.given.text("f") or default)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=2))
    run.out(f"export {path} success")


def export_configs(run: Run) -> None:
    configs: dict[str, dict[str, str]] = {}
    slaves = 0
    brokers = run.brokers(run.given.text("c"))
    for data in brokers:
        if data.master_addr is None:
            continue
        answer = run.admin.request(data.master_addr, RequestCode.GET_BROKER_CONFIG)
        known = parse_properties(answer.body)
        slaves += len(data.broker_addrs) - 1
        configs[data.broker_name] = {key: known[key] for key in SETTINGS if key in known}
    scale = {
        "namesrvSize": len(run.target.nameservers.split(";")),
        "masterBrokerSize": len(configs),
        "slaveBrokerSize": slaves,
    }
    _write(run, "configs.json", {"brokerConfigs": configs, "clusterScale": scale})


def _topics(run: Run, address: str, *, special: bool) -> dict[str, Any]:
    """Topics of users, and if asked for those of retries and dead letters, as plain values."""
    answer = run.admin.request(address, RequestCode.GET_ALL_TOPIC_CONFIG)
    table = java_json.decode(answer.body, TopicConfigSerializeWrapper).topic_config_table or {}
    own = own_topics(run.admin.clusters())
    return {
        name: msgspec.to_builtins(config)
        for name, config in table.items()
        if not is_system_topic(name)
        and name not in own
        and (special or not (is_retry_topic(name) or is_dlq_topic(name)))
    }


def _groups(run: Run, address: str) -> dict[str, Any]:
    answer = run.admin.request(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    table = java_json.decode(answer.body, SubscriptionGroupWrapper).subscription_group_table
    return {
        name: msgspec.to_builtins(config)
        for name, config in table.items()
        if not is_system_group(name)
    }


def export_metadata(run: Run) -> None:
    given, special = run.given, run.given.has("s")
    topics: dict[str, Any] = {}
    groups: dict[str, Any] = {}
    for address in run.masters():
        for name, topic in _topics(run, address, special=special).items():
            if name in topics:
                for key in ("readQueueNums", "writeQueueNums"):
                    topic[key] += topics[name][key]
            topics[name] = topic
        for name, group in _groups(run, address).items():
            if name in groups:
                group["retryQueueNums"] += groups[name]["retryQueueNums"]
            groups[name] = group
    if given.has("t"):
        content, name = {"topicConfigTable": topics}, "topic.json"
    elif given.has("g"):
        content, name = {"subscriptionGroupTable": groups}, "subscriptionGroup.json"
    else:
        content = {"topicConfigTable": topics, "subscriptionGroupTable": groups}
        name = "metadata.json"
    _write(run, name, content | {"exportTime": run.target.now_ms()})


def export_metrics(run: Run) -> None:
    report: dict[str, Any] = {}
    tps_total: dict[str, float] = {}
    day_total: dict[str, int] = {}
    for data in run.brokers(run.given.text("c")):
        if data.master_addr is None:
            continue
        report[data.broker_name] = _broker_report(run, data.master_addr, tps_total, day_total)
    total = {"totalTps": tps_total, "totalOneDayNum": day_total}
    _write(run, "metrics.json", {"evaluateReport": report, "totalData": total})


def _broker_report(
    run: Run, address: str, tps_total: dict[str, float], day_total: dict[str, int]
) -> dict[str, Any]:
    said = runtime(run, address)
    half_tps, half_day = statistics(run, [address], "TOPIC_PUT_NUMS", "RMQ_SYS_TRANS_HALF_TOPIC")
    late_tps, late_day = statistics(run, [address], "TOPIC_PUT_NUMS", "SCHEDULE_TOPIC_XXXX")

    def yesterday(kind: str) -> int:
        return int(said[f"{kind}TodayMorning"]) - int(said[f"{kind}YesterdayMorning"])

    tps = {
        "normalInTps": float(said["putTps"].split(" ")[0] or 0),
        "normalOutTps": float(said["getTransferredTps"].split(" ")[0] or 0),
        "transInTps": half_tps,
        "scheduleInTps": late_tps,
    }
    day = {
        "normalOneDayInNum": yesterday("msgPutTotal"),
        "normalOneDayOutNum": yesterday("msgGetTotal"),
        "transOneDayInNum": half_day,
        "scheduleOneDayInNum": late_day,
    }
    for key, rate in tps.items():
        name = f"total{key[0].upper()}{key[1:]}"
        tps_total[name] = tps_total.get(name, 0.0) + rate
    for key, count in day.items():
        day_total[key] = day_total.get(key, 0) + count
    groups = _groups(run, address)
    return {
        "runtimeEnv": {"totalMemKBytes": said.get("totalMemKBytes")},
        "runtimeQuota": {
            "diskRatio": {
                key: said.get(key) for key in ("commitLogDiskRatio", "consumeQueueDiskRatio")
            },
            "tps": tps,
            "oneDayNum": day,
            "messageAverageSize": said.get("putMessageAverageSize"),
            "topicSize": len(_topics(run, address, special=False)),
            "groupSize": len(groups),
        },
        "runtimeVersion": {
            "rocketmqVersion": version_name(VERSION_OURS),
            "clientInfo": sorted(_clients(run, groups)),
        },
    }


def _clients(run: Run, groups: dict[str, Any]) -> set[str]:
    found = set()
    for group in groups:
        try:
            members = run.admin.consumer_connections(group).connection_set
        except FirearrowError:
            continue  # nobody is there
        found |= {f"{one.language}%{version_name(one.version)}" for one in members}
    return found


COMMANDS: Final = (
    Command("exportConfigs", "Settings of brokers to a file.", (CLUSTER, FILE), export_configs),
    Command(
        "exportMetadata",
        "Topics and groups to a file.",
        (
            flag("c clusterName", "The cluster."),
            flag("b brokerAddr", "Or this broker, HOST:PORT."),
            FILE,
            flag("t| topic", "Topics only."),
            flag("g| subscriptionGroup", "Groups only."),
            flag("s| specialTopic", "Topics of retries and dead letters too."),
        ),
        export_metadata,
    ),
    Command("exportMetrics", "Figures of brokers to a file.", (CLUSTER, FILE), export_metrics),
)
