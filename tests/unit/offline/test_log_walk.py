from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from tests.store_builder import StoreBuilder, sample_store

from firearrow.offline.directory import Shape
from firearrow.offline.log_walk import WINDOW_BYTES, Batch, Damage, LogFile, LogWalk

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from firearrow.offline.directory import StoreDirectory


def offsets_in(
    store: StoreDirectory, *, first_offset: int = 0, end_offset: int | None = None
) -> list[int]:
    return [
        record.physical_offset
        for found in store.walk(first_offset=first_offset, end_offset=end_offset)
        if isinstance(found, Batch)
        for record in found.records
    ]


def damage_in(store: StoreDirectory) -> list[Damage]:
    return [found for found in store.walk() if isinstance(found, Damage)]


def test_every_record_is_found_in_order(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    stored = sample.builder.stored
    walk = sample.open().walk()
    found = [
        (record, batch.raw(record))
        for batch in walk
        if isinstance(batch, Batch)
        for record in batch.records
    ]
    assert [record.physical_offset for record, _ in found] == [each.offset for each in stored]
    assert all(len(raw) == each.size for (_, raw), each in zip(found, stored, strict=True))
    assert walk.records == len(stored)
    assert walk.end_offset == stored[-1].offset + stored[-1].size
    assert walk.newest_timestamp == stored[-1].timestamp
    assert walk.debris == []


def test_only_files_that_overlap_the_range_are_read(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    everything = offsets_in(sample.open())
    some = offsets_in(sample.open(), first_offset=2048 + 7, end_offset=4096)
    assert some == [offset for offset in everything if 2048 <= offset < 4096]
    assert some


def test_a_part_of_the_log_still_knows_that_the_log_goes_on(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    blank = sample.builder.log.index(b"\xcb\xd4\x31\x94") - 4
    sample.patch_log(blank, bytes(8))
    walk = sample.open().walk(end_offset=2048)
    assert [found.code for found in walk if isinstance(found, Damage)] == ["C4"]


def test_records_behind_a_break_are_found(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    before = offsets_in(sample.open())
    sample.patch_log(sample.keyless.offset + 88, b"?")
    store = sample.open()
    assert offsets_in(store) == [at for at in before if at != sample.keyless.offset]
    (damage,) = damage_in(store)
    assert (damage.offset, damage.size) == (sample.keyless.offset, sample.keyless.size)
    assert "CRC" in damage.reason


def test_a_record_inside_a_body_is_not_taken_for_one_of_the_log(tmp_path: Path) -> None:
    sample = sample_store(tmp_path / "other")
    foreign = bytes(sample.builder.log[: sample.timed.size])
    builder = StoreBuilder(tmp_path / "store")
    builder.append()
    victim = builder.append(body=b"x" + foreign)
    after = builder.append()
    builder.close()
    with (tmp_path / "store/commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(victim.offset + 88)
        file.write(b"?")
    assert offsets_in(builder.open()) == [0, after.offset]


def test_a_record_larger_than_a_window_is_found(tmp_path: Path) -> None:
    shape = Shape(segment_bytes=4 * WINDOW_BYTES)
    builder = StoreBuilder(tmp_path, shape)
    for size in (10, WINDOW_BYTES - 100, WINDOW_BYTES, 2 * WINDOW_BYTES, 10):
        builder.append(body=b"b" * size)
    builder.write_log()
    assert offsets_in(builder.open()) == [stored.offset for stored in builder.stored]


def test_a_magic_code_across_two_windows_is_found(tmp_path: Path) -> None:
    for shift in range(8):
        folder = tmp_path / str(shift)
        builder = StoreBuilder(folder, Shape(segment_bytes=2 * WINDOW_BYTES))
        # Broken from byte 0 on, so that the search begins at 1 and its windows end at 1 + 1 MiB.
        first = builder.append(body=bytes(WINDOW_BYTES - 200))
        padding = WINDOW_BYTES + 1 - shift - first.size - 97
        builder.append(body=bytes(padding))
        wanted = builder.append()
        builder.write_log()
        with (folder / "commitlog" / f"{0:020d}").open("r+b") as file:
            file.write(bytes(wanted.offset))
        assert offsets_in(builder.open()) == [wanted.offset], shift


def test_a_size_beyond_reason_is_damage(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    sample.patch_log(sample.keyless.offset, struct.pack(">i", 0x7FFFFFFF))
    (damage,) = damage_in(sample.open())
    assert damage.code == "C3"
    assert "2147483647 bytes" in damage.reason


def test_a_record_that_leaves_no_room_for_a_blank_is_damage(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path, Shape(segment_bytes=400))
    builder.append(body=b"x" * 250)
    size = builder.stored[0].size
    builder.write_log()
    store = builder.open()
    assert offsets_in(store) == [0]
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(bytes(builder.log[:size]).ljust(size + 7))
    for left, found in ((7, []), (8, [0])):
        (tmp_path / "commitlog" / f"{0:020d}").write_bytes(bytes(builder.log) + bytes(left))
        shape = Shape(segment_bytes=size + left)
        assert offsets_in(StoreBuilder(tmp_path, shape).open()) == found


def test_a_file_that_is_gone_is_damage_and_no_traceback(tmp_path: Path) -> None:
    gone = LogFile(tmp_path / f"{0:020d}", 0, 100)
    (damage,) = list(LogWalk([gone], segment_bytes=100))
    assert isinstance(damage, Damage)
    assert (damage.code, damage.size) == ("C1", 100)
    assert "No such file" in damage.reason


def test_progress_ends_with_everything(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    seen: list[tuple[int, int]] = []
    list(sample.open().walk(progress=lambda done, total: seen.append((done, total))))
    total = sum(path.stat().st_size for path in (tmp_path / "commitlog").iterdir())
    assert seen[-1] == (total, total)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


@given(data=st.data())
def test_a_walk_ends_and_finds_nothing_that_was_not_stored(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    sample = sample_store(tmp_path_factory.mktemp("walk") / "store")
    log_bytes = len(sample.builder.log)
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(0, log_bytes - 1))
        content = data.draw(st.binary(min_size=1, max_size=min(60, log_bytes - at)))
        content = content[: 2048 - at % 2048]
        sample.patch_log(at, content)
    stored = {each.offset: each.size for each in sample.builder.stored}
    for found in sample.open().walk():
        if isinstance(found, Batch):
            for record in found.records:
                assert stored[record.physical_offset] == record.size
        else:
            assert found.size > 0
