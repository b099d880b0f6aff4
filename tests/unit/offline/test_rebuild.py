from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from tests.store_builder import SHAPE, START_MS, StoreBuilder, patch, sample_store
from tests.unit.offline.test_check_healthy import BROKER

from firearrow.base.errors import ConfigError
from firearrow.hot import Record, encode_record, java_hash, key_hash
from firearrow.offline import rebuild as rebuilding
from firearrow.offline.check import check
from firearrow.offline.derived import QueueKey
from firearrow.offline.directory import Shape, StoreDirectory
from firearrow.offline.rebuild import rebuild
from firearrow.store.checkpoint import Checkpoint
from firearrow.store.consume_queue import ENTRY as UNIT
from firearrow.store.consume_queue import FILLER
from firearrow.store.errors import StoreInUse
from firearrow.store.key_index import ENTRY, HEADER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NOW_MS = START_MS + 86_400_000
DERIVED = ("consumequeue", "batchconsumequeue", "index")


def files_of(root: Path, *folders: str) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for folder in folders
        for path in sorted((root / folder).rglob("*"))
        if path.is_file()
    }


def codes(store: StoreDirectory) -> set[str]:
    return {finding.code for finding in check(store, now_ms=NOW_MS).findings}


# --- what is written ------------------------------------------------------------------------------


def test_units_lie_at_twenty_times_their_queue_offset(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    stored = [builder.append(properties={"TAGS": "TagA"}) for _ in range(7)]
    builder.close()
    folder = tmp_path / "consumequeue/Orders/0"
    content = b"".join(path.read_bytes() for path in sorted(folder.iterdir()))
    assert [path.name for path in sorted(folder.iterdir())] == [f"{0:020d}", f"{100:020d}"]
    expected = b"".join(UNIT.pack(each.offset, each.size, java_hash("TagA")) for each in stored)
    assert content == expected.ljust(200, b"\0")


def test_a_batch_queue_has_a_unit_per_record(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    batch, alone = (each for each in sample.builder.stored if each.topic == "Batches")
    content = (tmp_path / "batchconsumequeue/Batches/0" / f"{0:020d}").read_bytes()
    unit = struct.Struct(">qiqqqhii")
    first = unit.pack(batch.offset, batch.size, 0, batch.timestamp, 0, 3, -1, 0)
    second = unit.pack(alone.offset, alone.size, 0, alone.timestamp, 3, 1, -1, 0)
    assert content == (first + second).ljust(SHAPE.batch_queue_file_bytes or 0, b"\0")


def test_a_queue_that_begins_in_the_middle_is_filled_up(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    first = builder.append(queue_offset=7)
    builder.close()
    (path,) = (tmp_path / "consumequeue/Orders/0").iterdir()
    assert path.name == f"{100:020d}"
    assert path.read_bytes() == (FILLER * 2 + UNIT.pack(first.offset, first.size, 0)).ljust(
        100, b"\0"
    )


def test_lost_records_leave_filler_so_that_others_keep_their_offsets(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    sample.patch_log(sample.keyless.offset + 88, b"?")
    rebuilt = rebuild(sample.open())
    units = sample.open().units_of(QueueKey("Orders", 0, is_batch=False))
    assert units.read(sample.keyless.queue_offset, 1) == FILLER
    assert units.read(sample.last.queue_offset, 1)[:8] == struct.pack(">q", sample.last.offset)
    (problem,) = rebuilt.problems
    assert problem.startswith(f"C3 commitlog {sample.keyless.offset}: ")


def test_a_queue_offset_beyond_reason_is_refused_and_named(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    builder.append()
    builder.append(queue_offset=1 << 50)
    after = builder.append(queue_offset=1)
    builder.write_log()
    (problem,) = rebuild(builder.open()).problems
    assert f"says queue offset {1 << 50} of Orders queue 0 where 1 follows" in problem
    units = builder.open().units_of(QueueKey("Orders", 0, is_batch=False))
    assert units.end == 2
    assert units.read(1, 1) == UNIT.pack(after.offset, after.size, 0)


def test_index_entries_are_chained_and_timed_as_rocketmq_does_it(tmp_path: Path) -> None:
    shape = Shape(segment_bytes=2048, index_slots=3, index_entries=4)
    builder = StoreBuilder(tmp_path, shape)
    one = builder.append(properties={"UNIQ_KEY": "u1", "KEYS": "a  b"})
    two = builder.append(properties={"KEYS": "c d"}, timestamp=one.timestamp + 5_500)
    builder.close()
    first, second = sorted((tmp_path / "index").iterdir())
    hashes = [key_hash("Orders", key) for key in ("u1", "a", "b", "c", "d")]
    chain: dict[int, int] = {}
    entries = []
    for number, hashed in enumerate(hashes[:3], 1):
        entries.append(ENTRY.pack(hashed, one.offset, 0, chain.get(hashed % 3, 0)))
        chain[hashed % 3] = number
    header = HEADER.pack(one.timestamp, one.timestamp, one.offset, one.offset, len(chain), 4)
    slots = struct.pack(">3i", *(chain.get(slot, 0) for slot in range(3)))
    assert first.read_bytes() == header + slots + bytes(20) + b"".join(entries)
    # The first entry of the next file counts from the end of this one, the second from the first.
    raw = second.read_bytes()
    assert ENTRY.unpack_from(raw, 40 + 12 + 20)[:3] == (hashes[3], two.offset, 5)
    assert ENTRY.unpack_from(raw, 40 + 12 + 40)[:3] == (hashes[4], two.offset, 0)
    assert HEADER.unpack_from(raw)[:4] == (two.timestamp, two.timestamp, two.offset, two.offset)


def test_index_files_are_named_by_time_and_never_alike(tmp_path: Path) -> None:
    shape = Shape(segment_bytes=2048, index_slots=3, index_entries=2)
    builder = StoreBuilder(tmp_path, shape)
    stored = builder.append(properties={"KEYS": "a b c"})
    builder.close()
    names = sorted(path.name for path in (tmp_path / "index").iterdir())
    seconds = time.strftime("%Y%m%d%H%M%S", time.localtime(stored.timestamp // 1000))
    assert names[0] == f"{seconds}{stored.timestamp % 1000:03d}"
    assert [int(name) - int(names[0]) for name in names] == [0, 1, 2]


def test_the_checkpoint_lets_a_broker_trust_what_was_rebuilt(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    (tmp_path / "checkpoint").write_bytes(Checkpoint(5, 6, 7, 8, 9).encode())
    rebuild(sample.open())
    newest = sample.last.timestamp
    assert sample.open().checkpoint == Checkpoint(5, newest, newest, 8, 9)


# --- what is replaced -----------------------------------------------------------------------------


def test_damaged_queues_and_index_are_as_before(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    before = files_of(tmp_path, *DERIVED)
    sample.patch_unit("Orders/0", 3, b"\xff" * 40)
    patch(sample.index[2], 0, bytes(60))
    shutil.rmtree(tmp_path / "consumequeue/Paid")
    (tmp_path / "batchconsumequeue/Batches/0" / f"{0:020d}").unlink()
    assert codes(sample.open())
    rebuild(sample.open())
    assert files_of(tmp_path, *DERIVED) == before
    assert codes(sample.open()) == set()
    assert not list(tmp_path.glob("rebuild.*"))
    assert not (tmp_path / "abort").exists()


def test_everything_lost_is_made_again_by_the_brokers_settings(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    before = files_of(tmp_path, *DERIVED)
    for folder in DERIVED:
        shutil.rmtree(tmp_path / folder)
    rebuild(sample.open())
    assert files_of(tmp_path, *DERIVED) == before


def test_one_of_the_two_is_left_alone_if_asked(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    before = files_of(tmp_path, *DERIVED)
    sample.patch_unit("Orders/0", 3, b"\xff" * 20)
    patch(sample.index[0], 32, b"\xff")
    rebuild(sample.open(), index=False)
    assert files_of(tmp_path, "consumequeue") == {
        name: content for name, content in before.items() if name.startswith("consumequeue")
    }
    assert codes(sample.open()) == {"I1"}
    rebuild(sample.open(), queues=False)
    assert files_of(tmp_path, *DERIVED) == before


def test_a_dry_run_counts_and_changes_nothing(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    (tmp_path / "lock").unlink()
    before = files_of(tmp_path, ".")
    counted = rebuild(sample.open(), dry_run=True)
    assert files_of(tmp_path, ".") == before
    assert counted == rebuild(sample.open())
    assert (counted.records, counted.queues, counted.index_entries) == (40, 9, 50)


def test_a_crashed_store_stays_one_that_must_recover(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    (tmp_path / "abort").write_text("4711")
    rebuild(sample.open())
    assert (tmp_path / "abort").exists()


def test_a_queue_whose_messages_are_gone_keeps_its_next_offset(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    (tmp_path / "commitlog" / f"{0:020d}").unlink()
    half = QueueKey("RMQ_SYS_TRANS_HALF_TOPIC", 0, is_batch=False)
    before = (tmp_path / half.folder / f"{0:020d}").read_bytes()
    rebuilt = rebuild(sample.open())
    assert rebuilt.kept_queues == 2
    assert (tmp_path / half.folder / f"{0:020d}").read_bytes() == before
    orders = sample.open().units_of(QueueKey("Orders", 0, is_batch=False))
    assert orders.end == sample.last.queue_offset + 1
    assert codes(sample.open()) == set()


def test_a_queue_that_is_kept_is_mended(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    (tmp_path / "commitlog" / f"{0:020d}").unlink()
    old = UNIT.pack(100, 91, 0)
    sample.patch_unit("RMQ_SYS_TRANS_HALF_TOPIC/0", 1, old + bytes(20) + old + b"\xff" * 20)
    rebuild(sample.open())
    units = sample.open().units_of(QueueKey("RMQ_SYS_TRANS_HALF_TOPIC", 0, is_batch=False))
    assert units.end == 4
    assert units.read(1, 3) == old + FILLER + old


def test_queues_of_deleted_topics_are_not_made_again(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    builder.append("Kept")
    builder.append("Gone")
    del builder.topics["Gone"]
    builder.close()
    assert rebuild(builder.open()).skipped_topics == {"Gone"}
    assert not (tmp_path / "consumequeue/Gone").exists()
    (tmp_path / "config/topics.json").unlink()
    assert rebuild(builder.open()).skipped_topics == set()
    assert (tmp_path / "consumequeue/Gone").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_rebuild_by_root_gives_the_files_to_the_brokers_user(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    (tmp_path / "lock").unlink()
    os.chown(tmp_path, 12_345, 54_321)
    rebuild(sample.open())
    made = [tmp_path / name for name in (*DERIVED, "checkpoint", "lock")]
    made += [path for folder in DERIVED for path in (tmp_path / folder).rglob("*")]
    assert {(path.stat().st_uid, path.stat().st_gid) for path in made} == {(12_345, 54_321)}


# --- when it must not, and when it dies -----------------------------------------------------------


def test_a_directory_that_a_broker_has_open_is_refused(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    before = files_of(tmp_path, ".")
    with subprocess.Popen(
        [sys.executable, "-c", BROKER, str(tmp_path / "lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as broker:
        assert broker.stdout is not None
        assert broker.stdout.readline() == "running\n"
        for dry_run in (False, True):
            with pytest.raises(StoreInUse, match="Stop it first"):
                rebuild(sample.open(), dry_run=dry_run)
        broker.communicate("")
    assert files_of(tmp_path, ".") == before
    rebuild(sample.open())


def test_a_log_without_records_is_refused(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    shutil.rmtree(tmp_path / "commitlog")
    (tmp_path / "commitlog").mkdir()
    before = files_of(tmp_path, *DERIVED)
    with pytest.raises(ConfigError, match="nothing to build from"):
        rebuild(sample.open())
    assert files_of(tmp_path, *DERIVED) == before
    assert not list(tmp_path.glob("rebuild.*"))


def test_rocksdb_queues_are_refused(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    (tmp_path / "consumequeue/CURRENT").touch()
    with pytest.raises(ConfigError, match="RocksDB"):
        rebuild(sample.open())


class Died(BaseException):
    """Stands for the end of the process."""


def dying(original: Callable[..., object], countdown: Iterator[int]) -> Callable[..., object]:
    """A function that works until the countdown is over."""

    def call(*args: object, **named: object) -> object:
        if next(countdown, None) is None:
            raise Died
        return original(*args, **named)

    return call


def test_a_rebuild_that_dies_anywhere_leaves_a_store_that_can_be_rebuilt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every change of a name is a place to die at."""
    builder = StoreBuilder(tmp_path / "whole")
    builder.append(properties={"KEYS": "a"})
    builder.close()
    before = files_of(builder.root, *DERIVED)
    steps, swaps = 0, 0
    while True:
        root = tmp_path / str(steps)
        shutil.copytree(builder.root, root)
        countdown = iter(range(steps))
        for function in ("rename", "replace", "unlink", "mkdir", "rmdir"):
            monkeypatch.setattr(os, function, dying(getattr(os, function), countdown))
        try:
            rebuild(StoreDirectory(root, SHAPE))
        except Died:
            pass
        else:
            break
        finally:
            monkeypatch.undo()
        if files_of(root, *DERIVED) != before:
            # In the middle of a swap the store says so, and a broker would make everything again.
            swaps += 1
            assert (root / "abort").exists()
            assert not any((root / "checkpoint").read_bytes())
        rebuild(StoreDirectory(root, SHAPE))
        assert files_of(root, *DERIVED) == before, steps
        assert not list(root.glob("rebuild.*"))
        steps += 1
    assert swaps == 2  # without queues, and without an index


def test_a_swap_that_died_saves_the_queues_that_only_it_still_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = sample_store(tmp_path)
    (tmp_path / "commitlog" / f"{0:020d}").unlink()
    original = os.rename

    def die_before_the_new_queues_come(source: object, target: object) -> None:
        if str(source).endswith(f"{rebuilding.READY}/consumequeue"):
            raise Died
        original(source, target)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "rename", die_before_the_new_queues_come)
    with pytest.raises(Died):
        rebuild(sample.open())
    monkeypatch.undo()
    assert not (tmp_path / "consumequeue").exists()
    assert rebuild(StoreDirectory(tmp_path)).kept_queues == 2
    assert codes(sample.open()) == set()


def test_records_of_former_lives_make_no_queues(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    for number in range(8):
        builder.append("Gone", number % 2)
    builder.forget("Gone")
    stored = builder.append("Gone", 1)
    builder.close()
    assert [path.name for path in (tmp_path / "consumequeue/Gone").iterdir()] == ["1"]
    units = builder.open().units_of(QueueKey("Gone", 1, is_batch=False))
    assert units.end == 1
    assert units.read(0, 1) == UNIT.pack(stored.offset, stored.size, 0)


def test_rolled_back_records_are_in_no_queue_and_not_in_the_index(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    builder.append("Old", sys_flag=0x4, properties={"UNIQ_KEY": "prepared"})
    builder.append("Old", sys_flag=0xC, properties={"UNIQ_KEY": "rolled back"})
    builder.append("Old", sys_flag=0x8, properties={"UNIQ_KEY": "committed"})
    builder.close()
    rebuilt = rebuild(builder.open())
    assert (rebuilt.units, rebuilt.index_entries) == (1, 2)


def test_a_torn_record_at_the_end_is_not_dispatched(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    before = files_of(tmp_path, *DERIVED)
    end = sample.last.offset + sample.last.size
    torn = encode_record(Record("Orders", b"torn", physical_offset=end, store_timestamp=NOW_MS))
    sample.patch_log(end, torn[:60])
    assert rebuild(sample.open()).problems == []
    assert files_of(tmp_path, *DERIVED) == before
