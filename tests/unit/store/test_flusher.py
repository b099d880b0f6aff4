from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from tests.stores import ASYNC, bodies, message, open_store, put_all, read_all

from firearrow.model.errors import ServiceNotAvailable
from firearrow.store.disk import SYNCS_MAX, RealDisk
from firearrow.testing.faults import ManualClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from firearrow.store.disk import MappedFile
    from firearrow.store.store import MessageStore
    from firearrow.store.syncer import Done


class SlowSyncer:
    """Syncs when the test says so, or fails; by itself when the test is over."""

    def __init__(self) -> None:
        self.begun: list[tuple[list[str], Done]] = []
        self.by_itself = False

    def begin(self, files: Sequence[MappedFile], done: Done) -> None:
        if self.by_itself:
            asyncio.get_running_loop().call_soon(done, None)
        else:
            self.begun.append(([file.path.name for file in files], done))

    def finish(self, error: OSError | None = None) -> None:
        self.begun.pop(0)[1](error)

    def close(self) -> None:
        pass


@pytest.fixture
def syncer(monkeypatch: pytest.MonkeyPatch) -> SlowSyncer:
    syncer = SlowSyncer()
    monkeypatch.setattr(RealDisk, "syncer", lambda _: syncer)
    return syncer


@contextlib.asynccontextmanager
async def slow_store(
    root: Path, syncer: SlowSyncer, clock: ManualClock | None = None, **settings: Any
) -> AsyncIterator[MessageStore]:
    async with open_store(root, clock, **settings) as store:
        try:
            yield store
        finally:
            syncer.by_itself = True
            while syncer.begun:
                syncer.finish()


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_one_sync_serves_every_append_of_a_turn_and_later_ones_share_the_next(
    tmp_path: Path, syncer: SlowSyncer
) -> None:
    async with slow_store(tmp_path, syncer) as store:
        told: list[int] = []
        ends = [store.put(message(topic=f"topic-{n}")) for n in range(5)]
        for number, end in enumerate(ends):
            store.when_flushed(end, lambda ok, number=number: told.append(number if ok else -1))  # type: ignore[misc]
        await turns()
        assert len(syncer.begun) == 1
        later = store.put(message())
        store.when_flushed(later, lambda ok: told.append(99 if ok else -1))
        await turns()
        assert (len(syncer.begun), told) == (1, [])
        syncer.finish()
        assert told == [0, 1, 2, 3, 4]
        assert len(syncer.begun) == 1  # the next one has begun by itself
        syncer.finish()
        assert told[-1] == 99
        await turns()
        assert store.statistics().flushed_offset == later


async def test_a_message_is_visible_only_when_it_is_on_disk(
    tmp_path: Path, syncer: SlowSyncer
) -> None:
    async with slow_store(tmp_path, syncer) as store:
        store.put(message(b"hidden"))
        await turns()
        assert store.lookup.max_offset("orders", 0) == 0
        syncer.finish()
        await turns()
        assert bodies(read_all(store)) == [b"hidden"]


async def test_with_asynchronous_flush_it_is_visible_at_once(
    tmp_path: Path, syncer: SlowSyncer
) -> None:
    clock = ManualClock()
    async with slow_store(tmp_path, syncer, clock, **ASYNC) as store:
        end = store.put(message(b"seen"))
        await store.wait_visible(end)
        assert bodies(read_all(store)) == [b"seen"]
        assert syncer.begun == []
        await clock.advance(9_500)  # less than four pages: only the thorough flush takes them
        assert syncer.begun == []
        await clock.advance(500)
        assert len(syncer.begun) == 1
        syncer.finish()
        assert store.statistics().flushed_offset == end


async def test_enough_dirty_pages_are_flushed_at_the_next_interval(
    tmp_path: Path, syncer: SlowSyncer
) -> None:
    clock = ManualClock()
    settings = {"mapped_file_size_commit_log": 1 << 20, **ASYNC}
    async with slow_store(tmp_path, syncer, clock, **settings) as store:
        store.put(message(bytes(4 * 4096)))
        await clock.advance(500)
        assert len(syncer.begun) == 1
        syncer.finish()


async def test_every_file_that_was_written_is_synced(tmp_path: Path, syncer: SlowSyncer) -> None:
    async with slow_store(tmp_path, syncer) as store:
        for _ in range(20):
            store.put(message(bytes(500)))
        await turns()
        names = [int(name) // 4096 for name in syncer.begun[0][0]]
        assert names == [0, 1, 2, 3]
        syncer.finish()
        store.put(message(b"x"))
        await turns()
        assert [int(name) // 4096 for name in syncer.begun[0][0]] == [3]
        syncer.finish()


async def test_a_failed_sync_is_final_and_said(
    tmp_path: Path, syncer: SlowSyncer, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    async with slow_store(tmp_path, syncer, clock) as store:
        waiting = asyncio.ensure_future(store.wait_flushed(store.put(message(b"lost?"))))
        await turns()
        syncer.finish(OSError(5, "Input/output error"))
        with pytest.raises(ServiceNotAvailable, match="Input/output error"):
            await waiting
        assert "read-only from now on" in caplog.text
        await clock.advance(10_000)
        with pytest.raises(ServiceNotAvailable, match="the disk failed"):
            store.put(message())
    assert (tmp_path / "abort").exists()  # the next start must recover


async def test_the_real_thread_syncs_real_files(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        await put_all(store, (message(bytes(500)) for _ in range(50)))
        assert store.statistics().flushed_offset == store.statistics().end_offset
        assert 0 < store.statistics().syncs < 50


async def test_many_queues_are_synced_at_once_and_are_there_after_a_restart(tmp_path: Path) -> None:
    async with open_store(tmp_path, mapped_file_size_commit_log=1 << 20) as store:
        await put_all(store, (message(b"%d" % n, queue_id=n) for n in range(SYNCS_MAX + 50)))
    async with open_store(tmp_path, mapped_file_size_commit_log=1 << 20) as store:
        assert store.recovered is not None
        assert store.recovered.clean
        for n in range(SYNCS_MAX + 50):
            assert bodies(read_all(store, queue_id=n)) == [b"%d" % n]
