"""Spark jobs that write and read exactly once, with everybody killed (-9) at every phase.

A relay before the broker sees each request, so a phase is not a guess: the write of a batch, the
decision on it, the ends of its half messages. Every micro-batch has one phase of its own; the
output must be what an undisturbed run makes of the same files. About five minutes.
"""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow.parquet as pq
import pytest

from firearrow import Message, Producer, PullConsumer
from firearrow.hot import decode_properties
from firearrow.spark.write_options import DECISION_TOPIC
from firearrow.wire.codes import RequestCode

from .processes import PeerError
from .spark_peers import HEAP, Job, SparkCluster, WatchedBroker
from .watching import Trap, Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from firearrow.wire.command import Command

    from .processes import Bench

ROWS: Final = 300  # of a micro-batch
KEYS: Final = 5
LOCAL: Final = "local[2,3]"
ROW_BYTES: Final = "400"  # requests so small that each batch has more than one list of ends
STARTS_MAX: Final = 12
TEST_TIMEOUT_S: Final = 3_000  # nine starts of Spark take two minutes, and twenty on a busy machine


class Phase(NamedTuple):
    """A moment of a micro-batch: the how manieth request of a kind, or its answer."""

    name: str
    kind: str
    number: int = 1
    at_answer: bool = False


PHASES: Final = (
    Phase("before the write", "stage"),
    Phase("in the middle of the write", "stage", 40, at_answer=True),
    Phase("after the write, before the commit", "decide"),
    Phase("when the decision is made and nobody knows", "decide", at_answer=True),
    Phase("before the first end", "end"),
    Phase("in the middle of the commit", "end", 2),
    Phase("in the middle of the commit, unheard", "end", 1, at_answer=True),
    Phase("after the commit, unheard", "last end", at_answer=True),
)


def is_at(phase: Phase, epoch: int) -> Callable[[Command], bool]:
    """Whether a request is of this kind, in this micro-batch."""

    def look(command: Command) -> bool:
        properties = decode_properties(command.ext.get("i", ""))
        of_epoch = properties.get("FA_EPOCH") == str(epoch)
        match phase.kind:
            case "stage":
                return command.code == RequestCode.STAGE_BATCH and of_epoch
            case "decide":
                return command.ext.get("b") == DECISION_TOPIC and of_epoch
            case "end":
                # Only the last list of a batch names it; the others follow its decision.
                return command.code == RequestCode.END_TRANSACTIONS and decided(epoch)
            case _:
                return command.ext.get("epoch") == str(epoch)

    decisions: set[int] = set()

    def decided(epoch: int) -> bool:
        return epoch in decisions

    def watch(command: Command) -> bool:
        if command.ext.get("b") == DECISION_TOPIC:
            decisions.add(int(decode_properties(command.ext.get("i", ""))["FA_EPOCH"]))
        return look(command)

    return watch


# --- files and topics -------------------------------------------------------------------------


def write_files(folder: Path, batches: int) -> list[str]:
    """One file for each micro-batch; a line is a number, a key and something to carry."""
    folder.mkdir()
    lines = []
    for batch in range(batches):
        of_batch = [
            f"{batch * ROWS + row} key-{row % KEYS} {'x' * (row % 90)}" for row in range(ROWS)
        ]
        (folder / f"{batch:03d}.txt").write_text("\n".join(of_batch) + "\n")
        lines += of_batch
    return lines


def messages_of(nameservers: str, topic: str) -> list[Any]:
    """Everything that a topic has, queue by queue."""
    found: list[Any] = []
    with PullConsumer(f"reader-{topic}", nameservers=nameservers) as consumer:
        queues = consumer.queues(topic)
        consumer.assign(queues)
        for queue in queues:
            consumer.seek_to_beginning(queue)
        count = sum(consumer.max_offset(queue) for queue in queues)
        while len(found) < count:
            found += consumer.poll(2_000)
    return sorted(found, key=lambda message: (message.queue_id, message.queue_offset))


def check_written(nameservers: str, topic: str, lines: list[str]) -> None:
    """Message by message what an undisturbed run writes: once each, each key in its queue."""
    found = messages_of(nameservers, topic)
    bodies = Counter(message.body.decode() for message in found)
    assert bodies == Counter(lines), {
        "missing": sorted((Counter(lines) - bodies).elements())[:5],
        "too many": sorted((bodies - Counter(lines)).elements())[:5],
    }
    queue_of_key: dict[str, set[int]] = {}
    for message in found:
        number, key, *_ = message.body.decode().split(" ")
        assert message.properties["KEYS"] == number
        assert message.tags == "spark"
        assert message.properties["length"] == str(len(message.body))
        queue_of_key.setdefault(key, set()).add(message.queue_id)
    assert all(len(queues) == 1 for queues in queue_of_key.values())


# --- killing ----------------------------------------------------------------------------------


@pytest.fixture
def broker(bench: Bench) -> Iterator[tuple[WatchedBroker, Watch]]:
    """A broker that is started again whenever it is killed."""
    served = WatchedBroker(bench)
    over = threading.Event()

    # What is started here ends with the thread that started it, so that stays until the end.
    def keep() -> None:
        while not over.wait(0.1):
            if served.process.exit_code is not None:
                # The next trap may spring before the broker has said that it is ready.
                with suppress(PeerError):
                    served.start()

    keeper = threading.Thread(target=keep)
    keeper.start()
    try:
        with Watch(served.port) as watch:
            yield served, watch
            assert watch.failures == []
    finally:
        over.set()
        keeper.join()
        served.kill()


def job_arguments(served: WatchedBroker, topic: str, folder: Path, master: str) -> dict[str, str]:
    return {
        "nameservers": served.nameserver.address,
        "topic": topic,
        "input": str(folder / "files"),
        "output": str(folder / "table"),
        "checkpoint": str(folder / "checkpoint"),
        "master": master,
        "conf.spark.driver.memory": HEAP,
        "conf.spark.executor.memory": HEAP,
        "conf.spark.executor.cores": "1",
        "conf.spark.task.maxFailures": "12",
        "conf.spark.deploy.maxExecutorRetries": "-1",
        "conf.spark.sql.shuffle.partitions": "2",
        "conf.spark.ui.enabled": "false",
        "conf.spark.driver.host": "127.0.0.1",
    }


def write_with_faults(
    bench: Bench,
    broker: tuple[WatchedBroker, Watch],
    folder: Path,
    victim: str,
    spark: SparkCluster | None,
) -> None:
    served, watch = broker
    lines = write_files(folder / "files", len(PHASES) + 1)
    topic = f"faults-{victim}-{'local' if spark is None else 'cluster'}"
    arguments = job_arguments(served, topic, folder, LOCAL if spark is None else spark.url)
    job = Job(bench, "write", arguments | {"option.requestBytes": ROW_BYTES})

    def act(port: int) -> None:
        if victim == "driver":
            job.kill_driver()
        elif victim == "broker":
            served.kill()
        elif spark is None:
            job.kill_sender(port)
        else:
            spark.kill_executor(port)

    watch.traps = [
        Trap(
            phase.name,
            is_at(phase, epoch),
            act,
            phase.number,
            phase.at_answer,
            passes_on=victim == "executor",
        )
        for epoch, phase in enumerate(PHASES, 1)
    ]
    job.run(STARTS_MAX)
    assert [trap.name for trap in watch.traps if not trap.sprung.is_set()] == []
    check_written(served.nameserver.address, topic, lines)
    if victim == "driver":
        assert job.starts == len(PHASES) + 1


@pytest.fixture(scope="module")
def spark_cluster(bench: Bench) -> SparkCluster:
    return SparkCluster(bench)


@pytest.mark.timeout(TEST_TIMEOUT_S)
@pytest.mark.parametrize("victim", ["driver", "executor", "broker"])
def test_what_spark_writes_arrives_once_whoever_is_killed(
    bench: Bench, broker: tuple[WatchedBroker, Watch], tmp_path: Path, victim: str
) -> None:
    write_with_faults(bench, broker, tmp_path, victim, None)


@pytest.mark.timeout(TEST_TIMEOUT_S)
@pytest.mark.parametrize("victim", ["driver", "executor", "broker"])
def test_what_a_cluster_of_spark_writes_arrives_once_whoever_is_killed(
    bench: Bench,
    broker: tuple[WatchedBroker, Watch],
    tmp_path: Path,
    spark_cluster: SparkCluster,
    victim: str,
) -> None:
    write_with_faults(bench, broker, tmp_path, victim, spark_cluster)


# --- reading ----------------------------------------------------------------------------------


READ_ROWS: Final = 1_200


def read_with_faults(
    bench: Bench,
    broker: tuple[WatchedBroker, Watch],
    folder: Path,
    victim: str,
    spark: SparkCluster | None,
) -> None:
    """A topic to Parquet; every fortieth pull, or its answer, somebody is killed."""
    served, watch = broker
    names = served.nameserver.address
    topic = f"read-{victim}-{'local' if spark is None else 'cluster'}"
    with Producer("faults", nameservers=names) as producer:
        for number in range(READ_ROWS):
            producer.send(Message(topic, f"{number}", keys=f"k{number}"))
    expected = {
        (message.queue_id, message.queue_offset, message.body)
        for message in messages_of(names, topic)
    }
    arguments = job_arguments(served, topic, folder, LOCAL if spark is None else spark.url)
    limits = {"option.maxOffsetsPerTrigger": "150", "option.pullMessages": "8"}
    job = Job(bench, "read", arguments | limits)

    def act(port: int) -> None:
        if victim == "driver":
            job.kill_driver()
        elif victim == "broker":
            served.kill()
        elif spark is None:
            job.kill_sender(port)
        else:
            spark.kill_executor(port)

    def is_pull(command: Command) -> bool:
        return command.code == RequestCode.PULL_MESSAGE and command.ext.get("topic") == topic

    watch.traps = [
        Trap(f"pull {number}", is_pull, act, number, at_answer=number % 80 == 0)
        for number in (5, 40, 80, 120)
    ]
    job.run(STARTS_MAX)
    assert [trap.name for trap in watch.traps if not trap.sprung.is_set()] == []
    table = pq.read_table(folder / "table").to_pylist()
    found = Counter((row["queueId"], row["offset"], bytes(row["body"])) for row in table)
    assert found == Counter(expected)


@pytest.mark.timeout(TEST_TIMEOUT_S)
@pytest.mark.parametrize("victim", ["driver", "executor", "broker"])
def test_what_spark_reads_lands_once_whoever_is_killed(
    bench: Bench, broker: tuple[WatchedBroker, Watch], tmp_path: Path, victim: str
) -> None:
    read_with_faults(bench, broker, tmp_path, victim, None)


@pytest.mark.timeout(TEST_TIMEOUT_S)
@pytest.mark.parametrize("victim", ["driver", "executor", "broker"])
def test_what_a_cluster_of_spark_reads_lands_once_whoever_is_killed(
    bench: Bench,
    broker: tuple[WatchedBroker, Watch],
    tmp_path: Path,
    spark_cluster: SparkCluster,
    victim: str,
) -> None:
    read_with_faults(bench, broker, tmp_path, victim, spark_cluster)
