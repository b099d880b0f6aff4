from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from firearrow.offline.index_files import IndexTable, likely_shape, open_tables
from firearrow.offline.index_writer import IndexWriter
from firearrow.store.key_index import index_file_bytes

if TYPE_CHECKING:
    from pathlib import Path


def write_index(folder: Path, *, slots: int, entries: int, records: int) -> list[Path]:
    writer = IndexWriter(folder, slots=slots, entries=entries)
    for number in range(records):
        writer.add("Orders", [f"k{number}", f"u{number}"], number * 120, 1_000 + number * 300)
    writer.finish()
    return sorted(folder.iterdir())


@pytest.mark.parametrize(
    ("slots", "entries", "records"),
    [(500, 400, 30), (500, 400, 199), (7, 4000, 1500), (1000, 11, 5), (3, 3, 1), (5, 64, 31)],
)
def test_slots_and_entries_are_found_out_from_the_content(
    slots: int, entries: int, records: int, tmp_path: Path
) -> None:
    first = write_index(tmp_path, slots=slots, entries=entries, records=records)[0]
    assert first.stat().st_size == index_file_bytes(slots, entries)
    assert likely_shape(IndexTable(first, None)) == (slots, entries)


def test_files_of_one_size_share_a_shape(tmp_path: Path) -> None:
    paths = write_index(tmp_path, slots=50, entries=40, records=60)
    newest = paths[-1].with_name("99999999999999999")
    newest.write_bytes(bytes(index_file_bytes(50, 40)))  # made just now, nothing in it
    tables = open_tables([*paths, newest])
    assert {table.shape for table in tables} == {(50, 40)}
    assert [table.count for table in tables] == [39, 39, 39, 3, 0]


def test_entries_come_in_the_order_of_insertion(tmp_path: Path) -> None:
    paths = write_index(tmp_path, slots=50, entries=40, records=10)
    (table,) = open_tables(paths)
    entries = [entry for portion in table.entries() for entry in portion]
    assert [offset for _, offset, _, _ in entries] == [n // 2 * 120 for n in range(20)]
    assert [seconds for _, _, seconds, _ in entries] == [n // 2 * 300 // 1000 for n in range(20)]


def test_a_file_cut_while_we_look_has_fewer_entries(tmp_path: Path) -> None:
    (path,) = write_index(tmp_path, slots=50, entries=40, records=10)
    (table,) = open_tables([path])
    path.write_bytes(path.read_bytes()[: 40 + 200 + 20 + 7 * 20 + 3])
    assert sum(len(portion) for portion in table.entries()) == 7
    assert table.count == 20


@pytest.mark.parametrize("size", [0, 39, 40, 100])
def test_a_file_without_content_has_no_shape(size: int, tmp_path: Path) -> None:
    path = tmp_path / "20261115085555480"
    path.write_bytes(bytes(size))
    (table,) = open_tables([path])
    assert (table.shape, table.count, list(table.entries())) == (None, 0, [])
    assert list(table.slots()) == []
