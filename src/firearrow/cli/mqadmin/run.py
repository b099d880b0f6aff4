"""What a command of mqadmin works with: its flags, the cluster, and a page to print on."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

from firearrow.base.errors import ConfigError
from firearrow.client.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from firearrow.cli.mqadmin.flags import Flag, Given
    from firearrow.cli.target import Target
    from firearrow.client.blocking_admin import Admin
    from firearrow.model.topic import BrokerData


class Command(NamedTuple):
    """One name of mqadmin."""

    name: str
    help: str
    flags: tuple[Flag, ...]
    run: Callable[[Run], None]


class Run:
    """One call."""

    def __init__(self, target: Target, given: Given) -> None:
        self.target = target
        self.given = given

    @property
    def admin(self) -> Admin:
        return self.target.admin

    def out(self, text: str = "") -> None:
        """One line, or several."""
        sys.stdout.write(text + "\n")

    # --- which brokers ----------------------------------------------------------------------

    def brokers(self, cluster: str) -> list[BrokerData]:
        """Those of a cluster, by name."""
        info = self.admin.clusters()
        names = info.cluster_addr_table.get(cluster)
        if not names:
            known = ", ".join(sorted(info.cluster_addr_table)) or "none"
            raise InvalidRequest(f"there is no cluster {cluster}, only {known}")
        return [
            info.broker_addr_table[name] for name in sorted(names) if name in info.broker_addr_table
        ]

    def masters(self) -> list[str]:
        """Addresses that ``-b`` or ``-c`` mean; one of the two is needed."""
        if self.given.has("b"):
            return [self.given.text("b")]
        if self.given.has("c"):
            return [
                one.master_addr for one in self.brokers(self.given.text("c")) if one.master_addr
            ]
        raise ConfigError("name a broker (-b HOST:PORT) or a cluster (-c NAME)")

    def all_masters(self) -> list[str]:
        """Masters of everything that there is."""
        table = self.admin.clusters().broker_addr_table
        return [one.master_addr for _, one in sorted(table.items()) if one.master_addr]
