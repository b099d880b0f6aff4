"""Servers that the tests of a file share, and the output of every peer beside a failed test."""

from __future__ import annotations

import itertools
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from .apache import Cluster, start_cluster
from .processes import Bench

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

# The first test of a cold run also fetches jars, modules and packages.
TEST_TIMEOUT_S: Final = 900

BENCH: Final = pytest.StashKey[Bench]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests of this folder the time that fetching needs."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.timeout(TEST_TIMEOUT_S))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the peers printed when a test fails."""
    report = yield
    bench = item.config.stash.get(BENCH, None)
    if report.failed and bench is not None:
        report.sections.extend(bench.tails())
    return report


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Bench]:
    """Owner of all processes; ends them with the file: an idle Apache broker takes a quarter of a
    core, and with a dozen of them nothing is on time any more.
    """
    owner = Bench(tmp_path_factory.mktemp("interop"))
    pytestconfig.stash[BENCH] = owner
    yield owner
    owner.stop_all()


@pytest.fixture(scope="module")
def cluster(bench: Bench) -> Cluster:
    """The name server under test with two Apache brokers."""
    return start_cluster(bench, name="interop")


@pytest.fixture(scope="session")
def unique() -> Callable[[str], str]:
    """Makes names that no other test and no earlier run has used."""
    run = secrets.token_hex(3)
    numbers = itertools.count(1)
    return lambda stem: f"{stem}-{run}-{next(numbers)}"
