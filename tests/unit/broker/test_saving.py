"""Tables that go to disk in the background: the last state wins, and a broken file has a backup."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.support import until

from firearrow.base.errors import ConfigError
from firearrow.base.runtime import Service, SystemClock
from firearrow.broker.saving import SavedTable

if TYPE_CHECKING:
    from pathlib import Path


class Table(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    offset_table: dict[int, int] = {}


class Saved:
    """A table of one number, with a pen that can be held up."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "config" / "table.json"
        self.tasks = Service("test", SystemClock())
        self.value = 0
        self.table = SavedTable(
            self.path, Table, self.tasks, lambda: Table(offset_table={0: self.value})
        )
        self.may_write = threading.Event()
        self.may_write.set()
        self.writes: list[int] = []
        self._save = self.table._file.save  # noqa: SLF001
        self.table._file.save = self._slowly  # type: ignore[method-assign]  # noqa: SLF001

    def _slowly(self, value: Table) -> None:
        self.may_write.wait()
        self.writes.append(value.offset_table[0])
        self._save(value)

    def change(self, value: int) -> None:
        self.value = value
        self.table.changed()
        self.table.save_soon()

    def on_disk(self) -> int | None:
        loaded = SavedTable(self.path, Table, self.tasks, Table).load()
        return None if loaded is None else loaded.offset_table[0]


async def test_many_changes_make_few_writes_and_the_last_one_is_on_disk(tmp_path: Path) -> None:
    saved = Saved(tmp_path)
    saved.may_write.clear()
    for value in range(1, 100):
        saved.change(value)
        await asyncio.sleep(0)
    saved.may_write.set()
    await until(lambda: saved.on_disk() == 99, "the last value is written")
    await saved.table.settle()
    assert len(saved.writes) <= 2
    assert saved.path.read_bytes() == b'{"offsetTable":{0:99}}'


async def test_nothing_is_written_without_a_change(tmp_path: Path) -> None:
    saved = Saved(tmp_path)
    saved.table.save_soon()
    saved.table.save_now()
    assert saved.writes == []
    assert saved.table.load() is None


async def test_write_under_way_at_the_end_neither_loses_nor_overwrites(tmp_path: Path) -> None:
    saved = Saved(tmp_path)
    saved.may_write.clear()
    saved.change(1)
    await asyncio.sleep(0)
    saved.change(2)
    settling = asyncio.create_task(saved.table.settle())
    await asyncio.sleep(0)
    assert not settling.done()
    saved.may_write.set()
    await settling
    saved.value = 3
    saved.table.changed()
    saved.table.save_soon()  # too late for the background
    saved.table.save_now()
    await saved.tasks.stop_tasks()
    assert saved.writes[-1] == 3
    assert saved.on_disk() == 3


async def test_failed_write_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    saved = Saved(tmp_path)
    (tmp_path / "config").write_text("in the way of the folder")
    saved.change(1)
    await until(lambda: "cannot be written" in caplog.text, "the complaint")
    (tmp_path / "config").unlink()
    await until(lambda: saved.table._writing is None)  # noqa: SLF001
    saved.table.save_soon()
    await until(lambda: saved.on_disk() == 1, "the value is written")
    await saved.table.settle()


@pytest.mark.parametrize("broken", ["{", "[1]", '{"offsetTable":{"x":1}}', "\0\0\0"])
async def test_broken_file_gives_way_to_its_backup(tmp_path: Path, broken: str) -> None:
    saved = Saved(tmp_path)
    for value in (1, 2):
        saved.value = value
        saved.table.changed()
        saved.table.save_now()
    saved.path.write_text(broken)
    assert saved.on_disk() == 1
    saved.path.with_name("table.json.bak").write_text(broken)
    with pytest.raises(ConfigError, match=r"table\.json"):
        saved.on_disk()
