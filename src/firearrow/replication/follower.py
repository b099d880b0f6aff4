"""The slave's end: connect to the master, say how far we are, write what comes.

A connection that breaks, goes silent or brings bytes that do not fit is made again; nothing is
lost by that, since every one begins with our own offset.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final, cast

from firearrow.base.runtime import Service, time_limit
from firearrow.model.errors import ServiceNotAvailable
from firearrow.net.client import split_address
from firearrow.replication.epochs import EpochEntry, common_offset
from firearrow.replication.ha_wire import (
    EpochsOfMaster,
    Greeting,
    HaProtocolError,
    MasterDecoder,
    Transfer,
    TransferDecoder,
    encode_greeting,
    encode_progress,
    encode_report,
)
from firearrow.store.errors import LogMismatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from firearrow.base.runtime import Clock
    from firearrow.replication.epochs import EpochHistory
    from firearrow.replication.settings import HaSettings
    from firearrow.store.replica import ReplicaLog

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_MS: Final = 3_000
FIRST_PAUSE_MS: Final = 500  # before a lost connection is made again; then longer
TICK_MS: Final = 1_000


class LinkFailed(Exception):
    """Why a connection to the master is of no use any more."""


class FollowerState:
    """What a slave knows of its link."""

    def __init__(self) -> None:
        self.is_connected = False  # and the master has said something
        self.read_ms = 0  # wall clock, as tools show it
        self.written_ms = 0
        self.received_bytes = 0
        self.bytes_per_second = 0
        self.confirm_offset = 0


class FollowerClient:
    """Follows one master until it is told to follow another, or none."""

    def __init__(
        self,
        replica: ReplicaLog,
        epochs: EpochHistory,
        clock: Clock,
        settings: HaSettings,
        own_id: Callable[[], int],
    ) -> None:
        self.replica = replica
        self.epochs = epochs
        self.clock = clock
        self.settings = settings
        self.own_id = own_id
        self.state = FollowerState()
        self.master_address = ""
        self.on_change: Callable[[], None] = lambda: None  # connected, or not any more
        self.on_failure: Callable[[], None] = lambda: None  # it may be elsewhere by now
        self.on_confirmed: Callable[[], None] = lambda: None
        self._tasks = Service("follow", clock)
        self._following: asyncio.Task[None] | None = None

    def follow(self, address: str) -> None:
        """Follow the master whose HA port is there."""
        if address == self.master_address and self._following is not None:
            return
        split_address(address)
        if self._following is not None:
            self._following.cancel()
        self.master_address = address
        log.info("following the master at %s from %d", address, self.replica.end_offset)
        self._following = self._tasks.spawn(self._follow(address), name="master")

    async def stop(self) -> None:
        """Follow nobody."""
        self._following = None
        self.master_address = ""
        await self._tasks.stop_tasks()
        self._connected(is_connected=False)

    def _connected(self, *, is_connected: bool) -> None:
        if self.state.is_connected != is_connected:
            self.state.is_connected = is_connected
            self.on_change()

    async def _follow(self, address: str) -> None:
        pause_ms = FIRST_PAUSE_MS
        complained = ""
        while True:
            began_ms = self.clock.elapsed_ms()
            try:
                await self._one_connection(address)
            except (OSError, TimeoutError, LinkFailed) as error:
                reason = str(error) or type(error).__name__
                if reason != complained:
                    log.warning("the master at %s is lost: %s; trying again", address, reason)
                    complained = reason
            finally:
                self._connected(is_connected=False)
            self.on_failure()
            if self.clock.elapsed_ms() - began_ms > self.settings.silence_ms:
                pause_ms, complained = FIRST_PAUSE_MS, ""
            await self.clock.sleep(pause_ms)
            pause_ms = min(2 * pause_ms, self.settings.reconnect_ms)

    async def _one_connection(self, address: str) -> None:
        """Connect and stay until it fails, which is what it returns by."""
        host, port = split_address(address)
        loop = asyncio.get_running_loop()
        kind = EpochMasterLink if self.settings.with_epochs else MasterLink
        async with time_limit(self.clock, CONNECT_TIMEOUT_MS):
            _, link = await loop.create_connection(lambda: kind(self), host, port)
        try:
            while not link.failed.done():
                with contextlib.suppress(TimeoutError):
                    async with time_limit(self.clock, TICK_MS):
                        await asyncio.shield(link.failed)
                link.tick(self.clock.elapsed_ms())
            raise LinkFailed(link.failed.result())
        finally:
            await link.end()

    def heard(self, size: int) -> None:
        state = self.state
        state.read_ms = self.clock.now_ms()
        state.received_bytes += size
        self._connected(is_connected=True)


class MasterLink(asyncio.Protocol):
    """One connection to a classic master."""

    def __init__(self, owner: FollowerClient) -> None:
        self._owner = owner
        self._replica = owner.replica
        self._frames = TransferDecoder()
        self.transport: asyncio.Transport | None = None
        self.failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._read_ms = self._written_ms = owner.clock.elapsed_ms()
        self._reported = -1
        self._reporting = False
        self._bytes_before = owner.state.received_bytes

    # --- asyncio.Protocol -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's are of another class
        self.begin()

    def data_received(self, data: bytes) -> None:
        if self.failed.done():
            return
        self._read_ms = self._owner.clock.elapsed_ms()
        self._owner.heard(len(data))
        try:
            self.heard(data)
        except (HaProtocolError, LogMismatch, ServiceNotAvailable) as error:
            self.fail(str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self.fail(str(exc) if exc is not None else "the master closed the connection")

    def fail(self, reason: str) -> None:
        if not self.failed.done():
            self.failed.set_result(reason)

    async def end(self) -> None:
        if self.transport is not None:
            self.transport.abort()
        self.fail("we left")

    # --- the conversation -------------------------------------------------------------------

    def begin(self) -> None:
        self.report()

    def heard(self, data: bytes) -> None:
        before = self._replica.end_offset
        for transfer in self._frames.feed(data):
            self.apply(transfer)
        if self._replica.end_offset != before:
            self.report_soon()

    def apply(self, transfer: Transfer) -> None:
        if transfer.body:
            self._replica.append(transfer.offset, transfer.body)
        elif 0 < transfer.offset < self._replica.end_offset:
            raise LogMismatch(
                f"the master is at {transfer.offset}, before our end at {self._replica.end_offset}"
            )

    def report_soon(self) -> None:
        """Say how far we are when that counts here: on disk, if the flush is synchronous."""
        if not self._reporting:
            self._reporting = True
            self._replica.when_safe(self._safe)

    def _safe(self) -> None:
        self._reporting = False
        if self._replica.safe_end > self._reported:
            self.report()
        if self._replica.end_offset > self._replica.safe_end:
            self.report_soon()

    def report(self) -> None:
        if self.transport is not None:
            self._reported = self._replica.safe_end
            self.transport.write(self.encoded(self._reported))
            self._written_ms = self._owner.clock.elapsed_ms()
            self._owner.state.written_ms = self._owner.clock.now_ms()

    def encoded(self, offset: int) -> bytes:
        return encode_report(offset)

    def tick(self, now_ms: int) -> None:
        settings, state = self._owner.settings, self._owner.state
        state.bytes_per_second = state.received_bytes - self._bytes_before
        self._bytes_before = state.received_bytes
        if now_ms - self._read_ms > settings.silence_ms:
            self.fail(f"not a word for {settings.silence_ms} ms")
        elif now_ms - self._written_ms >= settings.heartbeat_ms:
            self.beat()

    def beat(self) -> None:
        self.report()


class EpochMasterLink(MasterLink):
    """One connection to a master with epochs: histories are compared before anything is written."""

    def __init__(self, owner: FollowerClient) -> None:
        super().__init__(owner)
        self._decoder = MasterDecoder()
        self._agreeing: asyncio.Task[None] | None = None
        self._agreed = False

    def begin(self) -> None:
        assert self.transport is not None
        settings = self._owner.settings
        greeting = Greeting(self._owner.own_id(), settings.from_last_file, settings.is_learner)
        self.transport.write(encode_greeting(greeting))

    def heard(self, data: bytes) -> None:
        before = self._replica.end_offset
        for frame in self._decoder.feed(data):
            if isinstance(frame, EpochsOfMaster):
                if self._agreeing is not None:
                    raise HaProtocolError("a second greeting of the master")
                self._agreeing = asyncio.create_task(self._agree(frame))
            elif not self._agreed:
                raise HaProtocolError("a transfer before we said how far we are")
            else:
                self._apply_epoch(frame)
        if self._replica.end_offset != before:
            self.report_soon()

    async def _agree(self, master: EpochsOfMaster) -> None:
        """Cut what the master's history does not have, then say how far we are."""
        epochs, replica = self._owner.epochs, self._replica
        try:
            end = replica.whole_end()
            # An epoch of which we have not a byte says nothing about our log.
            ours = [entry for entry in epochs.entries if entry.start_offset < end]
            if ours:
                common = common_offset(ours, end, master.entries, master.max_offset)
                if common is None:
                    self.fail(
                        "our history and the master's have no epoch in common: start this slave "
                        "with an empty directory"
                    )
                    return
                end = min(end, common)
            elif end > master.max_offset:
                self.fail(f"the master ends at {master.max_offset}, we at {end}, without epochs")
                return
            if end < replica.end_offset:
                await replica.truncate(end)
            epochs.truncate(replica.end_offset)
            self._agreed = True
            self.report()
        except (OSError, ServiceNotAvailable) as error:
            self.fail(f"our log cannot be cut to {master.max_offset}: {error}")

    def _apply_epoch(self, transfer: Transfer) -> None:
        owner = self._owner
        if transfer.body:
            if transfer.epoch != owner.epochs.last_epoch:
                try:
                    owner.epochs.append(EpochEntry(transfer.epoch, transfer.epoch_start))
                except ValueError as error:
                    raise HaProtocolError(str(error)) from error
            self.apply(transfer)
        confirm = min(transfer.confirm_offset, self._replica.end_offset)
        if confirm > owner.state.confirm_offset:
            owner.state.confirm_offset = confirm
            owner.on_confirmed()

    def encoded(self, offset: int) -> bytes:
        return encode_progress(offset)

    def beat(self) -> None:
        if self._agreed:
            self.report()

    async def end(self) -> None:
        if self._agreeing is not None:
            self._agreeing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._agreeing
        await super().end()
