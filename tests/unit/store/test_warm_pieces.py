from __future__ import annotations

from firearrow.store.warm_pieces import PIECE_BYTES, PIECES_MAX, WarmPieces


def test_bytes_are_warm_when_every_piece_they_touch_is() -> None:
    warm = WarmPieces()
    assert not warm.cover(0, 1)
    warm.add(0)
    warm.add(2)
    assert warm.cover(0, PIECE_BYTES)
    assert not warm.cover(PIECE_BYTES - 1, PIECE_BYTES + 1)
    assert warm.missing(0, 3 * PIECE_BYTES) == [1]
    warm.add(1)
    assert warm.cover(5, 3 * PIECE_BYTES)
    assert not warm.cover(7, 7)
    assert not warm.cover(-(1 << 63), 1 << 62)  # an entry of a damaged queue file


def test_the_piece_used_longest_ago_is_forgotten() -> None:
    warm = WarmPieces()
    for number in range(PIECES_MAX):
        warm.add(number)
    assert warm.cover(0, 1)
    warm.add(PIECES_MAX)
    assert warm.cover(0, 1)
    assert not warm.cover(PIECE_BYTES, PIECE_BYTES + 1)
