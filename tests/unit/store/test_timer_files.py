"""The timer's wheel, log and checkpoint: bytes, and what is left of them after a crash."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow.base.errors import ConfigError
from firearrow.store.disk import RealDisk
from firearrow.store.timer_checkpoint import CHECKPOINT_BYTES, TimerCheckpoint
from firearrow.store.timer_files import Found, TimerFiles
from firearrow.store.timer_log import ENTRY_BYTES, MAGIC_DELETE, TimerEntry, TimerLog, walk
from firearrow.store.timer_wheel import SLOT_BYTES, SLOTS_A_TURN, Slot, TimerWheel

if TYPE_CHECKING:
    from pathlib import Path

NOW_MS = 1_700_000_000_000
FILE_BYTES = 5 * ENTRY_BYTES + 16 + 7  # room for five entries, and a bit


def entry(number: int, previous: int = -1, *, slot_ms: int = NOW_MS, magic: int = 1) -> TimerEntry:
    return TimerEntry(
        size=ENTRY_BYTES,
        previous=previous,
        magic=magic,
        written_ms=slot_ms - 5_000,
        delay_ms=5_000,
        physical_offset=number * 1_000,
        record_bytes=100 + number,
        topic_hash=-7,
    )


# --- log ------------------------------------------------------------------------------------


def test_an_entry_has_rocketmqs_bytes() -> None:
    raw = entry(3, 104).encode()
    assert len(raw) == 52
    assert struct.unpack(">iqiqiqiiq", raw) == (
        52, 104, 1, NOW_MS - 5_000, 5_000, 3_000, 103, -7, 0,
    )  # fmt: skip


def test_a_full_file_ends_with_a_filler_and_the_next_begins(tmp_path: Path) -> None:
    log = TimerLog(RealDisk(), tmp_path / "timerlog", FILE_BYTES)
    log.load()
    positions = [log.append(entry(number)) for number in range(7)]
    assert positions == [0, 52, 104, 156, 208, FILE_BYTES, FILE_BYTES + 52]
    raw = (tmp_path / "timerlog" / f"{0:020d}").read_bytes()
    assert len(raw) == FILE_BYTES
    size, zero, magic = struct.unpack_from(">iqI", raw, 260)
    assert (size, zero, magic) == (FILE_BYTES - 260, 0, 0xCBD43194)
    assert [at for at, _ in log.entries(0)] == positions
    assert [at for at, _ in log.entries(104)] == positions[2:]
    log.close()


def test_a_chain_is_walked_back_file_by_file(tmp_path: Path) -> None:
    log = TimerLog(RealDisk(), tmp_path / "timerlog", FILE_BYTES)
    log.load()
    before = -1
    for number in range(8):
        before = log.append(entry(number, before))
    seen: list[int] = []
    position = before
    while position >= 0:
        piece = log.piece(position)
        assert piece is not None
        found, position = walk(*piece, position, 2)
        assert 1 <= len(found) <= 2
        seen += [one.physical_offset // 1_000 for _, one in found]
    assert seen == [7, 6, 5, 4, 3, 2, 1, 0]
    log.close()


def test_a_chain_that_leads_forward_ends(tmp_path: Path) -> None:
    log = TimerLog(RealDisk(), tmp_path / "timerlog", FILE_BYTES)
    log.load()
    log.append(entry(0, 52))
    at = log.append(entry(1, 0))
    piece = log.piece(at)
    assert piece is not None
    found, position = walk(*piece, at, 100)
    assert len(found) == 2
    assert position == -1
    log.close()


def test_files_that_lead_to_nothing_go(tmp_path: Path) -> None:
    log = TimerLog(RealDisk(), tmp_path / "timerlog", FILE_BYTES)
    log.load()
    for number in range(12):
        log.append(entry(number))
    assert log.remove_before(4_000) == 0  # the last entry of the first file leads there
    assert log.remove_before(4_001) == 1
    assert log.min_position == FILE_BYTES
    assert log.entry(0) is None
    assert log.remove_before(1 << 40) == 1  # the newest stays
    log.close()


# --- wheel ----------------------------------------------------------------------------------


def wheel_at(path: Path, slots: int = SLOTS_A_TURN) -> TimerWheel:
    return TimerWheel(RealDisk(), path, precision_ms=1_000, slots_a_turn=slots)


def test_a_slot_lies_where_rocketmq_looks_for_it(tmp_path: Path) -> None:
    wheel = wheel_at(tmp_path / "timerwheel")
    wheel.add(NOW_MS, 52, change=1)
    wheel.add(NOW_MS, 104, change=1)
    wheel.add(NOW_MS, 156, change=-1)
    assert not (tmp_path / "timerwheel").exists(), "nothing is written before it may be"
    wheel.take_changes()
    wheel.write(10)
    wheel.close()
    raw = (tmp_path / "timerwheel").read_bytes()
    assert len(raw) == 38_707_200
    assert struct.unpack_from(">qqqii", raw, 16_384_000) == (NOW_MS // 1_000, 52, 156, 1, 0)
    assert wheel.load()
    assert wheel.get(NOW_MS) == Slot(NOW_MS, 52, 156, 1)
    assert wheel.get(NOW_MS + 1_000) is None
    assert wheel.get(NOW_MS + 2 * SLOTS_A_TURN * 1_000) is None, "the same place, another time"
    assert list(wheel.used()) == [Slot(NOW_MS, 52, 156, 1)]
    wheel.close()


def test_a_wheel_of_another_length_is_refused(tmp_path: Path) -> None:
    (tmp_path / "timerwheel").write_bytes(bytes(SLOT_BYTES * 3))
    with pytest.raises(ConfigError, match="is damaged"):
        wheel_at(tmp_path / "timerwheel").load()


# --- checkpoint -----------------------------------------------------------------------------

longs = st.integers(0, (1 << 63) - 1)


@given(st.tuples(*[longs] * 10))
def test_a_checkpoint_of_ours_is_read_back(fields: tuple[int, ...]) -> None:
    checkpoint = TimerCheckpoint(*fields)
    raw = checkpoint.encode()
    assert len(raw) == CHECKPOINT_BYTES
    assert TimerCheckpoint.decode(raw) == checkpoint
    assert struct.unpack_from(">7q", raw) == fields[:7]


def test_what_rocketmq_wrote_over_ours_counts_alone() -> None:
    ours = TimerCheckpoint(1, 2, 3, 4, 5, 6, 7, precision_ms=1_000, wheel_to=8, log_offset=9)
    raw = struct.pack(">q", 77) + ours.encode()[8:]
    found = TimerCheckpoint.decode(raw)
    assert found == TimerCheckpoint(77, 2, 3, 4, 5, 6, 7)
    assert TimerCheckpoint.decode(b"short") is None
    assert TimerCheckpoint.decode(None) is None


# --- all together ---------------------------------------------------------------------------


def files_at(root: Path, precision_ms: int = 1_000) -> TimerFiles:
    return TimerFiles(
        RealDisk(), root, log_file_bytes=FILE_BYTES, precision_ms=precision_ms, slots_a_turn=100
    )


def opened(files: TimerFiles) -> Found:
    return files.open(
        NOW_MS,
        begun_ms=NOW_MS,
        queue_offset_of=lambda physical: physical // 1_000,
        physical_of=lambda queue_offset: queue_offset * 1_000,
    )


def put(files: TimerFiles, number: int, slot_ms: int, *, magic: int = 1) -> int:
    slot = files.wheel.get(slot_ms)
    position = files.log.append(
        entry(number, -1 if slot is None else slot.last, slot_ms=slot_ms, magic=magic)
    )
    files.wheel.add(slot_ms, position, change=-1 if magic & MAGIC_DELETE else 1)
    return position


def save(files: TimerFiles, queue_offset: int, *, wheel: bool = True) -> None:
    saving = files.saving(NOW_MS, read_ms=NOW_MS, queue_offset=queue_offset, log_offset=0)
    files.save(saving, b"{}")
    files.saved(saving)
    if wheel:
        while files.wheel.is_leaving:
            files.wheel.write(1)
        files.wheel_saved(saving)


def test_a_new_directory_begins_now(tmp_path: Path) -> None:
    assert opened(files_at(tmp_path)) == Found(read_ms=NOW_MS, queue_offset=0, log_offset=0)
    assert list(tmp_path.iterdir()) == []


def test_what_the_wheel_misses_is_read_from_the_log(tmp_path: Path) -> None:
    files = files_at(tmp_path)
    opened(files)
    put(files, 0, NOW_MS)
    save(files, 1)
    second = put(files, 1, NOW_MS)
    third = put(files, 2, NOW_MS + 1_000)
    save(files, 3, wheel=False)
    put(files, 3, NOW_MS)  # not saved at all
    files.close()
    again = files_at(tmp_path)
    assert opened(again).queue_offset == 3
    assert again.log.end == 3 * ENTRY_BYTES
    assert again.wheel.get(NOW_MS) == Slot(NOW_MS, 0, second, 2)
    assert again.wheel.get(NOW_MS + 1_000) == Slot(NOW_MS + 1_000, third, third, 1)
    assert [one.physical_offset for _, one in again.log.entries(0)] == [0, 1_000, 2_000]
    again.close()


def test_a_wheel_that_is_lost_is_made_again_from_the_log(tmp_path: Path) -> None:
    files = files_at(tmp_path)
    opened(files)
    positions = [put(files, number, NOW_MS + number % 2 * 1_000) for number in range(9)]
    save(files, 9)
    files.close()
    (tmp_path / "timerwheel").unlink()
    again = files_at(tmp_path)
    assert opened(again).queue_offset == 9
    assert again.wheel.get(NOW_MS) == Slot(NOW_MS, positions[0], positions[8], 5)
    assert again.wheel.get(NOW_MS + 1_000) == Slot(NOW_MS + 1_000, positions[1], positions[7], 4)
    again.close()


def test_a_log_that_is_lost_is_made_again_from_the_queue(tmp_path: Path) -> None:
    files = files_at(tmp_path)
    opened(files)
    for number in range(9):
        put(files, number, NOW_MS)
    save(files, 9)
    files.close()
    (tmp_path / "timerlog" / f"{FILE_BYTES:020d}").unlink()
    again = files_at(tmp_path)
    found = opened(again)
    assert (found.queue_offset, found.rebuilt_to) == (0, 9)
    assert again.wheel.get(NOW_MS) is None
    put(again, 0, NOW_MS)
    again.close()


def test_another_precision_is_refused(tmp_path: Path) -> None:
    files = files_at(tmp_path)
    opened(files)
    put(files, 0, NOW_MS)
    save(files, 1)
    files.close()
    with pytest.raises(ConfigError, match="timerPrecisionMs is 100"):
        opened(files_at(tmp_path, precision_ms=100))
    forget_our_note(tmp_path)
    with pytest.raises(ConfigError, match="written with 1000"):
        opened(files_at(tmp_path, precision_ms=100))


def forget_our_note(root: Path, **fields: int) -> None:
    """Leave the checkpoint as RocketMQ would have written it."""
    path = root / "config" / "timercheck"
    found = TimerCheckpoint.decode(path.read_bytes())
    assert found is not None
    values = dict(zip(("read", "log", "queue", "master"), struct.unpack(">4q", found.fields[:32]),
                      strict=True)) | fields  # fmt: skip
    path.write_bytes(struct.pack(">4q", *values.values()) + bytes(4096 - 32))


def test_a_directory_of_rocketmq_goes_on_at_the_end_of_its_log(tmp_path: Path) -> None:
    files = files_at(tmp_path)
    opened(files)
    for number in range(4):
        put(files, number, NOW_MS)
    save(files, 4)
    put(files, 4, NOW_MS)
    last = put(files, 5, NOW_MS)
    files.close()
    forget_our_note(tmp_path, queue=4, master=4)
    again = files_at(tmp_path)
    found = opened(again)
    assert found.queue_offset == 4, "the master's offset limits it"
    assert found.known == {4_000, 5_000}, "and what the log has already is not put there again"
    assert found.log_offset is None
    assert again.wheel.get(NOW_MS) == Slot(NOW_MS, 0, last, 6)
    again.close()


def test_slots_that_lead_behind_the_log_are_led_back(tmp_path: Path) -> None:
    files = files_at(tmp_path)
    opened(files)
    for number in range(3):
        put(files, number, NOW_MS)
    save(files, 3)
    put(files, 3, NOW_MS)
    save(files, 4)
    files.close()
    forget_our_note(tmp_path)
    path = tmp_path / "timerlog" / f"{0:020d}"
    raw = path.read_bytes()
    path.write_bytes(raw[: 3 * ENTRY_BYTES] + bytes(len(raw) - 3 * ENTRY_BYTES))
    again = files_at(tmp_path)
    assert opened(again).queue_offset == 3
    slot = again.wheel.get(NOW_MS)
    assert slot is not None
    assert slot.last == 2 * ENTRY_BYTES
    again.close()
