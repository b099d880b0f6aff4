"""Whatever is done to a store, and however it dies, it holds what a plain list would hold.

Files are tiny, so every few messages something rolls over. More examples:
``FIREARROW_STORE_EXAMPLES=5000 pytest tests/property/test_store_property.py --timeout 0``.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.stores import FOREVER_MS, records_of, small_config
from tests.storing import Sender, Sent, read_queue, stepped_threads, turns

from firearrow.hot import java_hash
from firearrow.hot.layout import BLANK_BYTES, record_bytes
from firearrow.store.store import MessageStore
from firearrow.testing.faults import ManualClock
from firearrow.testing.lying_disk import LyingDisk

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")
Queue = tuple[str, int]

LOG_FILE_BYTES = 4096
queues = st.tuples(st.sampled_from(["orders", "tän"]), st.integers(0, 1))
sizes = st.integers(0, 60) | st.integers(0, 1_500) | st.just(3_000)
keys = st.sampled_from(["", "red", "green", "red green"])
tags = st.sampled_from(["", "a", "b", "Aa", "BB"])  # the last two have one hash


class StoreMachine(RuleBasedStateMachine):
    """`log` is every message in the order of the log; `lives` what each queue shows of it."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.root = Path(self.folder.name)
        self.clock = ManualClock()
        self.disk = LyingDisk(self.root, seed=0, torn_sectors=True, now_ms=self.clock.now_ms)
        self.sender = Sender()
        self.log: list[Sent] = []
        self.lives: dict[Queue, list[Sent]] = {}
        self.uncertain: set[str] = set()  # topics deleted, and no checkpoint since
        self.flushed = 0  # messages of `log` that are on disk and visible
        self.expired = 0  # where the log begins
        self.run(self._start())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def teardown(self) -> None:
        self.run(self.store.abandon())
        self.run(self.loop.shutdown_default_executor())
        self.loop.close()
        self.folder.cleanup()

    async def _start(self) -> None:
        stepped_threads()
        self.disk.slow = False
        self.store = MessageStore(small_config(self.root), self.clock, disk=self.disk)
        await self.store.start()
        self.disk.slow = True

    # --- writing ------------------------------------------------------------------------------

    @rule(queue=queues, size=sizes, key=keys, tag=tags)
    def append(self, queue: Queue, size: int, key: str, tag: str) -> None:
        self.run(self._put([self.sender.make(*queue, size, key=key, tag=tag)]))

    @rule(queue=queues, slack=st.sampled_from([-1, 0, 1, BLANK_BYTES]))
    def append_to_the_end_of_a_file(self, queue: Queue, slack: int) -> None:
        probe = Sender(list(self.sender.sent)).make(*queue, 0, key="", tag="")
        message = probe.message
        without_body = record_bytes(0, len(queue[0].encode()), len(message.properties))
        without_body += len(message.born_host) - 8
        room = LOG_FILE_BYTES - self.store.statistics().end_offset % LOG_FILE_BYTES - BLANK_BYTES
        size = room - without_body - slack
        if len(message.body) <= size <= 3_500:
            self.run(self._put([self.sender.make(*queue, size, key="", tag="")]))

    @rule(queue=queues, many=st.lists(st.tuples(st.integers(0, 700), keys), min_size=1, max_size=4))
    def append_batch(self, queue: Queue, many: list[tuple[int, str]]) -> None:
        batch = [self.sender.make(*queue, size, key=key, tag="") for size, key in many]
        self.run(self._put(batch, batched=True))

    async def _put(self, batch: list[Sent], *, batched: bool = False) -> None:
        before = self.store.statistics().end_offset
        if batched:
            end = self.store.put_batch([sent.message for sent in batch])
        else:
            end = self.store.put(batch[0].message)
        for sent in batch:
            life = self.lives.setdefault(sent.queue, [])
            assert sent.message.queue_offset == len(life)
            assert sent.message.physical_offset >= before
            before = sent.message.physical_offset + sent.message.size
            life.append(sent)
            self.log.append(sent)
        assert end == before
        assert batch[0].message.physical_offset // LOG_FILE_BYTES == (end - 1) // LOG_FILE_BYTES

    @rule()
    def flush(self) -> None:
        self.run(self._flush())

    async def _flush(self) -> None:
        self.disk.slow = False
        self.disk.end_syncs()
        await self.store.wait_flushed(self.store.statistics().end_offset)
        await turns()
        self.disk.slow = True
        self.flushed = len(self.log)

    @rule()
    def one_sync_ends(self) -> None:
        """Of a slow disk: what was put after it began is still not on disk."""

        async def one() -> None:
            await turns()
            self.disk.end_syncs(1)
            await turns()

        self.run(one())
        flushed = self.store.statistics().flushed_offset
        self.flushed = sum(s.message.physical_offset < flushed for s in self.log)

    @rule(ms=st.sampled_from([1, 900, 1_100, 61_000]))
    def pass_time(self, ms: int) -> None:
        self.run(self.clock.advance(ms))

    @rule()
    def checkpoint(self) -> None:
        async def both() -> None:
            await self._flush()
            await self.store.checkpoint()

        self.run(both())
        self.uncertain.clear()

    # --- getting rid of -----------------------------------------------------------------------

    @rule(count=st.integers(1, 3))
    def expire(self, count: int) -> None:
        self.store.remove_files(count)
        self.expired = max(self.expired, self.store.statistics().min_offset)

    @rule(topic=st.sampled_from(["orders", "tän"]))
    def delete_topic(self, topic: str) -> None:
        self.store.delete_topic(topic)
        for queue in [queue for queue in self.lives if queue[0] == topic]:
            for sent in self.lives.pop(queue):
                sent.deleted = True
        self.uncertain.add(topic)

    # --- dying --------------------------------------------------------------------------------

    @rule()
    def stop_and_start(self) -> None:
        async def both() -> None:
            await self._flush()
            await self.store.stop()
            await self._start()

        self.run(both())
        recovered = self.store.recovered
        assert recovered is not None
        assert recovered.clean
        self.uncertain.clear()

    @rule()
    def die_and_start(self) -> None:
        """The process dies: what it wrote is there, synced or not."""
        self.run(self._die(self.disk.after_process_crash()))
        self._adopt_uncertain()
        self.flushed = len(self.log)

    @rule(operations=st.none() | st.integers(1, 12))
    def lose_power_and_start(self, operations: int | None) -> None:
        """The power goes now, or a few operations into a flush."""
        if operations is not None:
            self.disk.lose_power_after(operations)
            promised = self.flushed
            self.run(self._flush())
            if self.disk.power_is_lost:
                self.flushed = promised
        self.run(self._die(self.disk.after_power_loss()))
        self._cut_the_model()
        self._adopt_uncertain()

    async def _die(self, rest: LyingDisk) -> None:
        self.disk = rest
        await self.store.abandon()
        await self._start()

    def _cut_the_model(self) -> None:
        """A part of what was not promised is gone: from some message on, all of it."""
        end = self.store.statistics().end_offset
        kept = [s for s in self.log if s.message.physical_offset + s.message.size <= end]
        assert kept == self.log[: len(kept)]
        assert len(kept) >= self.flushed, f"lost: {self.log[len(kept) : self.flushed]}"
        gone = {sent.number for sent in self.log[len(kept) :]}
        for queue, life in self.lives.items():
            self.lives[queue] = [sent for sent in life if sent.number not in gone]
        self.log = kept
        self.flushed = len(kept)

    def _adopt_uncertain(self) -> None:
        """A topic whose deletion was not noted may be back, as far as the log has it."""
        for topic in self.uncertain:
            for queue_id in (0, 1):
                found = read_queue(self.store, topic, queue_id)
                low = self.store.lookup.min_offset(topic, queue_id)
                assert sorted(found) == list(range(low, low + len(found)))
                promised = self.lives.get((topic, queue_id), [])
                if not promised:
                    life = [self._nobody(topic, queue_id, offset) for offset in range(low)]
                    life += [self.sender.of(found[offset]) for offset in sorted(found)]
                    self.lives[topic, queue_id] = life

    def _nobody(self, topic: str, queue_id: int, offset: int) -> Sent:
        """A place before the first message that is left."""
        sent = Sender().make(topic, queue_id, 0, key="", tag="")
        sent.message.queue_offset = offset
        sent.message.physical_offset = -1
        return sent

    # --- reading ------------------------------------------------------------------------------

    def _visible(self, queue: Queue) -> list[Sent]:
        """What a consumer of this queue can get."""
        shown = {sent.number for sent in self.log[: self.flushed]}
        return [
            sent
            for sent in self.lives.get(queue, [])
            if sent.message.physical_offset >= self.expired and sent.number in shown
        ]

    @rule(queue=queues)
    def read_everything(self, queue: Queue) -> None:
        found = read_queue(self.store, *queue)
        expected = self._visible(queue)
        assert [self.sender.of(found[offset]) for offset in sorted(found)] == expected
        for sent in expected:
            for record in (
                self.store.lookup.by_queue_offset(*sent.place),
                self.store.lookup.record_at(sent.message.physical_offset),
            ):
                assert record is not None
                assert self.sender.of(record) is sent

    @rule(queue=queues, tag=st.sampled_from(["a", "b", "Aa"]))
    def read_by_tag(self, queue: Queue, tag: str) -> None:
        offset = self.store.lookup.min_offset(*queue)
        numbers = []
        while offset < self.store.lookup.max_offset(*queue):
            got = self.store.get(*queue, offset, 32, codes={java_hash(tag)})
            numbers += [self.sender.of(record).number for record in records_of(got)]
            assert got.next_offset > offset
            offset = got.next_offset
        assert numbers == [
            sent.number for sent in self._visible(queue) if java_hash(sent.tag) == java_hash(tag)
        ]

    @rule(topic=st.sampled_from(["orders", "tän"]), key=st.sampled_from(["red", "green"]))
    def read_by_key(self, topic: str, key: str) -> None:
        records = self.store.lookup.by_key(topic, key, limit=10_000, begin_ms=0, end_ms=FOREVER_MS)
        found = [self.sender.of(record).number for record in records]
        assert found == sorted(set(found))
        expected = {
            sent.number
            for sent in self.log[: self.flushed]
            if sent.message.topic == topic
            and key in sent.key.split()
            and sent.message.physical_offset >= self.expired
        }
        missing = {n for n in expected - set(found) if not self.sender.sent[n].deleted}
        assert not missing
        assert set(found) <= expected, "what was lost or never had this key"

    @rule(queue=queues, back_ms=st.integers(0, 130_000))
    def find_by_time(self, queue: Queue, back_ms: int) -> None:
        lookup = self.store.lookup
        time_ms = self.clock.now_ms() - back_ms
        visible = self._visible(queue)
        low, high = lookup.min_offset(*queue), lookup.max_offset(*queue)
        at_or_after = [s for s in visible if s.message.store_timestamp >= time_ms]
        behind = [s for s in visible if s.message.store_timestamp > time_ms]
        first = at_or_after[0].message.queue_offset if at_or_after else high
        assert lookup.offset_by_time(*queue, time_ms) == first
        after = behind[0].message.queue_offset if behind else high
        assert lookup.offset_by_time(*queue, time_ms, upper=True) == max(low, after - 1)

    # --- always -------------------------------------------------------------------------------

    @invariant()
    def queues_begin_and_end_where_they_should(self) -> None:
        for queue in self.lives:
            visible = self._visible(queue)
            lookup = self.store.lookup
            low, high = lookup.min_offset(*queue), lookup.max_offset(*queue)
            assert high - low == len(visible)
            if visible:
                assert low == visible[0].message.queue_offset

    @invariant()
    def nothing_is_promised_that_is_not_there(self) -> None:
        statistics = self.store.statistics()
        assert statistics.min_offset <= statistics.end_offset
        assert statistics.dispatched_offset <= statistics.end_offset
        assert not statistics.read_only


TestStore = StoreMachine.TestCase
TestStore.settings = settings(
    max_examples=int(os.environ.get("FIREARROW_STORE_EXAMPLES", "40")), stateful_step_count=40
)
