"""What a broker keeps in `config/*.json`: topics, and how far everybody has read.

RocketMQ keeps the version before each file as `.bak`, and reads that when the file is broken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from firearrow.base.errors import PeerProtocolError
from firearrow.base.files import backup_of
from firearrow.model.topic import SYSTEM_TOPIC_PREFIX, SYSTEM_TOPICS, TopicConfig
from firearrow.offline.derived import LMQ_PREFIX, UnitRules
from firearrow.wire import java_json

if TYPE_CHECKING:
    from pathlib import Path

    from firearrow.offline.directory import StoreDirectory

QUEUE_TYPE: Final = "queue.type"
BATCH_QUEUE_TYPE: Final = "BatchCQ"

_T = TypeVar("_T")


class Topics(msgspec.Struct, rename="camel"):
    """topics.json."""

    topic_config_table: dict[str, TopicConfig] = {}


class ConsumerOffsets(msgspec.Struct, rename="camel"):
    """consumerOffset.json; for each ``topic@group`` the next offset of each queue."""

    offset_table: dict[str, dict[int, int]] = {}


class LightOffsets(msgspec.Struct, rename="camel"):
    """lmqConsumerOffset.json, which replaces the other where light queues are switched on."""

    offset_table: dict[str, dict[int, int]] = {}
    lmq_offset_table: dict[str, int] = {}


class DelayOffsets(msgspec.Struct, rename="camel"):
    """delayOffset.json; for each level the next offset in the schedule topic's queue."""

    offset_table: dict[int, int] = {}


class ConfigTables:
    """All of them. `problems` names the files that are there and cannot be read."""

    def __init__(self, root: Path) -> None:
        self.problems: dict[str, str] = {}
        self._folder = root / "config"
        topics = self._read("topics.json", Topics)
        self.topics = None if topics is None else topics.topic_config_table
        consumed = self._read("consumerOffset.json", ConsumerOffsets) or ConsumerOffsets()
        light = self._read("lmqConsumerOffset.json", LightOffsets) or LightOffsets()
        self.consumer_offsets = consumed.offset_table | light.offset_table
        for name, offset in light.lmq_offset_table.items():
            self.consumer_offsets.setdefault(name, {0: offset})
        delayed = self._read("delayOffset.json", DelayOffsets) or DelayOffsets()
        self.delay_offsets = delayed.offset_table

    def has_topic(self, topic: str) -> bool:
        """Whether a topic exists; brokers make some of their own without writing them down."""
        if self.topics is None or topic in self.topics or topic in SYSTEM_TOPICS:
            return True
        return topic.startswith((SYSTEM_TOPIC_PREFIX, LMQ_PREFIX))

    def batch_topics(self, store: StoreDirectory) -> set[str]:
        """Topics whose queues are batch consume queues, by their settings or their folders."""
        named = {
            name
            for name, config in (self.topics or {}).items()
            if config.attributes.get(QUEUE_TYPE) == BATCH_QUEUE_TYPE
        }
        return named | {key.topic for key in store.queues if key.is_batch}

    def _read(self, name: str, kind: type[_T]) -> _T | None:
        path = self._folder / name
        for candidate in (path, backup_of(path)):
            try:
                content = candidate.read_bytes()
                if content.strip():
                    found = java_json.decode(content, kind)
                    self.problems.pop(name, None)
                    return found
            except FileNotFoundError:
                continue
            except (OSError, PeerProtocolError) as error:
                self.problems.setdefault(name, str(error))
        return None


def unit_rules(store: StoreDirectory, tables: ConfigTables) -> UnitRules:
    """Which units the records of this store make."""
    return UnitRules(
        batch_topics=tables.batch_topics(store),
        light_queues=store.has_light_queues,
        delay_levels_ms=store.delay_levels_ms,
    )
