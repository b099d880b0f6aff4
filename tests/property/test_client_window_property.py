"""The window of a queue against a plain model: what is left, what may be committed."""

from __future__ import annotations

from typing import Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from firearrow.client.message import ReceivedMessage
from firearrow.client.window import Window, WindowLimits
from firearrow.hot import Record
from firearrow.model.topic import MessageQueue

QUEUE: Final = MessageQueue(topic="t", broker_name="b", queue_id=0)


def message(offset: int) -> ReceivedMessage:
    return ReceivedMessage(Record("t", b"x" * (offset % 5 + 1), "", queue_offset=offset), "b")


class WindowAgainstModel(RuleBasedStateMachine):
    """Offsets that wait, offsets that are being consumed in order; nothing else is remembered."""

    def __init__(self) -> None:
        super().__init__()
        self.window = Window(QUEUE, 0, 0)
        self.known: dict[int, ReceivedMessage] = {}
        self.waiting: list[int] = []
        self.taken: list[int] = []
        self.next = 0
        self.last = -1
        self.changes = 0

    def wait_for_change(self) -> None:
        self.changes = 0

        def changed() -> None:
            self.changes += 1

        self.window.when_changed(changed)

    @rule(gaps=st.lists(st.integers(1, 5), min_size=1, max_size=6), again=st.booleans())
    def pull(self, gaps: list[int], again: bool) -> None:
        offsets = []
        for gap in gaps:
            self.next += gap
            offsets.append(self.next)
        new = [message(offset) for offset in offsets]
        self.known |= {one.queue_offset: one for one in new}
        old = [self.known[self.waiting[0]]] if again and self.waiting else []
        assert self.window.put(old + new) == new
        self.waiting += offsets
        self.last = self.next

    @precondition(lambda self: not self.taken)
    @rule(data=st.data())
    def finish_some(self, data: st.DataObject) -> None:
        chosen = data.draw(st.lists(st.sampled_from(self.waiting or [0]), unique=True))
        gone = [self.known.get(offset, message(offset)) for offset in chosen]
        empty = not self.waiting
        self.wait_for_change()
        self.waiting = [offset for offset in self.waiting if offset not in chosen]
        expected = -1 if empty else self.waiting[0] if self.waiting else self.last + 1
        assert self.window.remove(gone) == expected
        assert self.changes == (0 if empty else 1)

    @rule(count=st.integers(1, 4))
    def take(self, count: int) -> None:
        taken = self.window.take(count)
        assert [one.queue_offset for one in taken] == self.waiting[:count]
        self.taken += self.waiting[:count]
        self.waiting = self.waiting[count:]

    @rule(count=st.none() | st.integers(0, 5))
    def commit(self, count: int | None) -> None:
        done = self.taken[:count]
        self.taken = self.taken[len(done) :]
        assert self.window.commit(count) == (done[-1] + 1 if done else -1)

    @rule()
    def rollback(self) -> None:
        self.window.rollback()
        self.waiting = self.taken + self.waiting
        self.taken = []

    @invariant()
    def counts_agree(self) -> None:
        window, held = self.window, self.taken + self.waiting
        assert list(window.waiting) == self.waiting
        assert [one.queue_offset for one in window.consuming] == self.taken
        assert window.count == len(held)
        assert window.bytes == sum(self.known[offset].stored_bytes for offset in held)
        span = self.waiting[-1] - self.waiting[0] if self.waiting else 0
        assert window.span == span
        limits = WindowLimits(messages_max=4, bytes_max=20, span_max=8)
        fits = len(held) <= 4 and window.bytes <= 20
        assert window.has_room(limits, ordered=True) == fits
        assert window.has_room(limits) == (fits and span <= 8)


TestWindow = WindowAgainstModel.TestCase
TestWindow.settings = settings(max_examples=40, stateful_step_count=25)
