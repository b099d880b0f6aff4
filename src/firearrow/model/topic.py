"""Topics: their settings, where their queues are, and which names are allowed.

The structs carry RocketMQ's JSON names in camel case, so that the wire and the store's
`config/*.json` files share them. Nothing here reads a socket or a file.
"""

import re
from collections.abc import Mapping
from enum import IntFlag, StrEnum
from typing import Annotated, Final

import msgspec

Int32 = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]

MASTER_ID: Final = 0  # broker id of a master; producers skip a broker name without one

# --- permissions ----------------------------------------------------------------------------


class Perm(IntFlag):
    """What may be done with the queues of a topic."""

    INHERIT = 1  # other topics may be created after this one's example
    WRITE = 2
    READ = 4
    PRIORITY = 8


PERM_READ_WRITE: Final = Perm.READ | Perm.WRITE


def perm_text(perm: int) -> str:
    """``RWX`` with a dash for each missing bit, as `mqadmin` prints it."""
    return (
        ("R" if perm & Perm.READ else "-")
        + ("W" if perm & Perm.WRITE else "-")
        + ("X" if perm & Perm.INHERIT else "-")
    )


def is_valid_perm(perm: int) -> bool:
    """Whether an administrator may set it: PRIORITY is reserved."""
    return 0 <= perm < Perm.PRIORITY


# --- versions of a table --------------------------------------------------------------------


class DataVersion(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Which state of a table this is. Two are the same state only if all three numbers are."""

    state_version: Int64 = 0  # the master's term, in controller mode
    timestamp: Int64 = 0
    counter: Int64 = 0

    @property
    def order_key(self) -> tuple[int, int, int]:
        """Sorts older states first, by RocketMQ's order, which looks at the time last."""
        return self.state_version, self.counter, self.timestamp

    def next_version(self, now_ms: int, *, state_version: int | None = None) -> "DataVersion":
        """The version after one more change of the table."""
        return DataVersion(
            state_version=self.state_version if state_version is None else state_version,
            timestamp=now_ms,
            counter=self.counter + 1,
        )


# --- topics and queues ----------------------------------------------------------------------


class TopicFilterType(StrEnum):
    """Recorded per topic, without any effect. Readers also take the ordinal: keep the order."""

    SINGLE_TAG = "SINGLE_TAG"
    MULTI_TAG = "MULTI_TAG"


class MessageQueue(msgspec.Struct, frozen=True, kw_only=True, order=True, rename="camel"):
    """One queue of a topic on one broker; clients sort queues in the order of these fields."""

    topic: str
    broker_name: str
    queue_id: Int32


class TopicConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a broker knows about a topic. Brokers of the 4.x line send no attributes."""

    topic_name: str
    read_queue_nums: Int32 = 16
    write_queue_nums: Int32 = 16
    perm: Int32 = int(PERM_READ_WRITE)
    topic_filter_type: TopicFilterType = TopicFilterType.SINGLE_TAG
    topic_sys_flag: Int32 = 0  # 1 unit, 2 unit subscription
    order: bool = False
    attributes: dict[str, str] = {}


class QueueData(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The queues of one topic on one broker, as a route shows them."""

    broker_name: str
    read_queue_nums: Int32 = 0
    write_queue_nums: Int32 = 0
    perm: Int32 = 0
    topic_sys_flag: Int32 = 0


class BrokerData(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A broker name and the addresses of its members by broker id."""

    cluster: str
    broker_name: str
    broker_addrs: dict[Int64, str] = {}
    enable_acting_master: bool = False
    zone_name: str | None = None

    @property
    def master_addr(self) -> str | None:
        return self.broker_addrs.get(MASTER_ID)


# --- names ----------------------------------------------------------------------------------

TOPIC_CHARS_MAX: Final = 127
RETRY_TOPIC_CHARS_MAX: Final = 255  # also for dead-letter topics
RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"

AUTO_CREATE_TOPIC: Final = "TBW102"  # the example after which topics are created on first send
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC: Final = "OFFSET_MOVED_EVENT"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
CHECKPOINT_TOPIC: Final = "CHECKPOINT_TOPIC"

SYSTEM_TOPICS: Final = frozenset(
    {
        AUTO_CREATE_TOPIC,
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        CHECK_MAX_TIME_TOPIC,
        TRACE_TOPIC,
        TIMER_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
        BENCHMARK_TOPIC,
        CHECKPOINT_TOPIC,
    }
)
# Only the broker itself writes to these; a client that tries is refused with NO_PERMISSION.
NO_SEND_TOPICS: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
    }
)

_ALLOWED: Final = re.compile(r"[%|a-zA-Z0-9_-]+", re.ASCII)


def check_name(kind: str, name: str, chars_max: int) -> str | None:
    """Why `name` cannot be a topic or a group; None when it can."""
    if not name.strip():
        return f"the {kind} is blank"
    if len(name) > chars_max:
        return f"the {kind} has {len(name)} characters; the limit is {chars_max}"
    if not _ALLOWED.fullmatch(name):
        return f"the {kind} {name!r} has a character other than letters, digits, '%', '|', '_', '-'"
    return None


def check_topic_name(name: str) -> str | None:
    """Why `name` cannot be a topic; None when it can."""
    long = is_retry_topic(name) or is_dlq_topic(name)
    return check_name("topic", name, RETRY_TOPIC_CHARS_MAX if long else TOPIC_CHARS_MAX)


def is_system_topic(name: str) -> bool:
    """Whether the name is RocketMQ's own: administrators can neither create nor delete it."""
    return name in SYSTEM_TOPICS or name.startswith(SYSTEM_TOPIC_PREFIX)


def is_retry_topic(name: str) -> bool:
    return name.startswith(RETRY_PREFIX)


def is_dlq_topic(name: str) -> bool:
    return name.startswith(DLQ_PREFIX)


def retry_topic(group: str) -> str:
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    return DLQ_PREFIX + group


def pop_retry_topic(topic: str, group: str, *, v2: bool = False) -> str:
    """Where popped messages that nobody acknowledged come back; V2 is unambiguous, V1 the default.

    A group or topic may contain an underscore but never a plus sign.
    """
    return f"{RETRY_PREFIX}{group}{'+' if v2 else '_'}{topic}"


def reply_topic(cluster: str) -> str:
    return f"{cluster}_REPLY_TOPIC"


def group_of_retry_topic(name: str) -> str | None:
    """The group of a plain retry or dead-letter topic; None for other topics."""
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            return name[len(prefix) :]
    return None


def parse_order_conf(text: str) -> dict[str, int]:
    """Queues per broker from ``brokerA:4;brokerB:4``; entries that make no sense are left out."""
    queues: dict[str, int] = {}
    for entry in text.split(";"):
        broker, _, count = entry.rpartition(":")
        if broker and count.isascii() and count.isdigit() and len(count) < 10:
            queues[broker] = int(count)
    return queues


def format_order_conf(queues: Mapping[str, int]) -> str:
    return ";".join(f"{broker}:{count}" for broker, count in queues.items())
