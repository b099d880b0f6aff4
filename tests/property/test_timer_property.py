"""However a broker dies, and how often: no timer is lost, none is early, none comes twice, and what
was taken back never comes.

Files are tiny and the wheel is small, so that far timers go round several times. More examples:
``FIREARROW_TIMER_EXAMPLES=5000 pytest tests/property/test_timer_property.py --timeout 0``.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.stores import SMALL
from tests.storing import read_queue, stepped_threads, turns

from firearrow.broker.config import BrokerConfig
from firearrow.broker.timer_admission import park_in_timer, put_recall
from firearrow.broker.timers import TimerService
from firearrow.broker.topic_table import TopicTable
from firearrow.hot import StoreMessage
from firearrow.hot.layout import LOOPBACK_HOST
from firearrow.model.message import (
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    UNIQ_KEY,
)
from firearrow.model.timer import RecallHandle
from firearrow.store.store import MessageStore
from firearrow.testing.faults import ManualClock
from firearrow.testing.lying_disk import LyingDisk

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from firearrow.broker.state import BrokerState

T = TypeVar("T")

TOPIC = "orders"
SLOTS_A_TURN = 100
LONG_MS = 400_000  # longer than the wheel is round
delays = st.integers(1, 3_000) | st.integers(1, 60_000) | st.sampled_from([1_000, 2_000, 8_000])
kinds = st.sampled_from([TIMER_DELAY_MS, TIMER_DELIVER_MS, TIMER_DELAY_SEC])


@dataclass(slots=True)
class Waiting:
    """A timer that was put, and what is known about it."""

    number: int
    due_ms: int
    out_ms: int
    end: int  # of the log, behind it
    recall_end: int | None = None  # of the log, behind what takes it back

    @property
    def handle(self) -> RecallHandle:
        return RecallHandle(TOPIC, "broker-a", self.out_ms + 1, f"K{self.number}")


class TimerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.root = Path(self.folder.name)
        self.clock = ManualClock(1_700_000_000_123)
        self.disk = LyingDisk(self.root, seed=0, torn_sectors=True, now_ms=self.clock.now_ms)
        self.waiting: list[Waiting] = []
        self.sent = 0
        self.counts_are_exact = True  # until the power goes between two files
        self.run(self._start())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def teardown(self) -> None:
        try:
            self.everything_is_delivered()
        finally:
            self.run(self.timers.abandon())
            self.run(self.store.abandon())
            self.run(self.loop.shutdown_default_executor())
            self.loop.close()
            self.folder.cleanup()

    async def _start(self) -> None:
        stepped_threads()
        self.disk.slow = False
        config = BrokerConfig(
            store_path_root_dir=self.root,
            timer_roll_window_slot=8,
            mapped_file_size_timer_log=5 * 52 + 16 + 7,
            **SMALL,
        )
        self.store = MessageStore(config, self.clock, disk=self.disk)
        await self.store.start()
        topics = TopicTable(self.clock, lambda _: None)
        self.timers = TimerService(
            config, self.store, topics, self.clock, disk=self.disk, slots_a_turn=SLOTS_A_TURN
        )
        self.timers.load()
        self.timers.start()
        self.state = cast(
            "BrokerState",
            SimpleNamespace(config=config, clock=self.clock, store=self.store, timers=self.timers),
        )
        await turns()

    # --- sending ------------------------------------------------------------------------------

    @rule(delay_ms=delays, kind=kinds, size=st.integers(0, 300))
    def send(self, delay_ms: int, kind: str, size: int) -> None:
        self.run(self._send(delay_ms, kind, size))

    async def _send(self, delay_ms: int, kind: str, size: int) -> None:
        number, self.sent = self.sent, self.sent + 1
        now_ms = self.clock.now_ms()
        if kind == TIMER_DELAY_SEC:
            delay_ms = (delay_ms // 1_000 + 1) * 1_000
        value = {
            TIMER_DELAY_MS: delay_ms,
            TIMER_DELAY_SEC: delay_ms // 1_000,
            TIMER_DELIVER_MS: now_ms + delay_ms,
        }[kind]
        properties = {UNIQ_KEY: f"K{number}", kind: str(value)}
        topic, queue_id = park_in_timer(self.state, TOPIC, number % 2, properties)
        text = "".join(f"{name}\x01{word}\x02" for name, word in properties.items())
        body = b"%d " % number + bytes(size)
        end = self.store.put(StoreMessage(topic, queue_id, body, text.encode()))
        out_ms = int(properties[TIMER_OUT_MS])
        self.waiting.append(Waiting(number, now_ms + delay_ms, out_ms, end))

    @rule(data=st.data())
    def take_back(self, data: st.DataObject) -> None:
        able = [one for one in self.waiting if one.out_ms >= self.clock.now_ms()]
        if able:
            one = data.draw(st.sampled_from(able))
            self.run(self._take_back(one))

    async def _take_back(self, one: Waiting) -> None:
        end = put_recall(self.state, one.handle, "", LOOPBACK_HOST)
        if one.recall_end is None:
            one.recall_end = end

    # --- time and disk ------------------------------------------------------------------------

    @rule(ms=st.sampled_from([1, 300, 1_000, 2_500, 20_000]))
    def pass_time(self, ms: int) -> None:
        self.run(self.clock.advance(ms))

    @rule()
    def flush(self) -> None:
        self.run(self._flush())

    async def _flush(self) -> None:
        self.disk.slow = False
        self.disk.end_syncs()
        await self.store.wait_flushed(self.store.statistics().end_offset)
        await turns()

    @rule()
    def have_a_slow_disk(self) -> None:
        """Nothing that is put is on disk, or seen, before the next flush."""
        self.disk.slow = True

    @rule()
    def checkpoint(self) -> None:
        async def both() -> None:
            await self._flush()
            await self.store.checkpoint()
            await self.clock.advance(1_000)

        self.run(both())

    # --- dying --------------------------------------------------------------------------------

    @rule(ms=st.sampled_from([0, 1, 1_500, 30_000, LONG_MS]))
    def stop_and_start(self, ms: int) -> None:
        async def all_of_it() -> None:
            await self._flush()
            await self.timers.stop()
            await self.store.stop()
            await self.clock.advance(ms)
            await self._start()

        self.run(all_of_it())

    @rule(ms=st.sampled_from([0, 1, 1_500, 30_000, LONG_MS]))
    def die_and_start(self, ms: int) -> None:
        """The process dies: what it wrote is there, synced or not."""
        self.run(self._die(self.disk.after_process_crash(), ms))

    @rule(
        operations=st.none() | st.integers(1, 30),
        before_ms=st.sampled_from([0, 700, 1_100, 9_000]),
        ms=st.sampled_from([0, 1_500, 30_000]),
    )
    def lose_power_and_start(self, operations: int | None, before_ms: int, ms: int) -> None:
        """The power goes now, or some operations later, while time passes."""
        promised = self.store.statistics().flushed_offset
        if operations is not None:
            self.disk.lose_power_after(operations)
            self.counts_are_exact = False

            async def go_on() -> None:
                await self.clock.advance(before_ms)
                await self._flush()
                await self.clock.advance(before_ms)

            self.run(go_on())
            if not self.disk.power_is_lost:
                promised = self.store.statistics().flushed_offset
        self.run(self._die(self.disk.after_power_loss(), ms))
        end = self.store.statistics().end_offset
        assert end >= promised
        self.waiting = [one for one in self.waiting if one.end <= end]
        for one in self.waiting:
            if one.recall_end is not None and one.recall_end > end:
                one.recall_end = None

    async def _die(self, rest: LyingDisk, ms: int) -> None:
        self.disk = rest
        await self.timers.abandon()
        await self.store.abandon()
        await self.clock.advance(ms)
        await self._start()

    # --- always -------------------------------------------------------------------------------

    def delivered(self) -> dict[int, int]:
        """When each timer was delivered; each comes once."""
        found: dict[int, int] = {}
        for queue_id in (0, 1):
            for record in read_queue(self.store, TOPIC, queue_id).values():
                number = int(record.body.split(b" ")[0])
                assert number not in found, f"timer {number} comes twice"
                assert number % 2 == queue_id
                found[number] = record.store_timestamp
        return found

    @invariant()
    def none_is_early_and_what_was_taken_back_stays_away(self) -> None:
        delivered = self.delivered()
        by_number = {one.number: one for one in self.waiting}
        for number, when_ms in delivered.items():
            one = by_number[number]
            assert when_ms >= one.due_ms, f"timer {number} is early"
            assert one.recall_end is None, f"timer {number} was taken back"

    @rule()
    def everything_is_delivered(self) -> None:
        async def wait() -> None:
            await self._flush()
            for _ in range(12):
                await self.clock.advance(10_000)
            await self._flush()

        self.run(wait())
        delivered = self.delivered()
        missing = [
            one for one in self.waiting if one.recall_end is None and one.number not in delivered
        ]
        assert not missing, f"lost: {missing}"
        assert not self.counts_are_exact or self.timers.counts.waiting(TOPIC) == 0


def test_message_taken_back_while_the_disk_was_slow_stays_away_after_a_crash() -> None:
    """Its slot was over, and on disk so, before anybody could see either of the two."""
    machine = TimerMachine()
    try:
        machine.checkpoint()
        machine.pass_time(ms=2_500)
        machine.have_a_slow_disk()
        machine.send(delay_ms=1_000, kind=TIMER_DELIVER_MS, size=0)
        machine.run(machine._take_back(machine.waiting[0]))  # noqa: SLF001
        for _ in range(5):
            machine.pass_time(ms=20_000)
        machine.flush()
        machine.die_and_start(ms=0)
        assert machine.timers.files.checkpoint.read_ms > machine.waiting[0].due_ms
        machine.pass_time(ms=1_000)
        machine.none_is_early_and_what_was_taken_back_stays_away()
    finally:
        machine.teardown()


TestTimers = TimerMachine.TestCase
TestTimers.settings = settings(
    max_examples=int(os.environ.get("FIREARROW_TIMER_EXAMPLES", "15")), stateful_step_count=40
)
