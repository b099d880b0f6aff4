"""Which pieces of the log have just been brought into memory for readers far behind its end.

A reader that is gigabytes behind waits for the disk in a thread. One that goes on from there would
wait in a thread for each pull, for a few messages at a time; so whole pieces are brought in, and
what lies in one of them is read as if it were new.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

PIECE_BYTES: Final = 4 * 1024 * 1024
# What was brought in is the system's to forget. With so little of it, it is read long before.
PIECES_MAX: Final = 128


class WarmPieces:
    """Pieces by number: where they begin in the log, divided by their size."""

    def __init__(self) -> None:
        self._pieces: OrderedDict[int, None] = OrderedDict()  # those used longest ago first

    def cover(self, start: int, stop: int) -> bool:
        """Whether all bytes from `start` to `stop` lie in warm pieces. Both may be nonsense."""
        if not self._pieces or not 0 < stop - start <= PIECES_MAX * PIECE_BYTES:
            return False
        return not self.missing(start, stop)

    def missing(self, start: int, stop: int) -> list[int]:
        """Numbers of the pieces that are not warm."""
        cold = []
        for number in range(start // PIECE_BYTES, -(-stop // PIECE_BYTES)):
            if number in self._pieces:
                self._pieces.move_to_end(number)
            else:
                cold.append(number)
        return cold

    def add(self, number: int) -> None:
        self._pieces[number] = None
        while len(self._pieces) > PIECES_MAX:
            self._pieces.popitem(last=False)
