"""Consume queues: for each queue of each topic, where its messages are.

One entry per message, at byte ``20 * queue offset`` of the queue:

    | physical offset | size    | tags code |
    | 8 bytes         | 4 bytes | 8 bytes   |

The tags code is the Java hash of the tag, sign-extended; in the schedule topic it is the time of
delivery. Entries are derived from the log, so they are collected in memory (`hot.QueueTail`) and
written in one go per queue every second; a crash loses none that the log cannot give back. Fifty
thousand queues need no descriptor and no map of their own, and their files are looked at when a
queue is first used.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from firearrow.hot import QueueTail, queue_key
from firearrow.hot.layout import ENTRY_BYTES, FILLER_SIZE, RECORD_BYTES_MIN
from firearrow.model.errors import MessageIllegal
from firearrow.model.topic import SCHEDULE_TOPIC
from firearrow.store.entry_files import ENTRY, EntryFiles
from firearrow.store.rules import can_be_queued

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path
    from typing import Protocol

    from firearrow.store.disk import Disk

    class Evidence(Protocol):
        """What the log knows about the entries of a queue."""

        cut_offset: int  # entries at or behind this physical offset will be derived again

        @property
        def start_offset(self) -> int:
            """Where the log begins."""
            ...

        @property
        def end_offset(self) -> int:
            """Behind the last record of the log."""
            ...

        def vouches(self, queue: ConsumeQueue, offset: int, physical: int, size: int) -> bool:
            """Whether the record there is that of this queue and offset."""
            ...

        def allows(self, queue: ConsumeQueue, offset: int, physical: int, size: int) -> bool:
            """The same, or there is nothing left in the log that could say otherwise."""
            ...

        def entries_between(
            self, queue: ConsumeQueue, first: int, stop: int, low: int, high: int
        ) -> dict[int, bytes]:
            """Entries of these queue offsets, derived from the log between two offsets."""
            ...


__all__ = ["ENTRY", "FILLER", "ConsumeQueue", "ConsumeQueues"]

log = logging.getLogger(__name__)

FILLER: Final = ENTRY.pack(0, FILLER_SIZE, 0)
LIGHT_PREFIX: Final = "%LMQ%"
TAIL_ENTRIES_KEPT: Final = 256  # of a queue that was written out, so that hot reads need no disk
WINDOW_ENTRIES: Final = 1024  # of a queue's files, read at once for whoever reads on from there
WINDOWS_KEPT: Final = 256


class ConsumeQueue(QueueTail):
    """One queue. `max_offset` is the offset behind its last visible message."""

    __slots__ = ("_files", "_saved", "vouched")

    def __init__(self, files: EntryFiles, topic: str, queue_id: int) -> None:
        # Entries of delayed messages hold a time, which the general rules work out.
        super().__init__(topic, queue_id, plain=topic != SCHEDULE_TOPIC)
        self._files = files
        self._saved = 0  # entries before this offset are in the files
        self.vouched: tuple[int, int] | None = None  # first offset and end at the last checkpoint

    def __repr__(self) -> str:
        return f"queue {self.queue_id} of {self.topic}"

    # --- what the files hold ----------------------------------------------------------------

    def resolve(self, evidence: Evidence, log_min: int, *, is_recent: bool, is_final: bool) -> None:
        """Look at the files, once, when the queue is first used.

        `is_recent` if no files were expired since the checkpoint; `is_final` unless entries that it
        vouched for may still be derived.
        """
        first, end = self._files.extent(evidence.cut_offset)
        while end > first and not self._confirmed(end - 1, evidence):
            end -= 1
        vouched_first, vouched_end = self.vouched or (first, 0)
        if end == first > vouched_first and is_recent:
            first = end = vouched_first  # nothing is left
        self.min_offset = min(max(first, vouched_first), end)
        self.max_offset = self.next_offset = self._saved = self.tail_first = end
        if end < vouched_end:
            self._mend_end(vouched_end, evidence)
            if is_final:
                self.fill_up()
        if vouched_first < self.min_offset and is_recent:
            self._mend_front(vouched_first, evidence)
        self._files.zero_behind(self.max_offset)
        self.correct_min(log_min)
        self._skip_lost_front(evidence)

    def _skip_lost_front(self, evidence: Evidence) -> None:
        """A queue begins with a message that is there."""
        if self.min_offset < self.max_offset and self._is_out_of_order(self.min_offset):
            self._mend(self.min_offset, evidence)
        while (entry := self.entry(self.min_offset)) is not None and entry[1] == FILLER_SIZE:
            self.min_offset += 1

    def _confirmed(self, offset: int, evidence: Evidence) -> bool:
        """Whether the log agrees that this entry is ours.

        RocketMQ leaves entries behind when it cuts a queue after a crash; once the log has grown
        over their physical offsets they look like good ones.
        """
        physical, size, _ = ENTRY.unpack(self._files.read(offset, 1))
        return size == FILLER_SIZE or evidence.allows(self, offset, physical, size)

    def _mend_end(self, vouched_end: int, evidence: Evidence) -> None:
        """Entries that were there at the last checkpoint are gone: make them again from the log."""
        log.warning("%s has lost entries from %d on; they are made again", self, self.max_offset)
        before = self.entry(self.max_offset - 1)
        low = 0 if before is None or before[1] == FILLER_SIZE else before[0] + before[1]
        # Nothing is left: the queue begins with the first message that the log still has, which
        # may be one of a second life of its topic, with a smaller offset than its files say.
        empty = self.max_offset == self.min_offset
        first = 0 if empty else self.max_offset
        found = evidence.entries_between(self, first, vouched_end, low, evidence.cut_offset)
        if found and empty:
            self._begin_at(min(found))
        for offset in range(self.max_offset, max(found, default=-1) + 1):
            self.tail += found.get(offset) or self._placeholder(offset)
            self.max_offset += 1
        self.next_offset = self.max_offset

    def fill_up(self) -> None:
        """What the checkpoint vouched for and the log has not is lost: its offsets stay taken."""
        _, vouched_end = self.vouched or (0, 0)
        if self.max_offset < vouched_end:
            if self.max_offset == self.min_offset:
                self._begin_at(vouched_end)
            self.tail += self._placeholder(self.max_offset) * (vouched_end - self.max_offset)
            self.max_offset = self.next_offset = vouched_end

    def _mend_front(self, vouched_first: int, evidence: Evidence) -> None:
        """The first files are gone, and not because the log has moved on: make them again."""
        log.warning("%s has lost entries before %d; they are made again", self, self.min_offset)
        found = evidence.entries_between(
            self, vouched_first, self.min_offset, 0, evidence.cut_offset
        )
        if found:
            stop, self.min_offset = self.min_offset, min(found)
            for offset in range(self.min_offset - self.min_offset % self.entries_per_file, stop):
                filler = FILLER if offset < self.min_offset else self._placeholder(offset)
                self._overwrite(offset, found.get(offset) or filler)

    def checked(self, offset: int, evidence: Evidence) -> tuple[int, int, int] | None:
        """The entry of a message as the log confirms it, mended if need be; None if it is lost."""
        entry = self.entry(offset)
        if entry is None or entry[1] == FILLER_SIZE:
            return None
        if evidence.vouches(self, offset, entry[0], entry[1]):
            return entry
        # An entry for what the log has no longer would be before `min_offset`.
        if entry[0] >= evidence.start_offset and evidence.allows(self, offset, entry[0], entry[1]):
            return None
        self._mend(offset, evidence)
        entry = self.entry(offset)
        return None if entry is None or entry[1] == FILLER_SIZE else entry

    def _mend(self, offset: int, evidence: Evidence) -> None:
        """Make a damaged entry and those around it again.

        The neighbours say between which places of the log their records must lie. What is not there
        is lost, and noted as that.
        """
        first = offset
        while first > self.min_offset and not self._sound(first - 1, evidence):
            first -= 1
        stop = offset + 1
        while stop < self.max_offset and not self._sound(stop, evidence):
            stop += 1
        before = self.entry(first - 1) if first > self.min_offset else None
        behind = self.entry(stop)
        low = before[0] + before[1] if before is not None and before[1] != FILLER_SIZE else 0
        high = behind[0] if behind is not None else evidence.end_offset
        found = evidence.entries_between(self, first, stop, low, high)
        for number in range(first, stop):
            self._overwrite(number, found.get(number) or self._placeholder(number))
        log.warning("%s: entries %d to %d were damaged and are mended", self, first, stop - 1)

    def _sound(self, offset: int, evidence: Evidence) -> bool:
        entry = self.entry(offset)
        return entry is not None and (
            entry[1] == FILLER_SIZE or evidence.vouches(self, offset, entry[0], entry[1])
        )

    def _overwrite(self, offset: int, raw: bytes) -> None:
        self.window = b""
        if offset >= self.tail_first:
            at = (offset - self.tail_first) * ENTRY_BYTES
            self.tail[at : at + ENTRY_BYTES] = raw
        if offset < self._saved:
            self._files.write(offset, raw)

    # --- growing ----------------------------------------------------------------------------

    def append(self, queue_offset: int, physical_offset: int, size: int, tags_code: int) -> bool:
        """Add the entry of a message; False if it is there already."""
        if queue_offset != self.max_offset and not self._moved_to(queue_offset, physical_offset):
            return False
        self.add_entry(physical_offset, size, tags_code)
        self.next_offset = max(self.next_offset, self.max_offset)
        return True

    def _moved_to(self, queue_offset: int, physical_offset: int) -> bool:
        """Make an offset the next one although it is not; False if it cannot be.

        The log is damaged, or a topic was deleted and made again. No checksum covers the offset in
        a record, so one that fits nothing around it is not believed.
        """
        last = self.entry(self.max_offset - 1)
        if last is None:
            if queue_offset < self.max_offset:
                self._start_over()
            self._begin_at(queue_offset)
            return True
        if queue_offset > self.max_offset:
            lost = queue_offset - self.max_offset
            if lost * RECORD_BYTES_MIN > physical_offset - last[0]:
                return self._disbelieved(queue_offset, physical_offset)
            # Messages in between are lost with a part of the log: their places stay empty.
            self.tail += self._placeholder(self.max_offset) * lost
            self.max_offset = queue_offset
            return True
        if last[0] >= physical_offset:
            return False  # it is there already
        known = self.entry(queue_offset)
        if queue_offset == 0:
            self._start_over()  # the topic was deleted and made again
        elif known is None:
            self._begin_at(queue_offset)
        elif known[1] == FILLER_SIZE:
            self._cut_to(queue_offset)  # whoever said that it was lost was wrong
        else:
            return self._disbelieved(queue_offset, physical_offset)
        return True

    def _disbelieved(self, queue_offset: int, physical_offset: int) -> bool:
        log.error(
            "%s: the record at %d says that it is number %d; the next one is %d",
            self,
            physical_offset,
            queue_offset,
            self.max_offset,
        )
        return False

    def _cut_to(self, queue_offset: int) -> None:
        self.window = b""
        self._saved = min(self._saved, queue_offset)
        self.tail_first = min(self.tail_first, queue_offset)
        del self.tail[(queue_offset - self.tail_first) * ENTRY_BYTES :]
        self.max_offset = queue_offset

    def _begin_at(self, queue_offset: int) -> None:
        """An empty queue whose past is gone: filler up to the offset that its messages have."""
        in_file = queue_offset % self.entries_per_file
        self.window = b""
        self._saved = self.tail_first = queue_offset - in_file
        self.tail[:] = FILLER * in_file
        self.min_offset = self.max_offset = queue_offset

    def _start_over(self) -> None:
        self._files.remove_all()
        self.tail.clear()
        self.window = b""
        self.vouched = None
        self._saved = self.tail_first = self.min_offset = self.max_offset = self.next_offset = 0

    def _placeholder(self, offset: int) -> bytes:
        """An entry for a lost message. Unlike filler it has a place, so that places grow."""
        before = self.entry(offset - 1)
        return ENTRY.pack(max(1, before[0]) if before is not None else 1, FILLER_SIZE, 0)

    @property
    def unsaved(self) -> int:
        return self.max_offset - self._saved

    def save(self) -> list[Path]:
        """Write what is only in memory; returns the files that need a sync."""
        at = (self._saved - self.tail_first) * ENTRY_BYTES
        touched = self._files.write(self._saved, bytes(self.tail[at:]))
        self._saved = self.max_offset
        spare = (self._saved - self.tail_first) - TAIL_ENTRIES_KEPT
        if spare > 0:
            del self.tail[: spare * ENTRY_BYTES]
            self.tail_first += spare
        return touched

    # --- reading ----------------------------------------------------------------------------

    def entries(self, offset: int, count: int) -> bytes:
        """Raw entries from `offset` on, as many as there are; ends at the end of a file."""
        count = min(
            count,
            self.max_offset - offset,
            self.entries_per_file - offset % self.entries_per_file,
        )
        if count <= 0 or offset < self.min_offset:
            return b""
        stored = min(count, max(0, self.tail_first - offset))
        raw = self._files.read(offset, stored) if stored else b""
        if count > stored:
            at = (offset + stored - self.tail_first) * ENTRY_BYTES
            raw += self.tail[at : at + (count - stored) * ENTRY_BYTES]
        return bytes(raw)

    def entry(self, offset: int) -> tuple[int, int, int] | None:
        """Physical offset, size and tags code of one message; None outside the queue."""
        raw = self.entries(offset, 1)
        return ENTRY.unpack(raw) if raw else None

    def is_stored(self, offset: int) -> tuple[Path, int] | None:
        """File and position of an entry that is not in memory; None if it is."""
        return self._files.place(offset) if offset < self.tail_first else None

    @property
    def entries_per_file(self) -> int:
        return self._files.entries_per_file

    # --- shrinking --------------------------------------------------------------------------

    def correct_min(self, log_min: int) -> None:
        """The log starts later now: so do we. Entries stay dense, the first ones are just gone."""
        low, high = self.min_offset, self.max_offset
        while low < high:
            middle = (low + high) // 2
            known = middle
            while known < high and self._is_out_of_order(known):
                known += 1  # damaged; the next one tells
            if known == high or self._lies_behind(known, log_min):
                high = middle
            else:
                low = known + 1
        if low == self.min_offset:
            return
        self.min_offset = low
        # The last file stays, whatever it holds: it remembers how far the queue has counted.
        self._files.remove_before(min(low, max(0, self._saved - 1)))

    def _lies_behind(self, offset: int, log_min: int) -> bool:
        entry = self.entry(offset)
        return entry is not None and entry[0] >= log_min and entry[:2] != (0, FILLER_SIZE)

    def _is_out_of_order(self, offset: int) -> bool:
        entry, before = self.entry(offset), self.entry(offset - 1)
        if entry is None or entry[1] <= 0 or entry[0] < 0:
            return True
        return before is not None and before[1] > 0 and before[0] > entry[0]

    def truncate(self, log_end: int) -> None:
        """The log was cut: forget entries of what it has no longer."""
        end = self.max_offset
        while end > self.min_offset and (entry := self.entry(end - 1)) and entry[0] >= log_end:
            end -= 1
        self._cut_to(end)
        self.next_offset = end
        self._files.zero_behind(end)

    def destroy(self) -> None:
        self._files.remove_all()


class ConsumeQueues:
    """All queues by topic and id, made and resolved on first use.

    `ready` holds those that were resolved, and so does `by_key`, as `hot.derive_records` looks them
    up.
    """

    def __init__(self, disk: Disk, root: Path, file_bytes: int) -> None:
        self._disk = disk
        self._root = root
        self._file_bytes = file_bytes
        self._batch_topics: frozenset[str] = frozenset()
        self._found: dict[tuple[str, int], ConsumeQueue] = {}
        self.ready: dict[tuple[str, int], ConsumeQueue] = {}
        self._evidence: Evidence | None = None
        self._log_min = 0
        self._is_recent = False
        self._held: set[str] = set()
        self._loaded = False  # then what is missing in a queue stays missing
        self.by_key: dict[bytes, QueueTail] = {}
        self.grown: list[QueueTail] = []  # since `take_grown`
        self._unsaved: dict[ConsumeQueue, None] = {}  # in the order in which they grew
        self._windows: dict[ConsumeQueue, None] = {}  # least recently filled first

    def look_ahead(self, queue: QueueTail, offset: int) -> None:
        """Have entries from `offset` on in a queue's window; the oldest of all windows goes."""
        assert isinstance(queue, ConsumeQueue)
        self._windows.pop(queue, None)
        self._windows[queue] = None
        if len(self._windows) > WINDOWS_KEPT:
            oldest = next(iter(self._windows))
            del self._windows[oldest]
            oldest.window = b""
        queue.window, queue.window_first = queue.entries(offset, WINDOW_ENTRIES), offset

    def load(
        self,
        evidence: Evidence,
        log_min: int,
        vouched: Mapping[str, Mapping[int, tuple[int, int]]],
        *,
        is_recent: bool,
        is_exact: bool,
    ) -> None:
        """Find the queues by their folders; then derive what is missing, then call `loaded`.

        `vouched` are first offset and end of each at the last checkpoint; `is_recent` if the log
        has not lost files since, so that first offsets are still where they were; `is_exact` if
        nothing of it is derived again.
        """
        self._evidence = evidence
        self._log_min = log_min
        self._is_recent = is_recent
        self._loaded = is_exact
        # Apache does not load a directory that has a plain queue for a topic of batches.
        self._batch_topics = frozenset(self._disk.names(self._root.parent / "batchconsumequeue"))
        for topic in self._disk.names(self._root):
            if self.is_foreign(topic):
                continue
            for name in self._disk.names(self._root / topic):
                if name.isdecimal():
                    self._make(topic, int(name))
        for topic, extents in vouched.items():
            for queue_id, (first, end) in () if self.is_foreign(topic) else extents.items():
                queue = self._found.get((topic, queue_id)) or self._make(topic, queue_id)
                queue.vouched = (first, end)

    def loaded(self) -> None:
        """Everything that the log has is derived: what is missing now stays missing."""
        self._loaded = True
        for queue in self.ready.values():
            queue.fill_up()
            if queue.unsaved:
                self._unsaved[queue] = None

    def is_foreign(self, topic: str) -> bool:
        """Whether its queues are of a kind that we do not write, and leave as they are: those with
        several messages to a record (BatchCQ), and light ones, whose records are of other topics.
        """  # noqa: D205 - one thought
        return topic in self._batch_topics or topic.startswith(LIGHT_PREFIX)

    def _make(self, topic: str, queue_id: int) -> ConsumeQueue:
        files = EntryFiles(self._disk, self._root / topic / str(queue_id), self._file_bytes)
        queue = ConsumeQueue(files, topic, queue_id)
        self._found[topic, queue_id] = queue
        return queue

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """A queue that has, or had, messages."""
        queue = self.ready.get((topic, queue_id))
        if queue is None and (topic, queue_id) in self._found:
            return self.get(topic, queue_id)
        return queue

    def get(self, topic: str, queue_id: int) -> ConsumeQueue:
        key = (topic, queue_id)
        queue = self.ready.get(key)
        if queue is None:
            if self.is_foreign(topic):
                raise MessageIllegal(f"{topic} has batch queues or light queues: not supported")
            queue = self._found.get(key)
            if queue is None:
                if not can_be_queued(topic, queue_id):
                    raise MessageIllegal(f"there can be no queue {queue_id} of topic {topic!r}")
                queue = self._make(topic, queue_id)  # and there are no files of it
            else:
                assert self._evidence is not None, "queues are loaded before they are used"
                queue.resolve(
                    self._evidence,
                    self._log_min,
                    is_recent=self._is_recent,
                    is_final=self._loaded,
                )
            self.ready[key] = queue
            if topic not in self._held:
                self.by_key[queue_key(queue.topic_bytes, queue_id)] = queue
            if queue.unsaved:
                self._unsaved[queue] = None
        return queue

    def hold(self, topic: str) -> None:
        """Keep new queues of a deleted topic out of `by_key`: the log still has records of its
        last life that were not derived, and only the general rules tell which.
        """  # noqa: D205 - one thought
        self._held.add(topic)

    def let_go(self, topic: str) -> None:
        """Those records are behind us."""
        self._held.discard(topic)
        for queue in self.ready.values():
            if queue.topic == topic:
                self.by_key[queue_key(queue.topic_bytes, queue.queue_id)] = queue

    def checked(self, queue: ConsumeQueue, offset: int) -> tuple[int, int, int] | None:
        """The entry of a message as the log confirms it; None if it is lost."""
        assert self._evidence is not None, "queues are loaded before they are used"
        return queue.checked(offset, self._evidence)

    def note_grown(self, queue: ConsumeQueue) -> None:
        """For entries that were not added by `hot.derive_records`."""
        if not queue.grown:
            queue.grown = True
            self.grown.append(queue)

    def take_grown(self) -> list[ConsumeQueue]:
        """The queues that grew since the last call, each once."""
        grown = self.grown
        if not grown:
            return []
        self.grown = []
        queues: list[ConsumeQueue] = []
        for queue in grown:
            assert isinstance(queue, ConsumeQueue)
            queue.grown = False
            # Recovery derives entries that no writer counted in this process.
            queue.next_offset = max(queue.next_offset, queue.max_offset)
            self._unsaved[queue] = None
            queues.append(queue)
        return queues

    def all(self) -> Collection[ConsumeQueue]:
        return self._found.values()

    def extents(self) -> dict[str, dict[int, tuple[int, int]]]:
        """First offset and end of each queue: what a checkpoint vouches for."""
        extents: dict[str, dict[int, tuple[int, int]]] = {}
        for (topic, queue_id), queue in self._found.items():
            if (topic, queue_id) in self.ready:
                extents.setdefault(topic, {})[queue_id] = (queue.min_offset, queue.max_offset)
            elif queue.vouched is not None:
                extents.setdefault(topic, {})[queue_id] = queue.vouched
        return extents

    def save(self, touched: set[Path], limit: int | None = None) -> None:
        """Write out queues that grew, at most `limit`; adds the files that need a sync."""
        while self._unsaved and (limit is None or limit > 0):
            queue = next(iter(self._unsaved))
            touched.update(queue.save())
            del self._unsaved[queue]
            limit = None if limit is None else limit - 1

    @property
    def unsaved(self) -> int:
        return len(self._unsaved)

    def correct_min(self, log_min: int) -> None:
        """The log starts later; queues that are not open yet find out when they are."""
        self._log_min = log_min
        for queue in self.ready.values():
            queue.correct_min(log_min)

    def truncate(self, log_end: int) -> None:
        for topic, queue_id in list(self._found):
            self.get(topic, queue_id).truncate(log_end)

    def delete_topic(self, topic: str) -> None:
        for key in [key for key in self._found if key[0] == topic]:
            queue = self._found.pop(key)
            self.ready.pop(key, None)
            self.by_key.pop(queue_key(queue.topic_bytes, queue.queue_id), None)
            self._unsaved.pop(queue, None)
            self._windows.pop(queue, None)
            if queue.grown:
                self.grown.remove(queue)
            queue.destroy()
        if topic in self._disk.names(self._root):  # a name from outside might lead elsewhere
            self._disk.remove(self._root / topic)
