"""Removes old files, and says when the disk is too full to take more. Rules: `retention.py`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from firearrow.store.retention import OldFile, decide_retention

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from firearrow.base.runtime import Clock
    from firearrow.store.config import StoreConfig
    from firearrow.store.consume_queue import ConsumeQueues
    from firearrow.store.disk import Disk
    from firearrow.store.key_index import KeyIndex
    from firearrow.store.segments import Segments

log = logging.getLogger(__name__)


class Cleaner:
    """Looks at files and disk every now and then, on the loop."""

    def __init__(
        self,
        config: StoreConfig,
        disk: Disk,
        root: Path,
        *,
        clock: Clock,
        segments: Segments,
        queues: ConsumeQueues,
        index: KeyIndex,
        on_removed: Callable[[], None],
    ) -> None:
        self.config = config
        self._disk = disk
        self._root = root
        self._clock = clock
        self._segments = segments
        self._queues = queues
        self._index = index
        self._on_removed = on_removed
        self._now = False

    def soon(self) -> None:
        """Have expired files removed at the next round, whatever the hour."""
        self._now = True

    def run(self, vouched_to: int) -> str:
        """Remove what is old; returns why nothing may be written now, or nothing."""
        used, free = self._disk.usage(self._root)
        oldest = self._segments.starts[:-1][: self.config.delete_file_batch_max]
        verdict = decide_retention(
            self.config,
            [OldFile(start, self._segments.modified_ms(start)) for start in oldest],
            used_bytes=used,
            free_bytes=free,
            now_ms=self._clock.now_ms(),
            manual=self._now,
        )
        removed = self.remove_files(verdict.delete, vouched_to)
        self._now = self._now and removed < verdict.delete  # the rest goes after a checkpoint
        return verdict.refuse

    def remove_files(self, count: int, vouched_to: int) -> int:
        """Remove the oldest log files, and the queue and index files that only they explain.

        Those that the last checkpoint does not cover stay: until then only they know how far their
        queues have counted.
        """
        segments = self._segments
        removed = 0
        while removed < count and len(segments.starts) > 1:
            if segments.min_offset + segments.file_bytes > vouched_to:
                break
            log.info("removing commit log file %d", segments.min_offset)
            segments.remove_first()
            removed += 1
        if count:
            self._queues.correct_min(segments.min_offset)
            self._index.delete_before(segments.min_offset)
            self._on_removed()
        return removed
