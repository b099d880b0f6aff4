"""What a streaming query knows of its queues, asked for as seldom as possible.

Spark asks for the latest position some eighty times a second, also when nothing happens. Here the
ends of queues are kept for a moment, and the list of queues for some seconds.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from firearrow.spark.positions import find_queues

if TYPE_CHECKING:
    from collections.abc import Callable

    from firearrow.spark.directory import Bounds
    from firearrow.spark.offsets import QueueName
    from firearrow.spark.options import ReadOptions
    from firearrow.spark.positions import Cluster

log = logging.getLogger(__name__)


class Heads:
    """The queues of a query, and where each begins and ends."""

    def __init__(
        self, options: ReadOptions, cluster: Cluster, elapsed_ms: Callable[[], float]
    ) -> None:
        self._options = options
        self._cluster = cluster
        self._elapsed_ms = elapsed_ms
        self._queues: list[QueueName] | None = None
        self._queues_since = 0.0
        self._bounds: dict[QueueName, Bounds] = {}
        self._bounds_since: float | None = None
        self.asked = 0  # how often brokers were asked

    def bounds(self, *, age_ms: float) -> dict[QueueName, Bounds]:
        """Not older than so many milliseconds."""
        now = self._elapsed_ms()
        if self._bounds_since is None or now - self._bounds_since >= age_ms:
            self._bounds = self._cluster.bounds(self._current_queues(now))
            self._bounds_since = self._elapsed_ms()
            self.asked += 1
        return self._bounds

    def known(self) -> dict[QueueName, Bounds]:
        """As they were last seen; asked for only if they never were."""
        return self._bounds if self._bounds_since is not None else self.bounds(age_ms=0)

    def _current_queues(self, now: float) -> list[QueueName]:
        age_ms = now - self._queues_since
        if self._queues is not None and age_ms < self._options.metadata_max_age_ms:
            return self._queues
        try:
            queues = find_queues(self._options, self._cluster)
        except Exception as error:
            if self._queues is None:
                raise
            # A topic that was deleted, or a broker that is down: the query holds its place.
            log.warning("the list of queues cannot be refreshed: %s", error)
            queues = self._queues
        if self._queues is not None and set(queues) - set(self._queues):
            log.info("new queues: %s", sorted(set(queues) - set(self._queues)))
        self._queues = queues
        self._queues_since = now
        return queues
