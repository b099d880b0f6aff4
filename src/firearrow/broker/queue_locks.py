"""Which member of a group has which queue: ordered consumers lock before they consume."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from firearrow.base.runtime import Clock
    from firearrow.model.topic import MessageQueue

LOCK_MS: Final = 60_000  # clients lock again every 20 s


class QueueLocks:
    """Locks by group and queue; one that is not renewed is free after a minute."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._locks: dict[str, dict[MessageQueue, tuple[str, int]]] = {}

    def lock(
        self, group: str, client_id: str, queues: Iterable[MessageQueue]
    ) -> tuple[MessageQueue, ...]:
        """Take what is free or one's own already; returns what this client has now."""
        now_ms = self._clock.elapsed_ms()
        held = self._locks.setdefault(group, {})
        taken = []
        for queue in queues:
            owner, since_ms = held.get(queue, (client_id, now_ms))
            if owner == client_id or now_ms - since_ms > LOCK_MS:
                held[queue] = (client_id, now_ms)
                taken.append(queue)
        return tuple(taken)

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Give queues back; those of somebody else stay locked."""
        held = self._locks.get(group, {})
        for queue in queues:
            if held.get(queue, ("", 0))[0] == client_id:
                del held[queue]
        if not held:
            self._locks.pop(group, None)

    def has_locks(self, group: str) -> bool:
        """Whether a group consumes in order right now."""
        now_ms = self._clock.elapsed_ms()
        return any(
            now_ms - since_ms <= LOCK_MS for _, since_ms in self._locks.get(group, {}).values()
        )

    def expire(self) -> None:
        """Forget locks that count no more: a broker outlives most of the groups it sees."""
        oldest_ms = self._clock.elapsed_ms() - LOCK_MS
        for group, held in list(self._locks.items()):
            for queue in [queue for queue, (_, since_ms) in held.items() if since_ms < oldest_ms]:
                del held[queue]
            if not held:
                del self._locks[group]

    def count(self) -> int:
        return sum(map(len, self._locks.values()))
