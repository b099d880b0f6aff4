"""A name server and a broker in one process, on one event loop."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from firearrow.broker.broker import Broker
from firearrow.nameserver.server import NameServer

if TYPE_CHECKING:
    from firearrow.base.runtime import Clock
    from firearrow.broker.config import BrokerConfig
    from firearrow.nameserver.config import NameServerConfig


class Standalone:
    """Both roles; the broker registers with the name server beside it."""

    def __init__(
        self,
        names: NameServerConfig,
        settings: BrokerConfig,
        clock: Clock | None = None,
        *,
        insecure: bool = False,
    ) -> None:
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

    async def stop(self) -> None:
        await self.broker.stop()
        await self.nameserver.stop()
