"""The master's end: a listener on the HA port, and one link for each slave.

Nothing here waits. A link writes when there is something to send and its slave reads, that is on
three occasions: the log has grown, a slave has reported for the first time, a socket has room.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, cast

from firearrow.base.errors import ConfigError
from firearrow.base.runtime import Service
from firearrow.base.telemetry import RateLimitedLog
from firearrow.replication.ha_wire import (
    FollowerDecoder,
    Greeting,
    HaProtocolError,
    Progress,
    ReportDecoder,
    encode_epoch_transfer,
    encode_epochs,
    encode_transfer,
)
from firearrow.replication.progress import Follower

if TYPE_CHECKING:
    from firearrow.base.runtime import Clock
    from firearrow.replication.epochs import EpochHistory
    from firearrow.replication.progress import ReplicationProgress
    from firearrow.replication.settings import HaSettings
    from firearrow.store.replica import ReplicaLog

log = logging.getLogger(__name__)

TICK_MS: Final = 1_000
BUFFER_BYTES_MAX: Final = 512 * 1024  # written and not yet taken by the network, for each slave


class Leader:
    """Accepts slaves while we are the master, and keeps them supplied."""

    def __init__(
        self,
        replica: ReplicaLog,
        progress: ReplicationProgress,
        epochs: EpochHistory,
        clock: Clock,
        settings: HaSettings,
    ) -> None:
        self.replica = replica
        self.progress = progress
        self.epochs = epochs
        self.clock = clock
        self.settings = settings
        self._tasks = Service("ha", clock)
        self._server: asyncio.Server | None = None
        self._links: dict[Link, None] = {}  # in the order in which they came
        self._complaints = RateLimitedLog(log)
        self._woken = False
        self.is_leading = False

    # --- life -------------------------------------------------------------------------------

    async def listen(self, host: str, port: int) -> int:
        """Open the HA port; returns which it is. ConfigError if it cannot be had."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(self._link, host, port)
        except OSError as error:
            raise ConfigError(
                f"the HA port {host}:{port} cannot be opened ({error.strerror or error}): set "
                "haListenPort to a free one"
            ) from error
        self._tasks.every(TICK_MS, self._tick, name="links")
        return int(self._server.sockets[0].getsockname()[1])

    def lead(self) -> None:
        """Slaves may come from now on."""
        self.is_leading = True
        self.replica.on_grown = self.wake

    def step_down(self) -> None:
        """Let go of all slaves."""
        self.is_leading = False
        self.replica.on_grown = None
        # We leave them, not they us: nobody falls out of the sync-state set by it.
        self.progress.followers.clear()
        for link in list(self._links):
            link.close("this broker is no master any more")

    async def stop(self) -> None:
        self.step_down()
        if self._server is not None:
            self._server.close()
            self._server = None
        await self._tasks.stop_tasks()

    # --- links ------------------------------------------------------------------------------

    def _link(self) -> Link:
        return EpochLink(self) if self.settings.with_epochs else Link(self)

    def accepts(self, link: Link) -> str:
        """Take a new link in; else why not."""
        if not self.is_leading:
            return "this broker is a slave itself"
        if len(self._links) >= self.settings.followers_max:
            return f"{self.settings.followers_max} connections are open already"
        self._links[link] = None
        return ""

    def gone(self, link: Link, reason: str, *, is_fault: bool) -> None:
        self._links.pop(link, None)
        self.progress.left(link.follower)
        if is_fault:
            self._complaints.warning(
                self.clock.elapsed_ms(), "%s on the HA port: %s", link.follower.address, reason
            )
        elif link.follower.acked >= 0:
            log.info("slave %s has left: %s", link.follower.address, reason or "it closed")

    def wake(self) -> None:
        """There is more to send, at the end of this turn of the loop."""
        if self._links and not self._woken:
            self._woken = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._woken = False
        for link in list(self._links):
            link.pump()

    def _tick(self) -> None:
        now_ms = self.clock.elapsed_ms()
        for link in list(self._links):
            link.tick(now_ms)
        if self.is_leading:
            self.progress.look_for_late(now_ms)
        self.epochs.drop_before(self.replica.min_offset)

    def warm(self, link: Link, offset: int) -> None:
        """Bring in from the disk what a slave far behind gets next; then go on with it."""
        self._tasks.spawn(self._warm(link, offset), name="warm")

    async def _warm(self, link: Link, offset: int) -> None:
        await self.replica.warm(offset, BUFFER_BYTES_MAX)
        link.warmed(offset)


class Link(asyncio.Protocol):
    """One slave, classic."""

    def __init__(self, leader: Leader) -> None:
        self._leader = leader
        self._replica = leader.replica
        self._reports = ReportDecoder()
        self.transport: asyncio.Transport | None = None
        self.follower = Follower("?")
        self._position = -1  # of the next transfer; -1 until the slave has said where it is
        self._paused = False
        self._warm_to = 0
        self._warming = False
        self._read_ms = self._written_ms = leader.clock.elapsed_ms()
        self._bytes_before = 0
        self._reason = ""
        self._is_fault = False

    # --- asyncio.Protocol -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's are of another class
        peer = self.transport.get_extra_info("peername")
        self.follower.address = f"{peer[0]}:{peer[1]}" if peer else "?"
        self.transport.set_write_buffer_limits(high=BUFFER_BYTES_MAX)
        if reason := self._leader.accepts(self):
            self.close(reason, is_fault=True)

    def data_received(self, data: bytes) -> None:
        self._read_ms = self._leader.clock.elapsed_ms()
        try:
            self.heard(data)
        except HaProtocolError as error:
            self.close(f"closed: {error}", is_fault=True)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self.pump()

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self._leader.gone(self, self._reason or str(exc or ""), is_fault=self._is_fault)

    def close(self, reason: str, *, is_fault: bool = False) -> None:
        if self.transport is not None and not self._reason:
            self._reason, self._is_fault = reason, is_fault
            self.transport.abort()

    # --- what the slave says ----------------------------------------------------------------

    def heard(self, data: bytes) -> None:
        progress = self._reports.feed(data)
        if progress is not None:
            self.reported(progress)

    def reported(self, progress: Progress) -> None:
        leader, follower = self._leader, self.follower
        end = self._replica.end_offset
        if progress.offset > end:
            raise HaProtocolError(
                f"it holds {progress.offset} bytes of a log of which the master has {end}: they "
                "are not copies of one log; start the slave with an empty directory"
            )
        is_first = follower.acked < 0
        if is_first:
            self._position = self.first_position(progress.offset)
            leader.progress.joined(follower, leader.clock.elapsed_ms())
            log.info("slave %s is here and gets the log from %d", follower.address, self._position)
        leader.progress.acked(follower, progress.offset, leader.clock.elapsed_ms())
        if is_first:
            self.pump()

    def first_position(self, offset: int) -> int:
        """A slave that has nothing gets the last file, as in RocketMQ; copy older ones to it."""
        if offset == 0:
            return self._replica.newest_file
        return max(offset, self._replica.min_offset)

    # --- what it gets -----------------------------------------------------------------------

    def pump(self) -> None:
        """Send what there is, as much as the network takes."""
        if self._position < 0 or self._warming or self.transport is None:
            return
        while not self._paused and self._position < self._replica.readable_end:
            if self._position >= self._warm_to and self._replica.is_cold(self._position):
                self._warming = True
                self._leader.warm(self, self._position)
                return
            block = self._replica.read(self._position, self.block_bytes())
            if not block:  # expired under our hands, or a hole
                following = self._replica.next_file(self._position)
                if following is None:
                    return
                self._position = following
                continue
            self._send(block)

    def block_bytes(self) -> int:
        return self._leader.settings.transfer_bytes

    def header(self, size: int) -> bytes:
        return encode_transfer(self._position, size)

    def _send(self, block: bytes) -> None:
        assert self.transport is not None
        self.transport.writelines((self.header(len(block)), block))
        self._position += len(block)
        self._written_ms = self._leader.clock.elapsed_ms()
        follower = self.follower
        follower.sent = self._position
        follower.sent_bytes += len(block)
        follower.end_at_transfer = self._replica.readable_end

    def warmed(self, offset: int) -> None:
        self._warming = False
        self._warm_to = offset + BUFFER_BYTES_MAX
        self.pump()

    def tick(self, now_ms: int) -> None:
        """Once a second: is it still there, does it hear from us?"""
        follower, settings = self.follower, self._leader.settings
        follower.bytes_per_second = follower.sent_bytes - self._bytes_before
        self._bytes_before = follower.sent_bytes
        if now_ms - self._read_ms > settings.silence_ms:
            self.close(f"not a word for {settings.silence_ms} ms", is_fault=follower.acked < 0)
        elif now_ms - self._written_ms >= settings.heartbeat_ms:
            self.beat(now_ms)

    def beat(self, now_ms: int) -> None:
        if self._position >= 0 and self.transport is not None and not self._paused:
            self.transport.write(self.header(0))
            self._written_ms = now_ms


class EpochLink(Link):
    """One slave that compares histories first."""

    def __init__(self, leader: Leader) -> None:
        super().__init__(leader)
        self._heard = FollowerDecoder()
        self._greeting: Greeting | None = None

    def heard(self, data: bytes) -> None:
        for frame in self._heard.feed(data):
            if isinstance(frame, Greeting):
                self._greet(frame)
            elif self._greeting is None:
                raise HaProtocolError("progress before a greeting")
            else:
                self.reported(frame)

    def _greet(self, greeting: Greeting) -> None:
        assert self.transport is not None
        if self._greeting is not None:
            raise HaProtocolError("a second greeting")
        self._greeting = greeting
        self.follower.broker_id = greeting.broker_id
        self.follower.is_learner = greeting.is_learner
        epochs = self._leader.epochs
        self.transport.write(
            encode_epochs(self._replica.end_offset, epochs.last_epoch, epochs.entries)
        )

    def first_position(self, offset: int) -> int:
        """With epochs a slave that has nothing gets everything, unless it wants the last file."""
        if offset == 0 and self._greeting is not None and self._greeting.from_last_file:
            return self._replica.newest_file
        return max(offset, self._replica.min_offset)

    def block_bytes(self) -> int:
        """No transfer spans two epochs."""
        epochs = self._leader.epochs
        stop = epochs.end_of(epochs.entry_at(self._position).epoch)
        most = self._leader.settings.transfer_bytes
        return most if stop is None else min(most, stop - self._position)

    def header(self, size: int) -> bytes:
        entry = self._leader.epochs.entry_at(self._position)
        confirm = self._leader.progress.confirm_offset
        return encode_epoch_transfer(self._position, size, entry, confirm)
