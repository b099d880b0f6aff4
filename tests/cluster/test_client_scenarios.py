"""Our client on our broker: the same scenarios that `make interop` runs on Apache's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.scenarios.catalogue import SCENARIOS
from tests.scenarios.cluster import Cluster
from tests.support import running_broker

from firearrow.testing.cluster import JumpingClock

if TYPE_CHECKING:
    from pathlib import Path

    from tests.scenarios.catalogue import Scenario

JUMP_MS = 60_000


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.__name__)
async def test_our_client_on_our_broker(scenario: Scenario, tmp_path: Path) -> None:
    clock = JumpingClock()
    async with running_broker(
        tmp_path / "store",
        clock,
        mapped_file_size_commit_log=16 << 20,
        max_message_size=4 << 20,
        enable_property_filter=True,
    ) as served:
        cluster = Cluster(
            served.nameserver.address, served.broker.address, lambda: clock.jump(JUMP_MS), tmp_path
        )
        try:
            await scenario(cluster)
        finally:
            await cluster.close()
