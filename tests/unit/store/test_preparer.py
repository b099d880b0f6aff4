"""Room for the log is made before it is needed, beside the loop."""

from __future__ import annotations

import asyncio
import errno
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tests.support import until

from firearrow.base.runtime import Service, SystemClock
from firearrow.hot import QueueTail, StoreMessage
from firearrow.hot.layout import LOOPBACK_HOST
from firearrow.store.commit_log import RESERVE_BYTES_MIN, CommitLog
from firearrow.store.disk import RealDisk, RealFile
from firearrow.store.preparer import Preparer
from firearrow.store.segments import Segments

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    import pytest

FILE_BYTES = 8 * 1024 * 1024
BODY = bytes(100_000)


class World:
    def __init__(self, folder: Path) -> None:
        self.tasks = Service("test", SystemClock())
        self.segments = Segments(RealDisk(), folder / "commitlog", FILE_BYTES)
        self.segments.load(setting="mappedFileSizeCommitLog")
        self.log = CommitLog(self.segments, store_host=LOOPBACK_HOST, message_bytes_max=FILE_BYTES)
        self.log.open_at(0, cut=False)
        self.preparer = Preparer(self.log, self.tasks)
        self.queue = QueueTail("orders", 0)

    def put(self, count: int = 1) -> None:
        for _ in range(count):
            self.log.append(StoreMessage("orders", 0, BODY), self.queue, 1)


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[World]:
    world = World(folder)
    yield world
    await world.tasks.stop_tasks()
    world.log.close()
    world.segments.close()


async def test_room_is_made_when_half_of_what_there_was_is_used(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        world.put()
        room = world.log.writer.room
        assert RESERVE_BYTES_MIN - 8 <= room < 2 * RESERVE_BYTES_MIN
        world.preparer.look()
        assert world.log.writer.position < world.log.low_mark, "there is enough as yet"
        world.put()
        assert world.log.writer.position >= world.log.low_mark
        world.preparer.look()
        await until(lambda: world.log.writer.room > room, "the room to grow")
        world.put()
        assert world.log.writer.position < world.log.low_mark


async def test_a_file_that_is_full_gets_no_more_room(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        world.put(FILE_BYTES // (len(BODY) + 200))
        while world.log.next_room() is not None:
            file, position, size = world.log.next_room() or (None, 0, 0)
            assert file is not None
            file.preparation(position, size)()
            world.log.has_room(file, position + size)
        assert world.log.writer.room == FILE_BYTES - 8
        world.preparer.look()
        world.put()
        assert world.log.next_start == 2 * FILE_BYTES, "it has gone on in the next file"


async def test_room_that_comes_too_late_does_not_count_for_another_file(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        world.put(2)
        short = world.log.next_room()
        assert short is not None
        file, position, size = short
        world.put(FILE_BYTES // len(BODY))
        assert world.log.writer.start == FILE_BYTES
        room = world.log.writer.room
        world.log.has_room(file, position + size)
        assert world.log.writer.room == room


async def test_a_full_disk_is_left_to_the_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as world:
        asked = []

        def no_space(_: RealFile, position: int, __: int) -> Callable[[], None]:
            def prepare() -> None:
                asked.append(position)
                raise OSError(errno.ENOSPC, "full")

            return prepare

        monkeypatch.setattr(RealFile, "preparation", no_space)
        world.put(2)
        room = world.log.writer.room
        world.preparer.look()
        await until(lambda: asked, "the thread to be asked")
        await until(lambda: not world.tasks._tasks, "the task to end")  # noqa: SLF001
        assert world.log.writer.room == room
        world.put(2)
        assert world.log.writer.room > room


async def test_a_preparation_may_outlive_its_file(tmp_path: Path) -> None:
    file = RealDisk().map(tmp_path / "file", FILE_BYTES, create=True)
    prepare = file.preparation(0, 1 << 20)
    file.close()
    await asyncio.to_thread(prepare)
    assert (tmp_path / "file").stat().st_blocks * 512 >= 1 << 20
