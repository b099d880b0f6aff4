"""Trace messages joined into life-lines: of a live cluster, of a store's files, as a stream."""

from __future__ import annotations

import queue
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from tests.store_builder import START_MS, StoreBuilder
from tests.support import PATIENCE_S

from firearrow import Message, Producer, PushConsumer, Retry
from firearrow.base.errors import ConfigError
from firearrow.client.trace_format import (
    EndTransaction,
    LocalTransactionState,
    Pub,
    Recall,
    SubAfter,
    SubBefore,
    TracedMessageType,
    encode_trace,
)
from firearrow.offline.directory import Shape
from firearrow.pipeline import trace
from firearrow.testing import LocalCluster

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import Row, SparkSession

    from firearrow.client.trace_format import TraceRecord

pytestmark = pytest.mark.timeout(300)

SHAPE = Shape(segment_bytes=64 << 10)
T0 = START_MS + 1_000


def time(ms: int) -> datetime:
    """A moment after the first send, as Spark hands it over in UTC."""
    return datetime.fromtimestamp((T0 + ms) / 1000, UTC).replace(tzinfo=None)


def pub(message_id: str, at: int, **fields: Any) -> Pub:
    told: dict[str, Any] = {
        "topic": "orders",
        "keys": "k",
        "tags": "t",
        "store_host": "127.0.0.1:10911",
        "body_bytes": 7,
        "cost_ms": 4,
        "success": True,
    }
    return Pub(
        timestamp_ms=T0 + at, region_id="r", group="shop", message_id=message_id, **told | fields
    )


def consumed(
    message_id: str,
    request: str,
    at: int,
    *,
    group: str = "billing",
    success: bool = True,
    retries: int = 0,
    code: int = 0,
) -> list[TraceRecord]:
    return [
        SubBefore(
            timestamp_ms=T0 + at,
            region_id="r",
            group=group,
            request_id=request,
            message_id=message_id,
            retry_times=retries,
        ),
        SubAfter(
            request_id=request,
            message_id=message_id,
            cost_ms=9,
            success=success,
            context_code=code,
            timestamp_ms=T0 + at + 9,
            group=group,
        ),
    ]


def ended(message_id: str, at: int, state: LocalTransactionState) -> EndTransaction:
    return EndTransaction(
        timestamp_ms=T0 + at,
        region_id="r",
        group="shop",
        topic="orders",
        message_id=message_id,
        store_host="127.0.0.1:10911",
        transaction_id="tx",
        state=state,
        from_check=True,
    )


TOLD: list[list[TraceRecord]] = [
    [pub("A", 0), pub("B", 5, success=False, cost_ms=3000), pub("B", 3010)],
    consumed("A", "r1", 20, success=False, code=4),
    consumed("A", "r2", 500, retries=1) + consumed("A", "r3", 30, group="stock"),
    consumed("B", "r4", 3100)[:1],  # nobody said how it ended
    [pub("C", 7, message_type=TracedMessageType.TRANSACTION_HALF)],
    [ended("C", 60, LocalTransactionState.ROLLBACK_MESSAGE)],
    [pub("D", 9, message_type=TracedMessageType.TRANSACTION_HALF)],
    [pub("E", 10, message_type=TracedMessageType.DELAY)],
    [
        Recall(
            timestamp_ms=T0 + 90,
            region_id="r",
            group="shop",
            topic="orders",
            message_id="E",
            success=True,
        )
    ],
    [pub("F", 11, success=False)],
    [pub("G", 12)],
]


def store_of(root: Path, told: list[list[TraceRecord]], *more: bytes) -> StoreBuilder:
    """A store with these trace messages, and the messages A and G themselves."""
    builder = StoreBuilder(root, SHAPE)
    for number, message_id in enumerate("AG"):
        builder.append("orders", number, b"order", {"UNIQ_KEY": message_id})
    for records in told:
        builder.append("RMQ_SYS_TRACE_TOPIC", body=encode_trace(records).encode())
    for body in more:
        builder.append("RMQ_SYS_TRACE_TOPIC", body=body)
    builder.write_log()
    return builder


def lines_of(spark: SparkSession, output: Path) -> dict[str, Row]:
    return {row["msgId"]: row for row in spark.read.parquet(str(output)).collect()}


def test_every_message_of_a_store_gets_one_life_line(spark: SparkSession, tmp_path: Path) -> None:
    builder = store_of(tmp_path / "store", TOLD, b"Pub\x01no number\x02")
    options = trace.TraceOptions(
        path=str(builder.root), output=str(tmp_path / "lines"), plot=tmp_path / "latency.html"
    )
    report = trace.run(spark, options)
    lines = lines_of(spark, tmp_path / "lines")
    assert {message: line["outcome"] for message, line in lines.items()} == {
        "A": "consumed",
        "B": "not consumed yet",
        "C": "rolled back",
        "D": "undecided",
        "E": "recalled",
        "F": "not sent",
        "G": "sent",
    }
    a, b, c = lines["A"], lines["B"], lines["C"]
    assert (a["topic"], a["keys"], a["tags"], a["producer"]) == ("orders", "k", "t", "shop")
    assert (a["producedAt"], a["sendCostMs"], a["sends"]) == (time(0), 4, 1)
    assert [
        (one["group"], one["retryTimes"], one["status"], one["costMs"]) for one in a["consumed"]
    ] == [
        ("billing", 0, "FAILED", 9),
        ("stock", 0, "SUCCESS", 9),
        ("billing", 1, "SUCCESS", 9),
    ]
    assert (a["firstConsumedAt"], a["waitMs"], a["endToEndMs"]) == (time(20), 20, 509)
    stored = builder.stored[0]
    assert (a["queueId"], a["offset"]) == (stored.queue_id, stored.queue_offset)
    assert a["storedAt"] == datetime.fromtimestamp(stored.timestamp / 1000, UTC).replace(
        tzinfo=None
    )
    assert b["storedAt"] is None  # this store does not have it
    assert (b["sends"], b["sendCostMs"], b["sent"]) == (2, 4, True)
    assert [(one["success"], one["finishedAt"]) for one in b["consumed"]] == [(None, None)]
    assert [(one["state"], one["fromCheck"]) for one in c["transactions"]] == [
        ("ROLLBACK_MESSAGE", True)
    ]
    assert (report.facts["events"], report.facts["messages"]) == (17, 7)
    (problem,) = report.problems
    assert "Pub" in problem
    consuming = next(table for table in report.tables if table.title == "consuming")
    assert [row[:4] for row in consuming.rows] == [
        ("orders", "billing", 3, 2),
        ("orders", "stock", 1, 0),
    ]
    page = (tmp_path / "latency.html").read_text()
    assert "billing: sent until got" in page
    assert "data:image/png;base64," in page


def test_a_stream_writes_a_life_line_once_its_message_is_quiet(
    spark: SparkSession, tmp_path: Path
) -> None:
    builder = store_of(tmp_path / "store", TOLD)
    options = trace.TraceOptions(
        path=str(builder.root),
        output=str(tmp_path / "lines"),
        within="1 minute",
        available_now=True,
    )
    report = trace.run(spark, options)
    assert report.facts["messages"] == 0  # somebody may tell more of them
    late = [[pub("Z", 600_000)]]
    for records in late:
        builder.append("RMQ_SYS_TRACE_TOPIC", body=encode_trace(records).encode())
    path = builder.root / "commitlog" / f"{0:020d}"
    path.write_bytes(bytes(builder.log).ljust(64 << 10, b"\0"))
    report = trace.run(spark, options)
    lines = lines_of(spark, tmp_path / "lines")
    assert set(lines) == set("ABCDEFG")
    assert len(lines["A"]["consumed"]) == 3
    assert report.facts["messages"] == 7


def test_traces_of_a_live_cluster_tell_of_sends_failures_and_retries(
    spark: SparkSession, tmp_path: Path
) -> None:
    got: queue.Queue[str] = queue.Queue()
    tries: list[str] = []
    with LocalCluster(tmp_path, trace_topic_enable=True) as cluster:
        with (
            Producer("shop", nameservers=cluster.nameservers, trace=True) as producer,
            PushConsumer("billing", nameservers=cluster.nameservers, trace=True) as consumer,
        ):
            receipts = [producer.send(Message("orders", f"{n}", keys=f"k{n}")) for n in range(5)]

            def consume(message: Any) -> None:
                tries.append(message.text)
                if message.text == "3" and tries.count("3") == 1:
                    raise Retry(delay_level=1)
                got.put(message.text)

            consumer.subscribe("orders", "*", consume)
            for _ in range(4):
                got.get(timeout=PATIENCE_S)
            cluster.advance(minutes=1)
            got.get(timeout=PATIENCE_S)
        options = trace.TraceOptions(
            nameservers=cluster.nameservers, output=str(tmp_path / "lines")
        )
        report = trace.run(spark, options)
    assert report.problems == []
    lines = lines_of(spark, tmp_path / "lines")
    assert set(lines) == {receipt.msg_id for receipt in receipts}
    assert {line["outcome"] for line in lines.values()} == {"consumed"}
    retried = lines[receipts[3].msg_id]
    assert [(one["group"], one["success"]) for one in retried["consumed"]] == [
        ("billing", False),
        ("billing", True),
    ]
    assert retried["keys"] == "k3"
    assert retried["offsetMsgId"] == receipts[3].offset_msg_id


def test_options_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="one of the two"):
        trace.TraceOptions()
    with pytest.raises(ConfigError, match="a stream needs an output"):
        trace.TraceOptions(path=str(tmp_path), follow=True)
    with pytest.raises(ConfigError, match=r"\.png or \.html"):
        trace.TraceOptions(path=str(tmp_path), plot=tmp_path / "plot.gif")
    with pytest.raises(ConfigError, match="there is no directory"):
        trace.TraceOptions(path=str(tmp_path), plot=tmp_path / "nowhere" / "plot.png")
