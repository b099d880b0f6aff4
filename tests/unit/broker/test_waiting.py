"""What waits in a broker: held pulls, and locks of queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.stores import message, open_store, put_all

from firearrow.broker.held_pulls import HeldPull, HeldPulls
from firearrow.broker.queue_locks import LOCK_MS, QueueLocks
from firearrow.hot import java_hash
from firearrow.model.topic import MessageQueue
from firearrow.testing import ManualClock

if TYPE_CHECKING:
    from pathlib import Path


class Pulls:
    """Held pulls that note in which order they were answered."""

    def __init__(self, limit: int = 100, limit_of_channel: int = 100) -> None:
        self.clock = ManualClock()
        self.held = HeldPulls(
            self.clock, limit=limit, limit_of_channel=limit_of_channel, read=lambda *_: None
        )
        self.answered: list[str] = []

    def park(self, name: str, **fields: Any) -> bool:
        given: dict[str, Any] = {
            "topic": "orders",
            "queue_id": 0,
            "offset": 0,
            "until_ms": 1_000,
            "channel": name,
            "codes": None,
        }
        return self.held.park(
            HeldPull(**(given | fields), answer=lambda: self.answered.append(name))
        )

    @property
    def waiting(self) -> int:
        return self.held.statistics().waiting


async def test_pulls_are_answered_when_their_time_is_up_and_in_that_order() -> None:
    pulls = Pulls()
    pulls.park("late", until_ms=300)
    pulls.park("early", until_ms=100)
    pulls.park("same", until_ms=100)
    await pulls.clock.advance(99)
    pulls.held.expire()
    assert pulls.answered == []
    await pulls.clock.advance(1)
    pulls.held.expire()
    assert pulls.answered == ["early", "same"]
    await pulls.clock.advance(1_000)
    pulls.held.expire()
    assert pulls.answered == ["early", "same", "late"]
    assert pulls.held.statistics().queues == 0


async def test_pull_of_a_closed_channel_is_never_answered() -> None:
    pulls = Pulls()
    pulls.park("gone", channel="x")
    pulls.park("also gone", channel="x", queue_id=1)
    pulls.park("stays", channel="y")
    pulls.held.channel_closed("x")
    pulls.held.channel_closed("never seen")
    assert pulls.waiting == 1
    pulls.held.wake_all()
    await pulls.clock.advance(2_000)
    pulls.held.expire()
    assert pulls.answered == ["stays"]


def test_limit_of_held_pulls_is_kept_and_room_is_made_again() -> None:
    pulls = Pulls(limit=2)
    assert pulls.park("a")
    assert pulls.park("b")
    assert not pulls.park("c")
    pulls.held.channel_closed("a")
    assert pulls.park("c")
    assert pulls.waiting == 2


def test_answered_pulls_do_not_pile_up_until_their_time() -> None:
    pulls = Pulls(limit=10)
    for number in range(10_000):
        pulls.park(f"pull-{number}", until_ms=10**9, channel="c")
        pulls.held.channel_closed("c")
    assert pulls.waiting == 0
    assert len(pulls.held._by_time) <= 64  # noqa: SLF001 - the memory is what this is about


async def test_pull_is_woken_by_what_it_wants_and_looks_at_nothing_twice(tmp_path: Path) -> None:
    pulls = Pulls()
    async with open_store(tmp_path) as store:
        store.listen(pulls.held.wake)
        pulls.park("A", codes={java_hash("A")})
        pulls.park("B", codes={java_hash("B")})
        pulls.park("further", offset=2)
        await put_all(store, [message(tags="A"), message(tags="C")])
        assert pulls.answered == ["A"]
        await put_all(store, [message(tags="B")])
        assert pulls.answered == ["A", "B", "further"]
        assert pulls.waiting == 0


async def test_pull_with_a_costly_filter_is_answered_after_so_many_looks(tmp_path: Path) -> None:
    pulls, looked = Pulls(), []

    def wants(record: memoryview) -> bool:
        looked.append(bytes(record))
        return False

    async with open_store(tmp_path) as store:
        pulls.held = HeldPulls(
            pulls.clock, limit=10, limit_of_channel=10, read=lambda *_: memoryview(b"record")
        )
        store.listen(pulls.held.wake)
        pulls.park("costly", wanted=wants, looks=3)
        await put_all(store, [message()])
        await put_all(store, [message(), message(), message()])
        assert pulls.answered == []
        await put_all(store, [message() for _ in range(5)])
        assert pulls.answered == ["costly"]
        assert len(looked) == 1 + 3 + 3


async def test_pull_of_another_queue_sleeps_on(tmp_path: Path) -> None:
    pulls = Pulls()
    async with open_store(tmp_path) as store:
        store.listen(pulls.held.wake)
        pulls.park("other queue", queue_id=1)
        pulls.park("other topic", topic="else")
        await put_all(store, [message()])
        assert pulls.answered == []


# --- locks ----------------------------------------------------------------------------------


def queues(*numbers: int) -> list[MessageQueue]:
    return [MessageQueue(topic="t", broker_name="b", queue_id=number) for number in numbers]


async def test_lock_belongs_to_one_client_and_ends_a_minute_after_its_renewal() -> None:
    clock = ManualClock()
    locks = QueueLocks(clock)
    assert list(locks.lock("g", "a", queues(0, 1))) == queues(0, 1)
    assert list(locks.lock("g", "b", queues(0, 1, 2))) == queues(2)
    assert list(locks.lock("other group", "b", queues(0))) == queues(0)
    await clock.advance(LOCK_MS)
    assert list(locks.lock("g", "a", queues(0))) == queues(0)
    await clock.advance(1)
    assert list(locks.lock("g", "b", queues(0, 1))) == queues(1)


async def test_group_has_locks_until_they_are_given_back_or_expire() -> None:
    clock = ManualClock()
    locks = QueueLocks(clock)
    assert not locks.has_locks("g")
    locks.lock("g", "a", queues(0))
    locks.unlock("g", "b", queues(0))
    assert locks.has_locks("g")
    locks.unlock("g", "a", queues(0, 1))
    assert not locks.has_locks("g")
    locks.lock("g", "a", queues(0))
    await clock.advance(LOCK_MS + 1)
    assert not locks.has_locks("g")


async def test_locks_that_nobody_renews_are_forgotten() -> None:
    """Groups come and go; a broker that runs for months must not remember them all."""
    clock = ManualClock()
    locks = QueueLocks(clock)
    for number in range(100):
        locks.lock(f"group-{number}", "a", queues(0, 1))
    locks.lock("empty", "a", [])
    assert locks.count() == 200
    await clock.advance(LOCK_MS + 1)
    locks.lock("alive", "a", queues(0))
    locks.expire()
    assert locks.count() == 1
    assert locks.has_locks("alive")
