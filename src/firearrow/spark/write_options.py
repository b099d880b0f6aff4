"""What a write can be told; parsed and checked once, as `options.py` does for reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from firearrow.model.group import check_group_name
from firearrow.model.topic import NO_SEND_TOPICS, check_topic_name
from firearrow.spark.errors import OptionError
from firearrow.spark.options import (
    BATCH_OPTIONS,
    READ_OPTIONS,
    STREAM_OPTIONS,
    WRITE_OPTIONS,
    ConnectionOptions,
    Given,
    check_names,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

EXACTLY_ONCE: Final = "exactly-once"
AT_LEAST_ONCE: Final = "at-least-once"
DECISION_TOPIC: Final = "FIREARROW_SPARK_DECISIONS"
GROUP: Final = "firearrow-spark"
JOB_CHARS_MAX: Final = 128


@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    """Everything that a batch or streaming write can be told.

    Attributes:
        connection: How the cluster is reached.
        topic: Where all rows go; without it each row names its own.
        exactly_once: Whether rows are delivered all together and once; the default.
        group: The producer group: who owns half messages that are open.
        job_id: For batch writes: a second run under the same name delivers nothing twice.
        request_bytes: How large a request gets.
        requests_in_flight: How many of a task wait for their answers at once.
        delivery_timeout_ms: How long a request is tried again while a broker is away.
        decision_topic: Where it is written down which attempt counts.
    """

    connection: ConnectionOptions
    topic: str | None
    exactly_once: bool
    group: str
    job_id: str | None
    request_bytes: int
    requests_in_flight: int
    delivery_timeout_ms: int
    decision_topic: str

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool) -> WriteOptions:
        """OptionError names the option that is wrong, and what would be right."""
        # Spark puts these in by itself.
        given_options = {
            name: value
            for name, value in options.items()
            if name.lower() not in {"path", "checkpointlocation", "queryname"}
        }
        check_names(given_options, WRITE_OPTIONS, (*READ_OPTIONS, *BATCH_OPTIONS, *STREAM_OPTIONS))
        given = Given(given_options)
        topic = given.text("topic")
        if topic is not None:
            _check_topic("topic", topic)
        group = given.text("group") or GROUP
        problem = check_group_name(group)
        if problem is not None:
            raise OptionError(f"option 'group' is {group!r}: {problem}")
        job_id = given.text("jobId")
        if job_id is not None and streaming:
            raise OptionError(
                "option 'jobId' is for batch writes: a streaming query is known by its checkpoint"
            )
        if job_id is not None and len(job_id) > JOB_CHARS_MAX:
            raise OptionError(
                f"option 'jobId' has {len(job_id)} characters; {JOB_CHARS_MAX} at most"
            )
        exactly_once = (
            given.choice("delivery", EXACTLY_ONCE, (EXACTLY_ONCE, AT_LEAST_ONCE)) == EXACTLY_ONCE
        )
        if job_id is not None and not exactly_once:
            raise OptionError(
                "option 'jobId' promises that nothing is delivered twice, which "
                f"delivery={AT_LEAST_ONCE} does not: leave one of them out"
            )
        decision_topic = given.text("decisionTopic") or DECISION_TOPIC
        _check_topic("decisionTopic", decision_topic)
        return cls(
            connection=ConnectionOptions.parse(given),
            topic=topic,
            exactly_once=exactly_once,
            group=group,
            job_id=job_id,
            request_bytes=given.number("requestBytes", 512 * 1024, least=1),
            requests_in_flight=given.number("requestsInFlight", 4, least=1),
            delivery_timeout_ms=given.number("deliveryTimeoutMs", 120_000, least=1),
            decision_topic=decision_topic,
        )


def _check_topic(option: str, topic: str) -> None:
    problem = check_topic_name(topic)
    if problem is None and topic in NO_SEND_TOPICS:
        problem = "nobody but the broker writes to it"
    if problem is not None:
        raise OptionError(f"option {option!r} is {topic!r}: {problem}")
