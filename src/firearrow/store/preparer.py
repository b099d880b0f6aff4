"""Making room for the log before it is needed, in a thread.

A write into a page that is not in memory yet waits until the system has filled it, and with it all
that it reads ahead: with 8 MiB of read-ahead, a common setting on servers, that is 20 ms in which
nobody is served. Taking disk space has its price too. So both is done ahead of the writer: for the
rest of its file step by step, and for the next file when half of this one is written.

Pages are brought in clean. Pages that were written to would go to the disk with the next sync.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from firearrow.base.runtime import Service
    from firearrow.store.commit_log import CommitLog
    from firearrow.store.disk import MappedFile

log = logging.getLogger(__name__)

PREPARE_AT_RATIO: Final = 0.5  # of a file, before the next one is made
AHEAD_FILE_BYTES_MIN: Final = 4 * 1024 * 1024  # in smaller files it is not worth a thread
FIRST_BYTES: Final = 16 * 1024 * 1024  # of the next file


class Preparer:
    """Looks whether room is getting short; `look` is cheap, and called often."""

    def __init__(self, commit_log: CommitLog, tasks: Service) -> None:
        self._log = commit_log
        self._tasks = tasks
        self._making_next = False
        self._making_room = False

    def look(self) -> None:
        """Begin what should be begun."""
        commit_log = self._log
        segments = commit_log.segments
        if (
            not self._making_next
            and commit_log.fill_ratio >= PREPARE_AT_RATIO
            and not segments.is_prepared
        ):
            self._making_next = True
            self._tasks.spawn(self._make_next(), name="prepare")
        if (
            not self._making_room
            and segments.file_bytes >= AHEAD_FILE_BYTES_MIN
            and commit_log.writer.position >= commit_log.low_mark
            and (short := commit_log.next_room()) is not None
        ):
            self._making_room = True
            self._tasks.spawn(self._make_room(*short), name="room")

    async def _make_room(self, file: MappedFile, position: int, size: int) -> None:
        try:
            await asyncio.to_thread(file.preparation(position, size))
        except OSError as error:
            log.info("the log has no room ahead: %s", error)  # the writer will say it, if need be
        else:
            self._log.has_room(file, position + size)
        finally:
            self._making_room = False

    async def _make_next(self) -> None:
        """Make the next file before it is needed."""
        commit_log, segments = self._log, self._log.segments
        start = commit_log.next_start
        try:
            file = await asyncio.to_thread(segments.prepare, start)
            if segments.file_bytes >= AHEAD_FILE_BYTES_MIN:
                first_bytes = min(FIRST_BYTES, segments.file_bytes)
                await asyncio.to_thread(file.preparation(0, first_bytes))
        except OSError as error:
            log.warning("the next commit log file cannot be made yet: %s", error)
            return
        finally:
            self._making_next = False
        if start == commit_log.next_start and start not in segments.starts:
            segments.keep_prepared(file)
        else:
            file.close()
