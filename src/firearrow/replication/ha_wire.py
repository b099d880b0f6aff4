"""What masters and slaves say to each other on the HA port, as bytes; no sockets.

Classic, byte for byte RocketMQ's. A slave says how far it is, again and again; a master sends what
comes next. There is no greeting:

    slave to master    | largest physical offset 8 |
    master to slave    | physical offset 8 | size 4 | so many bytes of the log |
                       size 0: a heartbeat, with the position of the next transfer

With epochs (RocketMQ 5's controller mode), on the same port:

    slave, greeting    | 1: 4 | from last file 2 | learner 2 | broker id 8 |
    slave, progress    | 2: 4 | largest physical offset 8 |
    master, greeting   | 1: 4 | 12 n: 4 | its largest offset 8 | its last epoch 4 |
                       n times | epoch 4 | start offset 8 |
    master, transfer   | 2: 4 | size 4 | physical offset 8 | epoch 4 | start of epoch 8 |
                       | confirm offset 8 | so many bytes of the log |

Whoever breaks these rules is cut off: HaProtocolError says what was wrong.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from firearrow.base.errors import PeerProtocolError
from firearrow.replication.epochs import EpochEntry

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_OFFSET: Final = struct.Struct(">q")
_TRANSFER: Final = struct.Struct(">qi")
_GREETING: Final = struct.Struct(">ihhq")
_PROGRESS: Final = struct.Struct(">iq")
_EPOCHS: Final = struct.Struct(">iiqi")
_EPOCH: Final = struct.Struct(">iq")
_EPOCH_TRANSFER: Final = struct.Struct(">iiqiqq")
_STATE: Final = struct.Struct(">i")

HANDSHAKE: Final = 1
TRANSFER: Final = 2
BODY_BYTES_MAX: Final = 64 << 20  # a master's haTransferBatchSize is 32 KiB unless it was changed
EPOCHS_MAX: Final = 1_000


class HaProtocolError(PeerProtocolError):
    """The peer does not speak this protocol; the connection is of no use any more."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """Bytes of the log and where they belong; no bytes: a heartbeat."""

    offset: int
    body: bytes
    epoch: int = 0
    epoch_start: int = 0
    confirm_offset: int = 0


@dataclass(frozen=True, slots=True)
class Greeting:
    """A slave introduces itself."""

    broker_id: int
    from_last_file: bool = False
    is_learner: bool = False


@dataclass(frozen=True, slots=True)
class EpochsOfMaster:
    """What a master answers: its history."""

    max_offset: int
    last_epoch: int
    entries: tuple[EpochEntry, ...]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a slave is."""

    offset: int


# --- classic --------------------------------------------------------------------------------


def encode_report(offset: int) -> bytes:
    return _OFFSET.pack(offset)


def encode_transfer(offset: int, size: int) -> bytes:
    """The header; the bytes of the log follow it."""
    return _TRANSFER.pack(offset, size)


class ReportDecoder:
    """Reports of a slave, from any chunks."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> Progress | None:
        """The last whole report: those before it say less."""
        data = self._rest + chunk
        whole = len(data) // _OFFSET.size * _OFFSET.size
        self._rest = data[whole:]
        if not whole:
            return None
        (offset,) = _OFFSET.unpack_from(data, whole - _OFFSET.size)
        if offset < 0:
            raise HaProtocolError(f"a slave cannot be at offset {offset}")
        return Progress(offset)


class _Frames:
    """Bytes that have come, and frames taken off their front."""

    def __init__(self) -> None:
        self._data = bytearray()

    def add(self, chunk: bytes) -> None:
        self._data += chunk

    def peek(self, layout: struct.Struct) -> tuple[int, ...] | None:
        return layout.unpack_from(self._data) if len(self._data) >= layout.size else None

    def take(self, header_bytes: int, body_bytes: int) -> bytes | None:
        """The body of the frame in front, if it is all there; then the frame is gone."""
        stop = header_bytes + body_bytes
        if len(self._data) < stop:
            return None
        body = bytes(self._data[header_bytes:stop])
        del self._data[:stop]
        return body


class TransferDecoder:
    """Transfers of a classic master, from any chunks."""

    def __init__(self) -> None:
        self._frames = _Frames()

    def feed(self, chunk: bytes) -> Iterator[Transfer]:
        """Every transfer that is whole now."""
        self._frames.add(chunk)
        while (header := self._frames.peek(_TRANSFER)) is not None:
            offset, size = header
            _check_body(offset, size)
            body = self._frames.take(_TRANSFER.size, size)
            if body is None:
                return
            yield Transfer(offset, body)


def _check_body(offset: int, size: int) -> None:
    if offset < 0 or not 0 <= size <= BODY_BYTES_MAX:
        raise HaProtocolError(f"a transfer of {size} bytes at offset {offset}")


# --- with epochs ----------------------------------------------------------------------------


def encode_greeting(greeting: Greeting) -> bytes:
    return _GREETING.pack(
        HANDSHAKE, greeting.from_last_file, greeting.is_learner, greeting.broker_id
    )


def encode_progress(offset: int) -> bytes:
    return _PROGRESS.pack(TRANSFER, offset)


def encode_epochs(max_offset: int, last_epoch: int, entries: Sequence[EpochEntry]) -> bytes:
    kept = entries[-EPOCHS_MAX:]
    head = _EPOCHS.pack(HANDSHAKE, _EPOCH.size * len(kept), max_offset, last_epoch)
    return head + b"".join(_EPOCH.pack(entry.epoch, entry.start_offset) for entry in kept)


def encode_epoch_transfer(offset: int, size: int, entry: EpochEntry, confirm_offset: int) -> bytes:
    return _EPOCH_TRANSFER.pack(
        TRANSFER, size, offset, entry.epoch, entry.start_offset, confirm_offset
    )


class FollowerDecoder:
    """What a slave with epochs says, from any chunks."""

    def __init__(self) -> None:
        self._frames = _Frames()

    def feed(self, chunk: bytes) -> Iterator[Greeting | Progress]:
        self._frames.add(chunk)
        while (state := self._frames.peek(_STATE)) is not None:
            if state[0] == HANDSHAKE:
                fields = self._frames.peek(_GREETING)
                if fields is None:
                    return
                self._frames.take(_GREETING.size, 0)
                _, last_file, learner, broker_id = fields
                if broker_id < 0:
                    raise HaProtocolError(f"a slave cannot have the id {broker_id}")
                yield Greeting(broker_id, bool(last_file), bool(learner))
            elif state[0] == TRANSFER:
                fields = self._frames.peek(_PROGRESS)
                if fields is None:
                    return
                self._frames.take(_PROGRESS.size, 0)
                if fields[1] < 0:
                    raise HaProtocolError(f"a slave cannot be at offset {fields[1]}")
                yield Progress(fields[1])
            else:
                raise HaProtocolError(f"a slave in state {state[0]}")


class MasterDecoder:
    """What a master with epochs says, from any chunks."""

    def __init__(self) -> None:
        self._frames = _Frames()

    def feed(self, chunk: bytes) -> Iterator[EpochsOfMaster | Transfer]:
        self._frames.add(chunk)
        while (state := self._frames.peek(_STATE)) is not None:
            if state[0] == HANDSHAKE:
                frame: EpochsOfMaster | Transfer | None = self._epochs()
            elif state[0] == TRANSFER:
                frame = self._transfer()
            else:
                raise HaProtocolError(f"a master in state {state[0]}")
            if frame is None:
                return
            yield frame

    def _epochs(self) -> EpochsOfMaster | None:
        fields = self._frames.peek(_EPOCHS)
        if fields is None:
            return None
        _, size, max_offset, last_epoch = fields
        if not 0 <= size <= EPOCHS_MAX * _EPOCH.size or size % _EPOCH.size:
            raise HaProtocolError(f"a history of {size} bytes")
        body = self._frames.take(_EPOCHS.size, size)
        if body is None:
            return None
        entries = tuple(EpochEntry(*pair) for pair in _EPOCH.iter_unpack(body))
        return EpochsOfMaster(max_offset, last_epoch, entries)

    def _transfer(self) -> Transfer | None:
        fields = self._frames.peek(_EPOCH_TRANSFER)
        if fields is None:
            return None
        _, size, offset, epoch, epoch_start, confirm_offset = fields
        _check_body(offset, size)
        body = self._frames.take(_EPOCH_TRANSFER.size, size)
        if body is None:
            return None
        return Transfer(offset, body, epoch, epoch_start, confirm_offset)
