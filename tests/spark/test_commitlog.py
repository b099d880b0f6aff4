"""The data source `commitlog` in a real session: Apache's stores, a live one, streams, errors."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.golden import STORES, manifest, unpack
from tests.store_builder import sample_store

from firearrow import Message, Producer
from firearrow.pipeline.errors import explain
from firearrow.testing import LocalCluster

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = pytest.mark.timeout(300)


def log_of(spark: SparkSession, root: Path | str, **options: Any) -> DataFrame:
    return spark.read.format("commitlog").options(**options).load(str(root))


def place(topic: str, queue_id: int, offset: int, physical: int) -> tuple[str, int, int, int]:
    return topic, queue_id, offset, physical


def milliseconds(time: datetime) -> int:
    return round(time.replace(tzinfo=UTC).timestamp() * 1000)


def facts_of(row: Row) -> dict[str, Any]:
    """A row in the words of the manifest."""
    facts = {name: row[name] for name in row.asDict() if name not in {"body", "file", "broker"}}
    return facts | {
        "queueOffset": row["offset"],
        "storeSize": row["recordSize"],
        "uniqKey": row["properties"].get("UNIQ_KEY"),
        "bornTimestamp": milliseconds(row["bornTimestamp"]),
        "storeTimestamp": milliseconds(row["storeTimestamp"]),
        "bodySha256": hashlib.sha256(row["body"]).hexdigest(),
        "bodySize": len(row["body"]),
    }


@pytest.mark.parametrize("store", STORES)
def test_every_message_that_a_java_client_read_is_a_row_with_all_its_fields(
    store: str, spark: SparkSession, tmp_path: Path
) -> None:
    root = unpack(store, tmp_path)
    rows = log_of(spark, root, partitionBytes=20_000).collect()
    found = {
        place(row["topic"], row["queueId"], row["offset"], row["physicalOffset"]): row
        for row in rows
    }
    assert len(found) == len(rows)
    compared = 0
    for told in manifest(store)["messages"]:
        key = place(told["topic"], told["queueId"], told["queueOffset"], told["physicalOffset"])
        facts = facts_of(found.pop(key))
        is_inner = not told.get("offsetMsgId")
        made_up = {"offsetMsgId", "storeSize", "sysFlag"} if is_inner else set()
        for name in told.keys() & facts.keys() - made_up:
            assert facts[name] == told[name], (key, name)
        compared += 1
    assert compared > 300
    # Seven messages of a topic that was deleted, and made again before the stop.
    assert {row["topic"] for row in found.values()} <= {"GcGone"}
    assert len(found) == (7 if store == "clean" else 0)
    names = {path.name for path in (root / "commitlog").iterdir()}
    assert {row["file"].rpartition("/")[2] for row in rows} <= names


def test_topics_times_and_columns_are_pruned_and_several_stores_are_one_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    roots = [unpack(store, tmp_path / store) for store in STORES]
    both = log_of(spark, f"{tmp_path}/*/store", subscribePattern="G.Plain").select("topic")
    counts = {row["topic"]: row["count"] for row in both.groupBy("topic").count().collect()}
    assert counts == {
        "GcPlain": sum(m["topic"] == "GcPlain" for m in manifest("clean")["messages"]),
        "GkPlain": sum(m["topic"] == "GkPlain" for m in manifest("killed")["messages"]),
    }
    told = sorted(
        m["storeTimestamp"] for m in manifest("clean")["messages"] if m["topic"] == "GcPlain"
    )
    middle = told[100]
    reader = spark.read.format("commitlog").schema("storeTimestamp timestamp, body string")
    read = reader.options(subscribe="GcPlain", startingTimestamp=middle).load(str(roots[0]))
    assert read.columns == ["storeTimestamp", "body"]
    assert read.count() == sum(time >= middle for time in told)


def test_a_live_store_is_read_up_to_its_end_and_followed_from_there(
    spark: SparkSession, tmp_path: Path
) -> None:
    with (
        LocalCluster(tmp_path / "broker") as cluster,
        Producer("shop", nameservers=cluster.nameservers) as producer,
    ):
        root = tmp_path / "broker" / "store"
        output, checkpoint = str(tmp_path / "table"), str(tmp_path / "checkpoint")

        def follow() -> list[str]:
            stream = (
                spark.readStream.format("commitlog")
                .schema("body string, physicalOffset bigint")
                .options(subscribe="orders", maxBytesPerTrigger=2_000)
                .load(str(root))
            )
            query = (
                stream.writeStream.format("parquet")
                .option("checkpointLocation", checkpoint)
                .trigger(availableNow=True)
                .start(output)
            )
            assert query.awaitTermination(120)
            assert query.exception() is None
            table = spark.read.parquet(output).orderBy("physicalOffset")
            return [row["body"] for row in table.collect()]

        sent = [f"order {number}" for number in range(20)]
        for text in sent:
            producer.send(Message("orders", text))
        assert log_of(spark, root, subscribe="orders").count() == 20
        assert follow() == sent
        for text in (more := [f"late order {number}" for number in range(5)]):
            producer.send(Message("orders", text))
        assert follow() == sent + more


def test_corrupt_records_fail_or_are_skipped_and_named(spark: SparkSession, tmp_path: Path) -> None:
    sample = sample_store(tmp_path / "store")
    healthy = log_of(spark, sample.root).count()
    sample.patch_log(sample.keyless.offset + 88, b"N")
    with pytest.raises(Exception, match="commitlog") as caught:
        log_of(spark, sample.root).count()
    assert f"C3 commitlog {sample.keyless.offset}" in explain(caught.value)
    assert "onCorrupt=skip" in explain(caught.value)
    assert log_of(spark, sample.root, onCorrupt="skip").count() == healthy - 1
    named = (
        spark.read.format("commitlog")
        .schema("physicalOffset bigint, corrupt string")
        .option("onCorrupt", "skip")
        .load(str(sample.root))
        .where("corrupt is not null")
        .collect()
    )
    assert [row["physicalOffset"] for row in named] == [sample.keyless.offset]


def test_bad_input_is_named_with_its_remedy(spark: SparkSession, tmp_path: Path) -> None:
    sample = sample_store(tmp_path / "store")

    def said(**options: Any) -> str:
        with pytest.raises(Exception) as caught:  # noqa: PT011 - Spark's own, of several kinds
            spark.read.format("commitlog").options(**options).load().count()
        return explain(caught.value)

    assert "storePathRootDir" in said()
    assert "there is no such directory" in said(path=str(tmp_path / "nowhere"))
    assert "not a store directory" in said(path=str(tmp_path))
    assert "did you mean 'subscribe'" in said(path=str(sample.root), subscribes="Orders")


def test_spark_finds_the_source_without_being_told() -> None:
    import pyspark_commitlog  # noqa: PLC0415 - what Spark looks for

    assert pyspark_commitlog.DefaultSource.name() == "commitlog"
