"""The commit log: every message of every topic, one after the other.

A record must leave 8 bytes in its file. If it does not fit, a filler closes the file and the record
starts the next one:

    | records ... | size of the rest, 4 | magic CBD43194 | whatever was there |

Nothing here waits or syncs: an append returns a place at once. What it costs per message is one
call of `hot.LogWriter.append`; everything else is per file or per reservation of disk space.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from firearrow.hot import LogWriter
from firearrow.hot.layout import (
    BLANK_BYTES,
    MAGIC_BLANK,
    PROPERTIES_BYTES_MAX,
    TOPIC_BYTES_MAX,
    record_bytes,
)
from firearrow.model.errors import MessageIllegal, ServiceNotAvailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from firearrow.hot import QueueTail, StoreMessage
    from firearrow.store.disk import MappedFile
    from firearrow.store.segments import Segments

_BLANK: Final = struct.Struct(">ii")
IPV6_EXTRA_BYTES: Final = 12  # that a host of a record is longer
RESERVE_BYTES_MIN: Final = 256 * 1024
RESERVE_BYTES_MAX: Final = 32 * 1024 * 1024


class CommitLog:
    """Appends records and finds them again. One writer; offsets only grow.

    `on_reserve` is called now and then as a file fills, never per message. `writer` is for compiled
    code that appends by itself; when it finds no room, `append` makes it.
    """

    def __init__(
        self,
        segments: Segments,
        *,
        store_host: bytes,
        message_bytes_max: int,
        on_reserve: Callable[[], None] | None = None,
    ) -> None:
        self.segments = segments
        self.writer = LogWriter(store_host, message_bytes_max)
        self._on_reserve = on_reserve
        self._room = segments.file_bytes - BLANK_BYTES
        self._file: MappedFile | None = None
        self._reserved = 0  # of the current file: up to here there is real disk space
        self.low_mark = 0  # of the writer's position: from there on more room should be made

    def set_message_bytes_max(self, message_bytes_max: int) -> None:
        self.writer.body_bytes_max = message_bytes_max

    @property
    def min_offset(self) -> int:
        return self.segments.min_offset

    @property
    def end_offset(self) -> int:
        """Behind the last record."""
        return self.writer.start + self.writer.position

    def open_at(self, offset: int, *, cut: bool) -> None:
        """Write from here on; `cut` erases what lies behind."""
        self.writer.close()
        if cut:
            self.segments.truncate(offset)
        start = self.segments.start_of(offset)
        if start is None:
            start = offset - (offset - self.segments.min_offset) % self.segments.file_bytes
            assert offset == start or not self.segments.starts
            self._file = None
        else:
            self._file = self.segments.file(start)
        self._reserved = offset - start
        self.writer.start, self.writer.position = start, offset - start
        self._give_room()

    def set_store_host(self, host: bytes) -> None:
        self.writer.store_host = host

    # --- appending --------------------------------------------------------------------------

    def append(self, message: StoreMessage, queue: QueueTail, store_timestamp: int) -> int:
        """Write one message at its queue's next offset; returns the offset behind it.

        Where it lies is in the message's own fields.
        """
        end = self.writer.append(message, queue, store_timestamp)
        if end > 0:
            return end
        self._make_room(self._size_of(message, queue))
        end = self.writer.append(message, queue, store_timestamp)
        assert end > 0, "there is room for it now"
        return end

    def append_batch(
        self, messages: Sequence[StoreMessage], queue: QueueTail, store_timestamp: int
    ) -> int:
        """Write messages of one queue back to back in one file, all or none."""
        total = sum(self._size_of(message, queue) for message in messages)
        if self.writer.position + total > self.writer.room:
            self._make_room(total)
        end = self.end_offset
        for message in messages:
            end = self.writer.append(message, queue, store_timestamp)
            assert end > 0, "the room for the whole batch was made before"
        return end

    def append_raw(self, data: memoryview) -> None:
        """Write bytes of another copy of this log, which need not end with a record."""
        file_bytes = self.segments.file_bytes
        while data:
            part = data[: file_bytes - self.writer.position]
            try:
                if self._file is None:
                    self._file = self.segments.add(self.writer.start)
                    self._reserved = 0
                self._reserve(self._file, len(part))
            except OSError as error:
                raise _no_space(error) from error
            at = self.writer.position
            self._file.buffer[at : at + len(part)] = part
            self.writer.position += len(part)
            self._give_room()
            if self.writer.position == file_bytes:
                self._leave_file()
            data = data[len(part) :]
        if self._on_reserve is not None:
            self._on_reserve()

    def begin_file(self, offset: int) -> None:
        """Go on with a file that begins there, whatever is missing before it."""
        self.writer.close()
        self.writer.start, self.writer.position = offset, 0
        self._file = None

    def _leave_file(self) -> None:
        self.writer.close()
        self.writer.start += self.segments.file_bytes
        self.writer.position = 0
        self._file = None

    def append_parts(
        self, message: StoreMessage, queue: QueueTail, store_timestamp: int, parts: int, skip: int
    ) -> int:
        """Write the messages of a batch body back to back in one file, all or none."""
        end = self.writer.append_parts(message, queue, store_timestamp, skip)
        if end > 0:
            return end
        topic, shared = len(queue.topic_bytes), len(message.properties)
        around = record_bytes(0, topic, shared) + 2 * IPV6_EXTRA_BYTES
        self._make_room(len(message.body) + parts * around)
        end = self.writer.append_parts(message, queue, store_timestamp, skip)
        assert end > 0, "there is room for them now"
        return end

    def _size_of(self, message: StoreMessage, queue: QueueTail) -> int:
        """How long the record will be; MessageIllegal if there must not be one."""
        body, properties, topic = message.body, message.properties, queue.topic_bytes
        if len(body) > self.writer.body_bytes_max or len(properties) > PROPERTIES_BYTES_MAX:
            raise MessageIllegal(
                f"body of {len(body)} and properties of {len(properties)} bytes; the limits are "
                f"{self.writer.body_bytes_max} (maxMessageSize) and {PROPERTIES_BYTES_MAX}"
            )
        if b"\0" in properties:
            raise MessageIllegal("properties must be text: there is a zero byte in them")
        if not 0 < len(topic) <= TOPIC_BYTES_MAX:
            raise MessageIllegal(f"topic of {len(topic)} bytes; 1 to {TOPIC_BYTES_MAX} are allowed")
        size = record_bytes(len(body), len(topic), len(properties))
        host = message.store_host or self.writer.store_host
        return size + len(message.born_host) + len(host) - 16

    def _make_room(self, size: int) -> None:
        """See to it that `size` bytes can be appended in one file."""
        if size > self._room:
            # Apache would fill a whole file with nothing and answer "stored".
            raise MessageIllegal(
                f"{size} bytes do not fit a file of {self.segments.file_bytes} bytes "
                "(mappedFileSizeCommitLog)"
            )
        try:
            if self._file is not None and self.writer.position + size > self._room:
                self._close_file(self._file)
            if self._file is None:
                self._file = self.segments.add(self.writer.start)
                self._reserved = 0
            self._reserve(self._file, size)
        except OSError as error:
            raise _no_space(error) from error
        self._give_room()
        if self._on_reserve is not None:
            self._on_reserve()

    def _close_file(self, file: MappedFile) -> None:
        """End the file with a filler; the next record starts the next one."""
        at = self.writer.position
        if at + BLANK_BYTES > self._reserved:
            file.reserve(at, BLANK_BYTES)
        _BLANK.pack_into(file.buffer, at, self.segments.file_bytes - at, MAGIC_BLANK)
        self._leave_file()

    def _reserve(self, file: MappedFile, size: int) -> None:
        """Take disk space ahead, in growing steps: a small store stays small, a busy one is quick.

        Full disk: nothing was written, nothing has moved; the next append tries again. A write
        into a hole of a mapped file on a full disk would kill the process instead.
        """
        position = self.writer.position
        step = max(size + BLANK_BYTES, _step_at(position))
        stop = min(self.segments.file_bytes, position + step)
        if stop > self._reserved:
            file.reserve(self._reserved, stop - self._reserved)
            self._reserved = stop

    def next_room(self) -> tuple[MappedFile, int, int] | None:
        """File, position and size of what should be reserved next, by somebody who can wait."""
        if self._file is None or self._reserved >= self.segments.file_bytes:
            return None
        size = min(self.segments.file_bytes - self._reserved, _step_at(self._reserved))
        return self._file, self._reserved, size

    def has_room(self, file: MappedFile, stop: int) -> None:
        """Somebody has reserved a file up to there; it counts if it is still the current one."""
        if file is self._file and stop > self._reserved:
            self._reserved = stop
            self._give_room()

    def _give_room(self) -> None:
        if self._file is not None:
            self.writer.open(
                self._file.buffer,
                start=self.writer.start,
                position=self.writer.position,
                # The filler must fit into space that is there, wherever it will be written.
                room=max(0, min(self._room, self._reserved - BLANK_BYTES)),
            )
            self.low_mark = (self.writer.position + self._reserved) // 2
            if self._reserved >= self.segments.file_bytes:
                self.low_mark = self._reserved

    # --- where it stands --------------------------------------------------------------------

    @property
    def fill_ratio(self) -> float:
        """How full the current file is: when to prepare the next one."""
        return self.writer.position / self.segments.file_bytes

    @property
    def next_start(self) -> int:
        """Where the next file will begin."""
        return self.writer.start + (self.segments.file_bytes if self._file is not None else 0)

    def read(self, offset: int, size: int) -> memoryview | None:
        """Bytes of the log, not copied; None if it does not hold them any more."""
        if offset < self.segments.min_offset or offset + size > self.end_offset:
            return None
        return self.segments.slice(offset, size)

    def close(self) -> None:
        """Let go of the memory, so that the file can be unmapped."""
        self.writer.close()
        self._file = None


def _step_at(position: int) -> int:
    """How much is reserved at once, in a file that is full up to there."""
    return min(RESERVE_BYTES_MAX, max(RESERVE_BYTES_MIN, position))


def _no_space(error: OSError) -> ServiceNotAvailable:
    return ServiceNotAvailable(
        f"no disk space for the commit log ({error.strerror}); free some, or let "
        "retention do it: writing goes on by itself then"
    )
