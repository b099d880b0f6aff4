"""The timer: messages that wait in rmq_sys_wheel_timer, each until a time of its own.

    queue of its topic -> timer log and wheel (on disk) -> open slots (in memory) -> real topic

Only slots of the next second are open; whatever waits longer costs no memory. A slot ends when its
time is over, all its messages are delivered, and what had to go into the timer again is there.

What follows from that, after any crash: everything before the saved queue offset is in the timer
log; slots before the saved time are delivered; and what was delivered of later ones is in the
commit log behind the saved offset, so it is counted there and not delivered twice. Nothing is
delivered before all messages that were in the queue at the start are in the wheel again: one of
them may take another one back.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from firearrow.base.runtime import Service
from firearrow.broker.timer_counts import TimerCounts
from firearrow.broker.timer_loading import SlotLoader, prepare
from firearrow.broker.timer_past import Past, roll_times
from firearrow.broker.timer_puts import TimerPuts
from firearrow.broker.timer_slots import OpenSlot, Recalls
from firearrow.hot import decode_properties, java_hash
from firearrow.model.errors import BrokerError, ServiceNotAvailable
from firearrow.model.message import (
    REAL_TOPIC,
    TIMER_DEL_UNIQKEY,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    TIMER_ROLL_TIMES,
)
from firearrow.model.timer import NEVER_ENQUEUED, exact_time
from firearrow.model.topic import TIMER_TOPIC
from firearrow.store.disk import RealDisk
from firearrow.store.timer_files import TimerFiles
from firearrow.store.timer_log import (
    ENTRY_BYTES,
    MAGIC_DEFAULT,
    MAGIC_DELETE,
    MAGIC_ROLL,
    TimerEntry,
)
from firearrow.store.timer_wheel import BLANK_SLOTS, SLOTS_A_TURN

if TYPE_CHECKING:
    from collections.abc import Callable

    from firearrow.base.runtime import Clock, Timer
    from firearrow.broker.config import BrokerConfig
    from firearrow.broker.topic_table import TopicTable
    from firearrow.hot import Record, ScannedRecord
    from firearrow.store.consume_queue import ConsumeQueue
    from firearrow.store.disk import Disk
    from firearrow.store.store import MessageStore

log = logging.getLogger(__name__)

QUEUE_ID: Final = 0  # the timer's topic has one queue
BATCH: Final = 100  # messages into the wheel, and as many out of it, per turn of the loop
SLOTS_PER_TURN: Final = 2_000  # when there was nobody to look at them for a while
AHEAD_MS: Final = 1_000  # how long before its time a slot is opened
RETRY_MS: Final = 100  # when the store does not take a message
LOOK_AGAIN_MS: Final = 1_000  # at the latest: the wall clock may have been set meanwhile
SLOTS_PER_WRITE: Final = 1_000
SAVE_IDLE_SLOTS: Final = 60  # what a restart may have to look at again, if nothing else happened
CLEAN_MS: Final = 30_000


class TimerService:
    """Puts messages into the wheel, and delivers them at their time."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicTable,
        clock: Clock,
        *,
        disk: Disk | None = None,
        slots_a_turn: int = SLOTS_A_TURN,
    ) -> None:
        self.is_enabled = config.timer_wheel_enable
        self.precision_ms = config.timer_precision_ms
        window = config.timer_roll_window_slot
        widest = max(2, slots_a_turn - BLANK_SLOTS)
        self._window = window if 2 <= window <= widest else widest  # slots
        self._turn_ms = slots_a_turn * self.precision_ms
        self._flush_interval_ms = config.timer_flush_interval_ms
        self._store = store
        self._puts = TimerPuts(store, topics, clock)
        self._clock = clock
        self._tasks = Service("timer", clock)
        self.files = TimerFiles(
            disk or RealDisk(),
            config.store_path_root_dir.expanduser(),
            log_file_bytes=config.mapped_file_size_timer_log,
            precision_ms=self.precision_ms,
            slots_a_turn=slots_a_turn,
        )
        self._log, self._wheel = self.files.log, self.files.wheel
        self._loader = SlotLoader(self._log, store, self._add, self._loaded)
        self.counts = TimerCounts(clock)
        self._past = Past()
        self._front = OpenSlot(0)
        self._ahead: list[OpenSlot] = []
        self._next = 0  # queue offset of the next message for the wheel
        self._caught_up_at = 0  # nothing is delivered before the wheel knows everything before it
        self.recalls = Recalls()
        self._timer: Timer | None = None
        self._unlisten: Callable[[], None] = lambda: None
        self._running = False
        self._preparing = False
        self._saving: asyncio.Task[None] | None = None
        self._saved_state: tuple[int, ...] = ()

    # --- life -------------------------------------------------------------------------------

    def load(self) -> None:
        """Take up where the last broker left off. Blocks."""
        if not self.is_enabled:
            return
        lookup, now_ms = self._store.lookup, self._clock.now_ms()
        begun_ms = lookup.earliest_store_time(TIMER_TOPIC, QUEUE_ID)
        found = self.files.open(
            now_ms,
            begun_ms=begun_ms if begun_ms > 0 else now_ms,
            queue_offset_of=self._queue_offset_of,
            physical_of=self._physical_of,
        )
        if not found.rebuilt_to:
            self.counts.load(self.files.metrics())
        self._front = OpenSlot(found.read_ms)
        least, most = lookup.min_offset(TIMER_TOPIC, QUEUE_ID), self._max_offset()
        self._next = min(max(found.queue_offset, least), most)
        self._caught_up_at = most
        end = self._store.statistics().end_offset
        self._past = Past(
            found,
            log_end=end,
            until_ms=max(found.read_ms, self._floor(now_ms)),
            records=() if found.log_offset is None else self._store.scan(found.log_offset),
        )

    def _queue_offset_of(self, physical_offset: int) -> int | None:
        record = self._store.lookup.scanned_at(physical_offset)
        return None if record is None or record.topic != TIMER_TOPIC else record.queue_offset

    def _physical_of(self, queue_offset: int) -> int | None:
        queue = self._store.queue(TIMER_TOPIC, QUEUE_ID)
        entry = None if queue is None else queue.entry(max(queue_offset, queue.min_offset))
        return None if entry is None else entry[0]

    def start(self) -> None:
        if not self.is_enabled:
            return
        self._running = True
        self._front = self._open(self._front.time_ms)
        self._unlisten = self._store.listen(self._grown)
        self._tasks.every(self._flush_interval_ms, self._save_soon, name="save")
        self._tasks.every(CLEAN_MS, self._clean, name="clean")
        self._wake(0)

    async def stop(self) -> None:
        """Deliver no more, and leave everything on disk; the store is still open."""
        if not self._running:
            self.files.close()
            return
        await self._halt()
        try:
            if self._can_be_saved:
                await self.save()
                await self.save()  # what the wheel has got now
        except (OSError, ServiceNotAvailable) as error:
            log.warning("the timer cannot be saved: %s; the next start recovers", error)
        self.files.close()

    async def abandon(self) -> None:
        """Let go of everything as it is, as if the process had died."""
        self._running = False
        self._unlisten()
        self._unlisten = lambda: None
        self._cancel()
        await self._tasks.stop_tasks()
        self.files.close()

    async def _halt(self) -> None:
        self._running = False
        self._unlisten()
        self._unlisten = lambda: None
        self._cancel()
        if self._saving is not None:
            # A task that is cancelled leaves its thread behind, which would write what is old.
            await asyncio.wait({self._saving})
        await self._tasks.stop_tasks()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- turns ------------------------------------------------------------------------------

    def _grown(self, queues: list[ConsumeQueue]) -> None:
        if any(queue.topic == TIMER_TOPIC for queue in queues):
            self._wake(0)

    def _wake(self, delay_ms: int) -> None:
        self._cancel()
        if self._running:
            self._timer = self._clock.call_later(delay_ms, self._turn)

    def _turn(self) -> None:
        """A little of everything that can be done now."""
        self._timer = None
        try:
            more = self._enqueue()
            # With RocketMQ's checkpoint nobody would know, after a crash, what we had delivered.
            waits = self._next < self._caught_up_at or self.files.is_taken_over
            wait_ms = LOOK_AGAIN_MS if waits else self._advance()
            if self.files.is_taken_over:
                self._save_soon()
        except BrokerError as error:
            log.warning("messages in the timer wait: %s", error)
            more, wait_ms = False, RETRY_MS
        self._wake(0 if more else wait_ms)

    def _floor(self, time_ms: int) -> int:
        return time_ms // self.precision_ms * self.precision_ms

    def _max_offset(self) -> int:
        return self._store.lookup.max_offset(TIMER_TOPIC, QUEUE_ID)

    # --- into the wheel ---------------------------------------------------------------------

    def _enqueue(self) -> bool:
        """Take messages from the timer's queue; True if there are more."""
        queue = self._store.queue(TIMER_TOPIC, QUEUE_ID)
        if queue is None:
            return False
        self._next = max(self._next, queue.min_offset)
        for _ in range(BATCH):
            entry = queue.entry(self._next) if self._next < queue.max_offset else None
            if entry is None:
                return False
            record = self._store.lookup.scanned_at(entry[0])
            if record is not None and not self._past.is_known(entry[0]):
                self._take(record, decode_properties(record.properties))
            self._next += 1
        return True

    def _take(self, record: ScannedRecord, properties: dict[str, str]) -> None:
        """Put one message into the wheel, or deliver it at once if its slot is over."""
        out = properties.get(TIMER_OUT_MS, "")
        if not (out.isascii() and out.isdecimal()) or REAL_TOPIC not in properties:
            log.error("timer message at %d has no time or no destination", record.physical_offset)
            return
        out_ms = self._floor(int(out))
        # After a long stop reading is far behind; the wheel must not run over itself.
        written_ms = min(self._floor(self._clock.now_ms()), self._front.time_ms + self._turn_ms)
        slot_ms, rolled = self._wheel.slot_for(out_ms, written_ms, self._window)
        if self._past.is_over(record.physical_offset, properties) or (
            self._next < self._past.rebuilt_to and self._is_done(record, out_ms)
        ):
            self.recalls.forget(properties, self._next)
            return
        takes_back = TIMER_DEL_UNIQKEY in properties
        if slot_ms < self._front.time_ms:
            # What was in the queue at the start waits for all of it: one behind may take it back.
            if self._next >= self._caught_up_at and (
                takes_back or self._deliver_late(record, properties, slot_ms)
            ):
                self.recalls.forget(properties, self._next)
                return
            slot_ms = self._front.time_ms  # or the clock was set back
        magic = MAGIC_DEFAULT | (MAGIC_ROLL if rolled else 0) | (MAGIC_DELETE if takes_back else 0)
        position = self._append(record, properties, slot_ms, written_ms, magic)
        if slot_ms <= self._last_open.time_ms:
            opened = self._slot_at(slot_ms)
            if rolled:
                opened.rolls.insert(0, position)
            else:
                self._add(opened, position, properties, record.store_timestamp)
        self.recalls.forget(properties, self._next)

    def _is_done(self, record: ScannedRecord, out_ms: int) -> bool:
        """Whether a message had left the wheel before its files were lost."""
        slot_ms, _ = self._wheel.slot_for(out_ms, self._floor(record.store_timestamp), self._window)
        return slot_ms < self._front.time_ms

    def _append(
        self,
        record: ScannedRecord,
        properties: dict[str, str],
        slot_ms: int,
        written_ms: int,
        magic: int,
    ) -> int:
        before = self._wheel.get(slot_ms)
        change = -1 if magic & MAGIC_DELETE else 1
        position = self._log.append(
            TimerEntry(
                size=ENTRY_BYTES,
                previous=-1 if before is None else before.last,
                magic=magic,
                written_ms=written_ms,
                delay_ms=slot_ms - written_ms,
                physical_offset=record.physical_offset,
                record_bytes=record.size,
                topic_hash=java_hash(properties[REAL_TOPIC]),
            )
        )
        self._wheel.add(slot_ms, position, change=change)
        self.counts.enqueued += 1
        self.counts.add(properties[REAL_TOPIC], change)
        self._prepare_soon()
        return position

    def _prepare_soon(self) -> None:
        start = self._log.next_file
        if start is not None and not self._preparing:
            self._preparing = True
            self._tasks.spawn(self._prepare(start), name="prepare")

    async def _prepare(self, start: int) -> None:
        try:
            await prepare(self._log, start)
        finally:
            self._preparing = False

    # --- slots ------------------------------------------------------------------------------

    def waiting_in(self, slot_ms: int) -> int:
        """How many messages wait in a slot of the wheel."""
        slot = self._wheel.get(slot_ms)
        return 0 if slot is None else slot.messages

    @property
    def read_ms(self) -> int:
        """Everything before this is delivered."""
        return self._front.time_ms

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do at this moment but to wait."""
        now_ms, front = self._clock.now_ms(), self._front
        return (
            self._next >= self._max_offset()
            and not front.is_loading
            and now_ms < front.time_ms + self.precision_ms
            and not (front.rolls and now_ms >= front.time_ms)
            and not (front.next_ms is not None and front.next_ms <= now_ms)
        )

    @property
    def last_ms(self) -> int:
        """The last slot in which something can wait."""
        return (
            max(self._front.time_ms, self._floor(self._clock.now_ms()))
            + self._window * self.precision_ms
        )

    @property
    def behind_ms(self) -> int:
        """How far delivering is behind the clock, beyond the slot that is under way."""
        if not self._running:
            return 0
        return max(0, self._clock.now_ms() - self._front.time_ms - self.precision_ms)

    @property
    def queue_offset(self) -> int:
        return self._next

    @property
    def _last_open(self) -> OpenSlot:
        return self._ahead[-1] if self._ahead else self._front

    def _slot_at(self, time_ms: int) -> OpenSlot:
        if time_ms == self._front.time_ms:
            return self._front
        return self._ahead[(time_ms - self._front.time_ms) // self.precision_ms - 1]

    def _open(self, time_ms: int) -> OpenSlot:
        """Have the messages of a slot in memory soon."""
        slot = OpenSlot(time_ms)
        chain = self._wheel.get(time_ms)
        if chain is not None and chain.last >= self._log.min_position:
            slot.is_loading = True
            self._tasks.spawn(self._loader.load(slot, chain.last), name="load")
        return slot

    def _loaded(self, slot: OpenSlot) -> None:
        if slot is self._front:
            self._wake(0)

    def _add(
        self, slot: OpenSlot, position: int, properties: dict[str, str], stored_ms: int
    ) -> None:
        key = properties.get(TIMER_DEL_UNIQKEY)
        if key is not None:
            slot.recalled.add(key)
            slot.unmatched[properties[REAL_TOPIC]] += 1
            return
        slot.push(self._exact_time(properties, slot.time_ms, stored_ms), position)

    # --- out of the wheel -------------------------------------------------------------------

    def _advance(self) -> int:
        """Deliver what is due; returns how long there is nothing to do."""
        now_ms = self._clock.now_ms()
        left = BATCH
        for _ in range(SLOTS_PER_TURN):
            self._open_ahead(now_ms)
            front = self._front
            if front.is_loading:
                return LOOK_AGAIN_MS  # or when it is loaded
            if now_ms >= front.time_ms:
                while left and front.rolls:
                    self._roll(front, front.rolls[-1])
                    front.rolls.pop()
                    left -= 1
            while left and (due_ms := front.next_ms) is not None and due_ms <= now_ms:
                self._deliver(front, front.next_position)
                front.pop()
                left -= 1
            if not left:
                return 0
            if len(front) or now_ms < front.time_ms + self.precision_ms:
                return self._until_next(now_ms)
            if self._next <= front.rolled_to:
                return LOOK_AGAIN_MS  # or when it is in the queue
            self._next_slot()
        return 0

    def _open_ahead(self, now_ms: int) -> None:
        most = max(1, AHEAD_MS // self.precision_ms)
        while len(self._ahead) < most:
            time_ms = self._last_open.time_ms + self.precision_ms
            if time_ms > now_ms + AHEAD_MS:
                break
            self._ahead.append(self._open(time_ms))

    def _next_slot(self) -> None:
        after_ms = self._front.time_ms + self.precision_ms
        for topic, change in self._front.unmatched.items():
            if change:
                self.counts.add(topic, change)
        self._front = self._ahead.pop(0) if self._ahead else self._open(after_ms)
        self._past.passed(self._front.time_ms)

    def _until_next(self, now_ms: int) -> int:
        front = self._front
        opens_ms = self._last_open.time_ms + self.precision_ms - AHEAD_MS
        nexts = [opens_ms, front.time_ms + self.precision_ms]
        if front.rolls:
            nexts.append(front.time_ms)
        if front.next_ms is not None:
            nexts.append(front.next_ms)
        return min(
            LOOK_AGAIN_MS, max(1, min((at for at in nexts if at > now_ms), default=0) - now_ms)
        )

    def _deliver(self, slot: OpenSlot, position: int) -> None:
        entry = self._log.entry(position)
        record = None if entry is None else self._store.lookup.record_at(entry.physical_offset)
        properties = {} if record is None else decode_properties(record.properties)
        if entry is None or record is None or REAL_TOPIC not in properties:
            log.error("a message of the timer, entry %d, is not in the log any more", position)
            return
        if self.recalls.hit(properties, slot.recalled):
            self.counts.recalled += 1
            slot.unmatched[properties[REAL_TOPIC]] -= 1  # what took it back has been counted
            return
        if not self._past.is_over(record.physical_offset, properties):
            self._mark(slot)
            self._put_real(record, properties, entry.written_ms)
        self._count(slot, properties[REAL_TOPIC], -1)

    def _count(self, slot: OpenSlot, topic: str, change: int) -> None:
        slot.changes[topic] += change
        self.counts.add(topic, change)

    def _deliver_late(
        self, scanned: ScannedRecord, properties: dict[str, str], slot_ms: int
    ) -> bool:
        """A message came to the wheel when its slot was over; False if it is not due even so."""
        if self._exact_time(properties, slot_ms, scanned.store_timestamp) > self._clock.now_ms():
            return False
        record = self._store.lookup.record_at(scanned.physical_offset)
        if record is not None and not self.recalls.hit(properties):
            self._put_real(record, properties, NEVER_ENQUEUED)
        return True

    def _exact_time(self, properties: dict[str, str], slot_ms: int, stored_ms: int) -> int:
        return exact_time(
            properties, slot_ms=slot_ms, precision_ms=self.precision_ms, stored_ms=stored_ms
        )

    def _put_real(self, record: Record, properties: dict[str, str], enqueued_ms: int) -> None:
        if self._puts.put_real(record, properties, enqueued_ms) is not None:
            self.counts.delivered += 1

    def _mark(self, slot: OpenSlot) -> None:
        if slot.mark is None:
            slot.mark = self._store.statistics().end_offset

    def _roll(self, slot: OpenSlot, position: int) -> None:
        """Put a message that waits longer than the wheel reaches into the timer once more."""
        entry = self._log.entry(position)
        record = None if entry is None else self._store.lookup.record_at(entry.physical_offset)
        if entry is None or record is None:
            log.error("a message of the timer, entry %d, is not in the log any more", position)
            return
        properties = decode_properties(record.properties)
        if not self._past.is_over(record.physical_offset, properties):
            if TIMER_DEL_UNIQKEY not in properties:
                # When it was stored says nothing about its time any more: let it say so itself.
                out_ms = int(properties[TIMER_OUT_MS])
                due_ms = self._exact_time(properties, out_ms, record.store_timestamp)
                properties[TIMER_DELIVER_MS] = str(due_ms)
            properties[TIMER_ROLL_TIMES] = str(roll_times(properties) + 1)
            self._mark(slot)
            message = self._puts.put_back(record, properties, entry.written_ms)
            if message is not None:
                slot.rolled_to = message.queue_offset
        self._count(slot, properties[REAL_TOPIC], 1 if entry.takes_back else -1)

    # --- keeping ----------------------------------------------------------------------------

    def _save_soon(self) -> None:
        self.counts.sample()
        if self._saving is None and self._is_worth_saving():
            self._saving = self._tasks.spawn(self._save(), name="checkpoint")

    async def _save(self) -> None:
        try:
            await self.save()
        except (OSError, ServiceNotAvailable) as error:
            log.warning("the timer cannot be saved: %s; trying again", error)
        finally:
            self._saving = None

    @property
    def _can_be_saved(self) -> bool:
        """Whether the log knows just what the queue has before the next offset."""
        return not self.files.is_taken_over or self._next >= self._caught_up_at

    def _is_worth_saving(self) -> bool:
        if not self._can_be_saved:
            return False
        if self._saved_state != self._state() or self.files.is_wheel_behind:
            return True
        behind_ms = self._front.time_ms - self.files.checkpoint.read_ms
        return behind_ms >= SAVE_IDLE_SLOTS * self.precision_ms

    def _state(self) -> tuple[int, ...]:
        return self._next, self._log.end, self.counts.delivered, self.counts.recalled

    async def save(self) -> None:
        """Have everything on disk as it is now. OSError: nothing has changed."""
        # One moment of the loop: what is said below belongs together.
        state = self._state()
        end = self._store.statistics().end_offset
        mark = end if self._front.mark is None else self._front.mark
        saving = self.files.saving(
            self._clock.now_ms(),
            read_ms=self._front.time_ms,
            queue_offset=self._next,
            log_offset=self._past.mark(mark),
        )
        changes = self._front.changes.copy()
        for slot in self._ahead:
            changes.update(slot.changes)
        metrics = self.counts.encode(changes)
        await self._store.replica.wait_final(end)
        await asyncio.to_thread(self.files.save, saving, metrics)
        self.files.saved(saving)
        self._saved_state = state
        self._wake(0)
        while self._wheel.is_leaving:
            self._wheel.write(SLOTS_PER_WRITE)
            await asyncio.sleep(0)
        if self._wheel.file is not None:
            await asyncio.to_thread(self._wheel.file.sync)
        self.files.wheel_saved(saving)

    def _clean(self) -> None:
        """Remove files of the timer log that only lead to what is gone."""
        self._log.remove_before(self._store.statistics().min_offset)
