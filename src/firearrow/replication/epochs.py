"""Epochs: which master wrote which part of the log.

    epoch 1 from 0      epoch 2 from 4096      epoch 4 from 9000
    |------------------|----------------------|------------------->

Two logs agree up to the end of the newest epoch that both have with the same start, or to where the
shorter one ends in it; what lies behind is cut from the one that is not the master. RocketMQ keeps
them in `epochFileCheckpoint`, one `epoch-start` to a line, behind their number and a checksum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from firearrow.base.files import load_with_backup, write_atomically
from firearrow.hot import crc31

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FILE_NAME: Final = "epochFileCheckpoint"


@dataclass(frozen=True, slots=True)
class EpochEntry:
    epoch: int
    start_offset: int


class EpochHistory:
    """Epochs in order, each later and further than the one before; saved when they change."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._entries: list[EpochEntry] = []

    # --- looking ----------------------------------------------------------------------------

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return tuple(self._entries)

    @property
    def last_epoch(self) -> int:
        """The newest epoch; 0 without one."""
        return self._entries[-1].epoch if self._entries else 0

    def entry_at(self, offset: int) -> EpochEntry:
        """Which epoch the byte at an offset belongs to; epoch 0 for what is older than all."""
        for entry in reversed(self._entries):
            if entry.start_offset <= offset:
                return entry
        return EpochEntry(0, 0)

    def end_of(self, epoch: int) -> int | None:
        """Where the epoch behind this one begins; None for the last."""
        return next((entry.start_offset for entry in self._entries if entry.epoch > epoch), None)

    # --- changing ---------------------------------------------------------------------------

    def append(self, entry: EpochEntry) -> None:
        """A new master writes from here on. ValueError if that cannot be."""
        if self._entries:
            last = self._entries[-1]
            if entry == last:
                return
            if entry.epoch <= last.epoch or entry.start_offset < last.start_offset:
                raise ValueError(f"{entry} cannot follow {last}")
            if entry.start_offset == last.start_offset:
                self._entries.pop()  # nothing was ever written in it
        self._entries.append(entry)
        self._save()

    def truncate(self, end_offset: int) -> None:
        """Forget epochs that begin at or behind the end of the log."""
        kept = [entry for entry in self._entries if entry.start_offset < end_offset]
        if len(kept) != len(self._entries):
            self._entries = kept
            self._save()

    def drop_before(self, min_offset: int) -> None:
        """Forget epochs that the log has nothing of any more."""
        stale = 0
        while len(self._entries) - stale > 1 and (
            self._entries[stale + 1].start_offset <= min_offset - 1
        ):
            stale += 1
        if stale:
            del self._entries[:stale]
            self._save()

    # --- the file ---------------------------------------------------------------------------

    def load(self) -> None:
        """What was saved, or its backup if that cannot be read. Blocks."""
        if self._path is not None:
            self._entries = load_with_backup(self._path, decode_epochs) or []

    def _save(self) -> None:
        if self._path is not None:
            write_atomically(self._path, encode_epochs(self._entries))


def common_offset(
    ours: Sequence[EpochEntry], our_end: int, theirs: Sequence[EpochEntry], their_end: int
) -> int | None:
    """Up to where our log is the same as that of a newer master; None if that cannot be known.

    A master whose history begins at 0, with an epoch that is newer than all of ours, was elected
    without a byte of our log: then nothing of it was ever confirmed, and nothing is shared.
    """
    known = {entry.epoch: index for index, entry in enumerate(theirs)}
    for index in range(len(ours) - 1, -1, -1):
        at = known.get(ours[index].epoch)
        if at is None or theirs[at].start_offset != ours[index].start_offset:
            continue
        our_stop = ours[index + 1].start_offset if index + 1 < len(ours) else our_end
        their_stop = theirs[at + 1].start_offset if at + 1 < len(theirs) else their_end
        return min(our_stop, their_stop)
    if ours and theirs and theirs[0].start_offset == 0 and ours[-1].epoch < theirs[0].epoch:
        return 0
    return None


def encode_epochs(entries: Sequence[EpochEntry]) -> bytes:
    lines = "".join(f"{entry.epoch}-{entry.start_offset}\n" for entry in entries)
    return f"{len(entries)}\n{crc31(lines.encode())}\n{lines}".encode()


def decode_epochs(raw: bytes) -> list[EpochEntry]:
    """The entries of a file; ValueError if it is not whole."""
    lines = raw.decode().splitlines()
    if len(lines) < 2:
        raise ValueError(f"{len(lines)} lines; number, checksum and entries are expected")
    count, checksum, rows = int(lines[0]), int(lines[1]), lines[2:]
    if len(rows) < count:
        raise ValueError(f"{len(rows)} of {count} epochs are there")
    rows = rows[:count]
    if checksum not in {0, crc31("".join(f"{row}\n" for row in rows).encode())}:
        raise ValueError(f"the checksum is not {checksum}")
    entries = []
    for row in rows:
        epoch, dash, start = row.partition("-")
        if not dash:
            raise ValueError(f"{row!r} is no epoch")
        entries.append(EpochEntry(int(epoch), int(start)))
    return entries
