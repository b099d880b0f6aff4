"""The disk that lies must lie the way disks do, or what it proves is worth nothing."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from tests.storing import turns

from firearrow.testing.lying_disk import LyingDisk
from firearrow.testing.lying_files import HoleWritten

ROOT = Path("/store")
LOG = ROOT / "log" / "000"
QUEUE = ROOT / "queue" / "0" / "000"
PAGE = 4_096


def endings(disk: LyingDisk, path: Path, seeds: int = 60) -> set[bytes | None]:
    """Everything that a file can be after a power loss, over many of them."""
    found = set()
    for _ in range(seeds):
        found.add(disk.after_process_crash().after_power_loss().read(path))
    return found


def test_what_was_synced_survives_every_power_loss() -> None:
    disk = LyingDisk(ROOT, seed=1)
    file = disk.map(LOG, 2 * PAGE, create=True)
    file.buffer[:4] = b"kept"
    file.sync()
    assert endings(disk, LOG) == {b"kept" + bytes(2 * PAGE - 4)}


def test_of_what_was_not_synced_any_page_may_be_there_and_any_not() -> None:
    disk = LyingDisk(ROOT, seed=1)
    file = disk.map(LOG, 2 * PAGE, create=True)
    file.buffer[0] = file.buffer[PAGE] = 1
    both = {(content[0], content[PAGE]) for content in endings(disk, LOG) if content}
    assert both == {(0, 0), (0, 1), (1, 0), (1, 1)}


def test_a_page_may_also_be_what_it_was_in_between() -> None:
    disk = LyingDisk(ROOT, seed=1)
    file = disk.map(LOG, PAGE, create=True)
    for value in (1, 2, 3):
        file.buffer[0] = value
        disk.observe()
    assert {content[0] for content in endings(disk, LOG) if content} == {0, 1, 2, 3}


def test_sectors_of_a_page_can_be_torn_if_asked() -> None:
    for torn in (True, False):
        disk = LyingDisk(ROOT, seed=1, torn_sectors=torn)
        file = disk.map(LOG, PAGE, create=True)
        file.buffer[0] = file.buffer[512] = 1
        ends = {(content[0], content[512]) for content in endings(disk, LOG) if content}
        assert ends == ({(0, 0), (0, 1), (1, 0), (1, 1)} if torn else {(0, 0), (1, 1)})


def test_a_name_is_there_for_sure_only_when_its_folder_was_synced() -> None:
    disk = LyingDisk(ROOT, seed=1)
    disk.write_at(QUEUE, 0, b"entry", file_bytes=5)
    assert endings(disk, QUEUE) >= {None, b"entry"}
    disk.sync([QUEUE])
    assert endings(disk, QUEUE) == {b"entry"}
    disk.remove(QUEUE)
    assert disk.read(QUEUE) is None
    assert endings(disk, QUEUE) == {None, b"entry"}
    disk.sync_folder(QUEUE.parent)
    assert endings(disk, QUEUE) == {None}


def test_a_note_is_the_old_one_or_the_new_one() -> None:
    disk = LyingDisk(ROOT, seed=1)
    disk.replace(ROOT / "note", b"old")
    ends = set()
    for operations in range(1, 5):
        for _ in range(20):
            copy = disk.after_process_crash()
            copy.lose_power_after(operations)
            copy.replace(ROOT / "note", b"new")
            ends.add((operations, copy.after_power_loss().read(ROOT / "note")))
    assert {content for _, content in ends} == {b"old", b"new"}
    assert (1, b"new") not in ends
    assert (4, b"old") not in ends


def test_a_process_crash_forgets_nothing_and_the_next_power_loss_still_can() -> None:
    disk = LyingDisk(ROOT, seed=1)
    disk.map(LOG, PAGE, create=True).buffer[0] = 1
    disk = disk.after_process_crash()
    content = disk.read(LOG)
    assert content is not None
    assert content[0] == 1
    assert {content[0] for content in endings(disk, LOG) if content} == {0, 1}


def test_one_seed_is_one_story() -> None:
    def story(seed: int) -> list[bytes | None]:
        disk = LyingDisk(ROOT, seed=seed, torn_sectors=True)
        found = []
        for number in range(6):
            file = disk.map(LOG, 4 * PAGE, create=True)
            for at in range(0, 4 * PAGE, 700):
                file.buffer[at] = number + 1
            disk = disk.after_power_loss()
            found.append(disk.read(LOG))
        return found

    assert story(3) == story(3)
    assert len({str(story(seed)) for seed in range(5)}) == 5


def test_the_power_can_go_in_the_middle_and_the_ghost_does_not_matter() -> None:
    disk = LyingDisk(ROOT, seed=1)
    file = disk.map(LOG, PAGE, create=True)
    disk.lose_power_after(1)
    assert not disk.power_is_lost
    file.buffer[0] = 1
    file.sync()
    assert disk.power_is_lost
    file.buffer[0] = 2
    file.sync()
    content = disk.after_power_loss().read(LOG)
    assert content is not None
    assert content[0] in {0, 1}


def test_a_full_disk_refuses_and_takes_again() -> None:
    disk = LyingDisk(ROOT, seed=1)
    file = disk.map(LOG, 4 * PAGE, create=True)
    disk.capacity = 2 * PAGE
    file.reserve(0, 2 * PAGE)
    assert disk.usage(ROOT) == (2 * PAGE, 0)
    for full in (
        lambda: file.reserve(PAGE, 2 * PAGE),
        lambda: disk.write_at(QUEUE, 0, b"entry", file_bytes=5),
        lambda: disk.map(ROOT / "other", PAGE, create=True),
        lambda: disk.replace(ROOT / "note", b"x"),
    ):
        with pytest.raises(OSError, match="No space left") as raised:
            full()
        assert raised.value.errno == errno.ENOSPC
    disk.capacity = 4 * PAGE
    file.reserve(PAGE, 3 * PAGE)


def test_writing_into_a_hole_of_a_full_disk_is_death() -> None:
    disk = LyingDisk(ROOT, seed=1)
    file = disk.map(LOG, 2 * PAGE, create=True)
    disk.capacity = PAGE
    file.reserve(0, PAGE)
    file.buffer[PAGE] = 1
    with pytest.raises(HoleWritten):
        disk.observe()


def test_after_a_failed_sync_the_next_one_proves_nothing() -> None:
    disk = LyingDisk(ROOT, seed=1)
    file = disk.map(LOG, PAGE, create=True)
    file.buffer[0] = 1
    disk.fail_sync()
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    file.sync()
    assert {content[0] for content in endings(disk, LOG) if content} == {0}


async def test_a_slow_disk_syncs_what_there_was_when_the_sync_began() -> None:
    disk = LyingDisk(ROOT, seed=1)
    file = disk.map(LOG, 2 * PAGE, create=True)
    disk.slow = True
    told: list[OSError | None] = []
    syncer = disk.syncer()
    file.buffer[0] = 1
    syncer.begin([file], told.append)
    file.buffer[PAGE] = 1
    await turns()
    assert told == []
    disk.end_syncs()
    assert told == [None]
    ends = {(content[0], content[PAGE]) for content in endings(disk, LOG) if content}
    assert ends == {(1, 0), (1, 1)}


async def test_a_file_that_is_closed_while_it_is_synced_fails_the_sync() -> None:
    disk = LyingDisk(ROOT, seed=1)
    file = disk.map(LOG, PAGE, create=True)
    told: list[OSError | None] = []
    disk.syncer().begin([file], told.append)
    file.close()
    await turns()
    (error,) = told
    assert error is not None
    assert error.errno == errno.EBADF
