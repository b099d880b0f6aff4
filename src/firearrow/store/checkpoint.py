"""How far everything is on disk: RocketMQ's checkpoint file, and a note of our own beside it.

`checkpoint` (4096 bytes) holds store timestamps, from which Apache finds the file to recover from:

    | log flushed | queues written | index written | master flushed | confirmed offset |
    | 8 bytes     | 8 bytes        | 8 bytes       | 8 bytes        | 8 bytes          |

`firearrow.json` holds offsets, which are exact: everything derived from the log before
`derivedTo` is on disk, so recovery starts there and not at the beginning of a file, and a queue or
index that has less was damaged. It carries the checkpoints before and after it was written; if the
file is neither, somebody else had the directory, and the note is ignored. Its second line is the
CRC-32 of the first: a note that lies would be worse than none.
"""

from __future__ import annotations

import logging
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from firearrow.store.key_index import IndexMark

if TYPE_CHECKING:
    from pathlib import Path

    from firearrow.store.disk import Disk

log = logging.getLogger(__name__)

CHECKPOINT_BYTES: Final = 4096
OWN_NOTE: Final = "firearrow.json"
_FIELDS: Final = struct.Struct(">qqqqq")
RECOVERY_MARGIN_MS: Final = 3_000  # Apache's allowance for clocks that step back


Fields: TypeAlias = tuple[int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """RocketMQ's own."""

    physical_ms: int = 0
    queues_ms: int = 0
    index_ms: int = 0
    master_flushed: int = 0
    confirmed: int = 0

    def encode(self) -> bytes:
        fields = _FIELDS.pack(
            self.physical_ms, self.queues_ms, self.index_ms, self.master_flushed, self.confirmed
        )
        return fields + bytes(CHECKPOINT_BYTES - len(fields))

    @classmethod
    def decode(cls, raw: bytes | None) -> Checkpoint:
        """A missing or short file is a checkpoint at the beginning of time (4.9 has 3 fields)."""
        padded = (raw or b"")[: _FIELDS.size]
        return cls(*_FIELDS.unpack(padded + bytes(_FIELDS.size - len(padded))))

    @property
    def fields(self) -> Fields:
        return (
            self.physical_ms,
            self.queues_ms,
            self.index_ms,
            self.master_flushed,
            self.confirmed,
        )

    @property
    def recover_before_ms(self) -> int:
        """A file whose first record is older than this is complete in the derived files."""
        return max(0, min(self.physical_ms, self.queues_ms) - RECOVERY_MARGIN_MS)


class OwnNote(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What we know better: how far everything was on disk at the same moment."""

    derived_to: int  # of the log, in queues and index
    flushed_to: int
    checkpoints: tuple[Fields, Fields]  # before and after this note was written
    log_min: int = 0  # where the log began
    queues: dict[str, dict[int, tuple[int, int]]] = {}  # first offset and end
    index: IndexMark | None = None


class CheckpointFiles:
    def __init__(self, disk: Disk, root: Path) -> None:
        self._disk = disk
        self._path = root / "checkpoint"
        self._own_path = root / OWN_NOTE

    def load(self) -> tuple[Checkpoint, OwnNote | None]:
        """The checkpoint, and our own note if it belongs to it."""
        checkpoint = Checkpoint.decode(self._disk.read(self._path))
        note = self._own_note()
        if note is not None and checkpoint.fields not in note.checkpoints:
            log.warning("%s does not belong to this checkpoint and is not used", self._own_path)
            note = None
        return checkpoint, note

    def _own_note(self) -> OwnNote | None:
        raw = self._disk.read(self._own_path)
        if raw is None:
            return None
        content, _, crc = raw.partition(b"\n")
        try:
            if int(crc, 16) == zlib.crc32(content):
                return msgspec.json.decode(content, type=OwnNote)
        except (ValueError, msgspec.MsgspecError):
            pass
        log.warning("%s is damaged and not used", self._own_path)
        return None

    def withdraw(self) -> None:
        """Have no note of our own any more, durably. Blocking."""
        self._disk.remove(self._own_path)
        self._disk.sync_folder(self._own_path.parent)

    def save(
        self,
        checkpoint: Checkpoint,
        *,
        before: Checkpoint,
        derived_to: int,
        flushed_to: int,
        log_min: int,
        queues: dict[str, dict[int, tuple[int, int]]],
        index: IndexMark | None,
    ) -> None:
        """Both files, durably. Call it only when what they promise is on disk. Blocking."""
        note = OwnNote(
            derived_to=derived_to,
            flushed_to=flushed_to,
            log_min=log_min,
            checkpoints=(before.fields, checkpoint.fields),
            queues=queues,
            index=index,
        )
        content = msgspec.json.encode(note)
        self._disk.replace(self._own_path, b"%b\n%08x\n" % (content, zlib.crc32(content)))
        self._disk.replace(self._path, checkpoint.encode())
