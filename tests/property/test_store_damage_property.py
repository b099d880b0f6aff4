"""Stores damaged at random: no tool fails on them, and a rebuild mends what can be mended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.store_builder import START_MS, Sample, sample_store

from firearrow.base.errors import ConfigError
from firearrow.offline.check import check
from firearrow.offline.dump import as_object, dump
from firearrow.offline.log_walk import Damage
from firearrow.offline.rebuild import rebuild

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

NOW_MS = START_MS + 86_400_000


def damage_file(path: Path, data: st.DataObject) -> None:
    content = bytearray(path.read_bytes())
    kind = data.draw(st.sampled_from(["flip", "zero", "write", "cut", "empty", "remove", "grow"]))
    at = data.draw(st.integers(0, max(0, len(content) - 1)))
    if kind == "flip" and content:
        content[at] ^= 1 << data.draw(st.integers(0, 7))
    elif kind == "zero":
        size = min(data.draw(st.sampled_from([1, 8, 60, 512])), len(content) - at)
        content[at : at + size] = bytes(size)
    elif kind == "write":
        written = data.draw(st.binary(min_size=1, max_size=40))[: len(content) - at]
        content[at : at + len(written)] = written
    elif kind == "cut":
        del content[at:]
    elif kind == "empty":
        content.clear()
    elif kind == "grow":
        content += data.draw(st.binary(min_size=1, max_size=40))
    elif kind == "remove":
        path.unlink()
        return
    path.write_bytes(content)


def damaged_store(data: st.DataObject, factory: pytest.TempPathFactory, *folders: str) -> Sample:
    sample = sample_store(factory.mktemp("damage") / "store")
    files = sorted(
        path for folder in folders for path in (sample.root / folder).rglob("*") if path.is_file()
    )
    chosen = data.draw(st.lists(st.sampled_from(files), min_size=1, max_size=4, unique=True))
    for path in chosen:
        damage_file(path, data)
    if data.draw(st.booleans()):
        (sample.root / "abort").touch()
    return sample


@given(data=st.data())
@settings(max_examples=200)
def test_no_damage_makes_a_tool_fail(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    sample = damaged_store(data, tmp_path_factory, ".")
    stored = {each.offset: each.size for each in sample.builder.stored}
    for message in dump(sample.open()):
        if not isinstance(message, Damage):
            found = as_object(message, with_body=True)
            assert stored[found["physicalOffset"]] == found["storeSize"]
    report = check(sample.open(), now_ms=NOW_MS)
    assert report.records <= len(stored)
    assert len(str(report)) < 100_000
    try:
        assert rebuild(sample.open(), dry_run=True).records == report.records
    except ConfigError:
        assert report.records == 0


@given(data=st.data())
@settings(max_examples=25)
def test_a_rebuild_leaves_findings_about_the_log_alone(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    sample = damaged_store(
        data, tmp_path_factory, "commitlog", "consumequeue", "batchconsumequeue", "index"
    )
    before = check(sample.open(), now_ms=NOW_MS)
    if before.records:
        rebuild(sample.open())
        after = check(sample.open(), now_ms=NOW_MS)
        assert [str(found) for found in after.findings if found.code[0] in "QI"] == []
        # Some damage shows only in queues that point to it.
        lost = {str(found) for found in before.findings if found.code[0] == "C"}
        assert {str(found) for found in after.findings if found.code[0] == "C"} <= lost
