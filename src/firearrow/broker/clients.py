"""Who is connected: producers and consumers by group, as their heartbeats tell.

A client is known by its connection: when that ends, so does its membership, at once. Changes are
returned, never sent from here: the names of groups whose members must be told to share anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from firearrow.model.group import (
    ConsumeFromWhere,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from firearrow.base.runtime import Clock


@dataclass(slots=True)
class Member:
    """One client in one group. `channel` is its connection."""

    channel: Hashable
    client_id: str
    language: int
    version: int
    last_ms: int
    subscriptions: dict[str, str] = field(default_factory=dict)  # topic to expression, as it says

    @property
    def address(self) -> str:
        """Where it connects from."""
        return str(getattr(self.channel, "peer", "?"))


@dataclass(slots=True)
class ConsumerGroup:
    """What the members of a group have in common; the last heartbeat has the say."""

    name: str
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    members: dict[Hashable, Member] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    fingerprint: int = 0

    @property
    def client_ids(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(member.client_id for member in self.members.values()))

    def divergences(self) -> dict[str, dict[str, str]]:
        """Topics on which members disagree: by topic and client, the expression that each wants.

        Such a group loses messages: whoever gets a queue gets what all think they subscribed to.
        """
        topics = {topic for member in self.members.values() for topic in member.subscriptions}
        found = {}
        for topic in sorted(topics):
            wishes = {
                member.client_id: member.subscriptions.get(topic, "")
                for member in self.members.values()
                if member.subscriptions
            }
            if len(set(wishes.values())) > 1:
                found[topic] = wishes
        return found


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeat:
    """What one client says about one of its groups."""

    group: str
    consume_type: ConsumeType
    message_model: MessageModel
    consume_from_where: ConsumeFromWhere
    subscriptions: tuple[SubscriptionData, ...]
    without_subscriptions: bool = False  # they are as they were, and not repeated
    fingerprint: int = 0


class Clients:
    """Producers and consumers of one broker."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.producers: dict[str, dict[Hashable, Member]] = {}
        self.consumers: dict[str, ConsumerGroup] = {}
        # Called with a group whose members now subscribe, or consume, in another way.
        self.on_change: Callable[[str], None] = lambda _: None

    # --- heartbeats -------------------------------------------------------------------------

    def producer_heartbeat(self, group: str, member: Member) -> None:
        members = self.producers.setdefault(group, {})
        known = members.get(member.channel)
        if known is None or known.client_id != member.client_id:
            members[member.channel] = member
        else:
            known.last_ms = member.last_ms

    def consumer_heartbeat(self, said: ConsumerHeartbeat, member: Member) -> bool:
        """Take note of a member; True if the group must share its queues anew."""
        group = self.consumers.setdefault(said.group, ConsumerGroup(said.group))
        group.consume_type = said.consume_type
        if group.message_model is not said.message_model:
            group.message_model = said.message_model
            self.on_change(said.group)
        group.consume_from_where = said.consume_from_where
        known = group.members.get(member.channel)
        changed = known is None or known.client_id != member.client_id
        if changed:
            group.members[member.channel] = known = member
        assert known is not None
        known.last_ms = member.last_ms
        if not said.without_subscriptions:
            known.subscriptions = {one.topic: one.sub_string for one in said.subscriptions}
            changed |= self._subscribe(group, said.subscriptions)
        group.fingerprint = said.fingerprint
        return changed

    def _subscribe(self, group: ConsumerGroup, wanted: Iterable[SubscriptionData]) -> bool:
        """A larger version replaces a smaller one; what is not listed any more goes."""
        changed = False
        listed = set()
        for subscription in wanted:
            listed.add(subscription.topic)
            known = group.subscriptions.get(subscription.topic)
            if known is None:
                changed = True
            if known is None or subscription.sub_version > known.sub_version:
                group.subscriptions[subscription.topic] = subscription
                self.on_change(group.name)
        for topic in [topic for topic in group.subscriptions if topic not in listed]:
            del group.subscriptions[topic]
            changed = True
            self.on_change(group.name)
        return changed

    # --- leaving ----------------------------------------------------------------------------

    def leave(
        self, channel: Hashable, *, producer_group: str | None, consumer_group: str | None
    ) -> list[str]:
        """A client says goodbye to a group; returns the groups to tell."""
        if producer_group:
            self._leave_producers(producer_group, channel)
        if consumer_group and self._leave_consumers(consumer_group, channel):
            return [consumer_group]
        return []

    def channel_closed(self, channel: Hashable) -> list[str]:
        """A connection ended: its client is in no group any more; returns the groups to tell."""
        for name in list(self.producers):
            self._leave_producers(name, channel)
        return [name for name in list(self.consumers) if self._leave_consumers(name, channel)]

    def expired(self, timeout_ms: int) -> list[Hashable]:
        """Connections whose client has not sent a heartbeat for too long."""
        oldest_ms = self._clock.elapsed_ms() - timeout_ms
        found: dict[Hashable, None] = {}
        groups = [*self.producers.values(), *(group.members for group in self.consumers.values())]
        for members in groups:
            for member in members.values():
                if member.last_ms < oldest_ms:
                    found[member.channel] = None
        return list(found)

    def _leave_producers(self, group: str, channel: Hashable) -> None:
        members = self.producers.get(group)
        if members is not None:
            members.pop(channel, None)
            if not members:
                del self.producers[group]

    def _leave_consumers(self, name: str, channel: Hashable) -> bool:
        group = self.consumers.get(name)
        if group is None or group.members.pop(channel, None) is None:
            return False
        if not group.members:
            del self.consumers[name]
            self.on_change(name)
        return True

    # --- looking ----------------------------------------------------------------------------

    def group(self, name: str) -> ConsumerGroup | None:
        return self.consumers.get(name)

    def groups_of_topic(self, topic: str) -> list[str]:
        """Groups with a live member that subscribes to a topic."""
        return [name for name, group in self.consumers.items() if topic in group.subscriptions]

    def producer(self, client_id: str) -> Member | None:
        """A live producer by its client id."""
        for members in self.producers.values():
            for member in members.values():
                if member.client_id == client_id:
                    return member
        return None
