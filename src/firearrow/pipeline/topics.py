"""Which messages of which topics a job reads: the same few options for every job."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from firearrow.base.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

_DURATION = re.compile(r"^(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)$")
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """Topics, and from where to where they are read.

    Args:
        nameservers: host:port, several separated by ';'.
        topics: Their names, or `pattern`, a regular expression for them.
        starting: earliest, latest, JSON by queue, or a time; of a new stream only.
        ending: The same, for batch reads.
        group: Under whose name progress shows in consoles.
        tags: RocketMQ's tag expression, seen to by the broker.
        sql: RocketMQ's SQL92 expression, seen to by the broker.
        max_per_trigger: Messages in one batch of a stream at most.
        more: Any other option of the source.
    """

    nameservers: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    starting: str = "earliest"
    ending: str | None = None
    group: str | None = None
    tags: str | None = None
    sql: str | None = None
    max_per_trigger: int | None = None
    more: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if bool(self.topics) == bool(self.pattern):
            raise ConfigError("topics or a pattern for them expected: one of the two")

    def options(self, *, stream: bool) -> dict[str, str]:
        """As the source `rocketmq` takes them."""
        options = {"nameservers": self.nameservers}
        if self.topics:
            options["subscribe"] = ",".join(self.topics)
        else:
            options["subscribePattern"] = str(self.pattern)
        options |= _place("starting", self.starting)
        if self.ending is not None and not stream:
            options |= _place("ending", self.ending)
        if self.group is not None:
            options["group"] = self.group
        if self.tags is not None:
            options["tags"] = self.tags
        if self.sql is not None:
            options["sql"] = self.sql
        if self.max_per_trigger is not None and stream:
            options["maxOffsetsPerTrigger"] = str(self.max_per_trigger)
        return options | dict(self.more)

    def stream(self, spark: SparkSession, schema: str | None = None) -> DataFrame:
        """All columns of the source, or those of a schema, which costs less."""
        reader = spark.readStream.format("rocketmq").options(**self.options(stream=True))
        return (reader.schema(schema) if schema else reader).load()

    def batch(self, spark: SparkSession) -> DataFrame:
        return spark.read.format("rocketmq").options(**self.options(stream=False)).load()

    def __str__(self) -> str:
        return ", ".join(self.topics) or f"/{self.pattern}/"


def _place(side: str, text: str) -> dict[str, str]:
    """`startingOffsets` or `startingTimestamp`, by what the text looks like."""
    if text in {"earliest", "latest"} or text.startswith("{"):
        return {f"{side}Offsets": text}
    return {f"{side}Timestamp": str(time_ms(text, f"--{side}"))}


def time_ms(text: str, option: str) -> int:
    """A moment in milliseconds: 2026-11-18T10:00 (local unless it names a zone), @1794732962468."""
    try:
        if text.startswith("@"):
            return int(text[1:])
        return int(datetime.fromisoformat(text).astimezone().timestamp() * 1000)
    except ValueError:
        raise ConfigError(
            f"{option} {text!r}: earliest, latest, offsets as JSON, a time (2026-11-15T08:55:30, "
            "local unless it names a zone) or milliseconds (@1794732962468) expected"
        ) from None


def duration_ms(text: str, option: str) -> int:
    """500ms, 10s, 5m, 1h, 7d."""
    found = _DURATION.match(text.strip())
    if found is None or float(found[1]) <= 0:
        raise ConfigError(f"{option} {text!r}: a time such as 500ms, 10s, 5m, 1h or 7d expected")
    return max(1, round(float(found[1]) * _UNIT_MS[found[2]]))
