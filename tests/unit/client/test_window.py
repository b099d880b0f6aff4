"""What time does to a window: locks that run out, handlers that take too long."""

from __future__ import annotations

from firearrow.client.message import ReceivedMessage
from firearrow.client.window import LOCK_LIVES_MS, PULL_IDLE_MS, Window
from firearrow.hot import Record
from firearrow.model.topic import MessageQueue

QUEUE = MessageQueue(topic="t", broker_name="b", queue_id=0)


def message(offset: int, started_ms: int = 0) -> ReceivedMessage:
    one = ReceivedMessage(Record("t", b"x", "", queue_offset=offset), "b")
    one.consume_started_ms = started_ms
    return one


def test_only_the_first_messages_can_expire() -> None:
    window = Window(QUEUE, 0, 0)
    slow = [message(0, 100), message(1, 200)]
    window.put([*slow, message(2), message(3, 100)])
    assert window.expired(1_100, 1_000) == []
    assert window.expired(1_201, 1_000) == slow
    assert window.expired(9_999, 1_000, count_max=1) == slow[:1]


def test_locks_and_pulls_grow_old() -> None:
    window = Window(QUEUE, 0, 1_000)
    window.set_locked(2_000, locked=True)
    assert not window.lock_expired(2_000 + LOCK_LIVES_MS)
    assert window.lock_expired(2_001 + LOCK_LIVES_MS)
    window.set_locked(9_000, locked=False)
    assert window.last_lock_ms == 2_000
    assert not window.pull_expired(1_000 + PULL_IDLE_MS)
    assert window.pull_expired(1_001 + PULL_IDLE_MS)


def test_dropping_a_window_wakes_who_waits_for_room_once() -> None:
    window, woken = Window(QUEUE, 0, 0), []
    window.when_changed(lambda: woken.append(1))
    window.drop()
    window.drop()
    assert (window.dropped, woken) == (True, [1])
    assert "dropped" in repr(window)
