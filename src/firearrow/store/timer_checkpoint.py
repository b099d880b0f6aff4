"""How far the timer is on disk: RocketMQ's `config/timercheck`, and a note of our own behind it.

    | read to 8 | log flushed to 8 | queue offset 8 | that of the master 8 |
    | state version 8 | timestamp 8 | counter 8 |                               RocketMQ's 56 bytes
    | precision 8 | wheel written to 8 | log offset 8 | CRC-32 of all before 4 |  ours
    | zeros up to 4096 bytes

RocketMQ leaves our bytes alone, so they may be older than its own; the checksum says so. If they
belong together, they are exact: the timer log on disk up to `log_end` holds all messages of the
timer's queue before `queue_offset` that are not delivered, the wheel knows of those entries before
`wheel_to`, and what was delivered of slots from `read_ms` on is in the commit log behind
`log_offset`.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Final

CHECKPOINT_BYTES: Final = 4096
_FIELDS: Final = struct.Struct(">7q")
_OWN: Final = struct.Struct(">qqq")
_CRC: Final = struct.Struct(">I")
NOTE_BYTES: Final = _FIELDS.size + _OWN.size + _CRC.size  # all that a checkpoint says


@dataclass(frozen=True, slots=True)
class TimerCheckpoint:
    read_ms: int = 0  # slots before this are delivered
    log_end: int = 0  # RocketMQ: flushed at least this far
    queue_offset: int = 0
    master_queue_offset: int = 0
    state_version: int = 0
    timestamp: int = 0
    counter: int = 0
    precision_ms: int = 0
    wheel_to: int = 0
    log_offset: int | None = None  # None: not ours

    @property
    def is_ours(self) -> bool:
        return self.log_offset is not None

    @property
    def fields(self) -> bytes:
        """The part that RocketMQ knows."""
        return _FIELDS.pack(
            self.read_ms,
            self.log_end,
            self.queue_offset,
            self.master_queue_offset,
            self.state_version,
            self.timestamp,
            self.counter,
        )

    def encode(self) -> bytes:
        content = self.fields
        if self.log_offset is not None:
            content += _OWN.pack(self.precision_ms, self.wheel_to, self.log_offset)
            content += _CRC.pack(zlib.crc32(content))
        return content + bytes(CHECKPOINT_BYTES - len(content))

    @classmethod
    def decode(cls, raw: bytes | None) -> TimerCheckpoint | None:
        """What a file says; None if it is missing or too short to say anything."""
        if raw is None or len(raw) < _FIELDS.size:
            return None
        fields = _FIELDS.unpack_from(raw)
        signed = _FIELDS.size + _OWN.size
        if len(raw) >= signed + _CRC.size:
            (crc,) = _CRC.unpack_from(raw, signed)
            if crc == zlib.crc32(raw[:signed]):
                return cls(*fields, *_OWN.unpack_from(raw, _FIELDS.size))
        return cls(*fields)
