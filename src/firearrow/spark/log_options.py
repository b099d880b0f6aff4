"""What a read of commit-log files can be told, parsed and checked once."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from firearrow.base.errors import PeerProtocolError
from firearrow.offline.directory import Shape
from firearrow.spark.errors import OptionError
from firearrow.spark.log_plan import ALWAYS, Span
from firearrow.spark.options import Given, check_names, matches
from firearrow.wire.properties_text import parse_properties

if TYPE_CHECKING:
    from collections.abc import Mapping

SOURCE: Final = "commitlog"
FAIL: Final = "fail"
SKIP: Final = "skip"
EARLIEST: Final = "earliest"
LATEST: Final = "latest"
LOG_OPTIONS: Final = (
    "path",
    "config",
    "subscribe",
    "subscribePattern",
    "startingTimestamp",
    "endingTimestamp",
    "minPartitions",
    "partitionBytes",
    "onCorrupt",
    "batchRows",
    "batchBytes",
)
LOG_STREAM_OPTIONS: Final = ("startingOffsets", "maxBytesPerTrigger", "failOnDataLoss")


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """Which logs, which records of them, in which pieces."""

    path: str
    shape: Shape
    topics: frozenset[str]
    pattern: str | None
    span: Span
    partitions_min: int
    partition_bytes: int | None
    skip_corrupt: bool
    batch_rows: int
    batch_bytes: int
    starting: str
    trigger_bytes_max: int
    fail_on_data_loss: bool

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool) -> LogOptions:
        """OptionError names the option that is wrong, and what would be right."""
        here = (*LOG_OPTIONS, *(LOG_STREAM_OPTIONS if streaming else ()))
        check_names(options, here, () if streaming else LOG_STREAM_OPTIONS, source=SOURCE)
        given = Given(options)
        path = given.text("path")
        if path is None:
            raise OptionError(
                "option 'path' is missing: give the broker's storePathRootDir, as in "
                'spark.read.format("commitlog").load("/data/rocketmq/store")'
            )
        topics, pattern = _subscription(given)
        begin_ms = given.number("startingTimestamp", -ALWAYS)
        end_ms = given.number("endingTimestamp", ALWAYS)
        if begin_ms >= end_ms:
            raise OptionError(
                f"option 'endingTimestamp' is {end_ms}: a time after startingTimestamp "
                f"({begin_ms}) expected"
            )
        partition_bytes = given.number("partitionBytes", 0, least=1)
        return cls(
            path=path,
            shape=shape_of(given.text("config")),
            topics=topics,
            pattern=pattern,
            span=Span(begin_ms, end_ms),
            partitions_min=given.number("minPartitions", 2 * (os.cpu_count() or 1), least=1),
            partition_bytes=partition_bytes or None,
            skip_corrupt=given.choice("onCorrupt", FAIL, (FAIL, SKIP)) == SKIP,
            batch_rows=given.number("batchRows", 4_096, least=1),
            batch_bytes=given.number("batchBytes", 1 << 20, least=1),
            starting=given.choice("startingOffsets", EARLIEST, (EARLIEST, LATEST)),
            trigger_bytes_max=given.number("maxBytesPerTrigger", 0, least=1),
            fail_on_data_loss=given.switch("failOnDataLoss", default=True),
        )

    @property
    def every_topic(self) -> bool:
        return not self.topics and self.pattern is None

    def wants(self, topic: str) -> bool:
        """Whether the messages of a topic are asked for."""
        if self.pattern is not None:
            return matches(self.pattern, topic)
        return not self.topics or topic in self.topics


def _subscription(given: Given) -> tuple[frozenset[str], str | None]:
    names, pattern = given.text("subscribe"), given.text("subscribePattern")
    if names and pattern:
        raise OptionError("options 'subscribe' and 'subscribePattern' exclude each other")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise OptionError(f"option 'subscribePattern' is {pattern!r}: {error}") from None
    topics = frozenset(part.strip() for part in (names or "").split(",") if part.strip())
    if names and not topics:
        raise OptionError(f"option 'subscribe' is {names!r}: names of topics expected")
    return topics, pattern


def shape_of(config: str | None) -> Shape:
    """Sizes of files, from the broker's configuration where one is given."""
    if config is None:
        return Shape()
    try:
        return Shape.of_settings(parse_properties(Path(config).read_bytes()))
    except OSError as error:
        raise OptionError(f"config {config} cannot be read: {error.strerror}") from None
    except PeerProtocolError as error:
        raise OptionError(f"config {config} is no .properties file: {error}") from None
