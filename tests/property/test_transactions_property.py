"""Transactions on a disk that forgets, with a broker that dies at any step.

The whole broker but its sockets: frames go into real connections and come out of them. Producers
are honest: whoever said commit says commit again when asked. More examples:
``FIREARROW_TRANSACTION_EXAMPLES=2000 pytest tests/property/test_transactions_property.py``
with ``--timeout 0``.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.broker_requests import TOPIC, heartbeat
from tests.stores import SMALL
from tests.storing import stepped_threads, turns
from tests.transactions import PRODUCERS, end, half, place_of

from firearrow.base.runtime import Service
from firearrow.broker.broker import Broker
from firearrow.broker.config import BrokerConfig
from firearrow.broker.processors.pull import PullProcessor
from firearrow.broker.processors.send import SendProcessor
from firearrow.broker.request_table import request_table
from firearrow.hot import decode_properties, decode_record
from firearrow.model.topic import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, TopicConfig
from firearrow.net.connection import Connection, Limits
from firearrow.net.router import Router
from firearrow.testing.faults import ManualClock
from firearrow.testing.lying_disk import LyingDisk
from firearrow.wire import headers
from firearrow.wire.codes import Flag, RequestCode
from firearrow.wire.command import Command, FrameDecoder, encode_frame
from firearrow.wire.headers import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK, TRANSACTION_UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")
Place = tuple[int, int]

CHECK_MAX = 3
ROUND_MS = 30_000
places = st.tuples(st.integers(0, 7), st.integers(0, 3))  # a transaction, a copy of it


@dataclass(slots=True)
class Transaction:
    """What its producer knows of it."""

    body: bytes
    places: list[Place] = field(default_factory=list)  # that it was told, or asked about
    is_begun: bool = False  # it has the broker's word
    fate: int | None = None  # what it has said, and stands by
    is_ended: bool = False  # and has the broker's word for that


class Pipe(asyncio.Transport):
    """The near end of a connection without a socket."""

    def __init__(self, heard: Callable[[Command], None]) -> None:
        super().__init__({"peername": ("127.0.0.1", 4711)})
        self._decoder = FrameDecoder()
        self._heard = heard

    def write(self, data: Any) -> None:
        for command in self._decoder.feed(bytes(data)):
            self._heard(command)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def is_reading(self) -> bool:
        return True


class Serving:
    """Routes what connections read, as a server does."""

    def __init__(self, router: Router) -> None:
        self._router = router

    def handle(self, connection: Connection, command: Command) -> None:
        self._router.handle(connection, command)

    def connected(self, connection: Connection) -> None: ...

    def disconnected(self, connection: Connection) -> None: ...

    def held(self, change: int) -> None: ...


class TransactionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = ManualClock()
        root = Path(self.folder.name)
        self.disk = LyingDisk(root, seed=0, torn_sectors=True, now_ms=self.clock.now_ms)
        self.config = BrokerConfig(
            store_path_root_dir=root,
            transaction_check_max=CHECK_MAX,
            os_page_cache_busy_time_out_mills=1 << 40,  # a slow disk refuses nobody here
            **SMALL,
        )
        self.offsets: dict[str, dict[int, int]] = {}  # as they were saved last
        self.all: list[Transaction] = []
        self.asked = 0
        self.complaints: list[BaseException] = []
        self.run(self._start())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    # --- a broker -----------------------------------------------------------------------------

    async def _start(self) -> None:
        stepped_threads()
        broker = Broker(self.config, self.clock, disk=self.disk)
        self.state = state = broker.state
        self.tasks = Service("transactions", self.clock)
        await state.store.start()
        state.store_host = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])
        state.store.set_store_host(state.store_host)
        state.topics.create_built_in(self.config)
        made = {name: TopicConfig(topic_name=name) for name in (TOPIC, CHECK_MAX_TIME_TOPIC)}
        state.topics.load(state.topics.all() | made, state.topics.version)
        state.offsets.load(self.offsets, None)
        state.transactions.load()
        state.transactions.start(self.tasks)
        table = request_table(state, SendProcessor(state), PullProcessor(state))
        router = Router(table, self.tasks)
        self.waiting: dict[int, Callable[[Command], None]] = {}
        self.connection = Connection(Serving(router), self.clock, Limits())
        self.connection.connection_made(Pipe(self._heard))
        await self._say(heartbeat("producer-1", group=None, producer=PRODUCERS), lambda _: None)

    async def _say(self, command: Command, then: Callable[[Command], None]) -> None:
        self.asked += 1
        command.opaque = self.asked
        if not command.flag & Flag.ONEWAY:
            self.waiting[command.opaque] = then
        self.connection.data_received(encode_frame(command))
        await turns()

    def _heard(self, command: Command) -> None:
        if self.disk.power_is_lost:
            return  # a ghost's voice
        try:
            self._hear(command)
        except BaseException as error:
            self.complaints.append(error)  # the broker would take it for its own
            raise

    def _hear(self, command: Command) -> None:
        if command.flag & Flag.RESPONSE:
            self.waiting.pop(command.opaque)(command)
        elif command.code == RequestCode.CHECK_TRANSACTION_STATE:
            header = headers.CheckTransactionStateRequest.from_ext(command.ext)
            shown = decode_record(command.body, 0)
            times = int(decode_properties(shown.properties)["TRANSACTION_CHECK_TIMES"])
            assert 1 <= times <= CHECK_MAX
            (one,) = (one for one in self.all if one.body == shown.body)
            one.places.append((header.tran_state_table_offset, header.commit_log_offset))

    async def _calm(self) -> None:
        """Everything that was written is on disk and visible."""
        self.disk.slow = False
        self.disk.end_syncs()
        store = self.state.store
        await asyncio.wait_for(store.wait_flushed(store.statistics().end_offset), 5)
        await turns(20)

    # --- what producers do ----------------------------------------------------------------------

    @rule()
    def begin(self) -> None:
        self._begin({})

    @rule(seconds=st.sampled_from(["20", "45"]))
    def begin_with_a_time_of_grace(self, seconds: str) -> None:
        self._begin({"CHECK_IMMUNITY_TIME_IN_SECONDS": seconds})

    def _begin(self, properties: dict[str, str]) -> None:
        one = Transaction(b"tx-%d" % len(self.all))
        self.all.append(one)

        def begun(reply: Command) -> None:
            one.places.append(place_of(reply))
            one.is_begun = True

        command = half(one.body, properties=properties, born_timestamp=self.clock.now_ms())
        self.run(self._say(command, begun))

    @rule(which=places, oneway=st.booleans(), check=st.booleans())
    def commit(self, which: Place, oneway: bool, check: bool) -> None:
        self._end(which, TRANSACTION_COMMIT, oneway=oneway, check=check)

    @rule(which=places, oneway=st.booleans(), check=st.booleans())
    def roll_back(self, which: Place, oneway: bool, check: bool) -> None:
        self._end(which, TRANSACTION_ROLLBACK, oneway=oneway, check=check)

    def _end(self, which: Place, fate: int, *, oneway: bool, check: bool) -> None:
        """Once and for all, of any copy, as often as it likes."""
        known = [one for one in self.all if one.places]
        if not known:
            return
        one = known[which[0] % len(known)]
        place = one.places[which[1] % len(one.places)]
        one.fate = one.fate or fate

        def told(reply: Command) -> None:
            one.is_ended |= reply.code == 0

        self.run(self._say(end(place, one.fate, from_check=check, oneway=oneway), told))

    @rule(which=places)
    def say_that_it_is_not_known(self, which: Place) -> None:
        known = [one for one in self.all if one.places]
        if known:
            place = known[which[0] % len(known)].places[-1]
            unknown = end(place, TRANSACTION_UNKNOWN, oneway=True)
            self.run(self._say(unknown, lambda _: None))

    # --- what happens ---------------------------------------------------------------------------

    @rule(ms=st.sampled_from([1_000, 3_100, ROUND_MS, ROUND_MS]))
    def pass_time(self, ms: int) -> None:
        self.run(self.clock.advance(ms))
        self.run(turns())

    @rule(slow=st.booleans())
    def disk_changes_its_pace(self, slow: bool) -> None:
        self.disk.slow = slow
        if not slow:
            self.run(self._calm())

    @rule(count=st.integers(1, 2))
    def some_syncs_end(self, count: int) -> None:
        async def some() -> None:
            await turns()
            self.disk.end_syncs(count)
            await turns()

        self.run(some())

    @rule()
    def save_offsets(self) -> None:
        """As happens every five seconds, on its own."""
        if not self.disk.power_is_lost:
            self.offsets = self.state.offsets.snapshot()

    # --- dying ----------------------------------------------------------------------------------

    @rule()
    def stop_and_start(self) -> None:
        async def both() -> None:
            await self._calm()
            await self.tasks.stop_tasks()
            self.state.transactions.finish()
            await self.state.store.stop()
            self.save_offsets()  # unless the power went meanwhile, and a ghost stopped
            await self._start()

        if not self.disk.power_is_lost:
            self.run(both())

    @rule()
    def die_and_start(self) -> None:
        if not self.disk.power_is_lost:
            self.run(self._die(self.disk.after_process_crash()))

    @rule()
    def lose_power_and_start(self) -> None:
        self.run(self._die(self.disk.after_power_loss()))

    @rule(operations=st.integers(1, 12))
    def power_will_go(self, operations: int) -> None:
        """In the middle of what comes next."""
        if not self.disk.power_is_lost:
            self.disk.lose_power_after(operations)

    async def _die(self, rest: LyingDisk) -> None:
        self.disk.end_syncs()
        await self.tasks.stop_tasks()
        await self.state.store.abandon()
        self.disk = rest
        await self._start()
        await self._calm()
        self._look()

    # --- what must be true ------------------------------------------------------------------------

    def _bodies(self, topic: str) -> list[bytes]:
        lookup = self.state.store.lookup
        found = []
        for offset in range(lookup.max_offset(topic, 0)):
            record = lookup.by_queue_offset(topic, 0, offset)
            assert record is not None
            found.append(record.body)
        return found

    def _open(self) -> list[bytes]:
        lookup = self.state.store.lookup
        found = []
        for one in self.state.transactions.halves:
            record = lookup.record_at(one.physical_offset)
            assert record is not None
            found.append(record.body)
        return found

    def _look(self) -> None:
        """Everything is on disk: nobody is delivered who should not be, and nobody is lost."""
        delivered, parked = self._bodies(TOPIC), self._bodies(CHECK_MAX_TIME_TOPIC)
        waiting = self._open()
        assert len(set(delivered)) == len(delivered), f"delivered twice: {delivered}"
        assert len(set(waiting)) == len(waiting), f"open twice: {waiting}"
        assert not set(delivered) & set(waiting), "delivered and still open"
        for one in self.all:
            if one.fate == TRANSACTION_COMMIT:
                assert not one.is_ended or one.body in delivered, f"committed and lost: {one}"
            else:
                assert one.body not in delivered, f"delivered without a commit: {one}"
            if one.fate == TRANSACTION_ROLLBACK and one.is_ended:
                assert one.body not in waiting, f"rolled back and open again: {one}"
            if one.is_begun and not one.is_ended and one.fate is None:
                assert one.body in waiting or one.body in parked, f"lost: {one}"
            if one.is_begun and one.fate == TRANSACTION_COMMIT:
                assert one.body in {*delivered, *waiting, *parked}, f"lost: {one}"

    @invariant()
    def nothing_is_wrong_with_what_is_visible(self) -> None:
        assert self.complaints == []
        delivered = self._bodies(TOPIC)
        assert len(set(delivered)) == len(delivered), f"delivered twice: {delivered}"
        committed = {one.body for one in self.all if one.fate == TRANSACTION_COMMIT}
        assert set(delivered) <= committed

    def teardown(self) -> None:
        """In the end everything is settled: delivered, rolled back, or parked."""
        try:
            self.run(self._finish())
        finally:
            self.run(self.tasks.stop_tasks())
            self.run(self.state.store.abandon())
            self.run(self.loop.shutdown_default_executor())
            self.loop.close()
            self.folder.cleanup()

    async def _finish(self) -> None:
        if self.disk.power_is_lost:
            await self._die(self.disk.after_power_loss())
        await self._calm()
        self.disk = self.disk if not self.disk.power_is_lost else self.disk.after_power_loss()
        for one in self.all:
            answered = len(one.places)
            for _ in range(CHECK_MAX + 4):
                if len(self.state.transactions.halves) == 0:
                    break
                await self.clock.advance(ROUND_MS)
                await turns()
                if one.fate is not None and len(one.places) > answered:
                    answered = len(one.places)
                    command = end(one.places[-1], one.fate, from_check=True, oneway=True)
                    await self._say(command, lambda _: None)
        await self.clock.advance(ROUND_MS)
        await self._calm()
        self._look()
        assert len(self.state.transactions.halves) == 0
        delivered, parked = self._bodies(TOPIC), self._bodies(CHECK_MAX_TIME_TOPIC)
        for one in self.all:
            if one.is_begun and one.fate != TRANSACTION_ROLLBACK:
                assert one.body in {*delivered, *parked}, f"gone: {one}"
        lookup, offsets = self.state.store.lookup, self.state.offsets
        for topic in (HALF_TOPIC, OP_HALF_TOPIC):
            if lookup.max_offset(HALF_TOPIC, 0):
                position = offsets.committed(topic, "CID_RMQ_SYS_TRANS", 0)
                assert position == lookup.max_offset(topic, 0), topic


def test_nobody_is_asked_about_a_copy_whose_place_another_message_may_take() -> None:
    """Else the answer, which names the place, would end the wrong transaction."""
    machine = TransactionMachine()
    try:
        machine.disk_changes_its_pace(slow=True)
        machine.begin()
        machine.pass_time(ms=ROUND_MS)
        machine.some_syncs_end(count=1)
        machine.lose_power_and_start()  # takes the copy
        machine.begin()  # lies where it was
        machine.roll_back(which=(0, 0), oneway=False, check=False)
        assert machine._open() == [b"tx-1"]  # noqa: SLF001
    finally:
        machine.teardown()


TestTransactions = TransactionMachine.TestCase
TestTransactions.settings = settings(
    max_examples=int(os.environ.get("FIREARROW_TRANSACTION_EXAMPLES", "40")),
    stateful_step_count=40,
)
