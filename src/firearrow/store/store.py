"""The message store: the one door to messages on disk.

    put        -> a place at once; `wait_flushed(place)` until it is on disk
    get        -> records of a queue, as slices of the log
    lookups    -> by physical offset, by key, by time

All methods belong to the event loop's thread; none of them waits for the disk except where they say
so. Start and stop order are at the top of the class, on one screen.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from firearrow.base.runtime import Service
from firearrow.hot.layout import LOOPBACK_HOST
from firearrow.model.delay import parse_delay_levels
from firearrow.model.errors import MessageIllegal, ServiceNotAvailable
from firearrow.store.checkpointer import Checkpointer
from firearrow.store.cleaner import Cleaner
from firearrow.store.commit_log import CommitLog
from firearrow.store.config import FlushDiskType, StoreConfig
from firearrow.store.consume_queue import ConsumeQueue, ConsumeQueues
from firearrow.store.disk import Disk, RealDisk
from firearrow.store.dispatcher import Dispatcher
from firearrow.store.evidence import LogEvidence
from firearrow.store.flusher import Flusher
from firearrow.store.key_index import KeyIndex, index_file_name
from firearrow.store.lookup import Lookup
from firearrow.store.ownership import DirectoryLock
from firearrow.store.preparer import Preparer
from firearrow.store.reading import Got, QueueReader, outside, physical_memory_bytes
from firearrow.store.recovery import Recovered, recover
from firearrow.store.replica import ReplicaLog
from firearrow.store.rules import scan_log
from firearrow.store.segments import Segments
from firearrow.store.warming import Warming

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from pathlib import Path

    from firearrow.base.histogram import Histogram
    from firearrow.base.runtime import Clock
    from firearrow.hot import LogWriter, PullGate, PullPath, ScannedRecord, StoreMessage
    from firearrow.store.dispatcher import Listener

log = logging.getLogger(__name__)

PAGE_BYTES: Final = 4096
DISK_RETRY_MS: Final = 1_000
RECORD_BYTES_MAX: Final = 1 << 27  # of another broker, whose settings may not be ours


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    min_offset: int
    end_offset: int
    flushed_offset: int
    dispatched_offset: int
    queues: int
    syncs: int
    sync_times_ms: tuple[int, ...]  # of the last syncs of the log
    waiting: int  # puts that are not on disk yet, and whose sender waits for that
    read_only: str  # why nothing can be written; empty when it can


class MessageStore:
    """RocketMQ's store directory, owned by one process."""

    def __init__(
        self,
        config: StoreConfig,
        clock: Clock,
        *,
        store_host: bytes = LOOPBACK_HOST,
        disk: Disk | None = None,
    ) -> None:
        self.config = config
        self._clock = clock
        self._disk = disk or RealDisk()
        self._root = root = config.store_path_root_dir.expanduser()
        self._tasks = Service("store", clock)
        self._lock = DirectoryLock(self._disk, root)
        self._segments = Segments(
            self._disk,
            config.store_path_commit_log or root / "commitlog",
            config.mapped_file_size_commit_log,
        )
        self._log = CommitLog(
            self._segments,
            store_host=store_host,
            message_bytes_max=config.max_message_size,
            on_reserve=self._look_for_room,
        )
        self._queues = ConsumeQueues(
            self._disk, root / "consumequeue", config.mapped_file_size_consume_queue
        )
        self._index = KeyIndex(
            self._disk,
            root / "index",
            slots=config.max_hash_slot_num,
            entries=config.max_index_num,
            now_name=lambda: index_file_name(clock.now_ms()),
        )
        self._preparer = Preparer(self._log, self._tasks)
        self._sync = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._memory_bytes = (
            physical_memory_bytes() * config.access_message_in_memory_max_ratio // 100
        )
        self._make_followers()
        self._ready = self._queues.ready
        self._reader: QueueReader | None = None
        self.lookup = Lookup(self._log, self._queues, self._index)
        self.warming = Warming(self._disk, self._log, self._queues, self._memory_bytes)
        self._dispatching = False
        self._unseen: list[tuple[int, asyncio.Future[None]]] = []
        self.refusal = "it is not started"  # why nothing may be written now; empty when it may
        self._closed_by = ""  # the same for as long as whoever said it does not take it back
        self.now_ms = clock.now_ms
        self._flushed_thoroughly_ms = 0
        self.recovered: Recovered | None = None

    def _make_followers(self) -> None:
        """What happens to the log after an append: queues, disk, checkpoints, removal."""
        config, clock, root = self.config, self._clock, self._root
        self._dispatcher = Dispatcher(
            self._segments,
            self._queues,
            self._index if config.message_index_enable else None,
            delay_levels_ms=parse_delay_levels(config.message_delay_level),
        )
        self._flusher = Flusher(
            self._log,
            self._disk.syncer(),
            on_flushed=self._flushed,
            on_failed=self._disk_failed,
            clock=clock,
        )
        self._checkpointer = Checkpointer(
            self._disk,
            root,
            queues=self._queues,
            index=self._index,
            dispatcher=self._dispatcher,
            flusher=self._flusher,
            segments=self._segments,
        )
        self._cleaner = Cleaner(
            config,
            self._disk,
            root,
            clock=clock,
            segments=self._segments,
            queues=self._queues,
            index=self._index,
            on_removed=self._checkpointer.make_due,
        )
        self.replica = ReplicaLog(
            self._log,
            self._flusher,
            self._dispatcher,
            queues=self._queues,
            index=self._index,
            checkpointer=self._checkpointer,
            is_synchronous=self._sync,
            memory_bytes=self._memory_bytes,
            appended=self.appended,
        )

    # --- life -------------------------------------------------------------------------------

    async def start(self) -> Recovered:
        """Open the directory, mend what a crash left, and say what was found. Blocks."""
        self._lock.take()
        try:
            recovered = self._load()
            self._lock.write_abort_file()
            await self._checkpointer.opened(recovered.end_offset)
        except BaseException:
            self._release()
            raise
        self.refusal = self._closed_by
        config = self.config
        self._flushed_thoroughly_ms = self._clock.elapsed_ms()
        if not self._sync:
            self._tasks.every(config.flush_interval_commit_log, self._flush_lazily, name="flush")
        self._tasks.spawn(self._keep_checkpoints(), name="checkpoint")
        self._tasks.every(config.clean_resource_interval, self._clean, name="clean")
        return recovered

    def _load(self) -> Recovered:
        clean = self._lock.last_stop_was_clean()
        oddities = self._segments.load(setting="mappedFileSizeCommitLog")
        checkpoint, note = self._checkpointer.load()
        recovered = recover(self._segments, checkpoint, note, clean=clean)
        recovered.damage = oddities + recovered.damage
        if note is not None and note.log_min < self._segments.min_offset:
            gone = f"bytes {note.log_min} to {self._segments.min_offset} of the log are gone"
            if clean:  # else they may have expired behind the last checkpoint
                recovered.damage.append(gone)
            else:
                log.warning("store %s: %s", self._root.name, gone)
        recovered.cut_bytes = self._segments.bytes_behind(recovered.end_offset)
        # A file that was made ahead can outlive even a clean stop.
        made_ahead = self._segments.next_start(recovered.end_offset) is not None
        self._log.open_at(
            recovered.end_offset, cut=recovered.cut_bytes > 0 or made_ahead or not clean
        )
        if not clean:  # what a dead process wrote may be in memory only; we are about to promise it
            self._segments.sync_from(
                recovered.scanned_from, rewrite=self._lock.last_sync_has_failed()
            )
        self._flusher.start_at(recovered.end_offset)
        is_recent = note is not None and note.log_min == self._segments.min_offset
        self._index.load(
            clean=clean,
            index_timestamp=checkpoint.index_ms,
            mark=None if note is None else note.index,
            is_recent=is_recent,
        )
        self._index.truncate(recovered.scanned_from)
        evidence = LogEvidence(self._log, recovered.scanned_from, self._dispatcher.tags_code)
        self._queues.load(
            evidence,
            self._segments.min_offset,
            {} if note is None else note.queues,
            is_recent=is_recent,
            is_exact=note is not None and note.derived_to <= recovered.scanned_from,
        )
        self._place_dispatcher(recovered, vouched=note is not None)
        while self._dispatcher.run(recovered.end_offset):
            pass
        self._queues.loaded()
        self._reader = QueueReader(
            self._log,
            self.config,
            evidence,
            memory_bytes=self._memory_bytes,
            # Recovery looked at every byte from there on; if it found damage, readers look again.
            verified_from=recovered.end_offset if recovered.damage else recovered.scanned_from,
            warm=self.warming.pieces,
        )
        recovered.report(self._root.name)
        self.recovered = recovered
        return recovered

    def _place_dispatcher(self, recovered: Recovered, *, vouched: bool) -> None:
        """Where queues and index begin to be made again: earlier than the scan if one has less."""
        log_min = self._segments.min_offset
        queues_from = index_from = recovered.scanned_from
        if not vouched and not self._queues.all():
            queues_from = log_min
        if self.config.message_index_enable:
            indexed_to = self._index.end_offset
            if indexed_to is None:
                index_from = log_min
            elif not self._index.is_complete:
                index_from = min(index_from, indexed_to)
        self._dispatcher.queues_from = queues_from
        self._dispatcher.position = max(min(queues_from, index_from), log_min)

    async def stop(self) -> None:
        """Get everything to the disk and leave the directory as a clean stop leaves it."""
        if self._reader is None:
            return
        self.refusal = "it is stopped"
        await self._tasks.stop_tasks()
        await self._flusher.drain()
        try:
            while self._dispatcher.run(self.replica.visible_end):
                pass
            complete = self._dispatcher.position >= self._log.end_offset
            if self._flusher.failed is None and complete:
                await self._checkpointer.save()
                self._lock.remove_abort_file()
        except OSError as error:
            log.warning("cannot close cleanly: %s; the next start recovers", error)
        finally:
            self._release()

    async def abandon(self) -> None:
        """Let go of the directory as it is, as if the process had died; the next start recovers."""
        self.refusal = "it is abandoned"
        await self._tasks.stop_tasks()
        self._release()

    def release_lock(self) -> None:
        """The process is as good as dead, and nothing else of it goes on."""
        self._lock.release()

    def _release(self) -> None:
        self._reader = None
        self._flusher.close()
        self._log.close()
        self._index.close()
        self._segments.close()
        self._disk.close()
        self._lock.release()

    # --- writing ----------------------------------------------------------------------------

    def put(self, message: StoreMessage) -> int:
        """Append a message; where it lies is in its own fields. It is safe, and in synchronous
        mode visible, when the log is on disk up to the offset that is returned.
        """  # noqa: D205 - one thought
        if self.refusal:
            self._refuse()
        queue = self._ready.get((message.topic, message.queue_id))
        if queue is None:
            queue = self._queues.get(message.topic, message.queue_id)
        end = self._log.append(message, queue, self._clock.now_ms())
        self.appended()
        return end

    def put_batch(self, messages: Sequence[StoreMessage]) -> int:
        """Append messages of one queue, all or none, at consecutive offsets; returns as `put`."""
        if self.refusal:
            self._refuse()
        keys = {(message.topic, message.queue_id) for message in messages}
        if len(keys) != 1:
            raise MessageIllegal(f"a batch goes to one queue; this one has {len(keys)}")
        queue = self._queues.get(*keys.pop())
        end = self._log.append_batch(messages, queue, self._clock.now_ms())
        self.appended()
        return end

    def put_parts(self, message: StoreMessage, parts: int, skip: int) -> int:
        """Append the `parts` messages of a batch body but the first `skip`; returns as `put`.

        All or none, unless the process dies meanwhile; `LogWriter.append_parts` says the rest.
        """
        if self.refusal:
            self._refuse()
        queue = self._queues.get(message.topic, message.queue_id)
        end = self._log.append_parts(message, queue, self._clock.now_ms(), parts, skip)
        self.appended()
        return end

    @property
    def writer(self) -> LogWriter:
        """For compiled code that appends by itself; it tells us with `appended`."""
        return self._log.writer

    def appended(self) -> None:
        """Something was appended: see to it that it gets to disk, is seen, and has a successor."""
        if self._sync:
            self._flusher.request()
        else:
            if not self._dispatching:
                self.dispatch_soon()
            if self.replica.on_grown is not None:
                self.replica.on_grown()
        if self._log.writer.position >= self._log.low_mark:
            self._preparer.look()

    def close_for_writing(self, reason: str) -> None:
        """Take no messages for this reason; the empty one opens the store again."""
        if self.refusal in {"", self._closed_by}:
            self.refusal = reason
        self._closed_by = reason
        self._dispatcher.record_bytes_max = RECORD_BYTES_MAX if reason else 0

    def _look_for_room(self) -> None:
        self._preparer.look()

    def _refuse(self) -> None:
        raise ServiceNotAvailable(f"the store does not take messages: {self.refusal}")

    @property
    def waits_for_disk(self) -> bool:
        """Whether what is put counts as stored only when it is on disk."""
        return self._sync

    def syncing_ms(self) -> int:
        """For how long the disk has been at the current sync of the log; 0 if there is none."""
        return self._flusher.syncing_ms()

    async def wait_flushed(self, offset: int) -> None:
        """Return when the log is on disk up to `offset`."""
        await self._flusher.wait_flushed(offset)

    def when_flushed(self, offset: int, tell: Callable[[bool], None]) -> None:
        """The same by callback, for those who answer many at once."""
        self._flusher.when_flushed(offset, tell)

    def _disk_failed(self, error: OSError) -> None:
        self.refusal = f"the disk failed: {error}; the store is read-only"
        with contextlib.suppress(OSError):
            self._lock.note_failed_sync()

    def _flush_lazily(self) -> None:
        """Asynchronous flush: when enough pages are dirty, and thoroughly now and then."""
        now_ms = self._clock.elapsed_ms()
        dirty_pages = (self._log.end_offset - self._flusher.flushed) // PAGE_BYTES
        thorough = (
            now_ms - self._flushed_thoroughly_ms >= self.config.flush_commit_log_thorough_interval
        )
        if thorough or dirty_pages >= self.config.flush_commit_log_least_pages:
            if self._log.end_offset > self._flusher.flushed:
                self._flusher.request()
            if thorough:
                self._flushed_thoroughly_ms = now_ms

    # --- following --------------------------------------------------------------------------

    def _flushed(self) -> None:
        self.dispatch_soon()
        if self._sync and self.replica.on_grown is not None:
            self.replica.on_grown()

    def dispatch_soon(self) -> None:
        """Look whether more of the log may be seen than before."""
        if not self._dispatching:
            self._dispatching = True
            asyncio.get_running_loop().call_soon(self._dispatch)

    def _dispatch(self) -> None:
        self._dispatching = False
        if self._reader is None:
            return
        try:
            # Another turn only if there is something to do: a turn for nothing costs a system call.
            end = self.replica.visible_end
            if self._dispatcher.run(end) and self._dispatcher.position < end:
                self.dispatch_soon()
            if self._unseen:
                self._tell_visible()
        except OSError as error:
            log.warning("queues and index cannot follow the log: %s; trying again", error)
            self._dispatching = True
            self._clock.call_later(DISK_RETRY_MS, self._dispatch)

    async def wait_visible(self, offset: int) -> None:
        """Return when readers can see the log up to `offset`."""
        if offset > self._dispatcher.position:
            seen = asyncio.get_running_loop().create_future()
            self._unseen.append((offset, seen))
            self.dispatch_soon()
            await seen

    def _tell_visible(self) -> None:
        position = self._dispatcher.position
        waiting, self._unseen = self._unseen, []
        for offset, seen in waiting:
            if offset > position:
                self._unseen.append((offset, seen))
            elif not seen.done():
                seen.set_result(None)

    async def _keep_checkpoints(self) -> None:
        interval_ms = self.config.flush_interval_consume_queue
        thorough_ms = self.config.flush_consume_queue_thorough_interval
        while True:
            await self._clock.sleep(interval_ms)
            if self._flusher.failed is not None:
                return
            if self.refusal != self._closed_by:
                self._clean()  # whoever has freed some space need not wait for the next round
            try:
                self._checkpointer.write_queues()
                if self._checkpointer.is_due(self._clock.elapsed_ms(), thorough_ms):
                    await self._checkpointer.save()
            except (OSError, ServiceNotAvailable) as error:
                log.warning("queues cannot be written: %s; trying again", error)

    async def checkpoint(self) -> None:
        """Have everything derived so far on disk, and say so there; the next recovery begins here.

        It happens by itself now and then. OSError when the disk does not take it.
        """
        await self._checkpointer.save()

    # --- getting rid of ---------------------------------------------------------------------

    def _clean(self) -> None:
        """Remove what is old, and see whether the disk can take more."""
        if self._flusher.failed is not None:
            return
        refusal = self._cleaner.run(self._checkpointer.vouched_to) or self._closed_by
        if refusal and not self.refusal:
            log.error("no more messages are taken: %s", refusal)
        elif self.refusal and not refusal:
            log.info("messages are taken again")
        self.refusal = refusal

    def remove_files(self, count: int) -> None:
        """Remove the oldest log files, and the queue and index files that only they explain."""
        self._cleaner.remove_files(count, self._checkpointer.vouched_to)

    def clean_soon(self) -> None:
        """Have expired files removed at the next round, whatever the hour."""
        self._cleaner.soon()

    def delete_topic(self, topic: str) -> None:
        """Forget the queues of a topic; its records go with their files."""
        self._dispatcher.forget_topic(topic, self._log.end_offset)
        self._queues.delete_topic(topic)
        self._checkpointer.make_due()

    # --- reading ----------------------------------------------------------------------------

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        *,
        codes: Collection[int] | None = None,
        wanted: Callable[[memoryview], bool] | None = None,
        looks: int | None = None,
    ) -> Got:
        """Messages of a queue from `offset` on: those with one of these tag hashes, if given, that
        `wanted` likes, if given; at most so many `looks` at messages, if given.
        """  # noqa: D205 - one thought
        queue = self._queues.find(topic, queue_id)
        answer = outside(queue, offset)
        if answer is not None:
            return answer
        if queue is None or self._reader is None:
            raise ServiceNotAvailable("the store is not started")
        return self._reader.read(queue, offset, max_count, codes=codes, wanted=wanted, looks=looks)

    def pull_path(self, gates: dict[bytes, PullGate], *, far: bool) -> PullPath:
        """The compiled way to `get`, for a store that is started.

        `far`: also for what lies far behind the end of the log and was warmed.
        """
        assert self._reader is not None
        return self._reader.pull_path(gates, self._queues, far=far)

    @property
    def read_limits(self) -> tuple[int, int, int]:
        """Of one `get` out of memory: records, bytes, and entries that are looked at."""
        assert self._reader is not None
        return self._reader.limits

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """A queue that has, or had, messages."""
        return self._queues.find(topic, queue_id)

    def set_store_host(self, host: bytes) -> None:
        """What records say of where they lie: known when the broker listens."""
        self._log.set_store_host(host)

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Be told which queues grew, when what they hold can be read; returns how to stop that."""
        self._dispatcher.listeners.append(listener)
        return lambda: self._dispatcher.listeners.remove(listener)

    def scan(self, offset: int) -> Iterator[ScannedRecord]:
        """Every sound record from an offset of the log on."""
        return scan_log(self._segments, offset, self._log.end_offset)

    def queues(self) -> list[tuple[str, int]]:
        """Every queue that has, or had, messages."""
        return [(queue.topic, queue.queue_id) for queue in self._queues.all()]

    def reconfigure(self, config: StoreConfig) -> None:
        """Heed new settings: limits of messages and answers, retention. Others need a restart."""
        self.config = config
        self._log.set_message_bytes_max(config.max_message_size)
        if self._reader is not None:
            self._reader.reconfigure(config)

    @property
    def log_folder(self) -> Path:
        return self._segments.folder

    @property
    def sync_histogram(self) -> Histogram:
        """Milliseconds of every sync of the log since the start."""
        return self._flusher.sync_histogram

    def disk_usage(self) -> tuple[int, int]:
        """Bytes used and bytes free on the partition of the commit log."""
        return self._disk.usage(self._segments.folder)

    def statistics(self) -> StoreStatistics:
        return StoreStatistics(
            min_offset=self._log.min_offset,
            end_offset=self._log.end_offset,
            flushed_offset=self._flusher.flushed,
            dispatched_offset=self._dispatcher.position,
            queues=len(self._queues.all()),
            syncs=self._flusher.syncs,
            sync_times_ms=tuple(self._flusher.sync_times_ms),
            waiting=self._flusher.waiting,
            read_only=self.refusal,
        )
