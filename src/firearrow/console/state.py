"""What the pages share: the link to the cluster, users, the audit list, what was seen lately."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from firearrow.base.errors import FirearrowError
from firearrow.base.runtime import Service, SystemClock
from firearrow.client.admin import Admin
from firearrow.client.producer import Producer
from firearrow.console.audit import Audit
from firearrow.console.data.catalog import Catalog, Groups, Kept
from firearrow.console.data.health import Finding, Severity, findings
from firearrow.console.data.history import History
from firearrow.console.users import LoginLimiter, Sessions, Users

if TYPE_CHECKING:
    from firearrow.base.runtime import Clock
    from firearrow.client.admin_results import BrokerInfo
    from firearrow.console.settings import ConsoleSettings

log = logging.getLogger(__name__)

PRODUCER_GROUP: Final = "FIREARROW_CONSOLE"
LAG_REST: Final = 10  # the console spends a tenth of its time on lags at most


class ConsoleState:
    """One console: everything that outlives a page."""

    def __init__(self, settings: ConsoleSettings, clock: Clock | None = None) -> None:
        self.settings = settings
        self.clock = clock = clock or SystemClock()
        self.admin = Admin(nameservers=settings.nameservers)
        self.catalog = Catalog(self.admin, clock)
        self.brokers: Kept[list[BrokerInfo]] = Kept(self.admin.brokers, clock)
        self.history = History()
        self.users = Users(settings.users_file)
        self.sessions = Sessions(self.users, clock, settings.session_ms)
        self.limiter = LoginLimiter(clock)
        self.audit = Audit(settings.audit_file, clock)
        self._tasks = Service("console", clock)
        self._producer: Producer | None = None
        self._making = asyncio.Lock()

    async def start(self) -> None:
        await self.admin.start()
        self._tasks.spawn(self._watch(), name="watch")

    async def stop(self) -> None:
        await self._tasks.stop_tasks()
        await self.catalog.close()
        await self.brokers.close()
        if self._producer is not None:
            await self._producer.close()
        await self.admin.close()

    async def producer(self) -> Producer:
        """Sends test messages and copies; made when first needed."""
        async with self._making:
            if self._producer is None:
                producer = Producer(PRODUCER_GROUP, nameservers=self.settings.nameservers)
                await producer.start()
                self._producer = producer
            return self._producer

    # --- watching ---------------------------------------------------------------------------

    async def _watch(self) -> None:
        """A sample every few seconds; a cluster that is away is a gap in the plots."""
        groups, rest_until_ms = Groups(), 0
        while True:
            began_ms = self.clock.elapsed_ms()
            try:
                brokers = await self.brokers.get(fresh=True)
                if began_ms >= rest_until_ms:
                    groups = await self.catalog.groups(fresh=True)
                    now_ms = self.clock.elapsed_ms()
                    rest_until_ms = now_ms + LAG_REST * (now_ms - began_ms)
                self.history.add(self.clock.now_ms(), brokers, groups.rows)
            except FirearrowError as error:
                log.info("nothing to plot: %s", error)
            await self.clock.sleep(self.settings.sample_ms)

    async def health(self) -> tuple[list[BrokerInfo], list[Finding]]:
        """Brokers, and everything that is wrong with the cluster."""
        try:
            brokers = await self.brokers.get()
            groups = await self.catalog.groups()
        except FirearrowError as error:
            values = {"nameservers": self.settings.nameservers, "error": str(error)}
            fix = "firearrow nameserver"
            return [], [Finding(Severity.DOWN, "health.unreachable", values, fix=fix)]
        return brokers, findings(brokers, groups.rows)
