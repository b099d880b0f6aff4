"""What threads do that wait for the disk, so that nobody else has to."""

from __future__ import annotations

import os
import struct
from typing import Final

SYNC_REQUEST: Final = struct.Struct("@i")  # a file descriptor; below 0: the end
SYNC_REPLY: Final = struct.Struct("@i")  # an error number; 0: it is on disk
_PAGE_BYTES: Final = 4096


def serve_syncs(requests: int, replies: int) -> None:
    """Sync one file after the other, as asked through a pipe, until told to end.

    The compiled twin never needs the interpreter in between, so a busy event loop learns that its
    messages are on disk when they are, not when the interpreter next changes threads.
    """
    while True:
        (descriptor,) = SYNC_REQUEST.unpack(os.read(requests, SYNC_REQUEST.size))
        if descriptor < 0:
            return
        error = 0
        try:
            os.fdatasync(descriptor)
        except OSError as failure:
            error = failure.errno or -1
        os.write(replies, SYNC_REPLY.pack(error))


def bring_in(memory: bytes | bytearray | memoryview, start: int, stop: int) -> None:
    """Have the pages of mapped memory between two places in memory; they stay as they are.

    The compiled twin lets other threads run meanwhile.
    """
    if not 0 <= start <= stop <= len(memory):
        raise ValueError(f"range {start} to {stop} outside a buffer of {len(memory)} bytes")
    for at in range(start, stop, _PAGE_BYTES):
        memory[at]
