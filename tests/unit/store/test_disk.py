"""What the store relies on: both disks do the same, and the real one syncs what it promises."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from firearrow.store.disk import RealDisk
from firearrow.testing.lying_disk import LyingDisk

if TYPE_CHECKING:
    from firearrow.store.disk import Disk


@pytest.fixture(params=["real", "lying"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return RealDisk() if request.param == "real" else LyingDisk(tmp_path, seed=1)


def test_a_new_file_is_zeros_and_keeps_what_is_written(disk: Disk, tmp_path: Path) -> None:
    path = tmp_path / "log" / "000"
    file = disk.map(path, 8_192, create=True)
    assert (file.size, len(file.buffer), file.path) == (8_192, 8_192, path)
    assert not any(file.buffer)
    file.reserve(0, 8_192)
    file.buffer[100:104] = b"here"
    file.sync()
    file.warm(0, 8_192)
    file.close()
    again = disk.map(path, 8_192, create=True)
    assert bytes(again.buffer[99:105]) == b"\0here\0"
    again.close()
    assert disk.names(path.parent) == ["000"]
    assert disk.size_of(path) == 8_192


def test_a_file_that_is_not_there_is_not_mapped(disk: Disk, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        disk.map(tmp_path / "log" / "000", 100)
    assert disk.size_of(tmp_path / "log" / "000") is None
    assert disk.names(tmp_path / "log") == []
    assert disk.read(tmp_path / "log") is None


def test_slices_stay_valid_when_their_file_is_closed(disk: Disk, tmp_path: Path) -> None:
    file = disk.map(tmp_path / "000", 100, create=True)
    file.buffer[:4] = b"here"
    piece = file.buffer[:4]
    file.close()
    disk.remove(tmp_path / "000")
    assert bytes(piece) == b"here"


def test_a_file_can_be_cut_and_extended_with_zeros(disk: Disk, tmp_path: Path) -> None:
    disk.write_at(tmp_path / "000", 0, b"0123456789", file_bytes=20)
    disk.resize(tmp_path / "000", keep=4, size=12)
    assert disk.read(tmp_path / "000") == b"0123" + bytes(8)


def test_parts_of_files_are_read_and_written(disk: Disk, tmp_path: Path) -> None:
    path = tmp_path / "queue" / "0" / "000"
    assert disk.read_at(path, 0, 10) == b""
    disk.write_at(path, 20, b"entry", file_bytes=40)
    assert disk.size_of(path) == 40
    assert disk.read_at(path, 18, 10) == b"\0\0entry\0\0\0"
    assert disk.read_at(path, 38, 10) == b"\0\0"
    disk.warm(path, 0, 40)
    disk.sync([path, tmp_path / "queue" / "0" / "gone"])
    disk.remove(tmp_path / "queue")
    disk.remove(tmp_path / "queue")
    assert disk.names(tmp_path / "queue") == []
    disk.write_at(path, 0, b"anew", file_bytes=4)  # and not into the file that was removed
    assert disk.read(path) == b"anew"
    disk.close()


def test_small_files_are_replaced_as_a_whole(disk: Disk, tmp_path: Path) -> None:
    disk.replace(tmp_path / "note", b"first, and longer")
    disk.replace(tmp_path / "note", b"second")
    assert disk.read(tmp_path / "note") == b"second"
    used, free = disk.usage(tmp_path / "nowhere")
    assert used >= 0
    assert free > 0


# --- the real disk ----------------------------------------------------------------------------


class Syncs:
    """Which paths were synced, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.paths: list[Path] = []
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, self._recording(getattr(os, name)))

    def _recording(self, original: object) -> object:
        def record(descriptor: int) -> None:
            self.paths.append(Path(f"/proc/self/fd/{descriptor}").readlink())
            assert callable(original)
            original(descriptor)

        return record


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> Syncs:
    return Syncs(monkeypatch)


def test_a_new_log_file_is_durable_with_all_its_names(tmp_path: Path, syncs: Syncs) -> None:
    RealDisk().map(tmp_path / "store" / "commitlog" / "000", 4_096, create=True).close()
    store = tmp_path / "store"
    assert set(syncs.paths) == {
        tmp_path,
        store,
        store / "commitlog",
        store / "commitlog" / "000",
    }


def test_a_cut_is_durable(tmp_path: Path, syncs: Syncs) -> None:
    (tmp_path / "000").write_bytes(b"0123456789")
    RealDisk().resize(tmp_path / "000", keep=4, size=12)
    assert syncs.paths == [tmp_path / "000"]


def test_a_queue_file_is_durable_with_all_its_names(tmp_path: Path, syncs: Syncs) -> None:
    disk = RealDisk()
    path = tmp_path / "consumequeue" / "orders" / "0" / "000"
    disk.write_at(path, 0, b"entry", file_bytes=20)
    assert syncs.paths == [], "writing does not wait for the disk"
    disk.sync([path])
    assert syncs.paths[0] == path
    assert set(syncs.paths) == {path, *list(path.parents)[:3]}
    disk.close()


def test_a_note_is_synced_before_it_gets_its_name_and_its_name_after(
    tmp_path: Path, syncs: Syncs
) -> None:
    RealDisk().replace(tmp_path / "note", b"content")
    assert [path.name for path in syncs.paths] == ["note.tmp", tmp_path.name]
