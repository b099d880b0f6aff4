"""The real name server and broker in this process, on free ports, for tests of applications.

Nothing is simulated but time, and that only when a test asks: `advance` moves the broker's wall
clock, so that delayed messages and retries come at once.

    with LocalCluster() as rocketmq, Producer("t", nameservers=rocketmq.nameservers) as producer:
        producer.send(Message("orders", b"later", delay_level=16))
        rocketmq.advance(minutes=30)
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from firearrow.base.runtime import SystemClock
from firearrow.broker.broker import Broker
from firearrow.broker.config import BrokerConfig
from firearrow.client.portal import portal
from firearrow.nameserver.config import NameServerConfig
from firearrow.nameserver.server import NameServer
from firearrow.store.config import FlushDiskType

if TYPE_CHECKING:
    from collections.abc import Callable

    from firearrow.base.runtime import Timer

# Files small enough to be made in no time; a test seldom stores more than this.
_SMALL: Final[dict[str, Any]] = {
    "listen_port": 0,
    "mapped_file_size_commit_log": 16 * 1024 * 1024,
    "mapped_file_size_consume_queue": 20 * 20_000,
    "max_hash_slot_num": 10_000,
    "max_index_num": 40_000,
    "disk_free_bytes_min": 0,
    "disk_space_warning_level_ratio": 100,
    "access_message_in_memory_max_ratio": 100,
    "flush_disk_type": FlushDiskType.ASYNC_FLUSH,
}


class JumpingTimer:
    """A timer of `JumpingClock`."""

    def __init__(self, clock: JumpingClock, due_ms: int, callback: Callable[[], None]) -> None:
        self.due_ms = due_ms
        self._clock = clock
        self._callback = callback
        delay_ms = max(0, due_ms - clock.elapsed_ms())
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self.fire)

    def fire(self) -> None:
        if self in self._clock.timers:
            self.cancel()
            self._callback()

    def cancel(self) -> None:
        self._timer.cancel()
        self._clock.timers.discard(self)


class JumpingClock(SystemClock):
    """The machine's clock, which can be put forward.

    Only wall-clock time jumps. Time-outs of connections and clients go by elapsed time, which does
    not, so a jump of an hour makes messages due and nobody dead.
    """

    def __init__(self) -> None:
        self._ahead_ms = 0
        self.timers: set[JumpingTimer] = set()

    def now_ms(self) -> int:
        return super().now_ms() + self._ahead_ms

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        timer = JumpingTimer(self, self.elapsed_ms() + max(0, delay_ms), callback)
        self.timers.add(timer)
        return timer

    async def sleep(self, delay_ms: int) -> None:
        woken = asyncio.Event()
        timer = self.call_later(delay_ms, woken.set)
        try:
            await woken.wait()
        finally:
            timer.cancel()

    def jump(self, ms: int) -> None:
        """Let so much time have passed; what was to be done in it is looked at now."""
        assert ms >= 0
        self._ahead_ms += ms
        due_ms = self.elapsed_ms() + ms
        for timer in sorted(self.timers, key=lambda one: one.due_ms):
            if timer.due_ms <= due_ms:
                timer.fire()


class LocalCluster:
    """A name server and a broker for tests; use it with `with`, from any thread.

    Args:
        folder: Where the broker keeps its files; a temporary folder by default.
        settings: Any setting of the broker, in Python's spelling.
    """

    def __init__(self, folder: Path | None = None, **settings: Any) -> None:  # noqa: ANN401
        self._temporary = folder is None
        self._folder = folder or Path(tempfile.mkdtemp(prefix="firearrow-"))
        self._settings = settings
        self.clock = JumpingClock()
        self._nameserver: NameServer | None = None
        self._broker: Broker | None = None

    # --- life -------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin; `with` does it. Everything runs on the loop that blocking clients share."""
        portal.call(self._start)

    async def _start(self) -> None:
        names = NameServerConfig(
            listen_port=0,
            kv_config_path=self._folder / "kvConfig.json",
            config_store_path=self._folder / "namesrv.properties",
        )
        self._nameserver = NameServer(names)
        await self._nameserver.start()
        try:
            await self._start_broker()
        except BaseException:
            await self._nameserver.stop()
            raise

    async def _start_broker(self, port: int = 0) -> None:
        assert self._nameserver is not None
        given = _SMALL | {
            "store_path_root_dir": self._folder / "store",
            "namesrv_addr": self._nameserver.address,
            "listen_port": port,
        }
        self._broker = Broker(BrokerConfig(**(given | self._settings)), self.clock)
        await self._broker.start()

    def stop(self) -> None:
        """End; temporary files go."""
        portal.call(self._stop)
        if self._temporary:
            shutil.rmtree(self._folder, ignore_errors=True)

    async def _stop(self) -> None:
        if self._broker is not None:
            await self._broker.stop()
        if self._nameserver is not None:
            await self._nameserver.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- for tests --------------------------------------------------------------------------

    @property
    def nameservers(self) -> str:
        """What clients are given."""
        assert self._nameserver is not None, "the cluster is not started"
        return self._nameserver.address

    @property
    def broker_address(self) -> str:
        assert self._broker is not None, "the cluster is not started"
        return self._broker.address

    def advance(
        self, *, ms: int = 0, seconds: float = 0, minutes: float = 0, hours: float = 0
    ) -> None:
        """Put the broker's clock forward: delayed messages and retries within it become due."""
        total_ms = ms + round((seconds + 60 * minutes + 3600 * hours) * 1000)
        portal.run_soon(lambda: self.clock.jump(total_ms))

    def stop_broker(self) -> None:
        """Take the broker away, as an outage would; its files stay."""
        assert self._broker is not None
        portal.call(self._broker.stop)

    def restart_broker(self) -> None:
        """Bring the broker back after `stop_broker`, at the same address."""
        port = int(self.broker_address.rpartition(":")[2])
        portal.call(self._start_broker, port)
