"""`firearrow mqadmin` on a real broker; tests/interop compares it with RocketMQ's own tool."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.cli_runs import Commands

from firearrow import PushConsumer
from firearrow.testing import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CLUSTER = "DefaultCluster"


@pytest.fixture(scope="module")
def cli() -> Iterator[Commands]:
    with LocalCluster() as cluster:
        commands = Commands(cluster)
        commands.run("mqadmin", "updateTopic", "-t", "orders", "-c", CLUSTER, "-r", "2", "-w", "2")
        commands.run("mqadmin", "updateSubGroup", "-g", "billing", "-c", CLUSTER)
        place = ("-b", "broker-a", "-i", "0")  # else either queue gets it
        commands.run("mqadmin", "sendMessage", "-t", "orders", "-p", "hello", "-k", "42", *place)
        commands.run("mqadmin", "skipAccumulatedMessage", "-g", "billing", "-t", "orders")
        yield commands


LOOKS = {
    "clusterList": "#Cluster Name",
    "clusterList -m": "#InTotalToday",
    "topicList": "orders",
    "topicList -c": "#Consumer Group",
    "topicClusterList -t orders": CLUSTER,
    "topicRoute -t orders": '"brokerDatas"',
    "topicRoute -t orders -l": "Total:",
    "topicStatus -t orders": "Topic Put TPS",
    "allocateMQ -t orders -i a,b": '"result"',
    "consumerProgress": "OFFLINE",
    "consumerProgress -g billing": "Consume Diff Total: 0",
    "getConsumerConfig -g billing": "retryMaxTimes",
    "queryMsgByKey -t orders -k 42": "#Message ID",
    "printMsg -t orders": "BODY: hello",
    "consumeMessage -t orders -c 5": "Consume ok",
    "brokerStatus -b ADDRESS": "msgPutTotalTodayNow",
    "brokerStatus -c DefaultCluster": "msgPutTotalTodayNow",
    "getBrokerConfig -b ADDRESS": "brokerName",
    "getBrokerConfig -c DefaultCluster": "Master:",
    "getNamesrvConfig": "listenPort",
    "brokerConsumeStats -b ADDRESS": "Diff Total: 0",
    "statsAll -t orders": "#InMsg24Hour",
    "haStatus -b ADDRESS": "#SlaveNum",
    "queryCq -t orders -q 0 -i 0 -b ADDRESS": "Queue data",
    "clusterRT -a 2": "#successCount",
    "sendMsgStatus -b broker-a -c 2": "SEND_OK",
    "checkMsgSendRT -t orders -a 2": "Avg RT",
    "cleanExpiredCQ": "success",
    "cleanUnusedTopic -c DefaultCluster": "success",
    "deleteExpiredCommitLog -b ADDRESS": "success",
    "setConsumeMode -t orders -g billing -m PULL -b ADDRESS": "consume mode[PULL]",
}


@pytest.mark.parametrize("words", LOOKS)
def test_command_prints_what_it_should(cli: Commands, words: str) -> None:
    filled = words.replace("ADDRESS", cli.cluster.broker_address).split()
    assert LOOKS[words] in cli.run("mqadmin", *filled).stdout


def test_live_member_is_asked_and_given_a_message(
    cli: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    consumer = PushConsumer("live", nameservers=cli.cluster.nameservers)
    got: list[str] = []
    consumer.subscribe("orders")(lambda message: got.append(message.text))
    with consumer:
        member = consumer.client_id
        assert member in cli.run("mqadmin", "consumerConnection", "-g", "live").stdout
        assert "Rebalance OK" in cli.run("mqadmin", "consumerStatus", "-g", "live").stdout
        one = cli.run("mqadmin", "consumerStatus", "-g", "live", "-i", member).stdout
        assert "#Consumer RT&TPS#" in one
        (row,) = cli.run("mqadmin", "queryMsgByKey", "-t", "orders", "-k", "42").rows
        found = cli.run("mqadmin", "queryMsgByUniqueKey", "-t", "orders", "-i", row[0]).stdout
        assert "Keys:                [42]" in found
        direct = ("-i", row[0], "-t", "orders", "-g", "live", "-d", member)
        assert "CR_SUCCESS" in cli.run("mqadmin", "queryMsgById", *direct).stdout
    assert "hello" in got


def test_files_are_written_and_read(cli: Commands, tmp_path: Path) -> None:
    topics, groups = tmp_path / "topics.json", tmp_path / "groups.json"
    topics.write_text(json.dumps([{"topicName": "listed", "readQueueNums": 3}]))
    groups.write_text(json.dumps([{"groupName": "listed-group", "retryMaxTimes": 5}]))
    cli.run("mqadmin", "updateTopicList", "-c", CLUSTER, "-f", topics)
    cli.run("mqadmin", "updateSubGroupList", "-c", CLUSTER, "-f", groups)
    for name in ("exportMetadata", "exportConfigs", "exportMetrics"):
        cli.run("mqadmin", name, "-c", CLUSTER, "-f", tmp_path)
    exported = json.loads((tmp_path / "metadata.json").read_text())
    assert exported["topicConfigTable"]["listed"]["readQueueNums"] == 3
    assert exported["subscriptionGroupTable"]["listed-group"]["retryMaxTimes"] == 5
    assert json.loads((tmp_path / "configs.json").read_text())["clusterScale"] == {
        "namesrvSize": 1,
        "masterBrokerSize": 1,
        "slaveBrokerSize": 0,
    }
    report = json.loads((tmp_path / "metrics.json").read_text())["evaluateReport"]["broker-a"]
    assert report["runtimeQuota"]["groupSize"] >= 2


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("topicStatus -t nowhere", 4, "no broker serves topic nowhere"),
        ("updateTopic -t orders", 2, "-b HOST:PORT"),
        ("updateTopic -t orders -c nowhere", 2, "there is no cluster nowhere"),
        ("updateOrderConf -t orders -m look", 2, "get, put or delete"),
        ("queryMsgByKey -t orders -k none", 4, "no message with key none"),
        ("updateBrokerConfig -c DefaultCluster -k listenPort -v 1", 1, "listenPort"),
        ("setConsumeMode -t orders -g billing -m EAT -c DefaultCluster", 2, "PULL or POP"),
        ("consumerConnection -g billing", 4, "Start a consumer"),
    ],
)
def test_failure_has_an_exit_code_and_one_line(
    cli: Commands, words: str, code: int, said: str
) -> None:
    ran = cli.run("mqadmin", *words.split(), code=code)
    assert said in ran.stderr
    assert len(ran.stderr.strip().splitlines()) == 1
