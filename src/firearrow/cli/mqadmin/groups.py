"""mqadmin on groups: settings, connections, what members are doing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import structs

from firearrow.base.errors import ConfigError, FirearrowError
from firearrow.cli.mqadmin.flags import flag
from firearrow.cli.mqadmin.java_text import compact, queue, truth
from firearrow.cli.mqadmin.run import Command
from firearrow.cli.mqadmin.topics import TOPIC, WHERE, parse_attributes
from firearrow.model.group import (
    CustomizedRetryPolicy,
    ExponentialRetryPolicy,
    GroupRetryPolicy,
    MessageRequestMode,
    SubscriptionGroupConfig,
)
from firearrow.model.topic import dlq_topic, retry_topic
from firearrow.wire import java_json
from firearrow.wire.bodies import (
    ConsumerConnection,
    ProducerTableInfo,
    SetMessageRequestModeBody,
    SubscriptionGroupList,
    SubscriptionGroupWrapper,
)
from firearrow.wire.codes import RequestCode, version_name
from firearrow.wire.headers import (
    DeleteSubscriptionGroupRequest,
    DeleteTopicInNameserverRequest,
    DeleteTopicRequest,
    GetConsumerConnectionListRequest,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from firearrow.cli.mqadmin.run import Run
    from firearrow.wire.bodies import ConsumerRunningInfo
    from firearrow.wire.bodies.groups import Connection

GROUP: Final = flag("g! groupName", "The consumer group.")
WHILE_MS: Final = 120_000  # a member that runs for longer has its subscriptions
BLOCKED_MS: Final = 60_000

# Java's fields of a group's settings, in its order, and ours.
FIELDS: Final = (
    "group_name",
    "consume_enable",
    "consume_from_min_enable",
    "consume_broadcast_enable",
    "consume_message_orderly",
    "retry_queue_nums",
    "retry_max_times",
    "group_retry_policy",
    "broker_id",
    "which_broker_when_consume_slowly",
    "notify_consumer_ids_changed_enable",
    "group_sys_flag",
    "consume_timeout_minute",
    "subscription_data_set",
    "attributes",
)


def camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def value_text(value: object) -> str:
    if isinstance(value, GroupRetryPolicy | ExponentialRetryPolicy | CustomizedRetryPolicy):
        inner = (f"{camel(key)}={value_text(one)}" for key, one in structs.asdict(value).items())
        return f"{type(value).__name__}{{{', '.join(inner)}}}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}={one}" for key, one in value.items()) + "}"
    if isinstance(value, tuple):
        return "[" + ", ".join(map(str, value)) + "]"
    return truth(value)


def group_text(config: SubscriptionGroupConfig) -> str:
    parts = (f"{camel(name)}={value_text(getattr(config, name))}" for name in FIELDS)
    return f"SubscriptionGroupConfig{{{', '.join(parts)}}}"


# --- settings -----------------------------------------------------------------------------------


def update_sub_group(run: Run) -> None:
    given = run.given
    settings: dict[str, Any] = {
        "group_name": given.text("g"),
        "consume_enable": given.true("s", default=True),
        "consume_from_min_enable": given.true("m"),
        "consume_broadcast_enable": given.true("d"),
        "consume_message_orderly": given.true("o"),
        "retry_queue_nums": given.number("q", 1),
        "retry_max_times": given.number("r", 16),
        "broker_id": given.number("i", 0),
        "which_broker_when_consume_slowly": given.number("w", 1),
        "notify_consumer_ids_changed_enable": given.true("a", default=True),
    }
    if given.has("p"):
        settings["group_retry_policy"] = java_json.decode(
            given.text("p").encode(), GroupRetryPolicy
        )
    if given.has("attributes"):
        settings["attributes"] = parse_attributes(given.text("attributes"))
    config = SubscriptionGroupConfig(**settings)
    for address in run.masters():
        run.admin.request(
            address,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            body=java_json.encode(config),
        )
        run.out(f"create subscription group to {address} success.")
    run.out(group_text(config))


def update_sub_group_list(run: Run) -> None:
    path = Path(run.given.text("f"))
    groups = java_json.decode(
        b'{"groupConfigList":' + path.read_bytes() + b"}", SubscriptionGroupList
    )
    if not groups.group_config_list:
        raise ConfigError(f"{path} has no groups: a JSON list of group configurations expected")
    what = "group config" if run.given.has("b") else "subscription group config"
    for address in run.masters():
        run.admin.request(
            address,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
            body=java_json.encode(groups),
        )
        run.out(f"submit batch of {what} to {address} success, please check the result later.")


def delete_sub_group(run: Run) -> None:
    group, cluster = run.given.text("g"), run.given.optional("c")
    header = DeleteSubscriptionGroupRequest(group_name=group, clean_offset=run.given.true("r"))
    addresses = run.masters()
    for address in addresses:
        run.admin.request(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
        where = "" if run.given.has("b") else f" in cluster [{cluster}]"
        run.out(f"delete subscription group [{group}] from broker [{address}]{where} success.")
    if run.given.has("b"):
        return
    for topic in (retry_topic(group), dlq_topic(group)):
        for address in addresses:
            run.admin.request(
                address, RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequest(topic=topic)
            )
        for server in run.target.nameservers.split(";"):
            run.admin.request(
                server,
                RequestCode.DELETE_TOPIC_IN_NAMESRV,
                DeleteTopicInNameserverRequest(topic=topic, cluster_name=cluster),
            )


def get_consumer_config(run: Run) -> None:
    group = run.given.text("g")
    for _, data in sorted(run.admin.clusters().broker_addr_table.items()):
        if data.master_addr is None:
            continue
        answer = run.admin.request(data.master_addr, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        table = java_json.decode(answer.body, SubscriptionGroupWrapper).subscription_group_table
        config = table.get(group)
        if config is None:
            continue
        line = "=" * 29
        run.out(f"{line}{data.cluster}:{data.broker_name}{line}")
        for name in FIELDS:
            value = getattr(config, name)
            run.out(f"{camel(name):<40}=  {'' if value is None else value_text(value)}")


def set_consume_mode(run: Run) -> None:
    given = run.given
    try:
        mode = MessageRequestMode(given.text("m").upper())
    except ValueError:
        raise ConfigError(f"-m {given.text('m')!r}: PULL or POP expected") from None
    share = given.number("q", 0)
    body = SetMessageRequestModeBody(
        topic=given.text("t"), consumer_group=given.text("g"), mode=mode, pop_share_queue_num=share
    )
    for address in run.masters():
        run.admin.request(
            address, RequestCode.SET_MESSAGE_REQUEST_MODE, body=java_json.encode(body)
        )
        run.out(f"set consume mode to {address} success.")
    run.out(
        f"topic[{body.topic}] group[{body.consumer_group}] consume mode[{mode.value}] "
        f"popShareQueueNum[{share}]"
    )


# --- connections --------------------------------------------------------------------------------


def _connections(run: Run, group: str) -> ConsumerConnection:
    if not run.given.has("b"):
        return run.admin.consumer_connections(group)
    answer = run.admin.request(
        run.given.text("b"),
        RequestCode.GET_CONSUMER_CONNECTION_LIST,
        GetConsumerConnectionListRequest(consumer_group=group),
    )
    return java_json.decode(answer.body, ConsumerConnection)


def consumer_connection(run: Run) -> None:
    found = _connections(run, run.given.text("g"))
    run.out(f"{'#ClientId':<36} {'#ClientAddr':<22} {'#Language':<10} #Version")
    for one in found.connection_set:
        run.out(
            f"{one.client_id:<36} {one.client_addr:<22} {one.language:<10} "
            f"{version_name(one.version)}"
        )
    run.out("\nBelow is subscription:")
    run.out(f"{'#Topic':<20} #SubExpression")
    for topic, wish in sorted(found.subscription_table.items()):
        run.out(f"{topic:<20} {wish.sub_string}")
    run.out()
    run.out(f"ConsumeType: {truth(found.consume_type)}")
    run.out(f"MessageModel: {truth(found.message_model)}")
    run.out(f"ConsumeFromWhere: {truth(found.consume_from_where)}")


def producer_connection(run: Run) -> None:
    found = run.admin.producer_connections(run.given.text("g"), run.given.text("t"))
    for number, one in enumerate(found.connection_set, 1):
        run.out(
            f"{number:04d}  {one.client_id:<32} {one.client_addr:<22} {one.language:<8} "
            f"{version_name(one.version)}"
        )


def producer(run: Run) -> None:
    answer = run.admin.request(run.given.text("b"), RequestCode.GET_ALL_PRODUCER_INFO)
    for group, members in java_json.decode(answer.body, ProducerTableInfo).data.items():
        if not members:
            run.out(f"producer group ({group}) instances are empty")
        for one in members:
            run.out(
                f"producer group ({group}) instance : clientId={one.client_id},"
                f"remoteIP={one.remote_ip}, language={one.language}, version={one.version}, "
                f"lastUpdateTimestamp={one.last_update_timestamp}"
            )


# --- what members are doing ---------------------------------------------------------------------


def consumer_status(run: Run) -> None:
    group, stacks = run.given.text("g"), run.given.has("s")
    connections = _connections(run, group)
    if run.given.has("i"):
        told = run.admin.running_info(group, run.given.text("i"), stacks=stacks)
        run.out(running_text(told).rstrip("\n"))
        return
    run.out(f"{'#Index':<10} {'#ClientId':<40} {'#Version':<20} #ConsumerRunningInfoFile")
    now_ms = run.target.now_ms()
    folder = Path(str(now_ms))
    members: dict[str, ConsumerRunningInfo] = {}
    for one in connections.connection_set:
        said = _ask(run, group, one, stacks=stacks)
        if said is None:
            continue
        members[one.client_id] = said
        folder.mkdir(exist_ok=True)
        file = folder / one.client_id.replace("/", "_")
        file.write_text(running_text(said), "utf-8")
        run.out(f"{len(members):<10} {one.client_id:<40} {version_name(one.version):<20} {file}")
    if members:
        _judge(run, members, now_ms)


def _ask(run: Run, group: str, one: Connection, *, stacks: bool) -> ConsumerRunningInfo | None:
    try:
        return run.admin.running_info(group, one.client_id, stacks=stacks)
    except FirearrowError as error:
        run.out(f"{one.client_id} does not say: {error}")
        return None


def _judge(run: Run, members: dict[str, ConsumerRunningInfo], now_ms: int) -> None:
    if not _same_subscriptions(members.values(), now_ms):
        run.out("\n\nWARN: Different subscription in the same group of consumer!!!")
        return
    run.out("\n\nSame subscription in the same group of consumer")
    run.out("\nRebalance OK")
    for client, said in sorted(members.items()):
        for place, info in said.mq_table.items():
            idle_ms = now_ms - info.last_consume_timestamp
            if info.cached_msg_count > 0 and idle_ms > BLOCKED_MS:
                run.out(
                    f"{client} {queue(place)} can't consume for a while, maybe blocked, {idle_ms}ms"
                )


def _same_subscriptions(members: Iterable[ConsumerRunningInfo], now_ms: int) -> bool:
    wishes = set()
    for said in members:
        started = said.properties.get("PROP_CONSUMER_START_TIMESTAMP", "0")
        if started.isdecimal() and now_ms - int(started) > WHILE_MS:
            wishes.add(frozenset((one.topic, one.sub_string) for one in said.subscription_set))
    return len(wishes) <= 1


def running_text(said: ConsumerRunningInfo) -> str:
    """What a member says of itself, in RocketMQ's sections."""
    lines = ["#Consumer Properties#"]
    lines += [f"{key:<40}: {value}" for key, value in said.properties.items()]
    lines += ["", "", "#Consumer Subscription#"]
    lines += [
        f"{number:03d} Topic: {one.topic:<40} ClassFilter: {truth(one.class_filter_mode):<8} "
        f"SubExpression: {one.sub_string}"
        for number, one in enumerate(sorted(said.subscription_set, key=lambda x: x.topic), 1)
    ]
    lines += ["", "", "#Consumer Offset#"]
    lines.append(f"{'#Topic':<64}  {'#Broker Name':<32}  {'#QID':<4}  {'#Consumer Offset':<20}")
    lines += [
        f"{place.topic:<32}  {place.broker_name:<32}  {place.queue_id:<4}  {info.commit_offset:<20}"
        for place, info in sorted(said.mq_table.items(), key=lambda pair: pair[0])
    ]
    lines += ["", "", "#Consumer MQ Detail#"]
    lines.append(f"{'#Topic':<64}  {'#Broker Name':<32}  {'#QID':<4}  {'#ProcessQueueInfo':<20}")
    lines += [
        f"{place.topic:<64}  {place.broker_name:<32}  {place.queue_id:<4}  {_process_text(info)}"
        for place, info in sorted(said.mq_table.items(), key=lambda pair: pair[0])
    ]
    lines += ["", "", "#Consumer Pop Detail#"]
    lines.append(f"{'#Topic':<32}  {'#Broker Name':<32}  {'#QID':<4}  {'#ProcessQueueInfo':<20}")
    lines += ["", "", "#Consumer RT&TPS#"]
    lines.append(
        f"{'#Topic':<64}  {'#Pull RT':>14} {'#Pull TPS':>14} {'#Consume RT':>14} "
        f"{'#ConsumeOK TPS':>14} {'#ConsumeFailed TPS':>18} {'#ConsumeFailedMsgsInHour':>25}"
    )
    lines += [
        f"{topic:<32}  {one.pull_rt:14.2f} {one.pull_tps:14.2f} {one.consume_rt:14.2f} "
        f"{one.consume_ok_tps:14.2f} {one.consume_failed_tps:18.2f} {one.consume_failed_msgs:25d}"
        for topic, one in sorted(said.status_table.items())
    ]
    if said.user_consumer_info is not None:
        lines += ["", "", "#User Consume Info#"]
        lines += [f"{key:<40}: {value}" for key, value in said.user_consumer_info.items()]
    if said.jstack is not None:
        lines += ["", "", "#Consumer jstack#", said.jstack]
    return "\n".join(lines) + "\n"


def _process_text(info: Any) -> str:  # noqa: ANN401 - a process queue's figures
    values = msgspec.to_builtins(info)
    for name in ("lastLockTimestamp", "lastPullTimestamp", "lastConsumeTimestamp"):
        values[name] = compact(values[name])
    parts = ", ".join(f"{key}={truth(value)}" for key, value in values.items())
    return f"ProcessQueueInfo [{parts}]"


def start_monitoring(run: Run) -> None:
    """Every ten seconds: groups that fall behind, members that stand still."""
    while True:
        for group, lag in run.admin.group_lags().items():
            if lag.total > 1000:
                run.out(f"group {group} is {lag.total} messages behind")
        time.sleep(10)


COMMANDS: Final = (
    Command(
        "updateSubGroup",
        "Create a consumer group, or change it.",
        (
            *WHERE,
            GROUP,
            flag("s consumeEnable", "false: it may not consume."),
            flag("m consumeFromMinEnable", "true: a new group begins with the oldest message."),
            flag("d consumeBroadcastEnable", "true: it may broadcast."),
            flag("o consumeMessageOrderly", "true: in order."),
            flag("q retryQueueNums", "Queues of its retry topic; 1."),
            flag("r retryMaxTimes", "Retries before a message is a dead letter; 16."),
            flag("p groupRetryPolicy", "JSON."),
            flag("i brokerId", "Consume from this broker id."),
            flag("w whichBrokerWhenConsumeSlowly", "Broker id for slow consumers; 1."),
            flag("a notifyConsumerIdsChanged", "false: members are not told of each other."),
            flag("attributes attributes", "+KEY=VALUE,-KEY."),
        ),
        update_sub_group,
    ),
    Command(
        "updateSubGroupList",
        "Create consumer groups from a JSON file.",
        (*WHERE, flag("f! filename", "A JSON list of group configurations.")),
        update_sub_group_list,
    ),
    Command(
        "deleteSubGroup",
        "Delete a consumer group.",
        (*WHERE, GROUP, flag("r removeOffset", "true: its offsets too.")),
        delete_sub_group,
    ),
    Command("getConsumerConfig", "Settings of a group.", (GROUP,), get_consumer_config),
    Command(
        "setConsumeMode",
        "Whether a group pulls or pops; FireArrow's broker keeps the setting, but has no POP.",
        (
            *WHERE,
            TOPIC._replace(long="topicName"),
            GROUP,
            flag("m! mode", "PULL or POP."),
            flag("q popShareQueueNum", "Queues shared with POP."),
        ),
        set_consume_mode,
    ),
    Command(
        "consumerConnection",
        "Members of a group and what they subscribe to.",
        (flag("g! consumerGroup", "The group."), flag("b brokerAddr", "Ask this broker only.")),
        consumer_connection,
    ),
    Command(
        "producerConnection",
        "Producers of a group.",
        (flag("g! producerGroup", "The producer group."), TOPIC),
        producer_connection,
    ),
    Command(
        "producer",
        "All producers that a broker knows.",
        (flag("b! broker", "The broker, HOST:PORT."),),
        producer,
    ),
    Command(
        "consumerStatus",
        "What members of a group are doing.",
        (
            flag("g! consumerGroup", "The group."),
            flag("i clientId", "This member only."),
            flag("b brokerAddr", "Ask this broker only."),
            flag("s| jstack", "With stacks of threads."),
        ),
        consumer_status,
    ),
    Command(
        "startMonitoring", "Print groups that fall behind, until Ctrl-C.", (), start_monitoring
    ),
)
