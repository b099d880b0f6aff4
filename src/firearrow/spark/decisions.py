"""Which attempt of a step of somebody's work counts: records in a queue, of which the first wins.

    scope   who works: the id of a streaming query, or of a batch job
    epoch   which step: the batch id, or 0

    queue of the decision topic, one for all records of a scope:

        | piece 0 | piece 1 | decision of 7 by A | decision of 8 by A | decision of 8 by B | ...
             ^---------^----------|                      counts              too late

A decision lists every half message of the attempt that it is for, so that whoever comes later can
end them. What is too long for one message lies in pieces before it. Pure: no sockets here.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from firearrow.spark.errors import ConnectorError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

VERSION: Final = 1
KIND: Final = "FA_KIND"  # property of a record
DECISION: Final = "decision"
PIECE: Final = "piece"
COMMIT: Final = "commit"
ABORT: Final = "abort"
PIECE_BYTES: Final = 1 << 20
BODY_BYTES_MAX: Final = 1 << 30  # of a decision, unpacked; what claims more is none of ours

Place = tuple[int, int]  # of a half message: in its queue, in the log


class Target(NamedTuple):
    """A queue that rows go to."""

    broker: str
    topic: str  # on the wire
    queue_id: int


class Written(NamedTuple):
    """Half messages of one attempt for one queue, in the order of their rows."""

    target: Target
    staged: bool  # each is a batch; else each is one message
    places: tuple[Place, ...]


class Group(msgspec.Struct, frozen=True, rename="camel"):
    """Half messages of a decision for one queue."""

    broker: str
    topic: str
    queue_id: int
    staged: bool
    places: bytes  # numbers of variable length; see `pack_places`
    from_offset: int = -1  # of the queue: what was committed lies there or behind; -1: unknown

    @property
    def target(self) -> Target:
        return Target(self.broker, self.topic, self.queue_id)


class Decision(msgspec.Struct, frozen=True, rename="camel"):
    """What is to become of a step, once and for all."""

    scope: str
    epoch: int
    decider: str  # one run of one driver
    outcome: str = COMMIT
    group: str = ""  # producer group of the half messages
    attempts: list[tuple[int, str]] = []  # partition, and the attempt that counts
    groups: list[Group] = []
    version: int = VERSION


class _Pieces(msgspec.Struct, frozen=True, rename="camel"):
    """A decision whose text lies before it."""

    pieces: list[int]  # offsets in the same queue
    size: int


# --- places -----------------------------------------------------------------------------------


def pack_places(places: Iterable[Place]) -> bytes:
    """Places as differences from the one before, seven bits to a byte: 4 to 6 bytes each."""
    out = bytearray()
    before = (0, 0)
    for place in places:
        for number, last in zip(place, before, strict=True):
            step = number - last
            left = step << 1 if step >= 0 else (-step << 1) - 1
            while left > 0x7F:
                out.append(left & 0x7F | 0x80)
                left >>= 7
            out.append(left)
        before = place
    return bytes(out)


def unpack_places(packed: bytes) -> list[Place]:
    numbers: list[int] = []
    number = shift = 0
    for byte in packed:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            step = -((number + 1) >> 1) if number & 1 else number >> 1
            before = numbers[-2] if len(numbers) >= 2 else 0
            numbers.append(before + step)
            number = shift = 0
    if shift or len(numbers) % 2:
        raise ConnectorError("a decision lists half messages that cannot be read")
    return list(zip(numbers[::2], numbers[1::2], strict=True))


# --- records ----------------------------------------------------------------------------------


def decision_of(
    scope: str,
    epoch: int,
    decider: str,
    *,
    group: str,
    attempts: Sequence[tuple[int, str, Sequence[Written]]],
    heads: Mapping[Target, int],
) -> Decision:
    """The decision for these attempts, one of each partition, in the order of partitions."""
    places: dict[tuple[Target, bool], list[Place]] = {}
    ordered = sorted(attempts, key=lambda attempt: attempt[0])
    for _, _, written in ordered:
        for one in written:
            places.setdefault((one.target, one.staged), []).extend(one.places)
    return Decision(
        scope,
        epoch,
        decider,
        group=group,
        attempts=[(partition, attempt) for partition, attempt, _ in ordered],
        groups=[
            Group(*target, staged, pack_places(found), heads.get(target, -1))
            for (target, staged), found in places.items()
        ],
    )


def encode(decision: Decision) -> bytes:
    return zlib.compress(msgspec.json.encode(decision), 1)


def pieces_of(body: bytes, piece_bytes: int = PIECE_BYTES) -> list[bytes]:
    """A body that is too long for one message; empty if it is not."""
    if len(body) <= piece_bytes:
        return []
    return [body[at : at + piece_bytes] for at in range(0, len(body), piece_bytes)]


def encode_pieces(offsets: Sequence[int], size: int) -> bytes:
    """The decision whose body lies in pieces at these offsets."""
    return msgspec.json.encode(_Pieces(list(offsets), size))


def decode(body: bytes) -> Decision | list[int]:
    """A decision, or the offsets of the pieces that it lies in."""
    try:
        if body.startswith(b"{"):
            return msgspec.json.decode(body, type=_Pieces).pieces
        unpacker = zlib.decompressobj()
        text = unpacker.decompress(body, BODY_BYTES_MAX)
        if unpacker.unconsumed_tail:
            raise ConnectorError("a decision is larger than any that was ever written")
        decision = msgspec.json.decode(text, type=Decision)
    except (zlib.error, msgspec.DecodeError) as error:
        raise ConnectorError(
            f"a record of the decision topic cannot be read ({error}): did something else write "
            "there? Choose another with the option decisionTopic"
        ) from None
    if decision.version != VERSION:
        raise ConnectorError(
            f"a decision of version {decision.version} was found, and this connector knows "
            f"{VERSION}: use the newer one"
        )
    return decision


class Seen:
    """Decisions of one scope as its queue shows them; the first for an epoch stays."""

    def __init__(self, scope: str) -> None:
        self.scope = scope
        self.next_offset: int | None = None  # up to where the queue was read
        self._first: dict[int, bytes] = {}

    def note(self, offset: int, properties: Mapping[str, str], body: bytes) -> None:
        """A record of the queue, in its order."""
        self.next_offset = offset + 1
        if properties.get("FA_SCOPE") != self.scope or properties.get(KIND) != DECISION:
            return
        epoch = properties.get("FA_EPOCH", "")
        if epoch.isdecimal():
            self._first.setdefault(int(epoch), body)

    def first(self, epoch: int) -> bytes | None:
        return self._first.get(epoch)

    def forget_before(self, epoch: int) -> None:
        """Steps before this one are not asked for again by this process."""
        for old in [old for old in self._first if old < epoch]:
            del self._first[old]
