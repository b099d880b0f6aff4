"""A name server and a broker in one process, on one event loop."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING

from firearrow.base.errors import ConfigError
from firearrow.broker.broker import Broker
from firearrow.metrics.settings import MetricsExporter
from firearrow.nameserver.server import NameServer

if TYPE_CHECKING:
    from firearrow.base.runtime import Clock
    from firearrow.broker.config import BrokerConfig
    from firearrow.cli.console_process import ConsoleProcess
    from firearrow.nameserver.config import NameServerConfig

PORT_MAX = 65_535


def with_metrics(
    names: NameServerConfig, settings: BrokerConfig, port: int | None
) -> tuple[NameServerConfig, BrokerConfig]:
    """Both settings with metrics on: the broker's at a port, the name server's one above."""
    if port is None:
        return names, settings
    if not 0 <= port < PORT_MAX:
        raise ConfigError(f"--metrics-port {port}: a number from 0 to {PORT_MAX - 1} expected")
    on = MetricsExporter.PROM
    return (
        dataclasses.replace(
            names, metrics_exporter_type=on, metrics_prom_exporter_port=port + 1 if port else 0
        ),
        dataclasses.replace(settings, metrics_exporter_type=on, metrics_prom_exporter_port=port),
    )


def ready_line(both: Standalone) -> str:
    """What `up` says when everything serves; programs read its beginning."""
    parts = [f"ready: name server {both.nameserver.address}", f"broker {both.broker.address}"]
    if both.broker.metrics is not None:
        parts.append(f"metrics {both.broker.metrics.url}/metrics")
    if both.console_url is not None:
        parts.append(f"console {both.console_url}")
    return ", ".join(parts)


class Standalone:
    """Both roles; the broker registers with the name server beside it."""

    def __init__(
        self,
        names: NameServerConfig,
        settings: BrokerConfig,
        clock: Clock | None = None,
        *,
        insecure: bool = False,
        console: ConsoleProcess | None = None,
    ) -> None:
        self._console = console
        self.console_url: str | None = None
        self.nameserver = NameServer(names, clock, insecure=insecure)
        self._settings = settings
        self._clock = clock
        self._insecure = insecure
        self.broker = Broker(settings, clock, insecure=insecure)

    async def start(self) -> None:
        await self.nameserver.start()
        settings = dataclasses.replace(self._settings, namesrv_addr=self.nameserver.address)
        self.broker = Broker(settings, self._clock, insecure=self._insecure)
        try:
            await self.broker.start()
        except BaseException:
            await self.nameserver.stop()
            raise
        if self._console is not None:
            self.console_url = self._console.open()
            self._console.start(self.nameserver.address)

    async def stop(self) -> None:
        if self._console is not None:
            await asyncio.to_thread(self._console.stop)
        await self.broker.stop()
        await self.nameserver.stop()
