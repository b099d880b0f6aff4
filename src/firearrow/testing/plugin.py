"""The pytest plug-in: `def test_my_service(rocketmq): ...` gets a real broker of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from firearrow.testing.cluster import LocalCluster


@pytest.fixture
def rocketmq() -> Iterator[LocalCluster]:
    """A name server and a broker in this process, with nothing in them yet."""
    from firearrow.testing.cluster import LocalCluster  # noqa: PLC0415 - only tests that ask pay

    with LocalCluster() as cluster:
        yield cluster
