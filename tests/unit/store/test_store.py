"""The life of a store: start, stop, restart, and what is found by key, place and time."""

from __future__ import annotations

import struct
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.stores import FOREVER_MS, bodies, message, open_store, put_all, read_all, small_config

from firearrow.base.errors import ConfigError
from firearrow.base.runtime import SystemClock
from firearrow.hot import StoreMessage
from firearrow.model.errors import MessageIllegal, ServiceNotAvailable
from firearrow.model.topic import SCHEDULE_TOPIC
from firearrow.store.errors import StoreInUse
from firearrow.store.store import MessageStore
from firearrow.testing.faults import ManualClock

if TYPE_CHECKING:
    from pathlib import Path

    from firearrow.store.consume_queue import ConsumeQueue


async def test_messages_survive_a_restart_with_their_offsets(tmp_path: Path) -> None:
    for life in range(4):
        async with open_store(tmp_path) as store:
            assert store.recovered is not None
            assert (store.recovered.clean, store.recovered.damage) == (True, [])
            for topic in ("orders", "%RETRY%billing", "Ж火"):
                assert len(read_all(store, topic, 2)) == 7 * life
            for _ in range(7):
                await put_all(
                    store,
                    (
                        message(topic.encode(), topic=topic, queue_id=2)
                        for topic in ("orders", "%RETRY%billing", "Ж火")
                    ),
                )
    async with open_store(tmp_path) as store:
        records = read_all(store, "Ж火", 2)
        assert [record.queue_offset for record in records] == list(range(28))
        assert set(bodies(records)) == {"Ж火".encode()}


async def test_the_files_are_those_of_rocketmq(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        await put_all(store, [message(b"Hello", tags="TagA", keys="KEY1")])
        assert (tmp_path / "abort").read_text().isdecimal()
        assert (tmp_path / "lock").read_bytes() == b"lock"
    assert not (tmp_path / "abort").exists()
    entry = (tmp_path / "consumequeue" / "orders" / "0" / ("0" * 20)).read_bytes()
    size = 91 + 6 + 5 + len("TAGS.TagA.KEYS.KEY1.")
    assert len(entry) == 100
    assert entry[:20] == struct.pack(">qiq", 0, size, 2598919)
    assert not any(entry[20:])
    assert (tmp_path / "commitlog" / ("0" * 20)).stat().st_size == 4096
    (index,) = (tmp_path / "index").iterdir()
    assert len(index.name) == 17
    assert index.stat().st_size == 40 + 7 * 4 + 12 * 20
    times = struct.unpack_from(">qqqqq", (tmp_path / "checkpoint").read_bytes())
    assert times[0] == times[1] > 0
    assert times[3:] == (0, 0)
    assert (tmp_path / "checkpoint").stat().st_size == 4096


async def test_two_stores_cannot_have_one_directory(tmp_path: Path) -> None:
    script_config = small_config(tmp_path)
    async with open_store(tmp_path):
        # POSIX record locks are per process, so the second owner must be another one.
        code = (
            "import asyncio, sys, pathlib\n"
            "from firearrow.base.runtime import SystemClock\n"
            "from firearrow.store.config import StoreConfig\n"
            "from firearrow.store.store import MessageStore\n"
            "config = StoreConfig(store_path_root_dir=pathlib.Path(sys.argv[1]))\n"
            "asyncio.run(MessageStore(config, SystemClock()).start())\n"
        )
        ended = subprocess.run(  # noqa: ASYNC221
            [sys.executable, "-c", code, str(script_config.store_path_root_dir)],
            capture_output=True,
            text=True,
            check=False,
        )
    assert ended.returncode == 1
    assert StoreInUse.__name__ in ended.stderr
    assert "choose another storePathRootDir" in ended.stderr


async def test_a_store_that_is_not_running_takes_nothing(tmp_path: Path) -> None:
    store = MessageStore(small_config(tmp_path), SystemClock())
    with pytest.raises(ServiceNotAvailable, match="not started"):
        store.put(message())
    await store.start()
    await store.stop()
    with pytest.raises(ServiceNotAvailable, match="stopped"):
        store.put(message())
    await store.stop()  # twice does no harm


async def test_a_failed_start_frees_the_directory(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        await put_all(store, (message(bytes(900)) for _ in range(20)))
    with pytest.raises(ConfigError, match="mappedFileSizeCommitLog is 8192"):
        async with open_store(tmp_path, mapped_file_size_commit_log=8192):
            pass
    async with open_store(tmp_path) as store:
        assert len(read_all(store)) == 20


async def test_a_batch_is_stored_at_consecutive_offsets_and_only_to_one_queue(
    tmp_path: Path,
) -> None:
    async with open_store(tmp_path) as store:
        batch = [message(b"%d" % n) for n in range(4)]
        end = store.put_batch(batch)
        await store.wait_flushed(end)
        await store.wait_visible(end)
        assert [m.queue_offset for m in batch] == [0, 1, 2, 3]
        assert len({m.store_timestamp for m in batch}) == 1
        assert bodies(read_all(store)) == [b"0", b"1", b"2", b"3"]
        with pytest.raises(MessageIllegal, match="one queue"):
            store.put_batch([message(), message(queue_id=1)])
        with pytest.raises(MessageIllegal, match="one queue"):
            store.put_batch([])


async def test_messages_are_found_by_key_in_a_time(tmp_path: Path) -> None:
    clock = ManualClock(1_700_000_000_000)
    for _ in range(2):  # and again after a restart
        async with open_store(tmp_path, clock) as store:
            if not store.queues():
                for n in range(40):
                    await put_all(store, [message(b"%d" % n, keys=f"even{n % 2 == 0} k{n} 火")])
                    await clock.advance(1_000)
            found = store.lookup.by_key("orders", "k7", limit=64, begin_ms=0, end_ms=FOREVER_MS)
            assert bodies(found) == [b"7"]
            many = store.lookup.by_key("orders", "火", limit=5, begin_ms=0, end_ms=FOREVER_MS)
            assert bodies(many) == [b"35", b"36", b"37", b"38", b"39"]
            some = store.lookup.by_key(
                "orders",
                "evenTrue",
                limit=64,
                begin_ms=1_700_000_010_000,
                end_ms=1_700_000_015_000,
            )
            assert set(bodies(some)) <= {b"%d" % n for n in range(9, 17)}
            assert {b"10", b"12", b"14"} <= set(bodies(some))
            assert store.lookup.by_key("other", "k7", limit=9, begin_ms=0, end_ms=FOREVER_MS) == []


async def test_a_message_is_found_by_its_place(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        one, two = message(b"one"), message(b"two")
        await put_all(store, [one, two])
        record = store.lookup.record_at(two.physical_offset)
        assert record is not None
        assert record.body == b"two"
        assert store.lookup.record_at(two.physical_offset + 1) is None
        assert store.lookup.record_at(-1) is None
        assert store.lookup.record_at(1 << 40) is None


async def test_offsets_are_found_by_time(tmp_path: Path) -> None:
    clock = ManualClock(1_700_000_000_000)
    async with open_store(tmp_path, clock) as store:
        for _ in range(5):
            await put_all(store, [message(), message()])
            await clock.advance(1_000)
        at = store.lookup.offset_by_time
        start = 1_700_000_000_000
        assert at("orders", 0, start - 1) == 0
        assert at("orders", 0, start) == 0
        assert at("orders", 0, start + 1) == 2
        assert at("orders", 0, start + 4_000) == 8
        assert at("orders", 0, start + 4_001) == 10
        assert at("orders", 0, start, upper=True) == 1
        assert at("orders", 0, start + 1_500, upper=True) == 3
        assert at("orders", 0, start - 1, upper=True) == 0
        assert at("nowhere", 0, start) == 0
        assert store.lookup.earliest_store_time("orders", 0) == start
        assert store.lookup.earliest_store_time("nowhere", 0) == -1


async def test_entries_of_delayed_messages_hold_the_time_of_delivery(tmp_path: Path) -> None:
    clock = ManualClock(1_700_000_000_000)
    async with open_store(tmp_path, clock) as store:
        for level, delay_ms in ((1, 1_000), (3, 10_000), (18, 7_200_000), (99, 7_200_000)):
            properties = f"DELAY\x01{level}\x02TAGS\x01x\x02".encode()
            one = StoreMessage(SCHEDULE_TOPIC, level % 18, b"", properties)
            await put_all(store, [one])
            queue = store.queue(SCHEDULE_TOPIC, level % 18)
            assert queue is not None
            entry = queue.entry(one.queue_offset)
            assert entry is not None
            assert entry[2] == 1_700_000_000_000 + delay_ms


async def test_listeners_are_told_which_queues_grew(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        grown: list[ConsumeQueue] = []
        store.listen(grown.extend)
        await put_all(store, [message(), message(queue_id=1), message(topic="other"), message()])
        assert [(q.topic, q.queue_id, q.max_offset) for q in grown] == [
            ("orders", 0, 2),
            ("orders", 1, 1),
            ("other", 0, 1),
        ]


async def test_a_deleted_topic_begins_anew_and_stays_deleted(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        await put_all(store, (message(b"old") for _ in range(12)))
        store.delete_topic("orders")
        assert store.lookup.max_offset("orders", 0) == 0
        assert not (tmp_path / "consumequeue" / "orders").exists()
    async with open_store(tmp_path) as store:
        assert store.queues() == []
        await put_all(store, (message(b"new") for _ in range(3)))
        assert [r.queue_offset for r in read_all(store)] == [0, 1, 2]
        assert set(bodies(read_all(store))) == {b"new"}
    async with open_store(tmp_path) as store:
        assert len(read_all(store)) == 3


async def test_a_rebuild_from_the_log_alone_gives_the_second_life_of_a_topic(
    tmp_path: Path,
) -> None:
    async with open_store(tmp_path) as store:
        await put_all(store, (message(b"old") for _ in range(12)))
        store.delete_topic("orders")
        await put_all(store, (message(b"new") for _ in range(3)))
    for name in ("checkpoint", "firearrow.json"):
        (tmp_path / name).unlink()
    (tmp_path / "abort").touch()
    async with open_store(tmp_path) as store:
        assert bodies(read_all(store)) == [b"new"] * 3


async def test_without_an_index_nothing_is_found_by_key_and_nothing_else_changes(
    tmp_path: Path,
) -> None:
    async with open_store(tmp_path, message_index_enable=False) as store:
        await put_all(store, [message(b"x", keys="k")])
        assert store.lookup.by_key("orders", "k", limit=9, begin_ms=0, end_ms=FOREVER_MS) == []
        assert bodies(read_all(store)) == [b"x"]
    assert not (tmp_path / "index").exists()
    async with open_store(tmp_path) as store:  # switched on later: the log gives the keys
        found = store.lookup.by_key("orders", "k", limit=9, begin_ms=0, end_ms=FOREVER_MS)
        assert bodies(found) == [b"x"]


async def test_a_new_store_is_small(tmp_path: Path) -> None:
    """Default sizes are 1 GiB and 420 MB, of which a few messages use kilobytes."""
    config = small_config(
        tmp_path,
        mapped_file_size_commit_log=1 << 30,
        mapped_file_size_consume_queue=6_000_000,
        max_hash_slot_num=5_000_000,
        max_index_num=20_000_000,
    )
    store = MessageStore(config, SystemClock())
    await store.start()
    await put_all(store, [message(b"x", keys="k")])
    await store.stop()
    assert disk_bytes(tmp_path) < 2 * 1024 * 1024


def disk_bytes(root: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in root.rglob("*") if path.is_file())
