"""What a query can be told, parsed and checked once; names follow Spark's Kafka source.

Names are taken in any case, as everywhere in Spark. An unknown one is an error that says which
known one is nearest: a misspelt limit that nobody hears would be worse.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from firearrow.client.errors import NoNameServer
from firearrow.client.options import ClientOptions, Credentials, parse_nameservers
from firearrow.model.errors import SubscriptionParseFailed
from firearrow.model.group import check_group_name
from firearrow.model.topic import is_system_topic
from firearrow.spark.errors import OptionError
from firearrow.spark.offsets import QueueName

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

EARLIEST: Final = -2  # in JSON, as in Spark's Kafka source
LATEST: Final = -1
READER_GROUP: Final = "TOOLS_CONSUMER"  # every broker has it; for queries that name no group
SUBSCRIBE_ALL: Final = "*"
EVERY_BROKER: Final = ""  # a queue that was named without its broker
EVERY_QUEUE: Final = -1  # a topic that was named without its queues

_DURATION: Final = re.compile(r"(\d+)\s*(ms|s|m|min|h|d)?")
_UNITS_MS: Final = {
    None: 1,
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}

# --- names ------------------------------------------------------------------------------------

CONNECTION_OPTIONS: Final = (
    "nameservers",
    "namespace",
    "accessKey",
    "secretKey",
    "securityToken",
    "tls",
    "tlsCaFile",
    "requestTimeoutMs",
)
READ_OPTIONS: Final = (
    *CONNECTION_OPTIONS,
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "group",
    "tags",
    "sql",
    "minPartitions",
    "maxPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "pullMessages",
    "pullsInFlight",
    "pullTimeoutMs",
    "batchRows",
    "batchBytes",
    "checkBodies",
)
BATCH_OPTIONS: Final = (
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
)
STREAM_OPTIONS: Final = (
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "metadataMaxAgeMs",
    "pollIntervalMs",
    "commitIntervalMs",
)

# What other sources call it.
_HABITS: Final = {
    "path": "subscribe",
    "topics": "subscribe",
    "kafka.bootstrap.servers": "nameservers",
    "kafka.group.id": "group",
}


def check_names(
    options: Mapping[str, str],
    known: Iterable[str],
    elsewhere: Iterable[str],
    *,
    source: str = "rocketmq",
) -> None:
    """OptionError for the first option that is not known here.

    `elsewhere` are names that other uses of the source know; they get a better answer.
    """
    names = {name.lower(): name for name in known}
    others = {name.lower(): name for name in elsewhere}
    for given in options:
        if given.lower() in names:
            continue
        if given.lower() in others:
            raise OptionError(
                f"option {others[given.lower()]!r} has no effect here: leave it out. {_uses(given)}"
            )
        near = _HABITS.get(given.lower())
        if near not in names.values():
            closest = difflib.get_close_matches(given.lower(), names, n=1, cutoff=0.5)
            near = names[closest[0]] if closest else None
        hint = f"did you mean {near!r}?" if near else f"known are {sorted(known)}"
        raise OptionError(f"option {given!r} is not known to the source {source!r}: {hint}")


def _uses(given: str) -> str:
    if given.lower() in {name.lower() for name in BATCH_OPTIONS}:
        return "It is for batch queries (spark.read)"
    if given.lower() in {name.lower() for name in STREAM_OPTIONS}:
        return "It is for streaming queries (spark.readStream)"
    if given.lower() in {name.lower() for name in READ_OPTIONS}:
        return "It is for reading"
    return "It is for writing"


# --- values -----------------------------------------------------------------------------------


class Given:
    """Options as they were given, by name in any case; every value is checked as it is read."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._values = {name.lower(): str(value) for name, value in options.items()}

    def text(self, name: str) -> str | None:
        value = self._values.get(name.lower())
        return None if value is None or not value.strip() else value.strip()

    def number(self, name: str, default: int, *, least: int = 0) -> int:
        value = self.text(name)
        if value is None:
            return default
        if not re.fullmatch(r"[+-]?\d+", value) or int(value) < least:
            raise OptionError(f"option {name!r} is {value!r}: a number from {least} on expected")
        return int(value)

    def switch(self, name: str, *, default: bool) -> bool:
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in {"true", "false"}:
            raise OptionError(f"option {name!r} is {value!r}: true or false expected")
        return value.lower() == "true"

    def duration_ms(self, name: str, default: int) -> int:
        value = self.text(name)
        if value is None:
            return default
        match = _DURATION.fullmatch(value.lower())
        if match is None:
            raise OptionError(f"option {name!r} is {value!r}: a time such as 500ms, 30s or 15m")
        return int(match[1]) * _UNITS_MS[match[2]]

    def choice(self, name: str, default: str, choices: tuple[str, ...]) -> str:
        value = (self.text(name) or default).lower()
        if value not in choices:
            raise OptionError(f"option {name!r} is {value!r}: one of {', '.join(choices)} expected")
        return value

    def json(self, name: str, example: str) -> Any:  # noqa: ANN401 - whatever JSON holds
        text = self.text(name)
        try:
            return None if text is None else json.loads(text)
        except json.JSONDecodeError as error:
            raise OptionError(
                f"option {name!r} is no JSON ({error}): something like {example} expected"
            ) from None


def queue_numbers(name: str, value: object) -> dict[QueueName, int]:
    """A number for each queue, out of JSON: by topic and queue, or flat, or for a whole topic.

    ``{"orders": {"broker-a:0": 5}}``, ``{"orders": {"broker-a@0": 5}}``,
    ``{"orders": {"0": 5}}`` (that queue on every broker), ``{"orders@broker-a@0": 5}``,
    ``{"orders": 5}``
    """
    if not isinstance(value, dict):
        raise OptionError(
            f'option {name!r}: an object such as {{"orders": {{"broker-a:0": 5}}}} expected'
        )
    found: dict[QueueName, int] = {}
    for key, inner in value.items():
        if isinstance(inner, dict):
            for queue, number in inner.items():
                found[queue_name(name, key, queue)] = _whole_number(name, number)
        elif "@" in key:
            found[flat_queue(name, key)] = _whole_number(name, inner)
        else:
            found[QueueName(key, EVERY_BROKER, EVERY_QUEUE)] = _whole_number(name, inner)
    return found


def queue_name(option: str, topic: str, text: str | int) -> QueueName:
    """A queue of a topic: ``broker:0``, ``broker@0``, or ``0`` for every broker that has it."""
    match = re.fullmatch(r"(?:(.+)[@:])?(\d+)", str(text))
    if match is None:
        raise OptionError(f"option {option!r}: {text!r} is no queue: 'broker-a:0' or '0' expected")
    return QueueName(topic, match[1] or EVERY_BROKER, int(match[2]))


def flat_queue(option: str, key: str) -> QueueName:
    try:
        return QueueName.parse(key)
    except OptionError as error:
        raise OptionError(f"option {option!r}: {error}") from None


def _whole_number(name: str, number: object) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or number < EARLIEST:
        raise OptionError(
            f"option {name!r}: {number!r} is no offset: a number, or -2 for the earliest and -1 "
            "for the latest, expected"
        )
    return number


# --- reading ----------------------------------------------------------------------------------


class Bound(NamedTuple):
    """One end of what is read.

    `kind` is ``earliest``, ``latest``, ``offsets`` or ``timestamps`` (by queue), ``timestamp``.
    """

    option: str
    kind: str
    queues: tuple[tuple[QueueName, int], ...] = ()
    timestamp_ms: int = 0


def _bound(given: Given, side: str, default: str) -> Bound:
    """`side` is starting or ending. As in Spark's Kafka source, times outrank offsets."""
    option = f"{side}Timestamp"
    text = given.text(option)
    if text is not None and not text.startswith("{"):
        return Bound(option, "timestamp", timestamp_ms=given.number(option, 0))
    if text is None:
        option = f"{side}OffsetsByTimestamp"
    if given.text(option) is not None:
        times = queue_numbers(option, given.json(option, '{"orders": 1700000000000}'))
        return Bound(option, "timestamps", tuple(sorted(times.items())))
    option = f"{side}Offsets"
    text = given.text(option) or default
    if text.lower() in {"earliest", "latest"}:
        if side == "ending" and text.lower() == "earliest":
            raise OptionError("option 'endingOffsets' is 'earliest': nothing lies before that")
        return Bound(option, text.lower())
    if not text.startswith("{"):
        raise OptionError(f"option {option!r} is {text!r}: earliest, latest or JSON expected")
    offsets = queue_numbers(option, given.json(option, '{"orders": {"broker-a:0": 5}}'))
    if side == "ending" and EARLIEST in offsets.values():
        raise OptionError("option 'endingOffsets': -2, the earliest, cannot be an end")
    return Bound(option, "offsets", tuple(sorted(offsets.items())))


@dataclass(frozen=True, kw_only=True)
class ConnectionOptions:
    """How a cluster is reached; equal ones share their connections."""

    nameservers: tuple[str, ...]
    namespace: str = ""
    access_key: str = ""
    secret_key: str = field(default="", repr=False)
    security_token: str = field(default="", repr=False)
    tls: bool = False
    tls_ca_file: str = ""
    request_timeout_ms: int = 3_000

    @classmethod
    def parse(cls, given: Given) -> ConnectionOptions:
        try:
            nameservers = parse_nameservers(given.text("nameservers"))
        except NoNameServer:
            raise OptionError(
                "option 'nameservers' is missing: give 'host:9876', or set NAMESRV_ADDR where the "
                "driver starts"
            ) from None
        except ValueError as error:
            raise OptionError(f"option 'nameservers': {error}") from None
        access_key, secret_key = given.text("accessKey") or "", given.text("secretKey") or ""
        if bool(access_key) != bool(secret_key):
            raise OptionError("options 'accessKey' and 'secretKey' go together: give both or none")
        return cls(
            nameservers=nameservers,
            namespace=given.text("namespace") or "",
            access_key=access_key,
            secret_key=secret_key,
            security_token=given.text("securityToken") or "",
            tls=given.switch("tls", default=False) or given.text("tlsCaFile") is not None,
            tls_ca_file=given.text("tlsCaFile") or "",
            request_timeout_ms=given.number("requestTimeoutMs", 3_000, least=1),
        )

    def client_options(self) -> ClientOptions:
        """The same for the Python client."""
        context = None
        if self.tls:
            import ssl  # noqa: PLC0415 - only who encrypts needs it

            context = ssl.create_default_context(cafile=self.tls_ca_file or None)
        credentials = None
        if self.access_key:
            credentials = Credentials(self.access_key, self.secret_key, self.security_token or None)
        return ClientOptions(
            namespace=self.namespace,
            credentials=credentials,
            tls=context,
            call_timeout_ms=self.request_timeout_ms,
        )


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Everything that a batch or streaming read can be told."""

    connection: ConnectionOptions
    topics: tuple[str, ...]
    pattern: str | None
    assigned: tuple[QueueName, ...]
    starting: Bound
    ending: Bound
    when_no_later_message: str  # startingOffsetsByTimestampStrategy
    group: str | None
    tags: str | None
    sql: str | None
    partitions_min: int
    partitions_max: int
    partition_rows_max: int
    fail_on_data_loss: bool
    retries: int
    retry_interval_ms: int
    pull_messages: int
    pulls_in_flight: int
    pull_timeout_ms: int
    batch_rows: int
    batch_bytes: int
    check_bodies: bool
    trigger_rows_max: int
    trigger_bytes_max: int
    trigger_rows_min: int
    trigger_delay_max_ms: int
    metadata_max_age_ms: int
    poll_interval_ms: int
    commit_interval_ms: int

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
        """OptionError names the option that is wrong, and what would be right."""
        here, there = (
            (STREAM_OPTIONS, BATCH_OPTIONS) if streaming else (BATCH_OPTIONS, STREAM_OPTIONS)
        )
        check_names(options, (*READ_OPTIONS, *here), (*there, *WRITE_OPTIONS))
        given = Given(options)
        topics, pattern, assigned = _subscription(given)
        tags, sql = given.text("tags"), given.text("sql")
        if tags and sql:
            raise OptionError("options 'tags' and 'sql' exclude each other: SQL can ask for TAGS")
        if sql:
            _check_sql(sql)
        return cls(
            connection=ConnectionOptions.parse(given),
            topics=topics,
            pattern=pattern,
            assigned=assigned,
            starting=_bound(given, "starting", "latest" if streaming else "earliest"),
            ending=_bound(given, "ending", "latest"),
            when_no_later_message=given.choice(
                "startingOffsetsByTimestampStrategy", "error", ("error", "latest")
            ),
            group=_group(given),
            tags=None if tags == "*" else tags,
            sql=sql,
            partitions_min=given.number("minPartitions", 0, least=1),
            partitions_max=given.number("maxPartitions", 2 * (os.cpu_count() or 1), least=1),
            partition_rows_max=given.number("maxRecordsPerPartition", 0, least=1),
            fail_on_data_loss=given.switch("failOnDataLoss", default=True),
            retries=given.number("fetchOffset.numRetries", 6),
            retry_interval_ms=given.number("fetchOffset.retryIntervalMs", 100),
            pull_messages=given.number("pullMessages", 1_024, least=1),
            pulls_in_flight=given.number("pullsInFlight", 8, least=1),
            pull_timeout_ms=given.number("pullTimeoutMs", 30_000, least=1),
            batch_rows=given.number("batchRows", 4_096, least=1),
            batch_bytes=given.number("batchBytes", 1 << 20, least=1),
            check_bodies=given.switch("checkBodies", default=True),
            trigger_rows_max=given.number("maxOffsetsPerTrigger", 0, least=1),
            trigger_bytes_max=given.number("maxBytesPerTrigger", 0, least=1),
            trigger_rows_min=given.number("minOffsetsPerTrigger", 0, least=1),
            trigger_delay_max_ms=given.duration_ms("maxTriggerDelay", 15 * 60_000),
            metadata_max_age_ms=given.duration_ms("metadataMaxAgeMs", 5_000),
            poll_interval_ms=given.duration_ms("pollIntervalMs", 50),
            commit_interval_ms=given.duration_ms("commitIntervalMs", 5_000),
        )

    @property
    def filtered(self) -> bool:
        """Whether the broker leaves messages out."""
        return bool(self.tags or self.sql)


def _group(given: Given) -> str | None:
    group = given.text("group")
    problem = None if group is None else check_group_name(group)
    if problem is not None:
        raise OptionError(f"option 'group' is {group!r}: {problem}")
    return group


def _check_sql(text: str) -> None:
    from firearrow.filters.sql import compile_sql  # noqa: PLC0415 - brings a parser along

    try:
        compile_sql(text)
    except SubscriptionParseFailed as error:
        raise OptionError(f"option 'sql': {error}") from None


def _subscription(given: Given) -> tuple[tuple[str, ...], str | None, tuple[QueueName, ...]]:
    ways = [name for name in ("subscribe", "subscribePattern", "assign") if given.text(name)]
    if len(ways) != 1:
        found = f"{' and '.join(ways)} are there" if ways else "none is there"
        raise OptionError(
            f"one of the options subscribe, subscribePattern and assign is needed: {found}"
        )
    if ways == ["subscribe"]:
        text = given.text("subscribe") or ""
        topics = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
        if not topics:
            raise OptionError(f"option 'subscribe' is {text!r}: names of topics expected")
        return topics, None, ()
    if ways == ["subscribePattern"]:
        pattern = given.text("subscribePattern") or ""
        try:
            re.compile(pattern)
        except re.error as error:
            raise OptionError(f"option 'subscribePattern' is {pattern!r}: {error}") from None
        return (), pattern, ()
    return (), None, _assigned(given)


def _assigned(given: Given) -> tuple[QueueName, ...]:
    example = '{"orders": ["broker-a:0", 1]}'
    value = given.json("assign", example)
    found: list[QueueName] = []
    if isinstance(value, list):
        found = [flat_queue("assign", str(key)) for key in value]
    elif isinstance(value, dict) and all(isinstance(queues, list) for queues in value.values()):
        found = [queue_name("assign", t, queue) for t, queues in value.items() for queue in queues]
    if not found:
        raise OptionError(f"option 'assign': something like {example} expected")
    return tuple(sorted(set(found)))


def matches(pattern: str, topic: str) -> bool:
    """Whether `subscribePattern` means a topic; RocketMQ's own only if it names their prefix."""
    own = topic.startswith("%") or is_system_topic(topic)
    if own and not (topic.startswith("%") and pattern.startswith("%")):
        return False
    return re.fullmatch(pattern, topic) is not None


# --- writing ----------------------------------------------------------------------------------

# What they mean is in `write_options.py`.
WRITE_OPTIONS: Final = (
    *CONNECTION_OPTIONS,
    "topic",
    "delivery",
    "group",
    "jobId",
    "requestBytes",
    "requestsInFlight",
    "deliveryTimeoutMs",
    "decisionTopic",
)
