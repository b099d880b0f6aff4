"""Consumer groups: what their members want, how they start, and what a broker keeps about them."""

from enum import StrEnum
from typing import Final, Self

import msgspec

from firearrow.hot import java_hash
from firearrow.model.topic import Int32, Int64, check_name

GROUP_CHARS_MAX: Final = 120
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"

# Groups whose settings exist on every broker from the start.
BUILT_IN_GROUPS: Final = frozenset(
    {
        "TOOLS_CONSUMER",
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
        "CID_RMQ_SYS_TRANS",
    }
)
SYSTEM_GROUPS: Final = BUILT_IN_GROUPS | {
    "DEFAULT_PRODUCER",
    "DEFAULT_CONSUMER",
    "SCHEDULE_CONSUMER",
    "__MONITOR_CONSUMER",
    "CLIENT_INNER_PRODUCER",
    "SELF_TEST_P_GROUP",
}


def check_group_name(name: str) -> str | None:
    """Why `name` cannot be a group; None when it can."""
    return check_name("group", name, GROUP_CHARS_MAX)


def is_system_group(name: str) -> bool:
    return name in SYSTEM_GROUPS or name.startswith(SYSTEM_GROUP_PREFIX)


# --- how members consume --------------------------------------------------------------------
# C++ clients send these by ordinal, so the order of the members is part of the protocol.


class ConsumeType(StrEnum):
    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"  # the application pulls
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"  # the client pulls and calls a listener
    CONSUME_POP = "CONSUME_POP"


class MessageModel(StrEnum):
    BROADCASTING = "BROADCASTING"  # every member gets every message
    CLUSTERING = "CLUSTERING"  # members share the messages


class ConsumeFromWhere(StrEnum):
    """Where a group starts in a queue for which it has committed nothing.

    The second, third and fourth are old names that clients now treat like the first.
    """

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = (
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    )
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class MessageRequestMode(StrEnum):
    """How a group gets the messages of a topic; set on the broker, for all members."""

    PULL = "PULL"
    POP = "POP"


# --- subscriptions --------------------------------------------------------------------------

TAG: Final = "TAG"
SQL92: Final = "SQL92"
PYTHON: Final = "PYTHON"  # ours: the expression names a filter that is installed on the broker
SUBSCRIBE_ALL: Final = "*"


def is_tag_type(expression_type: str | None) -> bool:
    """Node, C++ and old Java clients leave the type out and mean tags."""
    return not expression_type or expression_type == TAG


def parse_tags(expression: str | None) -> tuple[str, ...] | None:
    """The tags of ``TagA || TagB``, each once, in their order; None means every message.

    An expression of nothing but separators names no tag, and so matches nothing.
    """
    if not expression or expression == SUBSCRIBE_ALL:
        return None
    tags = (tag.strip() for tag in expression.split("||"))
    return tuple(dict.fromkeys(tag for tag in tags if tag))


class SubscriptionData(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a group wants from a topic. A larger version replaces a smaller one.

    `tags_set` and `code_set` are what the peer wrote: C++ clients write wrong codes, so brokers
    filter by `tags` and `tag_codes` instead.
    """

    topic: str
    sub_string: str = ""
    expression_type: str = TAG
    sub_version: Int64 = 0  # Java counts milliseconds here, Go nanoseconds
    tags_set: tuple[str, ...] = ()
    code_set: tuple[Int32, ...] = ()
    class_filter_mode: bool = False

    @classmethod
    def of(cls, topic: str, expression: str, *, version: int, expression_type: str = TAG) -> Self:
        """A subscription with the sets that Java brokers expect to find filled in."""
        tags = (parse_tags(expression) or ()) if is_tag_type(expression_type) else ()
        return cls(
            topic=topic,
            sub_string=expression or SUBSCRIBE_ALL,
            expression_type=expression_type,
            sub_version=version,
            tags_set=tags,
            code_set=tuple(java_hash(tag) for tag in tags),
        )

    @property
    def tags(self) -> tuple[str, ...] | None:
        """The wanted tags, or None for all messages (and for SQL92, which has no tags)."""
        if not is_tag_type(self.expression_type):
            return None
        if not self.sub_string and self.tags_set:
            return self.tags_set
        return parse_tags(self.sub_string)

    @property
    def tag_codes(self) -> frozenset[int] | None:
        """Hashes of the wanted tags, to be compared with those in the consume queue."""
        tags = self.tags
        return None if tags is None else frozenset(java_hash(tag) for tag in tags)


class SimpleSubscriptionData(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A subscription that an administrator wrote into a group's settings."""

    topic: str
    expression_type: str = TAG
    expression: str = SUBSCRIBE_ALL
    version: Int64 = 0


# --- settings -------------------------------------------------------------------------------


class GroupRetryPolicyType(StrEnum):
    EXPONENTIAL = "EXPONENTIAL"
    CUSTOMIZED = "CUSTOMIZED"


class ExponentialRetryPolicy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    initial: Int64 = 5_000  # ms
    max: Int64 = 7_200_000  # ms
    multiplier: Int64 = 2


class CustomizedRetryPolicy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    next: tuple[Int64, ...] = ()  # ms to wait, by attempt


class GroupRetryPolicy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How long a failed message waits. CUSTOMIZED without a list means the delay levels."""

    type: GroupRetryPolicyType = GroupRetryPolicyType.CUSTOMIZED
    exponential_retry_policy: ExponentialRetryPolicy | None = None
    customized_retry_policy: CustomizedRetryPolicy | None = None


class SubscriptionGroupConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a broker keeps about a group. 4.x tools send a part of it; the rest has defaults."""

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: Int32 = 1
    retry_max_times: Int32 = 16
    group_retry_policy: GroupRetryPolicy = GroupRetryPolicy()
    broker_id: Int64 = 0
    which_broker_when_consume_slowly: Int64 = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: Int32 = 0
    consume_timeout_minute: Int32 = 15
    subscription_data_set: tuple[SimpleSubscriptionData, ...] | None = None
    attributes: dict[str, str] = {}
