"""Half messages: which transactions are open, and what is to be done about each. Nothing is done.

A half message lies in the half topic until its producer says commit or rollback. What is settled
is told by an op message, whose body lists offsets of the half queue: ``17,15,18,``. Whoever is not
settled in time is asked about: the half message is appended again, with one more on its counter,
and the producer is asked about that copy.

All copies of one half message are one transaction here, and it ends once, through whichever copy.
In Apache each copy stands for itself, so a commit that was late for the first is a second message
when the second is committed, too.

    half queue      15   16   17   18   19   20 -> next
                    done open done done copy of 16
                         ^ position: everything before it is settled for good
    op queue        4 "15,"   5 "17,18,"
                              ^ position: all that the ops before it settle lies before 16

A staged batch is one half message that becomes many: its body has them as a batch has them. It is
never asked about. Whoever staged it ends it, or lets a later step of the same work sweep it away;
it waits as long as the log keeps it.
"""

from __future__ import annotations

import sys
from collections import OrderedDict, deque
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from firearrow.model.message import (
    CHECK_IMMUNITY,
    CHECK_TIMES,
    EPOCH,
    PARTS,
    PRODUCER_GROUP,
    REAL_TOPIC,
    SCOPE,
    UNIQ_KEY,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"  # whose offsets say how far both queues are settled
REMOVE_TAG: Final = "d"
ENDED_KEPT: Final = 10_000  # ends that are remembered, for producers that say it again
STAGED_RENEW_MS: Final = 3_600_000  # a staged batch is appended again so often, at most
_DIGITS_MAX: Final = 18


class Outcome(StrEnum):
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    PARKED = "parked"  # nobody knew, and it was asked often enough


class Action(StrEnum):
    CHECK = "check"  # append again, ask the producer
    RENEW = "renew"  # append again: its time of grace is long, and others wait behind it
    PARK = "park"  # give up


@dataclass(frozen=True, slots=True)
class Half:
    """The newest copy of an open half message."""

    offset: int  # in the half queue
    physical_offset: int
    identity: int  # of the transaction: the same for all copies
    topic: str  # where it will go
    born_ms: int
    stored_ms: int
    checks: int = 0
    immunity_ms: int | None = None  # by its own wish
    parts: int = 0  # messages that a staged batch becomes; 0 for any other
    scope: str = ""
    epoch: int = 0


class Limits(NamedTuple):
    timeout_ms: int
    check_max: int
    reserved_ms: int  # how long the log keeps messages


class Decision(NamedTuple):
    action: Action
    half: Half


# --- what a message says ----------------------------------------------------------------------


def half_of(
    properties: Mapping[str, str],
    *,
    offset: int,
    physical_offset: int,
    born_ms: int,
    born_host: bytes,
    stored_ms: int,
    body_bytes: int,
) -> Half:
    """A record of the half queue as a transaction."""
    return Half(
        offset,
        physical_offset,
        identity_of(properties, born_ms, born_host, body_bytes),
        sys.intern(properties.get(REAL_TOPIC, "")),  # many have the same
        born_ms,
        stored_ms,
        max(0, number(properties.get(CHECK_TIMES)) or 0),
        wished_immunity_ms(properties),
        max(0, number(properties.get(PARTS)) or 0),
        sys.intern(properties.get(SCOPE, "")),
        number(properties.get(EPOCH)) or 0,
    )


def identity_of(
    properties: Mapping[str, str], born_ms: int, born_host: bytes, body_bytes: int
) -> int:
    """What all copies of a half message and the message that it becomes have in common.

    The unique key alone would do, if every client kept it unique.
    """
    group, key = properties.get(PRODUCER_GROUP, ""), properties.get(UNIQ_KEY, "")
    return hash((group, key, born_ms, born_host, body_bytes))


def wished_immunity_ms(properties: Mapping[str, str]) -> int | None:
    """For how long its producer does not want to be asked about it; None without a wish."""
    seconds = number(properties.get(CHECK_IMMUNITY))
    return None if seconds is None or seconds < 0 else seconds * 1000


def is_too_late(properties: Mapping[str, str], age_ms: int, timeout_ms: int) -> bool:
    """Whether a producer that named its own time of grace answers, unasked, after it.

    Somebody else may have been asked by then, so only answers to checks count.
    """
    if not properties.get(CHECK_IMMUNITY):
        return False
    return age_ms > max(wished_immunity_ms(properties) or 0, timeout_ms)


def number(text: str | None) -> int | None:
    """A number as Java reads it; None if it is none."""
    digits = (text or "").removeprefix("-").removeprefix("+")
    if text is None or not (digits.isascii() and digits.isdecimal()) or len(digits) > _DIGITS_MAX:
        return None
    return -int(digits) if text.startswith("-") else int(digits)


def op_body(offsets: Iterable[int]) -> bytes:
    return "".join(f"{offset}," for offset in offsets).encode()


def op_offsets(body: bytes) -> list[int]:
    """Offsets that an op message settles; brokers before 5.1 wrote one without a comma."""
    words = body.decode("utf-8", "replace").split(",")
    return [offset for word in words if (offset := number(word)) is not None and offset >= 0]


# --- what is open -----------------------------------------------------------------------------


class HalfTable:
    """Open half messages, in the order of their queue."""

    def __init__(self) -> None:
        self._open: dict[int, Half] = {}  # by identity
        self._ordered: OrderedDict[int, Half] = OrderedDict()  # by offset, which only ever grows
        self._ended: OrderedDict[int, Outcome] = OrderedDict()
        self._begun: dict[int, int] = {}  # parts of staged batches that a crash left delivered
        self.by_topic: dict[str, int] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Half]:
        """A snapshot, oldest place first."""
        return iter(list(self._ordered.values()))

    @property
    def position(self) -> int:
        """Every offset of the half queue before this one is settled."""
        return next(iter(self._ordered), self._next)

    def load(
        self,
        copies: Iterable[Half],
        settled: Collection[int],
        committed: Collection[int],
        position: int,
        delivered: Mapping[int, int] | None = None,
    ) -> list[Half]:
        """Take up what the queues say; returns halves that were committed without an op message.

        `settled` are offsets in op messages, `committed` identities of messages that are there,
        `delivered` says how many messages a staged batch at some place of the log has become.
        One copy that is settled settles all of them.
        """
        self._next = position
        done: set[int] = set()
        whole: set[int] = set()
        for half in copies:
            self.add(half)
            if half.offset in settled:
                done.add(half.identity)
            begun = 0 if delivered is None else delivered.get(half.physical_offset, 0)
            if half.parts and begun:
                begun += self._begun.get(half.identity, 0)
                self._begun[half.identity] = begun
                if begun >= half.parts:
                    whole.add(half.identity)
        committed = whole.union(committed)
        without_op = []
        for identity in list(self._open):
            if identity in committed and identity not in done:
                without_op.append(self._open[identity])
            if identity in committed:
                self.end(identity, Outcome.COMMITTED)
            elif identity in done:
                self._drop(identity)
        return without_op

    def add(self, half: Half) -> Half | None:
        """A half message was appended; returns the copy that it takes the place of."""
        assert half.offset >= self._next
        older = self._drop(half.identity)
        self._open[half.identity] = self._ordered[half.offset] = half
        self.by_topic[half.topic] = self.by_topic.get(half.topic, 0) + 1
        self._next = half.offset + 1
        self._ended.pop(half.identity, None)
        return older

    def find(self, identity: int) -> Half | None:
        return self._open.get(identity)

    def is_current(self, half: Half) -> bool:
        return self._open.get(half.identity) is half

    def is_at(self, identity: int, offset: int) -> bool:
        """Whether a transaction is open, and this is its newest copy."""
        half = self._open.get(identity)
        return half is not None and half.offset == offset

    def begun(self, half: Half) -> int:
        """How many parts of a staged batch were delivered before the broker died on it."""
        return self._begun.get(half.identity, 0)

    def left_behind(self, scope: str, epoch: int) -> list[Half]:
        """What is open of this step of somebody's work, and of earlier ones."""
        return [
            half
            for half in self._ordered.values()
            if half.scope == scope and half.epoch <= epoch and half.identity not in self._begun
        ]

    def end(self, identity: int, outcome: Outcome) -> None:
        self._drop(identity)
        self._begun.pop(identity, None)
        self._ended[identity] = outcome
        self._ended.move_to_end(identity)
        if len(self._ended) > ENDED_KEPT:
            self._ended.popitem(last=False)

    def outcome(self, identity: int) -> Outcome | None:
        """How a transaction ended, if it did so not long ago."""
        return self._ended.get(identity)

    def _drop(self, identity: int) -> Half | None:
        half = self._open.pop(identity, None)
        if half is not None:
            del self._ordered[half.offset]
            left = self.by_topic[half.topic] - 1
            if left:
                self.by_topic[half.topic] = left
            else:
                del self.by_topic[half.topic]
        return half


class OpTable:
    """Op messages: what is to be written, and how far those that are written still matter."""

    def __init__(self) -> None:
        self._pending: deque[int] = deque()
        self._pending_bytes = 0
        self._written: deque[tuple[int, int]] = deque()  # offset, and the last half that it settles
        self._next = 0

    @property
    def pending(self) -> int:
        return len(self._pending)

    @property
    def pending_bytes(self) -> int:
        """How long a body that lists all of them would be."""
        return self._pending_bytes

    def load(self, position: int) -> None:
        self._next = position

    def add(self, half_offset: int) -> None:
        """A half message is settled, and an op message must say so."""
        self._pending.append(half_offset)
        self._pending_bytes += len(str(half_offset)) + 1

    def take(self, bytes_max: int) -> list[int]:
        """What the next op message lists: as much as fits, and the one that goes beyond."""
        taken: list[int] = []
        size = 0
        while self._pending and size < bytes_max:
            taken.append(self._pending.popleft())
            size += len(str(taken[-1])) + 1
        self._pending_bytes -= size
        return taken

    def put_back(self, taken: list[int]) -> None:
        for half_offset in reversed(taken):
            self._pending.appendleft(half_offset)
            self._pending_bytes += len(str(half_offset)) + 1

    def written(self, offset: int, halves: Collection[int]) -> None:
        """An op message lies at this offset."""
        self._written.append((offset, max(halves, default=-1)))
        self._next = offset + 1

    def position(self, half_position: int) -> int:
        """Op messages before this one settle only what lies before `half_position`."""
        while self._written and self._written[0][1] < half_position:
            self._written.popleft()
        return self._written[0][0] if self._written else self._next


# --- what to do -------------------------------------------------------------------------------


def decide_checks(halves: Iterable[Half], now_ms: int, limits: Limits) -> Iterator[Decision]:
    """What a round does, in the order of the queue; it ends at the first that is too young.

    `now_ms` is when the round began: what was stored since is for the next one.
    """
    for half in halves:
        age_ms = now_ms - half.born_ms
        if half.parts:
            if age_ms > limits.reserved_ms:
                yield Decision(Action.PARK, half)
            elif now_ms - half.stored_ms > STAGED_RENEW_MS:
                yield Decision(Action.RENEW, half)
        elif half.checks >= limits.check_max or age_ms > limits.reserved_ms:
            yield Decision(Action.PARK, half)
        elif half.stored_ms >= now_ms:
            return
        elif half.immunity_ms is not None:
            young = age_ms <= half.immunity_ms
            yield Decision(Action.RENEW if young else Action.CHECK, half)
        elif 0 <= age_ms <= limits.timeout_ms:
            return
        else:  # old enough, or born in the future: a clock that nobody should wait for
            yield Decision(Action.CHECK, half)
