from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.stores import bodies, message, open_store, put_all, read_all

from firearrow.model.errors import ServiceNotAvailable
from firearrow.store.config import StoreConfig
from firearrow.store.disk import RealDisk
from firearrow.store.reading import Status
from firearrow.store.retention import HOUR_MS, OldFile, decide_retention, is_delete_hour, used_ratio
from firearrow.testing.faults import ManualClock

if TYPE_CHECKING:
    from pathlib import Path

NOON_MS = int(time.mktime((2026, 11, 17, 12, 0, 0, 0, 0, -1))) * 1000
OLD, NEW = OldFile(0, NOON_MS - 73 * HOUR_MS), OldFile(1, NOON_MS - 71 * HOUR_MS)


def decide(files: list[OldFile], used: int, *, free: int | None = None, **settings: Any) -> Any:
    config = StoreConfig(disk_free_bytes_min=settings.pop("floor", 0), **settings)
    return decide_retention(
        config,
        files,
        used_bytes=used,
        free_bytes=100 - used if free is None else free,
        now_ms=NOON_MS,
    )


@pytest.mark.parametrize(
    ("used", "delete_when", "files", "delete", "refused"),
    [
        (10, "12", [OLD, OLD, NEW], 2, False),  # the hour has come: what is expired
        (10, "04;12", [OLD], 1, False),
        (10, "04", [OLD], 0, False),
        (76, "04", [OLD, NEW], 1, False),  # over diskMaxUsedSpaceRatio: expired ones at any hour
        (86, "04", [NEW, NEW], 2, False),  # over cleanForcibly: expired or not
        (91, "04", [NEW], 1, True),  # over the warning level: and nothing is taken any more
        (91, "04", [], 0, True),
    ],
)
def test_what_goes_follows_hour_age_and_space(
    used: int, delete_when: str, files: list[OldFile], delete: int, refused: bool
) -> None:
    verdict = decide(files, used, delete_when=delete_when)
    assert verdict.delete == delete
    assert bool(verdict.refuse) == refused


def test_ratios_are_rounded_up_and_never_above_rocketmqs() -> None:
    assert used_ratio(901, 99) == 91
    assert used_ratio(0, 0) == 0
    assert decide([NEW], 91, disk_space_warning_level_ratio=99).refuse
    assert decide([NEW], 86, disk_space_clean_forcibly_ratio=99).delete == 1


def test_forcing_can_be_forbidden_and_a_round_is_bounded() -> None:
    assert decide([NEW], 95, clean_file_forcibly_enable=False).delete == 0
    assert decide([OLD] * 30, 95, delete_file_batch_max=10).delete == 10


def test_too_few_free_bytes_refuse_and_clean_whatever_the_ratio() -> None:
    verdict = decide([NEW], used=10_000, free=50 << 20, floor=64 << 20)
    assert verdict.delete == 1
    assert "50 MiB are free" in decide([NEW], used=1, free=50 << 20, floor=64 << 20).refuse


def test_hours_are_local_and_nonsense_never_matches() -> None:
    assert is_delete_hour("12", NOON_MS)
    assert is_delete_hour(" 12 ", NOON_MS)
    assert not is_delete_hour("noon", NOON_MS)
    assert not is_delete_hour("", NOON_MS)


async def test_old_files_go_with_their_queue_and_index_files_and_readers_are_moved(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    async with open_store(tmp_path, clock) as store:
        await put_all(store, (message(b"%03d" % n + bytes(400), keys=f"k{n}") for n in range(60)))
        before = store.statistics().min_offset
        store.remove_files(4)
        assert store.statistics().min_offset == before, "no checkpoint covers them yet"
        await store.checkpoint()
        store.remove_files(4)
        assert store.statistics().min_offset == before + 4 * 4096
        least = store.lookup.min_offset("orders", 0)
        assert 0 < least < 60
        assert [r.queue_offset for r in read_all(store)] == list(range(least, 60))
        assert store.get("orders", 0, least - 1, 32).status is Status.OFFSET_TOO_SMALL
        assert store.get("orders", 0, least - 1, 32).next_offset == least
        assert store.lookup.by_key("orders", "k0", limit=9, begin_ms=0, end_ms=1 << 60) == []
        assert len(store.lookup.by_key("orders", "k59", limit=9, begin_ms=0, end_ms=1 << 60)) == 1
        queue_files = sorted((tmp_path / "consumequeue" / "orders" / "0").iterdir())
        assert int(queue_files[0].name) == least // 5 * 100
    async with open_store(tmp_path, ManualClock()) as store:
        assert store.lookup.min_offset("orders", 0) == least
        assert [r.queue_offset for r in read_all(store)] == list(range(least, 60))
        await put_all(store, [message(b"next")])
        assert bodies(read_all(store))[-1] == b"next"
        assert store.lookup.max_offset("orders", 0) == 61


async def test_the_last_file_never_goes_and_a_queue_keeps_counting(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        await put_all(store, (message(bytes(400)) for _ in range(20)))
        await put_all(store, (message(bytes(400), topic="other") for _ in range(20)))
        await store.checkpoint()
        store.remove_files(1_000)
        assert len(list((tmp_path / "commitlog").iterdir())) >= 1
        assert store.lookup.min_offset("orders", 0) == store.lookup.max_offset("orders", 0) == 20
        one = message(b"x")
        await put_all(store, [one])
        assert one.queue_offset == 20
    async with open_store(tmp_path) as store:
        assert bodies(read_all(store)) == [b"x"]


async def test_a_disk_that_fills_up_refuses_messages_and_takes_them_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    async with open_store(tmp_path, clock) as store:
        await put_all(store, [message(b"before")])
        monkeypatch.setattr(RealDisk, "usage", lambda *_: (95, 5))
        await clock.advance(10_000)
        with pytest.raises(ServiceNotAvailable, match="the disk is 95 % full"):
            store.put(message(b"refused"))
        assert bodies(read_all(store)) == [b"before"]
        monkeypatch.setattr(RealDisk, "usage", lambda *_: (50, 50))
        await clock.advance(10_000)
        await put_all(store, [message(b"after")])
        assert bodies(read_all(store)) == [b"before", b"after"]


async def test_expired_files_go_at_their_hour(tmp_path: Path) -> None:
    in_two_days_ms = int(time.time() + 48 * 3600) * 1000  # so the files are two days old
    hour = time.localtime(in_two_days_ms / 1000 + 10).tm_hour
    for delete_when, gone in ((f"{(hour + 12) % 24}", False), (f"{hour}", True)):
        clock = ManualClock(in_two_days_ms)
        root = tmp_path / delete_when
        async with open_store(
            root, clock, delete_when=delete_when, file_reserved_time=24, clean_resource_interval=10
        ) as store:
            await put_all(store, (message(bytes(400)) for _ in range(30)))
            files = len(list((root / "commitlog").iterdir()))
            assert files > 2
            await store.checkpoint()
            await clock.advance(10_000)
            left = list((root / "commitlog").iterdir())
            assert (len(left) == 1) == gone
            assert (store.lookup.min_offset("orders", 0) > 0) == gone
