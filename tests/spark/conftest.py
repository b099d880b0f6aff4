"""One Spark session and one broker for all tests of the connector: both take a while to start."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.spark.sessions import spark_session
from tests.spark.topics import Topic

from firearrow.spark import pool
from firearrow.testing.cluster import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

SESSION_START_S = 240  # on a machine that does much else; a quiet one needs six


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/spark" in item.path.as_posix():
            item.add_marker(pytest.mark.timeout(SESSION_START_S))
            # PySpark and what it stands on leave sockets to the collector.
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with spark_session(tmp_path_factory.mktemp("spark")) as found:
        yield found


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(enable_property_filter=True) as found:
        yield found
    pool.close_all()


@pytest.fixture
def topic(cluster: LocalCluster, request: pytest.FixtureRequest) -> Topic:
    name = request.node.name.removeprefix("test_")[:60]
    return Topic(cluster, "".join(c if c.isalnum() else "_" for c in name), queues=4)


@pytest.fixture
def forgetful(tmp_path: Path) -> Iterator[LocalCluster]:
    """A broker with small files that nobody keeps; see `forget`."""
    with LocalCluster(
        tmp_path / "store",
        mapped_file_size_commit_log=16_384,
        clean_resource_interval=10,
        delete_when="",
        file_reserved_time=0,
    ) as found:
        yield found
    pool.close_all()
