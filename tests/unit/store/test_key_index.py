from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING

import pytest

from firearrow.base.errors import ConfigError
from firearrow.hot import key_hash
from firearrow.store.disk import RealDisk
from firearrow.store.key_index import KeyIndex, index_file_bytes, index_file_name

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SLOTS, ENTRIES = 7, 12
START_MS = 1_700_000_000_000


class Names:
    """File names as a clock would give them, one millisecond apart."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> str:
        self.count += 1
        return f"{20261117120000000 + self.count}"


@pytest.fixture
def index(tmp_path: Path) -> Iterator[KeyIndex]:
    index = new_index(tmp_path)
    index.load(clean=True, index_timestamp=0, mark=None)
    yield index
    index.close()


def new_index(folder: Path) -> KeyIndex:
    return KeyIndex(RealDisk(), folder, slots=SLOTS, entries=ENTRIES, now_name=Names())


def query(
    index: KeyIndex, key: str, *, limit: int = 64, begin: int = 0, end: int = 99
) -> list[int]:
    return index.query(
        "orders", key, limit=limit, begin_ms=START_MS + begin * 1000, end_ms=START_MS + end * 1000
    )


def insert(index: KeyIndex, count: int) -> None:
    for number in range(count):
        index.insert("orders", ["all", f"k{number}"], 100 * number, START_MS + 1000 * number)


def test_the_first_entry_lies_where_rocketmq_puts_it(index: KeyIndex, tmp_path: Path) -> None:
    index.insert("TopicTest", ["KEY1"], 1024, START_MS)
    index.sync()
    (path,) = tmp_path.iterdir()
    content = path.read_bytes()
    assert key_hash("TopicTest", "KEY1") == 1656969516
    header = struct.unpack_from(">qqqqii", content)
    assert header == (START_MS, START_MS, 1024, 1024, 1, 2)
    slot = 1656969516 % SLOTS
    assert struct.unpack_from(">i", content, 40 + 4 * slot) == (1,)
    entry = struct.unpack_from(">iqii", content, 40 + 4 * SLOTS + 20)
    assert entry == (1656969516, 1024, 0, 0)


def test_keys_are_found_over_several_files_newest_first_up_to_a_limit(index: KeyIndex) -> None:
    insert(index, 20)  # 40 entries in files of 11
    assert index.statistics().files == 4
    assert query(index, "all") == [100 * n for n in range(20)]
    assert query(index, "all", limit=3) == [1700, 1800, 1900]
    assert query(index, "k7") == [700]
    assert query(index, "k20") == []
    assert query(index, "all", begin=3, end=5) == [300, 400, 500]


def test_a_record_that_is_there_already_is_not_inserted_again(index: KeyIndex) -> None:
    insert(index, 20)
    entries = index.statistics().entries
    for number in range(19):
        index.insert("orders", ["all"], 100 * number, START_MS)
    assert index.statistics().entries == entries


def test_a_cut_takes_back_what_lies_behind(index: KeyIndex) -> None:
    insert(index, 20)
    index.truncate(1150)
    assert query(index, "all") == [100 * n for n in range(12)]
    index.insert("orders", ["all", "new"], 1200, START_MS + 12_000)
    assert query(index, "new") == [1200]
    assert query(index, "all")[-1] == 1200
    index.truncate(0)
    assert index.statistics().files == 0


def test_after_a_crash_exactly_what_was_marked_is_kept(index: KeyIndex, tmp_path: Path) -> None:
    insert(index, 9)
    index.sync()
    mark = index.mark()
    assert mark is not None
    insert(index, 20)
    index.close()
    path = tmp_path / mark.name
    content = bytearray(path.read_bytes())
    content[: 40 + 4 * SLOTS] = b"\xff" * (40 + 4 * SLOTS)  # header and slots are torn
    path.write_bytes(content)
    again = new_index(tmp_path)
    again.load(clean=False, index_timestamp=0, mark=mark)
    assert query(again, "all") == [100 * n for n in range(9)]
    assert query(again, "k8") == [800]
    assert again.end_offset == 800
    insert(again, 20)
    assert query(again, "all") == [100 * n for n in range(20)]
    again.close()


@pytest.mark.parametrize("which", [0, 1, 3])
@pytest.mark.parametrize("damage", ["missing", "zeroed"])
def test_a_file_that_is_missing_or_empty_is_given_up_with_those_behind_it(
    index: KeyIndex, tmp_path: Path, which: int, damage: str
) -> None:
    insert(index, 20)
    mark = index.mark()
    index.close()
    path = sorted(tmp_path.iterdir())[which]
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(bytes(path.stat().st_size))
    again = new_index(tmp_path)
    again.load(clean=True, index_timestamp=0, mark=mark)
    assert not again.is_complete
    assert again.statistics().files == len(list(tmp_path.iterdir())) == which
    insert(again, 20)
    assert query(again, "all") == [100 * n for n in range(20)]
    again.close()


def test_files_that_went_with_the_log_are_not_missed(index: KeyIndex, tmp_path: Path) -> None:
    insert(index, 20)
    mark = index.mark()
    index.close()
    sorted(tmp_path.iterdir())[0].unlink()
    again = new_index(tmp_path)
    again.load(clean=True, index_timestamp=0, mark=mark, is_recent=False)
    assert again.is_complete
    assert again.statistics().files == 3
    again.close()


def test_after_a_crash_of_apache_files_newer_than_its_checkpoint_go(
    index: KeyIndex, tmp_path: Path
) -> None:
    insert(index, 20)
    index.sync()
    index.close()
    again = new_index(tmp_path)
    again.load(clean=False, index_timestamp=START_MS + 11_000, mark=None)
    assert again.statistics().files == 2
    assert again.end_offset is not None
    assert again.end_offset <= 1100
    again.close()


def test_leading_files_go_with_the_log_but_never_the_last(index: KeyIndex) -> None:
    insert(index, 20)
    assert index.delete_before(1100) == 2
    assert index.delete_before(1 << 40) == 1
    assert index.statistics().files == 1


def test_files_of_another_shape_are_refused_with_what_to_do(
    index: KeyIndex, tmp_path: Path
) -> None:
    insert(index, 3)
    mark = index.mark()
    index.close()
    for known in (None, mark):
        other = KeyIndex(RealDisk(), tmp_path, slots=8, entries=12, now_name=Names())
        with pytest.raises(ConfigError, match=r"maxHashSlotNum=8 .* made again from the log"):
            other.load(clean=True, index_timestamp=0, mark=known)


@pytest.mark.parametrize("which", [0, 1, 3])
@pytest.mark.parametrize("left", [0, 100])
def test_a_file_that_was_cut_is_given_up_with_those_behind_it(
    index: KeyIndex, tmp_path: Path, which: int, left: int
) -> None:
    insert(index, 20)
    mark = index.mark()
    index.close()
    cut = sorted(tmp_path.iterdir())[which]
    cut.write_bytes(cut.read_bytes()[:left])
    again = new_index(tmp_path)
    again.load(clean=True, index_timestamp=0, mark=mark)
    assert not again.is_complete
    assert again.statistics().files == which
    insert(again, 20)
    assert query(again, "all") == [100 * n for n in range(20)]
    again.close()


def test_an_empty_file_of_a_crash_is_removed(tmp_path: Path) -> None:
    (tmp_path / "20261117120000000").touch()
    index = new_index(tmp_path)
    index.load(clean=False, index_timestamp=0, mark=None)
    assert list(tmp_path.iterdir()) == []


def test_a_file_has_its_name_only_once_it_says_where_the_one_before_it_ended(
    index: KeyIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An Apache broker that finds it without, after a kill, indexes the whole log once more."""
    ends: list[int] = []
    sync = os.fsync

    def look(descriptor: int) -> None:
        named = sorted(path for path in tmp_path.iterdir() if path.name.isdigit())
        ends.extend(struct.unpack_from(">qqqqii", path.read_bytes())[3] for path in named[1:])
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", look)
    insert(index, 3 * ENTRIES)
    assert len(ends) > 3
    assert min(ends) > 0


def test_what_a_crash_left_of_a_new_file_is_removed(tmp_path: Path) -> None:
    (tmp_path / "20261117120000001.tmp").write_bytes(b"half of it")
    index = new_index(tmp_path)
    index.load(clean=False, index_timestamp=0, mark=None)
    assert list(tmp_path.iterdir()) == []
    index.close()


def test_names_stay_in_order_when_the_clock_steps_back(tmp_path: Path) -> None:
    index = KeyIndex(
        RealDisk(), tmp_path, slots=SLOTS, entries=ENTRIES, now_name=lambda: "20261117120000000"
    )
    index.load(clean=True, index_timestamp=0, mark=None)
    insert(index, 20)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"2026111712000000{n}" for n in range(4)
    ]
    index.close()


def test_names_and_sizes_are_rocketmqs() -> None:
    assert len(index_file_name(START_MS)) == 17
    assert index_file_name(START_MS + 7).endswith("007")
    assert index_file_bytes(5_000_000, 20_000_000) == 420_000_040
