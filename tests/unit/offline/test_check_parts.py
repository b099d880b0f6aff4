"""A check made in parts, as by processes that only exchange messages, says what one pass says."""

from __future__ import annotations

import inspect
import pickle
from collections import defaultdict
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from tests.store_builder import Sample, StoreBuilder, sample_store
from tests.unit.offline import test_check_healthy, test_check_rules
from tests.unit.offline.test_check_rules import BREAKS, NOW_MS

from firearrow.offline.check import check
from firearrow.offline.check_parts import (
    PartedCheck,
    check_index,
    check_queue,
    check_timer,
)
from firearrow.offline.parts import LogPart, UnitChunk, read_part

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import ModuleType

    from firearrow.offline.check import Report
    from firearrow.offline.derived import QueueKey
    from firearrow.offline.directory import StoreDirectory

T = TypeVar("T")


def sent(value: T) -> T:
    """As it arrives in another process."""
    arrived: T = pickle.loads(pickle.dumps(value))
    return arrived


def check_in_parts(store: StoreDirectory, *, now_ms: int, progress: object = None) -> Report:
    assert progress is None
    whole = PartedCheck(store, now_ms=now_ms)
    parts: list[LogPart] = []
    chunks: dict[QueueKey, list[UnitChunk]] = defaultdict(list)
    for first_offset in reversed(whole.files):  # nobody promises an order
        for found in read_part(sent(store), first_offset, sent(whole.rules), judge=True):
            if isinstance(found, LogPart):
                parts.append(sent(found))
            elif isinstance(found, UnitChunk):
                chunks[found.key].append(sent(found))
    facts = whole.take_logs(parts)
    if not store.has_rocksdb_queues:
        for key in store.queues:
            chunks.setdefault(key, [])
        whole.take_queues(
            sent(check_queue(sent(store), sent(facts), key, sorted(found, key=lambda c: c.place)))
            for key, found in chunks.items()
        )
    numbers = range(len(store.index_tables))
    whole.take_findings(sent(check_index(sent(store), sent(facts), n)) for n in numbers)
    whole.take_findings([check_timer(sent(store), sent(facts))])
    return whole.report()


def facts_of(report: Report) -> dict[str, Any]:
    found = {name: getattr(report, name) for name in report.__slots__}
    return found | {"findings": sorted(report.findings), "notes": sorted(report.notes)}


@pytest.mark.parametrize(
    ("code", "break_it"), BREAKS, ids=[f"{code}-{how.__name__}" for code, how in BREAKS]
)
def test_a_broken_rule_is_named_as_by_one_pass(
    code: str, break_it: Callable[[Sample], str], tmp_path: Path
) -> None:
    sample = sample_store(tmp_path / "store")
    break_it(sample)
    report = check_in_parts(sample.open(), now_ms=NOW_MS)
    assert {finding.code for finding in report.findings} == {code}
    assert facts_of(report) == facts_of(check(sample.open(), now_ms=NOW_MS))


def single_tests() -> list[tuple[ModuleType, str]]:
    """Tests of the one pass that need nothing but a folder."""
    return [
        (module, name)
        for module in (test_check_healthy, test_check_rules)
        for name, test in inspect.getmembers(module, inspect.isfunction)
        if name.startswith("test_") and list(inspect.signature(test).parameters) == ["tmp_path"]
    ]


@pytest.mark.parametrize(
    ("module", "name"), single_tests(), ids=[name for _, name in single_tests()]
)
def test_what_is_true_of_one_pass_is_true_of_parts(
    module: ModuleType, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "check", check_in_parts)
    getattr(module, name)(tmp_path)


def test_the_clock_is_followed_from_one_file_to_the_next(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    for _ in range(30):
        builder.append(body=b"x" * 200)
    first_of_third = next(each for each in builder.stored if each.offset >= 4096)
    sample = builder.close()
    path = tmp_path / "commitlog" / f"{4096:020d}"
    content = bytearray(path.read_bytes())
    content[56:64] = (first_of_third.timestamp - 3_600_000).to_bytes(8, "big")
    path.write_bytes(content)
    report = check_in_parts(sample, now_ms=NOW_MS)
    assert [finding.code for finding in report.findings] == ["C5"]
    assert facts_of(report) == facts_of(check(sample, now_ms=NOW_MS))
