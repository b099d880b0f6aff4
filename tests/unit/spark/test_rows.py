"""Rows to messages: columns by name and type, destinations, properties."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, MapType, StringType, StructType
from tests.broker_requests import property_text

from firearrow.broker.processors.send import split_batch
from firearrow.hot import decode_properties
from firearrow.spark.errors import ConnectorError, SchemaError
from firearrow.spark.rows import Encoder, Placed, Plan, placed, plan_of

HEAD = "0A" * 14
PAIRS = MapType(StringType(), StringType())
NOTHING = Plan(0, -1, -1, -1, -1, -1, -1)


def table(**kinds: Any) -> StructType:
    schema = StructType()
    for name, kind in kinds.items():
        schema.add(name, kind)
    return schema


def messages(batch: pa.RecordBatch, plan: Plan, request_bytes: int = 1 << 20) -> list[Any]:
    """Body and properties of each, request by request."""
    encoder = Encoder(plan, request_bytes, lambda: HEAD)
    return [
        [(body, decode_properties(own.decode())) for _, body, own in split_batch(request)]
        for request, _ in encoder.requests(batch, 4 << 20)
    ]


# --- columns ----------------------------------------------------------------------------------


def test_columns_are_found_by_name_in_any_case() -> None:
    schema = table(
        QUEUEID="integer",
        Value="binary",
        tags="string",
        properties=PAIRS,
        shardingkey="string",
        keys="string",
        topic="string",
    )
    assert plan_of(schema, None) == Plan(1, 6, 2, 5, 3, 4, 0)
    assert plan_of(schema, "orders").topic == -1


def test_columns_that_only_the_source_fills_are_left_alone() -> None:
    schema = table(offset="long", msgId="string", storeTimestamp="timestamp", body="string")
    assert plan_of(schema, "orders") == Plan(3, -1, -1, -1, -1, -1, -1)


@pytest.mark.parametrize(
    ("schema", "because"),
    [
        (table(text="string"), "column 'text'.*to_json"),
        (table(body="long"), "'body' must be binary or string, not bigint"),
        (table(body="string", tags="long"), "'tags' must be string"),
        (table(body="string", properties="string"), "'properties' must be map<string,string>"),
        (
            table(body="string", properties=MapType(StringType(), IntegerType())),
            "not map<string,int>",
        ),
        (table(body="string", queueId="string"), "'queueId' must be bigint"),
        (table(body="string", value="string"), "comes twice"),
        (table(tags="string"), "a column 'body'"),
    ],
)
def test_wrong_column_is_named(schema: StructType, because: str) -> None:
    with pytest.raises(SchemaError, match=because):
        plan_of(schema, "orders")


def test_topic_is_needed_from_somewhere() -> None:
    with pytest.raises(SchemaError, match="option 'topic'"):
        plan_of(table(body="string"), None)


# --- destinations -----------------------------------------------------------------------------


def places(found: list[Placed]) -> dict[tuple[Any, ...], list[bytes]]:
    return {
        (one.topic, one.sharding_key, one.queue_id): one.batch.column(0).to_pylist()
        for one in found
    }


def test_rows_that_ask_for_nothing_stay_together() -> None:
    batch = pa.record_batch({"body": [b"a", b"b"]})
    (only,) = placed(batch, NOTHING, "orders")
    assert only == Placed("orders", None, None, batch)


def test_rows_go_where_they_say_in_their_order() -> None:
    batch = pa.record_batch(
        {
            "body": [b"1", b"2", b"3", b"4", b"5", b"6"],
            "topic": ["x", "y", "x", "x", "y", "x"],
            "key": ["k", "k", None, "k", "k", ""],
            "queue": pa.array([None, None, None, None, 2, None], pa.int32()),
        }
    )
    plan = NOTHING._replace(topic=1, sharding_key=2, queue_id=3)
    found = [*placed(batch, plan, None)]
    assert places(found[:1]) == {("x", "k", None): [b"1", b"4"]}
    assert sorted(value for one in found for value in one.batch.column(0).to_pylist()) == [
        b"%d" % number for number in range(1, 7)
    ]
    assert places(found)["y", "k", 2] == [b"5"]


def test_row_without_a_topic_is_refused() -> None:
    batch = pa.record_batch({"body": [b"1"], "topic": pa.array([None], pa.string())})
    with pytest.raises(ConnectorError, match="no topic"):
        list(placed(batch, NOTHING._replace(topic=1), None))


# --- messages ---------------------------------------------------------------------------------


def test_row_becomes_a_message() -> None:
    batch = pa.record_batch(
        {
            "body": ["hällo", "x"],
            "tags": ["t", None],
            "keys": [None, "k1 k2"],
            "properties": pa.array([[("a", "1")], None], pa.map_(pa.string(), pa.string())),
            "shardingKey": ["s", ""],
        }
    )
    plan = NOTHING._replace(tags=1, keys=2, properties=3, sharding_key=4)
    ((first, second),) = messages(batch, plan)
    assert first == (
        "hällo".encode(),
        {"UNIQ_KEY": HEAD + "0000", "TAGS": "t", "__SHARDINGKEY": "s", "a": "1"},
    )
    assert second == (b"x", {"UNIQ_KEY": HEAD + "0001", "KEYS": "k1 k2"})


def test_names_of_the_system_and_of_columns_are_left_out_of_properties() -> None:
    pairs = [
        list({"UNIQ_KEY": "old", "a": "1", "TAGS": "mine"}.items()),
        [("CLUSTER", "c")],
        None,
        list({"TRAN_MSG": "true", "b": "2", "KEYS": "k"}.items()),
    ]
    batch = pa.record_batch(
        {
            "body": [b"0", b"1", b"2", b"3"],
            "properties": pa.array(pairs, pa.map_(pa.string(), pa.string())),
            "tags": ["column"] * 4,
        }
    )
    plan = NOTHING._replace(properties=1, tags=2)
    for skipped in range(4):
        ((*found,),) = messages(batch.slice(skipped), plan)
        assert [
            {name: value for name, value in properties.items() if name != "UNIQ_KEY"}
            for _, properties in found
        ] == [
            {"TAGS": "column", "a": "1"},
            {"TAGS": "column"},
            {"TAGS": "column"},
            {"TAGS": "column", "b": "2", "KEYS": "k"},
        ][skipped:]


def test_requests_are_cut_at_their_size() -> None:
    batch = pa.record_batch({"body": [b"x" * 100] * 10})
    one = 22 + 100 + len(property_text({"UNIQ_KEY": HEAD + "0000"}))
    assert [len(request) for request in messages(batch, NOTHING, 3 * one)] == [3, 3, 3, 1]


def test_large_types_are_taken() -> None:
    batch = pa.record_batch({"body": pa.array([b"a", None, b"b"][::2], pa.large_binary())})
    assert [body for body, _ in messages(batch, NOTHING)[0]] == [b"a", b"b"]


@pytest.mark.parametrize(
    ("values", "because"),
    [
        ([b"fine", b""], "no body"),
        ([b"fine", None], "no body"),
    ],
)
def test_row_that_cannot_be_a_message_is_shown(values: list[Any], because: str) -> None:
    batch = pa.record_batch({"body": pa.array(values, pa.binary()), "tags": ["good", "bad"]})
    with pytest.raises(ConnectorError, match=f"{because}.*'tags': 'bad'"):
        messages(batch, NOTHING)


def test_tag_with_a_separator_is_refused() -> None:
    batch = pa.record_batch({"body": [b"x"], "tags": ["a\x01b"]})
    with pytest.raises(ConnectorError, match="TAGS has a character 0, 1 or 2"):
        messages(batch, NOTHING._replace(tags=1))


def test_row_that_no_broker_takes_is_refused() -> None:
    batch = pa.record_batch({"body": [b"x" * 5_000_000]})
    with pytest.raises(ConnectorError, match="maxMessageSize"):
        messages(batch, NOTHING)
