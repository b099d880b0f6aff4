"""What a broker keeps about consumer groups: settings, and topics that they must not read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from firearrow.model.group import BUILT_IN_GROUPS, SubscriptionGroupConfig, check_group_name
from firearrow.model.topic import DataVersion

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from firearrow.base.runtime import Clock

READ_FORBIDDEN: Final = 1 << 2


class GroupTable:
    """Settings by group; unknown groups come into being on first use, if that is allowed."""

    def __init__(self, clock: Clock, on_change: Callable[[], None], *, auto_create: bool) -> None:
        self._clock = clock
        self._on_change = on_change
        self.auto_create = auto_create
        self._groups: dict[str, SubscriptionGroupConfig] = {}
        self.forbidden: dict[str, dict[str, int]] = {}
        self.version = DataVersion()

    def load(
        self,
        groups: Mapping[str, SubscriptionGroupConfig],
        forbidden: Mapping[str, Mapping[str, int]],
        version: DataVersion,
    ) -> None:
        self._groups = dict(groups)
        self.forbidden = {group: dict(topics) for group, topics in forbidden.items()}
        self.version = version

    def create_built_in(self) -> None:
        for name in BUILT_IN_GROUPS:
            self._groups.setdefault(name, SubscriptionGroupConfig(group_name=name))

    def find(self, name: str) -> SubscriptionGroupConfig | None:
        """A group's settings; made with defaults if it is new and that is allowed."""
        group = self._groups.get(name)
        if group is None and self.auto_create and check_group_name(name) is None:
            group = SubscriptionGroupConfig(group_name=name)
            self.put(group)
        return group

    def get(self, name: str) -> SubscriptionGroupConfig | None:
        return self._groups.get(name)

    def all(self) -> dict[str, SubscriptionGroupConfig]:
        return self._groups

    def put(self, group: SubscriptionGroupConfig) -> None:
        if self._groups.get(group.group_name) != group:
            self._groups[group.group_name] = group
            self._changed()

    def delete(self, name: str) -> bool:
        known = self._groups.pop(name, None) is not None
        known |= self.forbidden.pop(name, None) is not None
        if known:
            self._changed()
        return known

    def forbid_reading(self, group: str, topic: str, *, forbidden: bool) -> None:
        topics = self.forbidden.setdefault(group, {})
        bits = topics.get(topic, 0)
        bits = bits | READ_FORBIDDEN if forbidden else bits & ~READ_FORBIDDEN
        if bits:
            topics[topic] = bits
        else:
            topics.pop(topic, None)
        if not topics:
            del self.forbidden[group]
        self._changed()

    def may_read(self, group: str, topic: str) -> bool:
        return not self.forbidden.get(group, {}).get(topic, 0) & READ_FORBIDDEN

    def _changed(self) -> None:
        self.version = self.version.next_version(self._clock.now_ms())
        self._on_change()
