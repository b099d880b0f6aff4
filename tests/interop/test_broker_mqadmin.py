"""The unmodified mqadmin 5.3.3 does its daily work on our broker."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from firearrow import ConsumeFromWhere, Message, Producer, PushConsumer

from .apache import RELEASE_4, RELEASE_5, SOON_S, Mqadmin
from .ours import Ours, StayingClient, start_ours, start_staying_client
from .processes import Bench, PeerError, wait_until
from .rounds import start_java_round

if TYPE_CHECKING:
    from pathlib import Path

Unique = Callable[[str], str]

CLUSTER = "DefaultCluster"
BROKER = "broker-a"
COUNT = 16
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


@pytest.fixture(scope="module")
def ours(bench: Bench) -> Ours:
    return start_ours(bench)


def create(ours: Ours, topic: str, queues: int = 4) -> None:
    ours.run("updateTopic", "-t", topic, "-c", CLUSTER, "-r", str(queues), "-w", str(queues))


def fill(ours: Ours, topic: str, count: int = COUNT) -> None:
    """Send messages with the Java client: body and key name their number."""
    outcome = start_java_round(
        ours.bench, ours.nameserver, topic, ["sync-send"], count=count
    ).finish()
    assert outcome.failures() == {}


def rows(text: str, first: str) -> list[list[str]]:
    """The words of lines that begin with a word."""
    return [line.split() for line in text.splitlines() if line.split()[:1] == [first]]


@pytest.fixture(scope="module")
def filled(ours: Ours, unique: Unique) -> str:
    """A topic with four queues and sixteen messages."""
    topic = unique("filled")
    create(ours, topic)
    fill(ours, topic)
    return topic


@pytest.fixture(scope="module")
def group(ours: Ours, unique: Unique) -> str:
    name = unique("group")
    ours.run("updateSubGroup", "-g", name, "-c", CLUSTER)
    return name


@pytest.fixture(scope="module")
def client(ours: Ours, filled: str, group: str) -> StayingClient:
    """A live member of the group that has read everything."""
    one = start_staying_client(ours, filled, group)
    one.wait_for(COUNT, timeout_s=30)
    return one


# --- clusters and brokers -------------------------------------------------------------------


def test_cluster_list_shows_the_broker_with_its_figures(ours: Ours) -> None:
    (row,) = rows(ours.run("clusterList"), CLUSTER)
    assert row[1:5] == [BROKER, "0", ours.broker_address, "V5_3_3"]
    assert re.fullmatch(r"\d+\.\d\d\(\d+,\d+ms\)", row[5]), row
    assert row[-1] == "true"
    assert 0 < float(row[-2]) < 1


@pytest.mark.usefixtures("filled")
def test_cluster_list_shows_totals_since_the_morning(ours: Ours) -> None:
    (row,) = rows(ours.run("clusterList", "-m"), CLUSTER)
    assert row[1] == BROKER
    today = int(row[4])
    assert today >= COUNT


@pytest.mark.usefixtures("filled")
def test_broker_status_prints_what_was_put(ours: Ours) -> None:
    lines = (line.split(":", 1) for line in ours.on_broker("brokerStatus").splitlines() if line)
    info = {key.strip(): value.strip() for key, value in lines}
    assert int(info["msgPutTotalTodayNow"]) >= COUNT
    assert int(info["commitLogMaxOffset"]) > 0
    assert info["brokerVersionDesc"] == "V5_3_3"
    assert len(info["getTotalTps"].split()) == 3
    assert "days" in info["runtime"]


def test_broker_config_is_changed_and_read_back(ours: Ours) -> None:
    def config() -> dict[str, str]:
        lines = (line.split("=", 1) for line in ours.on_broker("getBrokerConfig").splitlines())
        pairs = [pair for pair in lines if len(pair) == 2]
        return {key.strip(): value.strip() for key, value in pairs}

    before = config()["fileReservedTime"]
    changed = ours.on_broker("updateBrokerConfig", "-k", "fileReservedTime", "-v", "71")
    assert f"update broker config success, {ours.broker_address}" in changed
    assert config()["fileReservedTime"] == "71"
    ours.on_broker("updateBrokerConfig", "-k", "fileReservedTime", "-v", before)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("listenPort", "1", "CODE: 16"),
        ("brokerConfigPath", "x", "CODE: 16"),
        ("fileReservedTime", "soon", "CODE: 1 "),
    ],
)
def test_broker_config_that_must_not_change_is_refused(
    ours: Ours, key: str, value: str, words: str
) -> None:
    answer = ours.admin.try_run(
        "updateBrokerConfig", "-b", ours.broker_address, "-k", key, "-v", value
    )
    assert words in answer.err
    assert key in answer.err


def test_ha_status_shows_a_lone_master(ours: Ours) -> None:
    out = ours.on_broker("haStatus")
    assert f"#MasterAddr\t{ours.broker_address}" in out
    assert "#SlaveNum\t0" in out


@pytest.mark.parametrize(
    "command", ["cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"]
)
def test_cleaning_commands_succeed(ours: Ours, command: str) -> None:
    assert "success" in ours.on_broker(command)


def test_metadata_is_exported_with_topics_and_groups(
    ours: Ours, filled: str, group: str, tmp_path: Path
) -> None:
    ours.run("exportMetadata", "-c", CLUSTER, "-f", str(tmp_path))
    exported = json.loads((tmp_path / "metadata.json").read_text())
    assert exported["topicConfigTable"][filled]["writeQueueNums"] == 4
    assert group in exported["subscriptionGroupTable"]


# --- topics ---------------------------------------------------------------------------------


def test_topic_is_created_routed_and_listed(ours: Ours, unique: Unique) -> None:
    topic = unique("created")
    out = ours.run("updateTopic", "-t", topic, "-c", CLUSTER, "-r", "3", "-w", "5")
    assert f"create topic to {ours.broker_address} success." in out
    route = ours.admin.run("topicRoute", "-t", topic).json_body()
    assert isinstance(route, dict)
    assert route["queueDatas"] == [
        {
            "brokerName": BROKER,
            "perm": 6,
            "readQueueNums": 3,
            "topicSysFlag": 0,
            "writeQueueNums": 5,
        }
    ]
    assert topic in ours.run("topicList").split()
    assert ours.run("topicClusterList", "-t", topic).split() == [CLUSTER]


def test_topic_status_counts_messages_by_queue(ours: Ours, filled: str) -> None:
    table = rows(ours.run("topicStatus", "-t", filled), BROKER)
    assert [row[1] for row in table] == ["0", "1", "2", "3"]
    assert sum(int(row[3]) for row in table) == COUNT


@pytest.mark.parametrize(("topic", "code"), [("bad*topic", 29), ("SELF_TEST_TOPIC", 29)])
def test_impossible_topic_is_refused(ours: Ours, topic: str, code: int) -> None:
    answer = ours.admin.try_run("updateTopic", "-t", topic, "-b", ours.broker_address)
    assert f"CODE: {code}" in answer.err


def test_topic_with_attributes_is_created_and_changed(ours: Ours, unique: Unique) -> None:
    topic = unique("attributes")
    where = ("-t", topic, "-b", ours.broker_address)
    out = ours.run("updateTopic", *where, "-a", "+message.type=FIFO")
    assert "attributes={+message.type=FIFO}" in out
    ours.run("updateTopic", *where, "-a", "+message.type=NORMAL")
    answer = ours.admin.try_run("updateTopic", *where, "-a", "+message.type=SPECIAL")
    assert "CODE: 29" in answer.err


def test_permission_of_a_topic_is_changed(ours: Ours, unique: Unique) -> None:
    topic = unique("perm")
    create(ours, topic)
    out = ours.run("updateTopicPerm", "-t", topic, "-b", ours.broker_address, "-p", "4")
    assert "update topic perm from 6 to 4" in out
    assert '"perm":4' in ours.run("topicRoute", "-t", topic).replace(" ", "")


def test_topics_are_created_from_a_file(ours: Ours, unique: Unique, tmp_path: Path) -> None:
    names = [unique("listed"), unique("listed")]
    file = tmp_path / "topics.json"
    file.write_text(json.dumps([{"topicName": name, "readQueueNums": 2} for name in names]))
    ours.on_broker("updateTopicList", "-f", str(file))
    assert set(names) <= set(ours.run("topicList").split())


def test_ordered_topic_is_created_with_its_order_conf(ours: Ours, unique: Unique) -> None:
    topic = unique("ordered")
    # It prints what the name server says before the setting is there: nothing found, code 22.
    options = ("-b", ours.broker_address, "-o", "true", "-w", "2")
    assert "success" in ours.admin.try_run("updateTopic", "-t", topic, *options).out
    conf = ours.run("updateOrderConf", "-t", topic, "-m", "get")
    assert f"orderConf=[{BROKER}:2]" in conf


def test_deleted_topic_is_gone_and_begins_anew_when_made_again(ours: Ours, unique: Unique) -> None:
    topic = unique("deleted")
    create(ours, topic, queues=1)
    fill(ours, topic, count=3)
    out = ours.run("deleteTopic", "-t", topic, "-c", CLUSTER)
    assert f"delete topic [{topic}] from cluster [{CLUSTER}] success." in out
    assert topic not in ours.run("topicList").split()
    assert "CODE: 17" in ours.admin.try_run("topicStatus", "-t", topic).err
    create(ours, topic, queues=1)
    (row,) = rows(ours.run("topicStatus", "-t", topic), BROKER)
    assert row[2:4] == ["0", "0"]


def test_system_topic_is_not_deleted(ours: Ours) -> None:
    answer = ours.admin.try_run("deleteTopic", "-t", "TBW102", "-c", CLUSTER)
    assert "CODE: 29" in answer.err


def test_queues_are_allocated_to_addresses(ours: Ours, filled: str) -> None:
    shared = json.loads(ours.run("allocateMQ", "-t", filled, "-i", "10.0.0.1,10.0.0.2"))["result"]
    assert sorted(len(queues) for queues in shared.values()) == [2, 2]


# --- messages -------------------------------------------------------------------------------


def test_message_is_found_by_key_then_by_id_and_by_unique_key(ours: Ours, filled: str) -> None:
    table = ours.run("queryMsgByKey", "-t", filled, "-k", "key-sync-send-5")
    (line,) = [line for line in table.splitlines() if line and not line.startswith("#")]
    unique_key = line.split()[0]

    shown = ours.run("queryMsgByUniqueKey", "-t", filled, "-i", unique_key)
    assert "Keys:                [key-sync-send-5]" in shown
    queue_id = re.search(r"Queue ID: +(\d+)", shown)
    offset = re.search(r"Queue Offset: +(\d+)", shown)
    assert queue_id is not None
    assert offset is not None

    placed = ours.run(
        "queryMsgByOffset", "-t", filled, "-b", BROKER, "-i", queue_id[1], "-o", offset[1]
    )
    message_id = re.search(r"OffsetID: +(\w{32})", placed)
    assert message_id is not None
    assert "[key-sync-send-5]" in placed
    by_id = ours.run("queryMsgById", "-t", filled, "-i", message_id[1])
    assert "[key-sync-send-5]" in by_id


def test_key_that_no_message_has_finds_nothing(ours: Ours, filled: str) -> None:
    answer = ours.admin.try_run("queryMsgByKey", "-t", filled, "-k", "nowhere")
    assert "query message by key finished, but no message." in answer.err
    assert not [line for line in answer.out.splitlines() if line and not line.startswith("#")]


def test_every_message_of_a_topic_is_printed(ours: Ours, filled: str) -> None:
    out = ours.run("printMsg", "-t", filled, "-d", "true")
    bodies = set(re.findall(r"BODY: (\S+)", out))
    assert bodies == {f"sync-send-{number}" for number in range(COUNT)}


def test_messages_of_one_queue_are_printed(ours: Ours, filled: str) -> None:
    out = ours.run(
        "printMsgByQueue", "-t", filled, "-a", BROKER, "-i", "0", "-p", "true", "-d", "true"
    )
    assert len(re.findall(r"BODY: sync-send-\d+", out)) == COUNT // 4


def test_messages_are_consumed_from_the_command_line(ours: Ours, filled: str) -> None:
    out = ours.run("consumeMessage", "-t", filled, "-c", "100")
    assert len(re.findall(r"BODY: sync-send-\d+", out)) == COUNT


def test_message_is_sent_from_the_command_line(ours: Ours, unique: Unique) -> None:
    topic = unique("sent")
    create(ours, topic)
    out = ours.run("sendMessage", "-t", topic, "-p", "hello", "-k", "greeting", "-c", "TagA")
    assert "SEND_OK" in out
    assert "hello" in ours.run("printMsg", "-t", topic, "-d", "true")


def test_entries_of_a_consume_queue_are_shown(ours: Ours, filled: str) -> None:
    out = ours.on_broker("queryCq", "-t", filled, "-q", "0", "-i", "0", "-c", "3")
    assert "max: 4, min: 0" in out
    assert len(re.findall(r"physicSize=\d+", out)) == 3


# --- groups ---------------------------------------------------------------------------------


def test_group_is_created_shown_and_deleted(ours: Ours, unique: Unique) -> None:
    name = unique("settings")
    out = ours.run("updateSubGroup", "-g", name, "-c", CLUSTER, "-r", "3", "-q", "2")
    assert f"create subscription group to {ours.broker_address} success." in out
    shown = ours.run("getConsumerConfig", "-g", name)
    assert re.search(r"retryMaxTimes += +3", shown)
    assert re.search(r"retryQueueNums += +2", shown)
    gone = ours.on_broker("deleteSubGroup", "-g", name, "-r", "true")
    assert f"delete subscription group [{name}] from broker" in gone
    assert "retryMaxTimes" not in ours.admin.try_run("getConsumerConfig", "-g", name).out


def test_groups_are_created_from_a_file(ours: Ours, unique: Unique, tmp_path: Path) -> None:
    names = [unique("listed"), unique("listed")]
    file = tmp_path / "groups.json"
    file.write_text(json.dumps([{"groupName": name, "retryMaxTimes": 5} for name in names]))
    ours.on_broker("updateSubGroupList", "-f", str(file))
    for name in names:
        assert re.search(r"retryMaxTimes += +5", ours.run("getConsumerConfig", "-g", name))


def test_connections_of_consumers_and_producers_are_shown(
    ours: Ours, filled: str, group: str, client: StayingClient
) -> None:
    out = ours.run("consumerConnection", "-g", group)
    (row,) = rows(out, client.client_id)
    assert row[2:] == ["JAVA", "V5_3_3"]
    assert re.search(rf"^{filled} +\*", out, re.MULTILINE)
    assert "ConsumeType: CONSUME_PASSIVELY" in out
    producers = ours.run("producerConnection", "-g", f"{group}-producer", "-t", filled)
    assert client.client_id in producers
    everybody = ours.on_broker("producer")
    assert f"producer group ({group}-producer) instance : clientId={client.client_id}" in everybody


def test_connection_of_a_group_without_members_is_answered_with_206(
    ours: Ours, unique: Unique
) -> None:
    name = unique("alone")
    ours.run("updateSubGroup", "-g", name, "-c", CLUSTER)
    assert "CODE: 206" in ours.admin.try_run("consumerConnection", "-g", name).err


def test_progress_of_a_group_reaches_the_end(
    ours: Ours, filled: str, group: str, client: StayingClient
) -> None:
    # The client commits every five seconds.
    wait_until(
        lambda: "Consume Diff Total: 0" in ours.run("consumerProgress", "-g", group),
        timeout_s=2 * SOON_S,
        what=lambda: f"everything committed, not {ours.run('consumerProgress', '-g', group)}",
    )
    table = rows(ours.run("consumerProgress", "-g", group), filled)
    assert sum(int(row[4]) for row in table) == COUNT
    with_clients = rows(ours.run("consumerProgress", "-g", group, "-s", "true"), filled)
    address = client.client_id.partition("@")[0]
    assert {row[5] for row in with_clients} == {address}
    (summary,) = rows(ours.run("consumerProgress"), group)
    assert summary[1:4] == ["1", "V5_3_3", "PUSH"]


def test_member_tells_about_itself(
    ours: Ours, filled: str, group: str, client: StayingClient
) -> None:
    out = ours.run("consumerStatus", "-g", group, "-i", client.client_id)
    assert "PROP_CONSUME_TYPE                       : CONSUME_PASSIVELY" in out
    assert re.search(rf"^{filled} +{BROKER}", out, re.MULTILINE)
    everybody = ours.run("consumerStatus", "-g", group)
    assert client.client_id in everybody
    assert "Rebalance OK" in everybody


def test_message_is_consumed_directly_by_a_member(
    ours: Ours, filled: str, group: str, client: StayingClient
) -> None:
    placed = ours.run("queryMsgByOffset", "-t", filled, "-b", BROKER, "-i", "0", "-o", "0")
    message_id = re.search(r"OffsetID: +(\w{32})", placed)
    assert message_id is not None
    out = ours.run(
        "queryMsgById", "-t", filled, "-i", message_id[1], "-g", group, "-d", client.client_id
    )
    assert "consumeResult=CR_SUCCESS" in out


@pytest.mark.usefixtures("client")
def test_consume_stats_of_the_broker_list_the_group(ours: Ours, filled: str, group: str) -> None:
    table = [row for row in rows(ours.on_broker("brokerConsumeStats"), filled) if row[1] == group]
    assert sorted(row[3] for row in table) == ["0", "1", "2", "3"]


@pytest.mark.usefixtures("client")
def test_statistics_of_all_topics_count_in_and_out(ours: Ours, filled: str, group: str) -> None:
    (row,) = [row for row in rows(ours.run("statsAll", "-t", filled), filled) if group in row]
    assert int(row[5]) == COUNT
    assert int(row[6]) >= COUNT


def test_group_is_reset_and_its_live_member_reads_everything_again(
    ours: Ours, unique: Unique
) -> None:
    topic, name = unique("reset"), unique("reset-group")
    create(ours, topic)
    fill(ours, topic)
    one = start_staying_client(ours, topic, name)
    one.wait_for(COUNT, timeout_s=30)
    out = ours.run("resetOffsetByTime", "-g", name, "-t", topic, "-s", "0")
    assert [row[2] for row in rows(out, BROKER)] == ["0"] * 4
    again = one.wait_for(2 * COUNT, timeout_s=60)
    assert len({message["body"] for message in again}) == COUNT


def test_old_way_of_resetting_moves_a_live_member(bench: Bench, unique: Unique) -> None:
    ours = start_ours(bench, {"useServerSideResetOffset": "false"})
    topic, name = unique("push-reset"), unique("push-reset-group")
    create(ours, topic)
    fill(ours, topic)
    one = start_staying_client(ours, topic, name)
    one.wait_for(COUNT, timeout_s=30)

    def reset() -> bool:
        """Refused, without any effect, until the member has committed something in every queue."""
        try:
            ours.run("resetOffsetByTime", "-g", name, "-t", topic, "-s", "0")
        except PeerError as error:
            if "has committed nothing" not in str(error):
                raise
            return False
        return True

    wait_until(reset, timeout_s=2 * SOON_S, what="offsets in every queue, and the reset")
    again = one.wait_for(2 * COUNT, timeout_s=60)
    assert len({message["body"] for message in again}) == COUNT


def test_backlog_of_a_group_is_skipped(ours: Ours, filled: str, unique: Unique) -> None:
    name = unique("skips")
    ours.run("updateSubGroup", "-g", name, "-c", CLUSTER)
    out = ours.run("skipAccumulatedMessage", "-g", name, "-t", filled)
    assert sum(int(row[2]) for row in rows(out, BROKER)) == COUNT
    assert "Consume Diff Total: 0" in ours.run("consumerProgress", "-g", name)


@pytest.mark.usefixtures("client")
def test_offsets_of_a_group_are_cloned(ours: Ours, filled: str, group: str, unique: Unique) -> None:
    heir = unique("heir")
    ours.run("updateSubGroup", "-g", heir, "-c", CLUSTER)
    out = ours.run("cloneGroupOffset", "-s", group, "-d", heir, "-t", filled)
    assert "clone group offset success" in out
    table = rows(ours.run("consumerProgress", "-g", heir), filled)
    assert len(table) == 4


def test_way_of_getting_messages_is_set(ours: Ours, filled: str, group: str) -> None:
    arguments = ("-t", filled, "-g", group, "-m", "PULL")
    assert "success" in ours.on_broker("setConsumeMode", *arguments)


# --- the tool of release 4 ------------------------------------------------------------------


def test_mqadmin_of_release_4_works_too(ours: Ours, filled: str, unique: Unique) -> None:
    old = Mqadmin(ours.bench, ours.nameserver, release=RELEASE_4)
    topic, name = unique("old"), unique("old-group")
    made = old.run("updateTopic", "-t", topic, "-b", ours.broker_address, "-r", "2", "-w", "2")
    assert f"create topic to {ours.broker_address} success." in made.out
    assert len(rows(old.run("topicStatus", "-t", topic).out, BROKER)) == 2
    made = old.run("updateSubGroup", "-g", name, "-b", ours.broker_address)
    assert f"create subscription group to {ours.broker_address} success." in made.out
    # Of a group without members it shows a stack trace before the figures: nobody is online.
    progress = rows(old.try_run("consumerProgress").out, name)
    assert [row[1:3] for row in progress] == [["0", "OFFLINE"]]
    found = old.run("queryMsgByKey", "-t", filled, "-k", "key-sync-send-1").out
    assert len([line for line in found.splitlines() if line and not line.startswith("#")]) == 1
    assert "V5_3_3" in old.run("brokerStatus", "-b", ours.broker_address).out
    old.run("deleteTopic", "-t", topic, "-c", CLUSTER)
    assert topic not in ours.run("topicList").split()


# --- traces ---------------------------------------------------------------------------------


def traces(ours: Ours, message_id: str, *, lines: int) -> str:
    """What `queryMsgTraceById` says, once both sides of the message are written down."""
    said = ""

    def complete() -> bool:
        nonlocal said
        said = ours.run("queryMsgTraceById", "-i", message_id)
        return sum(word in said for word in ("Pub", "Sub")) >= lines

    wait_until(complete, timeout_s=SOON_S, what=lambda: f"the trace of {message_id}\n{said}")
    return said


@pytest.mark.parametrize("release", [RELEASE_5, RELEASE_4])
def test_traces_of_java_clients_are_found(ours: Ours, unique: Unique, release: str) -> None:
    topic = unique("traced")
    round_ = start_java_round(ours.bench, ours.nameserver, topic, ["traced"], release=release)
    outcome = round_.finish()
    assert outcome.failures() == {}
    said = traces(ours, outcome["traced"]["id"], lines=2)
    for word in ("-traced-producer", "-traced", "success", "127.0.0.1"):
        assert word in said, said


def test_traces_of_our_client_are_found(ours: Ours, unique: Unique) -> None:
    topic, group, names = unique("ours-traced"), unique("ours"), ours.nameserver.address
    got = threading.Event()
    with (
        Producer(f"{group}-producer", nameservers=names, trace=True, timeout_ms=20_000) as producer,
        PushConsumer(group, nameservers=names, trace=True, consume_from_where=FIRST) as consumer,
    ):
        receipt = producer.send(Message(topic, "traced", keys="k", tags="t"))
        consumer.subscribe(topic, "*", lambda _: got.set())
        assert got.wait(SOON_S)
    said = traces(ours, receipt.msg_id, lines=2)
    for word in (f"{group}-producer", group, "success"):
        assert word in said, said
