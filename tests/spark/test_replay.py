"""Messages go back to a topic: in order per key, without repeating, at a pace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from firearrow import ConsumeFromWhere, Message, Producer, PullConsumer, ReceivedMessage
from firearrow.base.errors import ConfigError
from firearrow.base.runtime import SystemClock
from firearrow.pipeline import archive, replay
from firearrow.pipeline.archive import ArchiveOptions
from firearrow.pipeline.errors import PipelineError
from firearrow.pipeline.replay import ReplayOptions
from firearrow.pipeline.replay_plan import Pace
from firearrow.pipeline.report import Outcome
from firearrow.pipeline.topics import TopicSelection
from firearrow.pipeline.watching import Watch

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from firearrow.testing import LocalCluster

KEYS = 4
PATIENCE_MS = 30_000


def send(cluster: LocalCluster, count: int) -> None:
    with Producer("shop", nameservers=cluster.nameservers) as producer:
        for number in range(count):
            key = f"customer-{number % KEYS}"
            region = {"region": "EU"}
            producer.send(
                Message(
                    "orders",
                    str(number),
                    tags="paid",
                    keys=key,
                    properties=region,
                    sharding_key=key,
                )
            )


def read(cluster: LocalCluster, topic: str, count: int) -> list[ReceivedMessage]:
    """Everything in a topic, and a little patience for what should not be there."""
    found: list[ReceivedMessage] = []
    with PullConsumer(
        "reader",
        nameservers=cluster.nameservers,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    ) as consumer:
        consumer.subscribe(topic)
        while len(found) < count:
            got = consumer.poll(PATIENCE_MS)
            assert got, f"{len(found)} of {count} messages came"
            found += got
        found += consumer.poll(200)
    return found


def options(cluster: LocalCluster, folder: Path, **more: Any) -> ReplayOptions:
    given: dict[str, Any] = {"selection": TopicSelection(cluster.nameservers, ("orders",))}
    if "table" in more:
        given = {}
    return ReplayOptions("again", cluster.nameservers, str(folder / "replay"), **(given | more))


def in_order_per_key(messages: list[ReceivedMessage]) -> bool:
    by_key: dict[str, list[int]] = {}
    for message in sorted(messages, key=lambda one: (one.queue_id, one.queue_offset)):
        by_key.setdefault(message.keys[0], []).append(int(message.text))
    return all(numbers == sorted(numbers) for numbers in by_key.values())


def test_a_table_is_replayed_in_order_per_key(
    spark: SparkSession, rocketmq: LocalCluster, tmp_path: Path
) -> None:
    send(rocketmq, 40)
    table = str(tmp_path / "table")
    archive.run(spark, ArchiveOptions(TopicSelection(rocketmq.nameservers, ("orders",)), table))
    done = replay.run(spark, options(rocketmq, tmp_path, table=table, slice_rows=15))
    assert (done.facts["messagesSent"], done.facts["messagesLeft"]) == (40, 0)
    messages = read(rocketmq, "again", 40)
    assert sorted(int(message.text) for message in messages) == list(range(40))
    assert in_order_per_key(messages)
    assert {message.properties["region"] for message in messages} == {"EU"}
    assert {message.tags for message in messages} == {"paid"}


class Dies(Watch):
    """A process that ends in the middle: after so many slices it is gone."""

    def __init__(self, slices: int) -> None:
        super().__init__()
        self._slices = slices

    def step(self, what: str, done: int, total: int | None) -> None:
        super().step(what, done, total)
        if what == "sending":
            self._slices -= 1
            if not self._slices:
                self.stop()


def test_a_replay_goes_on_where_it_was_and_repeats_nothing(
    spark: SparkSession, rocketmq: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(rocketmq, 30)
    asked = options(rocketmq, tmp_path, slice_rows=10)
    first = replay.run(spark, asked, Dies(1))
    assert first.outcome == Outcome.STOPPED
    sent = first.facts["messagesSent"]
    assert isinstance(sent, int)
    assert 0 < sent < 30
    send(rocketmq, 5)  # too late to be part of it

    def forgets(*_: object) -> None:
        raise RuntimeError("the power is gone")

    with monkeypatch.context() as patched:  # a slice is sent, and nobody writes that down
        patched.setattr("firearrow.pipeline.hadoop_files.HadoopFiles.write_atomically", forgets)
        with pytest.raises(RuntimeError, match="power"):
            replay.run(spark, asked)
    last = replay.run(spark, asked)
    assert (last.outcome, last.facts["resumed"]) == (Outcome.FINISHED, True)
    messages = read(rocketmq, "again", 30)
    assert sorted(int(message.text) for message in messages) == list(range(30))
    assert in_order_per_key(messages)
    assert replay.run(spark, asked).facts["messagesSent"] == 0


def test_a_checkpoint_belongs_to_one_replay(
    spark: SparkSession, rocketmq: LocalCluster, tmp_path: Path
) -> None:
    send(rocketmq, 2)
    replay.run(spark, options(rocketmq, tmp_path, where="tags = 'none'"))
    with pytest.raises(ConfigError, match=r"belongs to another replay .*where was"):
        replay.run(spark, options(rocketmq, tmp_path))


def test_what_cannot_be_replayed_is_said(
    spark: SparkSession, rocketmq: LocalCluster, tmp_path: Path
) -> None:
    spark.range(3).write.parquet(str(tmp_path / "numbers"))
    with pytest.raises(ConfigError, match=r"has no column topic, body.*a table of `archive`"):
        replay.run(spark, options(rocketmq, tmp_path, table=str(tmp_path / "numbers")))
    with pytest.raises(PipelineError, match="orders"):
        replay.run(spark, options(rocketmq, tmp_path))
    with pytest.raises(ConfigError, match="one of the two"):
        ReplayOptions("x", "y", "z")


def test_a_replay_waits_for_its_pace(
    spark: SparkSession, rocketmq: LocalCluster, tmp_path: Path
) -> None:
    send(rocketmq, 8)
    waits: list[float] = []

    class Waits(Watch):
        def pause(self, seconds: float) -> bool:
            waits.append(seconds)
            return super().pause(0)

    class Still(SystemClock):
        def elapsed_ms(self) -> int:
            return 0

    asked = options(rocketmq, tmp_path, pace=Pace(per_second=4))
    done = replay.run(spark, asked, Waits(), clock=Still())
    assert done.facts["messagesSent"] == 8
    assert waits[0] == 0
    assert waits == sorted(set(waits))
    assert 1 <= waits[-1] < 2
