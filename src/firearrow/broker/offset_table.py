"""How far groups have consumed: the offset that each will read next, by topic, group and queue.

A reset that an administrator asks for is pending until the next pull of that queue: the pull is
told where to go on, and commits that were under way in between count for nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from firearrow.model.topic import DataVersion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from firearrow.base.runtime import Clock

    Matches = Callable[[tuple[str, str]], bool]

COMMITS_PER_VERSION: Final = 500
BROADCAST_SUFFIX: Final = "@broadcast"


class OffsetTable:
    """Committed offsets, and offsets that were pulled but not committed yet."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._committed: dict[tuple[str, str], dict[int, int]] = {}
        self._pulled: dict[tuple[str, str], dict[int, int]] = {}
        self._resets: dict[tuple[str, str], dict[int, int]] = {}
        self._commits = 0
        self.version = DataVersion()
        self.changed = False  # since somebody last took it off
        # Called when offsets are set from outside: whoever goes on by `tables` must ask again.
        self.on_jump: Callable[[], None] = lambda: None

    def load(self, table: Mapping[str, Mapping[int, int]], version: DataVersion | None) -> None:
        """Keys are ``topic@group``; the topic ends at the first ``@``, a group may have more."""
        for key, offsets in table.items():
            topic, at, group = key.partition("@")
            if at:
                self._committed[topic, group] = dict(offsets)
        self.version = version or DataVersion()

    def snapshot(self) -> dict[str, dict[int, int]]:
        return {
            f"{topic}@{group}": dict(offsets)
            for (topic, group), offsets in self._committed.items()
            if offsets
        }

    # --- committing -------------------------------------------------------------------------

    def commit(self, topic: str, group: str, queue_id: int, offset: int) -> bool:
        """Note how far a group is; any value counts, also a smaller one.

        False if a reset is pending and the commit was ignored.
        """
        if queue_id in self._resets.get((topic, group), ()):
            return False
        self._committed.setdefault((topic, group), {})[queue_id] = offset
        self.note_commits(1)
        return True

    def tables(self, topic: str, group: str) -> tuple[dict[int, int], dict[int, int]]:
        """Committed and pulled offsets by queue, for compiled code that writes them by itself.

        It says so with `note_commits`, and lets go of them `on_jump`.
        """
        key = (topic, group)
        return self._committed.setdefault(key, {}), self._pulled.setdefault(key, {})

    def merge(self, table: Mapping[str, Mapping[int, int]]) -> None:
        """Take a master's offsets over; what it does not know stays."""
        for key, offsets in table.items():
            topic, at, group = key.partition("@")
            known = self._committed.setdefault((topic, group), {})
            if at and offsets.items() - known.items():
                known.update(offsets)
                self.changed = True

    def take_larger(
        self,
        table: Mapping[str, Mapping[int, int]],
        max_offset: Callable[[str, int], int],
    ) -> int:
        """Take what a slave has further than we, as far as there are messages; returns how many."""
        taken = 0
        for key, offsets in table.items():
            topic, _, group = key.partition("@")
            if group.startswith("CID_RMQ_SYS_"):
                continue  # the master's own places
            for queue_id, offset in offsets.items():
                known = self._committed.get((topic, group), {}).get(queue_id, -1)
                if known < offset <= max_offset(topic, queue_id):
                    self.commit(topic, group, queue_id, offset)
                    taken += 1
        return taken

    def note_commits(self, count: int) -> None:
        self.changed = True
        before = self._commits // COMMITS_PER_VERSION
        self._commits += count
        if self._commits // COMMITS_PER_VERSION != before:
            self.version = self.version.next_version(self._clock.now_ms())

    def committed(self, topic: str, group: str, queue_id: int) -> int:
        """The offset to be read next; -1 if nothing was ever committed."""
        pending = self._resets.get((topic, group))
        if pending is not None and queue_id in pending:
            return pending[queue_id]
        return self._committed.get((topic, group), {}).get(queue_id, -1)

    def note_pull(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        self._pulled.setdefault((topic, group), {})[queue_id] = offset

    def pulled(self, topic: str, group: str, queue_id: int) -> int:
        return self._pulled.get((topic, group), {}).get(queue_id, -1)

    # --- resets -----------------------------------------------------------------------------

    def reset(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Have the next pull go on here; the new offset counts as committed at once."""
        self._resets.setdefault((topic, group), {})[queue_id] = offset
        self._committed.setdefault((topic, group), {})[queue_id] = offset
        self.note_commits(1)
        self.on_jump()

    def has_reset(self, topic: str, group: str) -> bool:
        """Whether a pull of any queue is to be told where to go on."""
        return (topic, group) in self._resets

    def take_reset(self, topic: str, group: str, queue_id: int) -> int | None:
        """The pending reset of a queue, once."""
        pending = self._resets.get((topic, group))
        if pending is None or queue_id not in pending:
            return None
        offset = pending.pop(queue_id)
        if not pending:
            del self._resets[topic, group]
        return offset

    # --- whole groups and topics ------------------------------------------------------------

    def groups_of(self, topic: str) -> list[str]:
        """Groups that have committed something in a topic; broadcasting ones by their own name."""
        return [
            group
            for (name, group), offsets in self._committed.items()
            if name == topic and offsets and not group.endswith(BROADCAST_SUFFIX)
        ]

    def topics_of(self, group: str) -> list[str]:
        return [
            topic for (topic, name), offsets in self._committed.items() if name == group and offsets
        ]

    def progress(self) -> list[tuple[str, str, dict[int, int], dict[int, int]]]:
        """Topic, group, and what it has committed and pulled by queue, as it is; only look."""
        pulled, nothing = self._pulled, dict[int, int]()
        return [
            (topic, group, offsets, pulled.get((topic, group), nothing))
            for (topic, group), offsets in self._committed.items()
            if offsets
        ]

    def offsets(self, topic: str, group: str) -> dict[int, int]:
        return dict(self._committed.get((topic, group), {}))

    def clone(self, source: str, target: str, topics: Iterable[str]) -> None:
        """Give a group the offsets of another."""
        for topic in topics:
            offsets = self._committed.get((topic, source))
            if offsets:
                self._committed[topic, target] = dict(offsets)
                self.note_commits(1)
        self.on_jump()

    def remove_topic(self, topic: str) -> None:
        self._remove(lambda key: key[0] == topic)

    def remove_group(self, group: str) -> None:
        self._remove(lambda key: key[1] == group)

    def _remove(self, matches: Matches) -> None:
        for table in (self._committed, self._pulled, self._resets):
            for key in [key for key in table if matches(key)]:
                del table[key]
                self.changed = True
        self.on_jump()
