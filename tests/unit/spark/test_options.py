from __future__ import annotations

import pickle

import pytest

from firearrow.spark.errors import OptionError
from firearrow.spark.offsets import QueueName
from firearrow.spark.options import EVERY_BROKER, EVERY_QUEUE, ReadOptions, matches

GIVEN = {"nameservers": "127.0.0.1:9876", "subscribe": "orders"}


def parsed(*, streaming: bool = False, **given: str) -> ReadOptions:
    return ReadOptions.parse(GIVEN | given, streaming=streaming)


def test_names_are_taken_in_any_case() -> None:
    options = ReadOptions.parse(
        {"NAMESERVERS": "a:1;b:2", "Subscribe": " x , y,x", "MINpartitions": "7"}, streaming=False
    )
    assert options.connection.nameservers == ("a:1", "b:2")
    assert options.topics == ("x", "y")
    assert options.partitions_min == 7


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"maxOffsetPerTrigger": "5"}, "did you mean 'maxOffsetsPerTrigger'"),
        ({"kafka.bootstrap.servers": "x"}, "did you mean 'nameservers'"),
        ({"path": "orders"}, "did you mean 'subscribe'"),
        ({"no.such.thing": "x"}, "known are"),
        ({"group": "a b"}, "option 'group' is 'a b'"),
        ({"sql": "region = = 'US'"}, "option 'sql': SQL92 expression, character 10"),
        ({"endingOffsets": "latest"}, "batch queries"),
        ({"topic": "orders"}, "for writing"),
        ({"assign": "{}"}, "subscribe and assign are there"),
        ({"subscribe": ","}, "names of topics expected"),
        ({"subscribe": ""}, "none is there"),
        ({"startingOffsets": "newest"}, "earliest, latest or JSON expected"),
        ({"startingOffsets": "{"}, "is no JSON"),
        ({"startingOffsets": '{"orders@0": 5}'}, "'topic@broker@number' expected"),
        ({"startingOffsets": '{"orders": {"a:b": 5}}'}, "is no queue"),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, "is no offset"),
        ({"startingOffsets": '{"orders": {"0": true}}'}, "is no offset"),
        ({"minPartitions": "0"}, "a number from 1 on expected"),
        ({"maxOffsetsPerTrigger": "many"}, "a number from 1 on expected"),
        ({"failOnDataLoss": "maybe"}, "true or false expected"),
        ({"maxTriggerDelay": "soon"}, "a time such as"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "one of error, latest expected"),
        ({"tags": "A", "sql": "a > 1"}, "exclude each other"),
        ({"accessKey": "me"}, "go together"),
        ({"nameservers": "nowhere"}, "host:port expected"),
    ],
)
def test_what_is_wrong_is_named_with_a_remedy(given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError) as raised:
        parsed(streaming=True, **given)
    assert said in str(raised.value)
    name = next(iter(given))
    assert name in str(raised.value) or "subscribe" in str(raised.value)


def test_options_for_streams_are_refused_in_batches_and_the_other_way_round() -> None:
    with pytest.raises(OptionError, match="streaming queries"):
        parsed(maxOffsetsPerTrigger="5")
    with pytest.raises(OptionError, match="batch queries"):
        parsed(streaming=True, endingTimestamp="5")


def test_nameservers_come_from_the_environment_when_none_are_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "10.0.0.1:9876;10.0.0.2:9876")
    found = ReadOptions.parse({"subscribe": "orders"}, streaming=False)
    assert found.connection.nameservers == ("10.0.0.1:9876", "10.0.0.2:9876")
    monkeypatch.delenv("NAMESRV_ADDR")
    with pytest.raises(OptionError, match="'nameservers' is missing"):
        ReadOptions.parse({"subscribe": "orders"}, streaming=False)


@pytest.mark.parametrize(
    "text",
    [
        '{"orders": {"broker-a:0": 5, "broker-a:1": -2}}',
        '{"orders": {"broker-a@0": 5, "broker-a@1": -2}}',
        '{"orders@broker-a@0": 5, "orders@broker-a@1": -2}',
    ],
)
def test_offsets_of_queues_are_read_in_every_form(text: str) -> None:
    starting = parsed(startingOffsets=text).starting
    assert starting.kind == "offsets"
    assert dict(starting.queues) == {
        QueueName("orders", "broker-a", 0): 5,
        QueueName("orders", "broker-a", 1): -2,
    }


def test_a_queue_without_a_broker_means_every_broker() -> None:
    assert dict(parsed(startingOffsets='{"orders": {"3": 9}}').starting.queues) == {
        QueueName("orders", "", 3): 9
    }


def test_a_number_without_a_queue_means_the_whole_topic() -> None:
    whole = ((QueueName("orders", EVERY_BROKER, EVERY_QUEUE), 9),)
    assert parsed(startingOffsets='{"orders": 9}').starting.queues == whole
    for starting in (
        parsed(startingTimestamp='{"orders": 9}').starting,
        parsed(startingOffsetsByTimestamp='{"orders": 9}').starting,
    ):
        assert (starting.kind, starting.queues) == ("timestamps", whole)


def test_times_outrank_offsets() -> None:
    options = parsed(
        startingOffsets="latest", startingTimestamp="1700000000000", endingTimestamp="1700000001000"
    )
    assert (options.starting.kind, options.starting.timestamp_ms) == ("timestamp", 1700000000000)
    assert (options.ending.kind, options.ending.timestamp_ms) == ("timestamp", 1700000001000)


def test_a_batch_begins_at_the_earliest_and_a_stream_at_the_latest_message() -> None:
    assert parsed().starting.kind == "earliest"
    assert parsed(streaming=True).starting.kind == "latest"


def test_an_end_cannot_be_the_earliest() -> None:
    with pytest.raises(OptionError, match="endingOffsets"):
        parsed(endingOffsets="earliest")
    with pytest.raises(OptionError, match="-2"):
        parsed(endingOffsets='{"orders": {"0": -2}}')


def test_assigned_queues_are_read_in_every_form() -> None:
    base = {"nameservers": "a:1"}
    by_topic = ReadOptions.parse(
        base | {"assign": '{"t": ["broker-a:0", 1, "b@2"]}'}, streaming=False
    )
    assert by_topic.assigned == (
        QueueName("t", "", 1),
        QueueName("t", "b", 2),
        QueueName("t", "broker-a", 0),
    )
    flat = ReadOptions.parse(base | {"assign": '["t@broker-a@0"]'}, streaming=False)
    assert flat.assigned == (QueueName("t", "broker-a", 0),)
    with pytest.raises(OptionError, match="assign"):
        ReadOptions.parse(base | {"assign": '{"t": 5}'}, streaming=False)


@pytest.mark.parametrize(
    ("text", "ms"),
    [("15m", 900_000), ("500ms", 500), ("2 s", 2_000), ("70", 70), ("1h", 3_600_000)],
)
def test_times_have_units(text: str, ms: int) -> None:
    assert parsed(streaming=True, maxTriggerDelay=text).trigger_delay_max_ms == ms


def test_patterns_leave_rocketmqs_own_topics_out_unless_they_are_meant() -> None:
    assert matches("ord.*", "orders")
    assert not matches("ord", "orders")
    assert not matches(".*", "%RETRY%group")
    assert not matches(".*", "TBW102")
    assert matches("%DLQ%.*", "%DLQ%group")
    with pytest.raises(OptionError, match="subscribePattern"):
        ReadOptions.parse({"nameservers": "a:1", "subscribePattern": "("}, streaming=False)


def test_options_travel_to_tasks_and_secrets_do_not_show() -> None:
    options = parsed(accessKey="me", secretKey="hush")
    assert pickle.loads(pickle.dumps(options)) == options
    assert "hush" not in repr(options)
