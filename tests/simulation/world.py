"""A store on a lying disk, what happens to it, and what must be true afterwards."""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING

from tests.stores import small_config
from tests.storing import Sender, Sent, read_queue, stepped_threads, turns

from firearrow.model.errors import ServiceNotAvailable
from firearrow.store.config import FlushDiskType
from firearrow.store.store import MessageStore
from firearrow.testing.faults import ManualClock
from firearrow.testing.lying_disk import LyingDisk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from firearrow.hot import Record

LIVES = 6
TOPICS = ("orders", "payments", "ünïcode")
QUEUES = 2
KEYS = ("", "red", "green", "red green", "blue")


class World:
    """A store on a lying disk, and everything that was ever told to whoever sent a message."""

    def __init__(self, root: Path, seed: int, mode: FlushDiskType, *, is_sick: bool) -> None:
        self.choose = random.Random(seed)
        self.is_sick = is_sick  # the disk is full now and then, and fails to sync
        self.sync_failed = False
        self.mode = mode
        self.clock = ManualClock()
        self.sender = Sender()
        self.lost: set[int] = set()  # were not there after a crash, and must never come back
        self.expired_below = 0
        self.life_from = 0  # the first message of this life
        self.threads = stepped_threads()
        self.root = root
        self.disk = LyingDisk(
            root, seed=seed, torn_sectors=bool(seed % 2), now_ms=self.clock.now_ms
        )
        self.store = self._made()

    def _made(self) -> MessageStore:
        config = small_config(
            self.root, flush_disk_type=self.mode, flush_consume_queue_thorough_interval=3_000
        )
        return MessageStore(config, self.clock, disk=self.disk)

    # --- life and death -----------------------------------------------------------------------

    async def start(self) -> None:
        """Start; now and then the power is lost while the last loss is being mended."""
        self.threads.held = self.sync_failed = False
        self.disk.get_well()
        self.store = self._made()
        if self.choose.random() < 0.3:
            self.disk.lose_power_after(self.choose.randint(1, 30))
        await self.store.start()
        if self.disk.power_is_lost:
            await self.die(self.disk.after_power_loss())
            await self.start()

    async def die(self, rest: LyingDisk) -> None:
        self.threads.drop()
        self.disk = rest
        await self.store.abandon()

    async def live(self) -> None:
        choose = self.choose
        self.disk.slow = choose.random() < 0.4
        self.threads.held = choose.random() < 0.4
        if choose.random() < 0.7:
            self.disk.lose_power_after(choose.randint(1, 120))
        for _ in range(choose.randint(3, 40)):
            acts = [self.put, self.put_batch, self.pass_time, self.turn, self.expire, self.delete]
            weights = [40, 10, 15, 20, 3, 3]
            if self.is_sick:
                acts += [self.fill_the_disk, self.free_the_disk, self.fail_a_sync]
                weights += [6, 3, 1]
            await choose.choices(acts, weights)[0]()
            self.note_expiry()
            if self.disk.power_is_lost:
                return

    async def end(self) -> None:
        """One of three ends, or the one that has already come."""
        if self.disk.power_is_lost or self.choose.random() < 0.5:
            await self.die(self.disk.after_power_loss())
        elif self.choose.random() < 0.5:
            await self.die(self.disk.after_process_crash())
        else:
            self.threads.held = False
            self.disk.get_well()
            self.disk.end_syncs()
            self.threads.run()
            await turns()
            await self.store.stop()
            if self.disk.power_is_lost or self.choose.random() < 0.5:
                self.disk = self.disk.after_power_loss()

    # --- what happens -------------------------------------------------------------------------

    def _message(self, topic: str, queue_id: int) -> Sent:
        choose = self.choose
        size = choose.choice([0, 20, 100, 300, 900, 2_000])
        return self.sender.make(
            topic, queue_id, size, key=choose.choice(KEYS), tag=choose.choice(["", "a", "b"])
        )

    async def put(self) -> None:
        sent = self._message(self.choose.choice(TOPICS), self.choose.randrange(QUEUES))
        with self._may_be_refused():
            self._acknowledge(self.store.put(sent.message), [sent])

    async def put_batch(self) -> None:
        topic, queue_id = self.choose.choice(TOPICS), self.choose.randrange(QUEUES)
        batch = [self._message(topic, queue_id) for _ in range(self.choose.randint(1, 5))]
        if sum(len(sent.message.body) + 200 for sent in batch) > 4_000:
            batch = batch[:1]
        with self._may_be_refused():
            self._acknowledge(self.store.put_batch([sent.message for sent in batch]), batch)

    @contextlib.contextmanager
    def _may_be_refused(self) -> Iterator[None]:
        """By a sick disk, and with words that say why."""
        try:
            yield
        except ServiceNotAvailable as error:
            if not self.is_sick or "disk" not in str(error):
                raise

    def _acknowledge(self, end: int, batch: list[Sent]) -> None:
        disk = self.disk

        def tell(on_disk: bool) -> None:
            if on_disk and not disk.power_is_lost and disk is self.disk:
                for sent in batch:
                    sent.acknowledged = True

        if self.mode is FlushDiskType.SYNC_FLUSH or self.choose.random() < 0.1:
            self.store.when_flushed(end, tell)

    async def pass_time(self) -> None:
        await self.clock.advance(self.choose.choice([1, 300, 1_000, 2_500]))

    async def turn(self) -> None:
        self.disk.end_syncs(self.choose.randint(0, 2))
        self.threads.run(self.choose.randint(0, 2))
        await turns(self.choose.randint(1, 8))

    async def expire(self) -> None:
        self.store.remove_files(self.choose.randint(1, 2))

    def note_expiry(self) -> None:
        self.expired_below = max(self.expired_below, self.store.statistics().min_offset)

    async def fill_the_disk(self) -> None:
        self.disk.capacity = self.disk.used_bytes + self.choose.choice([0, 4_096, 3 * 4_096])

    async def free_the_disk(self) -> None:
        """It is taken note of within a second, and then messages are taken again."""
        self.disk.capacity = None
        await self.clock.advance(1_100)
        if not self.sync_failed:
            sent = self._message(TOPICS[0], 0)
            self._acknowledge(self.store.put(sent.message), [sent])

    async def fail_a_sync(self) -> None:
        """Any sync: of the log, which ends writing, or of a checkpoint, which is tried again."""
        self.disk.fail_sync()
        self.sync_failed = True

    async def delete(self) -> None:
        topic = self.choose.choice(TOPICS)
        self.store.delete_topic(topic)
        for sent in self.sender.sent:
            if sent.message.topic == topic:
                sent.deleted = True

    # --- what must be true --------------------------------------------------------------------

    def check(self) -> None:
        """Right after a start, when everything that there is can be seen."""
        visible: set[int] = set()
        for topic, queue_id in self.store.queues():
            visible |= self._check_queue(topic, queue_id)
        # A file that retention removed may be back, but nothing that depends on it must be.
        self.note_expiry()
        stored = [
            sent for sent in self.sender.sent if sent.message.physical_offset >= self.expired_below
        ]
        for sent in stored:
            if sent.acknowledged and not sent.deleted:
                assert sent.number in visible, f"acknowledged and lost: {sent}"
                self._check_lookups(sent)
        living = [sent for sent in stored if not sent.deleted]
        came_back = {s.number for s in living} & visible & self.lost
        assert not came_back, f"lost and back: {came_back}"
        for sent in self.sender.sent:
            if sent.number not in visible:
                self.lost.add(sent.number)
        last_life = [sent.number for sent in living if sent.number >= self.life_from]
        kept = [number for number in last_life if number in visible]
        assert kept == last_life[: len(kept)], f"a hole in what is left: {kept} of {last_life}"
        self.life_from = len(self.sender.sent)

    def _check_queue(self, topic: str, queue_id: int) -> set[int]:
        found = read_queue(self.store, topic, queue_id)
        lookup = self.store.lookup
        expected = range(lookup.min_offset(topic, queue_id), lookup.max_offset(topic, queue_id))
        assert sorted(found) == list(expected), f"{topic} {queue_id} has holes"
        numbers = []
        for offset, record in found.items():
            assert record.queue_offset == offset
            assert (record.topic, record.queue_id) == (topic, queue_id)
            numbers.append(self.sender.of(record).number)
        assert numbers == sorted(set(numbers)), "messages are out of order"
        return set(numbers)

    def _check_lookups(self, sent: Sent) -> None:
        lookup, message = self.store.lookup, sent.message
        self._is(lookup.record_at(message.physical_offset), sent)
        self._is(lookup.by_queue_offset(*sent.place), sent)
        for key in [f"ID{sent.number}", *sent.key.split()]:
            records = lookup.by_key(
                message.topic, key, limit=10_000, begin_ms=0, end_ms=self.clock.now_ms()
            )
            assert sent.number in {self.sender.of(record).number for record in records}, (
                f"{sent} is not found by {key}"
            )

    def _is(self, record: Record | None, sent: Sent) -> None:
        assert record is not None
        assert self.sender.of(record) is sent

    async def check_goes_on(self) -> None:
        """A message can be sent to each queue, and is found behind the others."""
        for topic, queue_id in self.store.queues() or [(TOPICS[0], 0)]:
            before = self.store.lookup.max_offset(topic, queue_id)
            sent = self._message(topic, queue_id)
            self._acknowledge(end := self.store.put(sent.message), [sent])
            await self.store.wait_flushed(end)
            await turns()
            assert sent.message.queue_offset == before
            self._is(self.store.lookup.by_queue_offset(topic, queue_id, before), sent)


async def run(root: Path, seed: int, mode: FlushDiskType, *, is_sick: bool = False) -> None:
    """Six lives and deaths; a failure names the seed and what the disk saw last."""
    world = World(root, seed, mode, is_sick=is_sick)
    await world.start()
    try:
        for _ in range(LIVES):
            await world.live()
            await world.end()
            await world.start()
            world.check()
            await world.check_goes_on()
    except BaseException as error:
        error.add_note(f"seed {seed}, {mode}; the disk saw: {list(world.disk.history)[-30:]}")
        raise
    finally:
        await world.store.abandon()
