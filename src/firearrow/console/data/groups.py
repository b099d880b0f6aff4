"""One group from near: members, who has which queue, where members disagree, lag by queue."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from firearrow.base.errors import FirearrowError
from firearrow.model.errors import ConsumerNotOnline, SubscriptionGroupNotFound
from firearrow.model.topic import is_retry_topic
from firearrow.wire.codes import version_name

if TYPE_CHECKING:
    from firearrow.client.admin import Admin
    from firearrow.client.admin_results import GroupLag, QueueLag
    from firearrow.model.topic import MessageQueue

MEMBERS_ASKED_MAX: Final = 32  # members that are asked which queues they have


@dataclass(frozen=True, slots=True)
class Member:
    client_id: str
    address: str
    language: str
    version: str


@dataclass(frozen=True, slots=True)
class GroupDetail:
    """`owners` says which member has which queue, as members tell; `silent` ones do not."""

    name: str
    lag: GroupLag | None
    members: tuple[Member, ...] = ()
    consume_type: str = ""  # CONSUME_PASSIVELY, ...
    message_model: str = ""  # CLUSTERING, ...
    subscriptions: dict[str, str] = field(default_factory=dict)
    divergent: dict[str, dict[str, str]] = field(default_factory=dict)
    owners: dict[MessageQueue, str] = field(default_factory=dict)
    silent: tuple[str, ...] = ()
    error: str = ""

    @property
    def queues(self) -> tuple[QueueLag, ...]:
        return () if self.lag is None else self.lag.queues


async def group_detail(admin: Admin, name: str) -> GroupDetail:
    """SubscriptionGroupNotFound if there is no such group."""
    lag, error = await _lag(admin, name)
    try:
        connected = await admin.consumer_connections(name)
    except ConsumerNotOnline:
        return GroupDetail(name, lag, error=error)
    members = tuple(
        Member(one.client_id, one.client_addr, one.language or "", version_name(one.version))
        for one in connected.connection_set
    )
    asked = members[:MEMBERS_ASKED_MAX]
    answers = await asyncio.gather(
        *(admin.running_info(name, one.client_id) for one in asked), return_exceptions=True
    )
    owners: dict[MessageQueue, str] = {}
    silent = []
    for member, answer in zip(asked, answers, strict=True):
        if isinstance(answer, FirearrowError):
            silent.append(member.client_id)
        elif isinstance(answer, BaseException):
            raise answer
        else:
            owners |= dict.fromkeys(answer.mq_table, member.client_id)
    return GroupDetail(
        name,
        lag,
        members,
        consume_type=connected.consume_type.value if connected.consume_type else "",
        message_model=connected.message_model.value if connected.message_model else "",
        subscriptions={
            topic: one.sub_string for topic, one in sorted(connected.subscription_table.items())
        },
        divergent=connected.divergent_subscriptions or {},
        owners=owners,
        silent=tuple(silent),
        error=error,
    )


async def _lag(admin: Admin, name: str) -> tuple[GroupLag | None, str]:
    try:
        return await admin.group_lag(name), ""
    except SubscriptionGroupNotFound:
        raise
    except FirearrowError as error:
        return None, str(error)


@dataclass(frozen=True, slots=True)
class Matrix:
    """Who has which queue of a topic: a line for each queue, a column for each member."""

    topic: str
    members: tuple[str, ...]
    rows: tuple[tuple[MessageQueue, int, str], ...]  # queue, lag, its owner or ""

    @property
    def unowned(self) -> int:
        return sum(not owner for _, _, owner in self.rows)


def matrices(detail: GroupDetail) -> list[Matrix]:
    """One for each topic, retries last. Queues that somebody has count, whatever their lag."""
    lags = {one.queue: one.lag for one in detail.queues}
    queues = sorted({*lags, *detail.owners})
    members = tuple(sorted({one.client_id for one in detail.members}))
    found = []
    for topic in sorted({queue.topic for queue in queues}, key=lambda t: (is_retry_topic(t), t)):
        rows = tuple(
            (queue, lags.get(queue, 0), detail.owners.get(queue, ""))
            for queue in queues
            if queue.topic == topic
        )
        found.append(Matrix(topic, members, rows))
    return found
