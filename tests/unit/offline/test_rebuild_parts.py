"""A rebuild in parts, as by processes that only exchange messages, writes what one pass writes."""

from __future__ import annotations

import inspect
import pickle
import shutil
from collections import defaultdict
from contextlib import nullcontext
from typing import TYPE_CHECKING, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.store_builder import SHAPE, StoreBuilder, sample_store
from tests.unit.offline import test_rebuild
from tests.unit.offline.test_rebuild import DERIVED, files_of

from firearrow.offline import parts as parts_module
from firearrow.offline.index_writer import IndexWriter
from firearrow.offline.parts import KeyChunk, LogPart, UnitChunk, read_part
from firearrow.offline.rebuild import rebuild, refuse_rocksdb, replacing
from firearrow.offline.rebuild_parts import (
    ChunkFacts,
    PartedRebuild,
    build_queue,
    build_table,
    plan_tables,
)
from firearrow.store.errors import StoreInUse

if TYPE_CHECKING:
    from pathlib import Path

    from firearrow.offline.derived import QueueKey
    from firearrow.offline.directory import StoreDirectory
    from firearrow.offline.rebuild import Rebuilt

T = TypeVar("T")


def sent(value: T) -> T:
    """As it arrives in another process."""
    arrived: T = pickle.loads(pickle.dumps(value))
    return arrived


def rebuild_in_parts(
    store: StoreDirectory, *, queues: bool = True, index: bool = True, dry_run: bool = False
) -> Rebuilt:
    refuse_rocksdb(store)
    if store.is_locked:
        raise StoreInUse(f"{store.root} is in use by a broker. Stop it first")
    place = nullcontext(None) if dry_run else replacing(store, queues=queues, index=index)
    with place as folder:
        return build(PartedRebuild(store, folder, queues=queues, index=index))


def build(whole: PartedRebuild) -> Rebuilt:
    logs: list[LogPart] = []
    units: dict[QueueKey, list[UnitChunk]] = defaultdict(list)
    keys: dict[int, KeyChunk] = {}
    rules = sent(whole.building.rules) if whole.queues else None
    for first_offset in reversed(whole.files):  # nobody promises an order
        for found in read_part(sent(whole.store), first_offset, rules, index=whole.index):
            if isinstance(found, LogPart):
                logs.append(sent(found))
            elif isinstance(found, UnitChunk):
                units[found.key].append(sent(found))
            else:
                keys[found.place] = sent(found)
    whole.take_logs(logs)
    if whole.queues:
        for _ in range(2):  # Spark may do a task twice
            built = [
                sent(build_queue(sent(whole.building), key, sorted(found, key=lambda c: c.place)))
                for key, found in units.items()
            ]
        whole.take_queues(built)
    if whole.index:
        plans = whole.plan_tables(ChunkFacts(*chunk[:3]) for chunk in keys.values())
        for _ in range(2):
            tables = [
                sent(build_table(sent(whole.building), plan, [keys[at] for at in plan.chunks]))
                for plan in plans
            ]
        whole.take_tables(reversed(tables))
    return whole.finish()


def single_tests() -> list[str]:
    return [
        name
        for name, test in inspect.getmembers(test_rebuild, inspect.isfunction)
        if name.startswith("test_") and list(inspect.signature(test).parameters) == ["tmp_path"]
    ]


@pytest.mark.parametrize("name", single_tests())
def test_what_is_true_of_one_pass_is_true_of_parts(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(test_rebuild, "rebuild", rebuild_in_parts)
    getattr(test_rebuild, name)(tmp_path)


@pytest.mark.parametrize("chunk_bytes", [1, 100, 1 << 20])
def test_files_and_counts_are_those_of_one_pass_however_small_the_chunks(
    chunk_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts_module, "CHUNK_BYTES", chunk_bytes)
    one, parted = sample_store(tmp_path / "one"), sample_store(tmp_path / "parts")
    for sample in (one, parted):
        for folder in DERIVED:
            shutil.rmtree(sample.root / folder)
    counted = rebuild(one.open())
    assert rebuild_in_parts(parted.open(), dry_run=True) == counted
    assert rebuild_in_parts(parted.open()) == counted
    names = (*DERIVED, "checkpoint")
    assert files_of(parted.root, *names[:3]) == files_of(one.root, *names[:3])
    assert (parted.root / "checkpoint").read_bytes() == (one.root / "checkpoint").read_bytes()
    assert not (parted.root / "rebuild.tmp").exists()


# How many keys each record has, and where chunks begin.
key_counts = st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=40)


@given(key_counts, st.integers(2, 9))
def test_index_files_are_those_of_one_pass_wherever_chunks_begin(
    tmp_path_factory: pytest.TempPathFactory, counts: list[tuple[int, bool]], entries: int
) -> None:
    root = tmp_path_factory.mktemp("store")
    builder = StoreBuilder(root, SHAPE)
    for count, _ in counts:
        keys = " ".join(f"k{number}" for number in range(count))
        builder.append(properties={"KEYS": keys} if keys else {})
    builder.write_log()
    store = builder.open()
    (root / "one").mkdir()
    (root / "parts").mkdir()
    records = [r for batch in store.walk() for r in batch.records]  # type: ignore[union-attr]
    writer = IndexWriter(root / "one", slots=3, entries=entries)
    chunks: list[KeyChunk] = []
    collected = parts_module.KeyRun()
    for record, (count, begins) in zip(records, counts, strict=True):
        if begins:
            chunks += collected.take()
        each = [f"k{number}" for number in range(count)]
        writer.add(record.topic, each, record.physical_offset, record.store_timestamp)
        collected.add(record, {"KEYS": " ".join(each)})
    writer.finish()
    chunks += collected.take()
    plans = plan_tables([ChunkFacts(*chunk[:3]) for chunk in chunks], capacity=entries - 1)
    whole = PartedRebuild(store, root / "parts", queues=False, index=True)
    building = pickle.loads(pickle.dumps(whole.building))
    object.__setattr__(building, "slots", 3)
    object.__setattr__(building, "entries", entries)
    by_place = {chunk.place: chunk for chunk in chunks}
    (root / "parts" / "index").mkdir()
    whole.take_tables(
        build_table(building, plan, [by_place[at] for at in plan.chunks]) for plan in plans
    )
    ours = {path.name: path.read_bytes() for path in sorted((root / "parts/index").iterdir())}
    theirs = {path.name: path.read_bytes() for path in sorted((root / "one").iterdir())}
    assert ours == theirs
