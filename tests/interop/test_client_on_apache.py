"""Our client on an unmodified Apache RocketMQ broker: the scenarios of the fast suite."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from tests.scenarios.catalogue import SCENARIOS
from tests.scenarios.cluster import Cluster

from .apache import start_broker, start_name_server

if TYPE_CHECKING:
    from pathlib import Path

    from tests.scenarios.catalogue import Scenario

    from .apache import Broker, NameServer
    from .processes import Bench

# Retries come after a second each: nobody can move this broker's clock.
LADDER: Final = " ".join(["1s", "10s"] + ["1s"] * 16)
SETTINGS: Final = {
    "messageDelayLevel": LADDER,
    "enablePropertyFilter": "true",
    "transactionTimeOut": 1_000,
    "transactionCheckInterval": 1_000,
    "maxMessageSize": 4 << 20,
}


@pytest.fixture(scope="module")
def apache(bench: Bench) -> tuple[NameServer, Broker]:
    nameserver = start_name_server(bench)
    broker = start_broker(
        bench, nameserver, name="client-peer", cluster="client-peers", extra=SETTINGS
    )
    broker.wait_until_started()
    nameserver.wait_for_broker(broker)
    return nameserver, broker


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.__name__)
async def test_our_client_on_apache(
    scenario: Scenario, apache: tuple[NameServer, Broker], tmp_path: Path
) -> None:
    nameserver, broker = apache
    cluster = Cluster(nameserver.address, broker.address, lambda: None, tmp_path)
    try:
        await scenario(cluster)
    finally:
        await cluster.close()
