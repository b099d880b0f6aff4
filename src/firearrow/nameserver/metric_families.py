"""What a name server tells Prometheus. RocketMQ has no names for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firearrow.metrics.families import Family, one
from firearrow.metrics.process import process_families

if TYPE_CHECKING:
    from collections.abc import Iterator

    from firearrow.nameserver.route_table import RouteTableStatistics
    from firearrow.net.server import ServerStatistics


def nameserver_families(
    server: ServerStatistics, routes: RouteTableStatistics, started_ms: int
) -> Iterator[Family]:
    for name, help_text, value in (
        ("firearrow_nameserver_clusters", "Clusters that brokers belong to.", routes.clusters),
        ("firearrow_nameserver_broker_names", "Masters with their slaves.", routes.broker_names),
        ("firearrow_nameserver_brokers", "Broker processes that live.", routes.brokers_live),
        ("firearrow_nameserver_topics", "Topics that brokers have told of.", routes.topics),
        ("firearrow_connections", "Connections that are open.", server.connections),
        ("firearrow_held_bytes", "Memory that peers tie up.", server.held_bytes),
    ):
        yield Family(name, "gauge", help_text, one(value))
    for name, help_text, value in (
        ("firearrow_connections_accepted_total", "Connections that were opened.", server.accepted),
        ("firearrow_connections_rejected_total", "Connections over the limit.", server.rejected),
    ):
        yield Family(name, "counter", help_text, one(value))
    yield from process_families(started_ms)
