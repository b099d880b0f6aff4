"""Which topics a broker has. Pure state; who must hear of a change is told by `on_change`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from firearrow.model.errors import InvalidParameter
from firearrow.model.topic import (
    AUTO_CREATE_TOPIC,
    BENCHMARK_TOPIC,
    HALF_TOPIC,
    OFFSET_MOVED_TOPIC,
    OP_HALF_TOPIC,
    PERM_READ_WRITE,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    TIMER_TOPIC,
    DataVersion,
    Perm,
    TopicConfig,
    check_topic_name,
    is_valid_perm,
    reply_topic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from firearrow.base.runtime import Clock
    from firearrow.broker.config import BrokerConfig

SCHEDULE_QUEUES: Final = 18
REVIVE_QUEUES: Final = 8
QUEUES_MAX: Final = 65_536  # of one topic; a typing error should not cost a million entries
# What an administrator may write into a topic's attributes; the second cannot change later.
ATTRIBUTES: Final[dict[str, frozenset[str] | None]] = {
    "message.type": frozenset(
        {"UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "PRIORITY"}
    ),
    "queue.type": frozenset({"SimpleCQ", "BatchCQ"}),
    "cleanup.policy": frozenset({"DELETE", "COMPACTION"}),
    "reserve.time": None,
}
FIXED_ATTRIBUTES: Final = frozenset({"queue.type", "cleanup.policy"})


class TopicTable:
    """Topics by name, and which state of the table this is."""

    def __init__(self, clock: Clock, on_change: Callable[[str], None]) -> None:
        self._clock = clock
        self._on_change = on_change
        self._topics: dict[str, TopicConfig] = {}
        self.version = DataVersion()

    def load(self, topics: Mapping[str, TopicConfig], version: DataVersion) -> None:
        self._topics = dict(topics)
        self.version = version

    def create_built_in(self, config: BrokerConfig) -> None:
        """Topics that are on every broker from the start; those that exist stay as they are."""
        for topic in built_in_topics(config):
            if topic.topic_name not in self._topics:
                self._topics[topic.topic_name] = topic
        self._next_version()

    def touch(self) -> None:
        """What name servers are told of the topics is new, though the topics are not."""
        self._next_version()

    def begin_term(self, epoch: int) -> None:
        """A new master speaks: name servers do not listen to those before it any more."""
        self.version = self.version.next_version(self._clock.now_ms(), state_version=epoch)

    def _next_version(self) -> None:
        self.version = self.version.next_version(self._clock.now_ms())

    # --- looking ----------------------------------------------------------------------------

    def get(self, name: str) -> TopicConfig | None:
        return self._topics.get(name)

    def all(self) -> dict[str, TopicConfig]:
        return self._topics

    # --- changing ---------------------------------------------------------------------------

    def put(self, topic: TopicConfig) -> bool:
        """Create or replace a topic; False if nothing is new."""
        known = self._topics.get(topic.topic_name)
        if known == topic:
            return False
        self._topics[topic.topic_name] = topic
        self._next_version()
        self._on_change(topic.topic_name)
        return True

    def delete(self, name: str) -> bool:
        if self._topics.pop(name, None) is None:
            return False
        self._next_version()
        self._on_change(name)
        return True

    def create_on_send(self, name: str, default_topic: str, queue_nums: int) -> TopicConfig | None:
        """Create a topic after the example that a producer named; None if that is not allowed."""
        example = self._topics.get(default_topic)
        if example is None or not example.perm & Perm.INHERIT:
            return None
        queues = max(0, min(queue_nums, example.write_queue_nums))
        topic = TopicConfig(
            topic_name=name,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=example.perm & ~int(Perm.INHERIT),
            topic_filter_type=example.topic_filter_type,
        )
        self.put(topic)
        return topic

    def set_example(self, queues: int) -> None:
        """The topic after which others are created on first send: with so many queues."""
        everything = int(PERM_READ_WRITE | Perm.INHERIT)
        known = self._topics.get(AUTO_CREATE_TOPIC) or TopicConfig(
            topic_name=AUTO_CREATE_TOPIC, perm=everything
        )
        self.put(msgspec.structs.replace(known, read_queue_nums=queues, write_queue_nums=queues))

    def ensure(self, name: str, queues: int, perm: int = int(PERM_READ_WRITE)) -> TopicConfig:
        """A topic of the broker's own making: retries, dead letters."""
        known = self._topics.get(name)
        if known is not None:
            return known
        topic = TopicConfig(
            topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm
        )
        self.put(topic)
        return topic


def built_in_topics(config: BrokerConfig) -> Iterable[TopicConfig]:
    """Topics that RocketMQ's tools and clients expect to find, with its queue counts."""

    def topic(name: str, queues: int, perm: int = int(PERM_READ_WRITE)) -> TopicConfig:
        return TopicConfig(
            topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm
        )

    everything = int(PERM_READ_WRITE | Perm.INHERIT)
    inherit_only = int(Perm.INHERIT)
    yield topic(SELF_TEST_TOPIC, 1)
    if config.auto_create_topic_enable:
        yield topic(AUTO_CREATE_TOPIC, config.default_topic_queue_nums, everything)
    yield topic(BENCHMARK_TOPIC, 1024)
    cluster, name = config.broker_cluster_name, config.broker_name
    yield topic(cluster, 16, everything if config.cluster_topic_enable else inherit_only)
    yield topic(name, 1, everything if config.broker_topic_enable else inherit_only)
    yield topic(OFFSET_MOVED_TOPIC, 1)
    yield topic(SCHEDULE_TOPIC, SCHEDULE_QUEUES)
    if config.trace_topic_enable:
        yield topic(config.msg_trace_topic_name, 1)
    yield topic(reply_topic(cluster), 1)
    yield topic(f"rmq_sys_REVIVE_LOG_{cluster}", REVIVE_QUEUES)
    yield topic(f"rmq_sys_SYNC_BROKER_MEMBER_{name}", 1, inherit_only)
    yield topic(HALF_TOPIC, 1)
    yield topic(OP_HALF_TOPIC, 1)
    yield topic(TIMER_TOPIC, 1)


def own_topics(config: BrokerConfig) -> frozenset[str]:
    """Topics that are a broker's own by its settings, besides those that are on every broker."""
    cluster = config.broker_cluster_name
    names = {cluster, config.broker_name, reply_topic(cluster), config.msg_trace_topic_name}
    return frozenset(names | {f"rmq_sys_REVIVE_LOG_{cluster}"})


def check_topic(topic: TopicConfig) -> None:
    """Raise InvalidParameter if an administrator must not create this."""
    if (reason := check_topic_name(topic.topic_name)) is not None:
        raise InvalidParameter(reason)
    if not is_valid_perm(topic.perm):
        raise InvalidParameter(f"permission {topic.perm}; 0 to 7 are possible, 6 is usual")
    for kind, count in (("read", topic.read_queue_nums), ("write", topic.write_queue_nums)):
        if not 0 < count <= QUEUES_MAX:
            raise InvalidParameter(f"{count} {kind} queues; 1 to {QUEUES_MAX} are possible")


def apply_attributes(topic: TopicConfig, known: TopicConfig | None, text: str) -> TopicConfig:
    """`topic` with what ``+key=value,-key`` does to the attributes that it has."""
    attributes = dict(known.attributes) if known is not None else {}
    for word in filter(None, (word.strip() for word in text.split(","))):
        sign, rest = word[0], word[1:]
        key, _, value = rest.partition("=")
        if sign not in "+-" or key not in ATTRIBUTES:
            raise InvalidParameter(
                f"attribute {word!r}: +key=value or -key expected, with a key of "
                f"{', '.join(ATTRIBUTES)}"
            )
        allowed = ATTRIBUTES[key]
        if known is not None and key in FIXED_ATTRIBUTES and attributes.get(key) != value:
            raise InvalidParameter(f"attribute {key} cannot change once the topic exists")
        if sign == "-":
            attributes.pop(key, None)
        elif not (value in allowed if allowed is not None else value.isdecimal()):
            choices = " or ".join(sorted(allowed or {"a number"}))
            raise InvalidParameter(f"attribute {key}: {choices} expected, not {value!r}")
        else:
            attributes[key] = value
    return msgspec.structs.replace(topic, attributes=attributes)
