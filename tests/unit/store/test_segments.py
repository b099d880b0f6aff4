from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from firearrow.base.errors import ConfigError
from firearrow.store.disk import RealDisk
from firearrow.store.segments import Segments, segment_name

if TYPE_CHECKING:
    from pathlib import Path

SIZE = 4096


def files(folder: Path, sizes: dict[int, int]) -> Segments:
    for start, size in sizes.items():
        (folder / segment_name(start)).write_bytes(bytes([start // SIZE + 1]) * size)
    return Segments(RealDisk(), folder, SIZE)


def content(segments: Segments, offset: int, size: int) -> bytes:
    piece = segments.slice(offset, size)
    assert piece is not None
    return bytes(piece)


def test_files_are_one_address_space(tmp_path: Path) -> None:
    segments = files(tmp_path, {0: SIZE, SIZE: SIZE})
    assert segments.load(setting="x") == []
    assert (segments.min_offset, segments.end_offset) == (0, 2 * SIZE)
    assert content(segments, SIZE + 7, 3) == b"\2\2\2"
    assert segments.slice(SIZE - 1, 2) is None
    assert segments.slice(2 * SIZE, 1) is None
    segments.close()


def test_a_missing_file_leaves_a_hole_that_is_named(tmp_path: Path) -> None:
    segments = files(tmp_path, {0: SIZE, 2 * SIZE: SIZE})
    assert segments.load(setting="x") == [f"bytes {SIZE} to {2 * SIZE} are missing"]
    assert segments.slice(SIZE, 1) is None
    assert segments.next_start(SIZE) == 2 * SIZE
    assert content(segments, 2 * SIZE, 1) == b"\3"
    segments.close()


def test_an_empty_last_file_is_removed_and_a_short_one_filled_up(tmp_path: Path) -> None:
    segments = files(tmp_path, {0: SIZE, SIZE: 100, 2 * SIZE: 0})
    oddities = segments.load(setting="x")
    assert oddities == [f"{segment_name(SIZE)} had 100 of {SIZE} bytes"]
    assert segments.starts == [0, SIZE]
    assert content(segments, SIZE + 99, 2) == b"\2\0"
    segments.close()


def test_files_of_another_size_are_refused_with_the_setting_to_change(tmp_path: Path) -> None:
    segments = files(tmp_path, {0: 2 * SIZE, 2 * SIZE: 2 * SIZE})
    with pytest.raises(ConfigError, match=f"fileSize is {SIZE}, but files .* have {2 * SIZE}"):
        segments.load(setting="fileSize")
    other = Segments(RealDisk(), tmp_path, 3 * SIZE)
    with pytest.raises(ConfigError, match=r"does not start at a multiple|have"):
        other.load(setting="fileSize")


def test_truncation_removes_later_files_and_zeroes_the_rest(tmp_path: Path) -> None:
    segments = files(tmp_path, {0: SIZE, SIZE: SIZE, 2 * SIZE: SIZE})
    segments.load(setting="x")
    segments.file(2 * SIZE)
    segments.truncate(SIZE + 10)
    assert segments.starts == [0, SIZE]
    assert content(segments, SIZE + 9, 2) == b"\2\0"
    assert not (tmp_path / segment_name(2 * SIZE)).exists()
    segments.close()


def test_slices_outlive_the_removal_of_their_file(tmp_path: Path) -> None:
    """A reader that is being sent a slice must not crash the process."""
    segments = files(tmp_path, {0: SIZE, SIZE: SIZE})
    segments.load(setting="x")
    piece = segments.slice(5, 3)
    assert segments.remove_first() == SIZE
    assert piece is not None
    assert bytes(piece) == b"\1\1\1"
    assert segments.slice(5, 3) is None
    segments.close()


def test_a_prepared_file_is_used_and_one_for_nothing_is_removed(tmp_path: Path) -> None:
    segments = Segments(RealDisk(), tmp_path, SIZE)
    segments.load(setting="x")
    segments.keep_prepared(segments.prepare(0))
    assert segments.is_prepared
    file = segments.add(0)
    assert file.size == SIZE
    assert not segments.is_prepared
    segments.keep_prepared(segments.prepare(SIZE))
    segments.close()
    assert [path.name for path in tmp_path.iterdir()] == [segment_name(0)]
