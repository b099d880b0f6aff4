from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, NoReturn

import pytest

from firearrow.base.errors import ConfigError
from firearrow.base.files import (
    backup_of,
    load_with_backup,
    read_with_backup,
    write_atomically,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kvConfig.json"


def fail(*_: object, **__: object) -> NoReturn:
    raise OSError(errno.EIO, "the machine stops here")


def test_first_write_makes_the_folders_and_no_backup(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "kvConfig.json"
    write_atomically(path, b"first")
    assert path.read_bytes() == b"first"
    assert [entry.name for entry in path.parent.iterdir()] == ["kvConfig.json"]


def test_each_write_keeps_the_version_before_it_as_backup(path: Path) -> None:
    for content in (b"first", b"second", b"third"):
        write_atomically(path, content)
    assert path.read_bytes() == b"third"
    assert backup_of(path).read_bytes() == b"second"
    assert sorted(entry.name for entry in path.parent.iterdir()) == [
        "kvConfig.json",
        "kvConfig.json.bak",
    ]


def test_backup_never_disappears_while_it_is_replaced(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_atomically(path, b"first")
    write_atomically(path, b"second")
    seen: list[bytes] = []
    real_unlink, real_replace = os.unlink, os.replace

    def look() -> None:
        seen.append(backup_of(path).read_bytes())

    def unlink(*names: Path) -> None:
        real_unlink(*names)
        look()

    def replace(old: Path, new: Path) -> None:
        look()
        real_replace(old, new)
        look()

    monkeypatch.setattr(os, "unlink", unlink)
    monkeypatch.setattr(os, "replace", replace)
    write_atomically(path, b"third")
    assert seen[0] == b"first"
    assert seen[-1] == b"second"


def test_nothing_to_read_is_none(path: Path) -> None:
    assert read_with_backup(path) is None


def test_file_is_read_before_its_backup(path: Path) -> None:
    path.write_bytes(b"new")
    backup_of(path).write_bytes(b"old")
    assert read_with_backup(path) == b"new"


@pytest.mark.parametrize("left", [None, b"", b" \n"])
def test_backup_is_read_when_the_file_is_missing_or_empty(path: Path, left: bytes | None) -> None:
    backup_of(path).write_bytes(b"old")
    if left is not None:
        path.write_bytes(left)
    assert read_with_backup(path) == b"old"


def test_empty_file_with_an_empty_backup_is_none(path: Path) -> None:
    path.write_bytes(b"")
    backup_of(path).write_bytes(b"\n")
    assert read_with_backup(path) is None


def test_file_that_may_not_be_read_is_an_error_and_not_a_reason_for_the_backup(path: Path) -> None:
    path.mkdir()
    backup_of(path).write_bytes(b"old")
    with pytest.raises(IsADirectoryError):
        read_with_backup(path)


@pytest.mark.parametrize("step", ["fsync", "link", "replace"])
def test_crash_before_the_rename_leaves_the_old_content(
    path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_atomically(path, b"older")
    write_atomically(path, b"old")
    with monkeypatch.context() as broken:
        broken.setattr(os, step, fail)
        with pytest.raises(OSError, match="the machine stops here"):
            write_atomically(path, b"new")
    assert path.read_bytes() == b"old", "the file itself never disappears"
    assert read_with_backup(path) == b"old"
    write_atomically(path, b"next")
    assert (path.read_bytes(), backup_of(path).read_bytes()) == (b"next", b"old")


def test_crash_after_the_rename_leaves_the_new_content(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_atomically(path, b"old")
    synced: list[int] = []

    def fsync(descriptor: int) -> None:
        synced.append(descriptor)
        if len(synced) == 2:
            fail()

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="the machine stops here"):
        write_atomically(path, b"new")
    assert read_with_backup(path) == b"new"
    assert backup_of(path).read_bytes() == b"old"


def test_content_is_on_the_disk_before_it_gets_its_name(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    real_fsync, real_replace = os.fsync, os.replace

    def fsync(descriptor: int) -> None:
        folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        steps.append("sync folder" if folder else "sync file")
        real_fsync(descriptor)

    def replace(old: Path, new: Path) -> None:
        steps.append("rename")
        real_replace(old, new)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    write_atomically(path, b"new")
    assert steps == ["sync file", "rename", "sync folder"]


def test_backup_that_stands_in_for_an_empty_file_survives_a_crash_of_the_next_write(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_bytes(b"")  # what a crash of another program left
    backup_of(path).write_bytes(b"all we have")
    with monkeypatch.context() as broken:
        broken.setattr(os, "replace", fail)
        with pytest.raises(OSError, match="the machine stops here"):
            write_atomically(path, b"new")
    assert read_with_backup(path) == b"all we have"
    write_atomically(path, b"new")
    assert (path.read_bytes(), backup_of(path).read_bytes()) == (b"new", b"all we have")


def test_half_written_file_of_an_earlier_crash_is_overwritten(path: Path) -> None:
    path.with_name("kvConfig.json.tmp").write_bytes(b"x" * 100)
    write_atomically(path, b"whole")
    assert path.read_bytes() == b"whole"


def test_a_file_that_is_not_understood_gives_way_to_its_backup(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    backup_of(path).write_bytes(b"41")
    assert load_with_backup(path, int) == 41
    assert not caplog.messages
    path.write_bytes(b"forty-two")
    assert load_with_backup(path, int) == 41
    (complaint,) = caplog.messages
    assert complaint.startswith("kvConfig.json: invalid literal")
    assert complaint.endswith("b'forty-two'; kvConfig.json.bak is used")
    path.write_bytes(b"42")
    assert load_with_backup(path, int) == 42


def test_nothing_and_empty_files_load_as_nothing(path: Path) -> None:
    assert load_with_backup(path, int) is None
    path.write_bytes(b" \n")
    backup_of(path).write_bytes(b"")
    assert load_with_backup(path, int) is None


@pytest.mark.parametrize("backup", [None, b"", b"what?"])
def test_damage_without_a_sound_backup_is_not_taken_for_nothing(
    path: Path, backup: bytes | None
) -> None:
    path.write_bytes(b"forty-two")
    if backup is not None:
        backup_of(path).write_bytes(backup)
    with pytest.raises(ConfigError, match=r"kvConfig\.json cannot be read: .*Mend it, or remove"):
        load_with_backup(path, int)
