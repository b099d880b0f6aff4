"""The real mqadmin 5.3.3 and `firearrow mqadmin` say the same about the same cluster.

Headings must be equal to the character, rows equal word by word, in any order: Java prints from
hash maps. Times, rates and paths of files are masked; what a write prints is compared on twins of
the same shape, whose names are masked as well.
"""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from typer.testing import CliRunner

from firearrow import Message, Producer, PushConsumer
from firearrow.cli.root import app

from .ours import Ours, start_ours
from .processes import Bench, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from .apache import Cluster

Unique = Callable[[str], str]

CLUSTER = "DefaultCluster"
BROKER = "broker-a"
COUNT = 12
DATE = (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(,\d{3})?", "<time>")
RATE = (r"\b\d+\.\d+(E-?\d+)?\b", "<rate>")
MILLIS = (r"\b1[789]\d{11}\b", "<millis>")
PATH = (r"Message Body Path: .*", "Message Body Path: <path>")
COMPACT = (r"\b(20|19)\d{15}\b", "<compact>")
Mask = tuple[str, str]


@pytest.fixture(scope="module")
def ours(bench: Bench) -> Ours:
    return start_ours(bench)


class Stage(NamedTuple):
    """A topic with messages, and a group with a live member that has read them all."""

    ours: Ours
    topic: str
    group: str
    member: str
    msg_id: str
    offset_msg_id: str
    place: tuple[int, int]


@pytest.fixture(scope="module")
def stage(ours: Ours, unique: Unique) -> Iterator[Stage]:
    topic, group = unique("compared"), unique("compared-group")
    ours.run("updateTopic", "-t", topic, "-c", CLUSTER, "-r", "4", "-w", "4")
    ours.run("updateSubGroup", "-g", group, "-c", CLUSTER)
    ours.run("skipAccumulatedMessage", "-g", group, "-t", topic)  # an offset in every queue
    nameservers = ours.nameserver.address
    got: list[str] = []
    done = threading.Event()
    consumer = PushConsumer(group, nameservers=nameservers)

    @consumer.subscribe(topic, "TagA || TagB")
    def on_message(message: Any) -> None:
        got.append(message.text)
        if len(set(got)) == COUNT:
            done.set()

    with Producer(f"{group}-producer", nameservers=nameservers, trace=True) as producer, consumer:
        receipts = [
            producer.send(Message(topic, f"body {one}", tags="TagA", keys=f"key-{one}"))
            for one in range(COUNT)
        ]
        assert done.wait(30), got
        wait_until(
            lambda: "Consume Diff Total: 0" in ours.run("consumerProgress", "-g", group),
            timeout_s=30,
            what="everything committed",
        )
        first = receipts[0]
        yield Stage(
            ours,
            topic,
            group,
            consumer.client_id,
            first.msg_id,
            first.offset_msg_id,
            (first.queue.queue_id, first.queue_offset),
        )


def mine(ours: Ours | Cluster, *words: str) -> str:
    """What our command prints; it must not fail."""
    ran = CliRunner().invoke(app, ["mqadmin", *words, "-n", ours.nameserver.address])
    assert ran.exit_code == 0, f"{words}: {ran.stderr}\n{ran.stdout}\n{ran.exception!r}"
    return ran.stdout


def both(ours: Ours | Cluster, *words: str) -> tuple[str, str]:
    return ours.admin.try_run(*words).out, mine(ours, *words)


def lines(text: str, masks: tuple[Mask, ...]) -> tuple[list[list[str]], list[list[str]]]:
    """Headings as they are, and the words of every other line; the lines in a fixed order.

    The headings of a paragraph stay together: several brokers come in no order, too.
    """
    for pattern, instead in masks:
        text = re.sub(pattern, instead, text)
    kept = [line.rstrip() for line in text.splitlines() if line.strip()]
    paragraphs = [part.splitlines() for part in re.split(r"\n\s*\n", text)]
    heads = sorted(
        found
        for lines in paragraphs
        if (found := [line.rstrip() for line in lines if line.startswith("#")])
    )
    rows = sorted(sorted(_words(line)) for line in kept if not line.startswith("#"))
    return heads, rows


def _words(line: str) -> list[str]:
    """Commas and brackets end words, since maps have no order."""
    return re.sub(r"[,\[\]{}()]", " ", line).split()


def assert_alike(real: str, ours: str, *masks: Mask) -> None:
    assert real.strip(), "mqadmin printed nothing"
    assert lines(ours, masks) == lines(real, masks), f"--- mqadmin\n{real}\n--- ours\n{ours}"


# --- looking --------------------------------------------------------------------------------------

LOOKS: list[tuple[list[str], list[Mask]]] = [
    (["topicList"], []),
    (["topicList", "-c"], []),
    (["topicClusterList", "-t", "TOPIC"], []),
    (["topicRoute", "-t", "TOPIC", "-l"], []),
    (["topicStatus", "-t", "TOPIC"], [RATE]),
    (["consumerProgress", "-g", "GROUP"], [RATE]),
    (["consumerProgress", "-g", "GROUP", "-t", "TOPIC"], [RATE]),
    (["consumerProgress", "-g", "GROUP", "-s", "true"], [RATE]),
    (["resetOffsetByTime", "-g", "GROUP", "-t", "TOPIC", "-s", "-1", "-c", CLUSTER], []),
    (["consumerProgress"], []),
    (["consumerConnection", "-g", "GROUP"], []),
    (["consumerStatus", "-g", "GROUP", "-i", "MEMBER"], [COMPACT, RATE]),
    (["producerConnection", "-g", "GROUP-producer", "-t", "TOPIC"], []),
    (["producer", "-b", "ADDRESS"], [MILLIS]),
    (["getConsumerConfig", "-g", "GROUP"], []),
    (["queryMsgById", "-t", "TOPIC", "-i", "OFFSETID"], [PATH]),
    (["queryMsgByKey", "-t", "TOPIC", "-k", "key-3"], []),
    (["queryMsgByUniqueKey", "-t", "TOPIC", "-i", "UNIQUE"], [PATH]),
    (["queryMsgByOffset", "-t", "TOPIC", "-b", BROKER, "-i", "QUEUE", "-o", "OFFSET"], [PATH]),
    (["queryMsgTraceById", "-i", "UNIQUE"], [DATE]),
    (["printMsg", "-t", "TOPIC"], []),
    (["printMsg", "-t", "TOPIC", "-d", "false"], []),
    (["printMsgByQueue", "-t", "TOPIC", "-a", BROKER, "-i", "0", "-p", "true", "-d", "true"], []),
    (["getBrokerConfig", "-b", "ADDRESS"], []),
    (["getBrokerConfig", "-c", CLUSTER], []),
    (["getNamesrvConfig"], []),
    (["brokerConsumeStats", "-b", "ADDRESS"], []),
    (["statsAll", "-t", "TOPIC"], [RATE]),
    (["queryCq", "-t", "TOPIC", "-q", "0", "-i", "0", "-c", "2", "-b", "ADDRESS"], []),
    (["queryCq", "-t", "TOPIC", "-q", "0", "-i", "0", "-g", "GROUP", "-b", "ADDRESS"], []),
    (["haStatus", "-b", "ADDRESS"], []),
    (["clusterList", "-m"], []),
]


def fill(words: list[str], stage: Stage) -> list[str]:
    names = {
        "TOPIC": stage.topic,
        "GROUP": stage.group,
        "MEMBER": stage.member,
        "ADDRESS": stage.ours.broker_address,
        "OFFSETID": stage.offset_msg_id,
        "UNIQUE": stage.msg_id,
        "QUEUE": str(stage.place[0]),
        "OFFSET": str(stage.place[1]),
    }
    return [
        word.replace("GROUP", stage.group) if word.startswith("GROUP-") else names.get(word, word)
        for word in words
    ]


@pytest.mark.parametrize(("words", "masks"), LOOKS, ids=[" ".join(one[0]) for one in LOOKS])
def test_what_a_command_shows_is_the_same(
    stage: Stage, words: list[str], masks: list[Mask]
) -> None:
    real, printed = both(stage.ours, *fill(words, stage))
    assert_alike(real, printed, *masks)


def test_route_is_the_same_json(stage: Stage) -> None:
    real = stage.ours.admin.run("topicRoute", "-t", stage.topic).json_body()
    assert json.loads(mine(stage.ours, "topicRoute", "-t", stage.topic)) == real


def test_queues_are_allocated_the_same(stage: Stage) -> None:
    real, printed = both(stage.ours, "allocateMQ", "-t", stage.topic, "-i", "10.0.0.1,10.0.0.2")
    shares = [json.loads(text)["result"] for text in (real, printed)]
    counts = [{member: len(queues) for member, queues in share.items()} for share in shares]
    assert counts[0] == counts[1] == {"10.0.0.1": 2, "10.0.0.2": 2}
    each = [
        sorted(json.dumps(queue, sort_keys=True) for queue in itertools.chain(*share.values()))
        for share in shares
    ]
    assert each[0] == each[1]  # which is whose depends on the order of a hash set


def test_cluster_list_has_the_same_columns_and_places(stage: Stage) -> None:
    """Rates and times differ from second to second; everything else must not."""
    masks = (RATE, (r"\d+-\d+\(", "<behind>("), (r"\d+ms", "<ms>"))
    real, printed = both(stage.ours, "clusterList")
    assert_alike(real, printed, *masks)


def test_figures_of_a_broker_have_the_same_names(stage: Stage) -> None:
    def figures(text: str) -> dict[str, str]:
        pairs = (line.split(":", 1) for line in text.splitlines() if ":" in line)
        return {key.strip(): value.strip() for key, value in pairs}

    real, printed = map(figures, both(stage.ours, "brokerStatus", "-b", stage.ours.broker_address))
    assert printed.keys() == real.keys()
    for key in ("brokerVersionDesc", "commitLogMaxOffset", "bootTimestamp", "brokerActive"):
        assert printed[key] == real[key], key


# --- writing: each tool on a twin of its own ------------------------------------------------------

WRITES: list[list[list[str]]] = [
    [["updateTopic", "-t", "NAME", "-c", CLUSTER, "-r", "3", "-w", "5", "-p", "6"]],
    [["updateTopic", "-t", "NAME", "-b", "ADDRESS", "-a", "+message.type=FIFO"]],
    [
        ["updateTopic", "-t", "NAME", "-b", "ADDRESS"],
        ["updateTopicPerm", "-t", "NAME", "-b", "ADDRESS", "-p", "4"],
        ["updateTopicPerm", "-t", "NAME", "-b", "ADDRESS", "-p", "4"],
        ["updateTopicPerm", "-t", "NAME", "-c", CLUSTER, "-p", "6"],
        ["deleteTopic", "-t", "NAME", "-c", CLUSTER],
    ],
    [
        ["updateSubGroup", "-g", "NAME", "-c", CLUSTER, "-r", "3", "-q", "2"],
        ["deleteSubGroup", "-g", "NAME", "-b", "ADDRESS", "-r", "true"],
    ],
    [
        ["updateSubGroup", "-g", "NAME", "-b", "ADDRESS", "-d", "true", "-s", "false"],
        ["deleteSubGroup", "-g", "NAME", "-c", CLUSTER],
    ],
    [
        ["updateSubGroup", "-g", "NAME", "-c", CLUSTER],
        ["resetOffsetByTime", "-g", "NAME", "-t", "TOPIC", "-s", "0"],
        ["consumerProgress", "-g", "NAME"],
        ["skipAccumulatedMessage", "-g", "NAME", "-t", "TOPIC"],
        ["consumerProgress", "-g", "NAME"],
        [
            *("resetOffsetByTime", "-g", "NAME", "-t", "TOPIC", "-s", "0", "-b", "ADDRESS"),
            *("-q", "1", "-o", "1"),
        ],
        ["consumerProgress", "-g", "NAME"],
    ],
    [
        ["updateSubGroup", "-g", "NAME", "-c", CLUSTER],
        ["cloneGroupOffset", "-s", "GROUP", "-d", "NAME", "-t", "TOPIC"],
    ],
    [
        ["updateTopic", "-t", "NAME", "-c", CLUSTER, "-r", "1", "-w", "1"],
        ["sendMessage", "-t", "NAME", "-p", "hello", "-k", "greeting", "-c", "TagA"],
        ["topicStatus", "-t", "NAME"],
        ["consumeMessage", "-t", "NAME", "-c", "5"],
    ],
    [
        ["updateKvConfig", "-s", "compared", "-k", "NAME", "-v", "value"],
        ["deleteKvConfig", "-s", "compared", "-k", "NAME"],
    ],
    [
        ["updateOrderConf", "-t", "NAME", "-m", "put", "-v", "broker-a:4"],
        ["updateOrderConf", "-t", "NAME", "-m", "get"],
        ["updateOrderConf", "-t", "NAME", "-m", "delete"],
    ],
    [
        ["updateBrokerConfig", "-b", "ADDRESS", "-k", "fileReservedTime", "-v", "71"],
        ["updateBrokerConfig", "-c", CLUSTER, "-k", "fileReservedTime", "-v", "72"],
    ],
    [["updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "false"]],
    [["wipeWritePerm", "-b", BROKER], ["addWritePerm", "-b", BROKER]],
    [["cleanExpiredCQ", "-b", "ADDRESS"], ["cleanUnusedTopic", "-b", "ADDRESS"]],
    [["deleteExpiredCommitLog", "-b", "ADDRESS"]],
    [["setConsumeMode", "-t", "TOPIC", "-g", "GROUP", "-m", "PULL", "-b", "ADDRESS"]],
]
OF_A_MESSAGE: tuple[Mask, ...] = (
    (r"\b[0-9A-F]{32,56}\b", "<id>"),
    (r"(bornHost|storeHost)=\S+", "<host>"),
    (r"\bWAIT=true,", ""),  # Java's producer writes down what is the default
    (r"(storeSize|commitLogOffset|INSTANCE_ID|PGROUP)=\S+", "<varies>"),
)


@pytest.mark.parametrize("steps", WRITES, ids=[one[-1][0] + " " + one[0][0] for one in WRITES])
def test_what_a_write_prints_and_does_is_the_same(
    stage: Stage, unique: Unique, steps: list[list[str]]
) -> None:
    names = unique("twin"), unique("twin")
    for step in steps:
        printed = []
        for name, run in zip(names, (_real, mine), strict=True):
            words = [word.replace("NAME", name) for word in fill(step, stage)]
            printed.append(run(stage.ours, *words).replace(name, "NAME"))
        masks = (DATE, MILLIS, RATE, *OF_A_MESSAGE)
        assert_alike(printed[0], printed[1], *masks)


def _real(ours: Ours, *words: str) -> str:
    return ours.admin.try_run(*words).out


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["exportMetadata", "exportConfigs", "exportMetrics"])
def test_exports_have_the_same_shape(stage: Stage, tmp_path: Path, name: str) -> None:
    file = {"exportMetadata": "metadata", "exportConfigs": "configs"}.get(name, "metrics")
    found = []
    for folder, run in ((tmp_path / "real", _real), (tmp_path / "ours", mine)):
        folder.mkdir()
        printed = run(stage.ours, name, "-c", CLUSTER, "-f", str(folder))
        assert printed.strip() == f"export {folder}/{file}.json success"
        found.append(json.loads((folder / f"{file}.json").read_text()))
    real, exported = found
    assert exported.keys() == real.keys()
    if name == "exportMetrics":
        assert exported["totalData"]["totalTps"].keys() == real["totalData"]["totalTps"].keys()
        assert exported["evaluateReport"].keys() == real["evaluateReport"].keys()
        return
    exported.pop("exportTime", None)
    real.pop("exportTime", None)
    if name == "exportMetadata":
        assert exported["topicConfigTable"] == real["topicConfigTable"]
        assert exported["subscriptionGroupTable"].keys() == real["subscriptionGroupTable"].keys()
        return
    assert exported == real


# --- the same on Apache's own brokers -------------------------------------------------------------

ON_APACHE: list[tuple[list[str], list[Mask]]] = [
    (["topicList"], []),
    (["topicClusterList", "-t", "TOPIC"], []),
    (["topicRoute", "-t", "TOPIC", "-l"], []),
    (["topicStatus", "-t", "TOPIC"], [RATE]),
    (["getConsumerConfig", "-g", "GROUP"], []),
    (["queryMsgByKey", "-t", "TOPIC", "-k", "key-3"], []),
    (["printMsg", "-t", "TOPIC"], []),
    (["getBrokerConfig", "-c", "CLUSTER"], []),
    (["haStatus", "-c", "CLUSTER"], []),
    (["clusterList", "-m"], []),
    (["clusterList"], [RATE, (r"\d+-\d+\(", "<behind>("), (r"\d+ms", "<ms>")]),
]


@pytest.fixture(scope="module")
def apache(cluster: Cluster, unique: Unique) -> tuple[Cluster, str, str]:
    topic, group = unique("apache-compared"), unique("apache-group")
    cluster.create_topic(topic, *cluster.brokers)
    nameservers = cluster.nameserver.address
    for name in ("updateSubGroup", "skipAccumulatedMessage"):
        where = ["-c", cluster.name] if name == "updateSubGroup" else ["-t", topic]
        mine(cluster, name, "-g", group, *where)
    with Producer("compared", nameservers=nameservers) as producer:
        for one in range(COUNT):
            producer.send(Message(topic, f"body {one}", tags="TagA", keys=f"key-{one}"))
    return cluster, topic, group


@pytest.mark.parametrize(("words", "masks"), ON_APACHE, ids=[" ".join(x[0]) for x in ON_APACHE])
def test_what_a_command_shows_of_apaches_brokers_is_the_same(
    apache: tuple[Cluster, str, str], words: list[str], masks: list[Mask]
) -> None:
    cluster, topic, group = apache
    names = {"TOPIC": topic, "GROUP": group, "CLUSTER": cluster.name}
    real, printed = both(cluster, *(names.get(word, word) for word in words))
    assert_alike(real, printed, *masks)


def test_verbs_of_our_own_work_on_apaches_brokers(apache: tuple[Cluster, str, str]) -> None:
    cluster, topic, group = apache

    def look(*words: str, code: int | None = 0) -> Any:
        where = ["-n", cluster.nameserver.address, "--output", "json"]
        ran = CliRunner().invoke(app, [*words, *where])
        assert code is None or ran.exit_code == code, f"{words}: {ran.output}"
        return json.loads(ran.stdout)

    assert {one["broker"] for one in look("cluster", "ls")} == set(cluster.broker_names())
    wrong = {one["severity"] for one in look("cluster", "health", code=None)["reasons"]}
    assert wrong <= {"warning"}  # as that a busy machine's disk is slow
    (row,) = look("topic", "ls", topic)
    assert row["brokers"] == 2
    assert look("topic", "show", topic)["messages"] == COUNT
    (row,) = look("group", "ls", group, "--lag")
    assert row["lag"] == COUNT
    plan = look("group", "reset", group, "-t", topic, "--skip", "--dry-run")
    assert plan["skipped"] == COUNT
    (found,) = look("msg", "query", topic, "--key", "key-3")
    assert found["body"] == "body 3"
    doctored = look("doctor", "--no-spark", "--port", "unused=1023")
    assert {one["state"] for one in doctored if "broker" in one["check"]} <= {"ok"}
