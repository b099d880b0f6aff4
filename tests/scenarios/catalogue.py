"""All scenarios that any RocketMQ must pass with our client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.scenarios import consuming, reading, sending, watching

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.scenarios.cluster import Cluster

    Scenario = Callable[[Cluster], Awaitable[None]]

SCENARIOS: Final[tuple[Scenario, ...]] = (
    *sending.SCENARIOS,
    *consuming.SCENARIOS,
    *reading.SCENARIOS,
    *watching.SCENARIOS,
)
