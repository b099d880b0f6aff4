"""A disk that is full, or fails to sync: what the store says, and what goes on."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.stores import ASYNC, bodies, message, put_all, read_all, small_config
from tests.storing import stepped_threads, turns

from firearrow.model.errors import ServiceNotAvailable
from firearrow.store.store import MessageStore
from firearrow.testing.faults import ManualClock
from firearrow.testing.lying_disk import LyingDisk

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

# So small that a log file of 4 KiB is the difference between enough and full; and nothing that
# retention decides by itself, so that it is the log that meets the end of the disk.
PATIENT: dict[str, Any] = {"clean_resource_interval": 1 << 40, "clean_file_forcibly_enable": False}


@asynccontextmanager
async def opened(disk: LyingDisk, root: Path, **settings: Any) -> AsyncIterator[MessageStore]:
    stepped_threads()
    store = MessageStore(small_config(root, **settings), ManualClock(), disk=disk)
    await store.start()
    try:
        yield store
    finally:
        disk.get_well()
        await store.stop()


async def fill(store: MessageStore) -> int:
    """Put messages until the disk is full; returns how many."""
    for number in range(1_000):
        try:
            end = store.put(message(b"%04d" % number + bytes(396)))
        except ServiceNotAvailable:
            return number
        await store.wait_flushed(end)
        await turns()
    raise AssertionError("the disk has no end")


async def test_a_full_disk_refuses_messages_while_reads_go_on(tmp_path: Path) -> None:
    disk = LyingDisk(tmp_path, seed=1)
    async with opened(disk, tmp_path, **PATIENT) as store:
        disk.capacity = 20 * 4_096
        count = await fill(store)
        assert count > 10
        words = r"no disk space .* goes on by itself"
        with pytest.raises(ServiceNotAvailable, match=words) as raised:
            store.put(message(b"refused"))
        assert raised.value.retriable
        with pytest.raises(ServiceNotAvailable):
            store.put_batch([message(b"refused"), message(b"too")])
        assert [body[:4] for body in bodies(read_all(store))] == [b"%04d" % n for n in range(count)]


async def test_writing_goes_on_by_itself_when_space_is_freed_and_no_offset_is_missing(
    tmp_path: Path,
) -> None:
    disk = LyingDisk(tmp_path, seed=1)
    async with opened(disk, tmp_path, **PATIENT) as store:
        disk.capacity = 20 * 4_096
        count = await fill(store)
        disk.capacity = None
        after = message(b"after")
        await put_all(store, [after])
        assert after.queue_offset == count
        assert bodies(read_all(store))[-1] == b"after"
    async with opened(disk.after_power_loss(), tmp_path) as store:
        assert [record.queue_offset for record in read_all(store)] == list(range(count + 1))


async def test_queues_that_a_full_disk_did_not_take_are_written_later(tmp_path: Path) -> None:
    disk = LyingDisk(tmp_path, seed=1)
    clock = ManualClock()
    stepped_threads()
    store = MessageStore(small_config(tmp_path, **PATIENT), clock, disk=disk)
    await store.start()
    await put_all(store, (message(b"%d" % number, keys="k") for number in range(8)))
    disk.capacity = disk.used_bytes
    await clock.advance(5_000)
    assert disk.names(tmp_path / "consumequeue") == []
    assert len(read_all(store)) == 8
    disk.capacity = None
    await clock.advance(5_000)
    assert disk.names(tmp_path / "consumequeue" / "orders") == ["0"]
    await store.stop()


@pytest.mark.parametrize("settings", [{}, ASYNC], ids=["synchronous", "asynchronous"])
async def test_after_a_failed_sync_nothing_is_taken_and_everything_can_be_read(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    disk = LyingDisk(tmp_path, seed=1)
    async with opened(disk, tmp_path, **settings) as store:
        await put_all(store, [message(b"safe")])
        disk.fail_sync()
        end = store.put(message(b"not safe"))
        with pytest.raises(ServiceNotAvailable, match=r"the disk failed: .*Input/output error"):
            await store.wait_flushed(end)
        with pytest.raises(ServiceNotAvailable, match=r"the disk failed: .* is read-only"):
            store.put(message(b"refused"))
        assert "Input/output error" in store.statistics().read_only
        assert bodies(read_all(store))[0] == b"safe"
    async with opened(disk.after_power_loss(), tmp_path, **settings) as store:
        recovered = store.recovered
        assert recovered is not None
        assert not recovered.clean, "a store that failed has not closed cleanly"
        assert bodies(read_all(store)) in ([b"safe"], [b"safe", b"not safe"])
        await put_all(store, [message(b"again")])


async def test_a_process_that_follows_a_failed_sync_writes_again_what_it_promises(
    tmp_path: Path,
) -> None:
    """The machine was not restarted, so the cache still shows what the disk never got."""
    disk = LyingDisk(tmp_path, seed=1)
    async with opened(disk, tmp_path) as store:
        disk.fail_sync()
        end = store.put(message(b"in the cache"))
        with pytest.raises(ServiceNotAvailable):
            await store.wait_flushed(end)
    disk = disk.after_process_crash()
    async with opened(disk, tmp_path) as store:
        assert bodies(read_all(store)) == [b"in the cache"]
        await put_all(store, [message(b"promised")])
        disk = disk.after_power_loss()
    async with opened(disk, tmp_path) as store:
        assert bodies(read_all(store)) == [b"in the cache", b"promised"]


@pytest.mark.parametrize("failing", range(1, 9))
async def test_whichever_sync_of_a_checkpoint_fails_nothing_is_lost(
    tmp_path: Path, failing: int
) -> None:
    disk = LyingDisk(tmp_path, seed=failing)
    async with opened(disk, tmp_path) as store:
        await put_all(store, (message(b"%d" % number, keys="k") for number in range(30)))
        disk.fail_sync(after=failing - 1)
        try:
            await store.checkpoint()
        except OSError:
            await store.checkpoint()  # as the store does by itself a second later
        disk = disk.after_power_loss()
    async with opened(disk, tmp_path) as store:
        assert bodies(read_all(store)) == [b"%d" % number for number in range(30)]
        found = store.lookup.by_key("orders", "k", limit=99, begin_ms=0, end_ms=1 << 60)
        assert len(found) == 30
