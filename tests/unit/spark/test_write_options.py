"""Options of the sink: every mistake is named together with what would be right."""

from __future__ import annotations

import pytest

from firearrow.spark.errors import OptionError
from firearrow.spark.options import WRITE_OPTIONS
from firearrow.spark.write_options import WriteOptions

NAMES = {"nameservers": "127.0.0.1:9876"}


def parsed(**given: str) -> WriteOptions:
    return WriteOptions.parse(NAMES | given, streaming=False)


def test_default_is_exactly_once() -> None:
    options = parsed(topic="orders")
    assert options.exactly_once
    assert options.job_id is None
    assert options.topic == "orders"


def test_options_that_spark_adds_by_itself_are_no_mistake() -> None:
    given = {"checkpointLocation": "c", "path": "p", "queryName": "q"}
    WriteOptions.parse(NAMES | given, streaming=True)


@pytest.mark.parametrize(
    ("given", "because"),
    [
        ({"topik": "x"}, "did you mean 'topic'"),
        ({"delivry": "x"}, "did you mean 'delivery'"),
        ({"subscribe": "x"}, "It is for reading"),
        ({"maxOffsetsPerTrigger": "5"}, "streaming queries"),
        ({"delivery": "twice"}, "exactly-once, at-least-once"),
        ({"topic": "no spaces"}, "option 'topic'"),
        ({"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}, "nobody but the broker"),
        ({"decisionTopic": "a b"}, "option 'decisionTopic'"),
        ({"group": "a b"}, "option 'group'"),
        ({"jobId": "j", "delivery": "at-least-once"}, "leave one of them out"),
        ({"jobId": "j" * 200}, "128 at most"),
        ({"requestBytes": "many"}, "option 'requestBytes'"),
        ({"requestsInFlight": "0"}, "from 1 on"),
        ({"deliveryTimeoutMs": "-1"}, "option 'deliveryTimeoutMs'"),
        ({"nameservers": "nowhere"}, "option 'nameservers'"),
    ],
)
def test_mistake_is_named(given: dict[str, str], because: str) -> None:
    with pytest.raises(OptionError, match=because):
        parsed(**given)


def test_job_of_a_stream_is_its_checkpoint() -> None:
    with pytest.raises(OptionError, match="known by its checkpoint"):
        WriteOptions.parse(NAMES | {"jobId": "j"}, streaming=True)


def test_every_option_is_taken_in_any_case() -> None:
    given = {name.upper(): "1" for name in WRITE_OPTIONS if name.startswith("request")}
    assert parsed(**given, TOPIC="orders").request_bytes == 1
